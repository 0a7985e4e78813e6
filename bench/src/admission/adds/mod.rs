//! `adds`: the impacts of services add (VERA, section 4.4.1, and table 4.6 for this machine).
//!
//! Random services of a plugin that burns its declared cycles and holds its declared memory are placed on two workers,
//! and run there: each worker is a pipeline in memory under the real clock, one after the other. Each service belongs
//! to a principal with the promised share, and gets packets of its own flow at the declared rate and size. The cycles
//! of the router itself for each call are measured first, as VERA's environment cost. Each component of the
//! utilisation vector is compared with what was used.
//!
//! Other work on the processor takes time from calls under way. A run with such a disturbance is repeated.

mod service;
pub(crate) mod table;
mod worker;

use millrace_admission::hardware::Hardware;
use millrace_admission::placement::{Placement, Problem};
use millrace_admission::random::Random;
use millrace_admission::request::{Class, Cycles, Needs, Request, Stream};

use self::table::{AddedImpacts, Table};
use self::worker::{Used, environment, quiet};
use super::failed;
use crate::cpu::frequency;
use crate::interrupt::check;
use crate::testbed::process::SessionFirst;
use crate::{BenchError, Bound, Measurement, Options};

/// Number of workloads, and services of each.
pub const WORKLOADS: u64 = 100;
const SERVICES: usize = 20;
/// Names of the workers.
const WORKERS: [&str; 2] = ["worker 0", "worker 1"];
/// Part of each worker that may be promised: core has the rest.
const PROMISED: f64 = 0.7;
/// Cycles of a call for a packet, and share of a worker: their ranges.
const CYCLES: [f64; 2] = [20_000.0, 100_000.0];
const SHARE: [f64; 2] = [0.03, 0.2];
/// Memory of a service in bytes, and length of a frame without checksum: their ranges.
const MEMORY: [f64; 2] = [65_536.0, 1_048_576.0];
const FRAME: [f64; 2] = [60.0, 1514.0];
/// Memory of a worker in bytes.
const ROOM: f64 = 16_777_216.0;
/// Nanoseconds of a byte on the link, and bytes of checksum, preamble and gap.
const BYTE_NS: f64 = 8.0;
const OVERHEAD: f64 = 24.0;
/// Packets per second that the rings between ports and workers carry, both ways together.
const RINGS: f64 = 1e6;
/// Promised maximum: difference of a measured component from the predicted one, in percent of the predicted one.
const LIMIT: f64 = 5.0;

/// Service as it is placed and run.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Load {
    /// Cycles of the plugin for a packet.
    cycles: f64,
    /// Packets per second.
    rate: f64,
    /// Length of a frame without checksum.
    frame: usize,
    /// Bytes of memory.
    memory: usize,
}

pub(super) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let mut last = 0;
    let found = added_impacts(WORKLOADS, &mut |share| {
        let tenth = (share * 10.0) as u32;
        if tenth != last {
            (options.progress)(&format!("adds: {tenth}0 % of the workloads have run"));
            last = tenth;
        }
    })?;
    for algorithm in &found.algorithms {
        let text = format!("placed of {SERVICES} services, {}: {:.2}", algorithm.name, algorithm.mean());
        (options.progress)(&format!("adds, {text}"));
    }
    (options.progress)(&format!("adds, placed at most by any placement: {:.2}", found.bound));
    let mut results = Vec::new();
    for component in &found.components {
        let [predicted, measured] = [component.predicted, component.measured].map(|share| share * 100.0);
        (options.progress)(&format!(
            "adds, {}: {predicted:.2} % predicted, {measured:.2} % used on average of {} runs",
            component.name, component.runs
        ));
        let name = format!("adds, {}, greatest difference from the predicted use", component.name);
        results.push(Measurement::of(name, component.worst, "%").promising(Bound::AtMost, LIMIT));
    }
    let lost = Measurement::of("adds, packets that admitted services lost", found.lost as f64, "packets");
    results.push(lost.promising(Bound::AtMost, 0.0));
    results.push(Measurement::of("adds, runs left out", found.disturbed as f64, "runs"));
    Ok(results)
}

