//! The few things we ask of the kernel: to resolve neighbours and to keep our own routes.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::{HostError, HostNextHop, RouteKind};

/// The `proto` of routes that Millrace installs; not among those that iproute2 has names for.
pub const PROTOCOL_MILLRACE: u8 = 213;

/// A configured route, to be kept in the kernel's main table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnRoute {
    /// Destinations, host bits zero.
    pub prefix: IpNet,
    /// `Unicast`, `Blackhole`, `Unreachable` or `Prohibit`.
    pub kind: RouteKind,
    /// Priority; the lowest wins.
    pub metric: u32,
    /// Next hops, for `Unicast`; their flags other than `onlink` are ignored.
    pub next_hops: Vec<HostNextHop>,
}

/// A netlink socket for requests, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Actions {}

impl Actions {
    /// Opens the socket.
    ///
    /// # Errors
    /// When netlink is not available.
    pub fn open() -> Result<Self, HostError> {
        Err(HostError::Stopped)
    }

    /// Asks the kernel to resolve a neighbour; the answer comes as a [`crate::HostChange::Neighbour`].
    ///
    /// # Errors
    /// When the device is gone or down, or permission is lacking.
    pub fn resolve(&mut self, _ifindex: u32, _ip: IpAddr) -> Result<(), HostError> {
        Err(HostError::Stopped)
    }

    /// Tells the kernel that an entry is in use, so that it is confirmed again before it expires.
    ///
    /// # Errors
    /// As for [`Actions::resolve`].
    pub fn refresh(&mut self, ifindex: u32, ip: IpAddr) -> Result<(), HostError> {
        self.resolve(ifindex, ip)
    }

    /// Installs a route with our `proto`, replacing ours of the same prefix and metric. Idempotent.
    ///
    /// # Errors
    /// What the kernel refuses, with the route in the text.
    pub fn install_route(&mut self, _route: &OwnRoute) -> Result<(), HostError> {
        Err(HostError::Stopped)
    }

    /// Removes our route of that prefix and metric; that it is gone already is no error.
    ///
    /// # Errors
    /// What the kernel refuses, with the route in the text.
    pub fn remove_route(&mut self, _prefix: IpNet, _metric: u32) -> Result<(), HostError> {
        Err(HostError::Stopped)
    }

    /// Removes our routes that are not in `keep`, left by an earlier run; returns how many.
    ///
    /// # Errors
    /// When the kernel's routes can't be read or one can't be removed.
    pub fn sweep_routes(&mut self, _keep: &[(IpNet, u32)]) -> Result<usize, HostError> {
        Err(HostError::Stopped)
    }
}
