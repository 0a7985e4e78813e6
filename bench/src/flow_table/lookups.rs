//! Cost of hits and misses in the flow table.

use std::array::from_fn;
use std::time::Instant as Clock;

use millrace_classify::{FlowAnswer, FlowTable};
use millrace_memory::{HugeSlice, prefetch_slice_element, zeroable};
use millrace_packet::FlowKey;
use millrace_units::Instant;

use super::flows::{key, scramble};
use super::{BATCH, REPETITIONS, table};
use crate::family::Family;
use crate::interrupt::check;
use crate::memory::traffic::Distribution;
use crate::statistics::median;
use crate::{BenchError, Bound, Measurement};

/// Number of packets per repetition.
const PACKETS: usize = 1 << 19;
/// Sizes of the table. For each: number of flows, its name, and the promised nanoseconds of an IPv4 hit with
/// uniform popularity (`None` for no promise).
pub(super) const SIZES: [(u32, &str, Option<f64>); 4] = [
    (1 << 10, "1 K", None),
    (1 << 17, "128 K", Some(6.0)),
    (1 << 20, "1 M", Some(12.0)),
    (1 << 22, "4 M", None),
];
/// Number of packets between the prefetch of a cache line and its use, in the measurement of [`Bare`] lines.
const BARE_AHEAD: usize = 16;
/// Promised maximum: time of an IPv6 hit, as a multiple of the time of an IPv4 hit.
const IPV6_RATIO: f64 = 1.5;

/// Returns a table that holds `flows` flows, from number 0 on.
pub(super) fn filled(flows: u32, key: impl Fn(u32) -> FlowKey) -> Result<FlowTable, BenchError> {
    let mut table = table(1024, flows)?;
    for number in 0..flows {
        let key = key(number);
        let answer = FlowAnswer { generation: number, ..FlowAnswer::default() };
        let index = table.insert(&key, table.hash(&key), 0, answer, Instant::ZERO);
        let index = index.map_err(|error| BenchError::measurement("flow table", error.to_string()))?;
        // Two packets establish the flow.
        table.touch(index, 64, Instant::ZERO);
        table.touch(index, 64, Instant::ZERO);
    }
    Ok(table)
}

/// Part of a lookup that is timed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Timed {
    /// Search for the record, and count of the packet.
    Search,
    /// Hash of the flow key, search for the record, and count of the packet.
    HashAndSearch,
}

/// Returns the nanoseconds per packet in the median batch, and the number of packets with a record.
/// Interruptions don't affect the median.
pub(super) fn look_up(
    table: &mut FlowTable,
    order: &[u32],
    timed: Timed,
    key: impl Fn(u32) -> FlowKey,
) -> (f64, usize) {
    let (mut times, mut hits) = (Vec::with_capacity(order.len() / BATCH), 0);
    let mut found = [None; BATCH];
    for numbers in order.chunks_exact(BATCH) {
        let keys: [FlowKey; BATCH] = from_fn(|at| key(numbers[at]));
        let mut hashes: [u64; BATCH] = from_fn(|at| table.hash(&keys[at]));
        let start = Clock::now();
        if timed == Timed::HashAndSearch {
            hashes = from_fn(|at| table.hash(&keys[at]));
        }
        table.find_batch(&keys, &hashes, &mut found);
        for index in found.iter().flatten() {
            table.touch(*index, 64, Instant::ZERO);
        }
        times.push(start.elapsed().as_secs_f64());
        hits += found.iter().flatten().count();
    }
    (median(&times) * 1e9 / BATCH as f64, hits)
}

/// The two cache lines that a hit uses, without a table: a bucket line, which eight flows share, and a record
/// line.
struct Bare {
    buckets: HugeSlice<Line>,
    records: HugeSlice<Line>,
}

impl Bare {
    fn new(flows: u32) -> Result<Self, BenchError> {
        let lines = |length| {
            HugeSlice::<Line>::new("lines", length)
                .map_err(|error| BenchError::measurement("memory", error.to_string()))
        };
        Ok(Self { buckets: lines(flows as usize / 8)?, records: lines(flows as usize)? })
    }

