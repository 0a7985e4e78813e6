//! The commands that measure, try out and replay, without a router of one's own.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Arguments of `replay`.
#[derive(Debug, Args)]
pub struct Replay {
    /// The file with the frames, pcap or pcapng.
    #[arg(long = "in", value_name = "FILE", required_unless_present = "crash")]
    pub input: Option<PathBuf>,
    /// The pcapng file for the frames that the router sends, one interface per port.
    #[arg(long = "out", value_name = "FILE", required_unless_present = "crash")]
    pub output: Option<PathBuf>,
    /// The configuration; its ports are taken as they are named, without their devices.
    #[arg(long, value_name = "FILE", required_unless_present = "crash")]
    pub config: Option<PathBuf>,
    /// Replay a crash capture; exit 1 unless the worker panics again.
    #[arg(long, value_name = "CAPTURE", conflicts_with_all = ["input", "output", "config", "at"])]
    pub crash: Option<PathBuf>,
    /// The port that the frames arrive at. Default: the first.
    #[arg(long, value_name = "PORT")]
    pub at: Option<String>,
}

/// Arguments of `lab`.
#[derive(Debug, Args)]
pub struct Lab {
    /// What to do.
    #[command(subcommand)]
    pub action: LabAction,
}

/// What to do with labs.
#[derive(Debug, Subcommand)]
pub enum LabAction {
    /// Build the lab of a file, and wait until it forwards.
    #[command(after_help = "Example:\n  millrace lab up examples/lab/two-hosts.toml")]
    Up {
        /// The lab's file.
        file: PathBuf,
    },
    /// Undo a lab.
    #[command(after_help = "Example:\n  millrace lab down two-hosts")]
    Down {
        /// The lab's name, or its file.
        name: String,
    },
    /// List the labs that are up, or show one.
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
    /// What to measure; `all` for everything.
    pub name: Option<String>,
    /// With `instructions`: the file with the counts to compare with. Without it `bench/instructions.json`, where that is.
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,
    /// With `instructions`: make what is counted the baseline, and print what changed.
    #[arg(long)]
    pub accept: bool,
    /// Run it by another build of Millrace as well, in turns with this one, and print the ratio of the medians of each case.
    #[arg(long, value_name = "BINARY", conflicts_with_all = ["accept", "baseline"])]
    pub against: Option<PathBuf>,
    /// With `--against`: how often each build runs it.
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Write the results to a page with plots as well, which needs nothing else.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// With `--html`: measure nothing, and take results that were printed by `--json`. The exit status is that of these results.
    #[arg(long, value_name = "FILE", requires = "html", conflicts_with_all = ["name", "against", "accept", "baseline"])]
    pub from: Option<PathBuf>,
    /// With `driver` and `levels`: measure the cases only whose names have this in them, as in `IPv6`, `flood` or `crossover`.
    #[arg(long, value_name = "TEXT")]
    pub case: Option<String>,
    /// With `memory`: what is sent.
    #[command(flatten)]
    pub workload: BenchWorkload,
}

/// What `bench memory` sends. Without any of these all that something is promised of is measured, else one case, in which
/// the rest is as their defaults say.
#[derive(Debug, Default, PartialEq, Args)]
#[command(next_help_heading = "With `memory`: one case, instead of all that something is promised of")]
pub struct BenchWorkload {
    /// Flows, as in 1, 128K or 1M. 1K by default.
    #[arg(long, value_name = "NUMBER")]
    pub flows: Option<millrace_bench::Amount>,
    /// How often each flow comes: `uniform` (the default) or `zipf`.
    #[arg(long)]
    pub distribution: Option<millrace_bench::Distribution>,
    /// The internet protocol's version: 4 (the default) or 6.
    #[arg(long, value_name = "VERSION")]
    pub ip: Option<millrace_bench::Ip>,
    /// How long packets are: 64 bytes (the default), `imix` (350 on average) or 1500.
    #[arg(long)]
    pub size: Option<millrace_bench::Size>,
    /// Routes, all with flows, as in 1, 200K or 500K. 1K by default.
    #[arg(long, value_name = "NUMBER")]
    pub routes: Option<millrace_bench::Amount>,
    /// Gates at which nothing is bound: 0 (the default) or 3.
    #[arg(long, value_name = "NUMBER")]
    pub gates: Option<millrace_bench::EmptyGates>,
    /// What packets pass: `bare` (no flow table), `flow-table` (the default) or `queues` (the flow table, and a queue for each
    /// flow).
    #[arg(long)]
    pub path: Option<millrace_bench::Stages>,
    /// Workers: 1 (the default) or 2. With 2 their rate beside that of one is measured.
    #[arg(long, value_name = "NUMBER")]
    pub workers: Option<millrace_bench::Workers>,
}
