//! tcx programs, queried by the bpf system call, since netlink does not list them.

use super::super::{Ours, PolicyFinding, PolicyKind};
use crate::HostLink;

const PROGRAM_QUERY: libc::c_long = 16;
const HOOKS: [(&str, u32); 2] = [("ingress", 46), ("egress", 47)];
const MOST_PROGRAMS: usize = 64;

/// Part of `union bpf_attr` for `BPF_PROG_QUERY`.
#[repr(C)]
#[derive(Default)]
struct Query {
    target: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    program_ids: u64,
    count: u32,
    padding: u32,
    program_flags: u64,
    link_ids: u64,
    link_flags: u64,
    revision: u64,
}

/// Returns a finding for each tcx hook with foreign programs; none if the kernel lacks tcx.
pub(super) fn inspect(port: &HostLink, ours: &Ours) -> Vec<PolicyFinding> {
    let others = |(hook, attach_type): (&'static str, u32)| {
        let mut programs = programs(port.ifindex, attach_type);
        programs.retain(|program| !ours.programs.contains(program));
        (!programs.is_empty()).then(|| finding(port, hook, &programs))
    };
    HOOKS.into_iter().filter_map(others).collect()
}

fn programs(ifindex: u32, attach_type: u32) -> Vec<u32> {
    let mut ids = [0u32; MOST_PROGRAMS];
    let mut query = Query {
        target: ifindex,
        attach_type,
        program_ids: ids.as_mut_ptr() as u64,
        count: MOST_PROGRAMS as u32,
        ..Query::default()
    };
    // SAFETY: the query is a valid bpf_attr of the given size. It and the array of ids, whose length it
    // states, outlive the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, PROGRAM_QUERY, &raw mut query, size_of::<Query>()) };
    if result < 0 {
        return Vec::new();
    }
    ids[..(query.count as usize).min(MOST_PROGRAMS)].to_vec()
}

fn finding(port: &HostLink, hook: &str, programs: &[u32]) -> PolicyFinding {
    let ids: Vec<String> = programs.iter().map(u32::to_string).collect();
    PolicyFinding {
        kind: PolicyKind::TrafficControl,
        what: format!("tcx {hook} programs {}", ids.join(", ")),
        place: port.name.clone(),
        consequence: format!("packets that Millrace forwards pass no tcx {hook}, so they would not run"),
    }
}
