//! Test of a plugin that uses all parts of the SDK, in the test router: its verdicts, changes and calls must
//! take effect.

use std::net::IpAddr;
use std::time::Duration;

use millrace_sdk::testing::{Fate, Router, TestMap, frame_of_ports};
use millrace_sdk::{
    ConnectionStatus, Declared, FlowEnd, Packet, Packets, PayerBacklog, Plugin, QueueBacklog, Refusal,
    SharedMap, Verdict, host, json, log, millrace_plugin, plain,
};

plain! {
    struct Seen {
        packets: u32,
        last: u64,
    }
}

/// Plugin that treats each packet as the first byte of the packet's payload demands.
struct Obedient {
    ended: Vec<(u32, u64)>,
    saved: Vec<u8>,
}

impl Plugin for Obedient {
    fn init(settings: &[u8]) -> Result<Self, Refusal> {
        json::Object::new(settings)?.only(&["mood"])?;
        Ok(Self { ended: Vec::new(), saved: Vec::new() })
    }

    fn packets(&mut self, packets: &mut Packets<'_>, now: u64) {
        packets.for_each(|packet| obey(packet, now));
    }

    fn control(&mut self, message: &str, arguments: &[u8]) -> Result<String, Refusal> {
        match message {
            "say" => Ok(json::Object::new(arguments)?
                .get("what")
                .and_then(|what| what.string())
                .unwrap_or_default()),
            "map" => {
                let (one, two, other) = (SharedMap(0), SharedMap(1), SharedMap(2));
                let before = one.get::<u32, u16>(&7);
                let set = [
                    one.set(&7_u32, &8_u16),
                    one.set(&8_u32, &8_u16),
                    one.set(&7_u32, &8_u32),
                    other.set(&1_u8, &1_u8),
                ];
                let removed = (two.remove(&1_u8), two.set(&1_u8, &2_u8), two.remove(&1_u8));
                Ok(format!(
                    "{before:?} {set:?} {removed:?} {:?} {:?} {:?} {:?}",
                    one.get::<u32, u16>(&7),
                    other.get::<u8, u8>(&5),
                    SharedMap(9).get::<u8, u8>(&5),
                    other.remove(&5_u8),
                ))
            }
            "restart" => {
                let common: Seen = Self::service_state().unwrap();
                assert!(Self::set_service_state(&Seen { packets: common.packets + 1, ..common }));
                Ok(common.packets.to_string())
            }
            "panic" => panic!("as was asked for"),
            "ended" => Ok(format!("{:?}", self.ended)),
            other => Err(Refusal::unknown_message(other)),
        }
    }

    fn periodic(&mut self, now: u64) {
        log!(Information, "it is {now}");
        host::timer(5);
        assert!(host::request("{}") && host::packet_make(b"E", 3));
    }

    fn message(&mut self, message: &[u8]) {
        assert!(host::send(&[message, b"!"].concat()));
    }

    fn flow_ended(&mut self, flow: &FlowEnd<'_>) {
        let seen: Seen = flow.state().unwrap_or_default();
        self.ended.push((seen.packets, flow.count().1));
    }

    fn save(&mut self) -> Result<Vec<u8>, Refusal> {
        if self.saved.is_empty() { Err("there is nothing".into()) } else { Ok(self.saved.clone()) }
    }

    fn restore(&mut self, state: &[u8], version: u32) -> Result<(), Refusal> {
        self.saved = [state, &version.to_le_bytes()].concat();
        Ok(())
    }
}

fn obey(mut packet: Packet<'_>, now: u64) {
    let seen: Seen = packet.flow_state().unwrap_or_default();
    assert_eq!(seen.packets == 0, packet.is_first());
    assert!(packet.set_flow_state(&Seen { packets: seen.packets + 1, last: now }));
    match packet.transport().get(8) {
        Some(b'd') => packet.drop_for(7),
        Some(b'c') => packet.set(Verdict::Consume),
        Some(b'a') if packet.connection() == ConnectionStatus::Established && packet.is_reply() => {
            packet.drop_for(9)
        }
        Some(b'p') => packet.set(Verdict::Ports(6)),
        Some(b'h') => packet.set(Verdict::Hold(now + 10)),
        Some(b't') => packet.set_tag(35),
        Some(b'w') => packet.window_mut()[0] = 9,
        Some(b'r') => resize(&mut packet),
        Some(b'm') => {
            let mut last = [0];
            let offset = packet.len() as u32 - 1;
            assert!(packet.has_more() && packet.read(offset, &mut last) == 1);
            assert_eq!((packet.write(offset, &[last[0] + 1]), packet.write(offset + 1, b"x")), (1, 0));
        }
        Some(b'b') => {
            let backlog = packet.backlog().unwrap_or_default();
            let allowance = backlog.payer.and_then(|payer| payer.allowance).unwrap_or_default();
            let payer = backlog.payer.map_or(0, |payer| payer.packets + payer.bytes as u32);
            let queue = backlog.queue.map_or(31, |queue| queue.packets);
            packet.drop_for((queue - payer - allowance.as_micros() as u32) as u8);
        }
        Some(b'!') => panic!("a packet that can't be borne"),
        _ => {}
    }
}

