//! Figure 1 of the paper: use of two resources by the number of admitted flows, with a fixed and with a
//! load-dependent split.
//!
//! Two resources do 1000 units of work a second. Each flow sends a packet each 100 ms, which takes 1 unit of one
//! resource and 10 units of the other.

use std::time::Duration;

use serde::Serialize;

use super::ledger::{Criterion, Ledger};
use super::request::{Demand, FlowRequest, Stage};
use super::resource::{Resource, Unit};

/// Shares per unit of work in a second, so that shares are fine enough.
const SCALE: u64 = 1_000;
const UNITS: u64 = 1_000;
const PERIOD: Duration = Duration::from_millis(100);
const NAMES: [&str; 2] = ["first", "second"];

/// State after a flow was admitted.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct FigurePoint {
    /// Number of admitted flows.
    pub flows: usize,
    /// Promised part of each resource.
    pub used: [f64; 2],
    /// Deadline of the last flow at each resource.
    pub deadlines: [Duration; 2],
}

/// Returns the points of figure 1 until a flow is refused. `work`: units of both resources, for each flow in
/// turn; the paper has `[[1, 10]]`.
pub fn figure_one(criterion: Criterion, work: &[[u64; 2]]) -> Vec<FigurePoint> {
    let mut ledger = Ledger::new(criterion);
    for name in NAMES {
        let resource =
            Resource { unit: Unit::Link, capacity: UNITS * SCALE, blocking: Duration::ZERO, weight: 1 };
        // A new ledger takes every resource.
        let _ = ledger.set(name, resource);
    }
    let mut points = Vec::new();
    for (number, work) in work.iter().cycle().enumerate() {
        let stage = |(name, units): (&str, &u64)| Stage {
            resource: name.to_owned(),
            demand: Demand::Own(units * SCALE),
        };
        let stages = NAMES.into_iter().zip(work).map(stage).collect();
        let request = FlowRequest { deadline: PERIOD, interval: PERIOD, burst: 1, stages };
        let Ok(grant) = ledger.admit(&number.to_string(), &request) else { break };
        let deadlines = NAMES.map(|name| grant.stage(name).map_or(Duration::ZERO, |stage| stage.time));
        let used = NAMES.map(|name| {
            ledger.resource(name).map_or(0.0, |(resource, free)| 1.0 - free as f64 / resource.capacity as f64)
        });
        points.push(FigurePoint { flows: number + 1, used, deadlines });
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    fn percent(point: &FigurePoint) -> [f64; 2] {
        point.used.map(|part| (part * 1e5).round() / 1e3)
    }

    #[test]
    fn fixed_split_admits_five_flows_and_load_dependent_split_nine() {
        let fixed = figure_one(Criterion::Even, &[[1, 10]]);
        assert_eq!(fixed.len(), 5);
        assert_eq!(percent(&fixed[4]), [10.0, 100.0]);
        let balanced = figure_one(Criterion::Balance, &[[1, 10]]);
        assert_eq!(balanced.len(), 9);
        assert_eq!(percent(&balanced[8]), [99.0, 99.0]);
        for point in &balanced {
            let [first, second] = point.deadlines.map(|time| time.as_secs_f64() * 1e3);
            assert!((first - 9.1).abs() < 0.05 && (second - 90.9).abs() < 0.05, "{first} {second}");
            let [first, second] = point.used;
            assert!((first - second).abs() < 1e-4, "{first} {second}");
        }
        assert_eq!(figure_one(Criterion::Mix, &[[1, 10]]).len(), 9);
    }

    #[test]
    fn flows_that_differ_need_prices() {
        let count = |criterion| figure_one(criterion, &[[1, 10], [10, 1]]).len();
        let [even, balance, mix] = [Criterion::Even, Criterion::Balance, Criterion::Mix].map(count);
        assert!(even < balance && balance < mix, "{even} {balance} {mix}");
    }
}
