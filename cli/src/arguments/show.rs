//! Arguments of the commands that show state and events.

use clap::{Args, ValueEnum};
use millrace_config::Time;

/// Arguments of `top`.
#[derive(Debug, Args)]
pub struct Top {
    /// Refresh interval, 500ms to 60s.
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub interval: Interval,
}

/// Arguments of `events`.
#[derive(Debug, Args)]
pub struct Events {
    /// Print new events until Ctrl-C.
    #[arg(long, short)]
    pub follow: bool,
    /// Show all events after event NUMBER.
    #[arg(long, value_name = "NUMBER", conflicts_with = "last")]
    pub since: Option<u64>,
    /// Show the last COUNT events of the 4,096 that the router keeps (default: 50; with --follow: none).
    #[arg(long, value_name = "COUNT")]
    pub last: Option<u32>,
    /// Show only events of this kind, such as link-down; repeatable.
    #[arg(long = "kind", value_name = "KIND")]
    pub kinds: Vec<String>,
}

impl Events {
    /// Default number of events that `events` prints.
    pub const LAST: u32 = 50;
}

/// Arguments of `audit`.
#[derive(Debug, Args)]
pub struct Audit {
    /// Show the last COUNT lines, 1 to 10000.
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    pub last: u32,
}

/// Arguments of `rates`.
#[derive(Debug, Args)]
pub struct Rates {
    /// Samples per second, 1 to 10.
    #[arg(long, value_name = "TIMES", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=10))]
    pub hz: u8,
    /// Stop after COUNT samples.
    #[arg(long, value_name = "COUNT")]
    pub count: Option<u64>,
}

/// Arguments of `show`.
#[derive(Debug, Args)]
pub struct Show {
    /// Resource to show, in the singular or plural.
    pub noun: Noun,
    /// Name of one entry (default: all entries).
    pub name: Option<String>,
}

/// Resource to show.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Noun {
    /// Ports with counters and rates.
    #[value(alias = "port")]
    Ports,
    /// Tree of XDP programs, workers, host and ports, with their connections.
    Hardware,
    /// Routes of the kernel and of Millrace.
    #[value(alias = "route")]
    Routes,
    /// Neighbours of the ports.
    #[value(alias = "neighbour")]
    Neighbours,
    /// Plugin instances, bindings and counters.
    #[value(alias = "instance")]
    Instances,
    /// Gates with their bindings.
    #[value(alias = "gate")]
    Gates,
    /// Built-in and loaded plugins.
    #[value(alias = "plugin")]
    Plugins,
    /// Instances in persistent quarantine after a hang or crash.
    Quarantine,
    /// Packet totals: received, sent, dropped, held in the router.
    Summary,
    /// Drops by reason.
    #[value(alias = "drop")]
    Drops,
    /// Status: version, uptime, workers, packet memory.
    Status,
    /// Bindings of instances and filters.
    #[value(alias = "binding")]
    Bindings,
    /// Filters with their actions and counters.
    #[value(alias = "filter")]
    Filters,
    /// Queues of ports and of flows.
    #[value(alias = "queue")]
    Queues,
    /// Schedulers of the ports.
    #[value(alias = "scheduler")]
    Schedulers,
    /// Flows in the flow table.
    #[value(alias = "flow")]
    Flows,
    /// Connections that the router tracks.
    #[value(alias = "connection")]
    Connections,
    /// API tokens for remote access.
    #[value(alias = "token")]
    Tokens,
    /// Principals with shares, limits and usage.
    #[value(alias = "principal")]
    Principals,
    /// Shares of the processor promised to principals, and delivered.
    #[value(alias = "promise")]
    Promises,
    /// Placements of flows.
    #[value(alias = "place")]
    Places,
    /// Revisions of the configuration.
    #[value(aliases = ["revision", "revisions"])]
    History,
    /// Router-wide settings: the table [router].
    Router,
    /// Components, and what is promised of each.
    Admission,
    /// Allowances of users: what they may request, and hold.
    #[value(alias = "allowance")]
    Allowances,
    /// Classes of control-plane policing.
    ControlPlane,
    /// Latest events.
    #[value(alias = "event")]
    Events,
    /// Latest lines of the audit log; a name selects one caller.
    Audit,
    /// Packets and bits per second of each port.
    #[value(alias = "rate")]
    Rates,
    /// Running labs on this machine.
    #[value(alias = "lab")]
    Labs,
    /// Running configuration, as a file.
    Configuration,
    /// Paths and methods of the API.
    Interface,
    /// API description in OpenAPI, as JSON.
    Openapi,
}

impl Noun {
    /// Returns the words for this noun on the command line: singular and plural.
    pub fn names(self) -> (String, String) {
        let value = self.to_possible_value();
        let mut names = value.iter().flat_map(|value| value.get_name_and_aliases()).map(str::to_owned);
        let several = names.next().unwrap_or_default();
        (names.next().unwrap_or_else(|| several.clone()), several)
    }
}

/// Refresh interval: 500 ms to 60 s.
pub type Interval = Time<500_000, 60_000_000>;
