//! Mirror of the kernel: the router follows changes made with `ip` at once.

use std::time::{Duration, Instant};

use millrace_testkit::{Flow, Ground, Line, Millrace, Namespace, eventually, run_to_end, wait_until};
use serde_json::Value;

use crate::forwarding::packet_traces::traced;
use crate::support::reference::LONGEST_GAP;
use crate::support::{router, to};

/// Maximum median time until the router uses a new route.
const SOON: Duration = Duration::from_millis(50);
/// Time limit for any change, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(2);

/// Returns the route to exactly `prefix`, if the router has one.
fn route(router: &Millrace, prefix: &str) -> Option<Value> {
    let routes = router.json(&["show", "routes"]);
    routes.as_array().unwrap().iter().find(|route| route["to"] == prefix).cloned()
}

/// Gives `h2` another address, which only a route reaches.
fn address_behind(line: &Line) {
    line.h2.ip("address add 10.9.0.1/32 dev lo\naddress add fd00:9::1/128 dev lo nodad");
}

#[test]
fn routes_of_the_kernel_are_followed() {
    let Some(_ground) = Ground::enter(&["ping"]) else { return };
    let line = Line::new();
    address_behind(&line);
    let router = router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    line.h1.run("ping -c 1 fd00:2::2");
    let refused = line.h1.try_run("ping -c 1 -W 1 10.9.0.1");
    assert!(String::from_utf8_lossy(&refused.stdout).contains("Net Unreachable"), "{refused:?}");

    line.r.ip("route add 10.9.0.0/16 via 10.2.0.2\nroute add fd00:9::/48 via fd00:2::2");
    eventually("the routes are there", PATIENCE, || route(&router, "fd00:9::/48"));
    line.h1.run("ping -c 1 -W 1 10.9.0.1");
    line.h1.run("ping -c 1 -W 1 fd00:9::1");

    for (kind, said) in [
        ("unreachable", "Destination Host Unreachable"),
        ("prohibit", "Packet filtered"),
        ("blackhole", "100% packet loss"),
    ] {
        line.r.ip(&format!("route add {kind} 10.9.0.0/24"));
        eventually(kind, PATIENCE, || route(&router, "10.9.0.0/24").filter(|route| route["kind"] == kind));
        let answer = line.h1.try_run("ping -c 1 -W 1 10.9.0.1");
        assert!(String::from_utf8_lossy(&answer.stdout).contains(said), "{kind}: {answer:?}");
        line.r.ip(&format!("route del {kind} 10.9.0.0/24"));
    }
    eventually("the route is gone", PATIENCE, || route(&router, "10.9.0.0/24").is_none().then_some(()));
    line.h1.run("ping -c 1 -W 1 10.9.0.1");
    assert_eq!(router.drops("blackhole"), 1);
    router.assert_conservation();
}

