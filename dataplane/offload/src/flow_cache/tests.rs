//! Dry runs in the kernel of the programs with a flow cache.

mod agreement;
mod concurrency;

use millrace_packet::{OffloadAction, OffloadEgress, OffloadTotals, OffloadedFlow};
use millrace_units::Amount;
use millrace_wire::MacAddr;

use super::dry_runs::{Bench, FLOW, LOOPBACK, OUT, OWN, PORT, WAY};
use super::forward_twin::{forwarded, read, udp_key};
use super::{FlowSlot, KEY_BYTES};
use crate::test_support::{can_load, frame_to, ipv4_packet, ipv6_packet};

impl Bench {
    /// Inserts an entry of a UDP flow.
    fn insert(&mut self, from: &str, to: &str) -> FlowSlot {
        self.writer.insert(&udp_key(from, to, PORT), &FLOW).unwrap()
    }

    /// Inserts an entry and puts it into use, while no upcall is in flight.
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

/// Returns a frame so short that a wire pads it.
pub(super) fn short_v4_frame() -> Vec<u8> {
    frame_to(OWN, 0x0800, &ipv4_packet(V4.0, V4.1, 3))
}

pub(super) fn v6_frame() -> Vec<u8> {
    frame_to(OWN, 0x86dd, &ipv6_packet(V6.0, V6.1, 30))
}

#[test]
fn cached_flow_is_forwarded_like_the_twin_and_counted() {
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
        let totals = OffloadTotals { sent, ..OffloadTotals::default() };
        assert_eq!(bench.writer.totals(slot), totals);
        assert!(!bench.forwards(&[&frame[..35], &[frame[35] ^ 1], &frame[36..]].concat()), "another flow");
    }
    let sent = bench.cache.sent(OUT).unwrap();
    assert_eq!(sent.packets, 4);
    assert_eq!(bench.counters().cache.forwarded, 4);
}

#[test]
fn entry_is_used_in_its_generation_only() {
    if !can_load() {
        return;
    }
    let mut bench = Bench::new(16);
    let slot = bench.begin(V4.0, V4.1);
    assert!(bench.forwards(&v4_frame()));
    bench.writer.publish(2);
    assert!(!bench.forwards(&v4_frame()), "after a change");
    let elsewhere = OffloadEgress { destination: MacAddr([2, 7, 7, 7, 7, 7]), ..WAY };
    bench.writer.renew(slot, &OffloadedFlow { action: OffloadAction::Send(elsewhere), ..FLOW }, 2);
    assert!(!bench.forwards(&v4_frame()), "a packet is still up");
    bench.writer.set_done(PORT, bench.writer.up(PORT));
    assert_eq!(bench.run(0, &v4_frame()), Some(forwarded(&v4_frame(), &elsewhere)));
    bench.writer.stop(slot);
    assert!(!bench.forwards(&v4_frame()));
}

#[test]
fn no_packet_overtakes_an_upcall() {
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
    // The loop above punted two more frames.
    bench.writer.set_done(PORT, 4);
    assert!(bench.forwards(&v4_frame()));
    assert!(!bench.forwards(&v6_frame()), "packets of others go up");
    assert!(bench.forwards(&v4_frame()), "and don't hold up this one");
    // A frame above the output MTU is punted. Later frames of the flow are punted, too, until that first punt
    // is done.
    let long = frame_to(OWN, 0x0800, &ipv4_packet(V4.0, V4.1, 1600));
    assert!(!bench.forwards(&long) && !bench.forwards(&v4_frame()));
    bench.writer.set_done(PORT, bench.writer.up(PORT));
    assert!(bench.forwards(&v4_frame()));
    // The result does not depend on the number of upcalls that other flows have had since then.
    bench.writer.set_done(PORT, 3 << 30);
    assert!(bench.forwards(&v4_frame()));
}

