//! Subject of the stages' decisions: a packet, or the example of a lookup.

use std::ops::Deref;

use millrace_packet::{Annotations, Packet};

/// Subject of a decision. It dereferences to the annotations.
pub(crate) trait Subject: Deref<Target = Annotations> {
    /// Returns the first bytes from the network header on, at least all network headers.
    fn network(&self) -> &[u8];

    /// Returns the length from the network header on, in bytes.
    fn network_len(&self) -> usize;

    /// Returns whether the link header has a group address as destination. Packets made by plugins have no
    /// link header.
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
