//! Arguments of the commands for the whole configuration.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use millrace_controller::ConfirmTime;
use serde::Serialize;

/// Arguments of `apply`.
#[derive(Debug, Args)]
pub struct Apply {
    /// Configuration file; - is standard input.
    pub file: PathBuf,
    /// Options of the new revision.
    #[command(flatten)]
    pub revision: NewRevision,
}

/// Options of a command that creates a configuration revision.
#[derive(Debug, Args, Serialize)]
pub struct NewRevision {
    /// Revert after TIME unless confirmed; 1s to 24h, such as 60s.
    #[arg(long, value_name = "TIME")]
    pub confirm: Option<ConfirmTime>,
    /// Apply only if NUMBER is the running revision, and nothing was changed since.
    #[arg(long, value_name = "NUMBER")]
    pub if_revision: Option<u64>,
    /// Comment of the new revision.
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
    /// Configuration file; - is standard input (default: the configuration of the last apply, save or start).
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
    #[command(after_help = "Examples:\n  millrace history list\n  millrace history list --json")]
    List,
    /// Print the configuration file of a revision.
    #[command(after_help = "Examples:\n  millrace history show 12\n  millrace history show 12 > router.toml")]
    Show {
        /// Number of the revision.
        number: u64,
    },
}

/// Arguments of `rollback`.
#[derive(Debug, Args)]
pub struct Rollback {
    /// Revision to apply (default: revert the unconfirmed revision, else apply the newest good one that is not running).
    pub number: Option<u64>,
    /// Options of the new revision.
    #[command(flatten)]
    pub revision: NewRevision,
}

/// Arguments of `save`.
#[derive(Debug, Args)]
pub struct Save {
    /// File to write; - is standard output (default: the file of the last apply, save or start).
    pub file: Option<PathBuf>,
    /// Overwrite entries that were added to the file by hand and never applied.
    #[arg(long)]
    pub force: bool,
    /// Comment of the new revision (default: "saved").
    #[arg(long, value_name = "TEXT")]
    pub comment: Option<String>,
}

/// Subcommands of `router`.
#[derive(Debug, Subcommand)]
pub enum RouterAction {
    /// Show all settings.
    #[command(after_help = "Examples:\n  millrace router show\n  millrace router show --json")]
    Show,
    /// Change settings atomically.
    #[command(after_help = "\
Examples:
  millrace router set icmp-rate=200 redirects=false
  millrace router set icmp-rate=                      # restore the default
  millrace router set on-death=kernel                 # permit filters and bindings
  millrace router set core-ceiling=70% --dry-run      # check it, and show what would be left

Settings that can change at run time:
  on-death (to kernel only), boot, ignore-kernel-policy, icmp-rate, icmp-burst, icmp-dscp, redirects, router-id,
  forward-class-e, forward-link-local, forward-zero-net, route-priority, new-flows, plugin-weight,
  forwarding-weight, core, core-ceiling, shed, cpu-scheduler
All other changes need a restart. docs/configuration.md describes the settings.")]
    Set {
        /// Settings of the table [router]; an empty value restores the default.
        #[arg(value_name = "KEY=VALUE", required = true)]
        settings: Vec<String>,
        /// Check it only, and show what would be promised and left.
        #[arg(long)]
        dry_run: bool,
    },
}

/// Subcommands of `control-plane`.
#[derive(Debug, Subcommand)]
pub enum ControlPlaneAction {
    /// Show classes with rates and counters.
    #[command(
        after_help = "Examples:\n  millrace control-plane show\n  millrace control-plane show --json   # also counters by port"
    )]
    Show,
    /// Change rates atomically.
    #[command(after_help = "\
Examples:
  millrace control-plane set icmp=200 bgp=500   # packets per second at each port
  millrace control-plane set icmp=              # restore the default
  millrace control-plane set police=false       # turn policing off

Classes:
  established  TCP of connections that the kernel has
  bgp          new BGP sessions
  ospf         OSPF
  routing      BFD, RIP, LDP, PIM, VRRP, IS-IS and others
  icmp         ICMP and ICMPv6
  options      packets with IP options, IGMP, MLD
  neighbours   ARP and neighbour discovery
  other        all other packets
A rate is 1 to 10,000,000 packets per second; `control-plane show` prints the rates.")]
    Set {
        /// Settings of the table [control-plane]; an empty value restores the default.
        #[arg(value_name = "KEY=VALUE", required = true)]
        settings: Vec<String>,
    },
}
