//! `deadlines`: the split of deadlines over processor and link.
//!
//! | figure | workload |
//! |---|---|
//! | time of a decision | a request beside 10,000 granted flows, which is granted and released |
//! | admitted of the oracle's | 10,000 random sets of flows; the oracle may split all granted deadlines anew |
//! | late packets, bound / worst | 10^8 packets of ten sets of flows, under a virtual clock |

use std::time::{Duration, Instant as Clock};

use millrace_admission::deadline::{
    Accepted, Criterion, Demand, FlowRequest, Ledger, Resource, SimulationSettings, Stage, compare, simulate,
};

use super::failed;
use crate::interrupt::check;
use crate::statistics::{extremes, median};
use crate::{BenchError, Bound, Measurement, Options};

/// Granted flows beside a decision.
const GRANTED: usize = 10_000;
/// Number of rounds, and decisions of a round.
const ROUNDS: usize = 101;
const DECISIONS: usize = 100;
/// Number of flow sets, which are compared a part at a time.
const SETS: u64 = 10_000;
const PART: u64 = 500;
/// Packets of a simulated set, and number of sets.
const PACKETS: u64 = 10_000_000;
const SIMULATIONS: u64 = 10;
/// Promised maximum: microseconds of a decision.
const LONGEST: f64 = 100.0;
/// Promised minimum: percent of the flows that the oracle accepts.
const ADMITTED: f64 = 98.0;
/// Promised maximum: bound divided by the longest delay, of the tightest flow of a set.
const LOOSENESS: f64 = 1.5;

/// Name of each criterion.
const CRITERIA: [(&str, Criterion); 3] = [
    ("prices", Criterion::Mix),
    ("equal free capacity", Criterion::Balance),
    ("equal times", Criterion::Even),
];

pub(super) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let mut results = Vec::new();
    for (name, criterion) in CRITERIA {
        let times = decisions(criterion, GRANTED, ROUNDS)?;
        (options.progress)(&format!("deadlines, {name}: {:.1} us a decision", median(&times)));
        let case = format!("deadlines, decision with 10,000 flows, {name}");
        results.push(Measurement::median_of(case, &times, "us").promising(Bound::AtMost, LONGEST));
    }
    for (name, criterion) in CRITERIA {
        let admitted = admitted(criterion, SETS)?;
        (options.progress)(&format!("deadlines, {name}: {admitted:.2} % of the oracle's flows"));
        let limit = (criterion == Criterion::Mix).then_some(ADMITTED);
        let measured = Measurement::of(format!("deadlines, admitted of the oracle's, {name}"), admitted, "%");
        results.push(measured.promising(Bound::AtLeast, limit));
    }
    results.extend(simulated(SIMULATIONS, PACKETS, options.progress)?);
    Ok(results)
}

/// Returns the microseconds of a decision in each round.
fn decisions(criterion: Criterion, granted: usize, rounds: usize) -> Result<Vec<f64>, BenchError> {
    let mut ledger = Ledger::new(criterion);
    let processor = Resource::processor(3_000_000_000, 900_000, Duration::from_micros(50));
    ledger.set("processor", processor).map_err(failed)?;
    ledger.set("link", Resource::link(100_000_000_000, 100_000_000_000, 1538)).map_err(failed)?;
    for number in 0..granted {
        ledger.admit(&format!("granted {number}"), &request(number)).map_err(failed)?;
    }
    let names: Vec<String> = (0..DECISIONS).map(|number| format!("new {number}")).collect();
    let mut round = |round: usize| {
        check()?;
        let start = Clock::now();
        for (number, name) in names.iter().enumerate() {
            ledger.admit(name, &request(round + 7 * number)).map_err(failed)?;
            ledger.release(name).map_err(failed)?;
        }
        Ok(start.elapsed().as_secs_f64() * 1e6 / DECISIONS as f64)
    };
    (0..rounds).map(&mut round).collect()
}

/// Returns a request for little work within 5 to 105 ms.
fn request(number: usize) -> FlowRequest {
    let number = number as u64;
    let stage = |name: &str, work| Stage { resource: name.to_owned(), demand: Demand::Own(work) };
    let deadline = Duration::from_micros(5_000 + number * 31 % 100_000);
    let stages =
        vec![stage("processor", 1_000 + number * 17 % 2_000), stage("link", 672 + number * 13 % 11_000)];
    FlowRequest { deadline, interval: deadline * 2, burst: 1, stages }
}

/// Returns the percentage of admitted flows among those that the oracle accepts.
fn admitted(criterion: Criterion, sets: u64) -> Result<f64, BenchError> {
    let mut all = Accepted::default();
    for first in (0..sets).step_by(PART as usize) {
        check()?;
        compare(criterion, PART.min(sets - first), first).iter().for_each(|part| all.add(part));
    }
    Ok(all.part() * 100.0)
}

/// Simulates sets of flows of `packets` packets: every other set is steady, and in every fourth set the packets
/// take less than the declared cycles.
fn simulated(
    sets: u64,
    packets: u64,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Measurement>, BenchError> {
    let (mut late, mut tightest, mut typical) = (0, Vec::new(), Vec::new());
    for seed in 1..=sets {
        check()?;
        let (steady, varies) = (seed % 2 == 0, seed % 4 == 1);
        let settings = SimulationSettings { packets, seed, steady, varies, rogue: false };
        let outcome = simulate(&settings).map_err(failed)?;
        let ratios = outcome.ratios();
        let [first, second] = outcome.used.map(|part| part * 100.0);
        progress(&format!(
            "deadlines, {} packets: {} late; {first:.1} % of the processor and {second:.1} % of the link in use",
            outcome.packets(),
            outcome.missed(),
        ));
        late += outcome.missed();
        tightest.push(extremes(&ratios).0);
        if settings.steady {
            typical.push(median(&ratios));
        }
    }
    let ratio =
        |case: &str, figures: &[f64]| Measurement::of(case, extremes(figures).1, "ratio").within(figures);
    Ok(vec![
        Measurement::of("deadlines, late packets", late as f64, "packets").promising(Bound::AtMost, 0.0),
        ratio("deadlines, bound / worst, tightest flow", &tightest).promising(Bound::AtMost, LOOSENESS),
        Measurement::median_of("deadlines, bound / worst, median of steady flows", &typical, "ratio"),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_measured() {
        for (_, criterion) in CRITERIA {
            let times = decisions(criterion, 100, 3).unwrap();
            assert!(times.iter().all(|time| *time > 0.0));
            assert!((50.0..=101.0).contains(&admitted(criterion, 10).unwrap()));
        }
        let results = simulated(2, 2_000, &mut |_| {}).unwrap();
        assert_eq!(results.iter().map(|result| result.holds).collect::<Vec<_>>()[0], Some(true));
        assert!(results.iter().all(|result| result.ours >= 0.0));
    }
}
