//! Attacks with more flows than the flow table has room for. Established flows keep working.

use std::time::Duration;

use millrace_classify::{FlowAnswer, FlowTable, FlowTableConfig};
use millrace_packet::{DropReason, FlowKey};
use millrace_tests::{Frame, Ipv4Frame, STANDARD, Scenario, station};
use millrace_units::{Instant, PortId};

/// Number of established flows.
const ESTABLISHED: usize = 64;
/// Maximum number of flow records.
const MAXIMUM: u32 = 1024;

/// Returns a router with a small flow table that holds records of the established flows.
fn router() -> Scenario {
    let mut router = Scenario::with_settings(&format!("flows-max = {MAXIMUM}\nnew-flows = 32"));
    for _ in 0..2 {
        assert_eq!(send(&mut router, &established()), ESTABLISHED);
    }
    let flows = router.router.flows();
    assert_eq!((flows.records, flows.on_probation), (ESTABLISHED as u32, 0));
    router
}

/// Returns a packet of each established flow.
fn established() -> Vec<Vec<u8>> {
    (0..ESTABLISHED).map(|flow| Ipv4Frame::udp().ports(flow as u16, 1).bytes()).collect()
}

/// Returns the first packet of a new flow. Each number gives a different flow.
fn stranger(number: u32) -> Vec<u8> {
    let [_, high, middle, low] = number.to_be_bytes();
    let source = format!("10.1.0.{}", 2 + high);
    Ipv4Frame::udp().src(&source).ports(u16::from_be_bytes([middle, low]), 2).bytes()
}

/// Injects frames as fast as the router takes them. Returns the number of transmitted frames.
fn send(router: &mut Scenario, frames: &[Vec<u8>]) -> usize {
    frames.iter().for_each(|frame| router.router.inject("a", frame));
    router.router.run();
    router.take("b").len()
}

#[test]
fn fault_21_flood_of_new_flows_takes_no_records_from_known_flows() {
    const STRANGERS: u32 = 200_000;
    const AT_ONCE: u32 = 100;
    let mut router = router();
    let before = router.router.flows();
    for round in 0..STRANGERS / AT_ONCE {
        let mut frames: Vec<Vec<u8>> =
            (0..AT_ONCE).map(|number| stranger(round * AT_ONCE + number)).collect();
        if round % 10 == 0 {
            frames.extend(established());
        }
        assert_eq!(send(&mut router, &frames), frames.len(), "in round {round}");
        router.advance(Duration::from_millis(1));
        let flows = router.router.flows();
        assert!(flows.records <= MAXIMUM, "{flows:?}");
    }
    let flows = router.router.flows();
    assert_eq!((flows.maximum, flows.records), (MAXIMUM, MAXIMUM));
    // The router never classified an established flow again. Each new flow had a record as long as there was
    // room.
    assert_eq!(flows.packets.misses - before.packets.misses, u64::from(STRANGERS));
    assert_eq!(flows.table.inserted - before.table.inserted, u64::from(STRANGERS));
    assert_eq!(flows.table.recycled, 0, "{flows:?}");
    assert!(router.drops().is_empty());
}

/// Floods the router with new flows of two packets each. Such a flow leaves probation, so only recent use
/// protects established flows. To make room, the router recycles the least recently used record of a sample.
///
/// It recycles an established flow only if all records of the sample belong to established flows. They may,
/// because they took adjacent slots in an empty table. The flow's next record lies among attackers' records
/// and stays. So each established flow is classified again at most once.
#[test]
fn fault_21_new_flows_with_two_packets_take_no_packets_from_known_flows() {
    let mut router = router();
    let mut again = 0;
    for round in 0..2000 {
        // The second packet of each flow follows the first directly. Otherwise the router could recycle the
        // record in between.
        let twice = (0..100).map(|number| stranger(round * 50 + number / 2));
        assert_eq!(send(&mut router, &twice.collect::<Vec<_>>()), 100);
        let before = router.router.flows().packets;
        assert_eq!(send(&mut router, &established()), ESTABLISHED, "in round {round}");
        again += router.router.flows().packets.misses - before.misses;
        router.advance(Duration::from_millis(20));
    }
    let flows = router.router.flows();
    assert!(flows.records <= MAXIMUM, "{flows:?}");
    assert!(again <= ESTABLISHED as u64, "{again} packets of {ESTABLISHED} known flows: {flows:?}");
    assert!(router.drops().is_empty());
}

