//! Processors and scheduling policies of threads.

#![allow(unsafe_code)]

use std::fmt;
use std::io;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::controller::{Controller, Version};
use crate::files::read_if_present;
use crate::machine::Machine;

/// Number of a processor, as in `/proc/cpuinfo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Processor(pub u16);

impl fmt::Display for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Scheduling policy of a thread (`sched(7)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Policy {
    /// `SCHED_OTHER`: a share of the processor.
    Other {
        /// Nice value, -20 (largest share) to 19.
        nice: i8,
    },
    /// `SCHED_FIFO`: before all normal threads, until the thread waits.
    Fifo {
        /// Priority, 1 to 99 (highest).
        priority: u8,
    },
    /// `SCHED_RR`: as `SCHED_FIFO`, in turns with threads of the same priority.
    RoundRobin {
        /// Priority, 1 to 99 (highest).
        priority: u8,
    },
}

impl Policy {
    /// Sets the policy of a thread; 0 is the calling thread. Makes only system calls, so that a new child may
    /// call it. Processes and threads that the thread creates have the normal policy.
    pub(crate) fn set(self, thread: Pid) -> io::Result<()> {
        let (policy, priority) = match self {
            Self::Other { .. } => (libc::SCHED_OTHER, 0),
            Self::Fifo { priority } => (libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, priority),
            Self::RoundRobin { priority } => (libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, priority),
        };
        let parameters = libc::sched_param { sched_priority: priority.into() };
        // SAFETY: the kernel reads the parameters during the call.
        if unsafe { libc::sched_setscheduler(thread.as_raw(), policy, &raw const parameters) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let Self::Other { nice } = self else { return Ok(()) };
        // SAFETY: the call only sets a number that the scheduler reads.
        let answer =
            unsafe { libc::setpriority(libc::PRIO_PROCESS, thread.as_raw().cast_unsigned(), nice.into()) };
        if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn check(self) -> Result<(), ThreadError> {
        let (what, value, range) = match self {
            Self::Other { nice } => ("nice value", i32::from(nice), -20..=19),
            Self::Fifo { priority } | Self::RoundRobin { priority } => {
                ("priority", i32::from(priority), 1..=99)
            }
        };
        if range.contains(&value) {
            return Ok(());
        }
        Err(ThreadError::Range { what, value, least: *range.start(), most: *range.end() })
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other { nice } => write!(f, "SCHED_OTHER with nice value {nice}"),
            Self::Fifo { priority } => write!(f, "SCHED_FIFO with priority {priority}"),
            Self::RoundRobin { priority } => write!(f, "SCHED_RR with priority {priority}"),
        }
    }
}

/// Thread whose processors or policy can't be set.
#[derive(Debug, thiserror::Error)]
pub enum ThreadError {
    /// A nice value or priority is out of its range.
    #[error("{what} {value} is out of range: give {least} to {most}")]
    Range {
        /// Kind of the value.
        what: &'static str,
        /// Given value.
        value: i32,
        /// Smallest value.
        least: i32,
        /// Largest value.
        most: i32,
    },
    /// No processor is given, or its number is above the largest number that the system call accepts.
    #[error("processors {processors:?}: give at least one number, each below {}", CpuSet::count())]
    Processors {
        /// Given processors.
        processors: Vec<u16>,
    },
    /// The kernel refuses the processors, or gives only some of them.
    #[error("can't bind thread {thread} to processors {wanted}: {why}; processors here: {online}")]
    Bind {
        /// Thread id; 0 is the calling thread.
        thread: i32,
        /// Requested processors.
        wanted: String,
        /// Reason.
        why: String,
        /// Processors that are online, as the kernel lists them.
        online: String,
    },
    /// The kernel refuses the policy.
    #[error("can't set {policy} for thread {thread}: {source}; {remedy}")]
    Policy {
        /// Thread id; 0 is the calling thread.
        thread: i32,
        /// Requested policy.
        policy: Policy,
        /// System's error.
        source: io::Error,
        /// Remedy.
        remedy: String,
    },
}

/// Processors and policy of a thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ThreadSettings {
    /// Processors on which the thread may run; `None` leaves them as they are.
    pub processors: Option<Vec<Processor>>,
    /// Scheduling policy; `None` leaves it as it is.
    pub policy: Option<Policy>,
}

impl ThreadSettings {
    /// Applies the settings to a thread of this process; 0 is the calling thread. The processors are set
    /// first and stay set if the policy is refused.
    ///
    /// # Errors
    /// A value is out of range; a processor doesn't exist or is not in the thread's cpuset; or the policy is
    /// refused, because a permission or the group's real-time share is missing.
    pub fn apply(&self, thread: Pid) -> Result<(), ThreadError> {
        self.policy.map_or(Ok(()), Policy::check)?;
        if let Some(processors) = &self.processors {
            bind(thread, processors)?;
        }
        let Some(policy) = self.policy else { return Ok(()) };
        policy.set(thread).map_err(|source| {
            let remedy = remedy(&source, policy, thread);
            ThreadError::Policy { thread: thread.as_raw(), policy, source, remedy }
        })
    }
}

/// Takes all threads of this process off some processors, so that only threads that are bound there later run
/// on them. Does nothing without processors, or if no other processor would be left. Threads and processes created later run where
/// their creators do.
///
/// # Errors
/// [`ThreadError::Bind`] if the kernel refuses the processors of a thread.
pub fn keep_off(processors: &[Processor]) -> Result<(), ThreadError> {
    if processors.is_empty() {
        return Ok(());
    }
    let read = |error| ThreadError::Bind {
        thread: 0,
        wanted: format!("other than {}", listed(processors)),
        why: io::Error::from(error).to_string(),
        online: online(),
    };
    let allowed = sched_getaffinity(Pid::from_raw(0)).map_err(read)?;
    let left: Vec<Processor> = (0..CpuSet::count())
        .filter(|number| allowed.is_set(*number).unwrap_or(false))
        .filter_map(|number| u16::try_from(number).ok().map(Processor))
        .filter(|processor| !processors.contains(processor))
        .collect();
    if left.is_empty() {
        return Ok(());
    }
    for thread in threads() {
        match bind(thread, &left) {
            // The thread has ended meanwhile.
            Err(_) if !threads().contains(&thread) => {}
            result => result?,
        }
    }
    Ok(())
}

/// Lets a thread run on some processors besides those on which it may run. Ignores processors that are offline or not in
/// the thread's cpuset.
///
/// # Errors
/// [`ThreadError::Bind`] if the kernel refuses the processors, or [`ThreadError::Processors`] if a number is too high.
pub fn let_on(thread: Pid, processors: &[Processor]) -> Result<(), ThreadError> {
    let failed = |error| ThreadError::Bind {
        thread: thread.as_raw(),
        wanted: listed(processors),
        why: io::Error::from(error).to_string(),
        online: online(),
    };
    let mut set = sched_getaffinity(thread).map_err(failed)?;
    let fits = processors.iter().all(|processor| set.set(usize::from(processor.0)).is_ok());
    if !fits {
        return Err(ThreadError::Processors { processors: numbers(processors) });
    }
    sched_setaffinity(thread, &set).map_err(failed)
}

/// Returns the threads of this process except `some`, and except the workers of other routers in this process.
pub fn other_threads(some: &[Pid]) -> Vec<Pid> {
    let name =
        |thread: &Pid| std::fs::read_to_string(format!("/proc/self/task/{thread}/comm")).unwrap_or_default();
    let is_other = |thread: &Pid| !some.contains(thread) && !name(thread).starts_with(WORKER);
    threads().into_iter().filter(is_other).collect()
}

/// Beginning of the names of the workers' threads.
const WORKER: &str = "worker-";

/// Returns the threads of this process.
fn threads() -> Vec<Pid> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).map(Pid::from_raw).collect()
}

fn online() -> String {
    read_if_present("/sys/devices/system/cpu/online".as_ref()).unwrap_or_default()
}

/// Returns the set of some processors.
///
/// # Errors
/// The list is empty, or a number is too high.
pub(crate) fn processor_set(processors: &[Processor]) -> Result<CpuSet, ThreadError> {
    let mut set = CpuSet::new();
    let fits = processors.iter().all(|processor| set.set(usize::from(processor.0)).is_ok());
    if fits && !processors.is_empty() {
        return Ok(set);
    }
    Err(ThreadError::Processors { processors: numbers(processors) })
}

fn numbers(processors: &[Processor]) -> Vec<u16> {
    processors.iter().map(|processor| processor.0).collect()
}

/// Binds a thread. The kernel silently leaves out processors that are offline or not in the thread's cpuset,
/// so the result is compared.
fn bind(thread: Pid, processors: &[Processor]) -> Result<(), ThreadError> {
    let set = processor_set(processors)?;
    let bound = sched_setaffinity(thread, &set).and_then(|()| sched_getaffinity(thread));
    let why = match bound {
        Ok(bound) if bound == set => return Ok(()),
        Ok(_) => "some of them are offline or not in the thread's cpuset".to_owned(),
        Err(error) => io::Error::from(error).to_string(),
    };
    Err(ThreadError::Bind { thread: thread.as_raw(), wanted: listed(processors), why, online: online() })
}

fn listed(processors: &[Processor]) -> String {
    processors.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn remedy(error: &io::Error, policy: Policy, thread: Pid) -> String {
    match (error.raw_os_error(), policy) {
        (Some(libc::ESRCH), _) => "the thread has ended".to_owned(),
        (Some(libc::EPERM), Policy::Fifo { .. } | Policy::RoundRobin { .. }) => without_share(thread)
            .unwrap_or_else(|| {
                "give the router CAP_SYS_NICE (root), or RLIMIT_RTPRIO of this priority (`ulimit -r`); a \
                 systemd unit also needs RestrictRealtime=no"
                    .to_owned()
            }),
        (Some(libc::EPERM | libc::EACCES), Policy::Other { .. }) => {
            "give the router CAP_SYS_NICE (root), or a nice value that is not lower than the present one"
                .to_owned()
        }
        _ => "see sched(7)".to_owned(),
    }
}

/// Returns the remedy for a thread whose group has no real-time share; `None` if it has one, or if its group
/// is not the reason. Groups of version 2 have no shares: a kernel with `CONFIG_RT_GROUP_SCHED` refuses the
/// policies there even to a thread with `CAP_SYS_NICE`. So does systemd with `RestrictRealtime=yes`.
fn without_share(thread: Pid) -> Option<String> {
    let machine = Machine::of_thread(thread).ok()?;
    let place = machine.place(Controller::Cpu)?;
    if place.version == Version::V2 {
        let remedy = "its control group has no real-time share (CONFIG_RT_GROUP_SCHED): boot with version 1 \
                      of control groups or with rt_group_sched=0, or use a nice value; or its systemd unit \
                      forbids the policy: set RestrictRealtime=no there";
        return has_sys_nice().then(|| remedy.to_owned());
    }
    let file = place.own.join(crate::group::RUNTIME);
    (read_if_present(&file)? == "0").then(|| {
        format!(
            "its control group has no real-time share: write microseconds per second to {}",
            file.display()
        )
    })
}

/// Whether the calling thread has the capability `CAP_SYS_NICE`.
fn has_sys_nice() -> bool {
    let status = read_if_present("/proc/thread-self/status".as_ref()).unwrap_or_default();
    let bits = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0);
    bits >> CAP_SYS_NICE & 1 == 1
}

/// Number of the capability (include/uapi/linux/capability.h).
const CAP_SYS_NICE: u32 = 23;

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(processors: Option<&[u16]>, policy: Option<Policy>) -> ThreadSettings {
        let processors = processors.map(|numbers| numbers.iter().copied().map(Processor).collect());
        ThreadSettings { processors, policy }
    }

    /// Applies settings to a new thread, and returns its processors and the numbers of its policy.
    fn applied(settings: &ThreadSettings) -> Result<(CpuSet, libc::c_int, libc::c_int), ThreadError> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                settings.apply(Pid::from_raw(0))?;
                // SAFETY: both calls read a number of the calling thread.
                let (policy, nice) =
                    unsafe { (libc::sched_getscheduler(0), libc::getpriority(libc::PRIO_PROCESS, 0)) };
                Ok((sched_getaffinity(Pid::from_raw(0)).unwrap(), policy, nice))
            });
            thread.join().unwrap()
        })
    }

    fn first_allowed() -> u16 {
        let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
        (0..1024).find(|number| allowed.is_set(usize::from(*number)).unwrap()).unwrap()
    }

    #[test]
    fn thread_is_bound_to_its_processors() {
        let first = first_allowed();
        let (set, ..) = applied(&settings(Some(&[first]), None)).unwrap();
        assert_eq!(set, processor_set(&[Processor(first)]).unwrap());
    }

    #[test]
    fn thread_may_run_on_more_processors_than_others() {
        let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
        let present: Vec<Processor> =
            (0..1024).map(Processor).filter(|one| allowed.is_set(one.0.into()).unwrap()).collect();
        let own = present[0];
        std::thread::spawn(move || {
            bind(Pid::from_raw(0), &[own]).unwrap();
            let_on(Pid::from_raw(0), &present).unwrap();
            assert_eq!(sched_getaffinity(Pid::from_raw(0)).unwrap(), allowed);
            let_on(Pid::from_raw(0), &[]).unwrap();
            let error = let_on(Pid::from_raw(0), &[Processor(u16::MAX)]).unwrap_err();
            assert!(matches!(error, ThreadError::Processors { .. }), "{error}");
        })
        .join()
        .unwrap();
    }

    #[test]
    fn absent_processor_is_refused_with_the_present_ones() {
        let error = applied(&settings(Some(&[1000]), None)).unwrap_err().to_string();
        assert!(error.starts_with("can't bind thread 0 to processors 1000: "), "{error}");
        assert!(error.contains("; processors here: 0"), "{error}");
        let error = applied(&settings(Some(&[first_allowed(), 1000]), None)).unwrap_err().to_string();
        assert!(error.contains("some of them are offline"), "{error}");
        for numbers in [&[][..], &[u16::MAX][..]] {
            let error = applied(&settings(Some(numbers), None)).unwrap_err();
            assert!(matches!(error, ThreadError::Processors { .. }), "{error}");
        }
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for policy in [
            Policy::Other { nice: 20 },
            Policy::Other { nice: -21 },
            Policy::Fifo { priority: 0 },
            Policy::RoundRobin { priority: 100 },
        ] {
            let error = applied(&settings(None, Some(policy))).unwrap_err();
            assert!(matches!(error, ThreadError::Range { .. }), "{error}");
        }
    }

    #[test]
    fn nice_value_applies_to_one_thread() {
        let (_, policy, nice) = applied(&settings(None, Some(Policy::Other { nice: 7 }))).unwrap();
        assert_eq!((policy, nice), (libc::SCHED_OTHER, 7));
        // SAFETY: the call reads a number of the calling thread.
        assert_ne!(unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }, 7);
    }

    #[test]
    fn realtime_policy_is_set_or_refused_with_the_remedy() {
        match applied(&settings(None, Some(Policy::Fifo { priority: 1 }))) {
            Ok((_, policy, _)) => assert_eq!(policy, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK),
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("real-time share") || text.contains("CAP_SYS_NICE"), "{text}");
            }
        }
    }

    #[test]
    fn remedy_for_a_realtime_policy_names_the_setting_of_the_unit() {
        let denied = io::Error::from_raw_os_error(libc::EPERM);
        let text = remedy(&denied, Policy::Fifo { priority: 1 }, Pid::this());
        assert!(text.contains("RestrictRealtime=no") || text.contains("write microseconds"), "{text}");
    }

    #[test]
    fn ended_thread_is_reported() {
        let error =
            settings(None, Some(Policy::Other { nice: 1 })).apply(Pid::from_raw(i32::MAX)).unwrap_err();
        assert!(error.to_string().ends_with("the thread has ended"), "{error}");
    }
}
