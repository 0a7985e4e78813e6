//! The commands of gates, and of what is bound there.

use clap::{Args, Subcommand};
use millrace_config::Budget;

/// Arguments of `gate`.
#[derive(Debug, Args)]
pub struct Gate {
    /// What to do.
    #[command(subcommand)]
    pub action: GateAction,
}

/// What to do with gates.
#[derive(Debug, Subcommand)]
pub enum GateAction {
    /// Create a gate, the last at its position.
    #[command(after_help = "Example:\n  millrace gate create late audit")]
    Create {
        /// early, route, late, queue or copy.
        position: String,
        /// The gate's name.
        name: String,
    },
    /// Change how a gate's filters are searched, while it forwards: all kinds of tables find the same.
    #[command(after_help = "Example:\n  millrace gate set firewall --table dag")]
    Set {
        /// The gate's name.
        name: String,
        /// auto, linear, tuple-space, cutting-tree, dag, dag-patricia or dag-tree-bitmap.
        #[arg(long)]
        table: String,
    },
    /// Remove a gate that nothing is bound at.
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
    /// Which packets; an empty filter is all of them.
    #[arg(long)]
    pub filter: String,
    /// Of several filters that match, the highest priority wins.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    pub priority: i32,
    /// What becomes of packets that the instance fails at, and while it pauses after that.
    #[arg(long, value_parser = ["drop", "bypass"], default_value = "drop")]
    pub on_fault: String,
    /// Time that a call may take in all before it counts as a fault, 1us to 1s. Default 1ms.
    #[arg(long, value_name = "TIME")]
    pub budget: Option<Budget>,
    /// The same for each packet of a call, if that is less. A call always has 50us.
    #[arg(long, value_name = "TIME")]
    pub packet_budget: Option<Budget>,
}

/// Arguments of `unbind`.
#[derive(Debug, Args)]
pub struct Unbind {
    /// The instance.
    pub instance: String,
    /// The gate. Without it, any.
    #[arg(long)]
    pub gate: Option<String>,
    /// The filter that it was bound with. Without it, any.
    #[arg(long, requires = "gate")]
    pub filter: Option<String>,
    /// Undo all bindings that match; without it, several are listed and none is undone.
    #[arg(long)]
    pub all: bool,
}