/// Sends packets of new and of established flows in overload. The router still forwards all packets of
/// established flows.
#[test]
fn fault_21_overload_drops_packets_of_new_flows_and_not_of_known_flows() {
    let mut router = router();
    let mut number = 0;
    for round in 0..20 {
        // Sixteen full batches of 256 packets, each with four packets of established flows.
        let known = established();
        let mut frames = Vec::new();
        for at in 0..16 * 256 {
            match at % 64 {
                0 => frames.push(known[at / 64].clone()),
                _ => {
                    number += 1;
                    frames.push(stranger(number));
                }
            }
        }
        let (before, dropped) = (router.router.flows().packets, router.dropped(DropReason::NewFlows));
        let sent = send(&mut router, &frames);
        let (after, dropped) =
            (router.router.flows().packets, router.dropped(DropReason::NewFlows) - dropped);
        assert_eq!(sent as u64 + dropped, 16 * 256);
        assert_eq!(after.hits - before.hits, ESTABLISHED as u64, "in round {round}");
        // In the first four batches of the test the router takes all new flows, then only 32 per batch.
        let taken = if round == 0 { 4 * 252 + 12 * 32 } else { 16 * 32 };
        assert_eq!(sent, taken + ESTABLISHED, "in round {round}");
    }
    assert_eq!(router.drops().keys().collect::<Vec<_>>(), ["new_flows"]);
    // After the overload the router takes every new flow.
    let frames: Vec<Vec<u8>> = (0..100).map(|more| stranger(number + 1 + more)).collect();
    assert_eq!(send(&mut router, &frames), 100);
}

/// Causes ICMP errors during overload. They come in partial batches, which must not count as the end of the
/// overload.
#[test]
fn fault_21_errors_about_new_flows_do_not_hide_the_overload() {
    let mut router =
        Scenario::with_settings(&format!("flows-max = {MAXIMUM}\nnew-flows = 32\nicmp-burst = 1000000"));
    // There is no route, so the router answers each packet that it takes with an error.
    let stranger = |port: u16| Ipv4Frame::udp().dst("198.51.100.1").ports(port, 2).bytes();
    for frame in (0..16 * 256).map(stranger) {
        router.router.inject("a", &frame);
    }
    router.router.run();
    let taken = 4 * 256 + 12 * 32;
    assert_eq!(router.take("a").len(), taken);
    assert_eq!(router.dropped(DropReason::NoRoute), taken as u64);
    assert_eq!(router.dropped(DropReason::NewFlows), 16 * 256 - taken as u64);
}

/// Chooses flows that share a slot in a table with one seed. An attacker who doesn't know a router's seed
/// can't make flows collide in its table.
#[test]
fn fault_22_flows_that_collide_in_one_router_do_not_in_another() {
    const FLOWS: usize = 2000;
    let hash = |seed| {
        let table =
            FlowTable::new(FlowTableConfig { maximum: 1, initial: 1, seed, ..FlowTableConfig::default() });
        let table = table.expect("there is memory");
        move |key: &FlowKey| table.hash(key)
    };
    let (known, unknown) = (hash(0), hash(0x6d69_6c6c));
    // The lower bits of the hash select the slot.
    let place = |hash: u64| (hash & 255) as usize;
    let key = |number: u32| {
        let [_, high, ports @ ..] = number.to_be_bytes();
        let ports = (u16::from_be_bytes(ports), 53);
        FlowKey::v4([10, 1, 0, high].into(), [10, 9, 0, 1].into(), 17, ports, PortId(0))
    };
    let colliding: Vec<FlowKey> = (0..).map(key).filter(|key| place(known(key)) == 0).take(FLOWS).collect();
    let mut places = [0; 256];
    colliding.iter().for_each(|key| places[place(unknown(key))] += 1);
    // A slot has eight flows on average. By the Poisson distribution, a slot with more than 30 has a
    // probability of 1 in 100 million.
    let most = places.iter().max();
    assert!(most < Some(&30), "{places:?}");
    // The table with another seed treats these flows like any others.
    let mut table = FlowTable::new(FlowTableConfig { seed: 0x6d69_6c6c, ..FlowTableConfig::default() })
        .expect("there is memory");
    for key in &colliding {
        table.insert(key, table.hash(key), 0, FlowAnswer::default(), Instant::ZERO).expect("there is room");
    }
    let counts = table.counts();
    assert_eq!((table.len() as usize, counts.recycled, counts.recycled_on_probation), (FLOWS, 0, 0));
}

#[test]
fn ports_are_served_by_their_weights_while_more_comes_than_can_be_taken() {
    let weighed = millrace_tests::STANDARD
        .replacen("kind = \"memory\"", "kind = \"memory\"\ninput-weight = 32", 1)
        .replace("name = \"c\"\nkind = \"memory\"", "name = \"c\"\nkind = \"memory\"\ninput-weight = 96");
    let mut router = Scenario::new(&weighed);
    for (port, source, mac) in [("a", 1, 0x0a), ("c", 3, 0x0c)] {
        let frame = Ipv4Frame::udp().to(station(mac)).src(&format!("10.{source}.0.2")).bytes();
        (0..960).for_each(|_| router.router.inject(port, &frame));
    }
    router.router.run();
    let sources: Vec<u8> = router.take("b").iter().map(|frame| frame.bytes[27]).collect();
    assert_eq!(sources.len(), 1920);
    // While both ports have packets, three of four come from the heavier port. The rest is from the other
    // port.
    let of_first = |part: &[u8]| part.iter().filter(|source| **source == 1).count();
    assert_eq!((of_first(&sources[..1280]), of_first(&sources[1280..])), (320, 640));
}

