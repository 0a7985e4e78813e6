//! Legacy iptables tables with rules.

use std::fs;
use std::os::fd::AsRawFd;

use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};

use super::{EVERYWHERE, PolicyFinding, PolicyKind};
use crate::HostError;

/// Socket option `SO_GET_INFO`, with the same number for IPv4 and IPv6.
const GET_INFO: libc::c_int = 64;

/// `struct ipt_getinfo`, with the same layout for IPv6.
#[repr(C)]
#[derive(Default)]
struct Information {
    name: [u8; 32],
    valid_hooks: u32,
    hook_entries: [u32; 5],
    underflows: [u32; 5],
    entries: u32,
    size: u32,
}

pub(super) fn inspect() -> Result<Vec<PolicyFinding>, HostError> {
    let families = [
        ("iptables", "ip_tables_names", AddressFamily::Inet, libc::IPPROTO_IP),
        ("ip6tables", "ip6_tables_names", AddressFamily::Inet6, libc::IPPROTO_IPV6),
    ];
    let mut findings = Vec::new();
    for (program, file, family, level) in families {
        // Use the entry of this thread. The entry of the process belongs to the namespace of the process's
        // first thread.
        let tables = fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default();
        for table in tables.lines() {
            findings.extend((rules(table, family, level)? > 0).then(|| finding(program, table)));
        }
    }
    Ok(findings)
}

/// Returns the number of rules of a table. The policies of built-in chains don't count as rules. Returns 1 if
/// the rules can't be counted.
fn rules(table: &str, family: AddressFamily, level: libc::c_int) -> Result<u32, HostError> {
    let failed = |errno: nix::Error| HostError::Socket { what: "asking for iptables", source: errno.into() };
    let socket = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Raw).map_err(failed)?;
    let mut information = Information::default();
    let length = table.len().min(31);
    information.name[..length].copy_from_slice(&table.as_bytes()[..length]);
    let mut size = size_of::<Information>() as libc::socklen_t;
    // SAFETY: the structure is writable, has the given size, and is valid for any content.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, GET_INFO, (&raw mut information).cast(), &raw mut size)
    };
    if result < 0 {
        return Ok(1);
    }
    // `entries` also counts one policy per built-in chain, and the end of the table.
    Ok(information.entries.saturating_sub(information.valid_hooks.count_ones() + 1))
}

fn finding(program: &str, table: &str) -> PolicyFinding {
    PolicyFinding {
        kind: PolicyKind::Iptables,
        what: format!("{program} table {table} has rules"),
        place: EVERYWHERE.into(),
        consequence: "packets that Millrace forwards pass no netfilter hook, so the rules would not apply"
            .into(),
    }
}