fn resize(packet: &mut Packet<'_>) {
    assert!(packet.resize(4) && !packet.resize(-1_000_000));
    assert_eq!(packet.write(0, b"tick"), 4);
}

millrace_plugin! {
    Obedient,
    name: "obedient",
    summary: "Does what a \"packet\" says: ü.",
    positions: ["early", "copy"],
    features: ["to-ports", "classify"],
    capabilities: ["log", "packet-read", "packet-write", "packet-resize", "packet-make", "flow-backlog", "timer", "request", "map-read", "map-write", "message"],
    messages: { "say": "what: is repeated", "panic": "fails", "ended": "flows" },
    settings: r#"{"type": "object", "properties": {"mood": {"type": "string"}}}"#,
    window: 64,
    state: "connection",
    flow_state: 12,
    service_state: 12,
    maps: [{ name: "one", key: 4, value: 2, entries: 1 }, { name: "two", key: 1, value: 1, entries: 9 }],
    host_companion: "slow.wasm",
    state_version: 3,
    contexts: 2,
    period: 1000,
    cost: { packet: 50, byte: 0.5 },
    flow_ends: true,
    hears: true,
}

fn frame(payload: &[u8]) -> Vec<u8> {
    let address = |last| IpAddr::from([10, 0, 0, last]);
    frame_of_ports(address(1), address(2), 17, (1000, 2000), payload)
}

fn router() -> Router<Obedient> {
    Router::new("{}").unwrap()
}

fn one(router: &mut Router<Obedient>, payload: &[u8]) -> Fate {
    router.send(&[frame(payload)]).remove(0)
}

