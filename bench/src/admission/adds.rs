//! `adds`: the impacts of services add (VERA, section 4.4.1, and table 4.6 for this machine).
//!
//! Random services of a plugin that burns its declared cycles are placed on two workers, and run there: each worker
//! is a pipeline in memory under the real clock, one after the other. Each service belongs to a principal with the
//! promised share, and gets packets of its own flow at the declared rate. The cycles of the router itself for each
//! call are measured first, as VERA's environment cost.
//!
//! Other work on the processor takes time from calls under way. A run with such a disturbance is repeated.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use millrace_admission::hardware::Hardware;
use millrace_admission::norm::Norm;
use millrace_admission::placement::{Algorithm, Placement, Problem, prices};
use millrace_admission::random::Random;
use millrace_admission::request::{Class, Cycles, Needs, Request, Stream};
use millrace_schedule::cpu::{CpuSchedulerKind, CpuShare};
use millrace_units::PrincipalId;
use millrace_workbench::cycles;

use super::failed;
use crate::cpu::burn::Burn;
use crate::cpu::wire::{Flow, Pace, Wire};
use crate::cpu::{drive, frequency, preemptions, settings};
use crate::family::Family;
use crate::interrupt::check;
use crate::memory::case::Case;
use crate::memory::setup::{GatesSetup, Pipeline, Setup, frame};
use crate::statistics::median;
use crate::testbed::process::SessionFirst;
use crate::{BenchError, Bound, Measurement, Options};

/// Number of workloads, and services of each.
const WORKLOADS: u64 = 100;
const SERVICES: usize = 20;
/// Part of each worker that may be promised: core has the rest.
const PROMISED: f64 = 0.7;
/// Cycles of a call for a packet, and share of a worker: their ranges.
const CYCLES: [f64; 2] = [20_000.0, 100_000.0];
const SHARE: [f64; 2] = [0.03, 0.2];
/// Arrivals of a run.
const TIME: Duration = Duration::from_millis(40);
/// Number of attempts of a run without a disturbance.
const ATTEMPTS: usize = 20;
/// Promised maximum: difference of a measured component from the predicted one, in percent of the predicted one.
const LIMIT: f64 = 5.0;
/// Names of the services of a workload.
const NAMES: [&str; SERVICES] = [
    "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "s12", "s13", "s14", "s15",
    "s16", "s17", "s18", "s19",
];
/// Bytes of a packet.
const BYTES: f64 = 64.0;

/// Service as it is placed and run.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Load {
    /// Cycles of the plugin for a packet.
    cycles: f64,
    /// Packets per second.
    rate: f64,
}

/// Use of a worker in a run.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Used {
    /// Share of the processor.
    share: f64,
    /// Packets that have arrived, and that have left.
    packets: [u64; 2],
    is_disturbed: bool,
}

pub(super) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let _first = SessionFirst::begin();
    let frequency = frequency()?;
    let own = environment(frequency)?;
    (options.progress)(&format!("adds: the router spends {own:.0} cycles beside a call"));
    let mut table = Table::default();
    for seed in 0..WORKLOADS {
        check()?;
        let loads = workload(seed, frequency);
        let problem = problem(&loads, own, frequency)?;
        let placement = table.place(&problem);
        for worker in 0..problem.processors.len() {
            let placed = on_worker(&problem, &placement, worker, &loads);
            let predicted =
                placed.iter().map(|load| load.rate * (load.cycles + own)).sum::<f64>() / frequency as f64;
            table.ran(predicted, quiet(&placed, own, frequency, TIME)?);
        }
    }
    table.report(options)
}

/// Placed services by algorithm, and runs.
#[derive(Debug, Default)]
struct Table {
    /// Numbers of placed services, of each workload.
    placed: BTreeMap<&'static str, Vec<f64>>,
    /// Difference of each run from the prediction, in percent of it.
    errors: Vec<f64>,
    predicted: Vec<f64>,
    /// Packets that a run without disturbance lost.
    lost: u64,
    disturbed: usize,
}

impl Table {
    /// Places a workload by all algorithms. Returns the placement by the algorithm for arrivals.
    fn place(&mut self, problem: &Problem) -> Placement {
        let mut note = |name, count: usize| self.placed.entry(name).or_default().push(count as f64);
        let equal = || vec![1.0; problem.components.len()];
        let order = (0..problem.processors.len()).collect();
        for (name, algorithm) in [
            ("Ordered", Algorithm::Ordered(order)),
            ("L2-Norm", Algorithm::LeastNorm(Norm::L2, equal())),
            ("Scan", Algorithm::Scan(Norm::Largest, equal())),
            ("reversed Scan", Algorithm::ReversedScan(Norm::Largest, equal())),
        ] {
            note(name, problem.place(&algorithm).count());
        }
        let certified = prices::place(problem);
        note("prices", certified.placement.count());
        note("bound", certified.bound);
        let placement = problem.place(&Algorithm::LeastNorm(Norm::Largest, equal()));
        note("Balanced", placement.count());
        placement
    }

