//! Instructions and cache misses per hit, counted by valgrind's callgrind.

use std::array::from_fn;
use std::time::Duration;

use millrace_classify::{FlowAnswer, FlowTable};
use millrace_packet::FlowKey;
use millrace_units::Instant;

use super::BATCH;
use super::flows::key;
use super::lookups::{SIZES, filled};
use crate::callgrind::{callgrind_measured, name_of, part_of};
use crate::counters::Meter;
use crate::family::Family;
use crate::memory::traffic::Distribution;
use crate::testbed::process::is_installed;
use crate::{BenchError, Measurement, Options, callgrind};

/// Number of packets in the counted lookups.
const PACKETS: usize = 128 * BATCH;
/// Time limit of one run. Filling the largest table takes most of this time.
const PATIENCE: Duration = Duration::from_secs(400);

/// Number of flows in runs that count only instructions. The count does not depend on it.
const FLOWS: u32 = 1024;

/// Run for callgrind, which only fills a table and looks up packets: IP version and number of flows.
type Part = (Family, u32);
/// Name of the benchmark that the runs belong to.
const BENCH: &str = "flow-table";

/// Counts the instructions and cache misses of hits, in tables of all sizes. Without valgrind, or if the
/// binary has no function names, returns no figures; a progress line then reports the reason.
pub(super) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    if !is_installed("valgrind") {
        (options.progress)("valgrind is not installed: cache misses are not counted");
        return Ok(Vec::new());
    }
    let mut results = Vec::new();
    for (flows, size, _) in SIZES {
        for family in Family::BOTH {
            let case = format!("hit, {family}, {size} flows, uniform");
            let part: Part = (family, flows);
            let Some(counts) = callgrind::count(&options.binary, &name_of(BENCH, &part), PATIENCE)? else {
                (options.progress)("callgrind found no function names: cache misses are not counted");
                return Ok(results);
            };
            let each = counts.map(|count| count / PACKETS as f64);
            (options.progress)(&format!(
                "{case}, per packet: {:.1} instructions, misses of two simulated caches: {:.2} (first), {:.2} (last)",
                each[0], each[1], each[2]
            ));
            let measured = each.into_iter().zip(callgrind::UNITS);
            results.extend(
                measured.map(|(count, unit)| Measurement::of(&case, count, &format!("{unit}/packet"))),
            );
        }
    }
    Ok(results)
}

/// Runs only the lookups of `name`, under a tool that counts their cost. Returns `None` if `name` isn't the
/// name of such a run.
pub(crate) fn run_measured(name: &str) -> Option<Result<(), BenchError>> {
    let (family, flows): Part = part_of(BENCH, name)?;
    Some(filled(flows, |number| key(family, number)).and_then(|mut table| {
        let order = Distribution::Uniform.order(flows, 2 * PACKETS);
        let (before, counted) = order.split_at(PACKETS);
        let mut hits = 0;
        for (order, count) in [(before, false), (counted, true)] {
            for numbers in order.chunks_exact(BATCH) {
                let keys: [FlowKey; BATCH] = from_fn(|at| key(family, numbers[at]));
                let hashes: [u64; BATCH] = from_fn(|at| table.hash(&keys[at]));
                hits += if count {
                    callgrind_measured(|| look_up(&mut table, &keys, &hashes))
                } else {
                    look_up(&mut table, &keys, &hashes)
                };
            }
        }
        let problem =
            || BenchError::measurement("flow table", format!("only {hits} packets had a flow record"));
        (hits == 2 * PACKETS).then_some(()).ok_or_else(problem)
    }))
}

/// Looks up packets in batches. Each packet's flow has a record, so each lookup is a hit.
pub(crate) fn hits(family: Family, packets: u64, meter: &mut Meter) -> Result<(), BenchError> {
    let mut table = filled(FLOWS, |number| key(family, number))?;
    let order = Distribution::Uniform.order(FLOWS, packets as usize);
    let batches: Vec<[FlowKey; BATCH]> =
        order.chunks_exact(BATCH).map(|numbers| from_fn(|at| key(family, numbers[at]))).collect();
    let hits: usize = meter.measure(|| {
        let mut look_up = |keys: &[FlowKey; BATCH]| {
            let hashes = from_fn(|at| table.hash(&keys[at]));
            look_up(&mut table, keys, &hashes)
        };
        batches.iter().map(&mut look_up).sum()
    });
    all(hits, packets)
}

/// Inserts records of new flows into a table that is full of flows on probation.
pub(crate) fn new_flows(family: Family, packets: u64, meter: &mut Meter) -> Result<(), BenchError> {
    let mut table = super::table(FLOWS, FLOWS)?;
    let keys: Vec<FlowKey> = (0..packets as u32).map(|number| key(family, number)).collect();
    let mut insert = |key: &FlowKey| {
        let made = table.insert(key, table.hash(key), 0, FlowAnswer::default(), Instant::ZERO);
        while table.pop_removed().is_some() {}
        usize::from(made.is_ok())
    };
    let (before, counted) = keys.split_at(keys.len() / 2);
    before.iter().for_each(|key| _ = insert(key));
    all(meter.measure(|| counted.iter().map(insert).sum()), counted.len() as u64)
}

fn all(done: usize, packets: u64) -> Result<(), BenchError> {
    let problem =
        || BenchError::measurement("flow table", format!("only {done} of {packets} packets were processed"));
    (done as u64 == packets).then_some(()).ok_or_else(problem)
}

#[inline(always)]
fn look_up(table: &mut FlowTable, keys: &[FlowKey; BATCH], hashes: &[u64; BATCH]) -> usize {
    let mut found = [None; BATCH];
    table.find_batch(keys, hashes, &mut found);
    for index in found.iter().flatten() {
        table.touch(*index, 64, Instant::ZERO);
    }
    found.iter().flatten().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_is_parsed_from_its_name_and_finds_all_flows() {
        for family in Family::BOTH {
            let part: Part = (family, 1024);
            assert_eq!(part_of(BENCH, &name_of(BENCH, &part)), Some(part));
            run_measured(&name_of(BENCH, &part)).unwrap().unwrap();
        }
        assert!(run_measured("flow-table").is_none() && run_measured("flow-table/[]").is_none());
    }
}
