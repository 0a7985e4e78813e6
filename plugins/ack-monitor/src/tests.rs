//! Tests of plugin `ack-monitor`.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use millrace_packet::{Packet, Pool};
use millrace_plugin_abi::{Exceptions, FlowKey, FlowStates, Verdict};
use millrace_units::PortId;
use millrace_wire::tcp::Flags;
use millrace_wire::{Protocol, ipv4};
use proptest::prelude::*;

use super::*;

const LINK: usize = 14;
/// Bytes of a flow state block in front of the instance's part.
const HEADER: usize = 8;

fn instance(settings: Value) -> Result<Box<dyn Instance>, PluginError> {
    PLUGIN.create(settings.as_object().unwrap())
}

fn ask(instance: &mut dyn Instance, name: &str, arguments: Value) -> Reply {
    instance.control(&Message { name: name.to_owned(), arguments: arguments.as_object().unwrap().clone() })
}

fn read(instance: &mut dyn Instance) -> Value {
    ask(instance, "read", json!({})).unwrap()
}

/// Segment to send, of the flow with this number.
#[derive(Clone, Copy, Debug)]
struct Sent {
    flow: u16,
    number: u32,
    window: u16,
    flags: Flags,
    data: usize,
}

fn bare(flow: u16, number: u32) -> Sent {
    Sent { flow, number, window: 100, flags: Flags::ACK, data: 0 }
}

fn key(flow: u16) -> FlowKey {
    FlowKey::v4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), 6, (4000 + flow, 80), PortId(0))
}

fn packet(pool: &Pool, sent: &Sent) -> Packet {
    let mut bytes = vec![0; LINK + 40 + sent.data];
    let (src, dst) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let header = ipv4::Repr {
        src,
        dst,
        protocol: Protocol::TCP,
        payload_len: (20 + sent.data) as u16,
        ttl: 64,
        tos: 0,
        identification: 0,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
    };
    header.emit(&mut ipv4::Packet::new_unchecked(&mut bytes[LINK..]));
    let tcp = &mut bytes[LINK + 20..];
    tcp[..2].copy_from_slice(&(4000 + sent.flow).to_be_bytes());
    tcp[2..4].copy_from_slice(&80_u16.to_be_bytes());
    tcp[8..12].copy_from_slice(&sent.number.to_be_bytes());
    (tcp[12], tcp[13]) = (0x50, sent.flags.0);
    tcp[14..16].copy_from_slice(&sent.window.to_be_bytes());
    // The padding of a short frame is not data.
    bytes.resize(bytes.len().max(60), 0);
    let mut packet = pool.packet_from(&bytes).unwrap();
    packet.set_network(LINK);
    packet.set_transport(LINK + 20);
    packet
}

/// Flow state blocks: flow N uses block N + 1.
struct Blocks(Vec<Vec<u8>>);

impl Blocks {
    fn new() -> Self {
        Self(vec![vec![0; HEADER + STATE_BYTES]; 4])
    }

    fn state(&self, flow: u16) -> &[u8] {
        &self.0[usize::from(flow)][HEADER..]
    }
}

impl FlowStates for Blocks {
    fn block(&mut self, number: u32) -> Option<&mut [u8]> {
        Some(self.0.get_mut(number.checked_sub(1)? as usize)?)
    }
}

/// Sends segments, one per call, a millisecond apart.
fn send(instance: &mut dyn Instance, blocks: &mut Blocks, segments: &[Sent]) {
    let pool = Pool::new(2).unwrap();
    for (index, sent) in segments.iter().enumerate() {
        let now = Instant::from_millis(index as u64);
        let (mut packets, keys) = ([packet(&pool, sent)], [key(sent.flow)]);
        let mut verdicts = [Verdict::Pass];
        let numbers = [u32::from(sent.flow) + 1];
        let mut call = Packets::new(&mut packets, &keys, &[0], &mut verdicts).with_states(
            blocks,
            &numbers,
            HEADER,
            STATE_BYTES,
        );
        instance.process(&mut call, now);
        assert_eq!(verdicts, [Verdict::Pass]);
    }
}

fn end(instance: &mut dyn Instance, blocks: &Blocks, flow: u16) {
    instance.flow_ended(&FlowEnd { key: key(flow), packets: 1, bytes: 60 }, blocks.state(flow));
}

/// Acknowledgment number with which the flows begin. It is so high that numbers soon wrap to 0.
const BASE: u32 = u32::MAX - 2;

