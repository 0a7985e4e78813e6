//! Arguments of the commands for traffic: filters, routes, flows.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// Subcommands of `filter`.
#[derive(Debug, Subcommand)]
pub enum FilterAction {
    /// Add a filter.
    #[command(after_help = "\
Examples:
  millrace filter add 'in lan proto tcp dport 25' --action drop
  millrace filter add 'src 10.1.7.0/24' --action 'port wan via 10.2.0.77' --priority 10
  millrace filter add 'proto udp dport 53' --action 'copy-to probe via 10.3.0.2'
  millrace filter add 'in lan and (tcp or udp)' --action 'police 10mbit'
  millrace filter add --from blocked.txt

Matches, in any order; an omitted word matches everything:
  src, dst       address or prefix: 10.1.0.2, 10.1.0.0/16, fd00::/8
  proto          protocol: tcp, udp, icmp, or a number
  sport, dport   port or range: 80, 1000-2000
  in             ingress port
  flags          TCP flags, value/mask: syn/syn+ack (SYN set, ACK clear)
  dscp           0 to 63, or a name: ef, af41, cs6
  exceptions     ttl (0 or 1), options (IP options), fragment (later fragment), cut (truncated headers)
  tag            0 to 31, set by a plugin
  as in tcpdump  host, net, port, tcp, udp, icmp
Combine matches by and, or, not and parentheses. Lists have commas: dport 80,443.
`not host` takes IPv4 addresses only. For IPv6, add an `accept` filter with a higher priority instead.

Actions:
  accept                       apply no other filter of this gate; other gates and the route apply
  drop                         drop the packet
  reject                       drop the packet and send an ICMP error
  host                         deliver the packet to the kernel, or to the router's own stack
  port NAME [via ADDRESS]      send the packet by this port
  ports NAME,NAME              send the packet by the first port, and copies by the others
  copy-to NAME [via ADDRESS]   send a copy by this port
  copy INSTANCE                give a copy to the instance
  instance NAME                give the packet to the instance
  queue NAME                   put the packet into this queue of its egress port
  police RATE [burst SIZE]     drop packets above RATE, such as 10mbit (default burst: 50 ms, 16 KiB to 16 MiB)
  principal NAME               give the packet this principal, which pays for bindings that name none

If the filter of `reject` matches the ICMP errors too, they are rejected as well: add `in PORT` to the match.
Each line of --from: MATCH action ACTION [gate GATE] [priority PRIORITY]. # starts a comment line.
The router adds all filters of --from, or none.")]
    Add {
        /// Packets to match; `*` matches all packets.
        #[arg(required_unless_present = "from", value_name = "MATCH")]
        filter: Option<String>,
        /// Action on matching packets, such as drop.
        #[arg(long, value_name = "ACTION", required_unless_present = "from")]
        action: Option<String>,
        /// Gate of the filter (default by action: copy and copy-to: tap, queue and principal: schedule, police: firewall, others: route;
        /// required for an instance).
        #[arg(long)]
        gate: Option<String>,
        /// Priority, an integer; the highest matching priority wins.
        #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
        priority: i32,
        /// Add a filter for each line of FILE; - is standard input.
        #[arg(long, value_name = "FILE", conflicts_with_all = ["filter", "action", "gate", "priority"])]
        from: Option<PathBuf>,
    },
    /// Remove filters and bindings, by id or match.
    #[command(
        alias = "del",
        after_help = "\
Examples:
  millrace filter remove 3 4   # ids are in `filter list`
  millrace filter remove 'in lan proto tcp dport 25' --action drop

The router removes all given filters or none."
    )]
    Remove {
        /// Ids of filters; with --action, the match of one filter.
        #[arg(required = true, value_name = "ID|MATCH")]
        which: Vec<String>,
        /// Action of the filter to remove.
        #[arg(long, value_name = "ACTION")]
        action: Option<String>,
        /// Gate of the filter (default: as in `filter add`).
        #[arg(long, requires = "action")]
        gate: Option<String>,
        /// Priority of the filter, if filters differ only in priority.
        #[arg(long, requires = "action", allow_negative_numbers = true)]
        priority: Option<i32>,
    },
    /// List filters and bindings with counters.
    #[command(after_help = "\