#[test]
fn next_hop_objects_share_the_flows_and_follow_their_changes() {
    let Some(_ground) = Ground::enter(&["ping"]) else { return };
    let line = Line::new();
    address_behind(&line);
    let second = Namespace::new("h3");
    line.connect(&second, "eth0", 3, 1500);
    second.ip("address add 10.9.0.1/32 dev lo\nroute add default via 10.3.0.1");
    line.r.ip("nexthop add id 1 via 10.2.0.2 dev r2
               nexthop add id 2 via 10.3.0.2 dev r3
               nexthop add id 10 group 1/2
               route add 10.9.0.0/24 nhid 10");
    let router = Millrace::start(&line.r, "--port r1 --port r2 --port r3");
    let route = || route(&router, "10.9.0.0/24").unwrap_or_default();
    assert_eq!(route()["next_hops"].as_array().map(Vec::len), Some(2), "{:#}", route());

    // The pings resolve both neighbours, because the test sends more packets than may wait for a neighbour.
    line.r.run("ping -c 1 10.2.0.2 && ping -c 1 10.3.0.2");
    // With forty flows, the probability that all take the same path is 2 in 2^40.
    let socket = line.h1.within(|| std::net::UdpSocket::bind("10.1.0.2:0")).unwrap();
    for port in 9000..9040 {
        socket.send_to(b"flow", ("10.9.0.1", port)).unwrap();
    }
    let sent = |port: &str| router.row("ports", "name", port)["tx_packets"].as_u64().unwrap();
    eventually("all flows are sent", PATIENCE, || (sent("r2") + sent("r3") >= 40).then_some(()));
    assert!(sent("r2") > 5 && sent("r3") > 5, "r2 {}, r3 {}", sent("r2"), sent("r3"));

    line.r.ip("nexthop replace id 10 group 2");
    eventually("the group has changed", PATIENCE, || {
        (route()["next_hops"].as_array().map(Vec::len) == Some(1)).then_some(())
    });
    let before = sent("r2");
    line.h1.run("ping -c 2 -i 0.2 -W 1 10.9.0.1");
    assert_eq!(route()["next_hops"][0]["port"], "r3");
    assert!(sent("r2") <= before + 1, "the echo requests leave by r3");
    router.assert_conservation();
}

#[test]
fn traffic_moves_to_another_route_when_a_link_is_down_and_returns() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    address_behind(&line);
    line.connect(&line.h2, "eth1", 3, 1500);
    line.h2.sysctl("ipv4/conf/all/rp_filter", "0");
    line.r.ip("route add 10.9.0.0/24 via 10.2.0.2 metric 10\nroute add 10.9.0.0/24 via 10.3.0.2 metric 20");
    let router = Millrace::start(&line.r, "--port r1 --port r2 --port r3");
    line.h1.run("ping -c 2 -i 0.2 10.9.0.1");
    line.h1.run("ping -c 2 -i 0.2 10.3.0.2");
    let flow = Flow::start(&line.h1, &line.h2, to("10.9.0.1:9000"), 1000, 64);
    flow.go_on(Duration::from_millis(500));
    line.r.ip("link set r2 down");
    flow.go_on(Duration::from_secs(1));
    let by = route(&router, "10.9.0.0/24").unwrap();
    assert_eq!(by["next_hops"][0]["port"], "r3", "{by:#}");
    let report = flow.finish();
    println!("a reroute: {report:?}");
    assert!(report.total_loss <= LONGEST_GAP && report.longest_delay <= LONGEST_GAP, "{report:?}");
    assert_eq!((report.reordered, report.duplicated), (0, 0), "{report:?}");

    line.r.ip("link set r2 up\nroute add 10.9.0.0/24 via 10.2.0.2 metric 10");
    let took = wait_until(PATIENCE, || {
        route(&router, "10.9.0.0/24").is_some_and(|route| route["next_hops"][0]["port"] == "r2")
    });
    assert!(took.is_some_and(|took| took < Duration::from_secs(1)), "{took:?}");
    line.h1.run("ping -c 2 -i 0.2 -W 1 10.9.0.1");
    line.h1.run("ping -c 2 -i 0.2 -W 1 10.2.0.2");
    router.assert_conservation();
}

#[test]
fn a_new_route_is_used_within_50_milliseconds() {
    let Some(_ground) = Ground::enter_alone(&[]) else { return };
    let line = Line::new();
    address_behind(&line);
    let router = router(&line);
    let flow = Flow::start(&line.h1, &line.h2, to("10.9.0.1:9000"), 1000, 64);
    flow.go_on(Duration::from_millis(200));
    assert_eq!(flow.received(), 0);
    let mut times = Vec::new();
    for _ in 0..5 {
        let before = flow.received();
        let start = Instant::now();
        line.r.ip("route add 10.9.0.0/24 via 10.2.0.2");
        let installed = start.elapsed();
        let took = wait_until(PATIENCE, || flow.received() > before).expect("the route is used");
        times.push(took.saturating_sub(installed / 2));
        line.r.ip("route del 10.9.0.0/24");
        flow.go_on(Duration::from_millis(200));
        let stopped = flow.received();
        flow.go_on(Duration::from_millis(100));
        assert_eq!(flow.received(), stopped, "a route that is gone is not used");
    }
    times.sort();
    assert!(times[2] <= SOON, "{times:?}");
    flow.finish();
    router.assert_conservation();
}

#[test]
fn the_routers_own_addresses_arp_and_neighbour_discovery_stay_with_the_kernel() {
    let Some(_ground) = Ground::enter(&["ping"]) else { return };
    let line = Line::new();
    let router = router(&line);
    for address in ["10.1.0.1", "10.2.0.1", "fd00:1::1", "fd00:2::1"] {
        line.h1.run(&format!("ping -c 1 -W 2 {address}"));
    }
    line.h1.ip("neigh flush dev eth0");
    line.h1.run("ping -c 1 -W 2 10.1.0.1");
    line.h1.run("ping -c 1 -W 2 fd00:1::1");
    line.r.ip("address add 10.1.0.9/24 dev r1");
    // The router learns the address a moment after the kernel.
    line.h1.run("ping -c 5 -i 0.2 -W 2 10.1.0.9");
    line.r.run("ping -c 1 -W 2 10.2.0.2");
    let port = router.row("ports", "name", "r1");
    assert!(port["to_host"].as_u64() > Some(4), "{port:#}");
    router.assert_conservation();
}