/// Sends frames with a fragment header. The general path drops such packets, so the XDP program must not
/// forward them, even if the flow behind the fragment header has an entry.
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
    assert_eq!(bench.counters().cache.forwarded, 0);
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
    // One overloaded queue among several is enough.
    [63, 5].into_iter().for_each(|queue| bench.writer.set_overloaded((PORT, queue), true));
    bench.writer.set_overloaded((PORT, 63), false);
    let up = bench.writer.up(PORT);
    assert!(!bench.forwards(&v4_frame()) && !bench.forwards(&v4_frame()));
    assert_eq!((bench.counters().cache.made_way, bench.writer.up(PORT)), (2, up), "nothing more went up");
    bench.writer.set_done(PORT, up);
    assert!(bench.forwards(&v4_frame()));
    assert!(!bench.forwards(&v6_frame()), "who has no entry goes up");
    assert_eq!(bench.counters().cache.made_way, 2);
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
    assert_eq!((again.index(), bench.writer.totals(again)), (first.index(), OffloadTotals::default()));
    bench.writer.publish(u64::MAX);
    assert!(!bench.forwards(&v6_frame()));
}

/// Returns key, frame and treatment of a numbered flow; each flow has its own destination MAC address.
fn numbered(number: u16) -> ([u8; KEY_BYTES], Vec<u8>, OffloadedFlow) {
    let from = format!("192.0.{}.{}", number >> 8, number & 0xff);
    let [high, low] = number.to_be_bytes();
    let way = OffloadEgress { destination: MacAddr([2, 9, 9, 9, high, low]), ..WAY };
    let frame = frame_to(OWN, 0x0800, &ipv4_packet(&from, V4.1, 30));
    (udp_key(&from, V4.1, PORT), frame, OffloadedFlow { action: OffloadAction::Send(way), ..FLOW })
}

