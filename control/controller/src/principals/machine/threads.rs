//! Control groups of the router's threads: one for the workers, and one for control with all other threads.
//!
//! They exist while the router has a group. Without a usable controller, or if the kernel refuses a thread, the
//! threads stay where they are, and nothing else changes.

use millrace_principals::{
    Controller, CpuWeight, Group, GroupError, Limits, Members, RouterGroup, other_threads,
};
use nix::unistd::Pid;

use crate::view::ThreadGroupView;

/// Names of the groups.
const WORKERS: &str = "workers";
const CONTROL: &str = "control";
/// Number of times that the threads of control are looked for: a thread may start another one meanwhile.
const ROUNDS: usize = 3;

/// Threads of the workers.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkerThreads {
    pub threads: Vec<Pid>,
    /// Whether they have a real-time policy.
    pub are_realtime: bool,
}

/// Control groups of the router's threads.
#[derive(Debug, Default)]
pub(crate) struct ThreadGroups {
    groups: Vec<Held>,
    /// Reason why there are none.
    obstacle: Option<String>,
    /// Number of workers.
    workers: usize,
    /// Weight of all threads beside the principals' processes; `None` for that of as many principals.
    weight: Option<CpuWeight>,
    /// Refusal of this weight by the kernel.
    refused: Option<String>,
}

#[derive(Debug)]
struct Held {
    group: Group,
    /// Weight; `None` if the machine knows none.
    weight: Option<CpuWeight>,
    /// Reason why threads are not in the group.
    obstacle: Option<String>,
}

impl ThreadGroups {
    /// Returns no groups yet, for the threads of a router with so many workers.
    pub fn of(workers: usize) -> Self {
        Self { workers, ..Self::default() }
    }

    /// Returns the number of workers.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Sets the weight of all threads beside the principals' processes, if it differs. After a refusal, the next call
    /// tries again.
    pub fn set_weight(&mut self, router: &RouterGroup, threads: CpuWeight) {
        let (whole, has_groups) = (weight(self.workers + 2), !self.groups.is_empty());
        self.write_weight(threads, || match has_groups {
            true => router.set_weights(whole, threads).map_err(|error| error.to_string()),
            false => Ok(()),
        });
    }

    fn write_weight(&mut self, threads: CpuWeight, write: impl FnOnce() -> Result<(), String>) {
        if self.weight.replace(threads) == Some(threads) && self.refused.is_none() {
            return;
        }
        let refused = write().err();
        if let Some(error) = refused.as_ref().filter(|error| self.refused.as_ref() != Some(error)) {
            tracing::warn!("the router's threads keep their weight beside processes of principals: {error}");
        }
        self.refused = refused;
    }

    /// Creates the groups in the router's group, if there is one, and moves the threads into them.
    pub fn follow(&mut self, router: Option<&RouterGroup>, workers: &WorkerThreads) {
        let Some(router) = router else { return self.end() };
        if !self.groups.is_empty() || self.obstacle.is_some() {
            return;
        }
        match create(router, workers.threads.len(), self.weight) {
            Ok(groups) => self.groups = groups,
            Err(error) => {
                tracing::info!("the router's threads have no control groups: {error}");
                self.obstacle = Some(error.to_string());
            }
        }
        for held in &mut self.groups {
            held.obstacle = held.fill(workers).err();
            if let Some(obstacle) = &held.obstacle {
                tracing::warn!(
                    group = held.group.name(),
                    "threads stay in the group of the start: {obstacle}"
                );
            }
        }
    }

    /// Removes the groups. The threads move to the group in which the router was started.
    pub fn end(&mut self) {
        *self = Self::of(self.workers);
    }

    /// Returns the views of the groups, or the reason why there are none.
    pub fn view(&self) -> Vec<ThreadGroupView> {
        let view = |held: &Held| {
            let usage = held.group.usage();
            let obstacle = held.obstacle.clone().or_else(|| self.refused.clone());
            let obstacle = obstacle.or_else(|| usage.as_ref().err().map(ToString::to_string));
            let usage = usage.unwrap_or_default();
            ThreadGroupView {
                group: held.group.name().to_owned(),
                threads: usage.tasks,
                weight: held.weight.map(CpuWeight::get),
                cpu_seconds: usage.cpu.map(|time| time.as_secs_f64()),
                directories: held.group.directories().map(|path| path.display().to_string()).collect(),
                obstacle,
            }
        };
        let missing = |name: &&str| ThreadGroupView {
            group: (*name).to_owned(),
            threads: None,
            weight: None,
            cpu_seconds: None,
            directories: Vec::new(),
            obstacle: self.obstacle.clone(),
        };
        match self.obstacle {
            Some(_) => [WORKERS, CONTROL].iter().map(missing).collect(),
            None => self.groups.iter().map(view).collect(),
        }
    }
}

