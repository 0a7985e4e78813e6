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
    /// Origin of the route: `millrace` for the router's own routes, even if they are installed in the kernel;
    /// `kernel` for all other routes.
    pub source: &'static str,
    /// Protocol of the route, by the kernel's name: `static`, `kernel`, `bgp`, …; `millrace` for the router's
    /// own routes.
    pub protocol: String,
    /// Reason why the kernel lacks the configured route; packets don't use it meanwhile. Absent if the kernel
    /// has the route.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// Queue account of the route. Absent if the route leads to no port, or if the maximum number of counted
    /// routes was reached.
    #[serde(flatten)]
    pub queues: Option<QueuesView>,
}

/// Queue account of a route or filter: queued = sent + lost + waiting. Bytes include link headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct QueuesView {
    /// Packets that entered queues; each copy and each fragment counts as a packet.
    pub queued_packets: u64,
    /// Bytes of the queued packets.
    pub queued_bytes: u64,
    /// Packets handed to devices.
    pub sent_packets: u64,
    /// Bytes of the sent packets.
    pub sent_bytes: u64,
    /// Packets dropped in a queue, or between the queue and the device.
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
    /// Address of the gateway; absent if the destinations are neighbours at the port.
    pub via: Option<String>,
    /// Egress port.
    pub port: String,
    /// Weight among the route's next hops.
    pub weight: u16,
}
