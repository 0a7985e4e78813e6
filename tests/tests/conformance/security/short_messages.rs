//! SE: messages to the router itself that are shorter than their headers, on ports without a kernel.
//!
//! Checksums are correct even in a message that ends before its checksum field, so that only the length check
//! can refuse it.

use std::net::Ipv6Addr;

use millrace_packet::DropReason;
use millrace_tests::{
    ArpFrame, Frame, Ipv4Frame, Ipv6Frame, NdFrame, RawFrame, STANDARD, Scenario, checksum,
    transport_checksum6,
};

/// Lengths of the tested messages: from 0 to beyond each fixed header.
const LENGTHS: std::ops::RangeInclusive<usize> = 0..=64;
/// Length of an ICMP header in both versions, in octets.
const ICMP_HEADER: usize = 8;
const OWN6: &str = "fd00:1::1";

/// Returns an ICMPv4 message of `length` octets, with a correct checksum where the length allows one.
fn icmp4(kind: u8, length: usize) -> Vec<u8> {
    let mut message = vec![0; length];
    if let Some(first) = message.first_mut() {
        *first = kind;
    }
    match length {
        0..=2 => {}
        // The message has two free octets; RFC 1071 pads it to an even length.
        3 => message[1..3].copy_from_slice(&[0xff, 0xff - kind]),
        _ => {
            let sum = checksum(&message).to_be_bytes();
            message[2..4].copy_from_slice(&sum);
        }
    }
    message
}

/// Returns an ICMPv6 message of `length` octets with a correct checksum, and the message's source. If the
/// message ends before its checksum field, the source is an address that makes the sum correct.
fn icmp6(kind: u8, length: usize) -> (Vec<u8>, Ipv6Addr) {
    let own: Ipv6Addr = OWN6.parse().unwrap();
    let mut source: Ipv6Addr = "fd00:1::2".parse().unwrap();
    let mut message = vec![0; length];
    if let Some(first) = message.first_mut() {
        *first = kind;
    }
    if length >= 4 {
        let sum = transport_checksum6(source, own, 58, &message).to_be_bytes();
        message[2..4].copy_from_slice(&sum);
    } else {
        let zero = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 0);
        let sum = transport_checksum6(zero, own, 58, &message);
        source = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, sum);
    }
    assert_eq!(transport_checksum6(source, own, 58, &message), 0);
    (message, source)
}

fn echo4(length: usize) -> Ipv4Frame {
    Ipv4Frame::raw(1).dst("10.1.0.1").payload(&icmp4(8, length))
}

fn echo6(length: usize) -> Ipv6Frame {
    let (message, source) = icmp6(128, length);
    Ipv6Frame::raw(58).src(&source.to_string()).dst(OWN6).payload(&message)
}

#[test]
fn se_05_echo_request_shorter_than_its_header_is_dropped() {
    let mut router = Scenario::with_settings("\n[control-plane]\npolice = false");
    for length in 0..ICMP_HEADER {
        router.expect_drop("a", &echo4(length), DropReason::LocalUnknown);
        router.expect_drop("a", &echo4(length).options(&[1; 40]), DropReason::LocalUnknown);
        router.expect_drop("a", &echo4(length).pad(60), DropReason::LocalUnknown);
        router.expect_drop("a", &echo6(length), DropReason::LocalUnknown);
        router.expect_drop("a", &echo6(length).pad(60), DropReason::LocalUnknown);
    }
}

#[test]
fn se_05_echo_request_with_a_whole_header_is_answered() {
    let mut router = Scenario::with_settings("\n[control-plane]\npolice = false");
    for length in LENGTHS.filter(|&length| length >= ICMP_HEADER) {
        router.send("a", &echo4(length));
        let reply = router.only("a").ipv4().payload().to_vec();
        assert_eq!((reply.len(), reply[0], checksum(&reply)), (length, 0, 0));
        router.send("a", &echo6(length));
        let output = router.only("a");
        let (header, reply) = (output.ipv6(), output.ipv6().payload().to_vec());
        assert_eq!((reply.len(), reply[0]), (length, 129));
        assert_eq!(transport_checksum6(header.src(), header.dst(), 58, &reply), 0);
    }
}

