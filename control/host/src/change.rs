//! What changed in the kernel, in the terms of the forwarding tables.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::{Family, HostLink, HostNeighbour, HostRoute};

/// One change of the host's state. Later changes of a batch supersede earlier ones about the same thing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HostChange {
    /// A device is new or changed.
    Link(HostLink),
    /// A device is gone; its addresses, routes and neighbours are said to be gone as well.
    LinkGone(u32),
    /// An address came or went.
    Address {
        /// The device.
        ifindex: u32,
        /// Address and prefix length, host bits kept.
        net: IpNet,
        /// Whether the device has it now.
        present: bool,
    },
    /// The effective route of a prefix changed.
    Route {
        /// The prefix, host bits zero.
        prefix: IpNet,
        /// The route now, or none.
        route: Option<HostRoute>,
    },
    /// A neighbour entry changed.
    Neighbour {
        /// The device.
        ifindex: u32,
        /// The neighbour's address.
        ip: IpAddr,
        /// The entry now; a failed resolution is an entry in state `Failed`.
        neighbour: Option<HostNeighbour>,
    },
    /// Forwarding was turned on or off.
    Forwarding {
        /// The device that packets come in by; `None` for the setting of the whole namespace.
        ifindex: Option<u32>,
        /// Which protocol.
        family: Family,
        /// Whether the kernel forwards.
        enabled: bool,
    },
}
