//! Traffic control at run time: filters with actions, the router's own routes, and the list of flows.

use std::time::Duration;

use millrace_testkit::{Flow, FlowReport, Ground, Line, Millrace, Namespace, RawSocket, eventually};
use serde_json::Value;

use crate::support::{router, to};

const PATIENCE: Duration = Duration::from_secs(2);
/// Time within which a change takes effect on a flow.
pub const MOMENT: Duration = Duration::from_millis(300);

/// Adds a filter. Returns its id in the form that `filter remove` takes.
pub fn add(router: &Millrace, filter: &str, action: &str, more: &[&str]) -> String {
    let added = router.json(&[&["filter", "add", filter, "--action", action], more].concat());
    added["id"].to_string()
}

/// Returns the entry of a filter in `filter list`.
fn listed(router: &Millrace, id: &str) -> Value {
    let filters = router.json(&["filter", "list"]);
    let id: u64 = id.parse().unwrap();
    let found = filters.as_array().unwrap().iter().find(|filter| filter["id"] == id);
    found.cloned().unwrap_or_else(|| panic!("no filter {id} in {filters:#}"))
}

/// Resolves all neighbours, because only a few packets may wait for an unresolved neighbour.
pub fn meet(line: &Line) {
    line.h1.run("ping -c 1 10.2.0.2");
    line.r.run("ping -c 1 10.1.0.2 && ping -c 1 10.2.0.2");
}

/// Checks that a flow lost no packet and that no packet arrived twice.
pub fn assert_undisturbed(report: &FlowReport, router: &Millrace) {
    let drops = router.json(&["show", "drops"]);
    assert_eq!((report.lost(), report.duplicated), (0, 0), "{report:?} {drops:#}");
}

/// Returns the number of packets of a flow that arrive within a moment.
pub fn arrivals(flow: &Flow) -> u64 {
    // Packets in flight arrive first.
    flow.go_on(Duration::from_millis(50));
    let before = flow.received();
    flow.go_on(MOMENT);
    flow.received() - before
}

/// Returns a third host behind the router, with the address 10.3.0.2, and a router with three ports.
fn with_third_host(line: &Line) -> (Namespace, Millrace) {
    let third = Namespace::new("h3");
    line.connect(&third, "eth0", 3, 1500);
    third.ip("route add default via 10.3.0.1");
    let router = Millrace::start(&line.r, "--port r1 --port r2 --port r3");
    (third, router)
}

#[test]
fn a_drop_filter_stops_one_flow_at_once_and_no_other() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let router = router(&line);
    meet(&line);
    let meant = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9005"), 500, 64);
    let other = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9011"), 500, 64);
    meant.wait_for_arrival();
    for gate in ["route", "firewall"] {
        let id = add(&router, "proto udp dport 9005", "drop", &["--gate", gate]);
        assert_eq!(arrivals(&meant), 0, "gate {gate}");
        assert!(arrivals(&other) > 100);
        let filter = listed(&router, &id);
        assert!(filter["packets"].as_u64() > Some(100) && filter["gate"] == gate, "{filter:#}");
        router.ask(&["filter", "remove", &id]);
        assert!(arrivals(&meant) > 100, "gate {gate}: the flow goes on without the filter");
    }
    let (meant, other) = (meant.finish(), other.finish());
    assert_undisturbed(&other, &router);
    assert_eq!(router.drops("filter"), meant.lost(), "{meant:?}");
    router.assert_conservation();
}

#[test]
fn accept_filter_is_an_exception_at_its_gate_only() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let router = router(&line);
    meet(&line);
    let meant = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9005"), 500, 64);
    let other = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9011"), 500, 64);
    meant.wait_for_arrival();
    for gate in ["route", "firewall"] {
        let drop = add(&router, "in r1 proto udp", "drop", &["--gate", gate]);
        assert_eq!((arrivals(&meant), arrivals(&other)), (0, 0), "gate {gate}");
        let accept = add(&router, "proto udp dport 9005", "accept", &["--gate", gate, "--priority", "1"]);
        assert!(arrivals(&meant) > 100, "gate {gate}");
        assert_eq!(arrivals(&other), 0, "gate {gate}");
        assert!(listed(&router, &accept)["packets"].as_u64() > Some(100));
        let elsewhere = ["route", "firewall"].into_iter().find(|other| *other != gate).unwrap();
        let there = add(&router, "proto udp dport 9005", "drop", &["--gate", elsewhere]);
        assert_eq!(arrivals(&meant), 0, "what another gate drops is not saved by gate {gate}");
        router.ask(&["filter", "remove", &drop, &accept, &there]);
    }
    let lost = meant.finish().lost() + other.finish().lost();
    assert_eq!(router.drops("filter"), lost);
    router.assert_conservation();
}

