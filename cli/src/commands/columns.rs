//! Columns of the tables for each noun.

use crate::arguments::Noun;
use crate::output::Column;

const PORTS: &[Column] = &[
    ("port", "name"),
    ("device", "device"),
    ("driver", "driver"),
    ("mode", "mode"),
    ("state", "state"),
    ("mtu", "mtu"),
    ("rx", "rx_packets"),
    ("tx", "tx_packets"),
    ("rx/s", "rx_rate"),
    ("tx/s", "tx_rate"),
    ("rx b/s", "rx_bits"),
    ("tx b/s", "tx_bits"),
    ("by driver", "driver_packets"),
    ("to host", "to_host"),
    ("drops", "drops"),
];

const ROUTES: &[Column] = &[
    ("to", "to"),
    ("kind", "kind"),
    ("next hops", "next_hops"),
    ("source", "source"),
    ("protocol", "protocol"),
    ("queued", "queued_packets"),
    ("sent", "sent_packets"),
    ("sent bytes", "sent_bytes"),
    ("lost", "lost_packets"),
    ("waiting", "waiting_packets"),
    ("missing", "missing"),
];

const NEIGHBOURS: &[Column] = &[("address", "address"), ("port", "port"), ("mac", "mac"), ("state", "state")];

const INSTANCES: &[Column] = &[
    ("instance", "name"),
    ("plugin", "plugin"),
    ("settings", "settings"),
    ("health", "health"),
    ("packets", "packets"),
    ("packets/s", "packet_rate"),
    ("last fault", "last_fault"),
    ("counters", "counters"),
    ("bindings", "bindings"),
];

const GATES: &[Column] = &[
    ("gate", "name"),
    ("position", "position"),
    ("table", "table"),
    ("why another", "moved"),
    ("bytes", "memory"),
    ("links", "links"),
    ("bindings", "bindings"),
];

const PLUGINS: &[Column] = &[
    ("plugin", "name"),
    ("version", "version"),
    ("signature", "signature"),
    ("positions", "positions"),
    ("summary", "summary"),
];

const QUARANTINE: &[Column] = &[
    ("instance", "instance"),
    ("plugin", "plugin"),
    ("since", "since"),
    ("here", "is_here"),
    ("why", "why"),
];

const DROPS: &[Column] = &[
    ("packets", "packets"),
    ("per second", "rate"),
    ("reason", "reason"),
    ("meaning", "meaning"),
    ("ports", "ports"),
];

const BINDINGS: &[Column] = &[
    ("id", "id"),
    ("gate", "gate"),
    ("filter", "filter"),
    ("action", "action"),
    ("priority", "priority"),
    ("packets", "packets"),
    ("drops", "drops"),
];

const INTERFACE: &[Column] = &[("path", "path"), ("methods", "methods"), ("summary", "summary")];

pub const FILTERS: &[Column] = &[
    ("id", "id"),
    ("gate", "gate"),
    ("priority", "priority"),
    ("match", "match"),
    ("action", "action"),
    ("packets", "packets"),
    ("bytes", "bytes"),
    ("drops", "drops"),
    ("queued", "queued_packets"),
    ("sent", "sent_packets"),
    ("lost", "lost_packets"),
    ("waiting", "waiting_packets"),
];

pub const TOKENS: &[Column] = &[
    ("token", "name"),
    ("role", "role"),
    ("created", "created"),
    ("by", "created_by/name"),
    ("expires", "expires"),
    ("expired", "expired"),
    ("last used", "used"),
    ("from", "used_from"),
];

pub const RATES: &[Column] = &[
    ("port", "name"),
    ("rx/s", "rx_rate"),
    ("tx/s", "tx_rate"),
    ("rx b/s", "rx_bits"),
    ("tx b/s", "tx_bits"),
    ("drops/s", "drop_rate"),
];

/// Returns the columns of a noun's table; none for a noun that is shown as lines.
pub fn columns(noun: Noun) -> &'static [Column] {
    match noun {
        Noun::Ports => PORTS,
        Noun::Routes => ROUTES,
        Noun::Neighbours => NEIGHBOURS,
        Noun::Instances => INSTANCES,
        Noun::Gates => GATES,
        Noun::Plugins => PLUGINS,
        Noun::Quarantine => QUARANTINE,
        Noun::Drops => DROPS,
        Noun::Bindings => BINDINGS,
        Noun::Interface => INTERFACE,
        Noun::Filters => FILTERS,
        Noun::Tokens => TOKENS,
        Noun::Rates => RATES,
        _ => &[],
    }
}
