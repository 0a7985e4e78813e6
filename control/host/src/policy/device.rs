//! Kernel policies of devices: forwarding switches, foreign XDP programs, and devices built on or above the
//! ports.

use super::forwarding::{ForwardingAdvice, SwitchUse, forwarding_advice};
use super::{EVERYWHERE, Ours, PolicyFinding, PolicyKind, Surroundings};
use crate::{Family, HostLink};

pub(super) fn inspect(surroundings: &Surroundings, ours: &Ours) -> Vec<PolicyFinding> {
    let mut findings = forwarding(surroundings, ours.switches);
    for port in &surroundings.ports {
        findings.extend(xdp(port, ours));
        findings.extend(master(port, surroundings));
        findings.extend(built_on(port, surroundings));
        findings.extend(reverse_path(port, surroundings));
        findings.extend(multicast(port, surroundings));
    }
    findings
}

fn forwarding(surroundings: &Surroundings, switches: SwitchUse) -> Vec<PolicyFinding> {
    let ports: Vec<u32> = surroundings.ports.iter().map(|port| port.ifindex).collect();
    let advice = forwarding_advice(&surroundings.state, &ports, switches);
    let finding = |advice: ForwardingAdvice| PolicyFinding {
        kind: PolicyKind::Forwarding,
        what: format!("{} is not set", advice.sysctl),
        place: EVERYWHERE.into(),
        consequence: advice.consequence,
    };
    advice.into_iter().map(finding).collect()
}

fn xdp(port: &HostLink, ours: &Ours) -> Option<PolicyFinding> {
    let program = port.xdp.filter(|program| !ours.programs.contains(program))?;
    Some(PolicyFinding {
        kind: PolicyKind::Xdp,
        what: format!("XDP program {program} is attached"),
        place: port.name.clone(),
        consequence: "a device takes only one XDP program, so Millrace can't attach its own".into(),
    })
}

fn master(port: &HostLink, surroundings: &Surroundings) -> Option<PolicyFinding> {
    let master = port.master?;
    let name =
        surroundings.state.link(master).map_or_else(|| format!("device {master}"), |link| link.name.clone());
    let kind = port.master_kind.as_deref().unwrap_or("master");
    Some(PolicyFinding {
        kind: PolicyKind::Stacked,
        what: format!("the port belongs to the {kind} {name}"),
        place: port.name.clone(),
        consequence: format!("packets that Millrace takes from the port never reach {name}"),
    })
}

fn built_on(port: &HostLink, surroundings: &Surroundings) -> Vec<PolicyFinding> {
    const SHARING: [&str; 5] = ["macvlan", "macvtap", "ipvlan", "ipvtap", "macsec"];
    let above = |link: &&HostLink| {
        link.peer.is_some_and(|lower| lower.ifindex == port.ifindex && lower.namespace.is_none())
            && link.kind.as_deref().is_some_and(|kind| SHARING.contains(&kind))
    };
    let finding = |link: &HostLink| PolicyFinding {
        kind: PolicyKind::Stacked,
        what: format!("{} {} is built on the port", link.kind.as_deref().unwrap_or("device"), link.name),
        place: port.name.clone(),
        consequence: format!("packets that Millrace takes from the port never reach {}", link.name),
    };
    surroundings.state.links().filter(above).map(finding).collect()
}

fn reverse_path(port: &HostLink, surroundings: &Surroundings) -> Option<PolicyFinding> {
    const STRICT: u8 = 1;
    let forwarding = surroundings.state.forwarding();
    let all = forwarding.all.get(&Family::Ipv4).map_or(0, |switches| switches.rp_filter);
    let own = forwarding.devices.get(&(port.ifindex, Family::Ipv4)).map_or(0, |switches| switches.rp_filter);
    (all.max(own) == STRICT).then(|| PolicyFinding {
        kind: PolicyKind::ReversePath,
        what: "rp_filter is strict".into(),
        place: port.name.clone(),
        consequence: "IPv4 packets that fail the reverse path check would no longer be dropped".into(),
    })
}

fn multicast(port: &HostLink, surroundings: &Surroundings) -> Option<PolicyFinding> {
    let forwarding = surroundings.state.forwarding();
    let routed = |family: Family| {
        forwarding.devices.get(&(port.ifindex, family)).is_some_and(|switches| switches.multicast_forwarding)
    };
    [Family::Ipv4, Family::Ipv6].into_iter().any(routed).then(|| PolicyFinding {
        kind: PolicyKind::MulticastRouting,
        what: "a multicast routing daemon uses the port".into(),
        place: port.name.clone(),
        consequence: "multicast packets that Millrace takes from the port would not be replicated".into(),
    })
}
