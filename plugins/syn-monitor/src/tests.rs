//! Tests of plugin `syn-monitor`.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use millrace_packet::Pool;
use millrace_plugin_abi::{FlowStates, LogLevel, Verdict};
use millrace_units::PortId;
use millrace_wire::tcp::Flags;
use proptest::prelude::*;

use super::*;

/// Bytes of a flow state block in front of the instance's part.
const HEADER: usize = 8;
const FLOWS: usize = 8;

fn instance(settings: Value) -> Result<Box<dyn Instance>, PluginError> {
    PLUGIN.create(settings.as_object().unwrap())
}

fn ask(instance: &mut dyn Instance, name: &str, arguments: Value) -> Reply {
    instance.control(&Message { name: name.to_owned(), arguments: arguments.as_object().unwrap().clone() })
}

fn read(instance: &mut dyn Instance) -> Value {
    ask(instance, "read", json!({})).unwrap()
}

fn number(said: &Value, name: &str) -> u64 {
    said[name].as_u64().unwrap()
}

/// Returns the key of a flow, 0 to 7. The destinations are 10.0.0.0 to 10.0.0.3, each of which has two flows.
fn key(flow: usize) -> FlowKey {
    let destination = Ipv4Addr::new(10, 0, 0, (flow / 2) as u8);
    FlowKey::v4(Ipv4Addr::new(192, 0, 2, 1), destination, 6, (4000 + flow as u16, 80), PortId(0))
}

/// Flow state blocks: flow N uses block N + 1.
struct Blocks(Vec<Vec<u8>>);

impl Blocks {
    fn new() -> Self {
        Self(vec![vec![0; HEADER + State::BYTES]; FLOWS])
    }
}

impl FlowStates for Blocks {
    fn block(&mut self, number: u32) -> Option<&mut [u8]> {
        Some(self.0.get_mut(number.checked_sub(1)? as usize)?)
    }
}

fn segment(pool: &Pool, flags: Flags) -> Packet {
    let mut bytes = [0; 60];
    // The TCP header begins at offset 34, and has five 32-bit words.
    (bytes[34 + 12], bytes[34 + 13]) = (0x50, flags.0);
    let mut packet = pool.packet_from(&bytes).unwrap();
    packet.set_network(14);
    packet.set_transport(34);
    packet
}

/// Sends a segment of a flow.
fn send(instance: &mut dyn Instance, blocks: &mut Blocks, flow: usize, flags: Flags) {
    let pool = Pool::new(1).unwrap();
    let mut verdicts = [Verdict::Pass];
    let (mut packets, keys, numbers) = ([segment(&pool, flags)], [key(flow)], [flow as u32 + 1]);
    let mut call = Packets::new(&mut packets, &keys, &[0], &mut verdicts).with_states(
        blocks,
        &numbers,
        HEADER,
        State::BYTES,
    );
    instance.process(&mut call, Instant::ZERO);
    assert_eq!(verdicts, [Verdict::Pass]);
}

/// Ends the router's record of a flow.
fn end(instance: &mut dyn Instance, blocks: &mut Blocks, flow: usize) {
    let state = &mut blocks.0[flow][HEADER..];
    instance.flow_ended(&FlowEnd { key: key(flow), packets: 1, bytes: 60 }, state);
    state.fill(0);
}

#[derive(Clone, Copy, Debug)]
enum Happens {
    Segment(usize, Flags),
    End(usize),
}

fn anything() -> impl Strategy<Value = Happens> {
    let flags = prop_oneof![
        4 => Just(Flags::SYN),
        3 => Just(Flags::ACK),
        1 => Just(Flags::SYN | Flags::ACK),
        1 => Just(Flags::RST),
        1 => Just(Flags::RST | Flags::ACK),
        1 => Just(Flags::FIN | Flags::ACK),
        1 => any::<u8>().prop_map(Flags),
    ];
    prop_oneof![
        6 => (0..FLOWS, flags).prop_map(|(flow, flags)| Happens::Segment(flow, flags)),
        1 => (0..FLOWS).prop_map(Happens::End),
    ]
}

/// Reference model: the flows with a half-open attempt, and the counters by name.
#[derive(Default)]
struct Slow {
    open: BTreeMap<usize, ()>,
    counters: BTreeMap<&'static str, u64>,
}

impl Slow {
    fn count(&mut self, name: &'static str) {
        *self.counters.entry(name).or_default() += 1;
    }

