//! Explicit congestion notification (ECN): sets "congestion experienced" in a packet (RFC 3168, 5 and 23.1).

use millrace_wire::{EtherType, ipv4, ipv6};

/// ECN bits of a sender that is not ECN-capable.
const NOT_CAPABLE: u8 = 0b00;
/// ECN bits "congestion experienced".
const EXPERIENCED: u8 = 0b11;

/// Marks the IP packet at offset `network` of an Ethernet frame. The two bytes before that offset must be the
/// EtherType of IPv4 or IPv6; other frames stay unchanged. Returns whether the packet carries the mark now.
pub(crate) fn mark_frame(frame: &mut [u8], network: usize) -> bool {
    let Some(before) = network.checked_sub(2) else { return false };
    let Some((head, packet)) = frame.split_at_mut_checked(network) else { return false };
    let Some(&[high, low]) = head.get(before..) else { return false };
    match EtherType(u16::from_be_bytes([high, low])) {
        EtherType::IPV4 => mark_ipv4(packet),
        EtherType::IPV6 => mark_ipv6(packet),
        _ => false,
    }
}

/// Marks an IPv4 packet and updates its header checksum for the changed word (RFC 1624).
fn mark_ipv4(bytes: &mut [u8]) -> bool {
    let Ok(mut packet) = ipv4::Packet::new_checked(bytes) else { return false };
    if packet.version() != 4 {
        return false;
    }
    match packet.ecn() {
        NOT_CAPABLE => return false,
        EXPERIENCED => return true,
        _ => {}
    }
    let (first, tos) = (0x40 | (packet.header_len() / 4) as u8, packet.tos());
    let marked = tos | EXPERIENCED;
    let word = |tos| u16::from_be_bytes([first, tos]);
    let checksum = millrace_wire::checksum::update_u16(packet.checksum(), word(tos), word(marked));
    packet.set_tos(marked);
    packet.set_checksum(checksum);
    true
}

/// Marks an IPv6 packet. No checksum covers the traffic class.
fn mark_ipv6(bytes: &mut [u8]) -> bool {
    let Ok(mut packet) = ipv6::Packet::new_checked(bytes) else { return false };
    if packet.version() != 6 {
        return false;
    }
    match packet.ecn() {
        NOT_CAPABLE => return false,
        EXPERIENCED => return true,
        _ => {}
    }
    let class = packet.traffic_class();
    packet.set_traffic_class(class | EXPERIENCED);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(ether_type: [u8; 2], network: &[u8]) -> Vec<u8> {
        [&[0; 12][..], &ether_type, network].concat()
    }

    proptest! {
        #[test]
        fn a_marked_ipv4_header_has_a_right_checksum_and_nothing_else_changed(
            tos in any::<u8>(), rest in any::<[u8; 18]>(), options in 0_usize..=10,
        ) {
            let mut header = vec![0x45 + options as u8, tos];
            header.extend(rest);
            header.resize(20 + 4 * options, 7);
            ipv4::Packet::new_checked(&mut header[..]).unwrap().fill_checksum();
            let before = header.clone();
            let mut bytes = frame([8, 0], &header);
            prop_assert_eq!(mark_frame(&mut bytes, 14), tos & 3 != 0);
            let packet = ipv4::Packet::new_checked(&bytes[14..]).unwrap();
            prop_assert!(packet.verify_checksum());
            prop_assert_eq!(packet.tos(), if tos & 3 == 0 { tos } else { tos | 3 });
            prop_assert_eq!(&bytes[16..24], &before[2..10]);
            prop_assert_eq!(&bytes[26..], &before[12..]);
        }

        #[test]
        fn a_marked_ipv6_header_changed_in_two_bits(first in 0x6000_0000_u32..0x7000_0000, rest in any::<[u8; 36]>()) {
            let header = [&first.to_be_bytes()[..], &rest].concat();
            let mut bytes = frame([0x86, 0xdd], &header);
            let capable = first >> 20 & 3 != 0;
            prop_assert_eq!(mark_frame(&mut bytes, 14), capable);
            let expected = if capable { first | 3 << 20 } else { first };
            prop_assert_eq!(&bytes[14..18], &expected.to_be_bytes());
            prop_assert_eq!(&bytes[18..], &rest);
        }

        #[test]
        fn any_bytes_are_parsed_without_a_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..80), network in 0_usize..100) {
            let length = bytes.len();
            mark_frame(&mut bytes, network);
            prop_assert_eq!(bytes.len(), length);
        }
    }
}
