//! Benchmarks, each compared with a peer if a peer exists.
//!
//! A benchmark that needs devices builds them in network namespaces of its own. It removes its setup even
//! after a failure or an interruption. Absolute figures hold only for this machine and run, so compare
//! ratios.

mod admission;
mod against;
mod api;
mod apply;
mod callgrind;
mod changes;
mod classify;
mod counters;
mod cpu;
mod error;
mod family;
mod flow_table;
mod gates;
pub mod hardware;
mod headers;
pub mod instructions;
mod interrupt;
mod levels;
mod measurement;
mod memory;
mod offload;
mod peer;
mod plugin_load;
mod plugins;
mod report;
mod route;
mod schedule;
mod services;
mod shaping;
mod statistics;
mod takeover;
mod testbed;
mod veth;

use std::path::PathBuf;

pub use admission::adds::table::{AddedImpacts, ComponentUse, PlacedServices, RUN as RUN_ALGORITHM};
pub use admission::adds::{WORKLOADS as ADDED_WORKLOADS, added_impacts};
pub use admission::solvers::{SolverAnswer, SolverAnswers, solved_workloads};
pub use against::against;
pub use cpu::gaps::table::{GapDeviations, gap_deviations};
pub use cpu::gaps::{LIMIT as GAP_LIMIT, RUNS as GAP_RUNS};
pub use error::BenchError;
pub use family::Family;
pub use measurement::{Bound, Measurement, Quantiles, Samples, Series, Subject, Timeline, shown};
pub use memory::traffic::{Distribution, Size};
pub use memory::words::{Words, word};
pub use memory::workload::{Amount, EmptyGates, Stages, Workers, Workload};
pub use report::escaped::escaped;
pub use report::{Entry, FailedBench, Machine, Platform, Report, run_all};

/// Benchmark that can be run by name.
#[derive(Clone, Copy, Debug)]
pub struct Bench {
    /// Name of the benchmark.
    pub name: &'static str,
    /// One-line summary of the measurement.
    pub summary: &'static str,
    needs_root: bool,
    run: Run,
}

type Run = fn(&mut Options<'_>) -> Result<Vec<Measurement>, BenchError>;

/// Options of a benchmark run, set by the caller.
pub struct Options<'a> {
    /// The `millrace` binary to measure.
    pub binary: PathBuf,
    /// Workload of the router in memory. `None` selects all workloads that have a promise.
    pub workload: Option<Workload>,
    /// Text that a case's name must contain, for the benchmarks `admission`, `offload`, `levels`,
    /// `cpu` and `services`. `None` selects all cases.
    pub case: Option<String>,
    /// Callback for progress lines, without newline.
    pub progress: &'a mut dyn FnMut(&str),
}

impl Options<'_> {
    /// Runs the cases of a benchmark whose names contain the requested text.
    pub(crate) fn run_cases(
        &mut self,
        bench: &'static str,
        cases: &[(&str, Run)],
    ) -> Result<Vec<Measurement>, BenchError> {
        let wanted = self.case.clone().unwrap_or_default();
        let cases: Vec<_> = cases.iter().filter(|(name, _)| name.contains(&wanted)).collect();
        if cases.is_empty() {
            return Err(BenchError::measurement(bench, format!("no case matches {wanted:?}")));
        }
        let mut results = Vec::new();
        for (_, run) in cases {
            interrupt::check()?;
            results.extend(run(self)?);
        }
        Ok(results)
    }
}

const fn bench(name: &'static str, summary: &'static str, run: Run) -> Bench {
    Bench { name, summary, needs_root: false, run }
}

const fn as_root(name: &'static str, summary: &'static str, run: Run) -> Bench {
    Bench { needs_root: true, ..bench(name, summary, run) }
}

