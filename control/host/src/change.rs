//! Changes of the kernel's network state that matter for forwarding.

use std::collections::HashSet;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::{Family, HostLink, HostNeighbour, HostRoute};

/// Change of one object of the kernel's network state. If a batch has several changes of an object, only the
/// last one is valid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HostChange {
    /// New or changed device.
    Link(HostLink),
    /// Removed device; separate changes report its addresses, routes and neighbours as removed.
    LinkGone(u32),
    /// Added or removed address.
    Address {
        /// Index of the device.
        ifindex: u32,
        /// Address and prefix length, host bits kept.
        net: IpNet,
        /// Whether the device has the address now.
        present: bool,
    },
    /// Changed effective route of a prefix: the route by which the kernel would forward.
    Route {
        /// The prefix, host bits zero.
        prefix: IpNet,
        /// Current effective route; `None` if the prefix has none.
        route: Option<HostRoute>,
    },
    /// Changed neighbour entry.
    Neighbour {
        /// Index of the device.
        ifindex: u32,
        /// Address of the neighbour.
        ip: IpAddr,
        /// Current entry; `None` if removed. A failed resolution has the state `Failed`.
        neighbour: Option<HostNeighbour>,
    },
    /// Forwarding switched on or off.
    Forwarding {
        /// Incoming device; `None` for the setting of the whole namespace.
        ifindex: Option<u32>,
        /// Address family.
        family: Family,
        /// Whether the kernel forwards.
        enabled: bool,
    },
    /// Possible change of the queueing disciplines of a device; with `None`, of any device.
    /// [`queueing`](crate::policy::queueing) returns the current queueing disciplines.
    Queueing(Option<u32>),
}

/// Identity of the object that a change concerns.
#[derive(PartialEq, Eq, Hash)]
enum Subject {
    Link(u32),
    Address(u32, IpNet),
    Route(IpNet),
    Neighbour(u32, IpAddr),
    Forwarding(Option<u32>, Family),
    Queueing(Option<u32>),
}

fn subject(change: &HostChange) -> Subject {
    match change {
        HostChange::Link(link) => Subject::Link(link.ifindex),
        HostChange::LinkGone(ifindex) => Subject::Link(*ifindex),
        HostChange::Address { ifindex, net, .. } => Subject::Address(*ifindex, *net),
        HostChange::Route { prefix, .. } => Subject::Route(*prefix),
        HostChange::Neighbour { ifindex, ip, .. } => Subject::Neighbour(*ifindex, *ip),
        HostChange::Forwarding { ifindex, family, .. } => Subject::Forwarding(*ifindex, *family),
        HostChange::Queueing(ifindex) => Subject::Queueing(*ifindex),
    }
}

/// Drops each change that a later change of the same object replaces.
pub(crate) fn coalesce(changes: &mut Vec<HostChange>) {
    let mut seen = HashSet::with_capacity(changes.len());
    let keep: Vec<bool> = changes.iter().rev().map(|change| seen.insert(subject(change))).collect();
    let mut keep = keep.into_iter().rev();
    changes.retain(|_| keep.next().unwrap_or(true));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_change_of_an_object_keeps_its_place() {
        let route = |prefix: &str| HostChange::Route { prefix: prefix.parse().unwrap(), route: None };
        let mut changes = vec![
            HostChange::LinkGone(1),
            route("10.0.0.0/8"),
            HostChange::LinkGone(2),
            HostChange::LinkGone(1),
        ];
        coalesce(&mut changes);
        assert_eq!(changes, [route("10.0.0.0/8"), HostChange::LinkGone(2), HostChange::LinkGone(1)]);
    }
}