#[test]
fn traceroute_shows_the_router_by_its_address_towards_the_sender() {
    let Some(_ground) = Ground::enter(&["ping"]) else { return };
    let line = Line::new();
    let router = router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    line.h1.run("ping -c 1 fd00:2::2");
    let answer = line.h1.try_run("ping -c 1 -W 1 -t 1 10.2.0.2");
    let text = String::from_utf8_lossy(&answer.stdout);
    assert!(text.contains("From 10.1.0.1") && text.contains("Time to live exceeded"), "{text}");
    let answer = line.h1.try_run("ping -c 1 -W 1 -t 1 fd00:2::2");
    let text = String::from_utf8_lossy(&answer.stdout);
    assert!(text.contains("From fd00:1::1") && text.contains("Time exceeded"), "{text}");
    assert_eq!(router.drops("ttl_expired"), 2);
    router.assert_conservation();
}

#[test]
fn hosts_learn_a_smaller_mtu_behind_the_router_and_its_changes() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let set_mtu = |mtu: u32| {
        line.r.ip(&format!("link set r2 mtu {mtu}"));
        line.h2.ip(&format!("link set eth0 mtu {mtu}"));
    };
    set_mtu(1400);
    let router = router(&line);
    let answer = line.h1.try_run("ping -c 1 -W 1 -M do -s 1372 10.2.0.2");
    assert!(answer.status.success(), "1,400 bytes fit: {answer:?}");
    let answer = line.h1.try_run("ping -c 2 -i 0.2 -W 1 -M do -s 1373 10.2.0.2");
    let text =
        String::from_utf8_lossy(&answer.stdout).into_owned() + &String::from_utf8_lossy(&answer.stderr);
    assert!(text.contains("mtu = 1400") || text.contains("mtu=1400"), "{text}");
    let answer = line.h1.try_run("ping -c 2 -i 0.2 -W 1 -M do -s 1360 fd00:2::2");
    let text =
        String::from_utf8_lossy(&answer.stdout).into_owned() + &String::from_utf8_lossy(&answer.stderr);
    assert!(
        text.to_lowercase().contains("mtu: 1400") || text.contains("mtu=1400") || text.contains("mtu = 1400"),
        "{text}"
    );
    // An IPv4 packet without DF is fragmented, and the reply returns.
    line.h1.run("ip route flush cache");
    line.h1.run("ping -c 2 -i 0.2 -W 1 -M dont -s 1450 10.2.0.2");
    crate::support::assert_hosts_talk(&line);

    set_mtu(1300);
    line.h1.run("ip route flush cache");
    eventually("the MTU is followed", PATIENCE, || {
        (router.row("ports", "name", "r2")["mtu"] == 1300).then_some(())
    });
    let answer = line.h1.try_run("ping -c 2 -i 0.2 -W 1 -M do -s 1300 10.2.0.2");
    let text =
        String::from_utf8_lossy(&answer.stdout).into_owned() + &String::from_utf8_lossy(&answer.stderr);
    assert!(text.contains("mtu = 1300") || text.contains("mtu=1300"), "{text}");
    line.h1.run("ip route flush cache");
    set_mtu(1500);
    eventually("the MTU is back", PATIENCE, || {
        (router.row("ports", "name", "r2")["mtu"] == 1500).then_some(())
    });
    line.h1.run("ping -c 1 -W 1 -M do -s 1472 10.2.0.2");
    router.assert_conservation();
}

#[test]
fn an_mtu_change_under_load_loses_no_small_packet_and_lets_no_large_one_out() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let router = router(&line);
    // The ping resolves the neighbour, because only a few packets are held during resolution.
    line.h1.run("ping -c 1 10.2.0.2");
    let small = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64);
    small.go_on(Duration::from_millis(300));
    for mtu in [1400, 1280, 1500] {
        line.r.ip(&format!("link set r2 mtu {mtu}"));
        small.go_on(Duration::from_millis(300));
        line.h1.run("ip route flush cache");
        let fits = line.h1.succeeds(&format!("ping -c 1 -W 1 -M do -s {} 10.2.0.2", mtu - 28));
        assert!(fits, "{mtu} bytes fit");
        if mtu < 1500 {
            let too_big = line.h1.succeeds(&format!("ping -c 1 -W 1 -M do -s {} 10.2.0.2", mtu - 27));
            assert!(!too_big, "{} bytes don't fit", mtu + 1);
        }
    }
    let report = small.finish();
    assert_eq!((report.lost(), report.reordered, report.duplicated), (0, 0, 0), "{report:?}");
    router.assert_conservation();
}