Examples:
  millrace filter list
  millrace filter list --gate route --json
  millrace filter list --watch 2s            # refresh every 2 seconds, with rates
  millrace filter list --lines > filters.txt

Counters of packets:
  packets   matching packets
  drops     packets that the filter or its instance dropped
  queued    packets, copies and fragments put into queues of ports: sent + lost + waiting
  lost      packets that the queues dropped")]
    List {
        /// Show only filters of this gate.
        #[arg(long)]
        gate: Option<String>,
        /// Print lines for `filter add --from`.
        #[arg(long, conflicts_with = "watch")]
        lines: bool,
        /// Refresh options.
        #[command(flatten)]
        watch: Watch,
    },
    /// Show which filter matches a packet at each gate, and why.
    #[command(
        after_help = "Examples:\n  millrace filter explain 'src 10.1.0.2 dst 10.2.0.2 proto udp sport 9 dport 5201 in lan'\n\nDefaults: proto udp, sport 0, dport 0, no ingress port."
    )]
    Explain {
        /// Packet, such as 'src 10.1.0.2 dst 10.2.0.2 in lan'; src and dst are required.
        packet: String,
    },
    /// Find filters that never win or are ambiguous.
    #[command(after_help = "\
Examples:
  millrace filter check
  millrace filter check --json

Ambiguous: two filters of equal priority match some of the same packets, and neither is more specific.
Also reported: filters at gates of position route with a priority below `route-priority`, which routes override. Exit status 1 if there are findings.")]
    Check,
}

/// Refresh options of a list.
#[derive(Clone, Copy, Debug, Args)]
pub struct Watch {
    /// Refresh the list every TIME, 500ms to 60s, with rates (without TIME: 1s).
    #[arg(
        long,
        value_name = "TIME",
        num_args = 0..=1,
        default_missing_value = "1s"
    )]
    pub watch: Option<super::show::Interval>,
    /// Stop after N refreshes; needs --watch.
    #[arg(long, value_name = "N", requires = "watch")]
    pub count: Option<u64>,
}

/// Subcommands of `route`.
#[derive(Debug, Subcommand)]
pub enum RouteAction {
    /// Add a static route, in the syntax of `ip route`.
    #[command(after_help = "\
Examples:
  millrace route add 10.9.0.0/16 via 10.2.0.254
  millrace route add default via fe80::1 port wan
  millrace route add 10.9.0.0/16 via 10.2.0.253 via 10.2.0.254   # two next hops share the flows
  millrace route add blackhole 10.66.0.0/16                      # also unreachable, prohibit
  millrace route add --from routes.txt

Syntax: PREFIX [via ADDRESS]... [port NAME]. `default` is 0.0.0.0/0, or ::/0 with an IPv6 next hop.
A route whose egress port is a kernel device is installed in the kernel, too (main table, proto 213).
Each line of --from: a route, as `ip route` or `route list --lines` prints it. # starts a comment line.
A line with a metric, or with a weight other than 1, is an error. The router adds all routes of --from, or none.")]
    Add {
        /// Route, such as 10.9.0.0/16 via 10.2.0.254.
        #[arg(required_unless_present = "from", value_name = "WORD")]
        words: Vec<String>,
        /// Add a route for each line of FILE; - is standard input.
        #[arg(long, value_name = "FILE", conflicts_with = "words")]
        from: Option<PathBuf>,
    },
    /// Add a static route, or replace one without packet loss.
    #[command(
        after_help = "Examples:\n  millrace route replace 10.9.0.0/16 via 10.2.0.253\n\nThe syntax is that of `route add`. The prefix always has a route during the replacement."
    )]
    Replace {
        /// Route, such as 10.9.0.0/16 via 10.2.0.253.
        #[arg(required = true, value_name = "WORD")]
        words: Vec<String>,
    },
    /// Remove one static route, or a list of static routes.
    #[command(
        alias = "del",
        after_help = "\
Examples:
  millrace route remove 10.9.0.0/16
  millrace route remove --from routes.txt   # all routes of the file, or none

The command removes only routes of Millrace. Use `ip route` for the other routes of the kernel."
    )]
    Remove {
        /// Prefix of the route.
        #[arg(required_unless_present = "from")]
        prefix: Option<String>,
        /// Remove the route of each line of FILE; - is standard input.
        #[arg(long, value_name = "FILE", conflicts_with = "prefix")]
        from: Option<PathBuf>,
    },
    /// List routes with counters.
    #[command(after_help = "\