#[test]
fn reject_filter_sends_administratively_prohibited() {
    let Some(_ground) = Ground::enter(&["ping"]) else { return };
    let line = Line::new();
    let router = router(&line);
    line.h1.run("ping -c 1 10.2.0.2 && ping -c 1 fd00:2::2");
    for gate in ["route", "firewall"] {
        let ids = [
            add(&router, "proto udp dport 9005", "reject", &["--gate", gate]),
            add(&router, "proto icmp src 10.1.0.2", "reject", &["--gate", gate]),
            add(&router, "proto ipv6-icmp src fd00:1::2", "reject", &["--gate", gate]),
        ];
        let wire = RawSocket::open(&line.h1, "eth0");
        let socket = line.h1.within(|| std::net::UdpSocket::bind("10.1.0.2:0")).unwrap();
        socket.send_to(b"?", "10.2.0.2:9005").unwrap();
        let is_error = |frame: &[u8]| frame[12..14] == [8, 0] && frame[14 + 9] == 1 && frame[14 + 20] == 3;
        let error = wire.receive(PATIENCE, is_error).expect("an ICMP error");
        assert_eq!((error[14 + 20], error[14 + 21]), (3, 13), "gate {gate}");
        let socket = line.h1.within(|| std::net::UdpSocket::bind("[fd00:1::2]:0")).unwrap();
        socket.send_to(b"?", "[fd00:2::2]:9005").unwrap();
        let is_error =
            |frame: &[u8]| frame[12..14] == [0x86, 0xdd] && frame[14 + 6] == 58 && frame[14 + 40] == 1;
        let error = wire.receive(PATIENCE, is_error).expect("an ICMPv6 error");
        assert_eq!((error[14 + 40], error[14 + 41]), (1, 1), "gate {gate}");
        for (address, said) in [("10.2.0.2", "Packet filtered"), ("fd00:2::2", "Administratively prohibited")]
        {
            let answer = line.h1.try_run(&format!("ping -c 1 -W 1 {address}"));
            assert!(String::from_utf8_lossy(&answer.stdout).contains(said), "gate {gate}: {answer:?}");
        }
        router.ask(&[&["filter", "remove"], &ids.each_ref().map(String::as_str)[..]].concat());
        line.h1.run("ping -c 1 -W 1 10.2.0.2 && ping -c 1 -W 1 fd00:2::2");
    }
    router.assert_conservation();
}

#[test]
fn port_filter_overrides_the_route_by_priority() {
    let Some(_ground) = Ground::enter_alone(&[]) else { return };
    let line = Line::new();
    let (third, router) = with_third_host(&line);
    for host in [&line.h2, &third] {
        host.ip("address add 10.9.0.1/32 dev lo");
    }
    line.r.ip("route add 10.9.0.0/16 via 10.2.0.2");
    let flow = Flow::start(&line.h1, &third, to("10.9.0.1:9100"), 500, 64);
    flow.go_on(MOMENT);
    assert_eq!(flow.received(), 0, "the route leads to the other host");
    let filter = "dst 10.9.0.0/16 proto udp dport 9100";
    let low = add(&router, filter, "port r3 via 10.3.0.2", &["--priority", "-1"]);
    assert_eq!(arrivals(&flow), 0, "all routes have priority 0");
    router.ask(&["filter", "remove", &low]);
    let id = add(&router, filter, "port r3 via 10.3.0.2", &[]);
    assert!(arrivals(&flow) > 100);
    let explained =
        router.ask(&["filter", "explain", "src 10.1.0.2 dst 10.9.0.1 proto udp sport 9 dport 9100 in r1"]);
    assert!(explained.contains("port r3 via 10.3.0.2") && explained.contains("chosen"), "{explained}");
    router.ask(&["filter", "remove", &id]);
    assert_eq!(arrivals(&flow), 0);
    flow.finish();
    router.assert_conservation();
}