#[test]
fn a_neighbour_that_does_not_answer_is_reported_as_an_unreachable_host() {
    let Some(_ground) = Ground::enter(&["ping"]) else { return };
    let line = Line::new();
    line.r.sysctl("ipv4/neigh/r2/retrans_time_ms", "100");
    line.r.sysctl("ipv6/neigh/r2/retrans_time_ms", "100");
    let router = router(&line);
    for (address, said) in
        [("10.2.0.77", "Destination Host Unreachable"), ("fd00:2::77", "Address unreachable")]
    {
        let answer = line.h1.try_run(&format!("ping -c 1 -W 3 {address}"));
        assert!(String::from_utf8_lossy(&answer.stdout).contains(said), "{answer:?}");
    }
    assert!(router.drops("neighbour_failed") >= 2, "{:#}", router.json(&["show", "drops"]));
    // The router resolves the neighbour again later.
    line.h2.ip("address add 10.2.0.77/24 dev eth0");
    let answers = wait_until(Duration::from_secs(5), || line.h1.succeeds("ping -c 1 -W 1 10.2.0.77"));
    assert!(answers.is_some(), "{:#}", router.json(&["show", "neighbours"]));
    router.assert_conservation();
}

#[test]
fn a_neighbour_in_use_is_never_forgotten() {
    let Some(_ground) = Ground::enter_alone(&[]) else { return };
    let line = Line::new();
    // These settings make the kernel do the neighbour maintenance of an hour within seconds.
    for key in ["base_reachable_time_ms", "gc_stale_time", "delay_first_probe_time"] {
        let value = if key == "base_reachable_time_ms" { "1000" } else { "1" };
        line.r.sysctl(&format!("ipv4/neigh/r2/{key}"), value);
    }
    let router = router(&line);
    let report = crate::support::flow_for(&line, 500, Duration::from_secs(10));
    assert_eq!(report.lost(), 0, "{report:?}\n{:#}", router.json(&["show", "drops"]));
    router.assert_conservation();
}

#[test]
fn a_neighbour_whose_mac_address_changes_is_followed() {
    let Some(_ground) = Ground::enter(&["ping"]) else { return };
    let line = Line::new();
    let router = router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    line.h2.run("ip link set eth0 down; ip link set eth0 address 02:00:00:00:77:01; ip link set eth0 up; ip route replace default via 10.2.0.1");
    line.h2.run("ping -c 1 -W 2 10.2.0.1");
    let answers = wait_until(Duration::from_secs(3), || line.h1.succeeds("ping -c 1 -W 1 10.2.0.2"));
    assert!(answers.is_some(), "{:#}", router.json(&["show", "neighbours"]));
    assert_eq!(router.row("neighbours", "address", "10.2.0.2")["mac"], "02:00:00:00:77:01");
    router.assert_conservation();
}

#[test]
fn packets_for_a_device_that_is_no_port_are_punted_to_the_kernel() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let other = Namespace::new("h3");
    line.connect(&other, "eth0", 3, 1500);
    other.ip("route add default via 10.3.0.1\nroute add default via fd00:3::1");
    let router = router(&line);
    line.h1.run("ping -c 2 -i 0.2 -W 2 10.3.0.2");
    line.h1.run("ping -c 2 -i 0.2 -W 2 fd00:3::2");
    millrace_testkit::transfer(&line.h1, &other, to("10.3.0.2:7000"), 1 << 20);
    let kind = route(&router, "10.3.0.0/24").map(|route| route["kind"].clone());
    assert_eq!(kind, Some("kernel".into()));
    assert!(router.summary("to_host") >= 4);
    router.assert_conservation();
}

/// Returns the output of `doctor` for the device r1 beside a running router.
fn doctor(line: &Line, router: &Millrace) -> String {
    run_to_end(&line.r, &["--socket", &router.socket().display().to_string(), "doctor", "r1"]).stdout
}

