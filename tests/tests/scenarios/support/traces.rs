//! Objects in the kernel that a router could leave behind.

use std::time::Duration;

use millrace_testkit::{Line, wait_until};

/// Time until the kernel has removed the objects of a dead process.
const SOON: Duration = Duration::from_secs(2);

/// Devices, programs, routes, filters, sockets, pinned maps and huge pages.
#[derive(Debug, PartialEq, Eq)]
pub struct Traces(Vec<String>);

impl Traces {
    /// Returns the objects in the namespace of a line's router, and the objects of the machine that belong to
    /// no namespace.
    pub fn of(line: &Line) -> Self {
        let commands = [
            // The commands leave out counters and program ids, which change.
            "ip -o -d link | sed 's/ prog\\/xdp id [0-9]*//'",
            "ip route show table all; ip -6 route show table all | grep -v ' dev lo '; ip rule",
            "for d in r1 r2; do tc qdisc show dev $d; tc filter show dev $d ingress; tc filter show dev $d egress; done",
            "wc -l < /proc/net/packet; cat /proc/net/xdp 2>/dev/null; ss --xdp --all --no-header 2>/dev/null | wc -l",
        ];
        let mut all: Vec<String> = commands.iter().map(|command| line.r.run(command)).collect();
        // A network namespace has its own /sys, which doesn't show pinned objects.
        let mut pinned: Vec<String> = std::fs::read_dir("/sys/fs/bpf")
            .map(|entries| entries.flatten().map(|entry| entry.path().display().to_string()).collect())
            .unwrap_or_default();
        pinned.sort();
        all.extend(pinned);
        let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        all.extend(memory.lines().filter(|line| line.starts_with("HugePages_")).map(str::to_owned));
        Self(all)
    }
}

/// Checks that an ended router has left no objects, once the kernel has cleaned up.
///
/// # Panics
/// When objects are left.
pub fn assert_none_left(line: &Line, before: &Traces, what: &str) {
    let is_clean = wait_until(SOON, || Traces::of(line) == *before);
    assert!(is_clean.is_some(), "{what}: {:#?}, before {before:#?}", Traces::of(line));
}
