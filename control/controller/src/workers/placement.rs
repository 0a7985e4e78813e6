//! Processors and scheduling policies of the workers' threads, and of the clock of plugins beside them.

use millrace_config::{Router, WorkerPolicy};
use millrace_principals::{Policy, Processor, ThreadError, ThreadSettings, let_on};
use nix::unistd::Pid;

/// Returns the processors of the workers; none if the kernel chooses them.
pub(crate) fn processors(router: &Router) -> Vec<Processor> {
    router.worker_processors.iter().copied().map(Processor).collect()
}

/// Returns the processor and the policy of a worker.
pub(crate) fn thread_settings(router: &Router, worker: usize) -> ThreadSettings {
    ThreadSettings {
        processors: processors(router).get(worker).map(|processor| vec![*processor]),
        policy: policy(router),
    }
}

fn policy(router: &Router) -> Option<Policy> {
    router.worker_policy.map(|policy| match policy {
        WorkerPolicy::Other(nice) => Policy::Other { nice },
        WorkerPolicy::Fifo(priority) => Policy::Fifo { priority },
        WorkerPolicy::RoundRobin(priority) => Policy::RoundRobin { priority },
    })
}

/// Lets the clock of plugins run beside the workers: at their processors, and with their policy. Otherwise busy threads
/// at the other processors would delay the ends of slices.
pub(crate) fn place_clock(router: &Router, clock: Pid) -> Result<(), ThreadError> {
    let_on(clock, &processors(router))?;
    ThreadSettings { processors: None, policy: policy(router) }.apply(clock)
}

#[cfg(test)]
mod tests {
    use nix::sched::{sched_getaffinity, sched_setaffinity};
    use nix::unistd::gettid;

    use super::*;

    #[test]
    fn clock_may_run_at_the_processors_of_workers() {
        let own = Pid::from_raw(0);
        let allowed = sched_getaffinity(own).unwrap();
        let present: Vec<u16> = (0..1024).filter(|one| allowed.is_set(usize::from(*one)).unwrap()).collect();
        let router = Router { worker_processors: present.clone(), ..Router::default() };
        let first = present[0];
        let clock = std::thread::spawn(move || {
            let mut set = nix::sched::CpuSet::new();
            set.set(first.into()).unwrap();
            sched_setaffinity(own, &set).unwrap();
            place_clock(&router, gettid()).unwrap();
            sched_getaffinity(own).unwrap()
        });
        assert_eq!(clock.join().unwrap(), allowed);
    }
}
