//! SE: what an attacker might try.

use millrace_packet::DropReason;
use millrace_tests::{Ipv4Frame, Ipv6Frame, RawFrame, Scenario};

/// CVE-2020-10136: a packet inside a packet to the router must not be set free there.
#[test]
fn se_03_tunnels_that_were_not_configured_are_not_unpacked() {
    let mut router = Scenario::standard();
    let inner4 = Ipv4Frame::udp().packet();
    let inner6 = Ipv6Frame::udp().packet();
    let gre = [&[0, 0, 8, 0][..], &inner4].concat();
    let vxlan =
        [&[0x08, 0, 0, 0, 0, 0, 42, 0][..], &[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0], &inner4].concat();
    for (protocol, inner) in [(4, &inner4), (41, &inner6), (47, &gre)] {
        let frame = Ipv4Frame::raw(protocol).dst("10.1.0.1").payload(inner);
        router.expect_error4("a", &frame, (3, 2), DropReason::LocalUnknown);
    }
    let frame = Ipv4Frame::udp().ports(4789, 4789).dst("10.1.0.1").payload(&vxlan);
    router.expect_error4("a", &frame, (3, 3), DropReason::LocalUnknown);
    let frame = Ipv6Frame::raw(41).dst("fd00:1::1").payload(&inner6);
    router.expect_error6("a", &frame, (4, 1), DropReason::LocalUnknown);
}

#[test]
fn se_05_a_version_that_contradicts_the_ether_type_is_dropped() {
    let mut router = Scenario::standard();
    router.expect_drop("a", &Ipv6Frame::udp().ether_type(0x0800), DropReason::Ip4Version);
    router.expect_drop("a", &Ipv4Frame::udp().payload(&[0; 40]).ether_type(0x86dd), DropReason::Ip6Version);
}

#[test]
fn se_05_other_protocols_are_dropped_and_counted_one_by_one() {
    let mut router = Scenario::standard();
    let inner = Ipv4Frame::udp().packet();
    // MPLS, PPPoE discovery and session, 802.1X, LLDP, HomePlug, and numbers of nobody.
    let types = [0x8847, 0x8848, 0x8863, 0x8864, 0x888e, 0x88cc, 0x88e1, 0x0801, 0x1234, 0xffff];
    for ether_type in types {
        router.expect_drop("a", &RawFrame::new(ether_type, &inner), DropReason::EtherType);
    }
    assert_eq!(router.dropped(DropReason::EtherType), types.len() as u64);
}
