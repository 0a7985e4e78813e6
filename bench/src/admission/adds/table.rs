//! Placements of workloads by each algorithm, and use of components beside the predicted use.

use std::collections::BTreeMap;

use millrace_admission::norm::Norm;
use millrace_admission::placement::{Algorithm, Placement, Problem, prices};

use super::worker::Used;
use super::{BYTE_NS, OVERHEAD, PROMISED, RINGS, ROOM, WORKERS, failed};
use crate::BenchError;

/// Name of the algorithm for arrivals, whose placements run.
pub const RUN: &str = "Balanced";

/// Placements and runs of random services on two workers.
#[derive(Clone, Debug, Default)]
pub struct AddedImpacts {
    /// Algorithms.
    pub algorithms: Vec<PlacedServices>,
    /// Mean of the largest number of services of a workload that any placement could have.
    pub bound: f64,
    /// Components, as placed by Balanced and as used.
    pub components: Vec<ComponentUse>,
    /// Packets that the runs lost.
    pub lost: u64,
    /// Runs of a worker that other work disturbed. They don't count.
    pub disturbed: usize,
}

/// Services that an algorithm places.
#[derive(Clone, Debug, Default)]
pub struct PlacedServices {
    /// Name of the algorithm.
    pub name: &'static str,
    /// Number of services of each workload on each worker.
    pub counts: Vec<Vec<usize>>,
    /// Promised share of each component, summed over the workloads.
    used: Vec<f64>,
}

/// Component of the utilisation vector.
#[derive(Clone, Debug, Default)]
pub struct ComponentUse {
    /// Name.
    pub name: String,
    /// Mean of the predicted shares.
    pub predicted: f64,
    /// Mean of the used shares.
    pub measured: f64,
    /// Greatest difference of a used share from the predicted one, in percent of the predicted one.
    pub worst: f64,
    /// Number of compared runs.
    pub runs: usize,
}

impl PlacedServices {
    /// Returns the number of services of each workload.
    #[must_use]
    pub fn sizes(&self) -> Vec<f64> {
        self.counts.iter().map(|workers| workers.iter().sum::<usize>() as f64).collect()
    }

    /// Returns the mean number of services of a workload.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.sizes().iter().sum::<f64>() / self.counts.len().max(1) as f64
    }

    /// Returns the standard deviation of the number of services, of a sample.
    #[must_use]
    pub fn deviation(&self) -> f64 {
        let mean = self.mean();
        let squares: f64 = self.sizes().iter().map(|size| (size - mean).powi(2)).sum();
        (squares / (self.counts.len().max(2) - 1) as f64).sqrt()
    }

    /// Returns the mean number of services on a worker.
    #[must_use]
    pub fn on(&self, worker: usize) -> f64 {
        let counts = self.counts.iter().filter_map(|workers| workers.get(worker));
        counts.sum::<usize>() as f64 / self.counts.len().max(1) as f64
    }

    /// Returns the mean promised share of each component.
    #[must_use]
    pub fn used(&self) -> Vec<f64> {
        self.used.iter().map(|sum| sum / self.counts.len().max(1) as f64).collect()
    }
}

/// Figures so far.
#[derive(Debug, Default)]
pub(super) struct Table {
    algorithms: BTreeMap<&'static str, PlacedServices>,
    bounds: Vec<f64>,
    components: Vec<ComponentUse>,
    lost: u64,
    runs: usize,
    disturbed: usize,
}

impl Table {
    /// Places a workload by all algorithms. Returns the placement by the algorithm for arrivals.
    pub fn place(&mut self, problem: &Problem) -> Placement {
        let equal = || vec![1.0; problem.components.len()];
        let order = (0..problem.processors.len()).collect();
        let certified = prices::place(problem);
        self.bounds.push(certified.bound as f64);
        self.note("prices", problem, &certified.placement);
        for (name, algorithm) in [
            ("Ordered", Algorithm::Ordered(order)),
            ("L2-Norm", Algorithm::LeastNorm(Norm::L2, equal())),
            ("Scan", Algorithm::Scan(Norm::Largest, equal())),
            ("reversed Scan", Algorithm::ReversedScan(Norm::Largest, equal())),
        ] {
            self.note(name, problem, &problem.place(&algorithm));
        }
        let placement = problem.place(&Algorithm::LeastNorm(Norm::Largest, equal()));
        self.note(RUN, problem, &placement);
        placement
    }