    /// Returns the nanoseconds per packet for access to both lines only, in the median batch. For each
    /// packet, both lines are prefetched, the bucket line is read, and the record line is written. There is
    /// no search or comparison.
    fn time(&mut self, order: &[u32]) -> f64 {
        let Self { buckets, records } = self;
        let mut times = Vec::with_capacity(order.len() / BATCH);
        let mut sum = 0_u64;
        for numbers in order.chunks_exact(BATCH) {
            let random: [u64; BATCH] = from_fn(|at| scramble(u64::from(numbers[at])));
            let buckets_of = random.map(|random| (random >> 32) as usize % buckets.len());
            let records_of = random.map(|random| random as u32 as usize % records.len());
            let start = Clock::now();
            for at in 0..BATCH + 2 * BARE_AHEAD {
                if let Some(&bucket) = buckets_of.get(at) {
                    prefetch_slice_element(buckets, bucket);
                }
                if let Some(&bucket) = buckets_of.get(at.wrapping_sub(BARE_AHEAD)) {
                    sum = sum.wrapping_add(buckets[bucket].0[0]);
                    prefetch_slice_element(records, records_of[at - BARE_AHEAD]);
                }
                if let Some(&record) = records_of.get(at.wrapping_sub(2 * BARE_AHEAD)) {
                    records[record].0[0] += 1;
                }
            }
            times.push(start.elapsed().as_secs_f64());
        }
        std::hint::black_box(sum);
        median(&times) * 1e9 / BATCH as f64
    }
}

zeroable! {
    #[repr(align(64))]
    struct Line([u64; 8]);
}

fn all_hits((nanoseconds, hits): (f64, usize), family: Family, flows: &str) -> Result<f64, BenchError> {
    let case = format!("{family}, {flows} flows");
    let problem =
        || BenchError::measurement(&case, format!("only {hits} of {PACKETS} packets had a flow record"));
    (hits == PACKETS).then_some(nanoseconds).ok_or_else(problem)
}

/// Runs all cases of this part of the benchmark.
pub(super) fn run() -> Result<Vec<Measurement>, BenchError> {
    let mut results = Vec::new();
    for (flows, name, limit) in SIZES {
        results.extend(hits(flows, name, limit)?);
    }
    for (flows, name, _) in [SIZES[1], SIZES[2]] {
        for family in Family::BOTH {
            results.push(misses(family, flows, name)?);
        }
    }
    Ok(results)
}

/// Measures hits of IPv4 and IPv6 alternately, for each popularity of flows. A further case includes the
/// hash.
fn hits(flows: u32, name: &str, limit: Option<f64>) -> Result<Vec<Measurement>, BenchError> {
    let mut four = filled(flows, |number| key(Family::V4, number))?;
    let mut six = filled(flows, |number| key(Family::V6, number))?;
    let mut lines = Bare::new(flows)?;
    let cases = [
        (Distribution::Uniform, Timed::Search),
        (Distribution::Zipf, Timed::Search),
        (Distribution::Uniform, Timed::HashAndSearch),
    ];
    let mut results = Vec::new();
    for (distribution, timed) in cases {
        let order = distribution.order(flows, PACKETS);
        let (mut fours, mut sixes, mut bare) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..REPETITIONS {
            check()?;
            let found = look_up(&mut four, &order, timed, |number| key(Family::V4, number));
            fours.push(all_hits(found, Family::V4, name)?);
            bare.push(lines.time(&order));
            let found = look_up(&mut six, &order, timed, |number| key(Family::V6, number));
            sixes.push(all_hits(found, Family::V6, name)?);
        }
        let hash = if timed == Timed::HashAndSearch { ", with hash" } else { "" };
        let case = |family| format!("hit, {family}, {name} flows, {distribution}{hash}");
        let limit = limit.filter(|_| (distribution, timed) == (Distribution::Uniform, Timed::Search));
        results.extend([
            Measurement::median_of(case(Family::V4), &fours, "ns/packet")
                .beside_runs("two cache lines only", &bare)
                .promising(Bound::AtMost, limit),
            Measurement::median_of(case(Family::V6), &sixes, "ns/packet")
                .beside_pairs("IPv4", &sixes, &fours)
                .promising_ratio(Bound::AtMost, limit.map(|_| IPV6_RATIO)),
        ]);
    }
    Ok(results)
}

/// Measures lookups of flows without a record.
fn misses(family: Family, flows: u32, name: &str) -> Result<Measurement, BenchError> {
    let mut table = filled(flows, |number| key(family, number))?;
    let order = Distribution::Uniform.order(flows, PACKETS);
    let mut times = Vec::new();
    for _ in 0..REPETITIONS {
        check()?;
        let (time, hits) = look_up(&mut table, &order, Timed::Search, |number| key(family, !number));
        if hits > 0 {
            return Err(BenchError::measurement(
                "miss",
                format!("{hits} packets had a flow record, although all flows are unknown"),
            ));
        }
        times.push(time);
    }
    Ok(Measurement::of(format!("miss, {family}, {name} flows"), median(&times), "ns/packet"))
}