    fn take(&mut self, event: Happens) {
        match event {
            Happens::End(flow) if self.open.remove(&flow).is_some() => self.count("expired"),
            Happens::End(_) => {}
            Happens::Segment(flow, flags) => {
                let [syn, ack, rst] = [Flags::SYN, Flags::ACK, Flags::RST].map(|bit| flags.contains(bit));
                if rst {
                    if self.open.remove(&flow).is_some() {
                        self.count("aborted");
                    }
                } else if syn && ack {
                    self.count("syn_ack");
                } else if syn {
                    self.count("syn");
                    let begun = self.open.insert(flow, ()).is_none();
                    self.count(if begun { "attempts" } else { "repeated" });
                } else if ack && self.open.remove(&flow).is_some() {
                    self.count("completed");
                }
            }
        }
    }

    fn by_destination(&self) -> BTreeMap<String, u64> {
        let mut all = BTreeMap::new();
        for flow in self.open.keys() {
            *all.entry(key(*flow).destination().to_string()).or_default() += 1;
        }
        all
    }
}

fn top(said: &Value) -> BTreeMap<String, u64> {
    let entry = |one: &Value| (one["destination"].as_str().unwrap().to_owned(), number(one, "half_open"));
    said["top"].as_array().unwrap().iter().map(entry).collect()
}

proptest! {
    #[test]
    fn handshakes_equal_those_of_a_simple_model(
        events in prop::collection::vec(anything(), 0..120),
        places in 1..6_usize,
    ) {
        let (mut instance, mut blocks) = (instance(json!({ "destinations": places })).unwrap(), Blocks::new());
        let mut slow = Slow::default();
        for event in events {
            match event {
                Happens::Segment(flow, flags) => send(&mut *instance, &mut blocks, flow, flags),
                Happens::End(flow) => end(&mut *instance, &mut blocks, flow),
            }
            slow.take(event);
            let said = read(&mut *instance);
            for name in ["syn", "syn_ack", "attempts", "repeated", "completed", "aborted", "expired"] {
                prop_assert_eq!(number(&said, name), slow.counters.get(name).copied().unwrap_or(0), "{}", name);
            }
            prop_assert_eq!(number(&said, "half_open"), slow.open.len() as u64);
            let (found, expected) = (top(&said), slow.by_destination());
            prop_assert!(found.len() <= places);
            prop_assert!(found.iter().all(|(name, count)| count <= &expected[name]));
            let told: u64 = found.values().sum();
            prop_assert_eq!(told + number(&said, "half_open_elsewhere"), slow.open.len() as u64);
            if places >= FLOWS / 2 {
                prop_assert_eq!(found, expected);
            }
        }
    }

    #[test]
    fn any_bytes_are_parsed_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..60), transport in 0..70_usize) {
        let pool = Pool::new(1).unwrap();
        let mut packet = pool.packet_from(&bytes).unwrap();
        packet.set_transport(transport);
        flags(&key(0), &packet);
    }

    #[test]
    fn the_alarm_is_exact(attempts in 0..40_u64, threshold in 1..40_u64) {
        let mut instance = instance(json!({ "threshold": threshold, "interval-ms": 500 })).unwrap();
        let mut blocks = Blocks::new();
        instance.periodic(Instant::ZERO);
        for _ in 0..attempts {
            send(&mut *instance, &mut blocks, 0, Flags::SYN);
            // The attempt expires, and still counts against the threshold.
            end(&mut *instance, &mut blocks, 0);
        }
        instance.periodic(Instant::from_millis(500));
        prop_assert_eq!(read(&mut *instance)["alarm"].clone(), json!(attempts * 2 > threshold));
    }
}

#[test]
fn alarm_is_reported_once_when_raised_and_once_when_cleared() {
    let mut instance = instance(json!({ "threshold": 2 })).unwrap();
    let mut blocks = Blocks::new();
    assert!(instance.has_timers() && instance.has_output());
    assert_eq!(instance.next_call(), Some(Instant::ZERO));
    instance.periodic(Instant::from_millis(7));
    assert_eq!(instance.next_call(), Some(Instant::from_millis(1007)));
    for flow in [0, 1, 2, 3] {
        send(&mut *instance, &mut blocks, flow, Flags::SYN);
    }
    send(&mut *instance, &mut blocks, 3, Flags::ACK);
    instance.periodic(Instant::from_millis(1007));
    let warning = "alarm: 3 connection attempts a second stay half-open, threshold 2; 3 are half-open, of them 2 at \
                   10.0.0.0";
    assert_eq!(instance.take_output(), Some(Output::Log(LogLevel::Warning, warning.to_owned())));
    assert_eq!(instance.take_output(), None);
    let said = read(&mut *instance);
    assert_eq!((&said["alarm"], &said["alarms"]), (&json!(true), &json!(1)));
    assert_eq!((&said["syn_per_second"], &said["half_open_per_second"]), (&json!(4.0), &json!(3.0)));
    for flow in [4, 5, 6] {
        send(&mut *instance, &mut blocks, flow, Flags::SYN);
    }
    instance.periodic(Instant::from_millis(2007));
    assert_eq!((instance.take_output(), &read(&mut *instance)["alarms"]), (None, &json!(1)));
    for flow in 0..7 {
        send(&mut *instance, &mut blocks, flow, Flags::RST);
    }
    instance.periodic(Instant::from_millis(3007));
    let over = "the alarm is over; 0 are half-open".to_owned();
    assert_eq!(instance.take_output(), Some(Output::Log(LogLevel::Information, over)));
    assert_eq!(read(&mut *instance)["alarm"], false);
}

