//! Contents of a queue: packets in the router, plain numbers in tests.

use millrace_packet::Packet;

use crate::ecn;

/// Packet, or a stand-in in tests, that waits in a queue.
pub trait Item {
    /// Returns the length in bytes from the link header on, without the link overhead (see
    /// [`crate::LinkOverhead`]).
    fn length(&self) -> u32;

    /// Sets the ECN mark "congestion experienced". Returns `false`, and changes nothing, if the sender is not
    /// ECN-capable (RFC 3168, 5).
    fn mark_congestion(&mut self) -> bool;
}

impl Item for Packet {
    #[inline]
    fn length(&self) -> u32 {
        self.len() as u32
    }

    fn mark_congestion(&mut self) -> bool {
        let network = self.network_offset();
        ecn::mark_frame(self.data_mut(), network)
    }
}

/// Number of a flow, chosen by the caller: a flow record's number, or the number of a queue that a filter
/// names. Packets of one flow keep their order; the scheduler decides whether flows share a queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct FlowNumber(pub u32);

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_packet::Pool;

    #[test]
    fn packet_is_marked_behind_its_link_header() {
        let pool = Pool::new(4).unwrap();
        let mut bytes = vec![0_u8; 12];
        bytes.extend([0x08, 0x00, 0x45, 0x02]);
        bytes.extend([0; 18]);
        let mut packet = pool.packet_from(&bytes).unwrap();
        packet.set_network(14);
        assert_eq!(packet.length(), 34);
        assert!(packet.mark_congestion());
        assert_eq!(packet.network()[1], 0x03);
    }

    #[test]
    fn frame_with_an_unknown_network_header_is_unchanged() {
        let pool = Pool::new(4).unwrap();
        let bytes = [0x45_u8; 60];
        let mut packet = pool.packet_from(&bytes).unwrap();
        assert!(!packet.mark_congestion());
        assert_eq!(packet.to_vec(), bytes);
    }
}