#[test]
fn flow_cache_finds_inserted_flows_up_to_its_capacity_and_no_removed_flow() {
    if !can_load() {
        return;
    }
    const FLOWS: u16 = 2000;
    let mut bench = Bench::new(FLOWS.into());
    // Each flow is inserted and removed three times, so that words and numbers are reused.
    for round in 0..3_u16 {
        let numbers = move || (round * 500..round * 500 + FLOWS).map(numbered);
        let slots: Vec<_> = numbers().map(|(key, _, flow)| bench.writer.insert(&key, &flow)).collect();
        // One flow in thousands finds no free word in its buckets. Its packets stay with the worker.
        let there = slots.iter().flatten().count();
        assert!(there + 4 >= usize::from(FLOWS), "round {round}: {there}");
        bench.writer.set_done(PORT, bench.writer.up(PORT));
        slots.iter().flatten().for_each(|slot| bench.writer.begin(*slot, PORT, 1));
        for ((_, frame, flow), slot) in numbers().zip(&slots) {
            let OffloadAction::Send(way) = flow.action else { unreachable!() };
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
fn packets_that_go_up_are_counted_by_queue_first() {
    if !can_load() {
        return;
    }
    let bench = Bench::new(16);
    (0..5).for_each(|_| assert!(!bench.forwards(&v4_frame())));
    let counts = [0, 1, 63, 64].map(|queue| bench.writer.up_by(PORT, queue));
    assert_eq!((bench.writer.up(PORT), counts, bench.writer.up_by(PORT + 1, 0)), (5, [5, 0, 0, 0], 0));
    // Workers also record the number of upcalls that each queue has passed, for two epochs.
    let writer = bench.writer;
    let queue = (PORT, 63);
    (0..3).for_each(|round| writer.note_read(queue, round, 100 + round));
    assert_eq!([1, 2].map(|round| writer.noted_read(queue, round)), [101, 102]);
    assert_eq!((writer.up_by(PORT, 63), writer.noted_read((PORT, 64), 1)), (0, 0));
}

#[test]
fn republished_generation_has_its_entries_and_a_new_generation_none() {
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
fn flow_of_a_drop_filter_is_dropped_despite_upcalls_in_flight_and_counted() {
    if !can_load() {
        return;
    }
    let mut bench = Bench::new(16);
    let slot = bench.begin(V4.0, V4.1);
    assert!(bench.forwards(&v4_frame()));
    bench.writer.publish(2);
    assert!(!bench.forwards(&v4_frame()));
    bench.writer.renew(slot, &OffloadedFlow { action: OffloadAction::Drop { mtu: 1500 }, ..FLOW }, 2);
    let up = bench.writer.up(PORT);
    let long = frame_to(OWN, 0x0800, &ipv4_packet(V4.0, V4.1, 1800));
    assert!(!bench.forwards(&v4_frame()) && !bench.forwards(&v4_frame()));
    assert_eq!((bench.counters().cache.filtered, bench.writer.up(PORT)), (2, up), "none of them went up");
    let totals = bench.writer.totals(slot);
    assert_eq!((totals.sent.packets, totals.dropped.packets), (1, 2));
    assert_eq!(totals.dropped.bytes, 2 * v4_frame().len() as u64);
    assert!(!bench.forwards(&long));
    let counts = (bench.counters().cache.filtered, bench.writer.up(PORT));
    assert_eq!(counts, (2, up + 1), "a worker refuses it before it looks at filters");
    bench.writer.publish(3);
    assert!(!bench.forwards(&v4_frame()));
    assert_eq!((bench.counters().cache.filtered, bench.writer.up(PORT)), (2, up + 2), "the filter is gone");
}

#[test]
fn token_bucket_admits_its_burst_for_all_users_together() {
    if !can_load() {
        return;
    }
    let mut bench = Bench::new(16);
    // A byte costs a second, and the bucket has a depth of ten packets.
    let (second, length) = (1_000_000_000 * 16_u64, v4_frame().len() as u64);
    let bucket = bench.writer.police(second << 16, second * length * 10).expect("a place");
    let slot = bench.begin(V4.0, V4.1);
    bench.writer.publish(2);
    let policed = OffloadedFlow { policer: Some(bucket.number()), ..FLOW };
    bench.writer.renew(slot, &policed, 2);
    let forwarded = (0..6).filter(|_| bench.forwards(&v4_frame())).count();
    assert_eq!(forwarded, 6);
    // Another user takes the tokens of one packet.
    bucket.paid().fetch_add(second * length, std::sync::atomic::Ordering::Relaxed);
    let forwarded = (0..6).filter(|_| bench.forwards(&v4_frame())).count();
    assert_eq!((forwarded, bench.counters().cache.policed), (3, 3));
    let totals = bench.writer.totals(slot);
    assert_eq!((totals.sent.packets, totals.dropped.packets, totals.dropped.bytes), (9, 3, 3 * length));
    assert_eq!(bench.cache.sent(OUT).unwrap().packets, 9, "what is dropped was not sent");
    // A released bucket is reused last, and its next owner gets a full bucket.
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
    // A byte costs a second. The bucket has a depth of ten packets of 45 bytes, or seven of 60 bytes.
    let (second, length) = (1_000_000_000 * 16_u64, whole.len() as u64);
    let bucket = bench.writer.police(second << 16, second * length * 10).expect("a place");
    let slot = bench.begin(V4.0, V4.1);
    bench.writer.publish(2);
    bench.writer.renew(slot, &OffloadedFlow { policer: Some(bucket.number()), ..FLOW }, 2);
    let forwarded = (0..12).filter(|_| bench.forwards(&padded)).count();
    assert_eq!((forwarded, bench.counters().cache.policed), (10, 2));
    let totals = bench.writer.totals(slot);
    assert_eq!((totals.sent.bytes, totals.dropped.bytes), (10 * length, 2 * length));
    assert_eq!(bench.cache.sent(OUT).unwrap().bytes, 10 * length, "as a worker would count it");
}
