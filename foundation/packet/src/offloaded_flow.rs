//! Entry of the flow cache, as a worker gives it to the cache.

use millrace_units::{Amount, PortId};
use millrace_wire::MacAddr;

/// Contents of a flow cache entry: the treatment of an offloaded flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OffloadedFlow {
    /// Action on the packets of the flow.
    pub action: OffloadAction,
    /// Number of the token bucket that polices the packets; `None` for no policing.
    pub policer: Option<u16>,
    /// Number of the eBPF variant that the XDP program calls for the packets; `None` for no plugin.
    pub variant: Option<u16>,
}

/// Action of the XDP program on the packets of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OffloadAction {
    /// Forward the packets.
    Send(OffloadEgress),
    /// Drop the packets, because a filter drops them.
    Drop {
        /// MTU of the ingress port, in bytes. Longer packets are upcalls; the length counts from the network
        /// header on.
        mtu: u16,
    },
}

/// Egress port and link header of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OffloadEgress {
    /// Egress port.
    pub out: PortId,
    /// Smaller MTU of ingress and egress port, in bytes. Longer packets are upcalls; the length counts from
    /// the network header on.
    pub mtu: u16,
    /// Destination MAC address.
    pub destination: MacAddr,
    /// Source MAC address: the address of the egress port.
    pub source: MacAddr,
}

/// Total numbers of a flow's offloaded packets. Bytes count frames without padding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OffloadTotals {
    /// Forwarded packets and their bytes. The number of packets wraps at 2^32; the number of bytes doesn't.
    pub sent: Amount,
    /// Packets dropped by a filter, an empty token bucket or the eBPF variant of a plugin.
    pub dropped: Amount,
}
