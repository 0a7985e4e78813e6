//! Tests of ICMP errors: which packets get one, and its octets.

use super::*;
use crate::test_packets::{HOST_A4, HOST_A6, HOST_B6, change4, ip4, ip6, udp4, udp6};
use millrace_wire::{Protocol, checksum, ipv4, ipv6};
use proptest::prelude::*;

const ROUTER4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 254));

fn router6() -> IpAddr {
    "2001:db8:a::fe".parse().unwrap()
}

/// Puts a link header before the packet `bytes` and padding after it. Returns the error about this packet.
fn error_about(bytes: &[u8], error: IcmpError) -> Option<Vec<u8>> {
    let pool = Pool::new(64).unwrap();
    let mut original = pool.packet_from(&[&[0xee; 14][..], bytes, &[0xdd; 5]].concat()).unwrap();
    original.set_network(14);
    let source = if bytes[0] >> 4 == 4 { ROUTER4 } else { router6() };
    let packet = build_error(&pool, &original, error, source, &ErrorOptions::default())?;
    assert!(packet.is_linear() && packet.headroom() >= 22 && packet.network_offset() == 0);
    assert_eq!(packet.port, millrace_units::PortId::NONE);
    Some(packet.to_vec())
}

/// Checks the properties that every ICMPv4 error must have. Returns type, code and second word of the error.
fn icmp4(octets: &[u8]) -> (u8, u8, u32) {
    assert_eq!(ipv4::sanity(octets, octets.len()), Ok(()));
    let packet = ipv4::Packet::new_checked(octets).unwrap();
    assert_eq!((packet.dst(), IpAddr::V4(packet.src())), (HOST_A4, ROUTER4));
    assert_eq!((packet.protocol(), packet.ttl(), packet.tos()), (Protocol::ICMP, 64, 0xc0));
    assert!(octets.len() <= 576 && checksum::sum(packet.payload()).is_valid());
    let icmp = packet.payload();
    (icmp[0], icmp[1], u32::from_be_bytes([icmp[4], icmp[5], icmp[6], icmp[7]]))
}

fn icmp6(octets: &[u8]) -> (u8, u8, u32) {
    assert_eq!(ipv6::sanity(octets, octets.len()), Ok(()));
    let packet = ipv6::Packet::new_checked(octets).unwrap();
    assert_eq!((packet.dst(), IpAddr::V6(packet.src())), (HOST_A6, router6()));
    assert_eq!((packet.hop_limit(), packet.traffic_class()), (64, 0xc0));
    let icmp = packet.payload();
    assert!(octets.len() <= 1280);
    assert!(packet.pseudo_header(Protocol::ICMPV6, icmp.len() as u32).bytes(icmp).is_valid());
    (icmp[0], icmp[1], u32::from_be_bytes([icmp[4], icmp[5], icmp[6], icmp[7]]))
}

#[test]
fn types_and_codes_match_the_family() {
    let gateway = Ipv4Addr::new(10, 0, 0, 253);
    type Header = Option<(u8, u8, u32)>;
    let rows: [(&str, IcmpError, Header, Header); 13] = [
        ("TTL-01 V6-02", IcmpError::TtlExpired, Some((11, 0, 0)), Some((3, 0, 0))),
        ("FR-07", IcmpError::ReassemblyTimeExceeded, Some((11, 1, 0)), Some((3, 1, 0))),
        ("DU-01 V6-04", IcmpError::NetUnreachable, Some((3, 0, 0)), Some((1, 0, 0))),
        ("DU-02 V6-04", IcmpError::HostUnreachable, Some((3, 1, 0)), Some((1, 3, 0))),
        ("DU-03", IcmpError::ProtocolUnreachable, Some((3, 2, 0)), Some((4, 1, 6))),
        ("DU-03 V6-04", IcmpError::PortUnreachable, Some((3, 3, 0)), Some((1, 4, 0))),
        ("FR-04 V6-05", IcmpError::TooBig { mtu: 1500 }, Some((3, 4, 1500)), Some((2, 0, 1500))),
        ("DU-05", IcmpError::AdminProhibited, Some((3, 13, 0)), Some((1, 1, 0))),
        ("V6-04", IcmpError::SourcePolicy, Some((3, 13, 0)), Some((1, 5, 0))),
        ("DU-05 V6-04", IcmpError::RejectRoute, Some((3, 1, 0)), Some((1, 6, 0))),
        ("V6-04", IcmpError::BeyondScope, None, Some((1, 2, 0))),
        (
            "OP-07",
            IcmpError::ParameterProblem { code: 2, pointer: 21 },
            Some((12, 0, 21 << 24)),
            Some((4, 2, 21)),
        ),
        ("RD-01", IcmpError::Redirect { gateway }, Some((5, 1, gateway.to_bits())), None),
    ];
    for (number, (id, error, v4, v6)) in rows.into_iter().enumerate() {
        assert_eq!(error_about(&udp4(b"payload"), error).as_deref().map(icmp4), v4, "{id} {error:?}");
        assert_eq!(error_about(&udp6(b"payload"), error).as_deref().map(icmp6), v6, "{id} {error:?}");
        assert_eq!(error.kind(), number, "each kind has its number");
    }
    assert_eq!(rows.len(), IcmpError::KINDS);
}

