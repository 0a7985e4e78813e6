//! Arguments of the commands `port`, `scheduler` and `queue`.

use clap::{Args, Subcommand};

/// Arguments of `scheduler`.
#[derive(Debug, Args)]
pub struct Scheduler {
    /// Subcommand.
    #[command(subcommand)]
    pub action: SchedulerAction,
}

/// Subcommands of `scheduler`.
#[derive(Debug, Subcommand)]
pub enum SchedulerAction {
    /// Add a scheduler node to a port.
    #[command(
        after_help = "Kinds that hold packets, and their settings:\n  fifo         threshold=SIZE manage=tail-drop|red|codel\n  flow-queues  the same for the queue of each flow; quantum=SIZE queues=NUMBER rate=RATE (of which flows may reserve parts)\n  fq-codel     queues=NUMBER quantum=SIZE limit=PACKETS\nWith manage=red: minimum maximum unit=bytes|packets probability weight gentle ecn. With codel and fq-codel: target=TIME interval=TIME ecn.\n\nKinds that choose, and what is said of each node below them:\n  priority             level=NUMBER (0 goes first)\n  deficit-round-robin  quantum=SIZE in each round\n  hfsc                 real-time=CURVE link-sharing=CURVE upper-limit=CURVE\n  token-bucket         nothing; it has rate=RATE burst=SIZE itself\n\nA number without a unit is refused: a rate is 64kbit, 1.5mbit or 10gbit; a size 1538B or 64KiB; a time 5ms; a curve is a rate, or '1mbit 10ms 64kbit': the first rate for that time, then the second.\n\nExample:\n  millrace scheduler add wan top --kind priority\n  millrace scheduler add wan voice --kind fifo --under top level=0\n  millrace scheduler add wan rest --kind fq-codel --under top level=1\n  millrace scheduler set wan rate=10mbit"
    )]
    Add {
        /// The port.
        port: String,
        /// Node name; a leaf is a queue.
        node: String,
        /// Kind of the node.
        #[arg(long)]
        kind: String,
        /// Parent node (default: none, this is the root).
        #[arg(long, value_name = "NODE")]
        under: Option<String>,
        /// Settings of this kind and of the parent's kind.
        #[arg(value_name = "KEY=VALUE")]
        settings: Vec<String>,
    },
    /// Change settings of a port's scheduler or of a node; an empty value removes one.
    #[command(
        after_help = "Settings of a port: rate, overhead, default, queues, host and host-weight. under=NODE moves a node, kind=KIND changes the kind of\na leaf; leaves keep their packets.\n\nLocally generated traffic: host=queue (scheduled, the default), host=filter (through all gates, then scheduled), host=direct\n(bypasses the scheduler).\n\nExample:\n  millrace scheduler set wan rate=20mbit default=rest\n  millrace scheduler set wan --node voice threshold=64KiB\n  millrace scheduler set wan --node voice under=fair quantum=3000B level=\n  millrace scheduler set wan --node voice kind=fq-codel threshold="
    )]
    Set {
        /// The port.
        port: String,
        /// Node (default: the port itself).
        #[arg(long)]
        node: Option<String>,
        /// Settings.
        #[arg(value_name = "KEY=VALUE", required = true)]
        settings: Vec<String>,
    },
    /// Remove a node and its children.
    #[command(
        after_help = "Filters that name a queue that is at no port then (--action 'queue NAME') name the leaf of --to from now on.\nWithout --to nothing is removed while there are such filters, unless --with-filters removes them as well.\n\nExample:\n  millrace scheduler remove wan voice --to rest"
    )]
    Remove {
        /// The port.
        port: String,
        /// The node.
        node: String,
        /// Leaf that takes over the queued packets (default: drop).
        #[arg(long, value_name = "NODE")]
        to: Option<String>,
        /// Also remove filters that name a removed queue.
        #[arg(long)]
        with_filters: bool,
    },
    /// Show scheduler trees with promised and delivered rates.
    #[command(after_help = "Example:\n  millrace scheduler show\n  millrace scheduler show wan --json")]
    Show {
        /// Show only this port.
        port: Option<String>,
    },
}

/// Arguments of `port`.
#[derive(Debug, Args)]
pub struct Port {
    /// Subcommand.
    #[command(subcommand)]
    pub action: PortAction,
}

/// Subcommands of `port`.
#[derive(Debug, Subcommand)]
pub enum PortAction {
    /// Change address, input-weight or reverse-path; an empty value resets one.
    #[command(
        after_help = "address: its addresses, by commas, where it has no kernel device. input-weight: packets that are taken from the port in a round, at most, 1 to 256: where more comes than can be taken, ports are\nserved in these proportions. reverse-path: off, strict, loose.\n\nExample:\n  millrace port set lan input-weight=64\n  millrace port set wan input-weight= reverse-path=strict"
    )]
    Set {
        /// The port.
        port: String,
        /// Settings.
        #[arg(value_name = "KEY=VALUE", required = true)]
        settings: Vec<String>,
    },
}

/// Arguments of `queue`.
#[derive(Debug, Args)]
pub struct Queue {
    /// Subcommand.
    #[command(subcommand)]
    pub action: QueueAction,
}

/// Subcommands of `queue`.
#[derive(Debug, Subcommand)]
pub enum QueueAction {
    /// Show backlog and counters of queues.
    #[command(after_help = "Example:\n  millrace queue show\n  millrace queue show wan flows --json")]
    Show {
        /// Show only this port.
        port: Option<String>,
        /// Show only this queue, with its flow queues.
        queue: Option<String>,
    },
    /// Change settings of a queue or of one flow queue.
    #[command(
        after_help = "Of a flow: quantum (bytes in each round), threshold (bytes), or rate, which is reserved for it.\n\nExample:\n  millrace queue set wan voice threshold=64KiB\n  millrace queue set wan flows --flow 'src 10.0.0.2 dst 10.1.0.2 proto udp sport 4000 dport 5060 in lan' rate=64kbit"
    )]
    Set {
        /// The port.
        port: String,
        /// The queue: a leaf of the port's scheduler.
        queue: String,
        /// Flow, as in `flow list` (default: the whole queue).
        #[arg(long, value_name = "PACKET")]
        flow: Option<String>,
        /// Settings.
        #[arg(value_name = "KEY=VALUE", required = true)]
        settings: Vec<String>,
    },
}