#[test]
fn a_copy_goes_to_a_third_host_and_the_flow_is_undisturbed() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let (third, router) = with_third_host(&line);
    meet(&line);
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9200"), 500, 64);
    flow.wait_for_arrival();
    let wire = RawSocket::open(&third, "eth0");
    let id = add(&router, "proto udp dport 9200", "copy-to r3 via 10.3.0.2", &[]);
    assert_eq!(listed(&router, &id)["gate"], "tap");
    let is_copy = |frame: &[u8]| {
        frame.len() > 38
            && frame[12..14] == [8, 0]
            && frame[30..34] == [10, 2, 0, 2]
            && frame[36..38] == [0x23, 0xf0]
    };
    for number in 0..100 {
        assert!(wire.receive(PATIENCE, is_copy).is_some(), "copy {number}");
    }
    router.ask(&["filter", "remove", &id]);
    flow.go_on(Duration::from_millis(100));
    while wire.receive(Duration::ZERO, |_| true).is_some() {}
    flow.go_on(MOMENT);
    assert!(wire.receive(Duration::ZERO, is_copy).is_none(), "no more copies");
    let report = flow.finish();
    assert_undisturbed(&report, &router);
    let summary = router.json(&["show", "summary"]);
    assert!(summary["created_by"]["copy"].as_u64() >= Some(100), "{summary:#}");
    router.assert_conservation();
}

#[test]
fn own_routes_are_in_the_kernel_and_removed_with_the_router() {
    let Some(_ground) = Ground::enter(&["ping"]) else { return };
    let line = Line::new();
    line.h2.ip("address add 10.9.0.1/32 dev lo\naddress add fd00:9::1/128 dev lo nodad");
    let mut router = router(&line);
    for (prefix, via, address) in
        [("10.9.0.0/16", "10.2.0.2", "10.9.0.1"), ("fd00:9::/48", "fd00:2::2", "fd00:9::1")]
    {
        let added = router.json(&["route", "add", prefix, "via", via]);
        assert_eq!((&added["source"], &added["next_hops"][0]["port"]), (&"millrace".into(), &"r2".into()));
        // The next packet takes the route, without a wait.
        line.h1.run(&format!("ping -c 1 -W 1 {address}"));
        assert_eq!(router.json(&["route", "lookup", address])["to"], prefix);
        let family = if prefix.contains(':') { "-6" } else { "-4" };
        let kernel = || line.r.run(&format!("ip {family} route show {prefix} proto 213"));
        assert!(kernel().contains(via), "{}", kernel());
        router.ask(&["route", "remove", prefix]);
        assert_eq!(kernel(), "");
        router.try_ask(&["route", "lookup", address]).assert_refused(1, &["no route", address]);
        assert!(!line.h1.succeeds(&format!("ping -c 1 -W 1 {address}")));
    }
    router.ask(&["route", "add", "prohibit", "10.9.0.0/24"]);
    let answer = line.h1.try_run("ping -c 1 -W 1 10.9.0.1");
    assert!(String::from_utf8_lossy(&answer.stdout).contains("Packet filtered"), "{answer:?}");
    assert!(router.ask(&["route", "list"]).contains("10.9.0.0/24"));
    router.assert_conservation();
    assert!(router.end_by(nix::sys::signal::Signal::SIGTERM).success());
    assert_eq!(line.r.run("ip route show proto 213"), "");
}

#[test]
fn routes_of_other_protocols_are_kept_by_name() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    line.r
        .ip("route add 10.8.0.0/16 via 10.2.0.2 proto static\nroute add 10.7.0.0/16 via 10.2.0.2 proto bird");
    let router = router(&line);
    let before = line.r.run("ip route; ip -6 route");
    let refused = |words: &[&str], said: &[&str]| {
        router.try_ask(&[&["route"], words].concat()).assert_refused(1, said);
    };
    refused(&["remove", "10.8.0.0/16"], &["not configured here", "protocol static"]);
    refused(&["remove", "10.7.0.0/16"], &["not configured here", "protocol bird"]);
    refused(&["remove", "10.2.0.0/24"], &["not configured here", "protocol kernel"]);
    refused(&["remove", "10.6.0.0/16"], &["no configured route to 10.6.0.0/16"]);
    refused(&["add", "10.8.0.0/16", "via", "10.1.0.2"], &["10.8.0.0/16", "protocol static"]);
    refused(&["add", "10.9.0.1/16", "via", "10.2.0.2"], &["host bits", "10.9.0.0/16"]);
    refused(&["add", "10.9.0.0/16", "via", "192.0.2.1"], &["in no subnet of a port"]);
    refused(&["add", "10.9.0.0/16", "port", "r3"], &["r3"]);
    refused(&["add", "fd00:9::/48", "via", "10.2.0.2"], &["IPv6 next hops"]);
    assert_eq!(router.try_ask(&["route", "add", "10.9.0.0/16", "metric", "5"]).code, Some(2));
    assert_eq!(line.r.run("ip route; ip -6 route"), before);
    router.ask(&["route", "add", "10.9.0.0/16", "via", "10.2.0.2"]);
    refused(&["add", "10.9.0.0/16", "via", "10.1.0.2"], &["route to 10.9.0.0/16 exists already"]);
}

