//! Watchdog of instances' calls. A worker that hangs in a call can neither be stopped nor bypassed. Therefore
//! the watchdog ends the router, so that the kernel forwards. The next start puts the instance into
//! quarantine.
//!
//! The watchdog doesn't measure a call by wall-clock time, because every call takes long on a busy or stopped
//! machine. It adds up the processor time of the worker's thread during the call, and the time that the
//! thread slept in the call.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use millrace_confine::Privileges;
use millrace_plugin::{Calling, Pulse};
use millrace_repository::{Held, Quarantine};
use millrace_units::InstanceId;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

use crate::ControlError;
use crate::events::since_1970;

/// Number of checks within the time limit of a call.
const LOOKS: u32 = 8;
/// Maximum time for writing the quarantine record before the process ends.
const DISK: Duration = Duration::from_secs(1);

/// Names of instances and of their plugins, for threads that must not wait for the lock of control.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names(Arc<Mutex<HashMap<InstanceId, (String, &'static str)>>>);

impl Names {
    pub fn set<'a>(&self, names: impl Iterator<Item = (InstanceId, &'a str, &'static str)>) {
        let names = names.map(|(id, name, plugin)| (id, (name.to_owned(), plugin))).collect();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = names;
    }

    fn get(&self, id: InstanceId) -> Option<(String, &'static str)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }
}

/// Thread of a worker, as observed by another thread.
#[derive(Clone, Debug)]
pub(crate) struct WorkerThread {
    pub pulse: Arc<Pulse>,
    pub thread: Pid,
}

impl WorkerThread {
    /// Returns the processor time of the thread so far; `None` when the thread has ended.
    pub fn cpu_time(&self) -> Option<Duration> {
        // clock_getcpuclockid(3): the upper bits are the inverted thread id. Of the lowest three bits, 4
        // selects a thread's clock, and 2 the scheduler's count of its time.
        let clock = ClockId::from_raw(!self.thread.as_raw() << 3 | 6);
        Some(clock_gettime(clock).ok()?.into())
    }

    /// Whether the thread is in an interruptible sleep. This is false for a thread that runs, waits for a
    /// processor, is stopped, or waits for memory or a disk.
    fn is_asleep(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{}/stat", self.thread));
        // The name of the thread is in brackets, and may contain any character.
        stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S')))
    }
}

/// Current call of a worker, which the watchdog suspects to hang, and the duration of the call so far.
#[derive(Debug, Default)]
struct Suspicion {
    call: Option<Calling>,
    /// Processor time of the thread at the last check.
    ran: Duration,
    /// Lower bound of the time that the call has run or slept.
    spent: Duration,
}

impl Suspicion {
    /// Updates the record after a check. `call` is the worker's current call, `ran` the processor time of the
    /// worker's thread, and `slept` the thread's sleep since the last check. Returns the duration of the call
    /// so far.
    fn look(&mut self, call: Option<Calling>, ran: Duration, slept: Duration) -> Duration {
        if call.is_none() || call != self.call {
            (self.call, self.spent) = (call, Duration::ZERO);
        } else {
            self.spent += ran.saturating_sub(self.ran).max(slept);
        }
        self.ran = ran;
        self.spent
    }
}

/// Threads under watch, and settings of the watchdog.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub workers: Vec<WorkerThread>,
    /// Time limit of a call.
    pub limit: Duration,
    pub names: Names,
    /// Directory of the quarantine records; `None` writes none.
    pub state: Option<PathBuf>,
    /// Function that ends the process at once.
    pub end: fn(),
}

/// Handle to the watchdog thread. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Watchdog {
    _stop: Sender<()>,
}

impl Watchdog {
    pub fn start(watch: Watch) -> Result<Self, ControlError> {
        let (stop, stopped) = channel();
        let body = move || watch.go_on(&stopped);
        let begin = || std::thread::Builder::new().name("watchdog".to_owned()).spawn(body);
        let what = "start the watchdog's thread";
        let begun = Privileges::Files.apart(begin).map_err(|error| ControlError::system(what, error))?;
        begun.map_err(|error| ControlError::system(what, error))?;
        Ok(Self { _stop: stop })
    }
}

