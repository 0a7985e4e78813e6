//! Random sets of flows, and the part of them that a criterion admits of those that the exact oracle accepts.
//!
//! A set has 20 to 600 requests, about twice as many as fit. In each set, the work of a packet varies by a
//! factor of 3 to 100 at each resource, and the deadline by a factor of 2 to 50. In a quarter of the sets,
//! intervals below the deadline limit the times.

use std::time::Duration;

use serde::Serialize;

use super::ledger::{Criterion, Ledger};
use super::oracle::{Oracle, OracleFlow};
use super::request::{Demand, FlowRequest, Stage};
use super::resource::Resource;
use crate::random::Random;

const FREQUENCY: u64 = 3_000_000_000;
const RATE: u64 = 10_000_000_000;
/// Parts per million of the processor that may be promised.
const CAPACITY: u32 = 900_000;
/// Work of the processor and of the link in a second.
const PER_SECOND: [f64; 2] = [FREQUENCY as f64 * 0.9, RATE as f64];
/// Shortest deadline of a set, in seconds.
const SHORTEST: f64 = 0.005;
const RESOURCES: [&str; 2] = ["processor", "link"];

/// Flows of sets of similar size that were admitted, and that the oracle accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Accepted {
    /// Number of sets.
    pub sets: u64,
    /// Flows that asked.
    pub offered: u64,
    /// Flows that the ledger admitted.
    pub admitted: u64,
    /// Flows that the oracle accepted.
    pub possible: u64,
}

impl Accepted {
    /// Returns the admitted part of the possible flows; 1 if no flow was possible.
    pub fn part(&self) -> f64 {
        if self.possible == 0 { 1.0 } else { self.admitted as f64 / self.possible as f64 }
    }

    /// Adds other sets.
    pub fn add(&mut self, other: &Self) {
        self.sets += other.sets;
        self.offered += other.offered;
        self.admitted += other.admitted;
        self.possible += other.possible;
    }
}

/// Set of requests, in the order of their arrival.
struct FlowSet {
    flows: Vec<FlowRequest>,
    /// Smallest number of flows that about fill the resources.
    size: f64,
}

/// Compares the flows admitted in `sets` random sets with the flows that the oracle accepts. The results are of
/// small sets, which about 30 flows fill, of sets of up to 100 flows, and of larger ones.
pub fn compare(criterion: Criterion, sets: u64, seed: u64) -> [Accepted; 3] {
    let mut results = [Accepted::default(); 3];
    for number in 0..sets {
        let set = flow_set(&mut Random::new(seed.wrapping_add(number.wrapping_mul(0x1_0001))));
        let class = usize::from(set.size > 30.0) + usize::from(set.size > 100.0);
        if let Some(result) = results.get_mut(class) {
            result.add(&accepted(criterion, &set.flows));
        }
    }
    results
}

fn accepted(criterion: Criterion, flows: &[FlowRequest]) -> Accepted {
    let mut ledger = Ledger::new(criterion);
    let processor = Resource::processor(FREQUENCY, CAPACITY, Duration::ZERO);
    let link = Resource { blocking: Duration::ZERO, ..Resource::link(RATE, RATE, 0) };
    for (name, resource) in RESOURCES.into_iter().zip([processor, link]) {
        // A new ledger takes every resource.
        let _ = ledger.set(name, resource);
    }
    let mut oracle = Oracle::default();
    let mut result = Accepted { sets: 1, offered: flows.len() as u64, ..Accepted::default() };
    for (number, flow) in flows.iter().enumerate() {
        result.admitted += u64::from(ledger.admit(&number.to_string(), flow).is_ok());
        result.possible += u64::from(oracle.accept(oracle_flow(flow)));
    }
    result
}

fn oracle_flow(FlowRequest { deadline, interval, stages, .. }: &FlowRequest) -> OracleFlow {
    let mut work = PER_SECOND.map(|_| f64::MIN_POSITIVE);
    for ((work, stage), capacity) in work.iter_mut().zip(stages).zip(PER_SECOND) {
        if let Demand::Own(own) = stage.demand {
            *work = own as f64 / capacity;
        }
    }
    OracleFlow { work, deadline: deadline.as_secs_f64(), interval: interval.as_secs_f64() }
}

fn flow_set(random: &mut Random) -> FlowSet {
    let size = random.scale(10.0, 300.0);
    let (span, deadlines) = (random.scale(3.0, 100.0), random.scale(2.0, 50.0));
    let means = [random.scale(1.0, 10.0), random.scale(1.0, 10.0)];
    let is_limited = random.below(4) == 0;
    let mut flows = Vec::new();
    let mut density = 0.0;
    for _ in 0..(2.0 * size) as usize {
        let deadline = SHORTEST * random.scale(1.0, deadlines);
        let work = means.map(|mean| mean * random.scale(1.0, span));
        let interval = if is_limited { random.scale(0.25, 2.0) } else { 1.0 };
        let [first, second] = work.map(f64::sqrt);
        density += (first + second).powi(2) / deadline;
        flows.push((work, deadline, deadline * interval));
    }
    // About `size` flows of the mean density fill three quarters of both resources.
    let scale = 1.5 * flows.len() as f64 / (density * size);
    let flows = flows.into_iter().map(|(work, deadline, interval)| {
        let stage = |((name, work), capacity): ((&str, f64), f64)| Stage {
            resource: name.to_owned(),
            demand: Demand::Own(((work * scale * capacity) as u64).max(1)),
        };
        let [deadline, interval] = [deadline, interval].map(Duration::from_secs_f64);
        let stages = RESOURCES.into_iter().zip(work).zip(PER_SECOND).map(stage).collect();
        FlowRequest { deadline, interval, burst: 1, stages }
    });
    FlowSet { flows: flows.collect(), size }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_admitted_almost_as_by_the_oracle() {
        let [even, balance, mix] = [Criterion::Even, Criterion::Balance, Criterion::Mix].map(|criterion| {
            let mut all = Accepted::default();
            compare(criterion, 60, 7).iter().for_each(|result| all.add(result));
            assert!(all.possible < all.offered && all.possible > all.offered / 4, "{all:?}");
            all.part()
        });
        assert!(mix >= 0.97 && balance > 0.85 && even > 0.5, "{mix} {balance} {even}");
        assert!(mix > balance && balance > even, "{mix} {balance} {even}");
    }
}
