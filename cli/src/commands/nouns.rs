//! Nouns of `show`: the resource, the table columns and the commands of each noun.

use crate::arguments::Noun;

const PORTS: &str = "port=name | device | driver | mode | state | mtu | rx=rx_packets | tx=tx_packets \
    | rx/s=rx_rate | tx/s=tx_rate | rx b/s=rx_bits | tx b/s=tx_bits | offloaded=offloaded_packets \
    | to host=to_host | drops";

const ROUTES: &str = "to | kind | next hops=next_hops | source | protocol | queued=queued_packets \
    | sent=sent_packets | sent bytes=sent_bytes | lost=lost_packets | waiting=waiting_packets \
    | missing";

const NEIGHBOURS: &str = "address | port | mac | state";

const INSTANCES: &str = "instance=name | plugin | level | settings | health | packets | packets/s=packet_rate \
    | cpu s=cpu_seconds | cycles/packet 50 %=packet_cycles/median | 95 %=packet_cycles/p95 | 99 %=packet_cycles/p99 \
    | declared=declared_cycles/packet | memory bytes=memory | last fault=last_fault | counters | bindings";

const GATES: &str = "gate=name | position | table | reason for the table=table_reason | bytes=memory | links \
    | bindings";

const PLUGINS: &str = "plugin=name | version | signature | positions | summary";

const QUARANTINE: &str = "instance | plugin | since | exists | why";

const DROPS: &str = "packets | per second=rate | reason | meaning | ports";

const BINDINGS: &str = "id | gate | filter | action | priority | packets | drops";

const INTERFACE: &str = "path | methods | summary";

const FILTERS: &str = "id | gate | priority | match | action | packets | bytes | drops \
    | queued=queued_packets | sent=sent_packets | lost=lost_packets | waiting=waiting_packets";

const TOKENS: &str = "token=name | role | created | by=created_by/name | expires | expired \
    | last used=used | from=used_from";

const PRINCIPALS: &str = "principal=name | owner | cpu | same as=same_as | weight | cpu limit=cpu_limit | link | cpu s=usage/cpu_seconds \
    | throttled s=usage/throttled_seconds | memory bytes=usage/memory | peak=usage/memory_peak \
    | plugins=usage/plugin_memory | flow state=usage/flow_state | waiting=usage/waiting | under way=usage/handover | of=memory | oom kills=usage/oom_kills | disk read=usage/disk_read | written=usage/disk_written \
    | of B/s=disk | processes=usage/processes | of=processes";

const PROMISES: &str = "principal | bindings | promised %=promised | reserved | limit %=limit \
    | delivered % 1 s=windows/0/delivered | due=windows/0/entitled | 10 s=windows/1/delivered \
    | due=windows/1/entitled | 60 s=windows/2/delivered | due=windows/2/entitled | kept=windows/2/kept \
    | idle % 10 s=windows/1/idle | throttled | met=deadlines_met | missed=deadlines_missed \
    | longest us=longest_wait | of=longest_promised | waiting | dropped | queue=drops/cpu_queue \
    | memory=drops/memory | ceiling=drops/core_ceiling | hand-over=drops/handover | link=drops/link_queue";

/// Tables of `show promises`: list in the resource, columns, and number of columns that name a row.
pub const PROMISE_TABLES: [(&str, &str, usize); 6] = [
    ("promises", PROMISES, 1),
    ("core_inputs", CORE_INPUTS, 1),
    ("core_functions", CORE_FUNCTIONS, 2),
    ("links", LINKS, 2),
    ("processes", PROCESSES, 1),
    ("thread_groups", THREADS, 1),
];

/// Columns of the processor time of core, below the promises.
const CORE_INPUTS: &str = "core for packets of=port | used s=used_seconds | used % 1 s=windows/0/used \
    | 10 s=windows/1/used | 60 s=windows/2/used";

/// Columns of core's time by function, below the promises.
pub const CORE_FUNCTIONS: &str = "core function=function | port | used s=used_seconds | used % 1 s=windows/0/used \
    | 10 s=windows/1/used | 60 s=windows/2/used";

/// Columns of the reserved rates below the promises.
pub const LINKS: &str = "principal | port | promised b/s=promised | delivered b/s 1 s=windows/0/delivered \
    | due=windows/0/entitled | 10 s=windows/1/delivered | due=windows/1/entitled | 60 s=windows/2/delivered \
    | due=windows/2/entitled | kept=windows/2/kept | idle b/s 10 s=windows/1/idle | longest us=longest_wait \
    | of=longest_promised | waiting | dropped";

