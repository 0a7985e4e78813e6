//! Views of routes.

use schemars::JsonSchema;
use serde::Serialize;

/// Route.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RouteView {
    /// Destination prefix.
    pub to: String,
    /// Kind of the route: `forward`, `local`, `kernel`, `broadcast`, `blackhole`, `unreachable`, `prohibit`.
    pub kind: &'static str,
    /// Next hops; empty unless the route forwards.
    pub next_hops: Vec<NextHopView>,
    /// Source of the route: `kernel` for mirrored routes, else `millrace`.
    pub source: &'static str,
    /// Origin of the route, in the kernel's names: `static`, `kernel`, `bgp`…; `millrace` for the router's
    /// own routes.
    pub protocol: String,
    /// Reason why the kernel lacks the configured route, so that no packet takes it. Absent where the kernel
    /// has the route.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// Queue account of the route; absent where it is not counted: the route leads to no port, or the limit
    /// of counted routes was reached before.
    #[serde(flatten)]
    pub queues: Option<QueuesView>,
}

/// Account of a route's or a filter's packets in the queues of ports: queued = sent + lost + waiting. Bytes
/// are those of whole frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct QueuesView {
    /// Packets given to the queues of ports; each copy and each fragment is one packet.
    pub queued_packets: u64,
    /// Bytes of the queued packets.
    pub queued_bytes: u64,
    /// Packets that went on to devices.
    pub sent_packets: u64,
    /// Bytes of the sent packets.
    pub sent_bytes: u64,
    /// Packets dropped in queues or behind them, before a device took them.
    pub lost_packets: u64,
    /// Bytes of the lost packets.
    pub lost_bytes: u64,
    /// Packets waiting in queues.
    pub waiting_packets: u64,
    /// Bytes of the waiting packets.
    pub waiting_bytes: u64,
}

/// Next hop of a route.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct NextHopView {
    /// Address of the next hop; absent where the destinations are neighbours themselves.
    pub via: Option<String>,
    /// Port by which the packets leave.
    pub port: String,
    /// Weight among the route's next hops.
    pub weight: u16,
}
