//! Benchmarks, each beside a peer where a peer exists.
//!
//! Every benchmark builds its setup in its own network namespaces, has a time limit, and removes its setup,
//! even after a failure or an interruption. Absolute figures hold only for this machine and run; compare
//! ratios.

mod against;
mod api;
mod apply;
mod callgrind;
mod changes;
mod classify;
mod counters;
mod driver;
mod error;
mod flow_table;
mod gates;
mod headers;
pub mod instructions;
mod interrupt;
mod levels;
mod measurement;
mod memory;
mod peer;
mod plugin_load;
mod plugins;
mod report;
mod route;
mod schedule;
mod shaping;
mod statistics;
mod takeover;
mod testbed;
mod veth;

use std::path::PathBuf;

pub use against::against;
pub use error::BenchError;
pub use measurement::{Bound, Measurement, Quantiles, Samples, Series, Subject, Timeline, shown};
pub use memory::traffic::{Distribution, Size};
pub use memory::workload::{Amount, EmptyGates, Ip, Stages, Workers, Workload};
pub use report::{Entry, FailedBench, Machine, Platform, Report, run_all};

/// Benchmark that can be run by name.
#[derive(Clone, Copy, Debug)]
pub struct Bench {
    /// Name of the benchmark.
    pub name: &'static str,
    /// One-line summary of the measurement.
    pub summary: &'static str,
}

/// Inputs of a benchmark from its caller.
pub struct Options<'a> {
    /// The `millrace` binary to measure.
    pub binary: PathBuf,
    /// Workload of the router in memory. `None` selects all workloads that have a promise.
    pub workload: Option<Workload>,
    /// Text that a case's name must contain, for the benchmarks `driver` and `levels`. `None` selects all
    /// cases.
    pub case: Option<String>,
    /// Callback for progress lines, without newline.
    pub progress: &'a mut dyn FnMut(&str),
}

const BENCHES: [Bench; 20] = [
    Bench {
        name: "api",
        summary: "a reserved flow, memory and answers while 400 connections flood the interface over TLS",
    },
    Bench {
        name: "apply",
        summary: "a configuration with 10,000 filters and 100,000 routes checked, applied, applied again and taken back",
    },
    Bench {
        name: "veth",
        summary: "packets per second on veth beside DPDK's testpmd and the kernel; TCP; delay and processor use when idle",
    },
    Bench {
        name: "driver",
        summary: "flows in the driver beside the kernel: one, few, many, IPv4 and IPv6, over 500,000 routes, beside filters, a flood of exceptional packets and bound flows",
    },
    Bench {
        name: "levels",
        summary: "rates and spare time where packets pass from the driver to a worker, the kernel and another worker (VERA, tables 3.3 to 3.5); frames from which a batch is cheaper than a socket (3.1, 3.2)",
    },
    Bench {
        name: "changes",
        summary: "forwarding while filters and routes change and new flows flood in, in the pipeline alone",
    },
    Bench {
        name: "classify",
        summary: "lookups and changes of the filter tables, beside DPDK's ACL library",
    },
    Bench {
        name: "containment",
        summary: "a flow beside an instance that loops, traps or grows, in the pipeline alone",
    },
    Bench {
        name: "hot-swap",
        summary: "instances take each other's place under load, with what they know, in the pipeline alone",
    },
    Bench { name: "plugin-call", summary: "what a call of a plugin costs, contained and not" },
    Bench { name: "flow-table", summary: "look-ups and changes of the flow table alone" },
    Bench { name: "gates", summary: "what gates, filters and new flows cost in the pipeline alone" },
    Bench {
        name: "headers",
        summary: "packets with long chains of headers beside plain ones, in the pipeline alone",
    },
    Bench {
        name: "instructions",
        summary: "instructions of the hot paths, beside the baseline in bench/instructions.json",
    },
    Bench { name: "memory", summary: "time and instructions per packet in the pipeline alone" },
    Bench { name: "plugin-load", summary: "from the bytes of a plugin to its first packet" },
    Bench {
        name: "route",
        summary: "lookups and updates of a million IPv4 and 200,000 IPv6 routes, beside DPDK's",
    },
    Bench { name: "schedule", summary: "queues and link schedulers alone, beside a ring" },
    Bench {
        name: "shaping",
        summary: "rates and shares on veth beside the kernel's HTB and TBF; voice through a full link",
    },
    Bench {
        name: "takeover",
        summary: "how long a flow is interrupted when the router is killed, and when it is started again",
    },
];

/// Returns all benchmarks.
pub fn list() -> &'static [Bench] {
    &BENCHES
}

/// Runs the benchmark `name`.
///
/// # Errors
/// See [`BenchError`]; the benchmark has removed its setup in this case, too.
pub fn run(name: &str, options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let _watch = interrupt::Interrupt::watch();
    if let Some(result) = instructions::run_measured(name) {
        return result.map(|()| Vec::new());
    }
    if let Some(result) = memory::run_measured(name) {
        return result.map(|()| Vec::new());
    }
    if let Some(result) = classify::run_measured(name) {
        return result.map(|()| Vec::new());
    }
    if let Some(result) = plugins::run_other_side(name) {
        return result.map(|()| Vec::new());
    }
    if let Some(result) = flow_table::run_measured(name) {
        return result.map(|()| Vec::new());
    }
    let Some(bench) = list().iter().find(|bench| bench.name == name) else {
        let known = list().iter().map(|bench| bench.name).collect::<Vec<_>>().join(", ");
        return Err(BenchError::Unknown { name: name.to_owned(), known });
    };
    run_one(bench.name, options)
}

fn run_one(name: &'static str, options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    if matches!(name, "api" | "driver" | "levels" | "shaping" | "takeover" | "veth")
        && !nix::unistd::geteuid().is_root()
    {
        return Err(BenchError::NotRoot { name });
    }
    match name {
        "api" => api::run(options),
        "apply" => apply::run(options),
        "changes" => changes::run(options),
        "classify" => classify::run(options),
        "driver" => driver::run(options),
        "containment" => plugins::containment(options),
        "flow-table" => flow_table::run(options),
        "gates" => gates::run(options),
        "headers" => headers::run(options),
        "hot-swap" => plugins::hot_swap(options),
        "instructions" => instructions::run(options),
        "levels" => levels::run(options),
        "memory" => memory::run(options),
        "plugin-call" => plugins::call::run(options),
        "plugin-load" => plugin_load::run(options),
        "route" => route::run(options),
        "schedule" => schedule::run(options),
        "shaping" => shaping::run(options),
        "takeover" => takeover::run(options),
        _ => veth::run(options),
    }
}
