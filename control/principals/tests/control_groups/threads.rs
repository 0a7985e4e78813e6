//! Groups of threads of this process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::sleep;
use std::time::{Duration, Instant};

use millrace_principals::{Controller, CpuLimit, Limits, Members, Policy, RealtimeShare, ThreadSettings};
use nix::unistd::{Pid, gettid};

use crate::support::Testbed;

/// Ends a busy thread when dropped, also after a failed assertion.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn limit_of_a_thread_leaves_other_threads_alone() {
    let Some(testbed) = Testbed::new(&[Controller::Cpu, Controller::CpuAccounting]) else { return };
    let mut workers = testbed.router.create_group("workers", Members::Threads).unwrap();
    workers.set(&Limits { cpu_limit: Some(CpuLimit::new(200_000).unwrap()), ..Limits::default() }).unwrap();
    let ended = AtomicBool::new(false);
    let busy = || {
        let mut turns = 0u64;
        while !ended.load(Ordering::Relaxed) {
            turns += 1;
        }
        turns
    };
    let used = std::thread::scope(|scope| {
        let end = End(&ended);
        let (send, receive) = channel();
        scope.spawn(move || {
            send.send(gettid()).unwrap();
            busy()
        });
        workers.add_thread(receive.recv().unwrap()).unwrap();
        sleep(Duration::from_millis(200));
        let (start, before) = (Instant::now(), workers.usage().unwrap().cpu.unwrap());
        sleep(Duration::from_secs(1));
        let used = workers.usage().unwrap().cpu.unwrap() - before;
        assert_eq!(workers.usage().unwrap().tasks, Some(1));
        drop(end);
        used.as_secs_f64() / start.elapsed().as_secs_f64()
    });
    println!("{:.1} % of a processor used", used * 100.0);
    assert!((used - 0.2).abs() < 0.05, "{used}");
}

#[test]
fn realtime_policy_needs_a_share_of_the_group() {
    let Some(testbed) = Testbed::new(&[Controller::Cpu]) else { return };
    let mut workers = testbed.router.create_group("workers", Members::Threads).unwrap();
    let has_shares = workers.directories().any(|path| path.join("cpu.rt_runtime_us").exists());
    let settings = ThreadSettings { processors: None, policy: Some(Policy::Fifo { priority: 1 }) };
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            workers.add_thread(gettid()).unwrap();
            let refused = settings.apply(Pid::from_raw(0)).map_err(|error| error.to_string());
            workers.allow_realtime(RealtimeShare::new(100_000).unwrap()).unwrap();
            (refused, settings.apply(Pid::from_raw(0)))
        });
        let (refused, allowed) = thread.join().unwrap();
        println!("{refused:?}");
        if has_shares {
            assert!(refused.unwrap_err().contains("its control group has no real-time share: write"));
        }
        // Such kernels refuse the policies to all threads in a group of version 2.
        let refused = allowed.map_err(|error| error.to_string()).err();
        assert!(refused.is_none_or(|error| !has_shares && error.contains("CONFIG_RT_GROUP_SCHED")));
    });
    if has_shares {
        let error = workers.allow_realtime(RealtimeShare::new(1_000_000).unwrap()).unwrap_err().to_string();
        assert!(
            error.contains("cpu.rt_runtime_us") && error.contains("earlier limits are restored"),
            "{error}"
        );
    }
}
