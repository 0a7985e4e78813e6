//! Partial checksums: transport checksums that the sender left to its NIC.
//!
//! A host whose device offers checksum offload writes only the folded sum of the pseudo-header into the
//! checksum field. On a physical link the NIC completes the checksum. On a virtual link no device completes
//! it, and the frame carries no mark. So the port completes every checksum field that equals the
//! pseudo-header's sum. In one of 65,536 packets, a finished checksum has this value by chance. If the packet
//! is intact, completing such a checksum gives the same value again.

use millrace_packet::Packet;
use millrace_wire::Protocol;
use millrace_wire::checksum::{Sum, transport_checksum, transport_field};

use super::transport_header::{TransportHeader, word};

/// Completes the packet's TCP or UDP checksum if it is partial. Returns whether it was partial.
///
/// Supports IPv4 and IPv6, with up to two VLAN tags and eight extension headers. Fragments, UDP without a
/// checksum, and packets shorter than their headers declare stay unchanged. Reads only headers, unless a
/// checksum must be completed.
#[inline]
pub fn complete(packet: &mut Packet) -> bool {
    let data = packet.data();
    let Some(header) = TransportHeader::locate(data) else { return false };
    if !matches!(header.protocol, Protocol::TCP | Protocol::UDP) {
        return false;
    }
    let Some(field) = transport_field(header.protocol) else { return false };
    let at = header.transport + field;
    let pseudo = header.pseudo_header(data, header.length).folded();
    if word(data, at) != Some(pseudo) || field + 2 > header.length {
        return false;
    }
    complete_field(packet, &header, at)
}

#[cold]
fn complete_field(packet: &mut Packet, header: &TransportHeader, at: usize) -> bool {
    let field = word(packet.data(), at);
    if header.protocol == Protocol::UDP && field == Some(0) {
        return false;
    }
    // The checksum field is part of the sum, and contributes the pseudo-header's sum.
    let Some(sum) = sum_of_chain(packet, header.transport, header.length) else { return false };
    let checksum = transport_checksum(header.protocol, sum);
    let field = packet.data_mut().get_mut(at..).and_then(<[u8]>::first_chunk_mut);
    field.map(|field| *field = checksum.to_be_bytes()).is_some()
}

/// Completes a checksum that is known to be partial. The checksum covers all bytes from `start` on, and its
/// field is `offset` bytes after `start`. Returns whether the port completed it. The port leaves it unchanged
/// if no Internet checksum has that offset, or the field lies beyond the first memory frame.
pub fn complete_at(packet: &mut Packet, start: usize, offset: usize) -> bool {
    // Offsets of TCP and UDP; SCTP's field, at 8, needs a CRC.
    let protocol = match offset {
        16 => Protocol::TCP,
        6 => Protocol::UDP,
        _ => return false,
    };
    let at = start + offset;
    if packet.data().len() < at + 2 {
        return false;
    }
    let length = packet.len().saturating_sub(start);
    let Some(sum) = sum_of_chain(packet, start, length) else { return false };
    let checksum = transport_checksum(protocol, sum);
    let field = packet.data_mut().get_mut(at..).and_then(<[u8]>::first_chunk_mut);
    field.map(|field| *field = checksum.to_be_bytes()).is_some()
}