    fn ran(&mut self, predicted: f64, used: Used) {
        if used.is_disturbed {
            self.disturbed += 1;
            return;
        }
        self.lost += used.packets[0] - used.packets[1];
        self.errors.push(100.0 * (used.share / predicted - 1.0));
        self.predicted.push(100.0 * predicted);
    }

    /// # Errors
    /// Other work disturbed more runs than not: the others may be chance.
    fn report(&self, options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
        if self.errors.len() < self.disturbed.max(1) {
            let all = self.errors.len() + self.disturbed;
            return Err(failed(format!("adds: other work disturbed {} of {all} runs", self.disturbed)));
        }
        let mut results = Vec::new();
        for (name, counts) in &self.placed {
            let mean = counts.iter().sum::<f64>() / counts.len().max(1) as f64;
            (options.progress)(&format!("adds, placed of {SERVICES} services, {name}: {mean:.2}"));
            results.push(Measurement::of(
                format!("adds, placed of {SERVICES} services, {name}"),
                mean,
                "services",
            ));
        }
        let worst = self.errors.iter().map(|error| error.abs()).fold(0.0, f64::max);
        (options.progress)(&format!(
            "adds, {} runs of a worker, {:.1} % promised on average: {:+.2} % median, {worst:.2} % at most from the \
             prediction, {} packets lost; {} runs left out, which other work disturbed",
            self.errors.len(),
            self.predicted.iter().sum::<f64>() / self.predicted.len().max(1) as f64,
            median(&self.errors),
            self.lost,
            self.disturbed,
        ));
        let error = Measurement::of("adds, greatest difference from the predicted use", worst, "%");
        let lost = Measurement::of("adds, packets that admitted services lost", self.lost as f64, "packets");
        results.push(error.promising(Bound::AtMost, LIMIT));
        results.push(lost.promising(Bound::AtMost, 0.0));
        results.push(Measurement::of("adds, runs left out", self.disturbed as f64, "runs"));
        Ok(results)
    }
}

/// Returns random services.
fn workload(seed: u64, frequency: u64) -> Vec<Load> {
    let mut random = Random::new(seed);
    let mut between = |[least, most]: [f64; 2]| random.between(least, most);
    let load = |_| {
        let (cycles, share) = (between(CYCLES).round(), between(SHARE));
        Load { cycles, rate: (share * frequency as f64 / cycles).round() }
    };
    (0..SERVICES).map(load).collect()
}

/// Returns the problem of placing services on two workers.
fn problem(loads: &[Load], own: f64, frequency: u64) -> Result<Problem, BenchError> {
    let worker = |name| {
        format!(
            "[[processor]]\nname = \"{name}\"\nkind = \"worker\"\nscheduling = \"dynamic\"\n\
             cycles-per-second = {:?}\n[[path]]\nfrom = \"ports\"\nto = \"{name}\"\ntransfer = \"packet\"\n",
            PROMISED * frequency as f64
        )
    };
    let text = format!(
        "name = \"two workers\"\n[packet]\nminimum = 64\nmaximum = 1518\nheader = 64\n\
         [provisioning]\n\"ports.in\" = \"unbounded\"\n\"ports.out\" = \"unbounded\"\n\
         [[port]]\nname = \"ports\"\ncount = 1\nbyte-ns = 0.01\n{}{}",
        worker("worker 0"),
        worker("worker 1")
    );
    let hardware = Hardware::parse(&text).map_err(failed)?;
    let request = |(number, load): (usize, &Load)| Request {
        name: format!("service {number}"),
        class: Class::PerFlow,
        port: None,
        plugin: None,
        on: Vec::new(),
        user: None,
        needs: Needs {
            cycles: [("any".to_owned(), Cycles { packet: load.cycles + own, ..Cycles::default() })].into(),
            ..Needs::default()
        },
        input: Stream { packets_per_second: load.rate, bytes: BYTES, bytes_maximum: None },
        output: None,
    };
    let requests: Vec<Request> = loads.iter().enumerate().map(request).collect();
    Problem::new(&hardware, &requests).map_err(failed)
}

/// Returns the services that a placement has put on a worker.
fn on_worker(problem: &Problem, placement: &Placement, worker: usize, loads: &[Load]) -> Vec<Load> {
    let chosen = problem.candidates.iter().zip(&placement.choices).zip(loads);
    let is_here = |candidate: &millrace_admission::impact::Candidate, choice: Option<usize>| {
        choice
            .and_then(|choice| candidate.choices.get(choice))
            .is_some_and(|choice| choice.processor == worker)
    };
    chosen.filter(|((candidate, choice), _)| is_here(candidate, **choice)).map(|(_, load)| *load).collect()
}

