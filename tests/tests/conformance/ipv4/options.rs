//! OP: IPv4 options in transit (RFC 791, 3.1; RFC 1812, 5.3.13; RFC 7126; RFC 6274, 3.13).

use millrace_packet::DropReason;
use millrace_tests::{Ipv4Frame, Scenario};

#[test]
fn op_01_padding_of_any_length_passes_unchanged() {
    let mut router = Scenario::standard();
    for words in 1..=10 {
        for filling in [0, 1] {
            router.expect_forwarded("a", &Ipv4Frame::udp().options(&vec![filling; words * 4]), "b");
        }
    }
}

#[test]
fn op_02_an_unknown_option_passes_unchanged() {
    let mut router = Scenario::standard();
    router.expect_forwarded("a", &Ipv4Frame::udp().options(&[0x9e, 4, 0xaa, 0xbb]), "b");
    router.expect_forwarded(
        "a",
        &Ipv4Frame::udp().options(&[0x9e, 2, 0x1e, 38]).options(&[0x9e; 40].map(|_| 1)),
        "b",
    );
    // Any bytes may follow the end of the list.
    router.expect_forwarded("a", &Ipv4Frame::udp().options(&[1, 0, 7, 0]), "b");
}

/// Sends a packet with wrong options, and expects an error with `pointer`: the wrong byte's offset from the
/// start of the header.
#[track_caller]
fn malformed(router: &mut Scenario, options: &[u8], pointer: u8) {
    let frame = Ipv4Frame::udp().options(options);
    let error = router.expect_error4("a", &frame, (12, 0), DropReason::Ip4Option);
    assert_eq!(error.rest, [pointer, 0, 0, 0], "{options:?}");
}

#[test]
fn op_07_invalid_option_length_gets_a_parameter_problem_with_its_offset() {
    let mut router = Scenario::standard();
    for kind in [7, 68, 0x9e, 130, 148] {
        malformed(&mut router, &[kind, 0, 0, 0], 21);
        malformed(&mut router, &[kind, 1, 0, 0], 21);
        // The option extends past the end of the header.
        malformed(&mut router, &[kind, 5, 4, 0], 21);
        malformed(&mut router, &[kind, 255, 4, 0], 21);
        malformed(&mut router, &[1, 1, kind, 3], 23);
    }
    // The length field itself is past the end, so the pointer is at the type of the option.
    malformed(&mut router, &[1, 1, 1, 7], 23);
}

#[test]
fn op_07_pointer_into_the_option_header_gets_a_parameter_problem_with_its_offset() {
    let mut router = Scenario::standard();
    for pointer in 0..4 {
        malformed(&mut router, &[7, 7, pointer, 0, 0, 0, 0, 0], 22);
        malformed(&mut router, &[131, 7, pointer, 0, 0, 0, 0, 0], 22);
    }
    malformed(&mut router, &[68, 8, 4, 0, 0, 0, 0, 0], 22);
    router.expect_forwarded("a", &Ipv4Frame::udp().options(&[7, 7, 4, 0, 0, 0, 0, 0]), "b");
    router.expect_forwarded("a", &Ipv4Frame::udp().options(&[68, 8, 5, 0, 0, 0, 0, 0]), "b");
}

#[test]
fn op_07_every_option_byte_with_every_length_causes_no_panic() {
    let mut router = Scenario::with_settings("icmp-rate = 1000000");
    for kind in 0..=255u8 {
        for length in 0..=48u8 {
            for fill in [0, 4, 0xff] {
                let mut options = [fill; 40];
                options[0] = kind;
                options[1] = length;
                router.send("a", &Ipv4Frame::udp().options(&options));
            }
        }
    }
    router.take_all();
    router.check_conservation();
}

/// Tests the default for source routes, which follows RFC 7126, 4.3 and 4.4.
#[test]
fn op_03_source_routed_packets_are_dropped_silently() {
    let mut router = Scenario::standard();
    for kind in [131, 137] {
        let frame = Ipv4Frame::udp().options(&[kind, 7, 4, 10, 3, 0, 2, 0]);
        router.expect_drop("a", &frame, DropReason::Ip4SourceRoute);
    }
}