#[test]
fn wrong_filters_are_refused_whole() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    let router = router(&line);
    router.ask(&["instance", "create", "statistics", "stats1"]);
    let id = add(&router, "proto udp dport 9", "drop", &[]);
    let before = router.json(&["filter", "list"]);
    let cases: &[(&[&str], &[&str])] = &[
        (&["", "--action", "drop"], &["empty", "*"]),
        (&["src 10.0.0.1 dst fd00::1", "--action", "drop"], &["one family"]),
        (&["proto icmp dport 7", "--action", "drop"], &["no ports"]),
        (&["proto udp dport 90-80", "--action", "drop"], &["90-80"]),
        (&["src 10.1.2.3/8", "--action", "drop"], &["10.0.0.0/8", "10.1.2.3"]),
        (&["proto upd", "--action", "drop"], &["upd", "udp"]),
        (&["in r3", "--action", "drop"], &["r3"]),
        (&["proto udp", "--action", "dorp"], &["dorp", "drop"]),
        (&["proto udp", "--action", "lane 3"], &["lane", "copy-to"]),
        (&["proto udp", "--action", "port r3"], &["r3"]),
        (&["proto udp", "--action", "copy stats2"], &["stats2", "stats1"]),
        (&["proto udp", "--action", "instance stats1"], &["gate", "firewall"]),
        (&["proto udp", "--action", "drop", "--gate", "rout"], &["rout", "route"]),
        (&["proto udp", "--action", "drop", "--gate", "tap"], &["tap", "early, route, late"]),
        (&["proto udp dport 9", "--action", "drop"], &["already"]),
        (
            &["proto udp dport 9", "--action", "reject"],
            &["action drop", "dport 9", "priority 0", "another priority"],
        ),
        (&["proto udp", "--action", "port r2 via 10.1.0.9"], &["10.1.0.9", "\"r2\"", "10.2.0.0/24"]),
        (&["proto udp", "--action", "copy-to r2 via 10.1.0.9"], &["10.1.0.9", "\"r2\""]),
        (&["proto udp", "--action", "port r9 via 10.2.0.2"], &["r9"]),
    ];
    for (words, said) in cases {
        router.try_ask(&[&["filter", "add"], *words].concat()).assert_refused(1, said);
    }
    let lines = line
        .write("lines", "proto udp dport 7 action drop\nproto udp dport 7 action accept\n")
        .display()
        .to_string();
    router.try_ask(&["filter", "add", "--from", &lines]).assert_refused(1, &["1 line is wrong"]);
    router.try_ask(&["filter", "remove", &id, "77"]).assert_refused(1, &["77", "filter list"]);
    router.try_ask(&["filter", "list", "--gate", "rout"]).assert_refused(1, &["rout", "route"]);
    router.try_ask(&["filter", "explain", "dst 10.2.0.2"]).assert_refused(1, &["src"]);
    router.try_ask(&["flow", "list", "--filter", "proto upd"]).assert_refused(1, &["upd"]);
    router.try_ask(&["flow", "show", "src 192.0.2.9"]).assert_refused(1, &["no flow", "flow list"]);
    assert_eq!(router.json(&["filter", "list"]), before, "nothing has changed");
}

#[test]
fn the_id_of_a_removed_filter_is_no_other_filters() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    let router = router(&line);
    let (old, other) =
        (add(&router, "proto udp dport 9", "drop", &[]), add(&router, "proto udp dport 10", "drop", &[]));
    router.ask(&["filter", "remove", &old]);
    let new = add(&router, "proto udp dport 11", "drop", &[]);
    assert!(new != old && new != other, "{old}, {other}, {new}");
    // A client with an old listing can't remove another filter by mistake, because ids aren't reused. The
    // command removes all given filters or none.
    router.try_ask(&["filter", "remove", &other, &old]).assert_refused(1, &[&old, "filter list"]);
    assert_eq!(
        (&listed(&router, &new)["match"], router.json(&["filter", "list"]).as_array().map(Vec::len)),
        (&"proto udp dport 11".into(), Some(2))
    );
    router.ask(&["filter", "remove", &other, &new, &new]);
    assert_eq!(router.json(&["filter", "list"]).as_array().map(Vec::len), Some(0));
}

