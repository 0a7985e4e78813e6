//! Tests of the worker against processes that lie: whatever they write to the shared memory, the worker ends
//! their call or waits, and no packet is lost or changes its length.

use std::sync::atomic::{AtomicU64, Ordering};

use millrace_packet::{FlowKey, Packet, Pool};
use millrace_plugin_abi::binary::{HOST_FUNCTIONS, packet_flags};
use millrace_plugin_abi::process::{ANSWER_LANE, REQUEST_LANE, Reader, Writer};
use millrace_plugin_abi::{ConnectionStatus, PacketConnection, Packets, Verdict};
use millrace_units::PortId;
use proptest::prelude::*;

use super::*;
use crate::Manifest;
use crate::runtime::process::plugin::layout;
use crate::runtime::process::region::Region;

/// Plugin that may call every host function.
fn manifest() -> Manifest {
    let capabilities: Vec<_> = HOST_FUNCTIONS.iter().filter_map(|(_, capability)| *capability).collect();
    let manifest = serde_json::json!({
        "abi": 1, "name": "a", "version": "1.0.0", "summary": "x", "positions": ["late"],
        "capabilities": capabilities, "flow-state": 8, "service-state": 20, "counters": ["a"],
    });
    let parsed = Manifest::parse(manifest.to_string().as_bytes());
    // Some capabilities exclude each other or need more keys; without them, the test still reaches all code.
    parsed.unwrap_or_else(|_| {
        let manifest = serde_json::json!({
            "abi": 1, "name": "a", "version": "1.0.0", "summary": "x", "positions": ["late"],
            "capabilities": ["log", "packet-read", "packet-write", "packet-resize", "packet-make",
                "flow-backlog", "timer"],
            "flow-state": 8, "service-state": 20, "counters": ["a"],
        });
        Manifest::parse(manifest.to_string().as_bytes()).unwrap()
    })
}

/// Worker's side and process's side of the same memory.
struct Bench {
    running: Running,
    shared: Shared,
    terms: Terms,
    memory: Region,
    pool: Pool,
}

impl Bench {
    fn new() -> Self {
        let manifest = manifest();
        let layout = layout(&manifest);
        let (link, file) = Link::new(&layout).unwrap();
        Self {
            running: Running::new(link),
            shared: Shared::new(&manifest),
            terms: Terms {
                layout,
                writes: true,
                granted: Granted::by(&manifest),
                version: 1,
                settings: b"{}".to_vec(),
            },
            memory: Region::map(&file, layout.words()).unwrap(),
            pool: Pool::new(256).unwrap(),
        }
    }

    /// Begins a call with `count` packets, and calls `play` after each look of the worker, up to `looks`
    /// times. Returns the packets and their verdicts, and the fault.
    fn call(
        &mut self,
        count: usize,
        looks: usize,
        mut play: impl FnMut(&Region),
    ) -> (Vec<Packet>, Vec<Verdict>, Option<Fault>) {
        let packet = |index| self.pool.packet_from(&vec![index as u8; 40 + index]).unwrap();
        let mut packets: Vec<_> = (0..count).map(packet).collect();
        let key = FlowKey::v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 17, (1, 2), PortId(0));
        let keys = vec![key; count];
        let members: Vec<_> = (0..count as u16).collect();
        let mut verdicts = vec![Verdict::Pass; count];
        let mut fault = None;
        self.shared.with(|exchange| begin_call(exchange, Instant::ZERO));
        let mut lent = Packets::new(&mut packets, &keys, &members, &mut verdicts);
        for _ in 0..looks {
            let Self { running, shared, terms, .. } = self;
            match shared.give_time(Some(&mut lent), 0, || running.go_on(shared, terms)).0 {
                Ok(Progress::Done) => break,
                Ok(_) => play(&self.memory),
                Err(died) => {
                    fault = Some(died);
                    break;
                }
            }
        }
        (packets, verdicts, fault)
    }
}

/// Process that answers each request with success.
struct Honest {
    requests: Reader,
    answers: Writer,
}

impl Honest {
    fn new() -> Self {
        Self { requests: Reader::new(REQUEST_LANE), answers: Writer::new(ANSWER_LANE) }
    }

