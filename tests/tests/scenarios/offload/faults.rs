//! Offloaded flows beside faults: flapping links, a changing MTU, floods of exceptional packets.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use millrace_testkit::{Flow, FlowReport, Ground, Line, Millrace, Namespace, wait_until};

use crate::offload::filters::line;
use crate::ports::links::flap;
use crate::support::{router, to};

/// Returns a line with a third host at a third port, and a router with all three ports.
fn three() -> (Line, Namespace, Millrace) {
    let line = line();
    let third = Namespace::new("h3");
    line.connect(&third, "eth0", 3, 1500);
    third.run("ethtool -K eth0 gro on");
    third.ip("route add default via 10.3.0.1");
    let router = Millrace::start(&line.r, "--port r1 --port r2 --port r3");
    line.h1.run("ping -c 2 -i 0.2 10.2.0.2");
    line.h1.run("ping -c 2 -i 0.2 10.3.0.2");
    (line, third, router)
}

/// Starts a flow and waits until it is offloaded.
fn down(line: &Line, router: &Millrace) -> Flow {
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64);
    flow.wait_for_arrival();
    let is_down = || router.json(&["flow", "list", "proto udp dport 9000"])["flows"][0]["level"] == "offload";
    assert!(wait_until(Duration::from_secs(3), is_down).is_some(), "{:#}", router.json(&["place", "list"]));
    flow
}

fn assert_untouched(report: &FlowReport) {
    assert_eq!((report.lost(), report.reordered, report.duplicated), (0, 0, 0), "{report:?}");
}

#[test]
fn flapping_link_costs_an_offloaded_flow_beside_it_no_packet() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let (line, third, mut router) = three();
    let flow = down(&line, &router);
    flap(&third, "eth0", Duration::from_secs(5));
    third.ip("route replace default via 10.3.0.1");
    let again = wait_until(Duration::from_secs(3), || line.h1.succeeds("ping -c 1 -W 0.2 10.3.0.2"));
    assert!(again.is_some(), "{:#}", router.json(&["show", "ports"]));
    assert_untouched(&flow.finish());
    assert!(router.is_running());
    router.assert_conservation();
}

#[test]
fn egress_mtu_change_applies_to_offloaded_flows_at_once() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = line();
    let router = router(&line);
    line.h1.run("ping -c 2 -i 0.2 10.2.0.2");
    let flow = down(&line, &router);
    // The flow consists of long packets.
    line.h1.run("ping -c 20 -i 0.02 -M do -s 1400 10.2.0.2");
    for mtu in [1280, 1500, 1400, 1300] {
        line.r.ip(&format!("link set r2 mtu {mtu}"));
        let followed = wait_until(Duration::from_secs(3), || router.row("ports", "name", "r2")["mtu"] == mtu);
        assert!(followed.is_some(), "{:#}", router.row("ports", "name", "r2"));
        let too_big = router.drops("too_big");
        let long = mtu + 1 - 28;
        line.h1.run("ip route flush cache");
        assert!(!line.h1.succeeds(&format!("ping -c 3 -i 0.05 -W 0.3 -M do -s {long} 10.2.0.2")), "{mtu}");
        // At 1500 the host sends no longer packet, because its own link has that MTU. So the router drops
        // none.
        let refused = router.drops("too_big") - too_big;
        assert!(mtu == 1500 || refused > 0, "{mtu}: none was refused");
        line.h1.run(&format!("ping -c 5 -i 0.02 -W 1 -M do -s {} 10.2.0.2", long - 1));
    }
    assert_untouched(&flow.finish());
    router.assert_conservation();
}

