//! The commands that show packets: journeys, and what was dropped.

use std::path::PathBuf;

use clap::Args;
use millrace_controller::{SnapSize, TraceTime};

/// Arguments of `trace`.
#[derive(Debug, Args)]
pub struct Trace {
    /// Trace packets that a filter matches: 'port 53 or icmp'.
    #[arg(long, value_name = "FILTER")]
    pub filter: Option<String>,
    /// End after so many packets, 1 to 4000.
    #[arg(long, short, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=4000))]
    pub count: u32,
    /// Look at one in N of the packets that come in, on average, 1 to 1048576.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub every: u32,
    /// Choose no packet after this time, 1s to 1h; journeys that have begun are still written.
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub time: TraceTime,
    /// Write a pcapng file whose comments hold the journeys; `-` is standard output.
    #[arg(long, short, value_name = "FILE", conflicts_with = "json")]
    pub write: Option<PathBuf>,
}

/// Arguments of `drops`.
#[derive(Debug, Args)]
pub struct Drops {
    /// Show only packets dropped for a reason: new_flows or new-flows.
    #[arg(long, value_name = "REASON")]
    pub reason: Option<String>,
    /// Print packets as they are dropped, until Ctrl-C or until the router stops.
    #[arg(long, short)]
    pub follow: bool,
    /// Write the packets to a pcapng file whose comments hold the reasons; `-` is standard output.
    #[arg(long, short, value_name = "FILE", conflicts_with = "json")]
    pub write: Option<PathBuf>,
}

/// Arguments of `lookup`.
#[derive(Debug, Args)]
pub struct Lookup {
    /// The packet, written as a filter without wildcards for source and destination. Without `proto` it is UDP, without
    /// `sport` and `dport` its ports are 0; it has 64 bytes.
    pub packet: String,
}

/// Arguments of `capture`.
#[derive(Debug, Args)]
pub struct Capture {
    /// Name of a port, a gate or an instance; `any` for all ports. `port:NAME`, `gate:NAME` and `instance:NAME` tell same names apart.
    pub place: String,
    /// Capture packets that a filter matches: 'port 80 or icmp'.
    #[arg(long)]
    pub filter: Option<String>,
    /// Write a pcapng file; `-` is standard output.
    #[arg(short, long, value_name = "FILE")]
    pub write: PathBuf,
    /// End after exactly so many frames; without it on Ctrl-C, or when the router stops.
    #[arg(long, short)]
    pub count: Option<u64>,
    /// Keep the first bytes of a frame: 128B, 1KiB.
    #[arg(long, value_name = "SIZE", default_value = "65535B")]
    pub snap: SnapSize,
}
