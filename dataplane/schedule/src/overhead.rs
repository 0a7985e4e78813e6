//! Overhead of links: bytes added to a frame, so that rates and bytes are those on the wire.

/// Overhead of a link: converts the length of a packet to bytes on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LinkOverhead {
    /// No overhead: the packet's own length.
    None,
    /// Ethernet (IEEE 802.3): 8 bytes of preamble, 4 of check sequence and 12 of gap around each frame; at
    /// least 84 bytes in all.
    #[default]
    Ethernet,
    /// ATM with AAL5 (ITU-T I.363.5): encapsulation, packet and a trailer of 8 bytes, padded to cells of 48
    /// bytes. Each cell takes 53 bytes.
    Atm {
        /// Bytes added before each packet, for instance a header of RFC 2684. Negative if the link doesn't
        /// send the packet's link header.
        encapsulation: i16,
    },
    /// Custom overhead.
    Custom {
        /// Bytes added per packet; may be negative.
        bytes: i16,
        /// Least number of bytes per packet.
        minimum: u16,
    },
}

impl LinkOverhead {
    /// Returns the bytes that a packet of `length` bytes takes on the link; at least 1.
    #[inline]
    pub fn wire_length(self, length: u32) -> u32 {
        if self == Self::Ethernet {
            length.saturating_add(24).max(84)
        } else {
            self.other_wire_length(length)
        }
    }

    /// Returns [`wire_length`](Self::wire_length) as a term of a sum, in fewer instructions.
    #[inline]
    pub(crate) fn wire_bytes(self, length: u32) -> u64 {
        if self == Self::Ethernet {
            u64::from(length.max(60)) + 24
        } else {
            self.other_wire_length(length).into()
        }
    }

    /// Computes the wire length for links other than Ethernet. As a separate function, it adds only a
    /// comparison to the Ethernet case, and no jump table.
    fn other_wire_length(self, length: u32) -> u32 {
        match self {
            Self::None => length.max(1),
            Self::Ethernet => Self::Ethernet.wire_length(length),
            Self::Atm { encapsulation } => {
                let filled = u64::from(length).saturating_add_signed(encapsulation.into()) + 8;
                u32::try_from(filled.div_ceil(48) * 53).unwrap_or(u32::MAX)
            }
            Self::Custom { bytes, minimum } => {
                length.saturating_add_signed(bytes.into()).max(u32::from(minimum).max(1))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minimum_ethernet_frame_takes_84_bytes() {
        let wire = |length| LinkOverhead::Ethernet.wire_length(length);
        assert_eq!((wire(14), wire(60), wire(61), wire(1514)), (84, 84, 85, 1538));
    }

    #[test]
    fn an_atm_link_sends_whole_cells() {
        let wire = |length| LinkOverhead::Atm { encapsulation: 0 }.wire_length(length);
        assert_eq!((wire(0), wire(40), wire(41), wire(1500)), (53, 53, 106, 32 * 53));
        // Ethernet frames bridged by RFC 2684 with LLC and with VC-MUX, and IP packets without their Ethernet
        // header.
        let wire = |encapsulation, length| LinkOverhead::Atm { encapsulation }.wire_length(length);
        assert_eq!((wire(10, 30), wire(10, 31), wire(2, 38), wire(2, 39)), (53, 106, 53, 106));
        assert_eq!((wire(-14, 54), wire(-14, 55), wire(-14, 3)), (53, 106, 53));
        assert_eq!(LinkOverhead::Atm { encapsulation: 8 }.wire_length(40), 106);
    }

    #[test]
    fn nothing_is_free_and_nothing_overflows() {
        let custom = LinkOverhead::Custom { bytes: -100, minimum: 0 };
        assert_eq!((custom.wire_length(40), LinkOverhead::None.wire_length(0)), (1, 1));
        assert_eq!(LinkOverhead::Custom { bytes: 4, minimum: 68 }.wire_length(60), 68);
        for link in
            [LinkOverhead::None, LinkOverhead::Ethernet, LinkOverhead::Atm { encapsulation: 9 }, custom]
        {
            assert!(link.wire_length(u32::MAX) > 1 << 31);
        }
    }
}