/// Creates the groups. Each worker weighs as much as a principal of the usual weight, and so do all other threads
/// together, unless `threads` is their weight beside the principals. The router's group keeps the weight that its
/// threads and the principals had beside other programs.
fn create(router: &RouterGroup, workers: usize, threads: Option<CpuWeight>) -> Result<Vec<Held>, GroupError> {
    let hold = |name, threads| {
        let (weight, group) = (weight(threads), router.create_group(name, Members::Threads)?);
        let mut held = Held { group, weight: Some(weight), obstacle: None };
        match held.group.set(&Limits { cpu_weight: held.weight, ..Limits::default() }) {
            // Such a group measures the processor time nevertheless.
            Err(GroupError::Unavailable { controller: Controller::Cpu, .. }) => held.weight = None,
            set => set?,
        }
        Ok(held)
    };
    let groups = vec![hold(WORKERS, workers)?, hold(CONTROL, 1)?];
    router.set_weights(weight(workers + 2), threads.unwrap_or(weight(workers + 1)))?;
    Ok(groups)
}

/// Returns the weight of so many threads.
fn weight(threads: usize) -> CpuWeight {
    let usual = usize::from(CpuWeight::DEFAULT.get());
    let weight = threads.max(1).saturating_mul(usual).min(CpuWeight::MOST.into());
    CpuWeight::new(weight as u16).unwrap_or(CpuWeight::DEFAULT)
}

impl Held {
    /// Moves the threads into the group.
    fn fill(&self, workers: &WorkerThreads) -> Result<(), String> {
        let add = |thread: &Pid| match self.group.add_thread(*thread) {
            // It has ended.
            Err(GroupError::Join { source, .. }) if source.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            result => result.map_err(|error| error.to_string()),
        };
        if self.group.name() == CONTROL {
            for _ in 0..ROUNDS {
                other_threads(&workers.threads).iter().try_for_each(add)?;
            }
            return Ok(());
        }
        if workers.are_realtime && self.group.has_realtime_shares() {
            return Err(
                "this kernel gives real-time policies only to groups with a share of their own, and the \
                        workers have such a policy, so they stay outside: remove `worker-policy`"
                    .to_owned(),
            );
        }
        workers.threads.iter().try_for_each(add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weight_is_that_of_so_many_principals_up_to_the_largest() {
        for (threads, expected) in [(0, 100), (1, 100), (3, 300), (100, 10_000), (usize::MAX, 10_000)] {
            assert_eq!(weight(threads).get(), expected, "{threads}");
        }
    }

    #[test]
    fn refused_weight_is_written_again_and_an_accepted_one_is_not() {
        let mut groups = ThreadGroups::of(1);
        let mut written = Vec::new();
        let mut write = |groups: &mut ThreadGroups, weight, result: Result<(), &str>| {
            let weight = CpuWeight::new(weight).unwrap();
            groups.write_weight(weight, || {
                written.push(weight.get());
                result.map_err(str::to_owned)
            });
            groups.refused.clone()
        };
        assert_eq!(write(&mut groups, 200, Err("no")).as_deref(), Some("no"));
        assert_eq!(write(&mut groups, 200, Err("no")).as_deref(), Some("no"));
        assert_eq!(write(&mut groups, 200, Ok(())), None);
        assert_eq!(write(&mut groups, 200, Err("no")), None);
        assert_eq!(write(&mut groups, 300, Ok(())), None);
        assert_eq!(written, [200, 200, 200, 300]);
    }

    #[test]
    fn router_without_a_group_has_no_groups_of_threads() {
        let mut groups = ThreadGroups::default();
        groups.follow(None, &WorkerThreads::default());
        assert!(groups.view().is_empty());
        groups.obstacle = Some("none here".to_owned());
        let view = groups.view();
        assert_eq!(view.iter().map(|one| &*one.group).collect::<Vec<_>>(), ["workers", "control"]);
        assert!(view.iter().all(|one| one.obstacle.as_deref() == Some("none here") && one.threads.is_none()));
    }
}
