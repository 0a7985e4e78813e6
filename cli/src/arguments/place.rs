//! Arguments of `place`.

use clap::{Args, Subcommand, ValueEnum};

/// Arguments of `place`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Place {
    /// Subcommand.
    #[command(subcommand)]
    pub action: Option<PlaceAction>,
    /// Filter or instance name.
    #[arg(value_name = "FLOW|INSTANCE", required = true)]
    pub flow: Option<String>,
    /// Level of the flows.
    #[arg(required = true)]
    pub level: Option<PlaceLevel>,
}

/// Subcommands of `place`.
#[derive(Debug, Subcommand)]
pub enum PlaceAction {
    /// List placements, flow counts and why flows are not in the driver.
    #[command(after_help = "Example:\n  millrace place list")]
    List,
    /// Show the level of each flow and why.
    #[command(after_help = "Example:\n  millrace place show\n  millrace place show 'proto udp dport 5201'")]
    Show {
        /// Filter (default: all flows).
        flow: Option<String>,
        /// Maximum number of flows.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=10_000))]
        limit: u16,
    },
}

/// Level of flows.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum PlaceLevel {
    /// In the driver when possible; idle flows stay there.
    Xdp,
    /// Always at a worker.
    Worker,
    /// Automatic: active flows in the driver when possible.
    Auto,
}

impl PlaceLevel {
    /// Returns the name in the interface.
    pub fn name(self) -> &'static str {
        match self {
            Self::Xdp => "xdp",
            Self::Worker => "worker",
            Self::Auto => "auto",
        }
    }
}
