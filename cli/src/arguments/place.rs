//! Arguments of `place`.

use clap::{Args, Subcommand, ValueEnum};

/// Arguments of `place`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Place {
    /// Subcommand.
    #[command(subcommand)]
    pub action: Option<PlaceAction>,
    /// Filter of the flows, or name of an instance.
    #[arg(value_name = "FLOW|INSTANCE", required = true)]
    pub flow: Option<String>,
    /// Level that forwards the flows.
    #[arg(required = true)]
    pub level: Option<PlaceLevel>,
}

/// Subcommands of `place`.
#[derive(Debug, Subcommand)]
pub enum PlaceAction {
    /// List placements, and reasons why flows are not offloaded.
    #[command(after_help = "Examples:\n  millrace place list\n  millrace place list --json")]
    List,
    /// Show the level of each flow, and the reason.
    #[command(after_help = "Examples:\n  millrace place show\n  millrace place show 'proto udp dport 5201'")]
    Show {
        /// Filter of the flows (default: all flows).
        flow: Option<String>,
        /// Maximum number of flows, 1 to 10000.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=10_000))]
        limit: u16,
    },
}

/// Level at which flows are forwarded.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum PlaceLevel {
    /// Offload as soon as possible; keep idle flows offloaded.
    #[value(aliases = ["xdp", "driver"])]
    Offload,
    /// Never offload: a worker forwards the flows.
    Worker,
    /// Remove the placement: offload active flows if possible.
    Auto,
}