    fn answer(&mut self, memory: &Region) {
        while self.requests.read(memory.words()).unwrap().is_some() {
            let done = Record { kind: answer::DONE, first: 0, second: 0, bytes: &[] };
            self.answers.write(memory.words(), done).unwrap();
        }
    }
}

/// Its answers come without limit, so the requests that it leaves unread must not.
#[test]
fn process_that_answers_without_reading_is_broken_once_the_ring_is_full() {
    let (mut bench, mut answers) = (Bench::new(), Writer::new(ANSWER_LANE));
    let done = Record { kind: answer::DONE, first: 0, second: 0, bytes: &[] };
    let faults = (0..5000).map(|_| bench.call(1, 4, |memory| answers.write(memory.words(), done).unwrap()).2);
    let (calls, fault) =
        faults.enumerate().find_map(|(calls, fault)| Some((calls, fault?))).expect("a fault");
    assert!(
        calls > 100 && fault.text.contains("it answered before it had read the request"),
        "{calls} {fault:?}"
    );
}

#[test]
fn honest_process_passes_all_packets_and_its_writes_take_effect() {
    let (mut bench, mut honest) = (Bench::new(), Honest::new());
    let layout = bench.terms.layout;
    let (packets, verdicts, fault) = bench.call(100, 20, |memory| {
        memory.words()[layout.window(3)].store(u64::MAX, Ordering::Relaxed);
        honest.answer(memory);
    });
    assert!(fault.is_none(), "{fault:?}");
    assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Pass));
    assert_eq!(
        (&packets[3].data()[..9], packets[67].data()[0]),
        (&[255, 255, 255, 255, 255, 255, 255, 255, 3][..], 255)
    );
}

#[test]
fn answer_without_a_request_and_an_unknown_answer_are_faults() {
    for (kind, text) in [(answer::DONE, ""), (99, "unknown kind 99"), (11, "unknown kind 11")] {
        let mut bench = Bench::new();
        let mut answers = Writer::new(ANSWER_LANE);
        let (_, _, fault) = bench.call(1, 50, |memory| {
            let record = Record { kind, first: 7, second: 0, bytes: &[] };
            answers.write(memory.words(), record).unwrap();
        });
        let fault = fault.unwrap();
        assert!(fault.text.contains(text), "{fault:?}");
    }
}

#[test]
fn flood_of_answers_ends_no_iteration_late() {
    let mut bench = Bench::new();
    let mut answers = Writer::new(ANSWER_LANE);
    let mut looks = 0;
    let (_, _, fault) = bench.call(1, 100, |memory| {
        looks += 1;
        let record = Record { kind: answer::LOG, first: 1, second: 0, bytes: b"again" };
        (0..800).for_each(|_| answers.write(memory.words(), record).unwrap());
    });
    assert!(fault.is_none() && looks == 100, "{fault:?} {looks}");
}

/// Write of a lying process.
#[derive(Clone, Debug)]
enum Lie {
    Word(usize, u64),
    Index(bool, u64),
    Answer(u32, u64, u64, Vec<u8>),
}

fn lie() -> impl Strategy<Value = Lie> {
    let small = || prop_oneof![0..200_u64, any::<u64>()];
    prop_oneof![
        1 => (any::<prop::sample::Index>(), any::<u64>()).prop_map(|(at, word)| Lie::Word(at.index(1 << 20), word)),
        1 => (any::<bool>(), small()).prop_map(|(which, by)| Lie::Index(which, by)),
        8 => (0..18_u32, small(), small(), prop::collection::vec(any::<u8>(), 0..200))
            .prop_map(|(kind, first, second, bytes)| Lie::Answer(kind, first, second, bytes)),
    ]
}