#[test]
fn flows_are_listed_by_traffic_and_flushed() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let router = router(&line);
    meet(&line);
    let fast = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9301"), 800, 64);
    let large = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9302"), 200, 1200);
    let id = add(&router, "proto udp dport 9302", "copy-to r2", &["--priority", "3"]);
    fast.go_on(Duration::from_millis(700));
    let first = |by: &str| {
        let flows =
            router.json(&["flow", "list", "--order", by, "--filter", "proto udp in r1", "--limit", "1"]);
        assert_eq!(flows["flows"].as_array().map(Vec::len), Some(1), "{flows:#}");
        (flows["flows"][0]["destination_port"].as_u64().unwrap(), flows)
    };
    assert_eq!(first("packets").0, 9301);
    assert_eq!(first("bytes").0, 9302);
    let (port, flows) = first("rate");
    let rate = flows["flows"][0]["packet_rate"].as_f64().unwrap();
    assert!(port == 9301 && (600.0..1000.0).contains(&rate), "{flows:#}");
    assert_eq!(flows["found"], 2, "{flows:#}");

    let shown = router.json(&["flow", "show", "proto udp dport 9302"]);
    assert!(shown[0]["bindings"][0].as_str().unwrap().contains("gate tap: copy-to r2"), "{shown:#}");
    assert!(shown[0]["route"].as_str().unwrap().contains("r2"), "{shown:#}");
    let again = router.json(&["flow", "show", shown[0]["flow"].as_str().unwrap()]);
    assert_eq!(again.as_array().map(Vec::len), Some(1), "{again:#}");

    let packets = |port: &str| {
        let shown = router.json(&["flow", "show", &format!("proto udp dport {port} in r1")]);
        shown[0]["packets"].as_u64().unwrap()
    };
    let before = packets("9301");
    let flushed = router.json(&["flow", "flush", "--filter", "proto udp dport 9301 in r1"]);
    assert_eq!(flushed["flushed"], 1, "{flushed:#}");
    assert!(packets("9301") < before && packets("9302") > 100);
    router.ask(&["filter", "remove", &id]);
    router.ask(&["flow", "list"]);
    let (fast, large) = (fast.finish(), large.finish());
    assert_undisturbed(&fast, &router);
    assert_eq!(large.lost(), 0, "{large:?} {:#}", router.json(&["show", "drops"]));
    router.assert_conservation();
}

#[test]
fn filters_and_checks_of_a_configuration_hold_from_the_start() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let config = "[router]\non-death = \"kernel\"\nroute-priority = 5\nflows-max = 4096\nflow-idle = \"2s\"\n\
        [[port]]\nname = \"r1\"\ndevice = \"r1\"\nreverse-path = \"strict\"\n\
        [[port]]\nname = \"r2\"\ndevice = \"r2\"\n\
        [[gate]]\nname = \"firewall\"\ntable = \"dag\"\n\
        [[filter]]\nmatch = \"proto udp dport 9005\"\naction = \"drop\"\ngate = \"firewall\"\n\
        [[filter]]\nmatch = \"proto udp dport 9006\"\naction = \"drop\"\npriority = 4\n\
        [[filter]]\nmatch = \"proto udp dport 9007\"\naction = \"drop\"\npriority = 5\n";
    let config = line.write("filters.toml", config).display().to_string();
    let router = Millrace::start(&line.r, &format!("--config {config}"));
    let received = |port: u16| {
        let flow = Flow::start(&line.h1, &line.h2, to(&format!("10.2.0.2:{port}")), 500, 64);
        flow.go_on(MOMENT);
        flow.finish().received
    };
    assert_eq!(received(9005), 0);
    assert!(received(9006) > 0, "a filter below the routes' priority loses against a route");
    assert_eq!(received(9007), 0);
    assert_eq!(router.json(&["filter", "list"]).as_array().map(Vec::len), Some(3));

    line.h1.ip("address add 10.77.0.1/32 dev lo");
    assert!(!line.h1.succeeds("ping -c 1 -W 1 -I 10.77.0.1 10.2.0.2"));
    assert_eq!(router.drops("reverse_path"), 1);
    line.h1.run("ping -c 1 -W 1 10.2.0.2");

    let known = || router.json(&["flow", "list"])["found"].as_u64().unwrap();
    eventually("idle flows are forgotten", Duration::from_secs(6), || (known() == 0).then_some(()));
    router.assert_conservation();
}