/// Columns of the processes of principals and plugins, below the promises.
pub const PROCESSES: &str = "processes of=group | promised %=promised | reserved | limit %=limit \
    | delivered % 1 s=windows/0/delivered | 10 s=windows/1/delivered | 60 s=windows/2/delivered \
    | idle % 10 s=windows/1/idle | throttled % 10 s=windows/1/throttled | processes | used s=used_seconds";

/// Columns of the control groups of the router's threads, below the promises.
const THREADS: &str = "threads of=group | threads | weight | used s=cpu_seconds | obstacle";

const RATES: &str = "port=name | rx/s=rx_rate | tx/s=tx_rate | rx b/s=rx_bits | tx b/s=tx_bits \
    | drops/s=drop_rate";

/// API resource, table columns and commands of a noun.
pub struct Described {
    /// Path of the API resource.
    pub path: &'static str,
    /// JSON pointer to the list of rows in the resource, and key under which each row has its name. In the
    /// key, `/` separates levels. `None` if the resource is a single object.
    pub rows: Option<(&'static str, &'static str)>,
    /// Columns of the table; empty for a noun that is shown as lines.
    pub columns: &'static str,
    /// Words of the command that shows all of the noun, such as `lab list`; `show NOUN` is an alias for it.
    /// `None` without such a command.
    pub command: Option<&'static str>,
    /// Words of the command that shows one entry by name; `None` without such a command.
    pub command_of_one: Option<&'static str>,
}

const fn object(path: &'static str) -> Described {
    Described { path, rows: None, columns: "", command: None, command_of_one: None }
}

/// Describes a noun that is a list. The rows are at the JSON pointer `place`; the key `key` holds their
/// names.
const fn list(
    path: &'static str,
    place: &'static str,
    key: &'static str,
    columns: &'static str,
) -> Described {
    Described { rows: Some((place, key)), columns, ..object(path) }
}

impl Described {
    const fn by(self, command: &'static str) -> Self {
        Self { command: Some(command), ..self }
    }

    const fn one_by(self, command: &'static str) -> Self {
        Self { command_of_one: Some(command), ..self }
    }
}

/// Returns API resource, table columns and commands of a noun.
pub const fn describe(noun: Noun) -> Described {
    match noun {
        Noun::Ports => list("/ports", "", "/name", PORTS),
        Noun::Hardware => object("/hardware"),
        Noun::Routes => list("/routes", "", "/to", ROUTES),
        Noun::Neighbours => list("/neighbours", "", "/address", NEIGHBOURS),
        Noun::Instances => list("/instances", "", "/name", INSTANCES),
        Noun::Gates => list("/gates", "", "/name", GATES),
        Noun::Plugins => list("/plugins", "", "/name", PLUGINS),
        Noun::Quarantine => list("/quarantine", "", "/instance", QUARANTINE),
        Noun::Summary => object("/summary"),
        Noun::Drops => list("/drops", "", "/reason", DROPS),
        Noun::Status => object("/status"),
        Noun::Bindings => list("/bindings", "", "/id", BINDINGS),
        Noun::Filters => list("/filters", "", "/id", FILTERS).by("filter list"),
        Noun::Queues => object("/queues").by("queue show").one_by("queue show"),
        Noun::Schedulers => object("/schedulers").by("scheduler show").one_by("scheduler show"),
        Noun::Flows => object("/flows").by("flow list").one_by("flow show"),
        Noun::Connections => object("/connections").by("connection list"),
        Noun::Tokens => list("/tokens", "", "/name", TOKENS).by("token list"),
        Noun::Principals => {
            list("/principals", "", "/name", PRINCIPALS).by("principal list").one_by("principal show")
        }
        Noun::Promises => list("/promises", "/promises", "/principal", PROMISES),
        Noun::Places => list("/placements", "/placements", "/flow", "").by("place list"),
        Noun::History => object("/revisions").by("history").one_by("history show"),
        Noun::Router => object("/router").by("router show"),
        Noun::ControlPlane => list("/control-plane", "/classes", "/class", "").by("control-plane show"),
        Noun::Admission => list("/admission", "/components", "/component", "").by("admission show"),
        Noun::Allowances => {
            list("/allowances", "", "/name", "").by("allowance list").one_by("allowance show")
        }
        Noun::Events => list("/events?last=10000", "/events", "/number", "").by("events"),
        Noun::Audit => list("/audit?last=10000", "", "/who/name", "").by("audit"),
        Noun::Rates => list("/rates", "/ports", "/name", RATES).by("rates --count 1"),
        // Labs run without a router, so they have no API resource.
        Noun::Labs => object("/").by("lab list").one_by("lab list"),
        Noun::Configuration => object("/configuration"),
        Noun::Interface => list("/", "/resources", "/path", INTERFACE),
        Noun::Openapi => object("/openapi.json"),
    }
}
