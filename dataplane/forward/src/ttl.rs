//! Decrement of TTL and hop limit: RFC 1812, 5.3.1, and RFC 8200, 3. The IPv4 checksum is updated as RFC 1624
//! describes.

use millrace_packet::Packet;
use millrace_wire::{ipv4, ipv6};

/// Decrements the TTL of an IPv4 packet. Its network offset must be set, and its header valid. Returns
/// `false`, with the TTL unchanged, if the TTL is 0 or 1, so that the packet must not be forwarded.
#[inline]
#[must_use]
pub fn decrement_ttl(packet: &mut Packet) -> bool {
    ipv4::Packet::new_unchecked(packet.network_mut()).decrement_ttl()
}

/// Decrements the hop limit of an IPv6 packet. Its network offset must be set, and its header valid. Returns
/// `false`, with the hop limit unchanged, if it is 0 or 1, so that the packet must not be forwarded.
#[inline]
#[must_use]
pub fn decrement_hop_limit(packet: &mut Packet) -> bool {
    ipv6::Packet::new_unchecked(packet.network_mut()).decrement_hop_limit()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_packets::{udp4, udp6};
    use millrace_packet::Pool;

    /// Test cases V4-09, TTL-01, TTL-02 and TTL-04.
    #[test]
    fn ttl_decrements_by_one_and_the_checksum_stays_correct() {
        let pool = Pool::new(4).unwrap();
        for (before, after) in [(0, None), (1, None), (2, Some(1)), (64, Some(63)), (255, Some(254))] {
            let mut bytes = udp4(b"x");
            let mut header = ipv4::Packet::new_unchecked(&mut bytes[..]);
            header.set_ttl(before);
            header.fill_checksum();
            let mut packet = pool.packet_from(&bytes).unwrap();
            assert_eq!(decrement_ttl(&mut packet), after.is_some());
            let header = ipv4::Packet::new_checked(packet.network()).unwrap();
            assert_eq!(header.ttl(), after.unwrap_or(before));
            assert!(header.verify_checksum());
        }
    }

    /// Test case V6-01: only the hop limit changes.
    #[test]
    fn hop_limit_decrements_by_one() {
        let pool = Pool::new(4).unwrap();
        for (before, after) in [(0, None), (1, None), (2, Some(1)), (64, Some(63)), (255, Some(254))] {
            let mut bytes = udp6(b"x");
            bytes[7] = before;
            let mut packet = pool.packet_from(&bytes).unwrap();
            assert_eq!(decrement_hop_limit(&mut packet), after.is_some());
            bytes[7] = after.unwrap_or(before);
            assert_eq!(packet.to_vec(), bytes);
        }
    }
}