/// Changes the MTU of the ingress device. A veth takes frames up to 4 bytes longer than its MTU.
#[test]
fn ingress_mtu_change_applies_to_offloaded_flows_at_once() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = line();
    let router = router(&line);
    line.h1.run("ping -c 2 -i 0.2 10.2.0.2");
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 1472);
    flow.wait_for_arrival();
    let offloaded = || router.row("ports", "name", "r1")["offloaded_packets"].as_u64().expect("a count");
    assert!(
        wait_until(Duration::from_secs(3), || offloaded() > 500).is_some(),
        "{offloaded:#?}",
        offloaded = offloaded()
    );
    line.r.ip("link set r1 mtu 1499");
    let followed = wait_until(Duration::from_secs(3), || router.row("ports", "name", "r1")["mtu"] == 1499);
    assert!(followed.is_some(), "{:#}", router.row("ports", "name", "r1"));
    let (before, arrived, refused) = (offloaded(), flow.received(), router.drops("link_oversize"));
    flow.go_on(Duration::from_millis(500));
    // Packets in flight to the receiver during the change may still arrive.
    assert!(
        offloaded() == before && flow.received() <= arrived + 64,
        "{} arrived",
        flow.received() - arrived
    );
    assert!(router.drops("link_oversize") > refused + 400);
    line.r.ip("link set r1 mtu 1500");
    let again = wait_until(Duration::from_secs(3), || offloaded() > before + 500);
    assert!(again.is_some(), "{:#}", router.json(&["place", "list"]));
    flow.finish();
    router.assert_conservation();
}

/// Gives the far end of a veth a smaller MTU. If the XDP program redirected a packet too long for that end,
/// the veth would also drop redirected frames after it.
#[test]
fn far_end_with_a_smaller_mtu_gets_single_packets_and_loses_only_longer_ones() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = line();
    let router = router(&line);
    let why = || router.json(&["show", "hardware"])["ports"][1]["why_no_redirects"].clone();
    line.h2.ip("link set eth0 mtu 1300");
    let told = wait_until(Duration::from_secs(3), || why().as_str().is_some_and(|why| why.contains("1304")));
    assert!(told.is_some(), "{}", why());
    line.h1.run("ping -c 2 -i 0.2 10.2.0.2");
    let device_drops = || router.row("ports", "name", "r2")["device_drops"].as_u64().expect("a count");
    let before = device_drops();
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 5000, 64);
    flow.wait_for_arrival();
    assert!(!line.h1.succeeds("ping -c 100 -i 0.01 -W 0.3 -M do -s 1472 10.2.0.2"));
    assert_untouched(&flow.finish());
    assert_eq!(device_drops() - before, 100, "those that were too long are what the device counts");
    assert_eq!(router.row("ports", "name", "r1")["offloaded_packets"], 0);
    router.assert_conservation();
    line.h2.ip("link set eth0 mtu 1500");
    assert!(wait_until(Duration::from_secs(3), || why().is_null()).is_some(), "{}", why());
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64);
    let offloaded = || router.row("ports", "name", "r1")["offloaded_packets"].as_u64() > Some(100);
    assert!(wait_until(Duration::from_secs(3), offloaded).is_some(), "{:#}", router.json(&["place", "list"]));
    assert_untouched(&flow.finish());
}

#[test]
fn flood_of_exceptional_packets_costs_offloaded_flows_no_packet() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let (line, third, router) = three();
    let flow = down(&line, &router);
    let flood = |destination: &'static str, ttl: u32| {
        let socket = third.within(|| UdpSocket::bind("0.0.0.0:0")).expect("a socket");
        socket.set_ttl(ttl).expect("a TTL");
        std::thread::spawn(move || {
            let end = Instant::now() + Duration::from_secs(3);
            let mut sent = 0_u64;
            while Instant::now() < end && sent < 400_000 {
                // A datagram that the kernel refuses doesn't count as sent.
                sent += u64::from(socket.send_to(&[0; 18], destination).is_ok());
                if sent.is_multiple_of(64) {
                    std::thread::yield_now();
                }
            }
            sent
        })
    };
    let floods = [flood("10.3.0.1:179", 64), flood("10.2.0.2:7", 1)];
    let sent: u64 = floods.into_iter().map(|flood| flood.join().expect("a flood that ends")).sum();
    assert!(sent > 10_000, "{sent} packets are no flood");
    assert_untouched(&flow.finish());
    assert!(router.drops("ttl_expired") > 0);
    router.assert_conservation();
}