/// Returns the cycles of the router itself beside a call of the plugin.
fn environment(frequency: u64) -> Result<f64, BenchError> {
    let load = Load { cycles: CYCLES[0], rate: 2_000.0 };
    let beside = |_| {
        let used = quiet(&[load], 0.0, frequency, TIME)?;
        Ok(used.share * frequency as f64 / load.rate - load.cycles)
    };
    let all: Vec<f64> = (0..5).map(beside).collect::<Result<_, BenchError>>()?;
    Ok(median(&all).max(0.0))
}

/// Runs a worker until no other work disturbs it, but not more often than [`ATTEMPTS`] times.
fn quiet(loads: &[Load], own: f64, frequency: u64, time: Duration) -> Result<Used, BenchError> {
    let mut used = measure(loads, own, frequency, time)?;
    for _ in 1..ATTEMPTS {
        if !used.is_disturbed {
            break;
        }
        used = measure(loads, own, frequency, time)?;
    }
    Ok(used)
}

/// Runs services at a worker for `time`, and until their packets have left.
fn measure(loads: &[Load], own: f64, frequency: u64, time: Duration) -> Result<Used, BenchError> {
    check()?;
    let flow = |(number, load): (u32, &Load)| {
        let pace = Pace::Every(Duration::from_secs_f64(1.0 / load.rate));
        Flow { port: 0, frame: frame(Family::V4, 31, number), pace, work: Vec::new() }
    };
    let wire = Wire::new(1, (0..).zip(loads).map(flow).collect());
    let setup = Setup { gates: GatesSetup::Empty, ..Setup::default() };
    let case = Case { family: Family::V4, flows: 1 };
    let mut pipeline = Pipeline::between(case, setup, wire.input(0), wire.output())?;
    pipeline.schedule_cpu(settings(CpuSchedulerKind::default(), frequency))?;
    for ((number, load), name) in (0..).zip(loads).zip(NAMES) {
        let promised = load.rate * (load.cycles + own) / frequency as f64 * 1e6;
        pipeline.add_principal(PrincipalId(number), CpuShare::Absolute(promised.ceil() as u32))?;
        pipeline.create_instance(Arc::new(Burn { name, cycles: load.cycles as u64 }), name)?;
        let filter = format!("src 31.0.0.{}/32", number + 1);
        pipeline.bind_instance(name, "monitor", &filter, Some(PrincipalId(number)))?;
    }
    drive(&mut pipeline, Duration::from_millis(1))?;
    let (before, start) = (preemptions(), cycles());
    wire.start();
    drive(&mut pipeline, time)?;
    wire.end_arrivals();
    let elapsed = start.zip(cycles()).map_or(0, |(start, end)| end - start).max(1) as f64;
    drive(&mut pipeline, Duration::from_millis(2))?;
    let is_disturbed = preemptions() != before;
    let seen: Vec<_> = (0..loads.len()).map(|flow| wire.seen(flow)).collect();
    let of = |count: fn(&crate::cpu::wire::Seen) -> u64| seen.iter().map(count).sum();
    let used: u64 = pipeline.principals().iter().take(loads.len()).map(|(_, counts)| counts.used.0).sum();
    Ok(Used {
        share: used as f64 / elapsed,
        packets: [of(|seen| seen.sent), of(|seen| seen.left)],
        is_disturbed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placed_services_stay_within_what_is_promised() {
        let frequency = 2_000_000_000;
        let (mut table, mut full) = (Table::default(), 0);
        for seed in 0..20 {
            let loads = workload(seed, frequency);
            let problem = problem(&loads, 1_000.0, frequency).unwrap();
            let placement = table.place(&problem);
            let placed: Vec<Vec<Load>> =
                (0..2).map(|worker| on_worker(&problem, &placement, worker, &loads)).collect();
            assert_eq!(placed.iter().map(Vec::len).sum::<usize>(), placement.count());
            for loads in &placed {
                let cycles: f64 = loads.iter().map(|load| load.rate * (load.cycles + 1_000.0)).sum();
                assert!(cycles <= PROMISED * frequency as f64 * 1.000_001, "{cycles}");
                full += usize::from(cycles > 0.6 * frequency as f64);
            }
        }
        assert!(full >= 30, "{full} of 40 workers are nearly full");
        assert!(table.placed["bound"] >= table.placed["prices"]);
    }

    #[test]
    fn worker_uses_the_cycles_of_its_services() {
        let frequency = frequency().unwrap();
        let loads = [Load { cycles: 200_000.0, rate: 1_000.0 }, Load { cycles: 100_000.0, rate: 500.0 }];
        let used = measure(&loads, 20_000.0, frequency, Duration::from_millis(60)).unwrap();
        let declared = loads.iter().map(|load| load.rate * load.cycles).sum::<f64>() / frequency as f64;
        assert!(used.is_disturbed || used.share > 0.9 * declared, "{used:?}, declared {declared}");
        assert!(used.packets[0] >= 60 && used.packets[1] > 0, "{used:?}");
    }
}
