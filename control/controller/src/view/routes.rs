//! Routes.

use schemars::JsonSchema;
use serde::Serialize;

/// A route.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RouteView {
    /// Destination prefix.
    pub to: String,
    /// `forward`, `local`, `kernel`, `broadcast`, `blackhole`, `unreachable`, `prohibit`.
    pub kind: &'static str,
    /// Next hops; empty unless it forwards.
    pub next_hops: Vec<NextHopView>,
    /// `kernel` for mirrored routes, else `millrace`.
    pub source: &'static str,
    /// Who made it, in the kernel's words: `static`, `kernel`, `bgp`…; `millrace` for ours.
    pub protocol: String,
    /// Why the kernel doesn't have it, though it is configured: no packet takes it. Left out where it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// What was sent by it; left out where that is not counted: it leads to no port, or too many routes came before it.
    #[serde(flatten)]
    pub queues: Option<QueuesView>,
}

/// What a route or a filter gave to the queues of ports, and what became of it: queued = sent + lost + waiting. Bytes are those
/// of whole frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct QueuesView {
    /// Packets that were given to the queues of ports; each copy and each fragment is one.
    pub queued_packets: u64,
    /// Their bytes.
    pub queued_bytes: u64,
    /// Packets that went on to devices.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Packets that were dropped in queues or behind, before a device took them.
    pub lost_packets: u64,
    /// Their bytes.
    pub lost_bytes: u64,
    /// Packets that wait.
    pub waiting_packets: u64,
    /// Their bytes.
    pub waiting_bytes: u64,
}

/// A next hop of a route.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct NextHopView {
    /// Its address; none when the destinations are neighbours themselves.
    pub via: Option<String>,
    /// The port to leave by.
    pub port: String,
    /// Its share among the route's next hops.
    pub weight: u16,
}
