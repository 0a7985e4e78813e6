//! Arguments of the commands for traffic: filters, routes, flows.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// Arguments of `filter`.
#[derive(Debug, Args)]
pub struct Filter {
    /// Subcommand.
    #[command(subcommand)]
    pub action: FilterAction,
}

/// Subcommands of `filter`.
#[derive(Debug, Subcommand)]
pub enum FilterAction {
    /// Add a filter.
    #[command(after_help = "\
A filter is words in any order: src and dst (10.1.0.2, 10.1.0.0/16, fd00::/8), proto (tcp, udp, icmp, a number), sport and dport
(80, 1000-2000), in PORT, flags syn/syn+ack, dscp ef, exceptions ttl,options, tag 3. What is left out is a wildcard.
Join them by or, and, not and parentheses; list values (dport 80,443); tcpdump's host, net, port, tcp, udp, icmp are read too.
`not host` takes an IPv4 address; for an IPv6 address add a filter of higher priority with the action accept, and one for the rest.

Actions: accept (go on, whatever filters of lower priority at this gate say), drop, reject (with an ICMP error), host, `port NAME [via ADDRESS]`, `ports NAME,NAME` (to each),
`copy-to NAME [via ADDRESS]`, `copy INSTANCE`, `instance NAME`, `queue NAME` (of a scheduler), `police RATE [burst SIZE]` (what comes
faster is dropped)

A packet that is rejected is answered with an ICMP error, which passes the gates as well: add `in PORT`, or the filter also
matches the ICMP error.

Example:
  millrace filter add 'in lan proto tcp dport 25' --action drop
  millrace filter add 'src 10.1.7.0/24' --action 'port wan via 10.2.0.77' --priority 10
  millrace filter add 'proto udp dport 53' --action 'copy-to probe via 10.3.0.2'
  millrace filter add --from blocked.txt

Each line of a file is a filter: FILTER action ACTION [gate GATE] [priority PRIORITY], as `filter list --lines` prints it.
Empty lines and those that begin with # say nothing. All of them are added, or none: then each line that is wrong is
named, those that can't be read before those that can't be done.")]
    Add {
        /// Match; `*` matches all packets.
        #[arg(required_unless_present = "from")]
        filter: Option<String>,
        /// Action.
        #[arg(long, value_name = "ACTION", required_unless_present = "from")]
        action: Option<String>,
        /// Gate (default: `tap` for copies, `schedule` for queue, `firewall` for police, else `route`; needed for instance).
        #[arg(long)]
        gate: Option<String>,
        /// Priority; the highest matching priority wins.
        #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
        priority: i32,
        /// Add one entry per line of FILE; - is standard input.
        #[arg(long, value_name = "FILE", conflicts_with_all = ["filter", "action", "gate", "priority"])]
        from: Option<PathBuf>,
    },
    /// Remove filters and bindings atomically, by id or match.
    #[command(
        alias = "del",
        after_help = "Example:\n  millrace filter remove 3 4\n  millrace filter remove 'in lan proto tcp dport 25' --action drop"
    )]
    Remove {
        /// Filter ids; with --action, one filter expression.
        #[arg(required = true, value_name = "ID")]
        which: Vec<String>,
        /// Action of the filter to remove.
        #[arg(long, value_name = "ACTION")]
        action: Option<String>,
        /// Gate of the filter (default: as for `filter add`).
        #[arg(long, requires = "action")]
        gate: Option<String>,
        /// Priority of the filter, if several differ only in it.
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
        /// Show only this gate.
        #[arg(long)]
        gate: Option<String>,
        /// Print lines that `filter add --from` reads.
        #[arg(long, conflicts_with = "watch")]
        lines: bool,
        /// Refresh options.
        #[command(flatten)]
        watch: Watch,
    },
    /// Show for each gate which filter matches a packet and why.
    #[command(
        after_help = "Example:\n  millrace filter explain 'src 10.1.0.2 dst 10.2.0.2 proto udp sport 9 dport 5201 in lan'"
    )]
    Explain {
        /// The packet, written as a filter without wildcards for source and destination.
        packet: String,
    },
    /// Find filters that never win or are ambiguous; exit 1 if there are any.
    #[command(after_help = "\
A pair is two filters of one priority that some packets match both, and neither is a special case of the other. The parts of one
expression are not compared with each other.

Example:
  millrace filter check")]
    Check,
}

/// Refresh options of a list.
#[derive(Clone, Copy, Debug, Args)]
pub struct Watch {
    /// Refresh every TIME, 500ms to 60s (default: 1s), with rates.
    #[arg(
        long,
        value_name = "TIME",
        num_args = 0..=1,
        default_missing_value = "1s"
    )]
    pub watch: Option<super::show::Interval>,
    /// Stop after N refreshes.
    #[arg(long, value_name = "LISTS", requires = "watch")]
    pub count: Option<u64>,
}

/// Arguments of `route`.
#[derive(Debug, Args)]
pub struct Route {
    /// Subcommand.
    #[command(subcommand)]
    pub action: RouteAction,
}