/// Test case IE-06.
#[test]
fn ipv4_error_quotes_up_to_576_bytes() {
    for len in [0, 7, 519, 520, 521, 1372] {
        let bytes = udp4(&vec![0x5a; len]);
        let error = error_about(&bytes, IcmpError::TtlExpired).unwrap();
        assert_eq!(error.len(), 576.min(28 + bytes.len()));
        assert_eq!(error[28..], bytes[..error.len() - 28]);
    }
}

/// Test case V6-08.
#[test]
fn ipv6_error_quotes_up_to_1280_bytes() {
    for len in [0, 1183, 1184, 1185, 1400, 8000] {
        let bytes = udp6(&vec![0x5a; len]);
        let error = error_about(&bytes, IcmpError::TtlExpired).unwrap();
        assert_eq!(error.len(), 1280.min(48 + bytes.len()));
        assert_eq!(error[48..], bytes[..error.len() - 48]);
    }
}

/// Test case IE-11: no error is made with 0.0.0.0 as source, or with a source of another address family than
/// the packet.
#[test]
fn a_source_that_can_not_be_answered_from_gives_no_error() {
    let pool = Pool::new(4).unwrap();
    let original = pool.packet_from(&udp4(b"x")).unwrap();
    for source in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), router6()] {
        let error = build_error(&pool, &original, IcmpError::TtlExpired, source, &ErrorOptions::default());
        assert!(error.is_none());
    }
}

#[test]
fn without_memory_there_is_no_error() {
    let pool = Pool::new(1).unwrap();
    let original = pool.packet_from(&udp4(b"x")).unwrap();
    let error = build_error(&pool, &original, IcmpError::TtlExpired, ROUTER4, &ErrorOptions::default());
    assert!(error.is_none() && pool.in_use() == 1);
}

fn may(bytes: &[u8], error: IcmpError, link_broadcast: bool) -> bool {
    may_send_error(bytes, &error, link_broadcast)
}

