//! Events that a worker reports to control unasked.

use std::fmt;
use std::net::IpAddr;

use millrace_plugin::Failure;
use millrace_plugin_abi::{LogLevel, Request};
use millrace_units::{InstanceId, PortId};
use millrace_wire::mac_addr::MacAddr;

use crate::forward::changes::NeighbourChange;

/// Maximum number of events, such as neighbour requests, that wait for control.
pub(crate) const EVENT_LIMIT: usize = 1024;

/// Object that a worker needs no longer, such as a removed instance with its states. Control drops it, because that may
/// take long.
pub struct Discarded(pub Box<dyn Send>);

impl fmt::Debug for Discarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Discarded")
    }
}

/// Report of a worker to control.
#[derive(Debug)]
pub enum Event {
    /// Packets wait for the resolution of this neighbour, by the kernel or by the worker that owns the port's
    /// device.
    Resolve(PortId, IpAddr),
    /// New state of a neighbour at a port without a kernel stack, for control and the other workers.
    Neighbour(NeighbourChange),
    /// Another station claims an address of a port with the own stack. The fields are the port, the address,
    /// and that station's MAC address.
    AddressConflict(PortId, IpAddr, MacAddr),
    /// An instance of a plugin writes a line to the log.
    InstanceSays(InstanceId, LogLevel, String),
    /// An instance of a plugin requests a change.
    InstanceRequests(InstanceId, Request),
    /// An instance of a plugin sends a message to its host companion.
    InstanceSends(InstanceId, Vec<u8>),
    /// An instance of a plugin failed.
    InstanceFailed(Failure),
    /// The worker needs an object no longer.
    Discards(Discarded),
}