/// Places and runs random workloads. `progress` receives the finished share, from 0 to 1.
///
/// # Errors
/// This machine can't be measured, or other work disturbed more runs than not: the others may be chance.
pub fn added_impacts(workloads: u64, progress: &mut dyn FnMut(f64)) -> Result<AddedImpacts, BenchError> {
    let _first = SessionFirst::begin();
    let frequency = frequency()?;
    let own = environment(frequency)?;
    let mut table = Table::default();
    for seed in 0..workloads {
        check()?;
        let loads = workload(seed, frequency);
        let problem = problem(&loads, own, frequency)?;
        let placement = table.place(&problem);
        let run = |worker| quiet(&on_worker(&problem, &placement, worker, &loads), own, frequency);
        let used = (0..WORKERS.len()).map(run).collect::<Result<Vec<Used>, BenchError>>()?;
        table.ran(&problem, &placement, &used, frequency);
        progress((seed + 1) as f64 / workloads as f64);
    }
    table.finish()
}

/// Returns random services.
fn workload(seed: u64, frequency: u64) -> Vec<Load> {
    let mut random = Random::new(seed);
    let mut between = |[least, most]: [f64; 2]| random.between(least, most);
    let load = |_| {
        let (cycles, share) = (between(CYCLES).round(), between(SHARE));
        let rate = (share * frequency as f64 / cycles).round();
        Load { cycles, rate, frame: between(FRAME) as usize, memory: between(MEMORY) as usize }
    };
    (0..SERVICES).map(load).collect()
}

/// Returns the problem of placing services on two workers.
fn problem(loads: &[Load], own: f64, frequency: u64) -> Result<Problem, BenchError> {
    let worker = |name: &str| {
        format!(
            "[[processor]]\nname = \"{name}\"\nkind = \"worker\"\nscheduling = \"dynamic\"\n\
             cycles-per-second = {:?}\nmemory-bytes = {ROOM:?}\n\
             [[path]]\nfrom = \"link\"\nto = \"{name}\"\ntransfer = \"packet\"\n\
             switches = [{{ name = \"rings\" }}]\nup = [{{}}]\ndown = [{{}}]\n",
            PROMISED * frequency as f64
        )
    };
    let text = format!(
        "name = \"two workers\"\n[packet]\nminimum = 60\nmaximum = 1518\nheader = 60\n\
         [[port]]\nname = \"link\"\ncount = 1\nbyte-ns = {BYTE_NS:?}\npacket-ns = {:?}\n\
         [[switch]]\nname = \"rings\"\npackets-per-second = {RINGS:?}\n{}",
        OVERHEAD * BYTE_NS,
        WORKERS.map(worker).concat()
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
            memory_bytes: load.memory as f64,
            ..Needs::default()
        },
        input: Stream { packets_per_second: load.rate, bytes: load.frame as f64, bytes_maximum: None },
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
    }

    #[test]
    fn every_component_is_predicted_and_used() {
        let frequency = 2_000_000_000;
        let loads = workload(0, frequency);
        let problem = problem(&loads, 0.0, frequency).unwrap();
        let mut table = Table::default();
        let placement = table.place(&problem);
        // Workers that use exactly what is declared.
        let used = |worker| {
            let placed = on_worker(&problem, &placement, worker, &loads);
            let sum = |of: fn(&Load) -> f64| placed.iter().map(of).sum::<f64>();
            let packets = sum(|load| load.rate) as u64;
            let bytes = sum(|load| load.rate * load.frame as f64) as u64;
            Used {
                cycles: sum(|load| load.rate * load.cycles),
                seconds: 1.0,
                packets: [packets; 2],
                bytes: [bytes; 2],
                memory: sum(|load| load.memory as f64) as u64,
                is_disturbed: false,
            }
        };
        let ideal: Vec<Used> = (0..2).map(used).collect();
        table.ran(&problem, &placement, &ideal, frequency);
        let found = table.finish().unwrap();
        let names: Vec<_> = found.components.iter().map(|component| component.name.as_str()).collect();
        let expected = [
            "link.in",
            "link.out",
            "rings.packets",
            "worker 0",
            "worker 0.memory",
            "worker 1",
            "worker 1.memory",
        ];
        assert_eq!(names, expected);
        for component in &found.components {
            assert!(component.predicted > 0.01 && component.worst < 0.01, "{component:?}");
        }
        // A worker that uses a tenth more of one component is noticed there alone.
        let mut table = Table::default();
        let mut wrong = ideal;
        wrong[1].memory += wrong[1].memory / 10;
        let placement = table.place(&problem);
        table.ran(&problem, &placement, &wrong, frequency);
        let far: Vec<_> =
            table.finish().unwrap().components.into_iter().filter(|found| found.worst > 1.0).collect();
        assert!(far.len() == 1 && far[0].name == "worker 1.memory" && far[0].worst > 9.0, "{far:?}");
    }
}
