//! Resident memory of instances, as the kernel reports it.

use std::collections::BTreeSet;
use std::fs;

use millrace_plugin_abi::{Instance, PluginError};

/// Number of instances that are created to measure the memory of one.
const INSTANCES: usize = 8;

/// Memory of an instance before its first packet, in bytes; 0 if the system doesn't report it. In processes, it is the
/// memory that each process has of its own, and the memory that it shares with the worker. Otherwise it is the growth
/// of this process while instances are created.
pub(crate) fn resident(
    has_processes: bool,
    create: impl Fn() -> Result<Box<dyn Instance>, PluginError>,
) -> Result<u64, PluginError> {
    let (before, known) = (kilobytes("self", &["VmRSS:"]), children());
    let instances = (0..INSTANCES).map(|_| create()).collect::<Result<Vec<_>, _>>()?;
    let kilobytes = match has_processes {
        true => {
            let new = children();
            new.difference(&known).map(|process| kilobytes(process, &["RssAnon:", "RssShmem:"])).sum()
        }
        false => kilobytes("self", &["VmRSS:"]).saturating_sub(before),
    };
    drop(instances);
    Ok(kilobytes * 1024 / INSTANCES as u64)
}

/// Returns the sum of some lines in the status of a process, in kilobytes.
fn kilobytes(process: &str, lines: &[&str]) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let number = |line: &str| {
        let (name, rest) = line.split_once(char::is_whitespace)?;
        lines.contains(&name).then(|| rest.trim().trim_end_matches(" kB").parse::<u64>().ok())?
    };
    status.lines().filter_map(number).sum()
}

/// Returns the ids of the processes that the threads of this process have started.
fn children() -> BTreeSet<String> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_process_is_the_sum_of_its_lines() {
        let (all, anonymous) = (kilobytes("self", &["VmRSS:"]), kilobytes("self", &["RssAnon:"]));
        assert!(0 < anonymous && anonymous <= all, "{anonymous} {all}");
        assert_eq!(kilobytes("self", &["Rss:"]), 0);
        assert_eq!(kilobytes("none", &["VmRSS:"]), 0);
    }

    #[test]
    fn children_are_found_while_they_live() {
        let known = children();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let new: Vec<_> = children().difference(&known).cloned().collect();
        assert!(new.contains(&child.id().to_string()), "{new:?}");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!children().contains(&child.id().to_string()));
    }
}
