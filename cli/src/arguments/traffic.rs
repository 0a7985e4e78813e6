//! The commands about what becomes of traffic: filters, routes, flows.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// Arguments of `filter`.
#[derive(Debug, Args)]
pub struct Filter {
    /// What to do.
    #[command(subcommand)]
    pub action: FilterAction,
}

/// What to do with filters.
#[derive(Debug, Subcommand)]
pub enum FilterAction {
    /// Do something with the packets that a filter matches.
    #[command(after_help = "\
A filter is words in any order: src and dst (10.1.0.2, 10.1.0.0/16, fd00::/8), proto (tcp, udp, icmp, a number), sport and dport
(80, 1000-2000), in PORT, flags syn/syn+ack, dscp ef, exceptions ttl,options, tag 3. What is left out is a wildcard.
Join them by or, and, not and parentheses; list values (dport 80,443); tcpdump's host, net, port, tcp, udp, icmp are read too.
`not host` takes an IPv4 address; for an IPv6 address add a filter of higher priority with the action accept, and one for the rest.

Actions: accept (go on, whatever filters of lower priority at this gate say), drop, reject (with an ICMP error), host, `port NAME [via ADDRESS]`, `ports NAME,NAME` (to each),
`copy-to NAME [via ADDRESS]`, `copy INSTANCE`, `instance NAME`, `queue NAME` (of a scheduler), `police RATE [burst SIZE]` (what comes
faster is dropped)

A packet that is rejected is answered with an ICMP error, which passes the gates as well: say `in PORT`, so that the filter does
not take the answer too.

Example:
  millrace filter add 'in lan proto tcp dport 25' --action drop
  millrace filter add 'src 10.1.7.0/24' --action 'port wan via 10.2.0.77' --priority 10
  millrace filter add 'proto udp dport 53' --action 'copy-to probe via 10.3.0.2'
  millrace filter add --from blocked.txt

Each line of a file is a filter: FILTER action ACTION [gate GATE] [priority PRIORITY], as `filter list --lines` prints it.
Empty lines and those that begin with # say nothing. All of them are added, or none: then each line that is wrong is
named, those that can't be read before those that can't be done.")]
    Add {
        /// Which packets; `*` is all.
        #[arg(required_unless_present = "from")]
        filter: Option<String>,
        /// What is done with them.
        #[arg(long, value_name = "ACTION", required_unless_present = "from")]
        action: Option<String>,
        /// The gate. Default: `tap` for copies, `schedule` for queues, else `route`; for an instance it must be said.
        #[arg(long)]
        gate: Option<String>,
        /// Of several filters that match, the highest priority wins.
        #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
        priority: i32,
        /// Add the filters of a file, one a line; `-` is standard input.
        #[arg(long, value_name = "FILE", conflicts_with_all = ["filter", "action", "gate", "priority"])]
        from: Option<PathBuf>,
    },
    /// Remove filters, and bindings of instances, all of them or none; or a filter that is told by what it is.
    #[command(
        alias = "del",
        after_help = "Example:\n  millrace filter remove 3 4\n  millrace filter remove 'in lan proto tcp dport 25' --action drop"
    )]
    Remove {
        /// Their ids, as `filter list` shows them; or, with --action, the filter.
        #[arg(required = true, value_name = "ID")]
        which: Vec<String>,
        /// What the filter does: then it is removed by what it is.
        #[arg(long, value_name = "ACTION")]
        action: Option<String>,
        /// Its gate, as for `filter add`.
        #[arg(long, requires = "action")]
        gate: Option<String>,
        /// Its priority, where several filters differ in nothing else.
        #[arg(long, requires = "action", allow_negative_numbers = true)]
        priority: Option<i32>,
    },
    /// List filters, and bindings of instances, with their counters.
    #[command(after_help = "\
Packets: what matched. Drops: what the filter or its instance dropped. Queued: what was given to the queues of ports, each copy and
each fragment once (at gates for copies, copies). Queued = sent + lost (dropped there) + waiting.

