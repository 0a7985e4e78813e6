//! Checks of the machine as a whole.

use std::fs;

use millrace_units::{by_number, count};
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit};
use serde::Serialize;

/// Returns one sentence with the permissions that `run` lacks; `None` if it lacks none.
pub fn missing_permissions() -> Option<String> {
    permissions(effective_capabilities(&read("/proc/self/status"))).err()
}

/// Result of one check of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    pub topic: &'static str,
    /// Whether nothing is missing and nothing can be improved.
    pub fine: bool,
    pub text: String,
}

/// Result text of a check; `Err` for a deficiency.
pub type Finding = Result<String, String>;

impl Check {
    pub fn of(topic: &'static str, finding: Finding) -> Self {
        Self { topic, fine: finding.is_ok(), text: finding.unwrap_or_else(|problem| problem) }
    }
}

/// Findings of `doctor` about the machine.
#[derive(Debug, Serialize)]
pub struct SystemView {
    pub checks: Vec<Check>,
}

/// Capabilities that `run` needs, with their numbers (include/uapi/linux/capability.h): `CAP_NET_ADMIN` for
/// devices and routes, `CAP_NET_RAW` for packet sockets, `CAP_SYS_ADMIN` for network namespaces, the BPF file
/// system and BPF programs.
const NEEDED: &[(&str, u32)] = &[("CAP_NET_ADMIN", 12), ("CAP_NET_RAW", 13), ("CAP_SYS_ADMIN", 21)];
const CAP_IPC_LOCK: u32 = 14;
/// Locked memory of a router with default settings, in bytes: packet memory and rings.
const LOCKED_BYTES: u64 = 80 << 20;

impl SystemView {
    /// Runs all checks of this machine.
    pub fn look() -> Self {
        let capabilities = effective_capabilities(&read("/proc/self/status"));
        let limit = getrlimit(Resource::RLIMIT_MEMLOCK).map_or(0, |(soft, _)| soft);
        let huge = (read("/sys/kernel/mm/transparent_hugepage/enabled"), read("/proc/meminfo"));
        let clang = "not needed: the eBPF programs are part of the millrace binary";
        let tcpdump =
            "does not see packets that XDP takes before the kernel: use `millrace capture PORT -w -`";
        let findings = [
            ("kernel", kernel(&read("/proc/sys/kernel/osrelease"))),
            ("permission", permissions(capabilities)),
            (AF_XDP, af_xdp()),
            ("memory lock", locked_memory(capabilities, limit)),
            ("bpf jit", jit(&read("/proc/sys/net/core/bpf_jit_enable"))),
            ("huge pages", huge_pages(&huge.0, &huge.1)),
            ("clang", Ok(clang.to_owned())),
            ("tcpdump", Ok(tcpdump.to_owned())),
        ];
        Self { checks: findings.map(|(topic, finding)| Check::of(topic, finding)).into() }
    }

    /// Whether AF_XDP sockets can be created here, given the needed permission.
    pub fn has_af_xdp(&self) -> bool {
        self.checks.iter().find(|check| check.topic == AF_XDP).is_none_or(|check| check.fine)
    }
}

const AF_XDP: &str = "af_xdp";

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn kernel(release: &str) -> Finding {
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    match version {
        (0, _) => Err(format!("Linux {release:?}: its version can't be read")),
        old if old < (6, 6) => {
            Err(format!("Linux {release}: too old for AF_PACKET ports, which need tcx (6.6)"))
        }
        _ => Ok(format!("Linux {release}")),
    }
}

/// Returns the bits of `CapEff` in `/proc/self/status`.
fn effective_capabilities(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
}

fn has(capabilities: u64, number: u32) -> bool {
    capabilities >> number & 1 == 1
}