/// Test case IE-01.
#[test]
fn ipv4_errors_are_not_answered_and_echoes_are() {
    for (kind, answered) in
        [(3, false), (4, false), (5, false), (11, false), (12, false), (0, true), (8, true), (44, true)]
    {
        let bytes = ip4(Protocol::ICMP, &[], &[kind, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(may(&bytes, IcmpError::TtlExpired, false), answered, "type {kind}");
        let with_options = ip4(Protocol::ICMP, &[1, 1, 1, 1], &[kind, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(may(&with_options, IcmpError::TtlExpired, false), answered, "type {kind} behind options");
    }
    assert!(!may(&ip4(Protocol::ICMP, &[], &[]), IcmpError::TtlExpired, false), "no type to see");
}

/// Test cases IE-02, IE-03 and IE-04.
#[test]
fn ipv4_packets_to_groups_or_from_invalid_sources_are_not_answered() {
    for destination in ["224.0.1.1", "255.255.255.255", "239.1.1.1"] {
        let mut bytes = udp4(b"x");
        change4(&mut bytes, |header| header.set_dst(destination.parse().unwrap()));
        assert!(!may(&bytes, IcmpError::TtlExpired, false), "IE-02 to {destination}");
    }
    assert!(!may(&udp4(b"x"), IcmpError::TtlExpired, true), "IE-03, and IE-02 for directed broadcasts");
    for source in ["0.0.0.0", "0.1.2.3", "127.0.0.1", "224.1.1.1", "240.0.0.1", "255.255.255.255"] {
        let mut bytes = udp4(b"x");
        change4(&mut bytes, |header| header.set_src(source.parse().unwrap()));
        assert!(!may(&bytes, IcmpError::TtlExpired, false), "IE-04 from {source}");
    }
    assert!(may(&udp4(b"x"), IcmpError::TtlExpired, false));
}

/// Test case IE-05.
#[test]
fn only_the_first_fragment_is_answered() {
    for (offset, answered) in [(0, true), (8, false), (65_528, false)] {
        let mut bytes = udp4(b"x");
        change4(&mut bytes, |header| {
            header.set_fragment_offset(offset);
            header.set_more_fragments(true);
        });
        assert_eq!(may(&bytes, IcmpError::TtlExpired, false), answered, "offset {offset}");
    }
}

/// Test case V6-07.
#[test]
fn ipv6_errors_and_redirects_are_not_answered_even_behind_extension_headers() {
    for (kind, answered) in
        [(1, false), (2, false), (4, false), (127, false), (137, false), (128, true), (135, true)]
    {
        let plain = ip6(Protocol::ICMPV6, &[kind, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(may(&plain, IcmpError::TtlExpired, false), answered, "type {kind}");
        let behind =
            ip6(Protocol::DESTINATION_OPTIONS, &[58, 0, 1, 4, 0, 0, 0, 0, kind, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(may(&behind, IcmpError::TtlExpired, false), answered, "type {kind} behind options");
    }
    assert!(!may(
        &ip6(Protocol::DESTINATION_OPTIONS, &[58, 9, 0, 0, 0, 0, 0, 0]),
        IcmpError::TtlExpired,
        false
    ));
}

/// Test cases V6-05 and V6-07.
#[test]
fn ipv6_packets_to_many_are_answered_with_two_errors_only() {
    let mut bytes = udp6(b"x");
    ipv6::Packet::new_unchecked(&mut bytes[..]).set_dst("ff0e::1".parse().unwrap());
    for (error, answered) in [
        (IcmpError::TooBig { mtu: 1500 }, true),
        (IcmpError::ParameterProblem { code: 2, pointer: 42 }, true),
        (IcmpError::ParameterProblem { code: 0, pointer: 42 }, false),
        (IcmpError::TtlExpired, false),
        (IcmpError::NetUnreachable, false),
    ] {
        assert_eq!(may(&bytes, error, false), answered, "{error:?} to a group");
        assert_eq!(may(&udp6(b"x"), error, true), answered, "{error:?} in a group's frame");
    }
    for source in ["::", "ff02::1", "::1"] {
        let mut bytes = udp6(b"x");
        ipv6::Packet::new_unchecked(&mut bytes[..]).set_src(source.parse().unwrap());
        assert!(!may(&bytes, IcmpError::TooBig { mtu: 1500 }, false), "from {source}");
    }
    assert_eq!(HOST_B6, ipv6::Packet::new_unchecked(&udp6(b"x")[..]).dst());
}

proptest! {
    /// Test case IE-10: quotes of any length, odd ones too, have a correct checksum (`icmp4` and `icmp6`
    /// verify it).
    #[test]
    fn checksums_are_right_for_any_payload(payload in proptest::collection::vec(any::<u8>(), 0..3000)) {
        let quoted4 = udp4(&payload);
        let error = error_about(&quoted4, IcmpError::HostUnreachable).unwrap();
        prop_assert_eq!(icmp4(&error), (3, 1, 0));
        prop_assert!(quoted4.starts_with(&error[28..]));
        let quoted6 = udp6(&payload);
        let error = error_about(&quoted6, IcmpError::HostUnreachable).unwrap();
        prop_assert_eq!(icmp6(&error), (1, 3, 0));
        prop_assert!(quoted6.starts_with(&error[48..]));
    }

    /// Any octets behind a valid IP header get an answer without a panic.
    #[test]
    fn permission_never_panics(payload in proptest::collection::vec(any::<u8>(), 0..100), next: u8, v6: bool) {
        let bytes = if v6 { ip6(Protocol(next), &payload) } else { ip4(Protocol(next), &[], &payload) };
        let _ = may(&bytes, IcmpError::TtlExpired, false);
    }
}
