//! Arguments of the commands `port`, `scheduler` and `queue`.

use clap::Subcommand;

/// Subcommands of `scheduler`.
#[derive(Debug, Subcommand)]
pub enum SchedulerAction {
    /// Add a scheduler node to a port.
    #[command(after_help = "\
Examples:
  millrace scheduler add wan top --kind priority
  millrace scheduler add wan voice --kind fifo --under top level=0
  millrace scheduler add wan rest --kind fq-codel --under top level=1
  millrace scheduler set wan rate=10mbit default=rest

Kinds of leaves (queues) and their settings:
  fifo                 threshold, manage
  flow-queues          threshold and manage for each flow, quantum, queues, rate
  fq-codel             queues, quantum, limit (packets in all queues), target, interval, ecn

Queue management of fifo and flow-queues (manage=tail-drop, red or codel):
  red                  minimum, maximum, unit (of both: bytes or packets), probability, weight, gentle, ecn
  codel                target, interval, ecn

Kinds of inner nodes, and the settings of each child:
  priority             level: 0 to 65535; the lowest is served first
  deficit-round-robin  quantum: bytes per round
  hfsc                 real-time, link-sharing, upper-limit: curves
  token-bucket         none; the node itself has rate and burst

Values have units: rate=10mbit, threshold=64KiB, target=5ms, quantum=1538B.
A curve is a rate, or '1mbit 10ms 64kbit': the first rate for 10 ms, then the second rate.
docs/schedulers.md describes all settings with their defaults.")]
    Add {
        /// Port of the scheduler.
        port: String,
        /// Name of the new node; for a leaf, also of its queue.
        node: String,
        /// Kind of the node, such as fifo or priority.
        #[arg(long)]
        kind: String,
        /// Parent node (default: none; the new node is the root).
        #[arg(long, value_name = "NODE")]
        under: Option<String>,
        /// Settings of the node, with those that its parent's kind requires, such as level.
        #[arg(value_name = "KEY=VALUE")]
        settings: Vec<String>,
    },
    /// Change settings of a port's scheduler, or of one node.
    #[command(after_help = "\
Examples:
  millrace scheduler set wan rate=20mbit default=rest
  millrace scheduler set wan --node voice threshold=64KiB
  millrace scheduler set wan --node voice under=fair quantum=3000B level=   # move to `fair`, without the level
  millrace scheduler set wan --node voice kind=fq-codel threshold=          # change the kind of a leaf

Settings of a port:
  rate         rate on the wire (default: unlimited)
  overhead     bytes that the link adds to a packet: ethernet (default), atm, 'bytes 24' or none
  default      leaf for packets that no filter assigns to a queue (default: the first leaf)
  queues       maximum number of queues, 1 to 65536 (default: 8192)
  host         path of packets that the kernel sends: queue (default), filter or direct
  host-weight  maximum number of these packets per worker iteration, 1 to 256 (default: 256)

With host=queue, packets that the kernel sends wait in the port's queues. With host=filter, they pass the gates first.
With host=direct, they bypass the scheduler. Leaves keep their packets when they move or change their kind.")]
    Set {
        /// Port of the scheduler.
        port: String,
        /// Node to change (default: the port itself).
        #[arg(long)]
        node: Option<String>,
        /// Settings; an empty value removes a setting.
        #[arg(value_name = "KEY=VALUE", required = true)]
        settings: Vec<String>,
    },
    /// Remove a node and its children.
    #[command(after_help = "\
Examples:
  millrace scheduler remove wan voice             # drop the waiting packets
  millrace scheduler remove wan voice --to rest   # move the waiting packets to the leaf `rest`

If filters with `--action 'queue voice'` exist, and no other port has a queue `voice`:
  --to LEAF        the filters name LEAF instead
  --with-filters   the filters are removed
  neither          nothing is removed; the error lists the filters")]
    Remove {
        /// Port of the scheduler.
        port: String,
        /// Node to remove.
        node: String,
        /// Leaf that gets the waiting packets (default: drop the packets).
        #[arg(long, value_name = "LEAF")]
        to: Option<String>,
        /// Also remove filters that name a removed queue.
        #[arg(long)]
        with_filters: bool,
    },
    /// Show scheduler trees with promised and delivered rates.
    #[command(after_help = "\
Examples:
  millrace scheduler show
  millrace scheduler show wan --json

promised: rate that the node gets while all other nodes have packets.
delivered: average rate since the previous `scheduler show`.
Both are bits per second on the wire.")]
    Show {
        /// Show only this port.
        port: Option<String>,
    },
}

/// Subcommands of `port`.
#[derive(Debug, Subcommand)]
pub enum PortAction {
    /// Change address, input-weight, output-weight or reverse-path.
    #[command(after_help = "\
Examples:
  millrace port set lan input-weight=64
  millrace port set wan input-weight= reverse-path=strict
  millrace port set tap0 address=10.3.0.1/24,fd00:3::1/64

Settings:
  address        addresses, separated by commas; only for ports without a kernel device
  input-weight   maximum number of packets per worker iteration, 1 to 256 (default: 256)
  output-weight  weight of sending inside core with core=share-by-function, 1 to 256 (default: 256)
  reverse-path   reverse path check (RFC 3704): off (default), strict or loose

Under overload, ports are served in proportion to their input-weight.")]
    Set {
        /// Port to change.
        port: String,
        /// Settings; an empty value restores the default.
        #[arg(value_name = "KEY=VALUE", required = true)]
        settings: Vec<String>,
    },
}

/// Subcommands of `queue`.
#[derive(Debug, Subcommand)]
pub enum QueueAction {
    /// Show backlog and counters of queues.
    #[command(after_help = "\
Examples:
  millrace queue show                     # all queues
  millrace queue show wan                 # the queues of a port
  millrace queue show wan flows --json    # the queue named `flows`, with the queues of its flows")]
    Show {
        /// Show only this port.
        port: Option<String>,
        /// Show only this queue, with the queues of its flows.
        queue: Option<String>,
    },
    /// Change settings of a queue, or of the queue of one flow.
    #[command(after_help = "\
Examples:
  millrace queue set wan voice threshold=64KiB
  millrace queue set wan flows --flow 'src 10.0.0.2 dst 10.1.0.2 proto udp sport 4000 dport 5060 in lan' rate=64kbit

Settings of one flow, in a queue of the kind flow-queues:
  rate        rate reserved for the flow
  quantum     bytes per round; not together with rate
  threshold   size above which the queue drops arriving packets")]
    Set {
        /// Port of the queue.
        port: String,
        /// Queue: a leaf of the port's scheduler.
        queue: String,
        /// Flow, as printed by `flow list` (default: the whole queue).
        #[arg(long, value_name = "FLOW")]
        flow: Option<String>,
        /// Settings; an empty value removes a setting.
        #[arg(value_name = "KEY=VALUE", required = true)]
        settings: Vec<String>,
    },
}