#[test]
fn without_a_threshold_there_is_no_alarm() {
    let (mut instance, mut blocks) = (instance(json!({ "threshold": 0 })).unwrap(), Blocks::new());
    instance.periodic(Instant::ZERO);
    send(&mut *instance, &mut blocks, 0, Flags::SYN);
    instance.periodic(Instant::from_nanos(1));
    assert_eq!((instance.take_output(), &read(&mut *instance)["alarm"]), (None, &json!(false)));
}

#[test]
fn destinations_are_counted_together_by_prefix() {
    let settings = Settings::new(json!({ "prefix": 24, "prefix6": 64 }).as_object().unwrap()).unwrap();
    let mut destinations = Destinations::new(&settings);
    let far = |address: &str| {
        let (here, there): (Ipv6Addr, Ipv6Addr) = (Ipv6Addr::LOCALHOST, address.parse().unwrap());
        FlowKey::v6(here, there, 6, (1, 2), PortId(0))
    };
    for key in [key(0), key(6), key(2), far("2001:db8::1"), far("2001:db8::9:1"), far("2001:db8:1::1")] {
        assert_eq!(destinations.add(&key), State::HalfOpen);
    }
    let expected = json!([
        { "destination": "10.0.0.0/24", "half_open": 3 },
        { "destination": "2001:db8::/64", "half_open": 2 },
        { "destination": "2001:db8:1::/64", "half_open": 1 },
    ]);
    assert_eq!(json!(destinations.read()), expected);
    let all = Settings::new(json!({ "prefix": 0, "prefix6": 0 }).as_object().unwrap()).unwrap();
    let mut destinations = Destinations::new(&all);
    destinations.add(&key(0));
    destinations.add(&key(7));
    assert_eq!(json!(destinations.read()), json!([{ "destination": "0.0.0.0/0", "half_open": 2 }]));
}

#[test]
fn only_tcp_that_can_be_read_counts() {
    let pool = Pool::new(4).unwrap();
    let mut packets = [(); 4].map(|()| segment(&pool, Flags::SYN));
    packets[1].exceptions = Exceptions::FRAGMENT;
    packets[2].exceptions = Exceptions::CUT;
    let mut keys = [key(0); 4];
    keys[3].protocol = 17;
    let mut verdicts = [Verdict::Pass; 4];
    let mut instance = instance(json!({})).unwrap();
    instance.process(&mut Packets::new(&mut packets, &keys, &[0, 1, 2, 3], &mut verdicts), Instant::ZERO);
    let said = read(&mut *instance);
    // The plugin doesn't follow a handshake without flow state.
    assert_eq!((&said["syn"], &said["unfollowed"], &said["attempts"]), (&json!(1), &json!(1), &json!(0)));
    assert_eq!((instance.flow_state(), verdicts), (1, [Verdict::Pass; 4]));
}

#[test]
fn reset_keeps_half_open_connections() {
    let (mut instance, mut blocks) = (instance(json!({})).unwrap(), Blocks::new());
    send(&mut *instance, &mut blocks, 0, Flags::SYN);
    let said = ask(&mut *instance, "reset", json!({})).unwrap();
    assert_eq!((&said["syn"], &said["attempts"], &said["half_open"]), (&json!(0), &json!(0), &json!(1)));
    send(&mut *instance, &mut blocks, 0, Flags::ACK);
    let said = read(&mut *instance);
    assert_eq!((&said["completed"], &said["half_open"], &said["top"]), (&json!(1), &json!(0), &json!([])));
}

#[test]
fn settings_change_and_an_interval_begins() {
    let mut instance = instance(json!({})).unwrap();
    instance.periodic(Instant::from_millis(50));
    let said = ask(&mut *instance, "set", json!({ "threshold": 5, "interval-ms": 100 })).unwrap();
    let expected =
        json!({ "threshold": 5, "interval-ms": 100, "prefix": 32, "prefix6": 128, "destinations": 256 });
    assert_eq!(said["settings"], expected);
    assert_eq!(instance.next_call(), Some(Instant::ZERO));
    instance.periodic(Instant::from_millis(60));
    assert_eq!(instance.next_call(), Some(Instant::from_millis(160)));
    let schema = PLUGIN.settings_schema().unwrap()["properties"].as_object().unwrap().clone();
    assert!(schema.keys().eq(expected.as_object().unwrap().keys()));
}

