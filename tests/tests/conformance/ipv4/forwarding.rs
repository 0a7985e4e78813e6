//! FW: choice of the output port (RFC 1812, 5.2.4 and 5.3.12; RFC 2992; RFC 1122, 2.3.2.2).

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use millrace_packet::DropReason;
use millrace_testkit::Random;
use millrace_tests::{ArpFrame, Frame, Ipv4Frame, Ipv6Frame, Scenario, station};
use millrace_wire::MacAddr;

/// Returns the port out of which the router sends a packet to `destination`; `None` if it sends none.
fn way_out(router: &mut Scenario, destination: &str) -> Option<String> {
    router.send("a", &Ipv4Frame::udp().dst(destination));
    let sent = router.take_all();
    sent.into_iter().find(|(_, frames)| !frames[0].is_icmp_error()).map(|(port, _)| port)
}

#[test]
fn fw_01_the_longest_of_nested_prefixes_wins_whichever_are_there() {
    // Each prefix contains the next one. The last address is in all prefixes, each earlier address in one
    // prefix less.
    let prefixes = [
        "0.0.0.0/0",
        "198.0.0.0/8",
        "198.51.0.0/16",
        "198.51.100.0/24",
        "198.51.100.128/25",
        "198.51.100.129/32",
    ];
    let addresses =
        ["203.0.113.1", "198.1.0.1", "198.51.1.1", "198.51.100.1", "198.51.100.130", "198.51.100.129"];
    for present in 0..1u32 << prefixes.len() {
        let is_there = |index: usize| present >> index & 1 == 1;
        let via = |index: usize| ["10.2.0.2", "10.3.0.2"][index % 2];
        let routes: String = (0..prefixes.len())
            .filter(|index| is_there(*index))
            .map(|index| format!("[[route]]\nto = \"{}\"\nvia = \"{}\"\n", prefixes[index], via(index)))
            .collect();
        let mut router =
            Scenario::new(&format!("[router]\nframes = 1024\n{}{routes}", millrace_tests::STANDARD));
        for (depth, address) in addresses.iter().enumerate() {
            let longest = (0..=depth).rev().find(|index| is_there(*index));
            let expected = longest.map(|index| ["b", "c"][index % 2].to_owned());
            assert_eq!(way_out(&mut router, address), expected, "{address} with routes {present:06b}");
        }
    }
}

#[test]
fn fw_01_random_prefixes_are_matched_as_by_a_linear_search() {
    let mut random = Random::new(1);
    let mut prefixes: HashMap<(u32, u8), &str> = HashMap::new();
    for _ in 0..400 {
        let length = 8 + random.below(25) as u8;
        // Addresses are close together, so that prefixes nest.
        let address = (198 << 24 | random.bits() as u32 & 0x0003_0f0f) >> (32 - length) << (32 - length);
        prefixes.insert((address, length), if random.below(2) == 0 { "b" } else { "c" });
    }
    let routes: String = prefixes
        .iter()
        .map(|((address, length), port)| {
            let via = if *port == "b" { "10.2.0.2" } else { "10.3.0.2" };
            format!("[[route]]\nto = \"{}/{length}\"\nvia = \"{via}\"\n", Ipv4Addr::from_bits(*address))
        })
        .collect();
    let mut router = Scenario::with(&routes);
    for _ in 0..5000 {
        let address = 198 << 24 | random.bits() as u32 & 0x0007_1f1f;
        let matches =
            prefixes.iter().filter(|((prefix, length), _)| (address ^ prefix) >> (32 - length) == 0);
        let expected = matches.max_by_key(|((_, length), _)| *length).map(|(_, port)| (*port).to_owned());
        let destination = Ipv4Addr::from_bits(address).to_string();
        assert_eq!(way_out(&mut router, &destination), expected, "{destination}");
    }
}

const FOUR_WAYS: &str = r#"
[[neighbour]]
port = "b"
address = "10.2.0.3"
mac = "02:00:00:00:00:b3"

