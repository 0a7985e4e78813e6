//! What the stages of the journey note on a packet, beside its bytes.

use std::fmt;

use millrace_units::{NextHopIndex, PathId, PortId, QueueId};

/// Notes on a packet; they travel in its frame's cache line of metadata.
#[derive(Clone, Copy, Debug)]
pub struct Annotations {
    /// Port of arrival; [`PortId::NONE`] for packets that the router made.
    pub port: PortId,
    /// Port to leave by, once forwarding has chosen it.
    pub out_port: PortId,
    /// Queue at the port to leave by.
    pub queue: QueueId,
    /// Tag that plugins set and filters match, 5 bits.
    pub tag: u8,
    /// What is exceptional about the packet.
    pub exceptions: Exceptions,
    /// How often it was sent back to classification.
    pub passes: u8,
    /// Whether it leaves by its `out_port` as the frame that it is, link header and all: the kernel made it.
    pub is_framed: bool,
    /// The number under which its journey is written down; 0 for most packets, whose journey is not.
    pub trace: u16,
    /// Flow hash; equal for all packets of a flow.
    pub hash: u32,
    /// Next-hop group, once forwarding has chosen it.
    pub next_hop: NextHopIndex,
    /// The path whose filters count it in the queues behind their gates; path 0 for none.
    pub counts_for: PathId,
}

impl Annotations {
    /// Nothing noted yet.
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

/// The four exception bits that filters match (the NPR's, section 3.2).
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Exceptions(u8);

impl Exceptions {
    /// Nothing exceptional.
    pub const NONE: Self = Self(0);
    /// TTL or hop limit of 0 or 1: it can't be forwarded.
    pub const TTL: Self = Self(1);
    /// IPv4 options or an IPv6 hop-by-hop header.
    pub const OPTIONS: Self = Self(2);
    /// A fragment other than the first: its ports are unknown.
    pub const FRAGMENT: Self = Self(4);
    /// The transport header is cut, or lies behind more extension headers than are read.
    pub const CUT: Self = Self(8);

    /// Every bit with the name it has in a filter.
    pub const NAMES: [(&'static str, Self); 4] =
        [("ttl", Self::TTL), ("options", Self::OPTIONS), ("fragment", Self::FRAGMENT), ("cut", Self::CUT)];

    /// The bits as a number from 0 to 15.
    #[inline]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The exceptions of the lowest four bits of `bits`.
    #[inline]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits & 15)
    }

    /// Whether all of `other` are set here.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These and `other`.
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