proptest! {
    #[test]
    fn no_lie_panics_or_loses_a_packet(
        count in 1..130_usize,
        lies in prop::collection::vec(prop::collection::vec(lie(), 0..6), 1..20),
        is_begun in any::<bool>(),
    ) {
        let mut bench = Bench::new();
        let mut honest = Honest::new();
        if is_begun {
            bench.call(1, 10, |memory| honest.answer(memory));
        }
        let mut answers = honest.answers;
        let mut rounds = lies.into_iter();
        let (packets, verdicts, _) = bench.call(count, 30, |memory| {
            for lie in rounds.next().into_iter().flatten() {
                let words = memory.words();
                match lie {
                    Lie::Word(at, word) => words[at % words.len()].store(word, Ordering::Relaxed),
                    Lie::Index(which, by) => {
                        let at = if which { ANSWER_LANE.posted } else { REQUEST_LANE.taken };
                        words[at].fetch_add(by, Ordering::Relaxed);
                    }
                    Lie::Answer(kind, first, second, bytes) => {
                        let _ = answers.write(words, Record { kind, first, second, bytes: &bytes });
                    }
                }
            }
        });
        prop_assert_eq!((packets.len(), verdicts.len()), (count, count));
        for verdict in verdicts {
            if let Verdict::Drop(reason) = verdict {
                prop_assert!(reason <= Verdict::MOST_REASON);
            }
        }
        for (index, packet) in packets.iter().enumerate() {
            prop_assert!(packet.tag <= 31);
            prop_assert!(packet.len() <= 40 + index + millrace_packet::HEADROOM);
        }
        drop(packets);
        prop_assert_eq!(bench.pool.in_use(), 0);
    }
}

#[test]
fn packet_of_1500_bytes_copies_192_bytes_to_the_process() {
    const UNTOUCHED: u64 = 0x5a5a_5a5a_5a5a_5a5a;
    let manifest = br#"{"abi": 1, "name": "a", "version": "1.0.0", "summary": "x", "positions": ["late"]}"#;
    let manifest = Manifest::parse(manifest).unwrap();
    let (layout, shared, pool) = (layout(&manifest), Shared::new(&manifest), Pool::new(4).unwrap());
    let words: Vec<_> = (0..layout.words()).map(|_| AtomicU64::new(UNTOUCHED)).collect();
    let mut packets = [pool.packet_from(&[0x11; 1500]).unwrap()];
    let key = FlowKey::v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 17, (1, 2), PortId(0));
    let (keys, mut verdicts) = ([key], [Verdict::Pass]);
    let mut packets = Packets::new(&mut packets, &keys, &[0], &mut verdicts);
    let stage = Stage { words: &words, layout, writes: false };
    let staged = shared.with(|exchange| {
        begin_call(exchange, Instant::ZERO);
        stage.stage(exchange, &mut packets)
    });
    assert_eq!(staged, 1);
    let written = words.iter().filter(|word| word.load(Ordering::Relaxed) != UNTOUCHED).count();
    assert_eq!(written * 8, 192);
}

#[test]
fn packet_comes_to_the_process_with_its_connection() {
    let manifest = br#"{"abi": 1, "name": "a", "version": "1.0.0", "summary": "x", "positions": ["late"],
        "state": "connection", "flow-state": 8}"#;
    let manifest = Manifest::parse(manifest).unwrap();
    let (layout, shared, pool) = (layout(&manifest), Shared::new(&manifest), Pool::new(4).unwrap());
    let words: Vec<_> = (0..layout.words()).map(|_| AtomicU64::new(0)).collect();
    let mut packets = [pool.packet_from(&[0x11; 60]).unwrap()];
    let key = FlowKey::v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 17, (1, 2), PortId(0));
    let (keys, mut verdicts) = ([key], [Verdict::Pass]);
    let status = ConnectionStatus::Established;
    let connections = [PacketConnection { number: 1, serial: 1, status, is_reply: true, is_counted: false }];
    let mut packets = Packets::new(&mut packets, &keys, &[0], &mut verdicts).with_connections(&connections);
    let stage = Stage { words: &words, layout, writes: false };
    shared.with(|exchange| {
        begin_call(exchange, Instant::ZERO);
        stage.stage(exchange, &mut packets)
    });
    let description = stage.description(0);
    let word = |number: usize| description[number].load(Ordering::Relaxed);
    assert_eq!((word(6) >> 32) as u32, status as u32);
    assert_eq!((word(0) >> 16) as u16 & packet_flags::REPLY, packet_flags::REPLY);
}