/// Computes a flow's results from all its segments, as the reference: acknowledgments, duplicates, longest
/// run, fast, old.
fn slow(segments: &[Sent]) -> [u64; 5] {
    let (mut duplicates, mut longest, mut fast, mut old) = (0, 0, 0, 0);
    let acks: Vec<_> = segments
        .iter()
        .filter(|sent| sent.flags.contains(Flags::ACK) && !sent.flags.contains(Flags::RST))
        .collect();
    let place = |sent: &Sent| sent.number.wrapping_sub(BASE);
    let mut run = 0;
    for (index, sent) in acks.iter().enumerate().skip(1) {
        let highest = acks[..index].iter().map(|before| place(before)).max().unwrap();
        let bare = sent.data == 0 && !sent.flags.contains(Flags::SYN) && !sent.flags.contains(Flags::FIN);
        if place(sent) > highest {
            run = 0;
        } else if place(sent) < highest {
            old += 1;
        } else if bare && sent.window == acks[index - 1].window {
            run += 1;
            duplicates += 1;
            longest = longest.max(run);
            fast += u64::from(run == 3);
        }
    }
    [acks.len() as u64, duplicates, longest, fast, old]
}

fn any_segment() -> impl Strategy<Value = Sent> {
    let flags = prop_oneof![
        8 => Just(Flags::ACK),
        1 => Just(Flags::ACK | Flags::PSH),
        1 => Just(Flags::ACK | Flags::SYN),
        1 => Just(Flags::ACK | Flags::FIN),
        1 => Just(Flags::ACK | Flags::RST),
        1 => Just(Flags::SYN),
    ];
    let data = prop_oneof![4 => Just(0_usize), 1 => 1..30_usize];
    let window = prop_oneof![6 => Just(100_u16), 1 => 101..103_u16];
    (0..3_u16, 0..6_u32, window, flags, data).prop_map(|(flow, ahead, window, flags, data)| Sent {
        flow,
        number: BASE.wrapping_add(ahead),
        window,
        flags,
        data,
    })
}

