//! Connections: limits of the tables that track them, and idle times.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::quantity::Time;

/// Idle time of connections, 1 s to 31 days.
pub type IdleTime = Time<1_000_000, 2_678_400_000_000>;

/// Connections that the router tracks for plugins with `state = "connection"` in their manifest. A restart changes these
/// settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Connections {
    /// Maximum number of connections, 1,024 to 67,108,864. Each worker gets an equal share. In a full table, a new
    /// connection takes the place of an unconfirmed one. Default 262,144.
    pub maximum: u32,
    /// Maximum number of connections that an address may have opened at a worker, 1 to 67,108,864. Default 16,384.
    pub per_source: u32,
    /// Whether a TCP segment other than SYN opens a connection. So TCP connections from before the router's start go on.
    /// Default false.
    pub adopt: bool,
    /// Idle time of TCP and SCTP connections before the end of the handshake. Default 4 minutes (RFC 5382, REQ-5).
    pub opening: IdleTime,
    /// Idle time of established TCP and SCTP connections. Default 2 hours 4 minutes (RFC 5382, REQ-5).
    pub established: IdleTime,
    /// Idle time of TCP and SCTP connections after the first FIN or SHUTDOWN. Default 4 minutes (RFC 5382, REQ-5).
    pub closing: IdleTime,
    /// Idle time of TCP and SCTP connections that have ended. Default 10 s.
    pub closed: IdleTime,
    /// Idle time of UDP before an answer. Default 30 s.
    pub udp_unanswered: IdleTime,
    /// Idle time of UDP with packets in both directions. Default 5 minutes (RFC 4787, REQ-5).
    pub udp: IdleTime,
    /// Idle time of ICMP queries. Default 60 s (RFC 5508, REQ-1).
    pub icmp: IdleTime,
    /// Idle time of all other protocols. Default 10 minutes.
    pub other: IdleTime,
}

impl Default for Connections {
    fn default() -> Self {
        let seconds = |seconds: u64| Time::clamped(seconds * 1_000_000);
        Self {
            maximum: 262_144,
            per_source: 16_384,
            adopt: false,
            opening: seconds(240),
            established: seconds(7440),
            closing: seconds(240),
            closed: seconds(10),
            udp_unanswered: seconds(30),
            udp: seconds(300),
            icmp: seconds(60),
            other: seconds(600),
        }
    }
}