#[test]
fn router_forwards_with_kernel_forwarding_off_and_logs_the_effect() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    line.r.sysctl("ipv4/ip_forward", "0");
    line.r.sysctl("ipv6/conf/all/forwarding", "0");
    let mut router = router(&line);
    crate::support::assert_hosts_talk(&line);
    crate::support::assert_router_forwards(&line, &router);
    for name in ["IPv4", "IPv6"] {
        let told =
            format!("the kernel does not forward {name} in this network namespace; the router does, so");
        assert!(router.log().contains(&told), "{}", router.log());
    }
    let ignored = "; the router does, so forwarding stops when the router ends or dies, also with on-death = \"kernel\"";
    let doctor = doctor(&line, &router);
    assert!(doctor.contains(ignored) && !doctor.contains("unless [router]"), "{doctor}");
    router.assert_conservation();
    assert!(router.end_by(nix::sys::signal::Signal::SIGTERM).success());
    let doctor = run_to_end(&line.r, &["doctor", "r1"]).stdout;
    assert!(
        doctor.contains("Millrace does (unless [router] forwarding = \"kernel\"), so forwarding stops"),
        "{doctor}"
    );
    assert!(!line.h1.succeeds("ping -c 1 -W 1 10.2.0.2"), "the kernel does not forward");
}

#[test]
fn forwarding_off_at_one_device_drops_its_packets_with_a_warning() {
    let Some(_ground) = Ground::enter(&["ping"]) else { return };
    let line = Line::new();
    line.r.sysctl("ipv4/conf/r1/forwarding", "0");
    let router = router(&line);
    assert!(!line.h1.succeeds("ping -c 2 -i 0.2 -W 1 10.2.0.2"), "forwarded");
    assert!(router.drops("forwarding_off") >= 2, "{:#}", router.json(&["show", "drops"]));
    let question = "src 10.1.0.2 dst 10.2.0.2 proto udp sport 1 dport 2 in r1";
    let answer = router.ask(&["lookup", question]);
    assert!(answer.contains("forwarding_off: IPv4 forwarding is off at port r1"), "{answer}");
    let doctor = doctor(&line, &router);
    let advice = "sysctl -w net.ipv4.conf.r1.forwarding=1: forwarding of IPv4 is off at r1 alone, so neither";
    assert!(doctor.contains(advice), "{doctor}");
    let journey = traced(&line, &router, &["--filter", "proto icmp in r1 dst 10.2.0.2", "--count", "1"]);
    assert!(journey.contains("forwarding_off"), "{journey}");
    assert!(
        router.log().contains("packets received at this port are dropped as forwarding_off"),
        "{}",
        router.log()
    );
    line.h1.run("ping -c 1 -W 2 10.1.0.1");
    line.h1.run("ping -c 1 -W 2 fd00:2::2");
    line.r.sysctl("ipv4/conf/r1/forwarding", "1");
    let on = wait_until(PATIENCE, || line.h1.succeeds("ping -c 1 -W 0.3 10.2.0.2"));
    assert!(on.is_some(), "not forwarded again");
    router.assert_conservation();
}

#[test]
fn forwarding_kernel_follows_the_switches_of_the_namespace() {
    let Some(_ground) = Ground::enter(&["ping"]) else { return };
    let line = Line::new();
    let config = "[router]\nforwarding = \"kernel\"\n[[port]]\nname = \"r1\"\ndevice = \"r1\"\n\
                  [[port]]\nname = \"r2\"\ndevice = \"r2\"\n";
    let file = line.write("router.toml", config);
    let router = Millrace::start(&line.r, &format!("--config {}", file.display()));
    line.h1.run("ping -c 1 -W 2 10.2.0.2");
    line.r.sysctl("ipv4/ip_forward", "0");
    let off = wait_until(PATIENCE, || !line.h1.succeeds("ping -c 1 -W 0.3 10.2.0.2"));
    assert!(off.is_some(), "still forwarded");
    assert!(!line.h1.succeeds("ping -c 2 -i 0.2 -W 1 10.2.0.2"), "forwarded now and then");
    let doctor = doctor(&line, &router);
    assert!(
        doctor.contains("the router follows the kernel ([router] forwarding = \"kernel\"), so it drops"),
        "{doctor}"
    );
    line.h1.run("ping -c 1 -W 2 fd00:2::2");
    line.r.sysctl("ipv4/ip_forward", "1");
    let on = wait_until(PATIENCE, || line.h1.succeeds("ping -c 1 -W 0.3 10.2.0.2"));
    assert!(on.is_some(), "not forwarded again");
    router.assert_conservation();
}
