//! Kernel policies on forwarded packets, beyond routing. Packets that Millrace forwards bypass them.

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

use crate::netlink::decode::decode;
use crate::netlink::request::{DUMP, Request};
use crate::netlink::rtm;
use crate::netlink::socket::Socket;
use crate::{Family, HostError, HostLink, HostState};

/// Place of a finding that concerns the whole namespace, not a single port.
const EVERYWHERE: &str = "this network namespace";

/// Kind of policy of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PolicyKind {
    /// An nftables base chain.
    Nftables,
    /// A legacy iptables table.
    Iptables,
    /// A routing policy rule beyond the three default rules.
    Rule,
    /// An IPsec policy.
    Xfrm,
    /// A queueing discipline, classifier or BPF program of traffic control.
    TrafficControl,
    /// A foreign XDP program.
    Xdp,
    /// A device built on the port, or a master that the port belongs to.
    Stacked,
    /// Forwarding is turned off.
    Forwarding,
    /// Reverse path filtering.
    ReversePath,
    /// A multicast routing daemon is active.
    MulticastRouting,
}

/// Kernel policy beyond routing that Millrace would bypass.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyFinding {
    /// Kind of policy.
    pub kind: PolicyKind,
    /// Description of the policy, with its name in Linux.
    pub what: String,
    /// Name of the port, or the network namespace.
    pub place: String,
    /// Effect of Millrace's bypass of the policy, in one sentence.
    pub consequence: String,
}

impl std::fmt::Display for PolicyFinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({}): {}", self.what, self.place, self.consequence)
    }
}

/// Millrace's own objects on the ports, which are not findings.
#[derive(Clone, Debug, Default)]
pub struct Ours {
    /// Ids of Millrace's BPF programs (XDP and tcx).
    pub programs: Vec<u32>,
    /// Use of the forwarding switches by the router.
    pub switches: SwitchUse,
}

/// Kernel state that the inspections examine.
struct Surroundings {
    state: HostState,
    ports: Vec<HostLink>,
}

/// Returns the policies on the given ports, in the network namespace of the calling thread.
///
/// # Errors
/// Netlink is not available or a port does not exist. A facility that the kernel lacks is no error: it has no
/// policies.
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

/// Returns the queueing disciplines of devices, by device index, joined by commas. Omits plain queues and the
/// kernel's default. Packets that the router sends bypass the queueing disciplines. The devices are in the
/// calling thread's network namespace.
pub fn queueing(devices: &[u32]) -> Result<BTreeMap<u32, String>, HostError> {
    let mut socket = Socket::open(libc::NETLINK_ROUTE as isize)?;
    let unusual = traffic_control::unusual_qdiscs(&mut socket, devices)?;
    let joined = |kinds: BTreeSet<String>| kinds.into_iter().collect::<Vec<_>>().join(", ");
    Ok(unusual.into_iter().map(|(device, kinds)| (device, joined(kinds))).collect())
}

fn surroundings(socket: &mut Socket, ports: &[u32]) -> Result<Surroundings, HostError> {
    let mut state = HostState::default();
    let switches = |family: Family| Request::new(rtm::GETNETCONF, DUMP, &[family.number(), 0, 0, 0]);
    for (request, what) in [
        (Request::new(rtm::GETLINK, DUMP, &[0; 16]), "devices"),
        (switches(Family::Ipv4), "IPv4 switches"),
        (switches(Family::Ipv6), "IPv6 switches"),
    ] {
        let listed = socket.dump(request, what, |kind, payload| {
            if let Some(message) = decode(kind, 0, payload) {
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

/// Converts the error of listing a facility that the kernel lacks to success. Returns any other result
/// unchanged.
fn unless_lacking(listed: Result<(), HostError>) -> Result<(), HostError> {
    match listed {
        Err(HostError::Refused { source, .. } | HostError::Socket { source, .. }) if lacking(&source) => {
            Ok(())
        }
        listed => listed,
    }
}

fn lacking(error: &std::io::Error) -> bool {
    use libc::{EAFNOSUPPORT, EINVAL, ENOENT, ENOPROTOOPT, EOPNOTSUPP, EPROTONOSUPPORT};
    let lacking = [EAFNOSUPPORT, EINVAL, ENOENT, ENOPROTOOPT, EOPNOTSUPP, EPROTONOSUPPORT];
    error.raw_os_error().is_some_and(|errno| lacking.contains(&errno))
}
