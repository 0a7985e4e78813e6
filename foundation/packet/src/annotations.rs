//! Annotations of a packet: data that the stages store beside its bytes.

use std::fmt;

use millrace_units::{NextHopIndex, PathId, PortId, QueueId};

/// Data that stages store with a packet, in the metadata cache line of its first frame.
#[derive(Clone, Copy, Debug)]
pub struct Annotations {
    /// Ingress port; [`PortId::NONE`] for packets that the router made.
    pub port: PortId,
    /// Egress port; [`PortId::NONE`] until it is chosen.
    pub out_port: PortId,
    /// Queue at the egress port.
    pub queue: QueueId,
    /// Tag that plugins set and filters match, 5 bits.
    pub tag: u8,
    /// Exception bits of the packet.
    pub exceptions: Exceptions,
    /// Number of times that the packet was classified again.
    pub passes: u8,
    /// Whether the packet is a frame that the kernel sends. It leaves by `out_port` unchanged, link header
    /// included.
    pub is_framed: bool,
    /// Trace number; 0 for most packets, which are not traced.
    pub trace: u16,
    /// Flow hash; equal for all packets of a flow.
    pub hash: u32,
    /// Route number; the maximum number stands for no route.
    pub next_hop: NextHopIndex,
    /// Path whose filters account for the packet in queues; path 0 for none.
    pub counts_for: PathId,
}

impl Annotations {
    /// Annotations of a new packet.
    pub const EMPTY: Self = Self {
        port: PortId::NONE,
        out_port: PortId::NONE,
        queue: QueueId(0),
        tag: 0,
        exceptions: Exceptions::NONE,
        passes: 0,
        is_framed: false,
        trace: 0,
        hash: 0,
        next_hop: NextHopIndex(u32::MAX),
        counts_for: PathId(0),
    };
}

/// The four exceptions of a packet that filters match (as in the NPR, section 3.2), as bits.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Exceptions(u8);

impl Exceptions {
    /// No exceptions.
    pub const NONE: Self = Self(0);
    /// TTL or hop limit of 0 or 1: the router can't forward the packet.
    pub const TTL: Self = Self(1);
    /// IPv4 options or an IPv6 hop-by-hop header.
    pub const OPTIONS: Self = Self(2);
    /// Later fragment, whose ports are unknown.
    pub const FRAGMENT: Self = Self(4);
    /// Transport header that is cut, or follows more extension headers than the router reads.
    pub const CUT: Self = Self(8);

    /// Each exception with its name in filters.
    pub const NAMES: [(&'static str, Self); 4] =
        [("ttl", Self::TTL), ("options", Self::OPTIONS), ("fragment", Self::FRAGMENT), ("cut", Self::CUT)];

    /// Returns the bits as a number from 0 to 15.
    #[inline]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Returns the exceptions whose bits are set in the lowest four bits of `bits`.
    #[inline]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits & 15)
    }

    /// Returns whether all bits of `other` are set.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the union with `other`.
    #[inline]
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Debug for Exceptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Exceptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> =
            Self::NAMES.iter().filter(|(_, bit)| self.contains(*bit)).map(|(name, _)| *name).collect();
        f.write_str(if names.is_empty() { "none".to_owned() } else { names.join(",") }.as_str())
    }
}
