//! Isolation that a machine can give, for `millrace doctor`.

use std::path::Path;
use std::thread;

use millrace_units::{by_number, count};
use nix::unistd::Pid;
use serde::Serialize;

use crate::controller::{Controller, Version};
use crate::directory::{children, members};
use crate::files::read_if_present;
use crate::group::RUNTIME;
use crate::machine::Machine;
use crate::name::{ROUTER, is_routers};
use crate::processor_times::{ProcessorTimes, processor_times};
use crate::thread::{Policy, ThreadError, ThreadSettings};

/// Degree of isolation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Principals don't disturb each other.
    Isolated,
    /// They disturb each other in some cases, which the finding names.
    Partly,
    /// They share the resource without limits.
    Shared,
}

/// Finding about a resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Name of the resource.
    pub topic: &'static str,
    /// Degree of isolation.
    pub verdict: Verdict,
    /// Reason.
    pub reason: String,
    /// Remedy, as an imperative clause; `None` if there is none, or none is needed.
    pub remedy: Option<String>,
}

impl Finding {
    fn new(topic: &'static str, verdict: Verdict, reason: impl Into<String>, remedy: Option<&str>) -> Self {
        Self { topic, verdict, reason: reason.into(), remedy: remedy.map(str::to_owned) }
    }
}

/// Returns the isolation of each resource on this machine. Starts a thread for a moment, to try a real-time
/// policy; changes nothing else.
pub fn isolation(machine: &Machine) -> Vec<Finding> {
    let resources = Controller::ALL.into_iter().filter(|one| *one != Controller::CpuAccounting);
    let mut findings: Vec<Finding> = resources.map(|controller| of_controller(machine, controller)).collect();
    findings.push(of_threads(machine));
    let times = processor_times().unwrap_or_default();
    findings.push(of_steal(&times));
    let isolated = read_if_present(Path::new("/sys/devices/system/cpu/isolated"));
    findings.push(of_processors(times.len(), &isolated.unwrap_or_default()));
    findings.push(of_realtime(try_realtime()));
    findings
}

fn of_controller(machine: &Machine, controller: Controller) -> Finding {
    let topic = controller.resource();
    let place = match machine.usable(controller) {
        Ok(place) => place,
        Err(obstacle) => {
            let remedy = obstacle.remedy();
            return Finding::new(topic, Verdict::Shared, obstacle.to_string(), Some(&remedy));
        }
    };
    let accounting = machine.usable(Controller::CpuAccounting).err();
    let here = format!("control groups of version {} below {}", place.version, place.own.display());
    match (controller, place.version, accounting) {
        (Controller::Cpu, _, Some(obstacle)) => {
            let reason = format!("{here}, but usage is not measured: {obstacle}");
            Finding::new(topic, Verdict::Partly, reason, Some(&obstacle.remedy()))
        }
        (Controller::Disk, Version::V1, _) => {
            let reason = format!("{here}; buffered writes are not limited");
            let remedy = "boot with version 2 (systemd.unified_cgroup_hierarchy=1)";
            Finding::new(topic, Verdict::Partly, reason, Some(remedy))
        }
        _ => Finding::new(topic, Verdict::Isolated, here, None),
    }
}

/// Returns whether the router can put its own threads into groups, and the groups of running routers.
fn of_threads(machine: &Machine) -> Finding {
    let topic = "router's threads";
    let place = match machine.usable(Controller::Cpu) {
        Ok(place) => place,
        Err(obstacle) => {
            let remedy = obstacle.remedy();
            let reason = format!("no groups for workers and control: {obstacle}");
            return Finding::new(topic, Verdict::Shared, reason, Some(&remedy));
        }
    };
    let mut reason = format!(
        "with principals, workers and control get groups of version {} below {}",
        place.version,
        place.own.display()
    );
    let running = children(&place.own).into_iter().filter_map(|path| of_router(place.version, &path));
    running.for_each(|router| reason.push_str(&format!("; {router}")));
    // Groups of version 1 have such a file if the kernel has shares.
    if place.version == Version::V1 && place.own.join(RUNTIME).exists() {
        reason.push_str("; workers with a real-time policy stay outside");
        let remedy = "remove worker-policy, or use a kernel without CONFIG_RT_GROUP_SCHED";
        return Finding::new(topic, Verdict::Partly, reason, Some(remedy));
    }
    Finding::new(topic, Verdict::Isolated, reason, None)
}

/// Returns the groups of threads of a running router with this group; `None` for another group.
fn of_router(version: Version, path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str().filter(|name| is_routers(name))?;
    let list = if version == Version::V1 { "tasks" } else { "cgroup.threads" };
    let groups = children(&path.join(ROUTER)).into_iter().filter_map(|group| {
        let threads = members(&group.join(list)).len();
        Some(format!("{} {}", group.file_name()?.to_str()?, count(threads, "thread")))
    });
    let mut groups: Vec<String> = groups.collect();
    groups.sort_unstable();
    (!groups.is_empty()).then(|| format!("{name} has {}", groups.join(", ")))
}

/// Stolen time in parts per million from which a processor counts as shared: 1 %.
const MUCH_STEAL: u32 = 10_000;

fn of_steal(times: &[ProcessorTimes]) -> Finding {
    let topic = "steal time";
    let Some(worst) = times.iter().max_by_key(|times| times.steal_ppm()) else {
        return Finding::new(topic, Verdict::Partly, "/proc/stat can't be read", Some("mount /proc"));
    };
    let percent = f64::from(worst.steal_ppm()) / 10_000.0;
    let reason =
        format!("since boot the hypervisor took {percent:.2} % of the time of processor {}", worst.processor);
    if worst.steal_ppm() < MUCH_STEAL {
        return Finding::new(topic, Verdict::Isolated, reason, None);
    }
    let remedy = "give the virtual machine processors of its own on the host";
    Finding::new(topic, Verdict::Partly, reason, Some(remedy))
}