impl Watch {
    fn go_on(&self, stopped: &Receiver<()>) {
        let mut suspicions: Vec<Suspicion> = self.workers.iter().map(|_| Suspicion::default()).collect();
        let interval = self.limit / LOOKS;
        let mut last = Instant::now();
        while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
            // If the watchdog itself was paused for long, nobody knows what the worker did meanwhile. So at
            // most two intervals count.
            let passed = last.elapsed().min(interval * 2);
            last = Instant::now();
            for (worker, suspicion) in self.workers.iter().zip(&mut suspicions) {
                if let Some(call) = self.look(worker, suspicion, passed) {
                    self.end_for(call);
                }
            }
        }
    }

    /// Checks a worker. Returns its current call if this has exceeded the time limit.
    fn look(&self, worker: &WorkerThread, suspicion: &mut Suspicion, passed: Duration) -> Option<Calling> {
        let call = worker.pulse.calling();
        let ran = worker.cpu_time()?;
        let is_known = call.is_some() && call == suspicion.call;
        let slept = if is_known && worker.is_asleep() { passed } else { Duration::ZERO };
        call.filter(|_| suspicion.look(call, ran, slept) >= self.limit)
    }

    fn end_for(&self, call: Calling) {
        let (instance, plugin) = self.names.get(call.instance).unwrap_or_default();
        let limit = self.limit.as_millis();
        let why = format!("a call of the instance did not return within {limit} ms, ending the router");
        let after = match self.state {
            Some(_) => {
                format!("the instance stays in quarantine until `millrace instance release {instance}`")
            }
            None => "the quarantine is not stored, because [plugins] state is \"none\"".to_owned(),
        };
        tracing::error!(
            instance,
            plugin,
            "a call of the instance did not return within {limit} ms: the router ends; {after}"
        );
        let since = since_1970().as_secs();
        self.remember(Held { instance, plugin: plugin.to_owned(), since, why });
        (self.end)();
    }

    /// Writes a quarantine record to disk, within a time limit.
    fn remember(&self, held: Held) {
        let Some(state) = self.state.clone() else { return };
        let (done, remembered) = channel();
        let write = move || {
            // If the receiver no longer waits, the result is dropped.
            let _ = done.send(Quarantine::open(Some(&state)).put(held));
        };
        let problem = match std::thread::Builder::new().name("quarantine".to_owned()).spawn(write) {
            Err(error) => error.to_string(),
            Ok(_) => match remembered.recv_timeout(DISK) {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("the disk did not answer within {} s", DISK.as_secs()),
            },
        };
        tracing::error!("can't store the quarantine of the instance: {problem}");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    const TICK: Duration = Duration::from_millis(100);

    fn calling(number: u64) -> Option<Calling> {
        Some(Calling { number, instance: InstanceId(1) })
    }

    #[test]
    fn only_time_within_one_call_counts() {
        let mut suspicion = Suspicion::default();
        let mut ran = Duration::ZERO;
        for number in 0..20 {
            ran += TICK;
            assert_eq!(suspicion.look(calling(2 * number + 1), ran, Duration::ZERO), Duration::ZERO);
        }
        for round in 1..5 {
            ran += TICK;
            assert_eq!(suspicion.look(calling(39), ran, Duration::ZERO), TICK * round);
        }
        assert_eq!(suspicion.look(None, ran + TICK, Duration::ZERO), Duration::ZERO);
        assert_eq!(suspicion.look(calling(41), ran + 2 * TICK, Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn watchdog_suspects_a_sleeping_thread_but_not_a_thread_without_processor_time() {
        let mut suspicion = Suspicion::default();
        let ran = Duration::from_secs(7);
        for _ in 0..100 {
            assert_eq!(suspicion.look(calling(1), ran, Duration::ZERO), Duration::ZERO);
        }
        for round in 1..5 {
            assert_eq!(suspicion.look(calling(1), ran, TICK), TICK * round);
        }
    }

    #[test]
    fn a_thread_is_seen_running_and_sleeping() {
        let (sender, receiver) = channel();
        let (wait, awaited) = channel::<()>();
        let stop = Arc::new(AtomicBool::new(false));
        let runs = stop.clone();
        let thread = std::thread::spawn(move || {
            sender.send(nix::unistd::gettid()).unwrap();
            while !runs.load(Ordering::Relaxed) {}
            let _ = awaited.recv();
        });
        let worker = WorkerThread { pulse: Arc::default(), thread: receiver.recv().unwrap() };
        let before = worker.cpu_time().unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while worker.cpu_time().unwrap() < before + Duration::from_millis(20) {
            assert!(Instant::now() < deadline, "a thread that runs has a clock that goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!worker.is_asleep());
        stop.store(true, Ordering::Relaxed);
        while !worker.is_asleep() {
            assert!(Instant::now() < deadline, "a thread that waits is asleep");
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(wait);
        thread.join().unwrap();
    }
}
