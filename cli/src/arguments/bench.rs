//! Arguments of the commands that measure, test and replay without an existing router.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Arguments of `replay`.
#[derive(Debug, Args)]
pub struct Replay {
    /// Input capture, pcap or pcapng.
    #[arg(long = "in", value_name = "FILE", required_unless_present = "crash")]
    pub input: Option<PathBuf>,
    /// Output pcapng file, one interface per port.
    #[arg(long = "out", value_name = "FILE", required_unless_present = "crash")]
    pub output: Option<PathBuf>,
    /// Configuration; its ports are used without their devices.
    #[arg(long, value_name = "FILE", required_unless_present = "crash")]
    pub config: Option<PathBuf>,
    /// Replay a crash capture; exit 1 unless the worker panics again.
    #[arg(long, value_name = "CAPTURE", conflicts_with_all = ["input", "output", "config", "at"])]
    pub crash: Option<PathBuf>,
    /// Port that receives the frames (default: the first).
    #[arg(long, value_name = "PORT")]
    pub at: Option<String>,
}

/// Arguments of `lab`.
#[derive(Debug, Args)]
pub struct Lab {
    /// Subcommand.
    #[command(subcommand)]
    pub action: LabAction,
}

/// Subcommands of `lab`.
#[derive(Debug, Subcommand)]
pub enum LabAction {
    /// Start a lab and wait until it forwards.
    #[command(after_help = "Example:\n  millrace lab up examples/lab/two-hosts.toml")]
    Up {
        /// The lab's file.
        file: PathBuf,
    },
    /// Stop a lab and remove it.
    #[command(after_help = "Example:\n  millrace lab down two-hosts")]
    Down {
        /// The lab's name, or its file.
        name: String,
    },
    /// List running labs, or show one.
    #[command(after_help = "Example:\n  millrace lab list\n  millrace lab list two-hosts")]
    List {
        /// The lab's name, or its file.
        name: Option<String>,
    },
    /// Run a command on a host or router of a lab.
    #[command(after_help = "Example:\n  millrace lab exec two-hosts h1 -- ping -c 3 10.2.0.2")]
    Exec {
        /// The lab's name, or its file.
        name: String,
        /// The host or router.
        node: String,
        /// The command.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
}

/// Arguments of `bench`.
#[derive(Debug, Args)]
pub struct Bench {
    /// Benchmark to run, or `all`.
    pub name: Option<String>,
    /// Baseline of `instructions` (default: bench/instructions.json).
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,
    /// Accept the counts of `instructions` as baseline.
    #[arg(long)]
    pub accept: bool,
    /// Compare with another Millrace build, run alternately.
    #[arg(long, value_name = "BINARY", conflicts_with_all = ["accept", "baseline"])]
    pub against: Option<PathBuf>,
    /// Runs per build with --against.
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Write the results to a self-contained HTML page.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Read results printed by --json instead of measuring.
    #[arg(long, value_name = "FILE", requires = "html", conflicts_with_all = ["name", "against", "accept", "baseline"])]
    pub from: Option<PathBuf>,
    /// Run only cases of `driver` and `levels` whose name contains TEXT.
    #[arg(long, value_name = "TEXT")]
    pub case: Option<String>,
    /// Workload of `bench memory`.
    #[command(flatten)]
    pub workload: BenchWorkload,
}

/// What `bench memory` sends. Without any of these all that something is promised of is measured, else one case, in which
/// the rest is as their defaults say.
#[derive(Debug, Default, PartialEq, Args)]
#[command(next_help_heading = "With `memory`: measure one case instead of all promised cases")]
pub struct BenchWorkload {
    /// Flows, as in 1, 128K or 1M. 1K by default.
    #[arg(long, value_name = "NUMBER")]
    pub flows: Option<millrace_bench::Amount>,
    /// Flow distribution: uniform (default) or zipf.
    #[arg(long)]
    pub distribution: Option<millrace_bench::Distribution>,
    /// IP version: 4 (default) or 6.
    #[arg(long, value_name = "VERSION")]
    pub ip: Option<millrace_bench::Ip>,
    /// Packet size in bytes: 64 (default), imix (350 on average) or 1500.
    #[arg(long)]
    pub size: Option<millrace_bench::Size>,
    /// Number of routes, as in 1, 200K or 500K (default: 1K).
    #[arg(long, value_name = "NUMBER")]
    pub routes: Option<millrace_bench::Amount>,
    /// Empty gates: 0 (default) or 3.
    #[arg(long, value_name = "NUMBER")]
    pub gates: Option<millrace_bench::EmptyGates>,
    /// Path: bare, flow-table (default) or queues.
    #[arg(long)]
    pub path: Option<millrace_bench::Stages>,
    /// Workers: 1 (default) or 2, compared with 1.
    #[arg(long, value_name = "NUMBER")]
    pub workers: Option<millrace_bench::Workers>,
}
