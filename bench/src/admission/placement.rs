//! `placement`: services on the processors of a router (VERA, chapter 4).
//!
//! | figure | workload |
//! |---|---|
//! | offline, time and distance to the bound | workloads of mix 9/45/45/1 for the IXP1200 router, about 183 services |
//! | offline, proved largest | 1,007 workloads: all mixes of table 4.5, seeds 0 to 52 |
//! | arrival, time of a decision | 10,000 placed services on a router that is 60 times as large |
//! | arrivals refused that would fit | workloads one after another, each arrival with at most two moves |

use std::time::Instant as Clock;

use millrace_admission::hardware::{Hardware, known};
use millrace_admission::part::Part;
use millrace_admission::placement::online::{self, Promises};
use millrace_admission::placement::{Problem, prices};
use millrace_admission::workload::{MIXES, Mix, Workload};

use super::failed;
use crate::interrupt::check;
use crate::statistics::extremes;
use crate::{BenchError, Bound, Measurement, Options};

/// Mix in the middle of the table.
const USUAL: Mix = [9, 45, 45, 1];
/// Workloads of each mix.
const SEEDS: u64 = 53;
/// Workloads whose time is measured.
const TIMED: u64 = 53;
/// Size of the large router, and services placed on it.
const SIZE: f64 = 60.0;
const PLACED: usize = 10_000;
/// Decisions that are measured.
const DECISIONS: usize = 1_000;
/// Workloads that arrive one service at a time, and most moves of an arrival.
const ARRIVING: u64 = 20;
const MOVES: usize = 2;
/// Promised maxima: milliseconds and percent offline, microseconds of an arrival, percent of arrivals.
const TIME: f64 = 100.0;
const DISTANCE: f64 = 1.0;
const DECISION: f64 = 1_000.0;
const REFUSED: f64 = 2.0;
/// Promised minimum: percent of workloads.
const PROVED: f64 = 95.0;

pub(super) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let hardware = Hardware::parse(known("ixp1200").unwrap_or_default()).map_err(failed)?;
    let mut results = offline(&hardware, TIMED)?;
    results.push(proved(&hardware, SEEDS, options.progress)?);
    results.push(arrival(&hardware, PLACED, DECISIONS)?);
    results.push(refused(&hardware, ARRIVING)?);
    Ok(results)
}

/// Measures the placement of all services of a workload by prices.
fn offline(hardware: &Hardware, workloads: u64) -> Result<Vec<Measurement>, BenchError> {
    let (mut times, mut distances) = (Vec::new(), Vec::new());
    for seed in 0..workloads {
        check()?;
        let problem = Workload::generate(hardware, USUAL, seed).problem;
        let start = Clock::now();
        let certified = prices::place(&problem);
        times.push(start.elapsed().as_secs_f64() * 1e3);
        distances.push(distance(certified.placement.count(), certified.bound));
    }
    let (_, farthest) = extremes(&distances);
    Ok(vec![
        Measurement::median_of("placement, offline, about 183 services", &times, "ms")
            .promising(Bound::AtMost, TIME),
        Measurement::of("placement, offline, farthest from the bound", farthest, "%")
            .promising(Bound::AtMost, DISTANCE),
    ])
}

/// Returns how far a number of services is from a bound, in percent.
fn distance(placed: usize, bound: usize) -> f64 {
    (bound.saturating_sub(placed)) as f64 * 100.0 / bound.max(1) as f64
}

/// Counts workloads of all mixes whose placement by prices is proved a largest one.
fn proved(
    hardware: &Hardware,
    seeds: u64,
    progress: &mut dyn FnMut(&str),
) -> Result<Measurement, BenchError> {
    let (mut largest, mut all) = (0, 0);
    for mix in MIXES {
        for seed in 0..seeds {
            check()?;
            let certified = prices::place(&Workload::generate(hardware, mix, seed).problem);
            largest += usize::from(certified.placement.count() == certified.bound);
            all += 1;
        }
        progress(&format!("placement, offline: {largest} of {all} workloads proved a largest one"));
    }
    let part = largest as f64 * 100.0 / all as f64;
    let measured = Measurement::of("placement, offline, proved a largest one", part, "%");
    Ok(measured.promising(Bound::AtLeast, PROVED))
}

/// Measures decisions about arrivals beside `placed` services on a large router.
fn arrival(hardware: &Hardware, placed: usize, decisions: usize) -> Result<Measurement, BenchError> {
    let mut components = hardware.components.clone();
    for component in components.iter_mut().filter(|component| component.limit != Part::UNBOUNDED) {
        component.limit = Part::at_least(component.limit.number() * SIZE);
    }
    let algorithm = online::algorithm(&components);
    let mut promises = Promises::new(&components);
    let mut count = 0;
    for seed in 0_u64.. {
        check()?;
        for candidate in Workload::generate(hardware, USUAL, seed).problem.candidates {
            count += usize::from(promises.admit(candidate, true, &algorithm, MOVES).is_ok());
        }
        if count >= placed {
            break;
        }
        if seed > 1_000 {
            return Err(failed("the router has no room for the services"));
        }
    }
    let mut times = Vec::with_capacity(decisions);
    for candidate in
        Workload::generate(hardware, USUAL, u64::MAX).problem.candidates.iter().cycle().take(decisions)
    {
        let start = Clock::now();
        let answer = promises.admit(candidate.clone(), true, &algorithm, MOVES);
        times.push(start.elapsed().as_secs_f64() * 1e6);
        if let Ok(admitted) = answer {
            promises.remove(admitted.id);
        }
    }
    times.sort_by(f64::total_cmp);
    let late = times.get(times.len() * 99 / 100).copied().unwrap_or_default();
    let measured = Measurement::of("placement, arrival with 10,000 services, 99 % of decisions", late, "us");
    Ok(measured.within(&times).promising(Bound::AtMost, DECISION))
}

/// Counts arrivals that are refused although all services would fit if each of them could move.
fn refused(hardware: &Hardware, workloads: u64) -> Result<Measurement, BenchError> {
    let (mut arrivals, mut wrong) = (0, 0);
    for seed in 1_000..1_000 + workloads {
        let problem = Workload::generate(hardware, USUAL, seed).problem;
        let algorithm = online::algorithm(&problem.components);
        let mut promises = Promises::new(&problem.components);
        for candidate in &problem.candidates {
            check()?;
            arrivals += 1;
            if promises.admit(candidate.clone(), true, &algorithm, MOVES).is_err() {
                let placed = promises.services().map(|(_, candidate, _)| candidate.clone());
                let candidates: Vec<_> = placed.chain([candidate.clone()]).collect();
                let all = candidates.len();
                // The bound counts an open case as one that would fit.
                wrong += usize::from(prices::place(&Problem { candidates, ..problem.clone() }).bound == all);
            }
        }
    }
    let part = f64::from(u32::try_from(wrong).unwrap_or(u32::MAX)) * 100.0 / f64::from(arrivals.max(1));
    let measured = Measurement::of("placement, arrivals refused that would fit", part, "%");
    Ok(measured.promising(Bound::AtMost, REFUSED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_measured() {
        let hardware = Hardware::parse(known("ixp1200").unwrap()).unwrap();
        let results = offline(&hardware, 1).unwrap();
        assert_eq!((results.len(), results[1].holds), (2, Some(true)));
        let decision = arrival(&hardware, 300, 20).unwrap();
        assert!(decision.ours > 0.0);
        assert_eq!((distance(99, 100), distance(0, 0)), (1.0, 0.0));
    }
}
