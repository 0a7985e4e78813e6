//! Packets held by plugins: they keep their order, continue at their stage, and are counted once.

use std::collections::BTreeMap;
use std::time::Duration;

use millrace_packet::DropReason;
use millrace_plugin::BindingId;
use millrace_plugin_abi::Message;
use millrace_tests::{Frame, Ipv4Frame, Ipv6Frame, STANDARD, Scenario};

fn delayed(gate: &str, ms: &str) -> Scenario {
    delayed_and(gate, ms, "")
}

/// Returns a router with a `delay` instance at a gate, and with `more` in its configuration.
fn delayed_and(gate: &str, ms: &str, more: &str) -> Scenario {
    Scenario::new(&format!(
        "[router]\nframes = 1024\n{STANDARD}\n\
         [[instance]]\nplugin = \"delay\"\nname = \"far\"\nsettings = {{ ms = {ms} }}\n\
         [[instance]]\nplugin = \"statistics\"\nname = \"seen\"\n\
         [[bind]]\ninstance = \"far\"\ngate = \"{gate}\"\nfilter = \"proto udp\"\n\
         [[bind]]\ninstance = \"seen\"\ngate = \"monitor\"\nfilter = \"*\"\n{more}"
    ))
}

fn milliseconds(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn seen(router: &mut Scenario) -> u64 {
    let message = Message { name: "read".into(), arguments: serde_json::Map::new() };
    let read = router.router.control("seen", &message).unwrap();
    read["packets"]["udp"].as_u64().unwrap_or(0)
}

#[test]
fn delayed_packets_resume_in_order_on_time_and_pass_later_gates() {
    for gate in ["security-in", "process", "schedule"] {
        let mut router = delayed(gate, "10");
        for port in [1, 2, 3] {
            router.send("a", &Ipv4Frame::udp().ports(port, 9));
            router.advance(milliseconds(1));
        }
        router.send("a", &Ipv6Frame::udp().ports(4, 9));
        assert_eq!(router.router.summary().held, 4, "{gate}");
        router.nothing();
        // Packets that the filter doesn't match don't wait.
        router.expect_forwarded("a", &Ipv4Frame::tcp(), "b");
        router.advance(milliseconds(6));
        router.nothing();
        router.advance(milliseconds(1));
        assert_eq!(router.only("b").ipv4().payload()[..2], 1u16.to_be_bytes(), "{gate}");
        router.advance(milliseconds(1));
        assert_eq!(router.only("b").ipv4().payload()[..2], 2u16.to_be_bytes());
        router.advance(milliseconds(2));
        assert_eq!(router.take("b").len(), 2);
        assert_eq!((router.router.summary().held, seen(&mut router)), (0, 4), "{gate}");
        router.check_conservation();
    }
}

#[test]
fn a_packet_that_waited_is_routed_as_routes_are_then() {
    let mut router = delayed("security-in", "10");
    router.send("a", &Ipv4Frame::udp());
    let route = toml::from_str("to = '10.9.0.0/17'\nkind = 'blackhole'\n").unwrap();
    router.router.add_route(&route).unwrap();
    router.advance(milliseconds(10));
    router.nothing();
    assert_eq!(router.dropped(DropReason::Blackhole), 1);
    router.check_conservation();
}

#[test]
fn packets_that_wait_leave_memory_for_the_others() {
    let mut router = delayed("process", "1000");
    for _ in 0..3000 {
        router.send("a", &Ipv4Frame::udp());
    }
    let (held, dropped) = (router.router.summary().held, router.dropped(DropReason::PluginBusy));
    assert_eq!(held + dropped, 3000);
    // Held packets may use half of the packet memory, and one instance at most half of that.
    assert_eq!((held, dropped), (256, 2744));
    router.expect_forwarded("a", &Ipv4Frame::tcp(), "b");
    router.advance(milliseconds(1000));
    assert_eq!(router.take("b").len() as u64, held);
    router.check_conservation();
}

#[test]
fn instance_at_its_holding_limit_leaves_room_to_another() {
    let other = "[[instance]]\nplugin = \"delay\"\nname = \"near\"\nsettings = { ms = 5 }\n\
                 [[bind]]\ninstance = \"near\"\ngate = \"process\"\nfilter = \"proto tcp\"\n";
    let mut router = delayed_and("process", "10000", other);
    for _ in 0..3000 {
        router.send("a", &Ipv4Frame::udp());
    }
    let before = router.dropped(DropReason::PluginBusy);
    for _ in 0..100 {
        router.send("a", &Ipv4Frame::tcp());
    }
    router.advance(milliseconds(5));
    assert_eq!((router.take("b").len(), router.dropped(DropReason::PluginBusy)), (100, before));
    router.check_conservation();
}

#[test]
fn held_packets_resume_in_order_when_their_instance_is_unbound() {
    let mut router = delayed("process", "1000");
    for port in 1..=3 {
        router.send("a", &Ipv4Frame::udp().ports(port, 9));
    }
    // The first binding of the configuration is that of the delay.
    router.router.remove_filter(BindingId(0)).unwrap();
    router.send("a", &Ipv4Frame::udp().ports(4, 9));
    let left = router.take("b");
    let ports: Vec<u8> = left.iter().map(|output| output.ipv4().payload()[1]).collect();
    assert_eq!(ports, [1, 2, 3, 4]);
    assert_eq!(router.router.summary().held, 0);
    router.check_conservation();
}

/// Returns a counter of `ack-monitor`.
fn acknowledgments(router: &mut Scenario, counter: &str) -> u64 {
    let message = Message { name: "read".into(), arguments: serde_json::Map::new() };
    router.router.control("acks", &message).unwrap()[counter].as_u64().unwrap()
}

/// Returns an acknowledgment of one of many flows, identical at each call.
fn acknowledgment(flow: u16) -> Ipv4Frame {
    Ipv4Frame::tcp().ports(1000 + flow, 80).payload(&[]).flags(0x10).acknowledged(1)
}

#[test]
fn flows_with_plugin_state_are_not_displaced_by_new_flows() {
    let mut router = Scenario::new(&format!(
        "[router]\nflows-max = 1024\n{STANDARD}\n\
         [[instance]]\nplugin = \"ack-monitor\"\nname = \"acks\"\n\
         [[bind]]\ninstance = \"acks\"\ngate = \"monitor\"\nfilter = \"proto tcp\"\n"
    ));
    let mut forwarded = 0;
    let mut send = |router: &mut Scenario, frame: Ipv4Frame| {
        router.send("a", &frame);
        forwarded += router.take("b").len() as u64;
    };
    let known = 900;
    for _ in 0..2 {
        (0..known).for_each(|flow| send(&mut router, acknowledgment(flow)));
    }
    // More new flows than the table has room for: with one packet and with three, with plugin state and
    // without.
    for port in 0..3000 {
        let strange = Ipv4Frame::udp().ports(10_000 + port, 9);
        let repeats = if port % 2 == 0 { 1 } else { 3 };
        (0..repeats).for_each(|_| send(&mut router, strange.clone()));
        send(&mut router, acknowledgment(10_000 + port));
    }
    assert_eq!(
        (acknowledgments(&mut router, "duplicates"), acknowledgments(&mut router, "fast")),
        (known.into(), 0)
    );
    // `ack-monitor` counts the third duplicate as `fast` only if it remembers the earlier ones.
    for _ in 0..2 {
        (0..known).for_each(|flow| send(&mut router, acknowledgment(flow)));
    }
    assert_eq!(acknowledgments(&mut router, "fast"), u64::from(known));
    assert_eq!(forwarded, 4 * u64::from(known) + 3000 + 6000, "new flows pass, remembered or not");
    router.check_conservation();
}

#[test]
fn instances_that_share_a_gate_hold_up_only_their_own_flows_and_keep_the_order_of_each() {
    let mut router = Scenario::new(&format!(
        "[router]\nframes = 1024\n{STANDARD}\n\
         [[instance]]\nplugin = \"delay\"\nname = \"near\"\nsettings = {{ ms = 5 }}\n\
         [[instance]]\nplugin = \"delay\"\nname = \"far\"\nsettings = {{ ms = 10 }}\n\
         [[instance]]\nplugin = \"spread\"\nname = \"both\"\nsettings = {{ to = \"near\", to2 = \"far\" }}\n\
         [[bind]]\ninstance = \"both\"\ngate = \"process\"\nfilter = \"proto udp\"\n"
    ));
    const FLOWS: u16 = 40;
    for packet in 0..3 {
        for flow in 0..FLOWS {
            router.router.inject("a", &Ipv4Frame::udp().ports(1000 + flow, 9).id(packet).bytes());
        }
    }
    router.router.run();
    // Advances the clock. Returns the identifications of the transmitted packets by flow.
    let mut leave = |millis| {
        router.advance(milliseconds(millis));
        let mut flows: BTreeMap<u16, Vec<u16>> = BTreeMap::new();
        for frame in router.router.take("b") {
            let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
            flows.entry(word(34)).or_default().push(word(18));
        }
        flows
    };
    let (near, far) = (leave(5), leave(5));
    assert_eq!(near.len() + far.len(), usize::from(FLOWS));
    assert!(near.len() > 5 && far.len() > 5, "{} and {}", near.len(), far.len());
    assert!(near.values().chain(far.values()).all(|packets| packets == &[0, 1, 2]), "{near:?} {far:?}");
    router.check_conservation();
}
