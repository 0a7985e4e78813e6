//! Arguments of the commands for gates and bindings.

use clap::{Args, Subcommand};
use millrace_config::Budget;

/// Subcommands of `gate`.
#[derive(Debug, Subcommand)]
pub enum GateAction {
    /// Create a gate, behind the other gates of its position.
    #[command(after_help = "\
Examples:
  millrace gate create late audit
  millrace gate create early blocklist

Positions, with their default gates in parentheses:
  early  before the route is chosen (options, security-in, firewall)
  route  where a filter can override the route (route)
  late   after the route is chosen, before queueing (process, monitor, security-out)
  queue  where the queue is chosen (schedule)
  copy   on copies of packets (tap)")]
    Create {
        /// Position in the pipeline: early, route, late, queue or copy.
        position: String,
        /// Name of the new gate.
        name: String,
    },
    /// Change the filter table algorithm of a gate.
    #[command(after_help = "\
Examples:
  millrace gate set firewall --table cutting-tree   # many filters that differ only in port ranges
  millrace gate set firewall --table auto           # restore the default: tuple-space

All algorithms find the same filter. They differ in lookup time and memory.")]
    Set {
        /// Name of the gate.
        name: String,
        /// Lookup algorithm: auto, linear, tuple-space, cutting-tree, dag, dag-patricia or dag-tree-bitmap.
        #[arg(long, value_name = "ALGORITHM")]
        table: String,
    },
    /// Remove a gate without bindings and filters.
    #[command(after_help = "Examples:\n  millrace gate remove audit")]
    Remove {
        /// Name of the gate.
        name: String,
    },
    /// List gates in the order of the pipeline.
    #[command(after_help = "Examples:\n  millrace gate list\n  millrace gate list --json")]
    List,
}

/// Arguments of `bind`.
#[derive(Debug, Args)]
pub struct Bind {
    /// Instance that gets the packets.
    pub instance: String,
    /// Gate of the binding, such as monitor (see `gate list`).
    #[arg(long)]
    pub gate: String,
    /// Packets to match; `*` matches all packets.
    #[arg(long)]
    pub filter: String,
    /// Priority, an integer; the highest matching priority wins.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    pub priority: i32,
    /// After a failed call of the instance, drop the call's packets, or let them bypass the instance.
    #[arg(long, value_parser = ["drop", "bypass"], default_value = "drop")]
    pub on_fault: String,
    /// Principal that pays for the calls (default: `default`; none for built-in plugins).
    #[arg(long, value_name = "NAME")]
    pub principal: Option<String>,
    /// Time limit of a call, 1us to 1s (default: 100ms); a longer call is a fault.
    #[arg(long, value_name = "TIME")]
    pub budget: Option<Budget>,
    /// Time limit per packet, 1us to 1s (default: none): a call with N packets may take N times this, at most --budget.
    #[arg(long, value_name = "TIME")]
    pub packet_budget: Option<Budget>,
    /// Let packets wait in a queue of their own before the instance, apart from earlier instances.
    #[arg(long)]
    pub queue: bool,
    /// Weight of this queue among the queues of a flow, 1 to 100 (default: 1).
    #[arg(long, value_name = "WEIGHT", requires = "queue")]
    pub queue_weight: Option<u32>,
    /// Check it only, and show what would be promised and left.
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `unbind`.
#[derive(Debug, Args)]
pub struct Unbind {
    /// Instance of the binding.
    pub instance: String,
    /// Gate of the binding (default: all gates).
    #[arg(long)]
    pub gate: Option<String>,
    /// Filter of the binding (default: all filters); needs --gate.
    #[arg(long, requires = "gate")]
    pub filter: Option<String>,
    /// Remove all matching bindings; without --all, exactly one must match.
    #[arg(long)]
    pub all: bool,
}
