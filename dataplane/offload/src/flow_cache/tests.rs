//! Programs with a flow cache: dry runs in the kernel compared with their twin, and frames through a veth.

use std::os::fd::AsFd;

use millrace_packet::{DriverAction, DriverFlow, DriverTotals, DriverWay};
use millrace_units::Amount;
use millrace_wire::MacAddr;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::dry_runs::{Bench, FLOW, LOOPBACK, OUT, OWN, PORT, REDIRECT, WAY};
use super::forward_twin::{forwarded, read, udp_key};
use super::{FlowCacheWriter, FlowSlot, KEY_BYTES};
use crate::bpf_syscall;
use crate::dry_runs::ones_complement;
use crate::test_support::{can_load, frame_to, ipv4_packet, ipv6_packet, now};

impl Bench {
    /// Inserts an entry of a UDP flow.
    fn insert(&mut self, from: &str, to: &str) -> FlowSlot {
        self.writer.insert(&udp_key(from, to, PORT), &FLOW).unwrap()
    }

    /// Inserts an entry and puts it into use, with no packets under way.
    pub(super) fn begin(&mut self, from: &str, to: &str) -> FlowSlot {
        let slot = self.insert(from, to);
        self.take_up(slot);
        slot
    }

    pub(super) fn forwards(&self, frame: &[u8]) -> bool {
        self.run(0, frame).is_some()
    }
}

pub(super) const V4: (&str, &str) = ("192.0.2.1", "198.51.100.1");
pub(super) const V6: (&str, &str) = ("2001:db8:9::1", "2001:db8:2::1");

pub(super) fn v4_frame() -> Vec<u8> {
    frame_to(OWN, 0x0800, &ipv4_packet(V4.0, V4.1, 30))
}

/// Returns a frame that is padded on a wire.
pub(super) fn short_v4_frame() -> Vec<u8> {
    frame_to(OWN, 0x0800, &ipv4_packet(V4.0, V4.1, 3))
}

pub(super) fn v6_frame() -> Vec<u8> {
    frame_to(OWN, 0x86dd, &ipv6_packet(V6.0, V6.1, 30))
}

#[test]
fn a_cached_flow_leaves_as_its_twin_says_and_is_counted() {
    if !can_load() {
        return;
    }
    let mut bench = Bench::new(16);
    for (frame, (from, to)) in [(v4_frame(), V4), (v6_frame(), V6)] {
        assert!(!bench.forwards(&frame));
        let slot = bench.begin(from, to);
        for program in 0..2 {
            assert_eq!(bench.run(program, &frame), Some(forwarded(&frame, &WAY)));
        }
        let sent = Amount { packets: 2, bytes: 2 * frame.len() as u64 };
        let totals = DriverTotals { sent, ..DriverTotals::default() };
        assert_eq!(bench.writer.totals(slot), totals);
        assert!(!bench.forwards(&[&frame[..35], &[frame[35] ^ 1], &frame[36..]].concat()), "another flow");
    }
    let sent = bench.cache.sent(OUT).unwrap();
    assert_eq!(sent.packets, 4);
    assert_eq!(bench.counters().forwarded, 4);
}

#[test]
fn an_entry_is_used_in_its_generation_only() {
    if !can_load() {
        return;
    }
    let mut bench = Bench::new(16);
    let slot = bench.begin(V4.0, V4.1);
    assert!(bench.forwards(&v4_frame()));
    bench.writer.publish(2);
    assert!(!bench.forwards(&v4_frame()), "after a change");
    let elsewhere = DriverWay { destination: MacAddr([2, 7, 7, 7, 7, 7]), ..WAY };
    bench.writer.renew(slot, &DriverFlow { action: DriverAction::Send(elsewhere), ..FLOW }, 2);
    assert!(!bench.forwards(&v4_frame()), "a packet is still up");
    bench.writer.set_done(PORT, bench.writer.up(PORT));
    assert_eq!(bench.run(0, &v4_frame()), Some(forwarded(&v4_frame(), &elsewhere)));
    bench.writer.stop(slot);
    assert!(!bench.forwards(&v4_frame()));
}

