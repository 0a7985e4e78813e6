//! Arguments of the commands `port`, `scheduler` and `queue`.

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
        after_help = "Kinds that hold packets, and their settings:\n  fifo         threshold=SIZE manage=tail-drop|red|codel\n  flow-queues  the same for the queue of each flow; quantum=SIZE queues=NUMBER rate=RATE (of which flows may reserve parts)\n  fq-codel     queues=NUMBER quantum=SIZE limit=PACKETS\nWith manage=red: minimum maximum unit=bytes|packets probability weight gentle ecn. With codel and fq-codel: target=TIME interval=TIME ecn.\n\nKinds that choose, and what is said of each node below them:\n  priority             level=NUMBER (0 goes first)\n  deficit-round-robin  quantum=SIZE in each round\n  hfsc                 real-time=CURVE link-sharing=CURVE upper-limit=CURVE\n  token-bucket         nothing; it has rate=RATE burst=SIZE itself\n\nA number without a unit is refused: a rate is 64kbit, 1.5mbit or 10gbit; a size 1538B or 64KiB; a time 5ms; a curve is a rate, or '1mbit 10ms 64kbit': the first rate for that time, then the second.\n\nExample:\n  millrace scheduler add wan top --kind priority\n  millrace scheduler add wan voice --kind fifo --under top level=0\n  millrace scheduler add wan rest --kind fq-codel --under top level=1\n  millrace scheduler set wan rate=10mbit"
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
        /// Settings, of its kind and of the kind above it.
        #[arg(value_name = "KEY=VALUE")]
        settings: Vec<String>,
    },
    /// Change rate, overhead, default, queues, host or host-weight of a port, or settings of a node. A setting without a value is taken
    /// away. With under=NODE a node goes to another place, with kind=KIND a leaf becomes another kind of leaf; leaves keep their packets.
    #[command(
        after_help = "What the kernel itself sends by the port: host=queue (it waits like the rest, the default), host=filter (it passes\nall gates before), host=direct (it passes by).\n\nExample:\n  millrace scheduler set wan rate=20mbit default=rest\n  millrace scheduler set wan --node voice threshold=64KiB\n  millrace scheduler set wan --node voice under=fair quantum=3000B level=\n  millrace scheduler set wan --node voice kind=fq-codel threshold="
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
    #[command(
        after_help = "Filters that name a queue that is at no port then (--action 'queue NAME') name the leaf of --to from now on.\nWithout --to nothing is removed while there are such filters, unless --with-filters removes them as well.\n\nExample:\n  millrace scheduler remove wan voice --to rest"
    )]
    Remove {
        /// The port.
        port: String,
        /// The node.
        node: String,
        /// The leaf that gets what waits there; without it, that is dropped.
        #[arg(long, value_name = "NODE")]
        to: Option<String>,
        /// Remove the filters that name a queue that is gone.
        #[arg(long)]
        with_filters: bool,
    },
    /// Show the trees with what they promise and what they deliver.
    #[command(after_help = "Example:\n  millrace scheduler show\n  millrace scheduler show wan --json")]
    Show {
        /// Only that port's.
        port: Option<String>,
    },
}

/// Arguments of `port`.
#[derive(Debug, Args)]
pub struct Port {
    /// What to do.
    #[command(subcommand)]
    pub action: PortAction,
}

/// What `port` can do.
#[derive(Debug, Subcommand)]
pub enum PortAction {
    /// Change address, input-weight or reverse-path of a port. A setting without a value is the default again.
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
    /// What to do.
    #[command(subcommand)]
    pub action: QueueAction,
}

/// What `queue` can do.
#[derive(Debug, Subcommand)]
pub enum QueueAction {
    /// Show what waits in each queue, what arrived and what was sent; of one queue also those of flows in it.
    #[command(after_help = "Example:\n  millrace queue show\n  millrace queue show wan flows --json")]
    Show {
        /// Only that port's.
        port: Option<String>,
        /// Only that one, with the queues of flows in it.
        queue: Option<String>,
    },
    /// Change settings of a queue, or of the queue of one flow in it. A setting without a value is taken away.
    #[command(
        after_help = "Of a flow: quantum (bytes in each round), threshold (bytes), or rate, which is reserved for it.\n\nExample:\n  millrace queue set wan voice threshold=64KiB\n  millrace queue set wan flows --flow 'src 10.0.0.2 dst 10.1.0.2 proto udp sport 4000 dport 5060 in lan' rate=64kbit"
    )]
    Set {
        /// The port.
        port: String,
        /// The queue: a leaf of the port's scheduler.
        queue: String,
        /// The flow, as `flow list` and `queue show` write it; without it what is said is of the whole queue.
        #[arg(long, value_name = "PACKET")]
        flow: Option<String>,
        /// Settings.
        #[arg(value_name = "KEY=VALUE", required = true)]
        settings: Vec<String>,
    },
}
