//! Filters that are added while the router runs.

use millrace_packet::DropReason;
use millrace_tests::{Ipv4Frame, Scenario};

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
    // It may come again.
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
}