#[test]
fn no_packet_overtakes_one_that_went_up() {
    if !can_load() {
        return;
    }
    let mut bench = Bench::new(16);
    assert!(!bench.forwards(&v4_frame()));
    let slot = bench.insert(V4.0, V4.1);
    assert!(!bench.forwards(&v4_frame()), "not begun");
    bench.writer.begin(slot, PORT, 1);
    assert_eq!(bench.writer.up(PORT), 2);
    for done in [0, 1] {
        bench.writer.set_done(PORT, done);
        assert!(!bench.forwards(&v4_frame()), "{done} of 2 done");
    }
    // The two frames above were punted as well.
    bench.writer.set_done(PORT, 4);
    assert!(bench.forwards(&v4_frame()));
    assert!(!bench.forwards(&v6_frame()), "packets of others go up");
    assert!(bench.forwards(&v4_frame()), "and don't hold up this one");
    // A frame above the output MTU is punted, and so are the frames after it.
    let long = frame_to(OWN, 0x0800, &ipv4_packet(V4.0, V4.1, 1600));
    assert!(!bench.forwards(&long) && !bench.forwards(&v4_frame()));
    bench.writer.set_done(PORT, bench.writer.up(PORT));
    assert!(bench.forwards(&v4_frame()));
    // Any number of other upcalls since then makes no difference.
    bench.writer.set_done(PORT, 3 << 30);
    assert!(bench.forwards(&v4_frame()));
}

/// The general path drops packets with fragment headers, so no entry of the inner flow may forward them.
#[test]
fn packets_with_fragment_headers_go_up_unchanged() {
    if !can_load() {
        return;
    }
    let mut bench = Bench::new(16);
    bench.begin(V6.0, V6.1);
    let whole = ipv6_packet(V6.0, V6.1, 30);
    for headers in [1, 2] {
        let mut packet = whole.clone();
        for _ in 0..headers {
            // Atomic fragment: the whole packet, at offset 0.
            let header = [packet[6], 0, 0, 0, 0, 0, 0, 7];
            packet[6] = 44;
            packet.splice(40..40, header);
        }
        let length = (packet.len() - 40) as u16;
        packet[4..6].copy_from_slice(&length.to_be_bytes());
        let frame = frame_to(OWN, 0x86dd, &packet);
        assert_eq!(read(&frame, PORT), None, "the twin, {headers}");
        assert!(!bench.forwards(&frame), "{headers}");
    }
    assert_eq!(bench.counters().forwarded, 0);
    bench.writer.set_done(PORT, bench.writer.up(PORT));
    assert!(bench.forwards(&v6_frame()));
}

#[test]
fn frames_from_no_station_go_up() {
    if !can_load() {
        return;
    }
    let mut bench = Bench::new(16);
    bench.begin(V4.0, V4.1);
    for source in [[0; 6], [0xff; 6], [1, 0, 0x5e, 0, 0, 1]] {
        let mut frame = v4_frame();
        frame[6..12].copy_from_slice(&source);
        assert!(!bench.forwards(&frame), "{source:?}");
        bench.writer.set_done(PORT, bench.writer.up(PORT));
        assert!(bench.forwards(&v4_frame()));
    }
}

#[test]
fn a_flow_of_an_overloaded_worker_loses_packets_rather_than_their_order() {
    if !can_load() {
        return;
    }
    let mut bench = Bench::new(16);
    let slot = bench.insert(V4.0, V4.1);
    assert!(!bench.forwards(&v4_frame()));
    bench.writer.begin(slot, PORT, 1);
    // One overloaded queue of several is enough.
    [63, 5].into_iter().for_each(|queue| bench.writer.set_overloaded((PORT, queue), true));
    bench.writer.set_overloaded((PORT, 63), false);
    let up = bench.writer.up(PORT);
    assert!(!bench.forwards(&v4_frame()) && !bench.forwards(&v4_frame()));
    assert_eq!((bench.counters().made_way, bench.writer.up(PORT)), (2, up), "nothing more went up");
    bench.writer.set_done(PORT, up);
    assert!(bench.forwards(&v4_frame()));
    assert!(!bench.forwards(&v6_frame()), "who has no entry goes up");
    assert_eq!(bench.counters().made_way, 2);
    assert!(bench.writer.is_overloaded(PORT));
    bench.writer.set_overloaded((PORT, 5), false);
    assert!(!bench.writer.is_overloaded(PORT));
}