proptest! {
    #[test]
    fn duplicates_equal_those_of_the_whole_history(segments in prop::collection::vec(any_segment(), 0..80)) {
        let (mut instance, mut blocks) = (instance(json!({})).unwrap(), Blocks::new());
        send(&mut *instance, &mut blocks, &segments);
        let mut totals = [0; 5];
        for flow in 0..3 {
            let own: Vec<_> = segments.iter().copied().filter(|sent| sent.flow == flow).collect();
            let expected = slow(&own);
            let kept = Flow::load(blocks.state(flow)).unwrap();
            let found = [kept.acks, kept.duplicates, kept.longest_run.into(), kept.fast].map(u64::from);
            prop_assert_eq!(&found[..], &expected[..4]);
            for (total, own) in totals.iter_mut().zip(expected) {
                *total += own;
            }
        }
        let said = read(&mut *instance);
        let names = ["acks", "duplicates", "fast", "old"];
        let found: Vec<_> = names.iter().map(|name| said[*name].as_u64().unwrap()).collect();
        prop_assert_eq!(found, [totals[0], totals[1], totals[3], totals[4]]);
    }

    #[test]
    fn flow_is_restored_from_its_state(state in prop::collection::vec(any::<u8>(), STATE_BYTES)) {
        let flow = Flow::load(&state).unwrap();
        let mut stored = [0; STATE_BYTES];
        flow.store(&mut stored);
        prop_assert_eq!(Flow::load(&stored), Some(flow));
        // A flow restored from any state accepts an acknowledgment.
        let mut flow = flow;
        flow.add(&Segment { number: 1, window: 1, is_bare: true }, Instant::ZERO);
    }

    #[test]
    fn any_bytes_are_parsed_without_a_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..90),
        network in 0..40_usize,
        transport in 0..80_usize,
        exceptions in 0..16_u8,
    ) {
        let pool = Pool::new(1).unwrap();
        let mut packet = pool.packet_from(&bytes).unwrap();
        packet.set_network(network);
        packet.set_transport(transport);
        packet.exceptions = Exceptions::from_bits(exceptions);
        Segment::read(&key(0), &packet);
        Segment::read(&FlowKey::v6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST, 6, (1, 2), PortId(0)), &packet);
    }

    #[test]
    fn the_worst_are_the_first_of_all_sorted(
        duplicates in prop::collection::vec(0..9_u32, 0..30),
        limit in 0..10_usize,
    ) {
        let mut worst = Worst::new(limit);
        for number in &duplicates {
            worst.add(key(0), Flow { acks: 1, duplicates: *number, ..Flow::default() });
        }
        let mut expected: Vec<_> = duplicates.into_iter().filter(|number| *number > 0).collect();
        expected.sort_by(|a, b| b.cmp(a));
        expected.truncate(limit);
        let found: Vec<_> = worst.read().iter().map(|flow| flow["duplicates"].as_u64().unwrap() as u32).collect();
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn flows_are_reported_at_their_ends() {
    let (mut instance, mut blocks) = (instance(json!({})).unwrap(), Blocks::new());
    let segments =
        [bare(0, 5), bare(0, 5), bare(0, 5), bare(0, 5), bare(0, 9), bare(1, 7), bare(1, 7), bare(2, 1)];
    send(&mut *instance, &mut blocks, &segments);
    for flow in 0..4 {
        end(&mut *instance, &blocks, flow);
    }
    instance.flow_ended(&FlowEnd { key: key(0), packets: 1, bytes: 60 }, &[]);
    let said = read(&mut *instance);
    assert_eq!((&said["flows"], &said["ended"]), (&json!(3), &json!(3)));
    assert_eq!(said["acks_per_second"], 1000.0);
    let worst = json!([
        { "flow": key(0).to_string(), "acks": 5, "duplicates": 3, "fast": 1, "longest_run": 3,
            "acks_per_second": 1000.0 },
        { "flow": key(1).to_string(), "acks": 2, "duplicates": 1, "fast": 0, "longest_run": 1,
            "acks_per_second": 1000.0 },
    ]);
    assert_eq!(said["worst"], worst);
    ask(&mut *instance, "set", json!({ "worst": 1 })).unwrap();
    assert_eq!(read(&mut *instance)["worst"].as_array().unwrap()[..], worst.as_array().unwrap()[..1]);
    ask(&mut *instance, "reset", json!({})).unwrap();
    assert_eq!(read(&mut *instance)["worst"], json!([]));
    assert_eq!(read(&mut *instance)["acks"], 0);
    assert_eq!(read(&mut *instance)["settings"]["worst"], 1);
}

#[test]
fn without_state_acknowledgments_are_only_counted() {
    let pool = Pool::new(2).unwrap();
    let mut instance = instance(json!({})).unwrap();
    let (mut packets, mut verdicts) =
        ([packet(&pool, &bare(0, 1)), packet(&pool, &bare(0, 1))], [Verdict::Pass; 2]);
    let keys = [key(0); 2];
    instance.process(&mut Packets::new(&mut packets, &keys, &[0, 1], &mut verdicts), Instant::ZERO);
    let said = read(&mut *instance);
    assert_eq!((&said["acks"], &said["unfollowed"], &said["flows"]), (&json!(2), &json!(2), &json!(0)));
    assert_eq!(instance.flow_state(), STATE_BYTES);
}

#[test]
fn rates_cover_the_first_to_the_last_packet() {
    assert_eq!(per_second(1, Duration::ZERO), 0.0);
    assert_eq!(per_second(2, Duration::from_secs(1)), 1.0);
    assert_eq!(per_second(4, Duration::from_secs(9)), 0.3);
}

#[test]
fn wrong_settings_are_refused_and_change_nothing() {
    for wrong in [json!(65), json!(-1), json!("many"), json!(1.5), json!(null)] {
        let refused = instance(json!({ "worst": wrong })).err().unwrap().to_string();
        assert_eq!(refused, format!("plugin ack-monitor: worst: {wrong} is not a whole number from 0 to 64"));
    }
    assert_eq!(PLUGIN.settings_schema().unwrap()["additionalProperties"], false);
    let mut instance = instance(json!({ "worst": 3 })).unwrap();
    assert!(ask(&mut *instance, "set", json!({})).unwrap_err().to_string().contains("give worst"));
    assert!(ask(&mut *instance, "set", json!({ "worst": 99 })).is_err());
    assert!(ask(&mut *instance, "read", json!({ "a": 1 })).is_err());
    assert!(ask(&mut *instance, "ack", json!({})).is_err());
    assert_eq!(read(&mut *instance)["settings"]["worst"], 3);
}

#[test]
fn answers_of_workers_join() {
    let reply = |acks, duplicates: &[u64]| {
        let worst: Vec<_> = duplicates.iter().map(|number| json!({ "duplicates": number })).collect();
        json!({ "acks": acks, "worst": worst, "settings": { "worst": 2 } })
    };
    let message = Message { name: "read".to_owned(), arguments: Map::new() };
    assert_eq!(PLUGIN.merge(&message, vec![reply(3, &[5, 1]), reply(4, &[7, 2])]), reply(7, &[7, 5]));
}

#[test]
fn state_is_handed_over_to_another_instance() {
    let (mut old, mut blocks) = (instance(json!({})).unwrap(), Blocks::new());
    send(&mut *old, &mut blocks, &[bare(0, 5), bare(0, 5), bare(1, 7), bare(1, 7), bare(1, 7)]);
    end(&mut *old, &blocks, 0);
    end(&mut *old, &blocks, 1);
    let far = FlowKey::v6("2001:db8::1".parse().unwrap(), Ipv6Addr::LOCALHOST, 6, (1, 2), PortId(3));
    old.flow_ended(&FlowEnd { key: far, packets: 1, bytes: 60 }, &blocks.0[0][HEADER..]);
    let saved = old.save().unwrap().unwrap();
    let mut new = instance(json!({ "worst": 3 })).unwrap();
    for (state, version) in [(&saved[..], 0), (&saved[1..], 1), (b"[]", 1), (b"", 1)] {
        assert!(new.restore(state, version).unwrap_err().to_string().contains("can't restore"));
    }
    new.restore(&saved, PLUGIN.state_version()).unwrap();
    let mut expected = read(&mut *old);
    assert_eq!(expected["worst"].as_array().unwrap().len(), 3);
    expected["settings"]["worst"] = json!(3);
    assert_eq!(read(&mut *new), expected);
}
