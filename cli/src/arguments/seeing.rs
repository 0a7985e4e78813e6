//! The commands that show packets: journeys, and what was dropped.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `trace`.
#[derive(Debug, Args)]
pub struct Trace {
    /// Which packets of those that come in.
    #[arg(long, value_name = "FILTER")]
    pub filter: Option<String>,
    /// How many, 1 to 4000.
    #[arg(long, short, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=4000))]
    pub count: u32,
    /// Look at one in so many of the packets that come in, on average, 1 to 1048576.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub every: u32,
    /// End after so many seconds, 1 to 3600, however many there were.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: u64,
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
