//! Arguments of the commands for the whole configuration.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use millrace_controller::ConfirmTime;

/// Arguments of `apply`.
#[derive(Debug, Args)]
pub struct Apply {
    /// The configuration file; `-` for standard input.
    pub file: PathBuf,
    /// Revert after TIME unless confirmed: 30s, 10m, 1h.
    #[arg(long, value_name = "TIME")]
    pub confirm: Option<ConfirmTime>,
    /// Apply only if this revision is running unchanged.
    #[arg(long, value_name = "NUMBER")]
    pub if_revision: Option<u64>,
    /// Comment for the history.
    #[arg(long, value_name = "TEXT")]
    pub comment: Option<String>,
}

/// Arguments of `confirm`.
#[derive(Debug, Args)]
pub struct Confirm {
    /// Revision to confirm (default: the unconfirmed one).
    pub number: Option<u64>,
}

/// Arguments of `diff`.
#[derive(Debug, Args)]
pub struct Diff {
    /// Configuration file, - for standard input (default: the last applied, saved or started one).
    pub file: Option<PathBuf>,
}

/// Arguments of `history`.
#[derive(Debug, Args)]
pub struct History {
    /// Action (default: list).
    #[command(subcommand)]
    pub action: Option<HistoryAction>,
}

/// Subcommands of `history`.
#[derive(Debug, Subcommand)]
pub enum HistoryAction {
    /// List all revisions, the newest first.
    #[command(after_help = "Example:\n  millrace history list")]
    List,
    /// Print the file of a revision.
    #[command(after_help = "Example:\n  millrace history show 12 > router.toml")]
    Show {
        /// Revision number.
        number: u64,
    },
}

/// Arguments of `rollback`.
#[derive(Debug, Args)]
pub struct Rollback {
    /// Revision (default: the newest good one that is not running).
    pub number: Option<u64>,
    /// Revert after TIME unless confirmed: 30s, 10m, 1h.
    #[arg(long, value_name = "TIME")]
    pub confirm: Option<ConfirmTime>,
    /// Apply only if this revision is running unchanged.
    #[arg(long, value_name = "NUMBER")]
    pub if_revision: Option<u64>,
    /// Comment for the history.
    #[arg(long, value_name = "TEXT")]
    pub comment: Option<String>,
}

/// Arguments of `save`.
#[derive(Debug, Args)]
pub struct Save {
    /// File, - for standard output without a revision (default: the last applied, saved or started one).
    pub file: Option<PathBuf>,
    /// Overwrite even if entries of the file that were never applied or saved are lost.
    #[arg(long)]
    pub force: bool,
    /// Comment for the history (default: "saved").
    #[arg(long, value_name = "TEXT")]
    pub comment: Option<String>,
}

/// Arguments of `router`.
#[derive(Debug, Args)]
pub struct Router {
    /// Subcommand.
    #[command(subcommand)]
    pub action: RouterAction,
}

/// Subcommands of `router`.
#[derive(Debug, Subcommand)]
pub enum RouterAction {
    /// Show all settings.
    #[command(after_help = "Example:\n  millrace router show")]
    Show,
    /// Change settings atomically; an empty value resets one.
    #[command(
        after_help = "Example:\n  millrace router set icmp-rate=200 redirects=false\n  millrace router set icmp-rate="
    )]
    Set {
        /// Settings of the table [router].
        #[arg(value_name = "KEY=VALUE", required = true)]
        settings: Vec<String>,
    },
}

/// Arguments of `control-plane`.
#[derive(Debug, Args)]
pub struct ControlPlane {
    /// Subcommand.
    #[command(subcommand)]
    pub action: ControlPlaneAction,
}

/// Subcommands of `control-plane`.
#[derive(Debug, Subcommand)]
pub enum ControlPlaneAction {
    /// Show classes, rates and counters.
    #[command(after_help = "Example:\n  millrace control-plane show")]
    Show,
    /// Change rates atomically; an empty value resets one.
    #[command(
        after_help = "Example:\n  millrace control-plane set icmp=200 bgp=500\n  millrace control-plane set police=false\n  millrace control-plane set icmp="
    )]
    Set {
        /// Settings of the table [control-plane].
        #[arg(value_name = "KEY=VALUE", required = true)]
        settings: Vec<String>,
    },
}