#[test]
fn weights_of_ports_change_while_packets_flow() {
    let mut router = Scenario::new(millrace_tests::STANDARD);
    let mut served = |[a, c]: [u16; 2]| {
        router.router.set_input_weight("a", a);
        router.router.set_input_weight("c", c);
        for (port, source, mac) in [("a", 1, 0x0a), ("c", 3, 0x0c)] {
            let frame = Ipv4Frame::udp().to(station(mac)).src(&format!("10.{source}.0.2")).bytes();
            (0..512).for_each(|_| router.router.inject(port, &frame));
        }
        router.router.run();
        let sources: Vec<u8> = router.take("b").iter().map(|frame| frame.bytes[27]).collect();
        assert_eq!(sources.len(), 1024);
        sources[..512].iter().filter(|source| **source == 1).count()
    };
    assert_eq!(
        [served([256, 256]), served([32, 96]), served([96, 32]), served([64, 64])],
        [256, 128, 384, 256]
    );
}

/// Number of flows with a reserved rate.
const RESERVED: u16 = 8;

/// Returns a packet of each reserved flow. The second such packet takes the flow off probation.
fn reserved() -> Vec<Vec<u8>> {
    (0..RESERVED).map(|flow| Ipv4Frame::udp().ports(7000 + flow, 1).bytes()).collect()
}

/// Returns the filter expression of a reserved flow.
fn reserved_flow(flow: u16) -> String {
    format!("src 10.1.0.2 dst 10.9.0.1 proto udp sport {} dport 1 in a", 7000 + flow)
}

/// Returns a router with a queue per flow at port b, and with flow records of the reserved flows.
fn router_with_queues(workers: usize) -> Scenario {
    let scheduler = "[port.scheduler]\nrate = \"10gbit\"\n\
         node = [{ name = \"flows\", kind = \"flow-queues\", rate = \"1gbit\" }]";
    let text = format!("[router]\nflows-max = {MAXIMUM}\nworkers = {workers}\n{STANDARD}");
    let port_b = text.find("name = \"b\"").expect("a port b");
    let end = port_b + text[port_b..].find("\n\n").expect("the end of the port");
    let mut router = Scenario::new(&format!("{}\n{scheduler}{}", &text[..end], &text[end..]));
    for _ in 0..2 {
        assert_eq!(sent_by_queues(&mut router, &reserved()), usize::from(RESERVED));
    }
    router
}

/// Injects frames, and gives the queues time to transmit. Returns the number of transmitted frames.
fn sent_by_queues(router: &mut Scenario, frames: &[Vec<u8>]) -> usize {
    frames.iter().for_each(|frame| router.router.inject("a", frame));
    router.advance(Duration::from_millis(1));
    router.take("b").len()
}

fn rate(rate: serde_json::Value) -> serde_json::Map<String, serde_json::Value> {
    serde_json::Map::from_iter([("rate".to_owned(), rate)])
}

fn reserve(router: &mut Scenario, to: serde_json::Value) {
    let changes = rate(to);
    for flow in 0..RESERVED {
        router.router.set_flow_queue("b", "flows", &reserved_flow(flow), &changes).unwrap();
    }
}

/// Sends twenty times as many new flows as the table holds, each with two packets, so that none stays on
/// probation. Returns the number of reserved flows that the router then classified again.
fn forgotten_in_a_flood(router: &mut Scenario) -> u64 {
    for round in 0..20 * MAXIMUM / 50 {
        let twice: Vec<Vec<u8>> = (0..100).map(|number| stranger(round * 50 + number / 2)).collect();
        sent_by_queues(router, &twice);
    }
    let before = router.router.flows();
    assert!(before.records <= before.maximum && before.table.recycled > 0, "{before:?}");
    sent_by_queues(router, &reserved());
    router.router.flows().packets.misses - before.packets.misses
}

#[test]
fn fault_21_no_flood_displaces_a_flow_during_its_reservation() {
    for workers in [1, 3] {
        let mut router = router_with_queues(workers);
        let all = u64::from(RESERVED);
        assert_eq!(forgotten_in_a_flood(&mut router), all, "without reservations, {workers} workers");
        reserve(&mut router, "1mbit".into());
        assert_eq!(forgotten_in_a_flood(&mut router), 0, "known before, {workers} workers");
        // A reservation made before the flow's first packets protects too. By then queues of the attackers'
        // flows are free again.
        router.advance(Duration::from_secs(2));
        router.router.set_flow_queue("b", "flows", &reserved_flow(RESERVED), &rate("1mbit".into())).unwrap();
        let later = Ipv4Frame::udp().ports(7000 + RESERVED, 1).bytes();
        sent_by_queues(&mut router, std::slice::from_ref(&later));
        assert_eq!(forgotten_in_a_flood(&mut router), 0);
        let misses = router.router.flows().packets.misses;
        sent_by_queues(&mut router, &[later]);
        assert_eq!(router.router.flows().packets.misses, misses, "known later, {workers} workers");
        reserve(&mut router, serde_json::Value::Null);
        assert_eq!(forgotten_in_a_flood(&mut router), all, "released, {workers} workers");
        router.check_conservation();
    }
}