Example:
  millrace filter list
  millrace filter list --gate route --json
  millrace filter list --watch 2s")]
    List {
        /// Only those of one gate.
        #[arg(long)]
        gate: Option<String>,
        /// One a line, as `filter add --from` reads them.
        #[arg(long, conflicts_with = "watch")]
        lines: bool,
        /// Whether they are watched.
        #[command(flatten)]
        watch: Watch,
    },
    /// Say at each gate which filter a packet is treated by, and why not by the others.
    #[command(
        after_help = "Example:\n  millrace filter explain 'src 10.1.0.2 dst 10.2.0.2 proto udp sport 9 dport 5201 in lan'"
    )]
    Explain {
        /// The packet, written as a filter without wildcards for source and destination.
        packet: String,
    },
    /// Find filters that never win, and pairs of which it is hard to see which wins; exit with 1 where there are some.
    #[command(after_help = "\
A pair is two filters of one priority that some packets match both, and neither is a special case of the other. The parts of one
expression are not compared with each other.

Example:
  millrace filter check")]
    Check,
}

/// Whether a list is looked at again and again.
#[derive(Clone, Copy, Debug, Args)]
pub struct Watch {
    /// Print the list again after each TIME, 500ms to 60s (default 1s), with rates per second; in JSON, a line for each list.
    #[arg(
        long,
        value_name = "TIME",
        num_args = 0..=1,
        default_missing_value = "1s"
    )]
    pub watch: Option<super::show::Interval>,
    /// End after so many lists.
    #[arg(long, value_name = "LISTS", requires = "watch")]
    pub count: Option<u64>,
}

/// Arguments of `route`.
#[derive(Debug, Args)]
pub struct Route {
    /// What to do.
    #[command(subcommand)]
    pub action: RouteAction,
}

/// What to do with routes.
#[derive(Debug, Subcommand)]
pub enum RouteAction {
    /// Add a route of our own, in the words of ip-route(8).
    #[command(after_help = "\
PREFIX [via ADDRESS]... [port NAME], or blackhole, unreachable or prohibit before or behind PREFIX. Several next hops
share the flows. `default` is 0.0.0.0/0, or ::/0 with an IPv6 next hop. A route by a kernel device is given to the kernel.

Example:
  millrace route add 10.9.0.0/16 via 10.2.0.254
  millrace route add default via fe80::1 port wan
  millrace route add 10.9.0.0/16 via 10.2.0.253 via 10.2.0.254
  millrace route add blackhole 10.66.0.0/16
  millrace route add --from routes.txt

Each line of a file is a route in the same words, or as `ip route` or `route list --lines` prints it; one with a metric, or with
weights, is refused. Empty lines and those
that begin with # say nothing. All of them are added, or none: then each line that is wrong is
named, those that can't be read before those that can't be done.")]
    Add {
        /// The route.
        #[arg(required_unless_present = "from", value_name = "WORD")]
        words: Vec<String>,
        /// Add the routes of a file, one a line; `-` is standard input.
        #[arg(long, value_name = "FILE", conflicts_with = "words")]
        from: Option<PathBuf>,
    },
    /// Add a route of our own, or put it in the place of ours to the same prefix: no packet is without a route between.
    #[command(
        after_help = "The words are those of `route add`.\n\nExample:\n  millrace route replace 10.9.0.0/16 via 10.2.0.253"
    )]
    Replace {
        /// The route.
        #[arg(required = true, value_name = "WORD")]
        words: Vec<String>,
    },
    /// Remove routes of our own, all of them or none.
    #[command(
        alias = "del",
        after_help = "Example:\n  millrace route remove 10.9.0.0/16\n  millrace route remove --from routes.txt"
    )]
    Remove {
        /// Its prefix.
        #[arg(required_unless_present = "from")]
        prefix: Option<String>,
        /// Remove the routes of a file, one a line, as for `route add`, of which the prefix counts; `-` is standard input.
        #[arg(long, value_name = "FILE", conflicts_with = "prefix")]
        from: Option<PathBuf>,
    },
    /// List routes, mirrored and our own, with what was sent by them.
    #[command(after_help = "\
Queued: what was given to the queues of ports. Queued = sent + lost (dropped there) + waiting. A route that gets other next hops counts
anew. Routes that lead to no port don't count, nor those that come when 65,536 do already.

