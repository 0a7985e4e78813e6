//! Arguments of the commands for gates and bindings.

use clap::{Args, Subcommand};
use millrace_config::Budget;

/// Arguments of `gate`.
#[derive(Debug, Args)]
pub struct Gate {
    /// Subcommand.
    #[command(subcommand)]
    pub action: GateAction,
}

/// Subcommands of `gate`.
#[derive(Debug, Subcommand)]
pub enum GateAction {
    /// Create a gate at the end of its position.
    #[command(after_help = "Example:\n  millrace gate create late audit")]
    Create {
        /// Position: early, route, late, queue or copy.
        position: String,
        /// The gate's name.
        name: String,
    },
    /// Change the lookup algorithm of a gate.
    #[command(after_help = "Example:\n  millrace gate set firewall --table dag")]
    Set {
        /// The gate's name.
        name: String,
        /// auto, linear, tuple-space, cutting-tree, dag, dag-patricia or dag-tree-bitmap.
        #[arg(long)]
        table: String,
    },
    /// Remove an unused gate.
    #[command(after_help = "Example:\n  millrace gate remove audit")]
    Remove {
        /// The gate's name.
        name: String,
    },
    /// List gates.
    #[command(after_help = "Example:\n  millrace gate list")]
    List,
}

/// Arguments of `bind`.
#[derive(Debug, Args)]
pub struct Bind {
    /// The instance.
    pub instance: String,
    /// The gate.
    #[arg(long)]
    pub gate: String,
    /// Filter; `*` matches all packets.
    #[arg(long)]
    pub filter: String,
    /// Priority; the highest matching priority wins.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    pub priority: i32,
    /// Packet handling after a plugin fault: drop or bypass.
    #[arg(long, value_parser = ["drop", "bypass"], default_value = "drop")]
    pub on_fault: String,
    /// Maximum duration of a call, 1us to 1s (default: 1ms).
    #[arg(long, value_name = "TIME")]
    pub budget: Option<Budget>,
    /// Maximum duration per packet, if lower; a call gets at least 50us.
    #[arg(long, value_name = "TIME")]
    pub packet_budget: Option<Budget>,
}

/// Arguments of `unbind`.
#[derive(Debug, Args)]
pub struct Unbind {
    /// The instance.
    pub instance: String,
    /// Gate (default: any).
    #[arg(long)]
    pub gate: Option<String>,
    /// Filter of the binding (default: any).
    #[arg(long, requires = "gate")]
    pub filter: Option<String>,
    /// Remove all matching bindings.
    #[arg(long)]
    pub all: bool,
}
