//! Usage of a group's resources.

use std::time::Duration;

use serde::Serialize;

use super::Branch;
use crate::controller::{Controller, Version};
use crate::files::{keyed, read_if_present};

/// Usage of a group since its creation. `None` means that the machine doesn't measure it: the controller
/// can't be used, or the kernel is too old.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Processor time.
    pub cpu: Option<Duration>,
    /// Time during which the processor limit kept the group from running, summed over processors.
    pub throttled: Option<Duration>,
    /// Memory in use, in bytes.
    pub memory: Option<u64>,
    /// Largest memory so far, in bytes.
    pub memory_peak: Option<u64>,
    /// Number of processes that the kernel killed because of the memory limit.
    pub oom_kills: Option<u64>,
    /// Bytes read from block devices.
    pub disk_read: Option<u64>,
    /// Bytes written to block devices.
    pub disk_written: Option<u64>,
    /// Number of processes and threads.
    pub tasks: Option<u64>,
}

/// Reads the usage of a group.
pub(super) fn of(branches: &[Branch]) -> Usage {
    let mut usage = Usage::default();
    for branch in branches {
        for controller in &branch.controllers {
            add(&mut usage, *controller, branch);
        }
    }
    // Threads of a group of threads, and groups without the controller of processes.
    usage.tasks = usage.tasks.or_else(|| branches.iter().find_map(tasks));
    usage
}

fn add(usage: &mut Usage, controller: Controller, branch: &Branch) {
    let text = |name: &str| read_if_present(&branch.file(name));
    let number = |name: &str| text(name)?.parse().ok();
    let key = |name: &str, key: &str| keyed(&text(name)?, key);
    let [nanoseconds, microseconds] = [Duration::from_nanos, Duration::from_micros];
    match (controller, branch.version) {
        (Controller::CpuAccounting, Version::V1) => usage.cpu = number("cpuacct.usage").map(nanoseconds),
        (Controller::CpuAccounting, Version::V2) => {
            usage.cpu = key("cpu.stat", "usage_usec").map(microseconds)
        }
        (Controller::Cpu, Version::V1) => {
            usage.throttled = key("cpu.stat", "throttled_time").map(nanoseconds)
        }
        (Controller::Cpu, Version::V2) => {
            usage.throttled = key("cpu.stat", "throttled_usec").map(microseconds)
        }
        (Controller::Memory, Version::V1) => {
            usage.memory = number("memory.usage_in_bytes");
            usage.memory_peak = number("memory.max_usage_in_bytes");
            usage.oom_kills = key("memory.oom_control", "oom_kill");
        }
        (Controller::Memory, Version::V2) => {
            usage.memory = number("memory.current");
            usage.memory_peak = number("memory.peak");
            usage.oom_kills = key("memory.events", "oom_kill");
        }
        (Controller::Disk, Version::V1) => {
            let text = text("blkio.throttle.io_service_bytes");
            usage.disk_read = text.as_deref().map(|text| operation(text, "Read"));
            usage.disk_written = text.as_deref().map(|text| operation(text, "Write"));
        }
        (Controller::Disk, Version::V2) => {
            let text = text("io.stat");
            usage.disk_read = text.as_deref().map(|text| sum(text, "rbytes="));
            usage.disk_written = text.as_deref().map(|text| sum(text, "wbytes="));
        }
        (Controller::Processes, _) => usage.tasks = number("pids.current"),
        (Controller::Packets, _) => {}
    }
}

fn tasks(branch: &Branch) -> Option<u64> {
    let list = match branch.version {
        Version::V1 => "tasks",
        Version::V2 => "cgroup.threads",
    };
    Some(read_if_present(&branch.file(list))?.lines().count() as u64)
}

/// Sums the lines `MAJOR:MINOR OPERATION BYTES` of an operation, over all devices.
fn operation(text: &str, operation: &str) -> u64 {
    let bytes = |line: &str| {
        let mut words = line.split(' ').skip(1);
        words.next().filter(|word| *word == operation)?;
        words.next()?.parse::<u64>().ok()
    };
    text.lines().filter_map(bytes).sum()
}

/// Sums the words `KEY=BYTES`, over all devices.
fn sum(text: &str, key: &str) -> u64 {
    text.split_whitespace().filter_map(|word| word.strip_prefix(key)?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::Scratch;

    #[test]
    fn bytes_of_version_1_are_summed_over_devices() {
        let text =
            "254:0 Read 4096\n254:0 Write 8192\n254:0 Total 12288\n8:0 Read 1\n8:0 Write x\nTotal 12289\n";
        assert_eq!((operation(text, "Read"), operation(text, "Write")), (4097, 8192));
        assert_eq!(operation("Total 0\n", "Read"), 0);
    }

    #[test]
    fn bytes_of_version_2_are_summed_over_devices() {
        let text = "254:0 rbytes=4096 wbytes=5 rios=1 wios=1 dbytes=0 dios=0\n8:0 rbytes=1 wbytes=2 rios=9\n";
        assert_eq!((sum(text, "rbytes="), sum(text, "wbytes=")), (4097, 7));
    }

    #[test]
    fn usage_of_version_2_is_read_from_its_files() {
        let files = [
            ("cpu.stat", "usage_usec 1500\nuser_usec 1000\nthrottled_usec 70\n"),
            ("memory.current", "4096\n"),
            ("memory.events", "low 0\noom 2\noom_kill 1\n"),
            ("io.stat", ""),
            ("pids.current", "3\n"),
        ];
        let scratch = Scratch::new("usage", &files);
        let controllers = Controller::ALL.to_vec();
        let branch =
            Branch { version: Version::V2, controllers, path: scratch.path().to_owned(), home: "/".into() };
        let usage = of(&[branch]);
        let expected = Usage {
            cpu: Some(Duration::from_micros(1500)),
            throttled: Some(Duration::from_micros(70)),
            memory: Some(4096),
            memory_peak: None,
            oom_kills: Some(1),
            disk_read: Some(0),
            disk_written: Some(0),
            tasks: Some(3),
        };
        assert_eq!(usage, expected);
    }
}