Example:
  millrace route list
  millrace route list --within 10.0.0.0/8 --watch
  millrace route list --lines | grep 'protocol millrace'")]
    List {
        /// One a line, as `route add --from` reads them; those of the router's own addresses are left out.
        #[arg(long, conflicts_with = "watch")]
        lines: bool,
        /// Only those to this prefix, and to prefixes within it.
        #[arg(long, value_name = "PREFIX")]
        within: Option<String>,
        /// Whether they are watched.
        #[command(flatten)]
        watch: Watch,
    },
    /// Show the route that packets to an address take.
    #[command(alias = "get", after_help = "Example:\n  millrace route lookup 10.9.1.1")]
    Lookup {
        /// The address.
        address: String,
    },
}

/// Arguments of `neighbour`.
#[derive(Debug, Args)]
pub struct Neighbour {
    /// What to do.
    #[command(subcommand)]
    pub action: NeighbourAction,
}

/// What to do with neighbours.
#[derive(Debug, Subcommand)]
pub enum NeighbourAction {
    /// Make the MAC address of a neighbour known for good. Those of kernel devices are the kernel's: `ip neighbour` sets them.
    #[command(after_help = "Example:\n  millrace neighbour add wan 10.2.0.77 02:00:00:00:00:07")]
    Add {
        /// The port it is behind.
        port: String,
        /// Its address.
        address: IpAddr,
        /// Its MAC address.
        mac: String,
    },
    /// Forget one that was known for good: it is asked for its MAC address from then on.
    #[command(alias = "del", after_help = "Example:\n  millrace neighbour remove wan 10.2.0.77")]
    Remove {
        /// The port it is behind.
        port: String,
        /// Its address.
        address: IpAddr,
    },
    /// List all neighbours of the ports.
    #[command(after_help = "Example:\n  millrace neighbour list")]
    List,
}

/// Arguments of `flow`.
#[derive(Debug, Args)]
pub struct Flow {
    /// What to do.
    #[command(subcommand)]
    pub action: FlowAction,
}

/// What to do with flows.
#[derive(Debug, Subcommand)]
pub enum FlowAction {
    /// List the flows that matter most.
    #[command(
        after_help = "Example:\n  millrace flow list --order rate --limit 10\n  millrace flow list 'proto udp in lan'\n  millrace flow list 'port 80,443 or icmp'"
    )]
    List {
        /// Which flows.
        #[command(flatten)]
        flows: Flows,
        /// Which come first.
        #[arg(long, default_value = "bytes", value_name = "ORDER")]
        order: FlowOrder,
        /// How many.
        #[arg(long, default_value_t = 20)]
        limit: usize,
    },
    /// Show all that is known of flows.
    #[command(
        after_help = "Example:\n  millrace flow show 'src 10.1.0.2 dst 10.2.0.2 proto udp sport 9 dport 5201 in lan'"
    )]
    Show {
        /// Which flows.
        #[command(flatten)]
        flows: Flows,
    },
    /// Forget flows, all of them without a filter: their next packets are classified anew.
    #[command(after_help = "Example:\n  millrace flow flush 'src 10.1.0.2'\n  millrace flow flush")]
    Flush {
        /// Which flows.
        #[command(flatten)]
        flows: Flows,
    },
}

/// Which flows are meant: a filter, with `--filter` before it or without.
#[derive(Debug, Args)]
pub struct Flows {
    /// Only those of which some packet may match: a flow as `flow list` prints it, or any other filter.
    #[arg(value_name = "FILTER")]
    words: Option<String>,
    /// The same.
    #[arg(long, value_name = "FILTER", conflicts_with = "words")]
    filter: Option<String>,
}

impl Flows {
    /// The filter; `None` when none was given.
    pub fn filter(&self) -> Option<&str> {
        self.words.as_deref().or(self.filter.as_deref())
    }
}

/// Which flows come first.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum FlowOrder {
    /// Those with the most packets per second, measured over half a second.
    Rate,
    /// Those with the most bytes.
    Bytes,
    /// Those with the most packets.
    Packets,
    /// Those whose last packet is the latest.
    Recent,
}

impl FlowOrder {
    /// Its name in the interface.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Bytes => "bytes",
            Self::Packets => "packets",
            Self::Recent => "recent",
        }
    }
}
