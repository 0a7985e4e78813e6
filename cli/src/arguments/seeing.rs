//! Arguments of the commands that show packets: `trace`, `drops`, `lookup` and `capture`.

use std::path::PathBuf;

use clap::Args;
use millrace_controller::{SnapSize, TraceTime};

/// Arguments of `trace`.
#[derive(Debug, Args)]
pub struct Trace {
    /// Trace only packets that match, such as 'port 53 or icmp'.
    #[arg(long, value_name = "FILTER")]
    pub filter: Option<String>,
    /// Stop after N packets, 1 to 4000.
    #[arg(long, short, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=4000))]
    pub count: u32,
    /// Sample 1 in N packets on average, 1 to 1048576.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub every: u32,
    /// Stop after TIME, 1s to 1h.
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub time: TraceTime,
    /// Write pcapng with the traces as packet comments; - is standard output.
    #[arg(long, short, value_name = "FILE", conflicts_with = "json")]
    pub write: Option<PathBuf>,
}

/// Arguments of `drops`.
#[derive(Debug, Args)]
pub struct Drops {
    /// Show only drops with this reason, such as no-route.
    #[arg(long, value_name = "REASON")]
    pub reason: Option<String>,
    /// Print new drops until Ctrl-C.
    #[arg(long, short)]
    pub follow: bool,
    /// Write pcapng with the reasons as packet comments; - is standard output.
    #[arg(long, short, value_name = "FILE", conflicts_with = "json")]
    pub write: Option<PathBuf>,
}

/// Arguments of `lookup`.
#[derive(Debug, Args)]
pub struct Lookup {
    /// Packet, such as 'src 10.1.0.2 dst 10.2.0.2 in lan'; src and dst are required.
    pub packet: String,
}

/// Arguments of `capture`.
#[derive(Debug, Args)]
pub struct Capture {
    /// Name of a port, gate or instance; `any` is all ports; port:NAME if names are ambiguous.
    pub place: String,
    /// Capture only frames that match, such as 'port 80 or icmp'.
    #[arg(long)]
    pub filter: Option<String>,
    /// Write pcapng to FILE; - is standard output.
    #[arg(short, long, value_name = "FILE")]
    pub write: PathBuf,
    /// Stop after N frames (default: on Ctrl-C).
    #[arg(long, short, value_name = "N")]
    pub count: Option<u64>,
    /// Snapshot length, 1B to 65535B, such as 128B.
    #[arg(long, value_name = "SIZE", default_value = "65535B")]
    pub snap: SnapSize,
}
