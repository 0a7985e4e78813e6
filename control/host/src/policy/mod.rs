//! What Linux was told to do with forwarded packets beyond routing, and a bypass would silently skip.

mod device;
mod forwarding;
mod iptables;
mod nftables;
mod rule;
#[cfg(test)]
mod tests;
mod traffic_control;
mod xfrm;

use std::collections::{BTreeMap, BTreeSet};

pub use forwarding::{ForwardingAdvice, SwitchUse, forwarding_advice};

use crate::netlink::decode::{Decoded, decode};
use crate::netlink::request::{DUMP, Request};
use crate::netlink::rtm;
use crate::netlink::socket::Socket;
use crate::{Family, HostError, HostLink, HostState};

/// Where a finding is that concerns no single port.
const EVERYWHERE: &str = "this network namespace";

/// What sort of policy a finding is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PolicyKind {
    /// An nftables base chain.
    Nftables,
    /// A legacy iptables table.
    Iptables,
    /// A routing policy rule beyond the three default ones.
    Rule,
    /// An IPsec policy.
    Xfrm,
    /// A queueing discipline, classifier or BPF program of traffic control.
    TrafficControl,
    /// An XDP program that is not ours.
    Xdp,
    /// A device built on the port, or one that the port belongs to.
    Stacked,
    /// Forwarding is turned off.
    Forwarding,
    /// Reverse path filtering.
    ReversePath,
    /// A multicast routing daemon is active.
    MulticastRouting,
}

/// Something that Linux was told to do beyond routing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyFinding {
    /// What sort of policy.
    pub kind: PolicyKind,
    /// What was found, by its name in Linux.
    pub what: String,
    /// Where: a port's name, or the network namespace.
    pub place: String,
    /// What a bypass would change, in one sentence.
    pub consequence: String,
}

impl std::fmt::Display for PolicyFinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({}): {}", self.what, self.place, self.consequence)
    }
}

/// What is ours on the ports and must not be reported.
#[derive(Clone, Debug, Default)]
pub struct Ours {
    /// Ids of our BPF programs (XDP and tcx).
    pub programs: Vec<u32>,
    /// Use that the router makes of the forwarding switches.
    pub switches: SwitchUse,
}

/// What the inspections look at.
struct Surroundings {
    state: HostState,
    ports: Vec<HostLink>,
}

/// Inspects what applies to the given ports, in the network namespace of the calling thread.
///
/// # Errors
/// When netlink is not available or a port does not exist; a facility that the kernel lacks is no error, there is
/// nothing of it then.
pub fn inspect(ports: &[u32], ours: &Ours) -> Result<Vec<PolicyFinding>, HostError> {
    let mut socket = Socket::open(libc::NETLINK_ROUTE as isize)?;
    let surroundings = surroundings(&mut socket, ports)?;
    let mut findings = device::inspect(&surroundings, ours);
    findings.extend(nftables::inspect(&surroundings)?);
    findings.extend(iptables::inspect()?);
    findings.extend(rule::inspect(&mut socket)?);
    findings.extend(xfrm::inspect()?);
    findings.extend(traffic_control::inspect(&mut socket, &surroundings, ours)?);
    findings.sort_by_key(|finding| finding.kind);
    Ok(findings)
}

/// The queueing disciplines of devices that are neither plain queues nor what the kernel gives a device by itself, joined by
/// commas, by the devices' indices: what a router sends there passes them by. For the network namespace of the calling thread.
///
/// # Errors
/// When netlink is not available.
pub fn queueing(devices: &[u32]) -> Result<BTreeMap<u32, String>, HostError> {
    let mut socket = Socket::open(libc::NETLINK_ROUTE as isize)?;
    let unusual = traffic_control::unusual_qdiscs(&mut socket, devices)?;
    let joined = |kinds: BTreeSet<String>| kinds.into_iter().collect::<Vec<_>>().join(", ");
    Ok(unusual.into_iter().map(|(device, kinds)| (device, joined(kinds))).collect())
}

fn surroundings(socket: &mut Socket, ports: &[u32]) -> Result<Surroundings, HostError> {
    let mut state = HostState::default();
    let v4 = Request::new(rtm::GETNETCONF, DUMP, &[Family::Ipv4.number(), 0, 0, 0]);
    let v6 = Request::new(rtm::GETNETCONF, DUMP, &[Family::Ipv6.number(), 0, 0, 0]);
    for (request, what) in [
        (Request::new(rtm::GETLINK, DUMP, &[0; 16]), "devices"),
        (v4, "IPv4 switches"),
        (v6, "IPv6 switches"),
    ] {
        let listed = socket.dump(request, what, |kind, payload| {
            if let Decoded::Message(message) = decode(kind, 0, payload) {
                state.apply(message);
            }
        });
        unless_lacking(listed)?;
    }
    let missing = |port: &u32| HostError::NoDevice { name: port.to_string() };
    let ports: Result<_, _> =
        ports.iter().map(|port| state.link(*port).cloned().ok_or_else(|| missing(port))).collect();
    Ok(Surroundings { ports: ports?, state })
}

/// Takes a facility that the kernel was built without for one with nothing in it.
fn unless_lacking(listed: Result<(), HostError>) -> Result<(), HostError> {
    match listed {
        Err(HostError::Refused { source, .. } | HostError::Socket { source, .. }) if lacking(&source) => {
            Ok(())
        }
        listed => listed,
    }
}

fn lacking(error: &std::io::Error) -> bool {
    let errno = error.raw_os_error().unwrap_or(0);
    [
        libc::EOPNOTSUPP,
        libc::EPROTONOSUPPORT,
        libc::EAFNOSUPPORT,
        libc::EINVAL,
        libc::ENOENT,
        libc::ENOPROTOOPT,
    ]
    .contains(&errno)
}