#[test]
fn where_there_is_no_device_to_leave_by_packets_go_up() {
    if !can_load() {
        return;
    }
    let mut bench = Bench::new(16);
    let slot = bench.begin(V4.0, V4.1);
    bench.cache.set_device(OUT, Some(LOOPBACK), false).unwrap();
    assert!(bench.run(0, &v4_frame()).is_some() && bench.run(1, &v4_frame()).is_none());
    bench.cache.set_device(OUT, None, false).unwrap();
    assert!(!bench.forwards(&v4_frame()));
    assert_eq!((bench.writer.totals(slot).sent.packets, bench.cache.sent(OUT).unwrap().packets), (1, 1));
    let key = udp_key(V4.0, V4.1, PORT);
    assert_eq!(bench.writer.insert(&key, &FLOW), None, "the flow has an entry");
}

#[test]
fn slots_are_used_again_and_a_full_cache_takes_no_more() {
    if !can_load() {
        return;
    }
    let mut bench = Bench::new(2);
    let first = bench.begin(V4.0, V4.1);
    bench.begin(V6.0, V6.1);
    let other = udp_key("192.0.2.2", V4.1, PORT);
    assert_eq!((bench.writer.room(), bench.writer.insert(&other, &FLOW)), (0, None));
    bench.writer.remove(&udp_key(V4.0, V4.1, PORT), first);
    assert!(!bench.forwards(&v4_frame()) && bench.forwards(&v6_frame()));
    let again = bench.writer.insert(&other, &FLOW).unwrap();
    assert_eq!((again.index(), bench.writer.totals(again)), (first.index(), DriverTotals::default()));
    bench.writer.publish(u64::MAX);
    assert!(!bench.forwards(&v6_frame()));
}

/// Returns key, frame and treatment of a numbered flow; each flow has its own destination MAC address.
fn numbered(number: u16) -> ([u8; KEY_BYTES], Vec<u8>, DriverFlow) {
    let from = format!("192.0.{}.{}", number >> 8, number & 0xff);
    let [high, low] = number.to_be_bytes();
    let way = DriverWay { destination: MacAddr([2, 9, 9, 9, high, low]), ..WAY };
    let frame = frame_to(OWN, 0x0800, &ipv4_packet(&from, V4.1, 30));
    (udp_key(&from, V4.1, PORT), frame, DriverFlow { action: DriverAction::Send(way), ..FLOW })
}

#[test]
fn as_many_flows_are_found_as_there_is_room_for_and_those_that_were_removed_are_not() {
    if !can_load() {
        return;
    }
    const FLOWS: u16 = 2000;
    let mut bench = Bench::new(FLOWS.into());
    // Each flow is inserted and removed three times, so that words and numbers are reused.
    for round in 0..3_u16 {
        let numbers = move || (round * 500..round * 500 + FLOWS).map(numbered);
        let slots: Vec<_> = numbers().map(|(key, _, flow)| bench.writer.insert(&key, &flow)).collect();
        // One flow in thousands finds all words of its buckets in use. The worker forwards its packets.
        let there = slots.iter().flatten().count();
        assert!(there + 4 >= usize::from(FLOWS), "round {round}: {there}");
        bench.writer.set_done(PORT, bench.writer.up(PORT));
        slots.iter().flatten().for_each(|slot| bench.writer.begin(*slot, PORT, 1));
        for ((_, frame, flow), slot) in numbers().zip(&slots) {
            let DriverAction::Send(way) = flow.action else { unreachable!() };
            assert_eq!(bench.run(0, &frame), slot.map(|_| forwarded(&frame, &way)));
        }
        for ((key, frame, _), slot) in numbers().zip(slots) {
            let Some(slot) = slot else { continue };
            assert_eq!(bench.writer.remove(&key, slot).sent.packets, 1);
            assert!(!bench.forwards(&frame));
        }
        assert_eq!(bench.writer.room(), usize::from(FLOWS));
    }
}