const BENCHES: [Bench; 23] = [
    bench(
        "admission",
        "time of decisions, admitted flows beside an exact oracle, and simulated delays beside bounds",
        admission::run,
    ),
    as_root(
        "api",
        "a reserved flow, memory use and answer times during a flood of 400 TLS connections to the API",
        api::run,
    ),
    bench(
        "apply",
        "check, apply, repeated apply and rollback of 10,000 filters and 100,000 routes",
        apply::run,
    ),
    as_root(
        "veth",
        "packets per second on veth beside DPDK's testpmd and the kernel; TCP; delay and processor use when idle",
        veth::run,
    ),
    as_root(
        "offload",
        "offloaded flows beside the kernel: one, few, many, IPv4 and IPv6, with 500,000 routes, filters, a flood of exceptional packets, and bound flows",
        offload::run,
    ),
    as_root(
        "levels",
        "rates and spare time of packets from the offload to a worker, the kernel and another worker (VERA, tables 3.3 to 3.5); number of frames from which batch sending beats a socket (3.1, 3.2)",
        levels::run,
    ),
    bench(
        "changes",
        "forwarding during changes of filters and routes and floods of new flows, in the pipeline alone",
        changes::run,
    ),
    bench("classify", "lookups and changes of the filter tables, beside DPDK's ACL library", classify::run),
    bench(
        "containment",
        "a flow beside an instance that loops, traps or grows, in the pipeline alone",
        plugins::containment,
    ),
    bench(
        "hot-swap",
        "upgrades of instances under load, with state hand-over, in the pipeline alone",
        plugins::hot_swap,
    ),
    bench(
        "cpu",
        "the CPU scheduler of a worker: its cost, shares of principals, and a plain flow beside a slow plugin",
        cpu::run,
    ),
    bench("plugin-call", "cost of a plugin call, sandboxed and native", plugins::call::run),
    bench("flow-table", "lookups and changes of the flow table alone", flow_table::run),
    bench("gates", "cost of gates, filters and new flows, in the pipeline alone", gates::run),
    bench(
        "headers",
        "packets with long header chains compared with plain packets, in the pipeline alone",
        headers::run,
    ),
    bench(
        "instructions",
        "instructions of the hot paths, beside the baseline in bench/instructions.json",
        instructions::run,
    ),
    bench("memory", "time and instructions per packet in the pipeline alone", memory::run),
    bench("plugin-load", "time from the bytes of a plugin to its first packet", plugin_load::run),
    bench(
        "route",
        "lookups and updates of a million IPv4 and 200,000 IPv6 routes, beside DPDK's FIB",
        route::run,
    ),
    bench("schedule", "queues and link schedulers alone, compared with a ring", schedule::run),
    bench("services", "connections: cost, memory, and a flood of new ones", services::run),
    as_root(
        "shaping",
        "rates and shares on veth beside the kernel's HTB and TBF; voice through a full link",
        shaping::run,
    ),
    as_root(
        "takeover",
        "interruption of a flow when the router is killed, and when it restarts",
        takeover::run,
    ),
];

/// Returns all benchmarks.
pub fn list() -> &'static [Bench] {
    &BENCHES
}

/// Function that runs a part of a benchmark in a separate process. `None` if the given name is not the name
/// of one of its parts.
type Part = fn(&str) -> Option<Result<(), BenchError>>;

/// Functions that run parts of benchmarks in their own processes.
const PARTS: [Part; 6] = [
    instructions::run_measured,
    memory::run_measured,
    classify::run_measured,
    plugins::run_other_side,
    flow_table::run_measured,
    cpu::run_measured,
];

/// Runs the benchmark `name`, or a part of a benchmark.
///
/// # Errors
/// See [`BenchError`]; the benchmark has removed its setup in this case, too.
pub fn run(name: &str, options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let _watch = interrupt::Interrupt::watch();
    if let Some(result) = PARTS.iter().find_map(|part| part(name)) {
        return result.map(|()| Vec::new());
    }
    let Some(bench) = list().iter().find(|bench| bench.name == name) else {
        let known = list().iter().map(|bench| bench.name).collect::<Vec<_>>().join(", ");
        return Err(BenchError::Unknown { name: name.to_owned(), known });
    };
    run_one(bench, options)
}

fn run_one(bench: &Bench, options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    if bench.needs_root && !nix::unistd::geteuid().is_root() {
        return Err(BenchError::NotRoot { name: bench.name });
    }
    (bench.run)(options)
}
