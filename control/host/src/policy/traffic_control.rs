//! Queueing disciplines, filters and tcx programs on the ports.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::{Ours, PolicyFinding, PolicyKind, Surroundings, unless_lacking};
use crate::netlink::attribute::{find, find_after, number, text, word};
use crate::netlink::request::{DUMP, Request};
use crate::netlink::rtm;
use crate::netlink::socket::Socket;
use crate::{HostError, HostLink};

mod tcx;

/// `struct tcmsg`: family, device, handle, parent, info.
const HEADER: usize = 20;
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
/// Parents of the filters of `clsact`. The older qdisc `ingress` uses the first parent, too.
const HOOKS: [(&str, u32); 2] = [("ingress", 0xffff_fff2), ("egress", 0xffff_fff3)];

pub(super) fn inspect(
    socket: &mut Socket,
    surroundings: &Surroundings,
    ours: &Ours,
) -> Result<Vec<PolicyFinding>, HostError> {
    let ports: Vec<u32> = surroundings.ports.iter().map(|port| port.ifindex).collect();
    let unusual = unusual_qdiscs(socket, &ports)?;
    let mut findings = Vec::new();
    for port in &surroundings.ports {
        let kinds = unusual.get(&port.ifindex).into_iter().flatten();
        findings.extend(kinds.map(|kind| shaped(port, kind)));
        for (hook, parent) in HOOKS {
            let filters = filters(socket, port, parent, ours)?;
            findings.extend((!filters.is_empty()).then(|| filtered(port, hook, &filters)));
        }
        findings.extend(tcx::inspect(port, ours));
    }
    Ok(findings)
}

/// Returns the names of queueing disciplines that are no findings: the kernel's defaults, and plain queues,
/// which neither shape nor reorder. Includes `clsact` and `ingress`, which only hold filters; their filters
/// are separate findings.
fn usual_qdiscs() -> BTreeSet<String> {
    let default = fs::read_to_string("/proc/sys/net/core/default_qdisc").unwrap_or_default();
    let usual = ["noqueue", "mq", "pfifo_fast", "pfifo", "bfifo", "clsact", "ingress", default.trim()];
    usual.into_iter().filter(|kind| !kind.is_empty()).map(str::to_owned).collect()
}

fn header(ifindex: u32, parent: u32) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    header[12..16].copy_from_slice(&parent.to_ne_bytes());
    header
}

/// Returns the unusual queueing disciplines of devices, by device index.
pub(super) fn unusual_qdiscs(
    socket: &mut Socket,
    devices: &[u32],
) -> Result<BTreeMap<u32, BTreeSet<String>>, HostError> {
    let usual = usual_qdiscs();
    let mut unusual: BTreeMap<u32, BTreeSet<String>> = BTreeMap::new();
    // The kernel lists the queueing disciplines of all devices.
    let request = Request::new(rtm::GETQDISC, DUMP, &header(0, 0));
    let listed = socket.dump(request, "queueing disciplines", |message, payload| {
        let device = word(payload, 4).filter(|_| message == rtm::NEWQDISC);
        let device = device.filter(|device| devices.contains(device));
        let kind = find_after(payload, HEADER, KIND).map(text);
        if let Some((device, kind)) = device.zip(kind).filter(|(_, kind)| !usual.contains(kind)) {
            unusual.entry(device).or_default().insert(kind);
        }
    });
    unless_lacking(listed)?;
    Ok(unusual)
}

fn filters(
    socket: &mut Socket,
    port: &HostLink,
    parent: u32,
    ours: &Ours,
) -> Result<BTreeSet<String>, HostError> {
    let mut kinds = BTreeSet::new();
    let request = Request::new(rtm::GETTFILTER, DUMP, &header(port.ifindex, parent));
    let listed = socket.dump(request, "filters", |kind, payload| {
        if kind == rtm::NEWTFILTER && !is_ours(payload, ours) {
            kinds.extend(find_after(payload, HEADER, KIND).map(text));
        }
    });
    unless_lacking(listed)?;
    Ok(kinds)
}

fn is_ours(filter: &[u8], ours: &Ours) -> bool {
    const PROGRAM: u16 = 11;
    let options = find_after(filter, HEADER, OPTIONS);
    let program = options.and_then(|options| find(options, PROGRAM)).and_then(number);
    program.is_some_and(|program| ours.programs.contains(&program))
}

fn shaped(port: &HostLink, kind: &str) -> PolicyFinding {
    PolicyFinding {
        kind: PolicyKind::TrafficControl,
        what: format!("queueing discipline {kind}"),
        place: port.name.clone(),
        consequence: "packets that Millrace sends bypass the queueing disciplines of the kernel, so the qdisc would neither shape nor \
                      order them; use a scheduler of the router instead (`millrace scheduler`, [port.scheduler])"
            .into(),
    }
}

fn filtered(port: &HostLink, hook: &str, kinds: &BTreeSet<String>) -> PolicyFinding {
    let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
    PolicyFinding {
        kind: PolicyKind::TrafficControl,
        what: format!("tc filters at {hook}: {}", kinds.join(", ")),
        place: port.name.clone(),
        consequence: format!(
            "packets that Millrace forwards pass no tc {hook}, so the filters would not apply"
        ),
    }
}