fn permissions(capabilities: u64) -> Finding {
    let missing: Vec<&str> =
        NEEDED.iter().filter(|(_, number)| !has(capabilities, *number)).map(|(name, _)| *name).collect();
    match missing.as_slice() {
        [] => Ok("all capabilities that `run` needs".to_owned()),
        missing => Err(format!("missing: {}; run as root", missing.join(", "))),
    }
}

fn af_xdp() -> Finding {
    // SAFETY: socket() accesses no memory of this process.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd >= 0 {
        // SAFETY: the descriptor was just opened, and no other code uses it.
        unsafe { libc::close(fd) };
        return Ok("sockets can be created".to_owned());
    }
    match Errno::last() {
        Errno::EPERM => Ok("the kernel supports AF_XDP; creating sockets needs root".to_owned()),
        error => Err(format!("can't create sockets: {error}; ports use AF_PACKET, which is slower")),
    }
}

fn locked_memory(capabilities: u64, limit: u64) -> Finding {
    match (has(capabilities, CAP_IPC_LOCK), limit >= LOCKED_BYTES) {
        (true, _) => Ok("unlimited for this process (CAP_IPC_LOCK)".to_owned()),
        (false, true) => Ok(format!("{} MiB may be locked", limit >> 20)),
        (false, false) => {
            let (has, needs) = (limit >> 10, LOCKED_BYTES >> 10);
            Err(format!("{has} KiB may be locked, AF_XDP needs {needs}: ulimit -l {needs}"))
        }
    }
}

fn jit(value: &str) -> Finding {
    match value {
        "1" | "2" => Ok("on".to_owned()),
        // The sysctl could not be read. It exists only in the initial network namespace, and not in kernels
        // that always compile BPF programs.
        "" => {
            Ok("unknown: the sysctl is not visible in this network namespace, or does not exist".to_owned())
        }
        _ => Err("off: the XDP program is interpreted; sysctl -w net.core.bpf_jit_enable=1".to_owned()),
    }
}

fn huge_pages(transparent: &str, meminfo: &str) -> Finding {
    let chosen = transparent.split(['[', ']']).nth(1).unwrap_or("absent");
    let reserved =
        meminfo.lines().find_map(|line| line.strip_prefix("HugePages_Total:")).map_or("0", str::trim);
    let (pages, are) = (count(reserved, "page"), by_number(reserved, "is", "are"));
    let rest = format!("{pages} {are} also reserved, which the router does not use");
    match chosen {
        "always" | "madvise" => Ok(format!("transparent huge pages are enabled; {rest}")),
        other => Err(format!(
            "transparent huge pages are {other}: packet memory uses small pages, and the kernel takes over \
             later after the router is killed; echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_without_tcx_are_named() {
        assert!(kernel("6.18.44-fc-v657").is_ok());
        assert!(kernel("7.0-rc1").is_ok());
        assert!(kernel("6.1.0-13-amd64").is_err());
        assert!(kernel("").is_err());
    }

    #[test]
    fn missing_capabilities_are_named() {
        let all = effective_capabilities("Name:\tx\nCapEff:\t000001ffffffffff\n");
        assert!(permissions(all).is_ok());
        assert!(permissions(1 << 12 | 1 << 13 | 1 << 21).is_ok());
        let some = permissions(1 << 12).unwrap_err();
        assert!(some.contains("CAP_NET_RAW, CAP_SYS_ADMIN"), "{some}");
    }

    #[test]
    fn locked_memory_is_enough_or_not() {
        assert!(locked_memory(1 << CAP_IPC_LOCK, 0).is_ok());
        assert!(locked_memory(0, u64::MAX).is_ok());
        assert!(locked_memory(0, 8 << 20).is_err());
    }

    #[test]
    fn huge_pages_that_are_never_given_are_named() {
        assert!(
            huge_pages("always [madvise] never", "HugePages_Total:      64\n").unwrap().contains("64 pages")
        );
        assert!(huge_pages("always madvise [never]", "").is_err());
        assert!(huge_pages("", "").is_err());
    }
}
