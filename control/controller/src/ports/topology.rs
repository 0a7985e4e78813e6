//! Processors of the machine, as Linux reports them.

use std::fs;
use std::path::Path;

use crate::view::CpuView;

/// Folder in which Linux reports processors.
const CPUS: &str = "/sys/devices/system/cpu";

/// Returns the online processors; none if Linux does not report them.
pub(crate) fn cpus() -> Vec<CpuView> {
    cpus_in(Path::new(CPUS))
}

fn cpus_in(root: &Path) -> Vec<CpuView> {
    let online = fs::read_to_string(root.join("online")).unwrap_or_default();
    numbers(&online).into_iter().map(|cpu| describe(&root.join(format!("cpu{cpu}")), cpu)).collect()
}

fn describe(directory: &Path, cpu: u32) -> CpuView {
    let number = |file: &str| fs::read_to_string(directory.join(file)).ok()?.trim().parse().ok();
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let node =
        entries.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()).min();
    CpuView { cpu, core: number("topology/core_id"), package: number("topology/physical_package_id"), node }
}

/// Parses a list of numbers and ranges such as `0-3,8`.
fn numbers(list: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse::<u32>().ok()?)
    };
    list.trim().split(',').filter_map(range).flatten().collect()
}

/// Returns the list of processors on which a thread may run, such as `0-3`; empty if the thread has ended.
pub(crate) fn allowed(thread: i32) -> String {
    let status = fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(numbers("0-2,5,7-8\n"), [0, 1, 2, 5, 7, 8]);
        assert!(numbers("").is_empty());
    }

    #[test]
    fn processors_are_described_as_linux_does() {
        let root = std::env::temp_dir().join(format!("millrace-cpus-{}", std::process::id()));
        let topology = root.join("cpu1/topology");
        fs::create_dir_all(&topology).unwrap();
        fs::create_dir(root.join("cpu1/node3")).unwrap();
        fs::write(root.join("online"), "1,9\n").unwrap();
        fs::write(topology.join("core_id"), "4\n").unwrap();
        fs::write(topology.join("physical_package_id"), "0\n").unwrap();
        let known = CpuView { cpu: 1, core: Some(4), package: Some(0), node: Some(3) };
        let silent = CpuView { cpu: 9, core: None, package: None, node: None };
        let found = cpus_in(&root);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(found, [known, silent]);
    }

    #[test]
    fn thread_reports_its_allowed_processors() {
        assert!(!allowed(nix::unistd::gettid().as_raw()).is_empty());
        assert_eq!(allowed(0), "");
    }
}
