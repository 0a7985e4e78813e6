//! Cost of inserting and removing flow records.

use std::time::Instant as Clock;

use millrace_classify::{FlowAnswer, FlowTable};
use millrace_units::Instant;

use super::flows::key;
use super::lookups::filled;
use super::{BATCH, REPETITIONS, table, table_with};
use crate::family::Family;
use crate::interrupt::check;
use crate::statistics::median;
use crate::{BenchError, Measurement};

const FLOWS: u32 = 1 << 20;
/// Number of new flows per repetition in a full table.
const NEW: u32 = 1 << 18;
/// Maximum number of records that one maintenance step checks.
const BUDGET: usize = 256;

pub(super) fn run() -> Result<Vec<Measurement>, BenchError> {
    let mut results = Vec::new();
    for family in Family::BOTH {
        results.extend(growth(family, true)?);
        results.extend(growth(family, false)?);
        results.extend(recycling(family)?);
    }
    Ok(results)
}

fn insert(table: &mut FlowTable, family: Family, number: u32, now: Instant) -> Result<(), BenchError> {
    let key = key(family, number);
    let made = table.insert(&key, table.hash(&key), 0, FlowAnswer::default(), now);
    made.map(|_| ()).map_err(|error| BenchError::measurement("insert", error.to_string()))
}

/// Measures the growth of a table from 1,024 to a million records. Each call's time is the minimum over all
/// repetitions. An interruption slows one repetition only, while a slow call is slow in all of them.
fn growth(family: Family, populate: bool) -> Result<Vec<Measurement>, BenchError> {
    let mut usual = Vec::new();
    let (mut inserts, mut steps) = (vec![f64::INFINITY; FLOWS as usize], Vec::new());
    for _ in 0..REPETITIONS {
        check()?;
        let mut table = table_with(1024, FLOWS, populate)?;
        let mut times = Vec::with_capacity(FLOWS as usize);
        steps.resize(FLOWS as usize / BATCH, f64::INFINITY);
        for number in 0..FLOWS {
            let start = Clock::now();
            insert(&mut table, family, number, Instant::ZERO)?;
            let time = start.elapsed().as_secs_f64() * 1e6;
            times.push(time * 1e3);
            inserts[number as usize] = time.min(inserts[number as usize]);
            if (number as usize + 1).is_multiple_of(BATCH) {
                let start = Clock::now();
                table.maintain(Instant::ZERO, BUDGET);
                let step = &mut steps[number as usize / BATCH];
                *step = (start.elapsed().as_secs_f64() * 1e6).min(*step);
            }
        }
        usual.push(median(&times));
    }
    let longest = |times: &[f64]| times.iter().copied().fold(0.0, f64::max);
    let beyond = |times: &[f64], limit: f64| times.iter().filter(|&&time| time > limit).count() as f64;
    let case = |what| {
        let memory = if populate { "preallocated" } else { "on demand" };
        format!("{what}, {family}, growing to 1 M, memory {memory}")
    };
    Ok(vec![
        Measurement::of(case("insert"), median(&usual), "ns"),
        Measurement::of(case("longest insert"), longest(&inserts), "µs"),
        Measurement::of(case("inserts above 20 µs"), beyond(&inserts, 20.0), "calls"),
        Measurement::of(case("longest maintenance"), longest(&steps), "µs"),
    ])
}

/// Measures new flows in a full table of a million records: first with all records on probation, then with
/// all established.
fn recycling(family: Family) -> Result<Vec<Measurement>, BenchError> {
    let mut flood = table(1024, FLOWS)?;
    for number in 0..FLOWS {
        insert(&mut flood, family, number, Instant::ZERO)?;
    }
    let mut established = filled(FLOWS, |number| key(family, number))?;
    let (mut on_probation, mut least_used) = (Vec::new(), Vec::new());
    let mut number = FLOWS;
    for _ in 0..REPETITIONS {
        check()?;
        on_probation.push(recycle(&mut flood, family, number, false)?);
        least_used.push(recycle(&mut established, family, number, true)?);
        number += NEW;
    }
    let measured = |what: &str, times: &[f64]| {
        Measurement::of(format!("new flow, {what}, {family}, 1 M records"), median(times), "ns")
    };
    Ok(vec![measured("during a flood", &on_probation), measured("all flows established", &least_used)])
}

/// Returns the nanoseconds per new flow in the median batch. Each new flow replaces a record; the benchmark
/// reads the ended flows. With `establish`, new flows skip probation.
fn recycle(table: &mut FlowTable, family: Family, first: u32, establish: bool) -> Result<f64, BenchError> {
    let (mut ended, mut times) = (0, Vec::with_capacity(NEW as usize / BATCH));
    let mut start = Clock::now();
    for number in first..first + NEW {
        let key = key(family, number);
        let made = table.insert(&key, table.hash(&key), 0, FlowAnswer::default(), Instant::ZERO);
        let index = made.map_err(|error| BenchError::measurement("recycle", error.to_string()))?;
        if establish {
            table.touch(index, 64, Instant::ZERO);
            table.touch(index, 64, Instant::ZERO);
        }
        if (number as usize + 1).is_multiple_of(BATCH) {
            while table.pop_removed().is_some() {
                ended += 1;
            }
            times.push(start.elapsed().as_secs_f64() * 1e9 / BATCH as f64);
            start = Clock::now();
        }
    }
    match ended == NEW {
        true => Ok(median(&times)),
        false => Err(BenchError::measurement(
            "recycle",
            format!("only {ended} of {NEW} ended flow records were returned"),
        )),
    }
}
