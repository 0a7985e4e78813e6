use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

fn packet(payload: usize) -> Vec<u8> {
    let repr = Repr {
        src: Ipv4Addr::new(10, 1, 0, 1),
        dst: Ipv4Addr::new(10, 2, 0, 1),
        protocol: Protocol::UDP,
        payload_len: payload as u16,
        ttl: 64,
        tos: 0,
        identification: 7,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
    };
    let mut data = vec![0u8; HEADER_LEN + payload];
    repr.emit(&mut Packet::new_unchecked(&mut data[..]));
    data
}

/// Returns a packet after `change`, with the correct checksum for its changed header length.
fn changed(payload: usize, change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut data = packet(payload);
    change(&mut data);
    data[10..12].fill(0);
    let covered = (usize::from(data[0] & 15) * 4).min(data.len());
    let value = checksum::checksum(&data[..covered]);
    value.put(&mut data, 10);
    data
}

/// Checks a packet, and reads its header without options.
fn parsed(data: &[u8]) -> Result<Repr, Ipv4Fault> {
    fault(data)?;
    let packet = Packet::new_unchecked(data);
    Ok(Repr {
        src: packet.src(),
        dst: packet.dst(),
        protocol: packet.protocol(),
        payload_len: packet.total_len() - packet.header_len() as u16,
        ttl: packet.ttl(),
        tos: packet.tos(),
        identification: packet.identification(),
        dont_fragment: packet.dont_fragment(),
        more_fragments: packet.more_fragments(),
        fragment_offset: packet.fragment_offset(),
    })
}

fn fault(data: &[u8]) -> Result<(), Ipv4Fault> {
    sanity(data, data.len())
}

#[test]
fn a_whole_packet_is_sane_with_or_without_link_padding() {
    assert_eq!(fault(&packet(8)), Ok(()));
    assert_eq!(sanity(&packet(8), 46), Ok(()));
}

#[test]
fn each_rule_of_rfc_1812_has_a_separate_error() {
    for len in 0..HEADER_LEN {
        assert_eq!(fault(&packet(8)[..len]), Err(Ipv4Fault::Short), "{len}");
    }
    for version in (0..16u8).filter(|&version| version != 4) {
        assert_eq!(fault(&changed(8, |d| d[0] = version << 4 | 5)), Err(Ipv4Fault::Version));
    }
    for ihl in 0..5 {
        assert_eq!(fault(&changed(8, |d| d[0] = 0x40 | ihl)), Err(Ipv4Fault::HeaderLength));
    }
    for total in [0_u16, 19] {
        assert_eq!(fault(&changed(8, |d| total.put(d, 2))), Err(Ipv4Fault::TotalLength));
    }
    assert_eq!(fault(&changed(108, |d| 400_u16.put(d, 2))), Err(Ipv4Fault::Truncated));
    let mut wrong = packet(8);
    wrong[11] ^= 1;
    assert_eq!(fault(&wrong), Err(Ipv4Fault::Checksum));
}

#[test]
fn a_header_longer_than_the_frame_is_truncated() {
    let data = changed(4, |d| {
        d[0] = 0x4f;
        60_u16.put(d, 2);
    });
    assert_eq!(fault(&data), Err(Ipv4Fault::Truncated));
    assert!(Packet::new_checked(&data[..]).is_err());
}

#[test]
fn the_payload_ends_at_the_total_length_and_not_in_the_padding() {
    let mut data = packet(8);
    data.extend([0xee; 18]);
    assert_eq!(Packet::new_checked(&data[..]).unwrap().payload().len(), 8);
}

#[test]
fn a_total_length_within_the_options_is_too_short_and_the_payload_empty() {
    let data = changed(8, |d| {
        d[0] = 0x46;
        20_u16.put(d, 2);
    });
    assert_eq!(fault(&data), Err(Ipv4Fault::TotalLength));
    assert!(Packet::new_checked(&data[..]).unwrap().payload().is_empty());
}

#[test]
fn first_middle_and_last_fragments_are_fragments() {
    for (more, offset, want) in [(false, 0, false), (true, 0, true), (true, 8, true), (false, 65_528, true)] {
        let mut packet = Packet::new_checked(packet(8)).unwrap();
        packet.set_more_fragments(more);
        packet.set_fragment_offset(offset);
        assert_eq!((packet.is_fragment(), packet.fragment_offset()), (want, offset));
        assert!(packet.dont_fragment(), "the other flags stay");
    }
}

#[test]
fn ttl_of_zero_or_one_is_not_decremented() {
    for ttl in [0, 1] {
        let mut data = changed(8, |d| d[8] = ttl);
        let before = data.clone();
        assert!(!Packet::new_checked(&mut data[..]).unwrap().decrement_ttl());
        assert_eq!(data, before);
    }
}

#[test]
fn options_are_found_and_their_kinds_distinguished() {
    let mut data = [0u8; 28];
    data[0] = 0x47;
    data[20..28].copy_from_slice(&[1, 131, 7, 4, 10, 0, 0, 1]);
    let packet = Packet::new_checked(data).unwrap();
    let options: Vec<_> = packet.options().map(Result::unwrap).collect();
    assert_eq!(options.len(), 2);
    let route = options[1];
    assert!(option::is_source_route(&route) && option::is_copied(&route));
    assert_eq!((option::pointer(&route), route.offset), (Some(4), 21));
}

prop_compose! {
    fn any_repr()(src: u32, dst: u32, protocol: u8, ttl: u8, tos: u8, identification: u16, df: bool, mf: bool,
                  payload_len in 0u16..2000, fragment in 0u16..8192) -> Repr {
        Repr {
            src: src.into(), dst: dst.into(), protocol: Protocol(protocol), payload_len, ttl, tos, identification,
            dont_fragment: df, more_fragments: mf, fragment_offset: fragment * 8,
        }
    }
}

proptest! {
    #[test]
    fn getters_read_what_emit_wrote(repr in any_repr()) {
        let mut data = vec![0xa5; HEADER_LEN + usize::from(repr.payload_len)];
        repr.emit(&mut Packet::new_unchecked(&mut data[..]));
        prop_assert_eq!(parsed(&data), Ok(repr));
    }

    #[test]
    fn a_decremented_packet_is_still_sane(repr in any_repr(), ttl in 2u8..) {
        let mut data = vec![0; HEADER_LEN + usize::from(repr.payload_len)];
        let repr = Repr { ttl, ..repr };
        repr.emit(&mut Packet::new_unchecked(&mut data[..]));
        prop_assert!(Packet::new_unchecked(&mut data[..]).decrement_ttl());
        prop_assert_eq!(parsed(&data), Ok(Repr { ttl: ttl - 1, ..repr }));
    }

    #[test]
    fn valid_headers_are_accepted_by_new_checked(mut data in vec(any::<u8>(), 0..80), sane_start: bool) {
        if sane_start && data.len() > 24 {
            data[0] = 0x45;
            let len = data.len() as u16;
            len.put(&mut data, 2);
            Packet::new_unchecked(&mut data[..]).fill_checksum();
            prop_assert_eq!(fault(&data), Ok(()));
        }
        if fault(&data).is_ok() {
            prop_assert!(Packet::new_checked(&data[..]).is_ok());
        }
    }
}