[[neighbour]]
port = "c"
address = "10.3.0.3"
mac = "02:00:00:00:00:c3"

[[route]]
to = "198.51.100.0/24"
via = ["10.2.0.2", "10.2.0.3", "10.3.0.2", "10.3.0.3"]
"#;

/// Returns the destination MAC address of each of 10,000 flows.
fn flows(router: &mut Scenario) -> Vec<MacAddr> {
    (0u16..10_000)
        .map(|flow| {
            let frame =
                Ipv4Frame::udp().dst(&format!("198.51.100.{}", flow % 250)).ports(1024 + flow / 250, 53);
            router.send("a", &frame);
            let sent: Vec<_> = router.take_all().into_values().flatten().collect();
            assert_eq!(sent.len(), 1, "flow {flow}");
            sent[0].to()
        })
        .collect()
}

fn shares(stations: &[MacAddr]) -> HashMap<MacAddr, usize> {
    let mut shares = HashMap::new();
    stations.iter().for_each(|station| *shares.entry(*station).or_default() += 1);
    shares
}

#[test]
fn fw_02_flows_share_four_next_hops_evenly_and_stay() {
    let mut router = Scenario::with(FOUR_WAYS);
    let first = flows(&mut router);
    let shares = shares(&first);
    assert_eq!(shares.len(), 4);
    assert!(shares.values().all(|count| (2200..=2800).contains(count)), "{shares:?}");
    assert_eq!(flows(&mut router), first, "the same flow takes the same way");
}

#[test]
fn fw_02_only_the_flows_of_a_lost_next_hop_move() {
    let before = flows(&mut Scenario::with(FOUR_WAYS));
    let after = flows(&mut Scenario::with(&FOUR_WAYS.replace(", \"10.3.0.3\"]", "]")));
    for (old, new) in before.iter().zip(&after) {
        assert!(old == new || *old == station(0xc3), "{old} became {new}");
    }
    let moved: Vec<MacAddr> =
        before.iter().zip(&after).filter(|(old, _)| **old == station(0xc3)).map(|(_, new)| *new).collect();
    assert!(shares(&moved).values().all(|count| *count > moved.len() / 4), "{:?}", shares(&moved));
}

#[test]
fn fw_03_flows_of_a_down_link_take_another_next_hop_and_return() {
    let mut router = Scenario::with(FOUR_WAYS);
    let before = flows(&mut router);
    router.router.set_up("c", false);
    let without = flows(&mut router);
    for (old, new) in before.iter().zip(&without) {
        assert!([station(0xb2), station(0xb3)].contains(new));
        assert!(old == new || [station(0xc2), station(0xc3)].contains(old));
    }
    router.router.set_up("c", true);
    router.take_all();
    assert_eq!(flows(&mut router), before);
}

#[test]
fn fw_03_without_another_next_hop_the_source_gets_an_icmp_error() {
    let mut router = Scenario::standard();
    router.router.set_up("b", false);
    router.take_all();
    router.expect_error4("a", &Ipv4Frame::udp(), (3, 1), DropReason::PortDown);
    router.expect_error6("a", &Ipv6Frame::udp(), (1, 3), DropReason::PortDown);
    router.router.set_up("b", true);
    router.take_all();
    router.expect_forwarded("a", &Ipv4Frame::udp(), "b");
}

#[test]
fn fw_03_neighbour_is_resolved_again_when_its_link_returns() {
    let mut router = Scenario::standard();
    let frame = Ipv4Frame::udp().dst("10.2.0.77");
    let reply = |mac| ArpFrame::reply("10.2.0.77", "10.2.0.1").to(station(0x0b)).sender(mac);
    router.send("a", &frame);
    router.send("b", &reply(station(0x77)));
    assert_eq!(router.take("b")[1].to(), station(0x77));
    router.router.set_up("b", false);
    router.router.set_up("b", true);
    router.take_all();
    router.send("a", &frame);
    assert_eq!(router.only("b").arp().target_ip, Ipv4Addr::from([10, 2, 0, 77]));
    router.send("b", &reply(station(0x78)));
    assert_eq!(router.only("b").to(), station(0x78));
}

