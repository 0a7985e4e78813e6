use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// Makes an IPv6 packet with the payload `headers`, whose first header is `first`.
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
    assert_eq!(walk.hop_by_hop, Some(Extent { offset: 40, len: 8 }));
    assert_eq!(walk.routing, Some(Extent { offset: 48, len: 24 }));
    assert_eq!(walk.announced_at, 96);
}

#[test]
fn a_later_fragment_has_no_upper_layer_and_the_first_has() {
    let mut header = [0; FRAGMENT_HEADER_LEN];
    for (offset, end) in [(0, End::UpperLayer), (8, End::LaterFragment)] {
        let repr = FragmentRepr { next_header: Protocol::TCP, offset, more: true, identification: 7 };
        repr.emit(&mut header);
        let walk = walk(&packet(Protocol::FRAGMENT, &[&header]));
        assert_eq!((walk.end, walk.fragment, walk.offset), (end, Some((40, repr)), 48));
    }
}

#[test]
fn the_ninth_header_is_not_passed_and_the_limit_can_be_less() {
    let header = options(Protocol::DESTINATION_OPTIONS);
    let packet = packet(Protocol::DESTINATION_OPTIONS, &[&header[..]; 9]);
    let default = walk(&packet);
    assert!(default.is_cut());
    assert_eq!((default.headers, default.offset), (8, 40 + 64));
    assert_eq!(walk_limited(&packet, 0).headers, 0);
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
        let mut header = [0; FRAGMENT_HEADER_LEN];
        let repr = FragmentRepr { next_header, offset, more, identification: 7 };
        repr.emit(&mut header);
        (header, repr)
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

#[test]
fn options_skip_padding_and_keep_offsets() {
    let data = [17, 1, 0, 1, 1, 0, 5, 2, 0, 0, 0xc2, 4, 0, 1, 0, 0];
    let header = Header::new_checked(&data[..]).unwrap();
    let found: Vec<_> = header.options(40).map(Result::unwrap).collect();
    let seen: Vec<_> = found.iter().map(|option| (option.offset, option.kind, option.data.len())).collect();
    assert_eq!(seen, [(46, RawOption::ROUTER_ALERT, 2), (50, RawOption::JUMBO_PAYLOAD, 4)]);
    let changeable = |kind| RawOption { offset: 0, kind, data: &[] }.may_change();
    assert!(changeable(0x3e) && !changeable(0x1e));
    assert_eq!(found[0].unknown_action(), UnknownAction::Skip);
    assert_eq!(found[1].unknown_action(), UnknownAction::ReportUnlessMulticast);
}

#[test]
fn option_beyond_its_header_is_reported_at_its_length_and_ends_the_iteration() {
    let data = [17, 0, 5, 9, 0, 0, 0, 0];
    let header = Header::new_checked(&data[..]).unwrap();
    let mut options = header.options(40);
    assert_eq!(options.next(), Some(Err(OptionFault { offset: 43, kind: 5 })));
    assert_eq!(options.next(), None);
    let padding_too_long = [17, 0, 1, 9, 0, 0, 0, 0];
    assert!(Header::new_checked(&padding_too_long[..]).unwrap().options(0).next().unwrap().is_err());
}

proptest! {
    #[test]
    fn fragment_parse_inverts_emit(next: u8, offset in 0u16..8192, more: bool, identification: u32) {
        let repr = FragmentRepr { next_header: Protocol(next), offset: offset * 8, more, identification };
        let mut data = vec![0xff; repr.buffer_len()];
        repr.emit(&mut data);
        prop_assert_eq!(FragmentRepr::parse(&data), Ok(repr));
    }

    #[test]
    fn header_walk_stays_in_the_packet_and_within_its_limit(
        first in prop::sample::select(vec![0u8, 43, 44, 51, 60]), payload in vec(any::<u8>(), 0..120), limit in 0usize..12,
    ) {
        let packet = packet(Protocol(first), &[&payload]);
        let walk = walk_limited(&packet, limit);
        prop_assert!(walk.headers <= limit);
        prop_assert!(walk.offset <= ipv6::HEADER_LEN + payload.len());
        prop_assert!(walk.announced_at < walk.offset);
    }
}