    fn note(&mut self, name: &'static str, problem: &Problem, placement: &Placement) {
        let known = self.algorithms.entry(name).or_insert_with(|| PlacedServices {
            name,
            used: vec![0.0; problem.components.len()],
            ..PlacedServices::default()
        });
        known.counts.push(placement.counts(problem));
        for (sum, part) in known.used.iter_mut().zip(placement.utilization.used()) {
            *sum += part.number();
        }
    }

    /// Compares the use of the workers with a placement. Components of disturbed workers don't count.
    pub fn ran(&mut self, problem: &Problem, placement: &Placement, used: &[Used], frequency: u64) {
        if self.components.is_empty() {
            let named = |name: &String| ComponentUse { name: name.clone(), ..ComponentUse::default() };
            self.components = problem.components.iter().map(|component| named(&component.name)).collect();
        }
        self.runs += used.len();
        self.disturbed += used.iter().filter(|one| one.is_disturbed).count();
        let quiet = used.iter().filter(|one| !one.is_disturbed);
        self.lost += quiet.map(|one| one.packets[0] - one.packets[1]).sum::<u64>();
        for (component, predicted) in self.components.iter_mut().zip(placement.utilization.used()) {
            if let Some(measured) = measured(&component.name, used, frequency) {
                component.add(predicted.number(), measured);
            }
        }
    }

    /// Returns the figures.
    ///
    /// # Errors
    /// Other work disturbed more runs than not.
    pub fn finish(mut self) -> Result<AddedImpacts, BenchError> {
        if self.runs < 2 * self.disturbed {
            return Err(failed(format!(
                "adds: other work disturbed {} of {} runs",
                self.disturbed, self.runs
            )));
        }
        for component in &mut self.components {
            let runs = component.runs.max(1) as f64;
            component.predicted /= runs;
            component.measured /= runs;
        }
        Ok(AddedImpacts {
            algorithms: self.algorithms.into_values().collect(),
            bound: self.bounds.iter().sum::<f64>() / self.bounds.len().max(1) as f64,
            components: self.components,
            lost: self.lost,
            disturbed: self.disturbed,
        })
    }
}

impl ComponentUse {
    fn add(&mut self, predicted: f64, measured: f64) {
        self.runs += 1;
        self.predicted += predicted;
        self.measured += measured;
        self.worst = self.worst.max(100.0 * (measured / predicted - 1.0).abs());
    }
}

/// Returns the used share of a component; `None` if other work disturbed a worker that uses it.
fn measured(name: &str, used: &[Used], frequency: u64) -> Option<f64> {
    let worker = WORKERS.iter().zip(used).find(|(worker, _)| name.starts_with(*worker));
    let users = worker.map_or(used, |(_, one)| std::slice::from_ref(one));
    if users.iter().any(|one| one.is_disturbed) {
        return None;
    }
    let sum = |of: &dyn Fn(&Used) -> f64| users.iter().map(of).sum::<f64>();
    let line = |way: usize| {
        sum(&|one| (one.bytes[way] as f64 + OVERHEAD * one.packets[way] as f64) / one.seconds)
            * BYTE_NS
            * 1e-9
    };
    Some(match name {
        "link.in" => line(0),
        "link.out" => line(1),
        "rings.packets" => sum(&|one| (one.packets[0] + one.packets[1]) as f64 / one.seconds) / RINGS,
        _ if name.ends_with(".memory") => sum(&|one| one.memory as f64) / ROOM,
        _ => sum(&|one| one.cycles) / (PROMISED * frequency as f64),
    })
}
