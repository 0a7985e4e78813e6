//! MC: multicast (RFC 1812, 5.2.1.3; RFC 5771, 4).

use millrace_packet::DropReason;
use millrace_tests::{Ipv4Frame, Scenario};
use millrace_wire::MacAddr;

#[test]
fn mc_01_link_local_groups_are_never_forwarded() {
    let mut router = Scenario::with("[[route]]\nto = \"0.0.0.0/0\"\nvia = \"10.2.0.2\"\n");
    for (group, protocol) in [("224.0.0.1", 2), ("224.0.0.5", 89), ("224.0.0.22", 2), ("224.0.0.251", 17)] {
        let mac = MacAddr::from_ipv4_multicast(group.parse().unwrap());
        for ttl in [1, 2, 64, 255] {
            let frame = Ipv4Frame::raw(protocol).dst(group).ttl(ttl);
            router.expect_drop("a", &frame.clone().to(mac), DropReason::Multicast);
            router.expect_drop("a", &frame, DropReason::Multicast);
        }
    }
}

#[test]
fn mc_01_groups_without_a_multicast_route_are_not_forwarded() {
    let mut router = Scenario::with("[[route]]\nto = \"224.0.0.0/4\"\nvia = \"10.2.0.2\"\n");
    for group in ["224.0.1.1", "232.1.1.1", "239.255.255.255"] {
        let mac = MacAddr::from_ipv4_multicast(group.parse().unwrap());
        router.expect_drop("a", &Ipv4Frame::udp().dst(group).to(mac), DropReason::Multicast);
    }
}