/// Returns the sum of `length` bytes from `offset` on; `None` when the packet has fewer.
fn sum_of_chain(packet: &Packet, offset: usize, length: usize) -> Option<Sum> {
    let (mut skip, mut left, mut sum) = (offset, length, Sum::new());
    for bytes in packet.frames() {
        let (skipped, rest) = bytes.split_at_checked(skip).unwrap_or((bytes, &[]));
        let here = rest.get(..left).unwrap_or(rest);
        skip -= skipped.len();
        sum = sum.bytes(here);
        left -= here.len();
    }
    (left == 0).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stateless_offload::test_frame::{Network, TestFrame};
    use millrace_packet::Pool;
    use proptest::prelude::*;

    fn network() -> impl Strategy<Value = Network> {
        prop_oneof![
            (any::<[u8; 4]>(), any::<[u8; 4]>(), 0usize..=10)
                .prop_map(|(source, destination, options)| Network::V4 { source, destination, options }),
            (any::<[u8; 16]>(), any::<[u8; 16]>(), 0usize..=3).prop_map(
                |(source, destination, extensions)| Network::V6 { source, destination, extensions }
            ),
        ]
    }

    proptest! {
        #[test]
        fn a_partial_checksum_becomes_the_right_one(
            network in network(),
            tcp: bool,
            tags in 0usize..=2,
            payload in proptest::collection::vec(any::<u8>(), 0..6000),
            cut in 60usize..200,
            padding in 0usize..20,
        ) {
            let pool = Pool::new(16).unwrap();
            let frame = TestFrame { network, tcp, tags, payload };
            let mut bytes = frame.with_partial_checksum();
            bytes.extend(vec![0xee; padding]);
            // The first memory frame of the chain ends after the headers, also at odd offsets.
            let cut = (frame.transport_offset() + cut).min(bytes.len());
            let mut packet = pool.packet_from(&bytes[..cut]).unwrap();
            packet.chain(pool.packet_from(&bytes[cut..]).unwrap());
            prop_assert!(complete(&mut packet));
            let mut expected = frame.with_right_checksum();
            expected.extend(vec![0xee; padding]);
            prop_assert_eq!(packet.to_vec(), expected);
        }

        #[test]
        fn other_checksums_stay(network in network(), tcp: bool, wrong in 1u16.., payload in proptest::collection::vec(any::<u8>(), 0..100)) {
            let pool = Pool::new(4).unwrap();
            let frame = TestFrame { network, tcp, tags: 0, payload };
            let at = frame.transport_offset() + if tcp { 16 } else { 6 };
            let mut bytes = frame.with_partial_checksum();
            let field = u16::from_be_bytes([bytes[at], bytes[at + 1]]).wrapping_add(wrong);
            bytes[at..at + 2].copy_from_slice(&field.to_be_bytes());
            let mut packet = pool.packet_from(&bytes).unwrap();
            prop_assert!(!complete(&mut packet));
            prop_assert_eq!(packet.to_vec(), bytes);
        }

        #[test]
        fn arbitrary_bytes_do_no_harm(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), v6: bool) {
            let pool = Pool::new(2).unwrap();
            if bytes.len() > 15 {
                bytes[12..15].copy_from_slice(if v6 { &[0x86, 0xdd, 0x60] } else { &[8, 0, 0x45] });
            }
            let mut packet = pool.packet_from(&bytes).unwrap();
            complete(&mut packet);
            prop_assert_eq!(packet.len(), bytes.len());
        }
    }

    #[test]
    fn checksum_known_to_be_partial_is_completed_in_place() {
        let pool = Pool::new(4).unwrap();
        let network = Network::V6 { source: [1; 16], destination: [2; 16], extensions: 0 };
        for (tcp, offset) in [(true, 16), (false, 6)] {
            let frame = TestFrame { network: network.clone(), tcp, tags: 1, payload: vec![9; 1001] };
            let mut packet = pool.packet_from(&frame.with_partial_checksum()).unwrap();
            assert!(complete_at(&mut packet, frame.transport_offset(), offset));
            assert_eq!(packet.to_vec(), frame.with_right_checksum());
            assert!(!complete_at(&mut packet, frame.transport_offset(), 8));
            assert!(!complete_at(&mut packet, 5000, offset));
        }
    }

    #[test]
    fn fragments_and_cut_packets_stay() {
        let pool = Pool::new(4).unwrap();
        let network = Network::V4 { source: [10, 0, 0, 1], destination: [10, 0, 0, 2], options: 0 };
        let bytes = TestFrame { network, tcp: false, tags: 0, payload: vec![7; 100] }.with_partial_checksum();
        let mut cut = pool.packet_from(&bytes[..bytes.len() - 1]).unwrap();
        assert!(!complete(&mut cut));
        let mut fragment = pool.packet_from(&bytes).unwrap();
        fragment.data_mut()[20] = 0x20;
        assert!(!complete(&mut fragment));
        let mut whole = pool.packet_from(&bytes).unwrap();
        assert!(complete(&mut whole));
    }
}
