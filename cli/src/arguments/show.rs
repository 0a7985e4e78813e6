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
    /// Default number of events to print.
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
    /// Instances whose quarantine survives a restart.
    Quarantine,
    /// Packet totals: received, sent, dropped, and held (queued or waiting).
    Summary,
    /// Drops by reason.
    #[value(alias = "drop")]
    Drops,
    /// Router status.
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
    /// API tokens for remote access.
    #[value(alias = "token")]
    Tokens,
    /// Placements of flows.
    #[value(alias = "place")]
    Places,
    /// Revisions of the configuration.
    #[value(aliases = ["revision", "revisions"])]
    History,
    /// Router-wide settings: the table [router].
    Router,
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
    /// Returns the resource of the interface.
    pub fn path(self) -> &'static str {
        match self {
            Self::Ports => "/ports",
            Self::Hardware => "/hardware",
            Self::Routes => "/routes",
            Self::Neighbours => "/neighbours",
            Self::Instances => "/instances",
            Self::Gates => "/gates",
            Self::Plugins => "/plugins",
            Self::Quarantine => "/quarantine",
            Self::Summary => "/summary",
            Self::Drops => "/drops",
            Self::Status => "/status",
            Self::Bindings => "/bindings",
            Self::Configuration => "/configuration",
            Self::Interface => "/",
            Self::Openapi => "/openapi.json",
            Self::Filters => "/filters",
            Self::Queues => "/queues",
            Self::Schedulers => "/schedulers",
            Self::Flows => "/flows",
            Self::Tokens => "/tokens",
            Self::Places => "/placements",
            Self::History => "/revisions",
            Self::Router => "/router",
            Self::ControlPlane => "/control-plane",
            Self::Events => "/events?last=10000",
            Self::Audit => "/audit?last=10000",
            Self::Rates => "/rates",
            // Labs are no resource of a router: the command `lab list` shows them.
            Self::Labs => "/",
        }
    }

    /// Returns the command that shows the whole noun, if there is one: `show` is an alias of that command.
    pub fn command(self) -> Option<&'static [&'static str]> {
        Some(match self {
            Self::Filters => &["filter", "list"],
            Self::Queues => &["queue", "show"],
            Self::Schedulers => &["scheduler", "show"],
            Self::Flows => &["flow", "list"],
            Self::Tokens => &["token", "list"],
            Self::Places => &["place", "list"],
            Self::History => &["history"],
            Self::Router => &["router", "show"],
            Self::ControlPlane => &["control-plane", "show"],
            Self::Events => &["events"],
            Self::Audit => &["audit"],
            Self::Rates => &["rates", "--count", "1"],
            Self::Labs => &["lab", "list"],
            _ => return None,
        })
    }

    /// Returns the command that shows one entry by name, if there is one.
    pub fn command_of_one(self) -> Option<&'static [&'static str]> {
        Some(match self {
            Self::Queues => &["queue", "show"],
            Self::Schedulers => &["scheduler", "show"],
            Self::Flows => &["flow", "show"],
            Self::History => &["history", "show"],
            Self::Labs => &["lab", "list"],
            _ => return None,
        })
    }

    /// Returns the path of the rows in the resource and the key of their names (`/` separates levels); `None`
    /// for a single object.
    pub fn key(self) -> Option<(&'static str, &'static str)> {
        Some(match self {
            Self::Ports | Self::Instances | Self::Gates | Self::Plugins | Self::Tokens => ("", "/name"),
            Self::Quarantine => ("", "/instance"),
            Self::Routes => ("", "/to"),
            Self::Neighbours => ("", "/address"),
            Self::Drops => ("", "/reason"),
            Self::Bindings | Self::Filters => ("", "/id"),
            Self::Places => ("/placements", "/flow"),
            Self::ControlPlane => ("/classes", "/class"),
            Self::Events => ("/events", "/number"),
            Self::Audit => ("", "/who/name"),
            Self::Rates => ("/ports", "/name"),
            Self::Interface => ("/resources", "/path"),
            _ => return None,
        })
    }

    /// Returns its singular and plural names.
    pub fn names(self) -> (String, String) {
        let value = self.to_possible_value();
        let mut names = value.iter().flat_map(|value| value.get_name_and_aliases()).map(str::to_owned);
        let several = names.next().unwrap_or_default();
        (names.next().unwrap_or_else(|| several.clone()), several)
    }
}

/// Refresh interval: 500 ms to 60 s.
pub type Interval = Time<500_000, 60_000_000>;