/// Returns a message of each protocol for the own stack and for the stages before it, cut to `length` octets.
fn cut_messages(length: usize) -> Vec<Vec<u8>> {
    let cut = |bytes: Vec<u8>| bytes.get(..length).unwrap_or(&bytes).to_vec();
    let mut frames = Vec::new();
    let every_kind = length <= ICMP_HEADER;
    for kind in (0..=u8::MAX).filter(|kind| every_kind || matches!(kind, 0 | 3 | 8 | 11 | 128 | 130..=137)) {
        frames.push(Ipv4Frame::raw(1).dst("10.1.0.1").payload(&icmp4(kind, length)).bytes());
        let (message, source) = icmp6(kind, length);
        let whole = Ipv6Frame::raw(58).src(&source.to_string()).dst(OWN6).payload(&message);
        frames.push(whole.clone().hop_limit(255).bytes());
        frames.push(whole.extension(60, &[0, 1, 4, 0, 0, 0, 0]).bytes());
    }
    for protocol in [0, 6, 17, 41, 43, 44, 50, 51, 58, 59, 60, 132, 135, 140] {
        let tcp = cut(Ipv4Frame::tcp().payload(&[0; 64]).packet()[20..].to_vec());
        let zeros = vec![0; length];
        for payload in [&tcp, &zeros] {
            frames.push(Ipv4Frame::raw(protocol).dst("10.1.0.1").payload(payload).bytes());
            frames.push(Ipv6Frame::raw(protocol).dst(OWN6).payload(payload).bytes());
            frames.push(Ipv6Frame::raw(protocol).payload(payload).hop_limit(1).bytes());
            frames.push(Ipv4Frame::raw(protocol).payload(payload).ttl(1).bytes());
        }
    }
    frames.push(ArpFrame::request("10.1.0.2", "10.1.0.1").cut(length).bytes());
    frames.push(ArpFrame::reply("10.1.0.2", "10.1.0.1").cut(length).bytes());
    let solicitation = NdFrame::solicitation("fd00:1::2", OWN6).source_link(millrace_tests::station(0xa2));
    let advertisement = NdFrame::advertisement("fd00:1::2", OWN6).dst(OWN6);
    for message in [solicitation.bytes(), advertisement.bytes()] {
        let length = length.min(message.len() - 54);
        frames.push(shortened6(&message, length));
    }
    // Frames that end within their link, network or transport header.
    let wholes =
        [Ipv4Frame::udp().dst("10.1.0.1").options(&[1; 8]).bytes(), Ipv6Frame::tcp().dst(OWN6).bytes()];
    frames.extend(wholes.map(cut));
    frames.push(RawFrame::new(0x8100, &vec![0; length]).bytes());
    frames
}

/// Returns the IPv6 frame with its message cut to `length` octets. Corrects the checksum if the field is
/// present.
fn shortened6(frame: &[u8], length: usize) -> Vec<u8> {
    let mut short = frame[..54 + length].to_vec();
    short[18..20].copy_from_slice(&(length as u16).to_be_bytes());
    if length >= 4 {
        short[56..58].fill(0);
        let address = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&short[at..at + 16]).unwrap());
        let sum = transport_checksum6(address(22), address(38), 58, &short[54..]).to_be_bytes();
        short[56..58].copy_from_slice(&sum);
    }
    short
}

/// Returns the standard router with port `t` and its VLAN sub-interface `v`, without control-plane policing.
fn with_vlan() -> Scenario {
    Scenario::new(&format!(
        r#"
        [control-plane]
        police = false
        {STANDARD}
        [[port]]
        name = "t"
        device = "trunk"

        [[port]]
        name = "v"
        device = "trunk"
        vlan = 10
        mac = "02:00:00:00:00:0a"
        address = ["10.11.0.1/24"]
        "#
    ))
}

#[test]
fn se_05_no_message_of_any_length_ends_the_worker() {
    let mut router = with_vlan();
    let mut traces = router.router.trace(1);
    let mut captures = router.router.capture(64);
    for length in LENGTHS {
        for frame in cut_messages(length) {
            router.router.inject("a", &frame);
            // The same message through the VLAN sub-interface.
            if frame.len() >= 12 {
                let tagged = [&frame[..12], &[0x81, 0, 0, 10], &frame[12..]].concat();
                router.router.inject("t", &tagged);
            }
            router.router.run();
        }
        for trace in &mut traces {
            while trace.next_event().is_some() {}
        }
        for capture in &mut captures {
            while capture.next_frame().is_some() {}
        }
        router.take_all();
        router.advance(std::time::Duration::from_secs(1));
    }
    router.take_all();
    router.expect_forwarded("a", &Ipv4Frame::udp(), "b");
    router.expect_forwarded("a", &Ipv6Frame::udp(), "b");
}
