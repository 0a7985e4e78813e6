//! Arguments of the commands for principals.

use clap::{Args, Subcommand};
use millrace_config::Time;

/// Time over which `principal resize` measures.
pub type ResizeTime = Time<1_000_000, 3_600_000_000>;

/// Subcommands of `principal`.
#[derive(Debug, Subcommand)]
pub enum PrincipalAction {
    /// Add a principal.
    #[command(after_help = "\
Examples:
  millrace principal add video cpu=5% cpu-limit=20% memory=8MiB
  millrace principal add backup weight=30 'disk=2 MB/s' processes=64
  millrace principal add bulk cpu=30% --dry-run   # check it, and show what would be left

Settings:
  owner      user whose allowances it counts for (default: the user who adds it)
  cpu        reserved processor time, of one processor, while others need it too
  cpu.same-as  principal that pays for the calls instead
  weight     weight among the principals without `cpu`, 1 to 10000 (default: 100)
  cpu-limit  largest processor time, of one processor; not below `cpu`
  deadline   longest wait of a packet for its share, such as 5ms; needs `cpu`
  link.PORT  reserved rate at a port whose scheduler has a rate, such as link.wan=10mbit
  link.PORT.same-as  principal whose rate and queue the packets share there
  queue      largest size of a flow's waiting packets (default: 256KiB)
  memory     largest memory of processes, plugins, flow state and waiting packets
  disk       largest rate of reads from each block device, and of writes to it
  process    commands or systemd units whose processes belong to it, such as 'process=[\"bgpd\"]'
  processes  largest number of processes and threads")]
    Add {
        /// Name of the new principal.
        name: String,
        /// Shares and limits.
        #[arg(value_name = "KEY=VALUE")]
        settings: Vec<String>,
        /// Check it only, and show what would be promised and left.
        #[arg(long)]
        dry_run: bool,
    },
    /// Change shares and limits of a principal.
    #[command(after_help = "\
Examples:
  millrace principal set video cpu-limit=40%
  millrace principal set video memory=      # remove a limit
  millrace principal set video link.wan=    # reserve nothing at port wan

Changes apply to running processes at once.")]
    Set {
        /// Name of the principal.
        name: String,
        /// Settings to change; an empty value restores a default.
        #[arg(value_name = "KEY=VALUE", required = true)]
        settings: Vec<String>,
        /// Check it only, and show what would be promised and left.
        #[arg(long)]
        dry_run: bool,
    },
    /// Remove a principal.
    #[command(
        after_help = "Examples:\n  millrace principal remove video\n\nProcesses of the principal continue without limits."
    )]
    Remove {
        /// Name of the principal.
        name: String,
    },
    /// Propose a reserved share from the measured use, or reserve it.
    #[command(after_help = "\
Examples:
  millrace principal resize video                          # measure for 10 s, and propose `cpu`
  millrace principal resize video --over 1m --margin 50
  millrace principal resize video --apply                  # also change `cpu`, if it can be promised

The proposal is the 95th percentile of the processor time at the workers or that of processes, whichever is more,
with a margin.")]
    Resize {
        /// Name of the principal.
        name: String,
        /// Time to measure, 1s to 1h.
        #[arg(long, value_name = "TIME", default_value = "10s")]
        over: ResizeTime,
        /// Margin above the measured use, in percent of it.
        #[arg(long, value_name = "PERCENT", default_value_t = 20, value_parser = clap::value_parser!(u16).range(..=1000))]
        margin: u16,
        /// Reserve the proposed share.
        #[arg(long)]
        apply: bool,
    },
    /// List principals with shares, limits and usage.
    #[command(after_help = "Examples:\n  millrace principal list\n  millrace principal list --json")]
    List,
    /// Show a principal with its usage.
    #[command(after_help = "\
Examples:
  millrace principal show video
  millrace principal show video --flows --limit 5

`--flows` lists flows with packets that wait for the processor, or that owe time: cycles used since then,
waiting packets and bytes, and packets dropped.")]
    Show {
        /// Name of the principal.
        name: String,
        /// Show the flows that wait, those with the most cycles first.
        #[arg(long)]
        flows: bool,
        /// Maximum number of flows, 1 to 10000.
        #[arg(long, default_value_t = 20, requires = "flows")]
        limit: usize,
    },
}

/// Arguments of `exec`.
#[derive(Debug, Args)]
pub struct Exec {
    /// Principal of the command.
    #[arg(long, value_name = "NAME")]
    pub principal: String,
    /// Command with its arguments.
    #[arg(last = true, required = true)]
    pub command: Vec<String>,
}
