//! Gates of the position `queue`: copies, and packets held for neighbour resolution, meet these gates like
//! all packets.

use std::time::Duration;

use millrace_tests::{ArpFrame, Ipv4Frame, STANDARD, Scenario, station};

const VOICE: u16 = 5060;

/// Returns a router whose port `port` has the leaves `voice`, with priority, and `rest`. A filter at `gate`
/// sends voice packets to `voice`.
fn router(port: &str, gate: &str, more: &str) -> Scenario {
    let scheduler = r#"scheduler = { rate = "1mbit", default = "rest", node = [
    { name = "top", kind = "priority" },
    { name = "voice", kind = "fifo", under = "top", level = 0 },
    { name = "rest", kind = "fifo", under = "top", level = 1 } ] }
"#;
    let name = format!("name = \"{port}\"\n");
    let standard = STANDARD.replacen(&name, &format!("{name}{scheduler}"), 1);
    let filter = format!(
        "[[filter]]\nmatch = \"proto udp dport {VOICE}\"\naction = \"queue voice\"\ngate = \"{gate}\"\n"
    );
    Scenario::new(&format!("{standard}{filter}{more}"))
}

/// Returns, for each voice packet in order, its position among all transmitted packets and its source port.
fn voices(router: &mut Scenario, port: &str) -> Vec<(usize, u16)> {
    let outputs = router.take(port).into_iter().enumerate();
    let udp = outputs.filter(|(_, output)| output.ether_type() == 0x0800);
    let ports = udp.map(|(place, output)| {
        let payload = output.ipv4().payload().to_vec();
        let word = |at: usize| u16::from_be_bytes([payload[at], payload[at + 1]]);
        (place, word(0), word(2))
    });
    ports.filter(|(.., to)| *to == VOICE).map(|(place, from, _)| (place, from)).collect()
}

#[test]
fn packet_held_for_its_neighbour_keeps_its_queue_and_its_order() {
    for gate in ["firewall", "schedule"] {
        let mut router = router("b", gate, "");
        let voice = |number: u16| Ipv4Frame::udp().dst("10.2.0.77").ports(1000 + number, VOICE);
        router.send("a", &voice(0));
        assert_eq!(router.take("b").len(), 1, "the request alone");
        // Other packets keep the link busy meanwhile.
        (0..30).for_each(|_| router.send("a", &Ipv4Frame::udp().ports(9, 53).length(1400)));
        router.send("b", &ArpFrame::reply("10.2.0.77", "10.2.0.1").to(station(0x0b)));
        (1..40).for_each(|number| router.send("a", &voice(number)));
        router.advance(Duration::from_secs(5));
        let left = voices(&mut router, "b");
        let order: Vec<u16> = left.iter().map(|(_, from)| from - 1000).collect();
        assert_eq!(order, (0..40).collect::<Vec<_>>(), "{gate}");
        router.check_conservation();
    }
}

#[test]
fn copies_wait_in_the_queues_of_filters_at_queue_gates() {
    for gate in ["firewall", "schedule"] {
        for copies in ["copy-to c via 10.3.0.2", "ports b via 10.2.0.2, c via 10.3.0.2"] {
            let more = format!("[[filter]]\nmatch = \"*\"\naction = \"{copies}\"\n");
            let mut router = router("c", gate, &more);
            (0..30).for_each(|_| router.send("a", &Ipv4Frame::udp().ports(9, 53).length(1400)));
            (0..10).for_each(|number| router.send("a", &Ipv4Frame::udp().ports(1000 + number, VOICE)));
            router.advance(Duration::from_secs(5));
            let left = voices(&mut router, "c");
            assert_eq!(left.len(), 10, "{gate} {copies}");
            assert!(left.iter().all(|(place, _)| *place < 15), "{gate} {copies}: {left:?}");
            router.check_conservation();
        }
    }
}

#[test]
fn instance_at_a_gate_of_queue_keeps_a_packet_whose_neighbour_is_not_known() {
    let delay = "[[instance]]\nplugin = \"delay\"\nname = \"far\"\nsettings = { ms = 10 }\n\
                 [[bind]]\ninstance = \"far\"\ngate = \"schedule\"\nfilter = \"proto udp\"\n";
    let mut router = Scenario::with(delay);
    router.send("a", &Ipv4Frame::udp().dst("10.2.0.77"));
    router.advance(Duration::from_millis(10));
    let request = router.only("b");
    assert_eq!(request.ether_type(), 0x0806);
    router.send("b", &ArpFrame::reply("10.2.0.77", "10.2.0.1").to(station(0x0b)));
    assert_eq!(router.only("b").ipv4().ttl(), 63);
    assert_eq!(router.router.summary().held, 0);
    router.check_conservation();
}

#[test]
fn copy_held_for_its_neighbour_keeps_its_queue_and_its_order() {
    for gate in ["firewall", "schedule"] {
        let more = "[[filter]]\nmatch = \"*\"\naction = \"copy-to c via 10.3.0.77\"\n";
        let mut router = router("c", gate, more);
        let voice = |number: u16| Ipv4Frame::udp().ports(1000 + number, VOICE);
        router.send("a", &voice(0));
        let (packet, asked) = (router.take("b"), router.take("c"));
        assert_eq!((packet.len(), packet[0].to()), (1, station(0xb2)), "the packet itself waits for nobody");
        assert_eq!((asked.len(), asked[0].ether_type()), (1, 0x0806), "the request alone");
        // Other packets keep the link busy meanwhile. They take a route out of c, and their copies wait for
        // the same neighbour as the voice copies.
        (0..30).for_each(|_| router.send("a", &Ipv4Frame::udp().dst("10.3.0.2").ports(9, 53).length(1400)));
        router.send("c", &ArpFrame::reply("10.3.0.77", "10.3.0.1").to(station(0x0c)));
        (1..40).for_each(|number| router.send("a", &voice(number)));
        router.advance(Duration::from_secs(5));
        let left = voices(&mut router, "c");
        let order: Vec<u16> = left.iter().map(|(_, from)| from - 1000).collect();
        assert_eq!(order, (0..40).collect::<Vec<_>>(), "{gate}");
        // Voice packets leave before the packets in the other queue.
        assert!(left.iter().all(|(place, _)| *place < 50), "{gate}: {left:?}");
        assert_eq!(router.take("b").len(), 39);
        router.check_conservation();
    }
}

#[test]
fn copies_meet_instances_at_gates_of_queue() {
    let more = "[[instance]]\nplugin = \"delay\"\nname = \"far\"\nsettings = { ms = 10 }\n\
                [[bind]]\ninstance = \"far\"\ngate = \"schedule\"\nfilter = \"proto udp\"\n\
                [[filter]]\nmatch = \"*\"\naction = \"copy-to c via 10.3.0.2\"\n";
    let mut router = Scenario::with(more);
    router.send("a", &Ipv4Frame::udp());
    router.nothing();
    router.advance(Duration::from_millis(10));
    let (packet, copy) = (router.take("b"), router.take("c"));
    assert_eq!((packet.len(), copy.len()), (1, 1));
    assert_eq!((packet[0].to(), copy[0].to()), (station(0xb2), station(0xc2)));
    assert_eq!(packet[0].network(), copy[0].network());
    router.check_conservation();
}