#[test]
fn workers_that_fill_the_cache_at_once_lose_none_of_each_others_flows() {
    if !can_load() {
        return;
    }
    const WORKERS: u16 = 4;
    const FLOWS: u16 = 8;
    // Enough entries, but so few words that all flows meet in them.
    let mut bench = Bench::of_workers((WORKERS * FLOWS * 2).into(), WORKERS.into());
    let writers: Vec<_> = (0..WORKERS).map(|worker| bench.cache.writer(worker.into()).unwrap()).collect();
    let start = std::sync::Barrier::new(WORKERS.into());
    let fill = |(worker, mut writer): (u16, FlowCacheWriter)| {
        let flows: Vec<_> = (worker * FLOWS..(worker + 1) * FLOWS).map(numbered).collect();
        writer.publish(7);
        start.wait();
        let mut lost = 0;
        for round in 0..20_000 {
            let slots: Vec<_> =
                flows.iter().map(|(key, _, flow)| writer.insert(key, flow).unwrap()).collect();
            // A flow with an entry gets no second entry.
            lost += flows.iter().filter(|(key, _, flow)| writer.insert(key, flow).is_some()).count();
            if round == 20_000 - 1 || lost > 0 {
                slots.iter().for_each(|slot| writer.begin(*slot, PORT, 7));
                break;
            }
            for ((key, ..), slot) in flows.iter().zip(slots) {
                writer.remove(key, slot);
            }
        }
        (writer, lost, flows)
    };
    let mut filled: Vec<_> = std::thread::scope(|scope| {
        let fill = &fill;
        let numbered = (0..WORKERS).zip(writers);
        let each: Vec<_> = numbered.map(|own| scope.spawn(move || fill(own))).collect();
        each.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(filled.iter().map(|(_, lost, _)| lost).sum::<usize>(), 0);
    for (_, frame, flow) in filled.iter().flat_map(|(_, _, flows)| flows) {
        let DriverAction::Send(way) = flow.action else { unreachable!() };
        assert_eq!(bench.run(0, frame), Some(forwarded(frame, &way)));
    }
    // Each worker has its own generation.
    filled[0].0.publish(8);
    assert!(!bench.forwards(&numbered(0).1) && bench.forwards(&numbered(FLOWS).1));
}

#[test]
fn packets_that_go_up_are_counted_by_queue_first() {
    if !can_load() {
        return;
    }
    let bench = Bench::new(16);
    (0..5).for_each(|_| assert!(!bench.forwards(&v4_frame())));
    let counts = [0, 1, 63, 64].map(|queue| bench.writer.up_by(PORT, queue));
    assert_eq!((bench.writer.up(PORT), counts, bench.writer.up_by(PORT + 1, 0)), (5, [5, 0, 0, 0], 0));
    // Workers also record the upcalls that each queue has passed, for two epochs.
    let writer = bench.writer;
    let queue = (PORT, 63);
    (0..3).for_each(|round| writer.note_read(queue, round, 100 + round));
    assert_eq!([1, 2].map(|round| writer.noted_read(queue, round)), [101, 102]);
    assert_eq!((writer.up_by(PORT, 63), writer.noted_read((PORT, 64), 1)), (0, 0));
}

#[test]
fn what_a_program_reads_while_entries_change_hands_is_of_one_flow() {
    if !can_load() {
        return;
    }
    // One entry that two flows use in turn, and one flow with changing outputs.
    let mut bench = Bench::new(1);
    let programs = bench.programs[0].try_clone().unwrap();
    let ends = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_over = ends.clone();
    let reader = std::thread::spawn(move || {
        let mut forwarded = 0;
        while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
            for number in 0..4_u16 {
                let (_, frame, _) = numbered(number);
                let (verdict, out) = bpf_syscall::run_dry_through(programs.as_fd(), &frame).unwrap();
                if verdict == REDIRECT && out[..4] == [2, 9, 9, 9] {
                    assert_eq!(out[4..6], number.to_be_bytes(), "the way of another flow");
                    forwarded += 1;
                }
            }
        }
        forwarded
    });
    let start = now();
    for number in (0..4_u16).cycle() {
        let (key, _, flow) = numbered(number);
        let slot = bench.writer.insert(&key, &flow).unwrap();
        for _ in 0..50 {
            bench.writer.set_done(PORT, bench.writer.up(PORT));
            bench.writer.begin(slot, PORT, 1);
            bench.writer.renew(slot, &flow, 1);
        }
        bench.writer.remove(&key, slot);
        if start.elapsed() > std::time::Duration::from_secs(2) {
            break;
        }
    }
    ends.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(reader.join().unwrap() > 0, "none was forwarded meanwhile");
}

#[test]
fn a_generation_that_is_in_force_again_has_its_entries_and_a_new_one_has_none() {
    if !can_load() {
        return;
    }
    let mut bench = Bench::new(16);
    bench.begin(V4.0, V4.1);
    for generation in [5, 1, 6, 1] {
        bench.writer.publish(generation);
        assert_eq!(bench.forwards(&v4_frame()), generation == 1, "generation {generation}");
        bench.writer.set_done(PORT, bench.writer.up(PORT));
    }
}

#[test]
fn a_flow_that_a_filter_drops_is_dropped_whatever_is_under_way_and_counted() {
    if !can_load() {
        return;
    }
    let mut bench = Bench::new(16);
    let slot = bench.begin(V4.0, V4.1);
    assert!(bench.forwards(&v4_frame()));
    bench.writer.publish(2);
    assert!(!bench.forwards(&v4_frame()));
    bench.writer.renew(slot, &DriverFlow { action: DriverAction::Drop { mtu: 1500 }, ..FLOW }, 2);
    let up = bench.writer.up(PORT);
    let long = frame_to(OWN, 0x0800, &ipv4_packet(V4.0, V4.1, 1800));
    assert!(!bench.forwards(&v4_frame()) && !bench.forwards(&v4_frame()));
    assert_eq!((bench.counters().filtered, bench.writer.up(PORT)), (2, up), "none of them went up");
    let totals = bench.writer.totals(slot);
    assert_eq!((totals.sent.packets, totals.dropped.packets), (1, 2));
    assert_eq!(totals.dropped.bytes, 2 * v4_frame().len() as u64);
    assert!(!bench.forwards(&long));
    let counts = (bench.counters().filtered, bench.writer.up(PORT));
    assert_eq!(counts, (2, up + 1), "a worker refuses it before it looks at filters");
    bench.writer.publish(3);
    assert!(!bench.forwards(&v4_frame()));
    assert_eq!((bench.counters().filtered, bench.writer.up(PORT)), (2, up + 2), "the filter is gone");
}

#[test]
fn a_token_bucket_lets_its_burst_through_whoever_takes_from_it() {
    if !can_load() {
        return;
    }
    let mut bench = Bench::new(16);
    // A byte costs a second, and the bucket holds ten packets.
    let (second, length) = (1_000_000_000 * 16_u64, v4_frame().len() as u64);
    let bucket = bench.writer.police(second << 16, second * length * 10).expect("a place");
    let slot = bench.begin(V4.0, V4.1);
    bench.writer.publish(2);
    let policed = DriverFlow { policer: Some(bucket.number()), ..FLOW };
    bench.writer.renew(slot, &policed, 2);
    let forwarded = (0..6).filter(|_| bench.forwards(&v4_frame())).count();
    assert_eq!(forwarded, 6);
    // Another user takes the tokens of one packet.
    bucket.paid().fetch_add(second * length, std::sync::atomic::Ordering::Relaxed);
    let forwarded = (0..6).filter(|_| bench.forwards(&v4_frame())).count();
    assert_eq!((forwarded, bench.counters().policed), (3, 3));
    let totals = bench.writer.totals(slot);
    assert_eq!((totals.sent.packets, totals.dropped.packets, totals.dropped.bytes), (9, 3, 3 * length));
    assert_eq!(bench.cache.sent(OUT).unwrap().packets, 9, "what is dropped was not sent");
    // A released bucket is the last to be reused, and its next owner gets a full bucket.
    let place = bucket.number();
    drop(bucket);
    let others: Vec<_> = std::iter::from_fn(|| bench.writer.police(0, 0)).collect();
    assert_eq!(others.len(), 1024);
    let last = others.last().expect("one");
    assert_eq!((last.number(), last.paid().load(std::sync::atomic::Ordering::Relaxed)), (place, 0));
}

#[test]
fn padding_is_neither_charged_nor_counted() {
    if !can_load() {
        return;
    }
    let mut bench = Bench::new(16);
    let whole = short_v4_frame();
    let padded = [&whole[..], &vec![0; 60 - whole.len()]].concat();
    // A byte costs a second; the bucket holds ten packets of 45 bytes, or seven of 60 bytes.
    let (second, length) = (1_000_000_000 * 16_u64, whole.len() as u64);
    let bucket = bench.writer.police(second << 16, second * length * 10).expect("a place");
    let slot = bench.begin(V4.0, V4.1);
    bench.writer.publish(2);
    bench.writer.renew(slot, &DriverFlow { policer: Some(bucket.number()), ..FLOW }, 2);
    let forwarded = (0..12).filter(|_| bench.forwards(&padded)).count();
    assert_eq!((forwarded, bench.counters().policed), (10, 2));
    let totals = bench.writer.totals(slot);
    assert_eq!((totals.sent.bytes, totals.dropped.bytes), (10 * length, 2 * length));
    assert_eq!(bench.cache.sent(OUT).unwrap().bytes, 10 * length, "as a worker would count it");
}

/// Returns packets of the two flows, with changed bytes or bits, cut or padded.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let payload = prop_oneof![Just(4_usize), Just(18), 0..60_usize, Just(1480)];
    let whole = (any::<bool>(), payload).prop_map(|(v6, payload)| match v6 {
        true => frame_to(OWN, 0x86dd, &ipv6_packet(V6.0, V6.1, payload)),
        false => frame_to(OWN, 0x0800, &ipv4_packet(V4.0, V4.1, payload)),
    });
    let change = prop_oneof![
        3 => Just(Change::None),
        3 => (12..60_usize, 0..8_u32).prop_map(|(at, bit)| Change::Bit(at, bit)),
        2 => (20..60_usize, any::<u8>()).prop_map(|(at, to)| Change::Byte(at, to)),
        1 => Just(Change::Partial),
        1 => (1..30_usize).prop_map(Change::Pad),
        1 => (15..70_usize).prop_map(Change::Cut),
    ];
    (whole, change, any::<bool>()).prop_map(|(mut frame, change, repair)| {
        change.make(&mut frame);
        // Programs look at changes of an IPv4 header only if its checksum is correct.
        if repair && frame.len() >= 34 && frame[12..14] == [8, 0] {
            frame[24..26].fill(0);
            let sum = !ones_complement(&frame[14..34]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        frame
    })
}

#[derive(Clone, Debug)]
enum Change {
    None,
    Bit(usize, u32),
    Byte(usize, u8),
    /// Change: the sender leaves the checksum to its network card.
    Partial,
    Pad(usize),
    Cut(usize),
}

impl Change {
    fn make(&self, frame: &mut Vec<u8>) {
        match *self {
            Self::None => {}
            Self::Bit(at, bit) if at < frame.len() => frame[at] ^= 1 << bit,
            Self::Byte(at, to) if at < frame.len() => frame[at] = to,
            Self::Bit(..) | Self::Byte(..) => {}
            Self::Partial => {
                let (transport, addresses) = if frame[12] == 8 { (34, 26..34) } else { (54, 22..54) };
                let length = ((frame.len() - transport) as u16).to_be_bytes();
                let pseudo = ones_complement(&[&frame[addresses], &[0, 17], &length[..]].concat());
                frame[transport + 6..transport + 8].copy_from_slice(&pseudo.to_be_bytes());
            }
            Self::Pad(more) => frame.extend(std::iter::repeat_n(0, more)),
            Self::Cut(to) => frame.truncate(to),
        }
    }
}

#[test]
fn programs_agree_with_their_twin_on_any_frame() {
    if !can_load() {
        return;
    }
    let mut bench = Bench::new(16);
    bench.begin(V4.0, V4.1);
    bench.begin(V6.0, V6.1);
    let known = [udp_key(V4.0, V4.1, PORT), udp_key(V6.0, V6.1, PORT)];
    let bench = std::cell::RefCell::new(bench);
    let (forwarded_here, gone_up) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 6_000, failure_persistence: None, ..Default::default() });
    let outcome = runner.run(&any_frame(), |frame| {
        let mut bench = bench.borrow_mut();
        let read = read(&frame, PORT);
        let expected = read
            .filter(|read| known.contains(&read.key) && read.network_length <= usize::from(WAY.mtu))
            .map(|_| forwarded(&frame, &WAY));
        let counter = if expected.is_some() { &forwarded_here } else { &gone_up };
        counter.set(counter.get() + 1);
        let found = bench.run(0, &frame);
        prop_assert_eq!(found, expected);
        let up = bench.writer.up(PORT);
        bench.writer.set_done(PORT, up);
        Ok(())
    });
    outcome.unwrap();
    assert!(forwarded_here.get() > 500 && gone_up.get() > 500, "{forwarded_here:?} {gone_up:?}");
}
