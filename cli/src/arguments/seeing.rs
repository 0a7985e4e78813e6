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
    /// How many, 1 to 4000.
    #[arg(long, short, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=4000))]
    pub count: u32,
    /// Look at one in so many of the packets that come in, on average, 1 to 1048576.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub every: u32,
    /// End after this time, 1s to 1h, however many there were.
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub time: TraceTime,
    /// Write a pcapng file whose comments hold the journeys; `-` is standard output.
    #[arg(long, short, value_name = "FILE", conflicts_with = "json")]
    pub write: Option<PathBuf>,
}

/// Arguments of `drops`.
#[derive(Debug, Args)]
pub struct Drops {
    /// Only what was dropped for this reason, by its name as it is listed.
    #[arg(long, value_name = "REASON")]
    pub reason: Option<String>,
    /// Go on with the packets that are dropped, until it is interrupted or the router ends.
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
    /// A port, a gate or an instance, by its name; `any` for all ports. `gate:NAME` says which, where names are not unique.
    pub place: String,
    /// Capture packets that a filter matches: 'port 80 or icmp'.
    #[arg(long)]
    pub filter: Option<String>,
    /// The file to write; `-` for standard output.
    #[arg(short, long, value_name = "FILE")]
    pub write: PathBuf,
    /// End after so many frames.
    #[arg(long, short)]
    pub count: Option<u64>,
    /// Keep the first bytes of a frame: 128B, 1KiB.
    #[arg(long, value_name = "SIZE", default_value = "65535B")]
    pub snap: SnapSize,
}
