//! Filters added while the router runs.

use millrace_packet::DropReason;
use millrace_tests::{Ipv4Frame, Ipv6Frame, Scenario};
use millrace_wire::MacAddr;

fn filter(text: &str) -> millrace_config::Filter {
    toml::from_str(text).unwrap()
}

#[test]
fn same_match_and_action_is_added_with_several_priorities() {
    let mut router = Scenario::standard();
    let drop_udp = |priority: i32| {
        filter(&format!("match = 'proto udp'\naction = 'drop'\ngate = 'firewall'\npriority = {priority}\n"))
    };
    let (low, high) =
        (router.router.add_filter(&drop_udp(1)).unwrap(), router.router.add_filter(&drop_udp(9)).unwrap());
    let accept = "match = 'proto udp'\naction = 'accept'\ngate = 'firewall'\npriority = 5\n";
    router.router.add_filter(&filter(accept)).unwrap();
    let twice = router.router.add_filter(&drop_udp(9)).unwrap_err().to_string();
    assert!(twice.contains("already bound"), "{twice}");
    router.expect_drop("a", &Ipv4Frame::udp(), DropReason::Filter);
    router.router.remove_filter(high).unwrap();
    router.expect_forwarded("a", &Ipv4Frame::udp(), "b");
    // A removed filter may be added again.
    let high = router.router.add_filter(&drop_udp(9)).unwrap();
    router.expect_drop("a", &Ipv4Frame::udp(), DropReason::Filter);
    for id in [low, high] {
        router.router.remove_filter(id).unwrap();
    }
    router.expect_forwarded("a", &Ipv4Frame::udp(), "b");
}

#[test]
fn filter_may_name_a_multicast_destination() {
    let mut router = Scenario::standard();
    for (group, action) in [("239.1.1.0/24", "ports b,c"), ("ff05::/16", "drop")] {
        let text = format!("match = 'dst {group}'\naction = '{action}'\n");
        router.router.add_filter(&filter(&text)).unwrap();
    }
    // The filter may be added. Multicast packets meet no gate, whatever the frame's MAC address.
    let group = MacAddr::from_ipv4_multicast("239.1.1.1".parse().unwrap());
    for frame in [Ipv4Frame::udp().dst("239.1.1.1"), Ipv4Frame::udp().dst("239.1.1.1").to(group)] {
        router.expect_drop("a", &frame, DropReason::Multicast);
    }
    let group = MacAddr::from_ipv6_multicast("ff05::7".parse().unwrap());
    for frame in [Ipv6Frame::udp().dst("ff05::7"), Ipv6Frame::udp().dst("ff05::7").to(group)] {
        router.expect_drop("a", &frame, DropReason::Multicast);
    }
    router.nothing();
}