#[test]
fn fw_04_a_burst_to_an_unresolved_neighbour_is_delivered_after_its_answer() {
    let mut router = Scenario::standard();
    for id in 0..5 {
        router.router.inject("a", &Ipv4Frame::udp().dst("10.2.0.77").id(id).bytes());
    }
    router.router.run();
    assert_eq!(router.only("b").ether_type(), 0x0806);
    assert_eq!(router.router.summary().held, 5);
    router.send("b", &ArpFrame::reply("10.2.0.77", "10.2.0.1").to(station(0x0b)).sender(station(0x77)));
    let sent = router.take("b");
    let ids: Vec<u16> = sent.iter().map(|output| output.ipv4().identification()).collect();
    assert_eq!(ids, [0, 1, 2, 3, 4], "all of them, in order");
    assert!(sent.iter().all(|output| output.to() == station(0x77) && output.ipv4().ttl() == 63));
}

#[test]
fn fw_04_of_a_long_burst_the_last_packets_are_kept() {
    let mut router = Scenario::standard();
    for id in 0..500 {
        router.send("a", &Ipv4Frame::udp().dst("10.2.0.77").id(id));
    }
    router.take("b");
    router.send("b", &ArpFrame::reply("10.2.0.77", "10.2.0.1").to(station(0x0b)).sender(station(0x77)));
    let ids: Vec<u16> = router.take("b").iter().map(|output| output.ipv4().identification()).collect();
    // Linux holds 277 small packets for each unresolved neighbour.
    assert!((277..=360).contains(&ids.len()), "{} packets were kept", ids.len());
    let first = 500 - ids.len() as u16;
    assert_eq!(ids, (first..500).collect::<Vec<_>>());
    assert_eq!(router.dropped(DropReason::NeighbourQueueFull), u64::from(first));
}

#[test]
fn fw_04_memory_for_packets_that_wait_is_bounded() {
    let mut router = Scenario::with_line("\"10.2.0.1/24\"", "\"10.2.0.1/16\"");
    for neighbour in 0..10_000u32 {
        let destination = format!("10.2.{}.{}", 1 + neighbour / 250, 1 + neighbour % 250);
        router.router.inject("a", &Ipv4Frame::udp().dst(&destination).bytes());
        if neighbour % 100 == 0 {
            router.advance(Duration::from_millis(20));
        }
    }
    router.router.run();
    let held = router.router.summary().held;
    assert!((1..=1024).contains(&held), "{held} packets wait");
    router.take_all();
    router.expect_forwarded("a", &Ipv4Frame::udp(), "b");
    // In the end the router holds no packet.
    router.advance(Duration::from_secs(30));
    assert_eq!(router.router.summary().held, 0);
}

#[test]
fn fw_05_a_forwarded_frame_goes_from_its_port_to_the_next_hop_with_its_payload_intact() {
    let mut router = Scenario::standard();
    for length in [28, 46, 47, 100, 1500] {
        // The harness checks addresses and every byte.
        router.expect_forwarded("a", &Ipv4Frame::udp().length(length), "b");
        router.expect_forwarded("a", &Ipv4Frame::udp().dst("10.3.0.2").length(length), "c");
    }
    let back = Ipv4Frame::udp().src("10.9.0.1").dst("10.1.0.2").to(station(0x0b)).from(station(0xb2));
    router.expect_forwarded("b", &back, "a");
}

#[test]
fn fw_05_a_frame_to_another_station_is_not_forwarded() {
    let mut router = Scenario::standard();
    for to in [station(0x0b), station(0xa3), MacAddr::ZERO] {
        router.expect_drop("a", &Ipv4Frame::udp().to(to), DropReason::LinkNotOurs);
        router.expect_drop("a", &Ipv6Frame::udp().to(to), DropReason::LinkNotOurs);
    }
}
