//! Arguments of `bench`, `replay` and `lab`, which need no running router.

use std::convert::Infallible;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use millrace_bench::{Amount, Distribution, EmptyGates, Family, Size, Stages, Workers, word};

/// Parses the name of a benchmark. Accepts `driver`, the former name of `offload`.
pub fn benchmark_name(text: &str) -> Result<String, Infallible> {
    Ok(if text == "driver" { "offload" } else { text }.to_owned())
}

/// Arguments of `replay`.
#[derive(Debug, Args)]
pub struct Replay {
    /// Capture file to replay, pcap or pcapng.
    #[arg(long = "in", value_name = "FILE", required_unless_present = "crash")]
    pub input: Option<PathBuf>,
    /// Output pcapng file with the sent frames; one interface per port.
    #[arg(long = "out", value_name = "FILE", required_unless_present = "crash")]
    pub output: Option<PathBuf>,
    /// Configuration file; the replay opens none of its devices.
    #[arg(long, value_name = "FILE", required_unless_present = "crash")]
    pub config: Option<PathBuf>,
    /// Replay a crash capture; exit 0 if the worker panics again, else 1.
    #[arg(long, value_name = "CAPTURE", conflicts_with_all = ["input", "output", "config", "at"])]
    pub crash: Option<PathBuf>,
    /// Port that receives the frames (default: the first port).
    #[arg(long, value_name = "PORT")]
    pub at: Option<String>,
}

/// Subcommands of `lab`.
#[derive(Debug, Subcommand)]
pub enum LabAction {
    /// Create a lab and wait until it forwards.
    #[command(after_help = "\
Examples:
  millrace lab up examples/lab/two-hosts.toml
  millrace lab up examples/lab/bird.toml        # with the routing daemon BIRD

Needs root, and the programs ip, nsenter and ethtool. If a step fails, the command undoes all earlier steps.")]
    Up {
        /// Lab file (TOML).
        file: PathBuf,
    },
    /// Stop and remove a lab.
    #[command(after_help = "\
Examples:
  millrace lab down two-hosts
  millrace lab down examples/lab/two-hosts.toml

Needs root. The command ends all processes in the lab's namespaces.")]
    Down {
        /// Name or file of the lab.
        name: String,
    },
    /// List running labs with nodes, devices and addresses.
    #[command(after_help = "Examples:\n  millrace lab list\n  millrace lab list two-hosts")]
    List {
        /// Name or file of the lab (default: all labs).
        name: Option<String>,
    },
    /// Run a command on a host or router of a lab.
    #[command(after_help = "\
Examples:
  millrace lab exec two-hosts h1 -- ping -c 3 10.2.0.2
  millrace lab exec two-hosts h1 -- bash

Needs root. The exit status is that of the command.")]
    Exec {
        /// Name or file of the lab.
        name: String,
        /// Host or router of the lab.
        node: String,
        /// Command with its arguments.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
}

/// Arguments of `bench`.
#[derive(Debug, Args)]
pub struct Bench {
    /// Benchmark to run, or `all` (default: list the benchmarks).
    #[arg(value_parser = benchmark_name)]
    pub name: Option<String>,
    /// Baseline file of `instructions` (default: bench/instructions.json).
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,
    /// Write the counts of `instructions` to the baseline file.
    #[arg(long)]
    pub accept: bool,
    /// Compare with another Millrace binary, in alternating runs.
    #[arg(long, value_name = "BINARY", conflicts_with_all = ["accept", "baseline"])]
    pub against: Option<PathBuf>,
    /// Runs of each binary with --against, 1 to 100.
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Write the results to FILE as an HTML page.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write a bar chart of the results to FILE as an SVG picture.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Read results that --json printed, instead of measuring; needs --html or --svg.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["name", "against", "accept", "baseline"])]
    pub from: Option<PathBuf>,
    /// Run only cases of `admission`, `offload`, `levels`, `cpu` or `services` with TEXT in their name.
    #[arg(long, value_name = "TEXT")]
    pub case: Option<String>,
    /// Workload of `bench memory`.
    #[command(flatten)]
    pub workload: BenchWorkload,
}

/// Workload of `bench memory`. With any of these options, the benchmark measures only this workload. Otherwise, it
/// measures all cases that have a target.
#[derive(Debug, Default, PartialEq, Args)]
#[command(next_help_heading = "Workload of `memory` (with any of these options, only this case runs)")]
pub struct BenchWorkload {
    /// Number of flows, 1 to 1M, such as 128K (default: 1K).
    #[arg(long, value_name = "NUMBER")]
    pub flows: Option<Amount>,
    /// Flow distribution: uniform (default) or zipf.
    #[arg(long, value_parser = word::<Distribution>)]
    pub distribution: Option<Distribution>,
    /// IP version: 4 (default) or 6.
    #[arg(long, value_name = "VERSION", value_parser = word::<Family>)]
    pub ip: Option<Family>,
    /// Packet size in bytes: 64 (default), 1500, or imix (350 on average).
    #[arg(long, value_parser = word::<Size>)]
    pub size: Option<Size>,
    /// Number of routes, 1 to 1M, such as 200K (default: 1K).
    #[arg(long, value_name = "NUMBER")]
    pub routes: Option<Amount>,
    /// Number of gates without bindings: 0 (default) or 3.
    #[arg(long, value_name = "NUMBER", value_parser = word::<EmptyGates>)]
    pub gates: Option<EmptyGates>,
    /// Path: bare (no flow table), flow-table (default) or queues (queue per flow).
    #[arg(long, value_parser = word::<Stages>)]
    pub path: Option<Stages>,
    /// Number of workers: 1 (default), or 2 (compared with 1).
    #[arg(long, value_name = "NUMBER", value_parser = word::<Workers>)]
    pub workers: Option<Workers>,
}
