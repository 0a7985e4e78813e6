use super::*;
use crate::Protocol;
use crate::checksum::pseudo_header_v6;
use proptest::prelude::*;

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

fn address(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

fn emitted(repr: &Repr<'_>, src: Ipv6Addr, dst: Ipv6Addr) -> Vec<u8> {
    let mut data = vec![0xff; repr.buffer_len()];
    let pseudo = pseudo_header_v6(src, dst, Protocol::ICMPV6, data.len() as u32);
    repr.emit(&mut Packet::new_unchecked(&mut data[..]), pseudo);
    data
}

/// Returns the verdict of [`validate`] on the message `repr`. Applies `change` to its octets and corrects the
/// checksum first.
fn verdict(repr: &Repr<'_>, src: &str, dst: &str, change: impl Fn(&mut Vec<u8>)) -> Result<(), NdpFault> {
    let (src, dst) = (address(src), address(dst));
    let mut data = emitted(repr, src, dst);
    change(&mut data);
    let pseudo = pseudo_header_v6(src, dst, Protocol::ICMPV6, data.len() as u32);
    icmpv6::Packet::new_unchecked(&mut data[..]).fill_checksum(pseudo);
    validate(HOP_LIMIT, src, dst, &data).map(|_| ())
}

fn solicitation(target: &str, source_link: Option<MacAddr>) -> Repr<'static> {
    Repr::NeighbourSolicitation { target: address(target), source_link }
}

#[test]
fn a_solicited_node_address_ends_in_the_last_three_octets() {
    assert_eq!(solicited_node(address("fe80::2aa:ff:fe28:9c5a")), address("ff02::1:ff28:9c5a"));
}

#[test]
fn a_proper_solicitation_is_believed() {
    let repr = solicitation("fe80::1", Some(MAC));
    assert_eq!(verdict(&repr, "fe80::2", "ff02::1:ff00:1", |_| ()), Ok(()));
    assert_eq!(verdict(&solicitation("fe80::1", None), "::", "ff02::1:ff00:1", |_| ()), Ok(()));
}

#[test]
fn each_rule_on_solicitations_has_a_separate_error() {
    let repr = solicitation("fe80::1", Some(MAC));
    let (src, dst) = (address("fe80::2"), address("ff02::1:ff00:1"));
    let mut data = emitted(&repr, src, dst);
    assert_eq!(validate(254, src, dst, &data), Err(NdpFault::HopLimit));
    data[3] ^= 1;
    assert_eq!(validate(255, src, dst, &data), Err(NdpFault::Checksum));
    let asked = |change: fn(&mut Vec<u8>)| verdict(&repr, "fe80::2", "ff02::1:ff00:1", change);
    assert_eq!(asked(|data| data[1] = 1), Err(NdpFault::Code));
    assert!(matches!(
        asked(|data| data[25] = 0),
        Err(NdpFault::Malformed(WireError::Field { offset: 25, .. }))
    ));
    assert!(matches!(asked(|data| data.truncate(23)), Err(NdpFault::Malformed(WireError::Truncated { .. }))));
    assert_eq!(asked(|data| data[8] = 0xff), Err(NdpFault::Target));
    assert_eq!(verdict(&repr, "::", "ff02::1:ff00:1", |_| ()), Err(NdpFault::UnspecifiedWithLinkAddress));
    assert_eq!(verdict(&solicitation("fe80::1", None), "::", "fe80::1", |_| ()), Err(NdpFault::Address));
}

#[test]
fn an_advertisement_to_a_group_is_not_solicited() {
    for (flags, want) in [(Flags::OVERRIDE, Ok(())), (Flags::SOLICITED, Err(NdpFault::SolicitedMulticast))] {
        let repr = Repr::NeighbourAdvertisement { flags, target: address("fe80::1"), target_link: Some(MAC) };
        assert_eq!(verdict(&repr, "fe80::1", "ff02::1", |_| ()), want);
    }
}

#[test]
fn a_redirect_comes_from_a_link_local_address_and_names_a_neighbour() {
    let redirect = |target, destination| Repr::Redirect {
        target: address(target),
        destination: address(destination),
        target_link: Some(MAC),
        quote: &[],
    };
    let to_router = redirect("fe80::9", "2001:db8::1");
    assert_eq!(verdict(&to_router, "fe80::1", "2001:db8:1::2", |_| ()), Ok(()));
    assert_eq!(verdict(&to_router, "2001:db8:1::1", "2001:db8:1::2", |_| ()), Err(NdpFault::Address));
    let on_link = redirect("2001:db8::1", "2001:db8::1");
    assert_eq!(verdict(&on_link, "fe80::1", "2001:db8:1::2", |_| ()), Ok(()));
    let elsewhere = redirect("2001:db8::7", "2001:db8::1");
    assert_eq!(verdict(&elsewhere, "fe80::1", "2001:db8:1::2", |_| ()), Err(NdpFault::Target));
    let group = redirect("ff02::5", "ff02::5");
    assert_eq!(verdict(&group, "fe80::1", "2001:db8:1::2", |_| ()), Err(NdpFault::Target));
}

#[test]
fn other_types_are_refused() {
    let mut data = [0u8; 40];
    data[0] = 128; // echo request
    assert!(matches!(Packet::new_checked(data), Err(WireError::Field { field: "type", .. })));
}

#[test]
fn quote_is_cut_to_whole_units_and_the_maximum_of_its_length_field() {
    let quote = [0x60; 3000];
    let (target, destination) = (address("fe80::9"), address("2001:db8::1"));
    for (len, want) in [(0, 0), (7, 0), (8, 8), (47, 40), (3000, 2032)] {
        let repr = Repr::Redirect { target, destination, target_link: None, quote: &quote[..len] };
        let data = emitted(&repr, target, destination);
        let packet = Packet::new_checked(&data[..]).unwrap();
        let Ok(Repr::Redirect { quote, .. }) = Repr::parse(&packet) else { panic!("a redirect was written") };
        assert_eq!(quote.len(), want);
    }
}

proptest! {
    #[test]
    fn parse_inverts_emit(which in 0usize..3, flags: u8, target: u128, destination: u128,
                                        link: Option<[u8; 6]>, units in 0usize..40) {
        let (target, destination, link) = (target.into(), destination.into(), link.map(MacAddr));
        let quote = vec![0x61; units * 8];
        let repr = match which {
            0 => Repr::NeighbourSolicitation { target, source_link: link },
            1 => Repr::NeighbourAdvertisement { flags: Flags(flags), target, target_link: link },
            _ => Repr::Redirect { target, destination, target_link: link, quote: &quote },
        };
        let data = emitted(&repr, target, destination);
        let packet = Packet::new_checked(&data[..]).unwrap();
        prop_assert_eq!(Repr::parse(&packet), Ok(repr));
    }
}
