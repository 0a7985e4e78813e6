//! Arguments of the commands about the whole configuration.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use millrace_controller::ConfirmTime;

/// Arguments of `apply`.
#[derive(Debug, Args)]
pub struct Apply {
    /// The configuration file; `-` for standard input.
    pub file: PathBuf,
    /// Go back by itself after this time, unless `millrace confirm` comes before: 30s, 10m, 1h.
    #[arg(long, value_name = "TIME")]
    pub confirm: Option<ConfirmTime>,
    /// Only where this revision runs, as it was applied or saved: else it is refused with what runs, and who changed it.
    #[arg(long, value_name = "NUMBER")]
    pub if_revision: Option<u64>,
    /// Why, for the history.
    #[arg(long, value_name = "TEXT")]
    pub comment: Option<String>,
}

/// Arguments of `confirm`.
#[derive(Debug, Args)]
pub struct Confirm {
    /// The revision, as `apply` says it: where another one waits, nothing is confirmed. Without it, what waits.
    pub number: Option<u64>,
}

/// Arguments of `diff`.
#[derive(Debug, Args)]
pub struct Diff {
    /// The configuration file, `-` for standard input; without it, what was applied or saved last, or what the router was started with.
    pub file: Option<PathBuf>,
}

/// Arguments of `history`.
#[derive(Debug, Args)]
pub struct History {
    /// What to do; without it, all revisions are listed.
    #[command(subcommand)]
    pub action: Option<HistoryAction>,
}

/// What to do with the history.
#[derive(Debug, Subcommand)]
pub enum HistoryAction {
    /// List all revisions, the newest first.
    #[command(after_help = "Example:\n  millrace history list")]
    List,
    /// Print the file of a revision.
    #[command(after_help = "Example:\n  millrace history show 12 > router.toml")]
    Show {
        /// Its number.
        number: u64,
    },
}

/// Arguments of `rollback`.
#[derive(Debug, Args)]
pub struct Rollback {
    /// The revision, as `history` shows it; without it, the newest one that counts and is not what runs.
    pub number: Option<u64>,
    /// Return after this time, unless `millrace confirm` comes before: 30s, 10m, 1h.
    #[arg(long, value_name = "TIME")]
    pub confirm: Option<ConfirmTime>,
    /// Only where this revision runs, as it was applied or saved: else it is refused with what runs, and who changed it.
    #[arg(long, value_name = "NUMBER")]
    pub if_revision: Option<u64>,
    /// Why, for the history.
    #[arg(long, value_name = "TEXT")]
    pub comment: Option<String>,
}

/// Arguments of `save`.
#[derive(Debug, Args)]
pub struct Save {
    /// The file, `-` for standard output, which makes no revision; without it, the one that was applied or saved last, or that the
    /// router was started with. One that isn't there is made.
    pub file: Option<PathBuf>,
    /// Also where the file has entries that were neither applied nor saved: they are lost then.
    #[arg(long)]
    pub force: bool,
    /// Why, for the history; without it, "saved".
    #[arg(long, value_name = "TEXT")]
    pub comment: Option<String>,
}

/// Arguments of `router`.
#[derive(Debug, Args)]
pub struct Router {
    /// What to do.
    #[command(subcommand)]
    pub action: RouterAction,
}

/// What `router` can do.
#[derive(Debug, Subcommand)]
pub enum RouterAction {
    /// Show all settings.
    #[command(after_help = "Example:\n  millrace router show")]
    Show,
    /// Change some, all or none; one without a value is again what it is where nothing is said. Some take a restart, and are
    /// refused.
    #[command(
        after_help = "Example:\n  millrace router set icmp-rate=200 redirects=false\n  millrace router set icmp-rate="
    )]
    Set {
        /// Settings, as in the table [router] of a configuration.
        #[arg(value_name = "KEY=VALUE", required = true)]
        settings: Vec<String>,
    },
}

/// Arguments of `control-plane`.
#[derive(Debug, Args)]
pub struct ControlPlane {
    /// What to do.
    #[command(subcommand)]
    pub action: ControlPlaneAction,
}

/// What `control-plane` can do.
#[derive(Debug, Subcommand)]
pub enum ControlPlaneAction {
    /// Show the classes, their rates, and what got through and what was dropped.
    #[command(after_help = "Example:\n  millrace control-plane show")]
    Show,
    /// Change rates, all or none; one without a value is again what it is where nothing is said.
    #[command(
        after_help = "Example:\n  millrace control-plane set icmp=200 bgp=500\n  millrace control-plane set police=false\n  millrace control-plane set icmp="
    )]
    Set {
        /// Settings, as in the table [control-plane] of a configuration.
        #[arg(value_name = "KEY=VALUE", required = true)]
        settings: Vec<String>,
    },
}