Examples:
  millrace route list
  millrace route list --within 10.0.0.0/8 --watch          # refresh every second, with rates
  millrace route list --lines | grep 'protocol millrace'   # only static routes of Millrace

queued: packets given to queues of ports: sent + lost (dropped by the queues) + waiting.
Routes that lead to a port have counters, up to 65,536 routes. New next hops reset the counters of a route.")]
    List {
        /// Print lines for `route add --from`; omits the routes to the router's own addresses.
        #[arg(long, conflicts_with = "watch")]
        lines: bool,
        /// Show only PREFIX and more specific prefixes.
        #[arg(long, value_name = "PREFIX")]
        within: Option<String>,
        /// Refresh options.
        #[command(flatten)]
        watch: Watch,
    },
    /// Look up the route to an address.
    #[command(alias = "get", after_help = "Examples:\n  millrace route lookup 10.9.1.1")]
    Lookup {
        /// Destination address.
        address: String,
    },
}

/// Subcommands of `neighbour`.
#[derive(Debug, Subcommand)]
pub enum NeighbourAction {
    /// Add a static neighbour.
    #[command(after_help = "\
Examples:
  millrace neighbour add tap0 10.3.0.77 02:00:00:00:00:07

Only ports without a kernel device accept static neighbours. For kernel devices, use `ip neighbour`.")]
    Add {
        /// Port of the neighbour; a port without a kernel device.
        port: String,
        /// IP address of the neighbour.
        address: IpAddr,
        /// MAC address of the neighbour.
        mac: String,
    },
    /// Remove a static neighbour.
    #[command(
        alias = "del",
        after_help = "Examples:\n  millrace neighbour remove tap0 10.3.0.77\n\nThe router then resolves the address by ARP or neighbour discovery."
    )]
    Remove {
        /// Port of the neighbour.
        port: String,
        /// IP address of the neighbour.
        address: IpAddr,
    },
    /// List the neighbours of all ports.
    #[command(after_help = "Examples:\n  millrace neighbour list\n  millrace neighbour list --json")]
    List,
}

/// Examples of `flow`.
pub const FLOW_EXAMPLES: &str = "Examples:\n  millrace flow list --order rate --limit 10   # the 10 flows with the most packets per second\n  millrace flow show 'dst 10.2.0.2 proto tcp'\n  millrace flow flush 'src 10.1.0.2'\n\nA flow is all packets with the same addresses, protocol, ports and ingress port.";

/// Examples of `connection`.
pub const CONNECTION_EXAMPLES: &str = "Examples:\n  millrace connection list\n  millrace connection list 'proto tcp' --limit 1000\n\nThe router tracks connections for plugins such as firewall.";

/// Subcommands of `flow`.
#[derive(Debug, Subcommand)]
pub enum FlowAction {
    /// List flows, by default those with the most bytes first.
    #[command(after_help = "\
Examples:
  millrace flow list                             # the 20 flows with the most bytes
  millrace flow list --order rate --limit 10     # measure rates over 0.5 s
  millrace flow list 'proto udp in lan'
  millrace flow list 'port 80,443 or icmp'")]
    List {
        /// Flows to select.
        #[command(flatten)]
        flows: Flows,
        /// Sort order; the largest value is first.
        #[arg(long, default_value = "bytes", value_name = "ORDER")]
        order: FlowOrder,
        /// Maximum number of flows, 1 to 10000.
        #[arg(long, default_value_t = 20)]
        limit: usize,
    },
    /// Show all details of flows.
    #[command(after_help = "\
Examples:
  millrace flow show 'src 10.1.0.2 dst 10.2.0.2 proto udp sport 9 dport 5201 in lan'
  millrace flow show 'dst 10.2.0.2'

FILTER is required; '*' matches all flows. Shows at most 100 flows, those with the highest packet rate first.")]
    Show {
        /// Flows to select.
        #[command(flatten)]
        flows: Flows,
    },
    /// Reserve processor time or a rate for flows.
    #[command(after_help = "\
Examples:
  millrace flow reserve 'proto udp dport 5004' --link 10mbit --port wan
  millrace flow reserve 'src 10.0.0.7' --cpu 5% --instance inspect --principal video
  millrace flow reserve 'proto udp' --cpu 20% --dry-run     # check it, and show what would be left

Adds a principal and a filter. With --cpu, the filter gives the principal to the flows; with --link alone, only
its queue. With --instance, adds a binding that the principal pays for. All of it is made, or nothing.")]
    Reserve(Box<FlowReservation>),
    /// Release a reservation.
    #[command(after_help = "\
Examples:
  millrace flow release flow-1
  millrace flow release flow-1 --drop

Removes the principal, with the filters and bindings that name it. Packets that wait for its processor time, or in its
queues at ports, continue, or are dropped with --drop.")]
    Release {
        /// Name of the principal.
        name: String,
        /// Drop the packets that wait for the principal, at the processor and at ports.
        #[arg(long)]
        drop: bool,
    },
    /// Flush all flows, or the flows that a filter matches.
    #[command(after_help = "\
Examples:
  millrace flow flush 'src 10.1.0.2'
  millrace flow flush                  # all flows

The router classifies the next packet of each flow again.")]
    Flush {
        /// Flows to select.
        #[command(flatten)]
        flows: Flows,
    },
}

