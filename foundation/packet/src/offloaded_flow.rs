//! Entry of the flow cache: the data of an offloaded flow, written by a worker.

use millrace_units::{Amount, PortId};
use millrace_wire::MacAddr;

/// Entry of an offloaded flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OffloadedFlow {
    /// Action on the packets.
    pub action: OffloadAction,
    /// Index of the token bucket that polices the packets; `None` for no policing.
    pub policer: Option<u16>,
    /// Index of the eBPF variant of the plugin that filters the packets; `None` for no plugin.
    pub form: Option<u16>,
}

/// Action of the XDP program on the packets of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OffloadAction {
    /// Forward the packets.
    Send(OffloadEgress),
    /// Drop the packets, as a filter demands.
    Drop {
        /// MTU of the ingress port, in bytes. Longer network packets are upcalls.
        mtu: u16,
    },
}

/// Egress port and link header of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OffloadEgress {
    /// Egress port.
    pub out: PortId,
    /// Smaller MTU of ingress and egress port, in bytes. Longer network packets are upcalls.
    pub mtu: u16,
    /// Destination address.
    pub destination: MacAddr,
    /// Source address: the address of the egress port.
    pub source: MacAddr,
}

/// Totals of a flow's offloaded packets. Bytes count frames without padding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OffloadTotals {
    /// Forwarded packets and their bytes. The number of packets wraps at 2^32.
    pub sent: Amount,
    /// Packets dropped by a filter, an empty token bucket or the eBPF variant of a plugin.
    pub dropped: Amount,
}
