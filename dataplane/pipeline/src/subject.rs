//! Subject of the stages' decisions: a packet, or the example packet of a lookup.

use std::ops::Deref;

use millrace_packet::{Annotations, Packet};

/// Packet that a stage decides about, or the example of a lookup. Dereferences to the annotations.
pub(crate) trait Subject: Deref<Target = Annotations> {
    /// Returns the first bytes of the packet from the network header on. They contain all network headers.
    fn network(&self) -> &[u8];

    /// Returns the length from the network header on, in bytes.
    fn network_len(&self) -> usize;

    /// Returns whether the frame's destination is a group address (multicast or broadcast). `false` for
    /// packets without a link header.
    fn is_link_group(&self) -> bool;
}

impl Subject for Packet {
    #[inline]
    fn network(&self) -> &[u8] {
        self.network()
    }

    #[inline]
    fn network_len(&self) -> usize {
        self.network_len()
    }

    #[inline]
    fn is_link_group(&self) -> bool {
        self.network_offset() > 0 && self.data().first().is_some_and(|first| first & 1 == 1)
    }
}