/// Arguments of `flow reserve`.
#[derive(Clone, Debug, Args)]
pub struct FlowReservation {
    /// Filter of the flows.
    #[arg(value_name = "FILTER")]
    pub filter: String,
    /// Name of the new principal (default: flow-1, flow-2 and so on).
    #[arg(long, value_name = "NAME")]
    pub principal: Option<String>,
    /// Reserved processor time, of one processor, such as 5%.
    #[arg(long, value_name = "SHARE")]
    pub cpu: Option<String>,
    /// Reserved rate, such as 10mbit; needs --port.
    #[arg(long, value_name = "RATE")]
    pub link: Option<String>,
    /// Port of the rate, or of the deadline.
    #[arg(long, value_name = "PORT")]
    pub port: Option<String>,
    /// Longest time of a packet in the router, such as 5ms; needs --rate, and --cost or --port.
    #[arg(long, value_name = "TIME", requires = "rate", conflicts_with_all = ["cpu", "link"])]
    pub deadline: Option<String>,
    /// Largest number of packets per second.
    #[arg(long, value_name = "NUMBER", requires = "deadline")]
    pub rate: Option<u32>,
    /// Longest processor time of plugins for a packet, such as 40us.
    #[arg(long, value_name = "TIME", requires = "deadline")]
    pub cost: Option<String>,
    /// Largest size of a packet on the wire, such as 1538B.
    #[arg(long, value_name = "SIZE", requires = "deadline")]
    pub size: Option<String>,
    /// Largest number of packets that arrive at once.
    #[arg(long, value_name = "NUMBER", requires = "deadline")]
    pub burst: Option<u32>,
    /// Instance to bind to the flows.
    #[arg(long, value_name = "INSTANCE")]
    pub instance: Option<String>,
    /// Gate of the binding (default: process).
    #[arg(long, value_name = "GATE", requires = "instance")]
    pub gate: Option<String>,
    /// Priority of filter and binding.
    #[arg(long, default_value_t = 0, value_name = "NUMBER", allow_negative_numbers = true)]
    pub priority: i32,
    /// Check everything and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// Subcommands of `connection`.
#[derive(Debug, Subcommand)]
pub enum ConnectionAction {
    /// List connections that the router tracks for plugins.
    #[command(after_help = "\
Examples:
  millrace connection list
  millrace connection list 'src 10.1.0.2 proto tcp' --limit 1000
  millrace connection list --filter 'port 443'

A filter matches either direction of a connection. Connections have no ingress port.")]
    List {
        /// Connections to select.
        #[command(flatten)]
        flows: Flows,
        /// Maximum number of connections, 1 to 10000.
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
}

/// Selection of flows: a filter, with or without `--filter`.
#[derive(Debug, Args)]
pub struct Flows {
    /// Filter, such as 'proto udp in lan', or a flow as printed by `flow list`.
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
    /// Packets per second, measured over 0.5 s.
    Rate,
    /// Bytes.
    Bytes,
    /// Packets.
    Packets,
    /// Time of the last packet.
    Recent,
    /// Processor time since packets began to wait for it.
    Cycles,
}
