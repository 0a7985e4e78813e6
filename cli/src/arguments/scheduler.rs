//! Arguments of the command `scheduler`.

use clap::{Args, Subcommand};

/// Arguments of `scheduler`.
#[derive(Debug, Args)]
pub struct Scheduler {
    /// What to do.
    #[command(subcommand)]
    pub action: SchedulerAction,
}

/// What `scheduler` can do.
#[derive(Debug, Subcommand)]
pub enum SchedulerAction {
    /// Add a node to the scheduler of a port; the first one makes it.
    #[command(
        after_help = "Kinds: fifo, flow-queues, fq-codel hold packets; priority, deficit-round-robin, hfsc, token-bucket choose.\n\nExample:\n  millrace scheduler add wan top --kind priority\n  millrace scheduler add wan voice --kind fifo --under top level=0\n  millrace scheduler add wan rest --kind fq-codel --under top level=1\n  millrace scheduler set wan rate=10mbit"
    )]
    Add {
        /// The port.
        port: String,
        /// The node's name. Filters name a leaf as a queue: --action 'queue NAME'.
        node: String,
        /// What it does.
        #[arg(long)]
        kind: String,
        /// The node above; without it this is the root.
        #[arg(long, value_name = "NODE")]
        under: Option<String>,
        /// Settings; docs/schedulers.md says which.
        #[arg(value_name = "KEY=VALUE")]
        settings: Vec<String>,
    },
    /// Change the rate, overhead or default queue of a port, or settings of a node. A setting without a value is taken away.
    #[command(
        after_help = "Example:\n  millrace scheduler set wan rate=20mbit default=rest\n  millrace scheduler set wan --node voice threshold=65536"
    )]
    Set {
        /// The port.
        port: String,
        /// The node; without it what is said is of the port.
        #[arg(long)]
        node: Option<String>,
        /// Settings.
        #[arg(value_name = "KEY=VALUE", required = true)]
        settings: Vec<String>,
    },
    /// Remove a node with all below it. Without nodes, a port sends as if it never had a scheduler.
    #[command(after_help = "Example:\n  millrace scheduler remove wan voice --to rest")]
    Remove {
        /// The port.
        port: String,
        /// The node.
        node: String,
        /// The leaf that gets what waits there; without it, that is dropped.
        #[arg(long, value_name = "NODE")]
        to: Option<String>,
    },
    /// Show the trees with what they promise and what they deliver.
    #[command(after_help = "Example:\n  millrace scheduler show\n  millrace scheduler show wan --json")]
    Show {
        /// Only that port's.
        port: Option<String>,
    },
}