fn of_processors(number: usize, isolated: &str) -> Finding {
    let topic = "processors";
    let online = count(number, "processor");
    match (number, isolated) {
        (0 | 1, _) => {
            let reason = format!("{online}: workers, control and user processes share it");
            Finding::new(topic, Verdict::Shared, reason, Some("use a machine with two or more processors"))
        }
        (_, "") => {
            let reason = format!("{online}, none isolated from other threads of the kernel");
            let remedy = "boot with isolcpus=LIST, and set worker-processors in [router] to the same list";
            Finding::new(topic, Verdict::Partly, reason, Some(remedy))
        }
        (_, isolated) => {
            let verb = by_number(isolated.parse::<u16>().map_or(2, |_| 1), "is", "are");
            let reason = format!("{online}, of which {isolated} {verb} isolated from other threads");
            Finding::new(topic, Verdict::Isolated, reason, None)
        }
    }
}

fn of_realtime(tried: Result<(), Refusal>) -> Finding {
    let topic = "real-time policy";
    match tried {
        Ok(()) => Finding::new(
            topic,
            Verdict::Isolated,
            "SCHED_FIFO is allowed for workers: worker-policy in [router] sets it",
            None,
        ),
        Err((reason, remedy)) => Finding::new(topic, Verdict::Partly, reason, remedy.as_deref()),
    }
}

/// Reason of a refusal, and its remedy.
type Refusal = (String, Option<String>);

/// Tries a real-time policy on a thread of its own, which then ends.
fn try_realtime() -> Result<(), Refusal> {
    let settings = ThreadSettings { processors: None, policy: Some(Policy::Fifo { priority: 1 }) };
    let attempt = move || {
        settings.apply(Pid::from_raw(0)).map_err(|error| match error {
            ThreadError::Policy { policy, source, remedy, .. } => {
                (format!("{policy} is refused: {source}"), Some(remedy))
            }
            other => (other.to_string(), None),
        })
    };
    let thread = thread::Builder::new().name("realtime-trial".to_owned()).spawn(attempt);
    let result = thread.map_err(|error| (error.to_string(), None))?.join();
    result.unwrap_or_else(|_| Err(("the trial thread panicked".to_owned(), None)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;
    use crate::machine::Place;
    use crate::test_support::Scratch;
    use crate::thread::Processor;

    #[test]
    fn every_resource_has_a_finding_and_each_deficiency_a_remedy() {
        let findings = isolation(&Machine::detect().unwrap());
        assert_eq!(findings.len(), 9);
        for finding in findings {
            assert!(!finding.reason.is_empty(), "{finding:?}");
            assert!(finding.verdict == Verdict::Isolated || finding.remedy.is_some(), "{finding:?}");
        }
    }

    #[test]
    fn groups_of_threads_of_running_routers_are_listed() {
        let scratch = Scratch::new("isolation-threads", &[]);
        for (group, threads) in
            [("millrace-7/router/workers", "8\n9\n"), ("millrace-7/router/control", "7\n")]
        {
            fs::create_dir_all(scratch.join(group)).unwrap();
            fs::write(scratch.join(group).join("tasks"), threads).unwrap();
        }
        fs::create_dir_all(scratch.join("millrace-8/video")).unwrap();
        let place =
            Place { version: Version::V1, mount: scratch.path().to_owned(), own: scratch.path().to_owned() };
        let machine = Machine::with(Controller::Cpu, place);
        let finding = of_threads(&machine);
        assert_eq!(finding.verdict, Verdict::Isolated);
        let listed = "; millrace-7 has control 1 thread, workers 2 threads";
        assert!(finding.reason.ends_with(listed), "{}", finding.reason);
        fs::write(scratch.join(RUNTIME), "0\n").unwrap();
        assert_eq!(of_threads(&machine).verdict, Verdict::Partly);
        let machine = Machine::with(Controller::Memory, machine.usable(Controller::Cpu).unwrap().clone());
        let finding = of_threads(&machine);
        assert!(finding.verdict == Verdict::Shared && finding.remedy.is_some(), "{finding:?}");
    }

    #[test]
    fn much_steal_time_is_reported_for_the_worst_processor() {
        let times = |processor, steal| ProcessorTimes {
            processor: Processor(processor),
            busy: Duration::from_secs(50),
            idle: Duration::from_secs(50),
            steal: Duration::from_secs(steal),
        };
        let finding = of_steal(&[times(0, 0), times(1, 25)]);
        assert_eq!(finding.verdict, Verdict::Partly);
        assert_eq!(finding.reason, "since boot the hypervisor took 20.00 % of the time of processor 1");
        assert_eq!(of_steal(&[times(0, 0)]).verdict, Verdict::Isolated);
        assert_eq!(of_steal(&[]).verdict, Verdict::Partly);
    }

    #[test]
    fn isolated_processors_are_listed() {
        assert_eq!(
            of_processors(4, "2-3").reason,
            "4 processors, of which 2-3 are isolated from other threads"
        );
        assert_eq!(of_processors(4, "3").reason, "4 processors, of which 3 is isolated from other threads");
        assert_eq!(of_processors(4, "").verdict, Verdict::Partly);
        assert_eq!(of_processors(1, "").verdict, Verdict::Shared);
    }

    #[test]
    fn refused_realtime_policy_has_its_remedy() {
        let finding = of_realtime(Err(("refused".to_owned(), Some("write the file".to_owned()))));
        assert_eq!((&*finding.reason, finding.remedy.as_deref()), ("refused", Some("write the file")));
    }
}
