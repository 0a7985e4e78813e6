//! Arguments of `place`.

use clap::{Args, Subcommand, ValueEnum};

/// Arguments of `place`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Place {
    /// What to do beside.
    #[command(subcommand)]
    pub action: Option<PlaceAction>,
    /// Which flows: a filter, or the name of an instance.
    #[arg(value_name = "FLOW|INSTANCE", required = true)]
    pub flow: Option<String>,
    /// Where they are to be treated.
    #[arg(required = true)]
    pub level: Option<PlaceLevel>,
}

/// What `place` does beside.
#[derive(Debug, Subcommand)]
pub enum PlaceAction {
    /// Show where flows are wanted, where all of them are, and why those at a worker are not in the driver.
    #[command(after_help = "Example:\n  millrace place list")]
    List,
    /// Show where each flow is, and why.
    #[command(after_help = "Example:\n  millrace place show\n  millrace place show 'proto udp dport 5201'")]
    Show {
        /// Which flows: a filter; all, if nothing is said.
        flow: Option<String>,
        /// How many at most.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=10_000))]
        limit: u16,
    },
}

/// Where flows are treated.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum PlaceLevel {
    /// In the driver, as soon as they can be there; they don't come up when they are idle.
    Xdp,
    /// At a worker, always.
    Worker,
    /// Where the router finds best: in the driver what sends and can be there.
    Auto,
}

impl PlaceLevel {
    /// As the interface names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Xdp => "xdp",
            Self::Worker => "worker",
            Self::Auto => "auto",
        }
    }
}