/// Subcommands of `route`.
#[derive(Debug, Subcommand)]
pub enum RouteAction {
    /// Add a static route; syntax of `ip route`.
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
        /// Add one entry per line of FILE; - is standard input.
        #[arg(long, value_name = "FILE", conflicts_with = "words")]
        from: Option<PathBuf>,
    },
    /// Add a static route, or replace one without packet loss.
    #[command(
        after_help = "The words are those of `route add`.\n\nExample:\n  millrace route replace 10.9.0.0/16 via 10.2.0.253"
    )]
    Replace {
        /// The route.
        #[arg(required = true, value_name = "WORD")]
        words: Vec<String>,
    },
    /// Remove static routes atomically.
    #[command(
        alias = "del",
        after_help = "Example:\n  millrace route remove 10.9.0.0/16\n  millrace route remove --from routes.txt"
    )]
    Remove {
        /// Prefix of the route.
        #[arg(required_unless_present = "from")]
        prefix: Option<String>,
        /// Remove the prefixes of the routes in FILE; - is standard input.
        #[arg(long, value_name = "FILE", conflicts_with = "prefix")]
        from: Option<PathBuf>,
    },
    /// List routes with counters.
    #[command(after_help = "\
Queued: what was given to the queues of ports. Queued = sent + lost (dropped there) + waiting. A route that gets other next hops counts
anew. Routes that lead to no port don't count, nor those that come when 65,536 do already.

Example:
  millrace route list
  millrace route list --within 10.0.0.0/8 --watch
  millrace route list --lines | grep 'protocol millrace'")]
    List {
        /// Print lines that `route add --from` reads, without own addresses.
        #[arg(long, conflicts_with = "watch")]
        lines: bool,
        /// Show only PREFIX and more specific prefixes.
        #[arg(long, value_name = "PREFIX")]
        within: Option<String>,
        /// Refresh options.
        #[command(flatten)]
        watch: Watch,
    },
    /// Look up the route of an address.
    #[command(alias = "get", after_help = "Example:\n  millrace route lookup 10.9.1.1")]
    Lookup {
        /// The address.
        address: String,
    },
}

/// Arguments of `neighbour`.
#[derive(Debug, Args)]
pub struct Neighbour {
    /// Subcommand.
    #[command(subcommand)]
    pub action: NeighbourAction,
}

/// Subcommands of `neighbour`.
#[derive(Debug, Subcommand)]
pub enum NeighbourAction {
    /// Add a static neighbour.
    #[command(after_help = "Example:\n  millrace neighbour add wan 10.2.0.77 02:00:00:00:00:07")]
    Add {
        /// Port of the neighbour.
        port: String,
        /// IP address of the neighbour.
        address: IpAddr,
        /// MAC address of the neighbour.
        mac: String,
    },
    /// Remove a static neighbour; its address is resolved again.
    #[command(alias = "del", after_help = "Example:\n  millrace neighbour remove wan 10.2.0.77")]
    Remove {
        /// Port of the neighbour.
        port: String,
        /// IP address of the neighbour.
        address: IpAddr,
    },
    /// List neighbours.
    #[command(after_help = "Example:\n  millrace neighbour list")]
    List,
}

/// Arguments of `flow`.
#[derive(Debug, Args)]
pub struct Flow {
    /// Subcommand.
    #[command(subcommand)]
    pub action: FlowAction,
}

/// Subcommands of `flow`.
#[derive(Debug, Subcommand)]
pub enum FlowAction {
    /// List flows, the largest first.
    #[command(
        after_help = "Example:\n  millrace flow list --order rate --limit 10\n  millrace flow list 'proto udp in lan'\n  millrace flow list 'port 80,443 or icmp'"
    )]
    List {
        /// Flows to select.
        #[command(flatten)]
        flows: Flows,
        /// Sort order.
        #[arg(long, default_value = "bytes", value_name = "ORDER")]
        order: FlowOrder,
        /// Maximum number of flows.
        #[arg(long, default_value_t = 20)]
        limit: usize,
    },
    /// Show flow records.
    #[command(
        after_help = "Example:\n  millrace flow show 'src 10.1.0.2 dst 10.2.0.2 proto udp sport 9 dport 5201 in lan'"
    )]
    Show {
        /// Flows to select.
        #[command(flatten)]
        flows: Flows,
    },
    /// Flush all flows, or the flows that a filter matches.
    #[command(after_help = "Example:\n  millrace flow flush 'src 10.1.0.2'\n  millrace flow flush")]
    Flush {
        /// Flows to select.
        #[command(flatten)]
        flows: Flows,
    },
}

/// Selection of flows: a filter, with or without `--filter`.
#[derive(Debug, Args)]
pub struct Flows {
    /// Filter, or a flow as printed by `flow list`.
    #[arg(value_name = "FILTER")]
    words: Option<String>,
    /// Same as FILTER.
    #[arg(long, value_name = "FILTER", conflicts_with = "words")]
    filter: Option<String>,
}

impl Flows {
    /// Returns the filter; `None` if none was given.
    pub fn filter(&self) -> Option<&str> {
        self.words.as_deref().or(self.filter.as_deref())
    }
}

/// Sort order of flows.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum FlowOrder {
    /// Packet rate over 0.5 s.
    Rate,
    /// Bytes.
    Bytes,
    /// Packets.
    Packets,
    /// Most recent packet.
    Recent,
}

impl FlowOrder {
    /// Returns the name in the interface.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Bytes => "bytes",
            Self::Packets => "packets",
            Self::Recent => "recent",
        }
    }
}
