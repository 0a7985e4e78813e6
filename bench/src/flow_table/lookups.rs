//! Hits and misses.

use std::array::from_fn;
use std::time::Instant as Clock;

use millrace_classify::{FlowAnswer, FlowTable};
use millrace_memory::{HugeSlice, prefetch_slice_element, zeroable};
use millrace_packet::FlowKey;
use millrace_units::Instant;

use super::flows::{Family, Popularity, key, order, scramble};
use super::{BATCH, REPETITIONS, table};
use crate::interrupt::check;
use crate::statistics::median;
use crate::{BenchError, Bound, Measurement};

/// Packets of a repetition.
const PACKETS: usize = 1 << 19;
/// Numbers of flows, and what is promised of IPv4 hits when all flows come alike, in nanoseconds.
const SIZES: [(u32, &str, Option<f64>); 4] = [
    (1 << 10, "1 K", None),
    (1 << 17, "128 K", Some(6.0)),
    (1 << 20, "1 M", Some(12.0)),
    (1 << 22, "4 M", None),
];
/// What is promised of IPv6 hits, as a multiple of IPv4's.
const IPV6_RATIO: f64 = 1.5;

/// A table that holds `flows` flows from number 0 on.
pub(super) fn filled(flows: u32, key: impl Fn(u32) -> FlowKey) -> Result<FlowTable, BenchError> {
    let mut table = table(1024, flows)?;
    for number in 0..flows {
        let key = key(number);
        let answer = FlowAnswer { generation: number, ..FlowAnswer::default() };
        let index = table.insert(&key, table.hash(&key), 0, answer, Instant::ZERO);
        let index = index.map_err(|error| BenchError::measurement("flow table", error.to_string()))?;
        // Established, as flows with many packets are.
        table.touch(index, 64, Instant::ZERO);
        table.touch(index, 64, Instant::ZERO);
    }
    Ok(table)
}

/// What is timed of a look-up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Timed {
    /// Search and count.
    Search,
    /// Hash, search and count.
    HashAndSearch,
}

/// Nanoseconds per packet in the middle one of all batches, which interruptions by others don't disturb, and how many
/// packets had a record.
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

/// Nanoseconds per packet, in the middle batch, for one cache line that is fetched ahead and written to: what no
/// table can go below that has a line per flow.
fn one_line(lines: &mut [Line], order: &[u32]) -> f64 {
    let mut times = Vec::with_capacity(order.len() / BATCH);
    for numbers in order.chunks_exact(BATCH) {
        let places: [usize; BATCH] = from_fn(|at| scramble(u64::from(numbers[at])) as usize % lines.len());
        let start = Clock::now();
        for &place in &places {
            prefetch_slice_element(lines, place);
        }
        for &place in &places {
            lines[place].0[0] += 1;
        }
        times.push(start.elapsed().as_secs_f64());
    }
    median(&times) * 1e9 / BATCH as f64
}

zeroable! {
    #[repr(align(64))]
    struct Line([u64; 8]);
}

fn all_hits((nanoseconds, hits): (f64, usize), case: &str) -> Result<f64, BenchError> {
    let problem = || BenchError::measurement(case, format!("{hits} of {PACKETS} packets had a record"));
    (hits == PACKETS).then_some(nanoseconds).ok_or_else(problem)
}

/// All cases.
pub(super) fn run() -> Result<Vec<Measurement>, BenchError> {
    let mut results = Vec::new();
    for (flows, name, limit) in SIZES {
        results.extend(hits(flows, name, limit)?);
    }
    for (flows, name, _) in [SIZES[1], SIZES[2]] {
        results.push(misses(flows, name)?);
    }
    Ok(results)
}

/// Hits of both families in alternation, in each order; with the hash included in another case.
fn hits(flows: u32, name: &str, limit: Option<f64>) -> Result<Vec<Measurement>, BenchError> {
    let mut four = filled(flows, |number| key(Family::V4, number))?;
    let mut six = filled(flows, |number| key(Family::V6, number))?;
    let mut lines = HugeSlice::<Line>::new("lines", flows as usize)
        .map_err(|error| BenchError::measurement("memory", error.to_string()))?;
    let cases = [
        (Popularity::Uniform, Timed::Search),
        (Popularity::Zipf, Timed::Search),
        (Popularity::Uniform, Timed::HashAndSearch),
    ];
    let mut results = Vec::new();
    for (popularity, timed) in cases {
        let order = order(popularity, flows, PACKETS);
        let (mut fours, mut sixes, mut bare) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..REPETITIONS {
            check()?;
            fours
                .push(all_hits(look_up(&mut four, &order, timed, |number| key(Family::V4, number)), "IPv4")?);
            bare.push(one_line(&mut lines, &order));
            sixes.push(all_hits(look_up(&mut six, &order, timed, |number| key(Family::V6, number)), "IPv6")?);
        }
        let ratios: Vec<f64> = sixes.iter().zip(&fours).map(|(six, four)| six / four).collect();
        let hash = if timed == Timed::HashAndSearch { ", with hash" } else { "" };
        let case = |family| format!("hit, {family}, {name} flows, {popularity}{hash}");
        let mut ours = Measurement::of(case(Family::V4), median(&fours), "ns/packet")
            .beside("one line fetched", median(&bare));
        let mut ours_six = Measurement::of(case(Family::V6), median(&sixes), "ns/packet")
            .beside("IPv4", median(&fours))
            .with_ratio(median(&ratios));
        if let (Some(limit), Popularity::Uniform, Timed::Search) = (limit, popularity, timed) {
            ours = ours.promising(Bound::AtMost, limit);
            ours_six = ours_six.promising_ratio(Bound::AtMost, IPV6_RATIO);
        }
        results.extend([ours, ours_six]);
    }
    Ok(results)
}

/// Look-ups of IPv4 flows that have no record.
fn misses(flows: u32, name: &str) -> Result<Measurement, BenchError> {
    let mut table = filled(flows, |number| key(Family::V4, number))?;
    let order = order(Popularity::Uniform, flows, PACKETS);
    let mut times = Vec::new();
    for _ in 0..REPETITIONS {
        check()?;
        let (time, hits) = look_up(&mut table, &order, Timed::Search, |number| key(Family::V4, !number));
        if hits > 0 {
            return Err(BenchError::measurement("miss", format!("{hits} packets had a record")));
        }
        times.push(time);
    }
    Ok(Measurement::of(format!("miss, IPv4, {name} flows"), median(&times), "ns/packet"))
}
