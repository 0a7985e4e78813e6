use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// Makes an IPv6 packet with the extension headers `headers`; the first of them has the protocol number
/// `first`.
fn packet(first: Protocol, headers: &[&[u8]]) -> ipv6::Packet<Vec<u8>> {
    let payload = headers.concat();
    let mut packet = ipv6::Packet::new_unchecked(vec![0; ipv6::HEADER_LEN]);
    packet.set_class_and_label(0, 0);
    packet.set_next_header(first);
    packet.set_payload_len(payload.len() as u16);
    let mut data = packet.into_inner();
    data.extend(payload);
    ipv6::Packet::new_checked(data).unwrap()
}

fn options(next: Protocol) -> [u8; 8] {
    [next.0, 0, 1, 4, 0, 0, 0, 0]
}

/// Returns the octets of a fragment header.
fn fragment_header(repr: &FragmentRepr) -> [u8; FRAGMENT_HEADER_LEN] {
    let mut header = [0; FRAGMENT_HEADER_LEN];
    header[0] = repr.next_header.0;
    header[2..4].copy_from_slice(&(repr.offset | u16::from(repr.more)).to_be_bytes());
    header[4..].copy_from_slice(&repr.identification.to_be_bytes());
    header
}

#[test]
fn without_extensions_the_upper_layer_follows_the_fixed_header() {
    let walk = walk(&packet(Protocol::TCP, &[]));
    assert_eq!(walk.upper_layer(), Some((Protocol::TCP, 40)));
    assert_eq!((walk.announced_at, walk.headers), (6, 0));
}

#[test]
fn each_kind_of_header_is_skipped_by_its_length() {
    let hop_by_hop = options(Protocol::ROUTING);
    let mut routing = [0; 24];
    routing[..2].copy_from_slice(&[Protocol::AH.0, 2]);
    let mut auth = [0; 24];
    auth[..2].copy_from_slice(&[Protocol::DESTINATION_OPTIONS.0, 4]);
    let destination = options(Protocol::UDP);
    let walk = walk(&packet(Protocol::HOP_BY_HOP, &[&hop_by_hop, &routing, &auth, &destination]));
    assert_eq!(walk.upper_layer(), Some((Protocol::UDP, 40 + 8 + 24 + 24 + 8)));
    assert!(walk.hop_by_hop);
    assert_eq!(walk.announced_at, 96);
}

#[test]
fn a_later_fragment_has_no_upper_layer_and_the_first_has() {
    for (offset, end) in [(0, End::UpperLayer), (8, End::LaterFragment)] {
        let repr = FragmentRepr { next_header: Protocol::TCP, offset, more: true, identification: 7 };
        let walk = walk(&packet(Protocol::FRAGMENT, &[&fragment_header(&repr)]));
        assert_eq!((walk.end, walk.fragment, walk.offset), (end, Some((40, repr)), 48));
    }
}

#[test]
fn the_ninth_header_is_not_passed() {
    let header = options(Protocol::DESTINATION_OPTIONS);
    let packet = packet(Protocol::DESTINATION_OPTIONS, &[&header[..]; 9]);
    let walk = walk(&packet);
    assert_eq!((walk.end, walk.headers, walk.offset), (End::Limit, 8, 40 + 64));
}

#[test]
fn exactly_as_many_headers_as_the_limit_are_not_cut() {
    let header = options(Protocol::DESTINATION_OPTIONS);
    let mut headers = [&header[..]; 8];
    let last = options(Protocol::UDP);
    headers[7] = &last;
    assert_eq!(
        walk(&packet(Protocol::DESTINATION_OPTIONS, &headers)).upper_layer(),
        Some((Protocol::UDP, 104))
    );
}

#[test]
fn hop_by_hop_options_elsewhere_are_misplaced() {
    let headers = [&options(Protocol::HOP_BY_HOP)[..], &options(Protocol::UDP)];
    let walk = walk(&packet(Protocol::DESTINATION_OPTIONS, &headers));
    assert_eq!((walk.end, walk.announced_at), (End::MisplacedHopByHop, 40));
}

#[test]
fn second_fragment_header_ends_the_walk_with_the_first_one_kept() {
    let fragment = |next_header, offset, more| {
        let repr = FragmentRepr { next_header, offset, more, identification: 7 };
        (fragment_header(&repr), repr)
    };
    let (outer, first) = fragment(Protocol::FRAGMENT, 0, true);
    let (behind_options, first_of_options) = fragment(Protocol::DESTINATION_OPTIONS, 0, false);
    for (offset, more) in [(0, false), (0, true), (8, false)] {
        let (inner, _) = fragment(Protocol::UDP, offset, more);
        let nested = walk(&packet(Protocol::FRAGMENT, &[&outer, &inner]));
        assert_eq!((nested.end, nested.fragment), (End::RepeatedFragment, Some((40, first))));
        let options = options(Protocol::FRAGMENT);
        let apart = walk(&packet(Protocol::FRAGMENT, &[&behind_options, &options, &inner]));
        assert_eq!((apart.end, apart.fragment), (End::RepeatedFragment, Some((40, first_of_options))));
    }
}

#[test]
fn a_header_beyond_the_payload_length_is_truncated_even_if_octets_follow() {
    let mut packet = packet(Protocol::ROUTING, &[&options(Protocol::UDP), &[0; 8]]);
    packet.set_payload_len(7);
    assert_eq!(walk(&packet).end, End::Truncated);
}

#[test]
fn no_next_header_and_esp_end_the_walk() {
    assert_eq!(walk(&packet(Protocol::NO_NEXT_HEADER, &[])).end, End::NoNextHeader);
    assert_eq!(walk(&packet(Protocol::ESP, &[])).upper_layer(), Some((Protocol::ESP, 40)));
}

proptest! {
    #[test]
    fn fragment_fields_are_read_at_their_offsets(next: u8, offset in 0u16..8192, more: bool, identification: u32) {
        let repr = FragmentRepr { next_header: Protocol(next), offset: offset * 8, more, identification };
        prop_assert_eq!(FragmentRepr::parse(&fragment_header(&repr)), Ok(repr));
    }

    #[test]
    fn header_walk_stays_in_the_packet_and_within_its_limit(
        first in prop::sample::select(vec![0u8, 43, 44, 51, 60]), payload in vec(any::<u8>(), 0..240),
    ) {
        let packet = packet(Protocol(first), &[&payload]);
        let walk = walk(&packet);
        prop_assert!(walk.headers <= DEFAULT_LIMIT);
        prop_assert!(walk.offset <= ipv6::HEADER_LEN + payload.len());
        prop_assert!(walk.announced_at < walk.offset);
    }
}