#[test]
fn manifest_contains_the_declarations() {
    let manifest: serde_json::Value = serde_json::from_str(Obedient::MANIFEST).unwrap();
    assert_eq!(manifest["name"], "obedient");
    assert_eq!(manifest["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(manifest["summary"], "Does what a \"packet\" says: ü.");
    assert_eq!(manifest["positions"], serde_json::json!(["early", "copy"]));
    assert_eq!(manifest["messages"]["panic"], "fails");
    assert_eq!(manifest["settings"]["properties"]["mood"]["type"], "string");
    assert_eq!((&manifest["window"], &manifest["flow-state"]), (&64.into(), &12.into()));
    assert_eq!(manifest["state"], "connection");
    assert_eq!((&manifest["state-version"], &manifest["contexts"]), (&3.into(), &2.into()));
    assert_eq!(manifest["cost"]["byte"], 0.5);
}

#[test]
fn features_of_other_keys_are_declared_by_themselves() {
    let manifest: serde_json::Value = serde_json::from_str(Obedient::MANIFEST).unwrap();
    let all =
        ["flow-state", "flow-ends", "service-state", "saved-state", "maps", "timers", "log", "packet-bytes"];
    let more =
        ["packet-make", "flow-backlog", "requests", "host-companion", "to-ports", "classify", "connections"];
    assert_eq!(manifest["features"], serde_json::json!([all.as_slice(), &more].concat()));
}

#[test]
fn packets_come_with_their_connections() {
    let mut router = router();
    assert_eq!(one(&mut router, b"a").verdict, Verdict::Pass);
    for (connection, verdict) in [
        ((ConnectionStatus::Established, true), Verdict::Drop(9)),
        ((ConnectionStatus::Established, false), Verdict::Pass),
        ((ConnectionStatus::New, true), Verdict::Pass),
    ] {
        router.connection = connection;
        assert_eq!(one(&mut router, b"a").verdict, verdict, "{connection:?}");
    }
}

#[test]
fn verdicts_and_tags_arrive() {
    let mut router = router();
    router.now = 100;
    let payloads: [&[u8]; 6] = [b"-", b"d", b"c", b"p", b"h", b"t"];
    let fates = router.send(&payloads.map(frame));
    let verdicts: Vec<_> = fates.iter().map(|fate| fate.verdict).collect();
    let expected = [
        Verdict::Pass,
        Verdict::Drop(7),
        Verdict::Consume,
        Verdict::Ports(6),
        Verdict::Hold(110),
        Verdict::Pass,
    ];
    assert_eq!(verdicts, expected);
    assert_eq!(fates[5].tag, 3);
}

#[test]
fn writes_reach_bytes_in_and_behind_the_window() {
    let mut router = router();
    assert_eq!(one(&mut router, b"w").frame[0], 9);
    let mut long = vec![1; 100];
    long[0] = b'm';
    let fate = one(&mut router, &long);
    assert_eq!(fate.frame.last(), Some(&2));
    assert_eq!(one(&mut router, b"r").frame, [b"tick".as_slice(), &frame(b"r")].concat());
}

#[test]
fn messages_go_to_and_fro() {
    let mut router = router();
    router.message(b"well");
    assert_eq!(router.record().sent, [b"well!"]);
    let manifest: serde_json::Value = serde_json::from_str(Obedient::MANIFEST).unwrap();
    assert_eq!(manifest["host-companion"], "slow.wasm");
}

#[test]
fn maps_are_written_and_read() {
    let mut router = router();
    let content = [(vec![5], vec![6])].into_iter().collect();
    router.maps.push(TestMap { key: 1, value: 1, entries: 1, writes: false, content });
    let answer = router.control("map", "{}").unwrap();
    let expected = "Ok(None) [Ok(()), Err(Full), Err(Refused), Err(Refused)] (Ok(false), Ok(()), Ok(true)) Ok(Some(8)) Ok(Some(6)) \
         Err(Refused) Err(Refused)";
    assert_eq!(answer, expected);
    assert_eq!(router.maps[0].content[&vec![7, 0, 0, 0]], [8, 0]);
    let manifest: serde_json::Value = serde_json::from_str(Obedient::MANIFEST).unwrap();
    assert_eq!(manifest["maps"][1], serde_json::json!({"name": "two", "key": 1, "value": 1, "entries": 9}));
    assert_eq!((&manifest["maps"][0]["entries"], &manifest["service-state"]), (&1.into(), &12.into()));
}

#[test]
fn service_state_survives_a_restart_and_belongs_to_one_router() {
    let (mut router, mut other) = (router(), Router::<Obedient>::new("{}").unwrap());
    assert_eq!(router.control("restart", "{}").unwrap(), "0");
    assert_eq!(router.control("restart", "{}").unwrap(), "1");
    assert_eq!(other.control("restart", "{}").unwrap(), "0");
    router.restart("{}").unwrap();
    assert_eq!(router.control("restart", "{}").unwrap(), "2");
}

#[test]
fn backlog_of_a_packet_is_reported() {
    let mut router = router();
    assert_eq!(one(&mut router, b"b").verdict, Verdict::Drop(31));
    let queue = QueueBacklog { port: 1, queue: 2, of_flow: true, packets: 7, bytes: 700 };
    router.backlog.queue = Some(queue);
    assert_eq!(one(&mut router, b"b").verdict, Verdict::Drop(7));
    router.backlog.payer = Some(PayerBacklog { packets: 1, bytes: 1, allowance: None });
    assert_eq!(one(&mut router, b"b").verdict, Verdict::Drop(5));
    let allowance = Some(Duration::from_micros(3));
    router.backlog.payer = Some(PayerBacklog { packets: 1, bytes: 1, allowance });
    assert_eq!(one(&mut router, b"b").verdict, Verdict::Drop(2));
}

#[test]
fn flow_state_and_flow_ends_are_delivered() {
    let mut router = router();
    for _ in 0..3 {
        one(&mut router, b"-");
    }
    router.end_flows();
    assert_eq!(router.control("ended", "{}").unwrap(), format!("[(3, {})]", 3 * frame(b"-").len()));
}

#[test]
fn frames_that_are_no_ip_pass_by() {
    let mut router = router();
    let fates = router.send(&[vec![0; 60], vec![1], frame(b"d")]);
    assert_eq!((fates[0].verdict, fates[2].verdict), (Verdict::Pass, Verdict::Drop(7)));
    assert_eq!(fates[1].frame, [1]);
}

#[test]
fn calls_are_recorded() {
    let mut router = router();
    router.now = 42;
    router.periodic();
    let record = router.record();
    assert_eq!(record.log, [(millrace_sdk::Level::Information, "it is 42".to_owned())]);
    assert_eq!((record.timers, record.requests.len()), (vec![5], 1));
    assert_eq!(record.made, [(b"E".to_vec(), 3)]);
    assert_eq!(router.record(), millrace_sdk::testing::Record::default());
}

#[test]
fn state_is_saved_and_restored() {
    let mut router = router();
    assert_eq!(router.save(), Err("there is nothing".into()));
    router.restore(b"old", 2).unwrap();
    assert_eq!(router.save().unwrap(), b"old\x02\0\0\0");
}

#[test]
fn refusals_are_reported() {
    let refusal = Router::<Obedient>::new(r#"{"colour": 1}"#).err().unwrap();
    assert_eq!(refusal.0, "colour: there is no such setting; give mood");
    assert_eq!(router().control("dance", "{}"), Err("unknown message dance".into()));
    assert_eq!(router().control("say", r#"{"what": "\u00fc\ud83d\ude00\n"}"#).unwrap(), "ü😀\n");
}

#[test]
fn a_panic_is_a_fault_and_the_end_of_the_instance() {
    let mut router = router();
    assert_eq!(one(&mut router, b"!").verdict, Verdict::Fault);
    assert_eq!(one(&mut router, b"-").verdict, Verdict::Fault);
    let refusal = router.control("say", "{}").unwrap_err();
    assert_eq!(refusal.0, "the plugin has not started, or has panicked; create a new instance");
    let refusal = Router::<Obedient>::new("{}").unwrap().control("panic", "{}").unwrap_err();
    assert_eq!(refusal.0, "the plugin panicked: as was asked for");
}