#[test]
fn wrong_settings_are_refused_and_change_nothing() {
    for (name, value, range) in [
        ("threshold", json!(1_000_000_001), "0 to 1000000000"),
        ("threshold", json!("many"), "0 to 1000000000"),
        ("interval-ms", json!(99), "100 to 60000"),
        ("interval-ms", json!(60_001), "100 to 60000"),
        ("prefix", json!(33), "0 to 32"),
        ("prefix", json!(-1), "0 to 32"),
        ("prefix6", json!(129), "0 to 128"),
        ("destinations", json!(0), "1 to 4096"),
        ("destinations", json!(1.5), "1 to 4096"),
    ] {
        let expected = format!("plugin syn-monitor: {name}: {value} is not a whole number from {range}");
        let settings = Value::Object(Map::from_iter([(name.to_owned(), value)]));
        assert_eq!(instance(settings).err().unwrap().to_string(), expected);
    }
    assert_eq!(PLUGIN.settings_schema().unwrap()["additionalProperties"], false);
    let mut instance = instance(json!({})).unwrap();
    let before = read(&mut *instance);
    for arguments in [
        json!({}),
        json!({ "prefix": 24 }),
        json!({ "threshold": 1, "interval-ms": 1 }),
        json!({ "threshold": null }),
    ] {
        assert!(ask(&mut *instance, "set", arguments).is_err());
    }
    assert_eq!(read(&mut *instance), before);
    assert!(ask(&mut *instance, "read", json!({ "a": 1 })).is_err());
    assert!(ask(&mut *instance, "syn", json!({})).is_err());
}

#[test]
fn answers_of_workers_join() {
    let reply = |syn: u64, alarm: bool, top: &[(&str, u64)]| {
        let top: Vec<_> =
            top.iter().map(|(name, count)| json!({ "destination": name, "half_open": count })).collect();
        json!({ "syn": syn, "alarm": alarm, "top": top, "settings": { "threshold": 7 } })
    };
    let message = Message { name: "read".to_owned(), arguments: Map::new() };
    let replies = vec![reply(1, false, &[("a", 5), ("b", 2)]), reply(2, true, &[("b", 4)])];
    assert_eq!(PLUGIN.merge(&message, replies), reply(3, true, &[("b", 6), ("a", 5)]));
}

#[test]
fn state_is_handed_over_to_another_instance() {
    let (mut old, mut blocks) = (instance(json!({ "threshold": 1 })).unwrap(), Blocks::new());
    old.periodic(Instant::ZERO);
    for flow in 0..6 {
        send(&mut *old, &mut blocks, flow, Flags::SYN);
    }
    old.periodic(Instant::from_millis(1000));
    send(&mut *old, &mut blocks, 0, Flags::ACK);
    let saved = old.save().unwrap().unwrap();
    let begun = |settings| {
        let mut new = instance(settings).unwrap();
        for (state, version) in [(&saved[..], 0), (&saved[1..], 1), (b"[]", 1), (b"", 1)] {
            assert!(new.restore(state, version).unwrap_err().to_string().contains("can't restore"));
        }
        new.restore(&saved, PLUGIN.state_version()).unwrap();
        new
    };
    let mut same = begun(json!({ "threshold": 1 }));
    let (before, after) = (read(&mut *old), read(&mut *same));
    for (name, value) in before.as_object().unwrap().iter().filter(|(name, _)| !name.contains("second")) {
        assert_eq!(&after[name], value, "{name}");
    }
    for (settings, told) in [(json!({ "prefix": 24 }), 0), (json!({ "destinations": 1 }), 1)] {
        let mut other = begun(settings);
        let said = read(&mut *other);
        assert_eq!((number(&said, "half_open"), top(&said).len()), (5, told));
        let mut blocks = Blocks(blocks.0.clone());
        for flow in 0..6 {
            send(&mut *other, &mut blocks, flow, Flags::RST);
        }
        let said = read(&mut *other);
        assert_eq!((number(&said, "half_open"), number(&said, "half_open_elsewhere")), (0, 0));
        assert_eq!((number(&said, "aborted"), top(&said).len()), (5, 0));
    }
    // An instance that got no state ignores the ends of attempts that began at an earlier instance.
    let mut empty = instance(json!({})).unwrap();
    send(&mut *empty, &mut blocks, 1, Flags::RST);
    assert_eq!(number(&read(&mut *empty), "half_open"), 0);
}
