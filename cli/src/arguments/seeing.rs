//! Arguments of the commands that show packets: `trace`, `drops`, `lookup` and `capture`.

use std::path::PathBuf;

use clap::Args;
use millrace_controller::{SnapSize, TraceTime};

/// Arguments of `trace`.
#[derive(Debug, Args)]
pub struct Trace {
    /// Trace packets that a filter matches: 'port 53 or icmp'.
    #[arg(long, value_name = "FILTER")]
    pub filter: Option<String>,
    /// Stop after N packets, 1 to 4000.
    #[arg(long, short, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=4000))]
    pub count: u32,
    /// Sample 1 in N packets on average, 1 to 1048576.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub every: u32,
    /// Stop selecting packets after TIME, 1s to 1h.
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub time: TraceTime,
    /// Write pcapng with the trace as comments; - is standard output.
    #[arg(long, short, value_name = "FILE", conflicts_with = "json")]
    pub write: Option<PathBuf>,
}

/// Arguments of `drops`.
#[derive(Debug, Args)]
pub struct Drops {
    /// Show only this drop reason.
    #[arg(long, value_name = "REASON")]
    pub reason: Option<String>,
    /// Print drops as they happen.
    #[arg(long, short)]
    pub follow: bool,
    /// Write pcapng with the reasons as comments; - is standard output.
    #[arg(long, short, value_name = "FILE", conflicts_with = "json")]
    pub write: Option<PathBuf>,
}

/// Arguments of `lookup`.
#[derive(Debug, Args)]
pub struct Lookup {
    /// Packet as a filter with exact addresses (default: UDP, ports 0).
    pub packet: String,
}

/// Arguments of `capture`.
#[derive(Debug, Args)]
pub struct Capture {
    /// Port, gate or instance; `any` for all ports; `port:NAME` if ambiguous.
    pub place: String,
    /// Capture packets that a filter matches: 'port 80 or icmp'.
    #[arg(long)]
    pub filter: Option<String>,
    /// Write a pcapng file; `-` is standard output.
    #[arg(short, long, value_name = "FILE")]
    pub write: PathBuf,
    /// Stop after N frames.
    #[arg(long, short)]
    pub count: Option<u64>,
    /// Snapshot length: 128B, 1KiB.
    #[arg(long, value_name = "SIZE", default_value = "65535B")]
    pub snap: SnapSize,
}
