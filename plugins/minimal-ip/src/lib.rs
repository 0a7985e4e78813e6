//! `minimal-ip`: verifies the IP header like a minimal forwarder, drops faulty packets, and may choose the
//! port.
//!
//! # Purpose
//! The plugin guards the path behind plugins that rewrite packets: it drops packets with a wrong length or
//! checksum, and counts them by fault. It also measures the cost of a minimal service per packet. With a
//! port, it forwards chosen flows without a route.
//!
//! The service "minimal IP" (IP--) is described by S. C. Karlin, *Embedded Computational Elements in
//! Extensible Routers* (2003), table 4.1. That service decrements the TTL, updates the checksum and replaces
//! the Ethernet header, and the classifier verifies the header. Here the router itself decrements the TTL,
//! updates the checksum and writes the link header of every forwarded packet. So the plugin does the rest of
//! minimal forwarding: it verifies the header (RFC 1812, 5.2.2) and names the port.
//!
//! The router also verifies the header of each arriving packet. So the plugin finds only faults that a plugin
//! at an earlier gate has made.
//!
//! # Gates
//! At positions `route` and `late`.
//!
//! # Settings
//! `port`: name of the egress port of all packets, whatever their route; none by default, so that the route
//! decides. A packet goes to the gateway of its route, if this gateway is at the configured port, and
//! otherwise to its destination.
//!
//! # Messages
//! - `read`: returns setting and counters. Resets nothing.
//! - `reset`: sets all counters to zero.
//!
//! # Counters
//! - `packets`, `bytes`: packets received and their bytes, link header included.
//! - `sent`: packets that passed.
//! - `dropped`: dropped packets by fault. The number in brackets is the reason under which the router counts
//!   the drops of an instance.
//!   - `short` (0): shorter than the header.
//!   - `version` (1): version other than 4, or other than 6.
//!   - `header_length` (2): IPv4: below 20 octets.
//!   - `total_length` (3): IPv4: below the header length. IPv6: zero, although the header announces options.
//!   - `truncated` (4): fewer octets than the length field announces.
//!   - `checksum` (5): IPv4: wrong header checksum.
//! - `port`: number of the port; missing if the route decides.
//!
//! A change of settings by `instance set` keeps all counters.
//!
//! # Example
//! ```text
//! millrace instance create minimal-ip fast port=wan
//! millrace bind fast --gate route --filter 'dst 192.0.2.0/24'
//! millrace control fast read --json
//! {"bytes":1176,"dropped":{"checksum":0,"header_length":0,"short":0,"total_length":0,"truncated":0,"version":0},
//!  "packets":12,"port":1,"sent":12}
//! ```
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic))]

use millrace_plugin_abi::{
    Family, Features, Instance, Instant, Message, Packet, Packets, Plugin, PluginError, Position, Progress,
    Reply, SettingsReader, Verdict, declared, merged_but, restored, settings_of,
};
use millrace_units::PortId;
use millrace_wire::{Ipv4Fault, Ipv6Fault, ipv4, ipv6};
use serde_json::{Map, Value, json};

/// The plugin, for the registration of built-in plugins.
pub static PLUGIN: MinimalIp = MinimalIp;

/// Plugin `minimal-ip`.
#[derive(Debug)]
pub struct MinimalIp;

const NAME: &str = "minimal-ip";
const MESSAGES: &[(&str, &str)] = &[("read", "setting and counters"), ("reset", "sets all counters to zero")];
/// Version of the saved state's format.
const STATE_VERSION: u32 = 1;

impl Plugin for MinimalIp {
    declared! {
        name: NAME,
        summary: "Verifies the IP header, drops faulty packets, and may choose the port.",
        positions: &[Position::Route, Position::Late],
        features: Features::SAVED_STATE.and(Features::TO_PORTS),
        messages: MESSAGES,
        settings: settings_of(
            json!({
                "port": {"type": "string", "format": "port",
                    "description": "egress port of all packets, whatever their route"},
            }),
            &[],
        ),
        state_version: STATE_VERSION,
        packet_budget: 300,
    }

    fn create(&self, settings: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError> {
        let port = SettingsReader::new(NAME, settings).port("port")?;
        Ok(Box::new(MinimalIpInstance { port, counters: Counters::default() }))
    }

    fn merge(&self, _message: &Message, replies: Vec<Value>) -> Value {
        merged_but(replies, &["port"])
    }
}

/// Fault of a header. Its index in [`Fault::NAMES`] is the drop reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    Short,
    Version,
    HeaderLength,
    TotalLength,
    Truncated,
    Checksum,
}

impl Fault {
    const NAMES: [&str; 6] = ["short", "version", "header_length", "total_length", "truncated", "checksum"];
}

impl From<Ipv4Fault> for Fault {
    #[inline]
    fn from(fault: Ipv4Fault) -> Self {
        match fault {
            Ipv4Fault::Short => Self::Short,
            Ipv4Fault::Version => Self::Version,
            Ipv4Fault::HeaderLength => Self::HeaderLength,
            Ipv4Fault::TotalLength => Self::TotalLength,
            Ipv4Fault::Truncated => Self::Truncated,
            Ipv4Fault::Checksum => Self::Checksum,
        }
    }
}

impl From<Ipv6Fault> for Fault {
    #[inline]
    fn from(fault: Ipv6Fault) -> Self {
        match fault {
            Ipv6Fault::Short => Self::Short,
            Ipv6Fault::Version => Self::Version,
            Ipv6Fault::PayloadLength => Self::TotalLength,
            Ipv6Fault::Truncated => Self::Truncated,
        }
    }
}

/// Checks the IP header of a packet.
#[inline]
fn verify(family: Family, packet: &Packet) -> Result<(), Fault> {
    let (header, length) = (packet.network(), packet.network_len());
    match family {
        Family::V4 => ipv4::sanity(header, length).map_err(Fault::from),
        Family::V6 => ipv6::sanity(header, length).map_err(Fault::from),
    }
}

#[derive(Clone, Copy, Default)]
struct Counters {
    packets: u64,
    bytes: u64,
    sent: u64,
    dropped: [u64; Fault::NAMES.len()],
}

struct MinimalIpInstance {
    port: Option<PortId>,
    counters: Counters,
}

impl Instance for MinimalIpInstance {
    fn process(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        let sound = self.port.map_or(Verdict::Pass, Verdict::Port);
        let counters = &mut self.counters;
        counters.packets += packets.len() as u64;
        packets.for_each(|key, packet| {
            counters.bytes += packet.len() as u64;
            match verify(key.family(), packet) {
                Ok(()) => {
                    counters.sent += 1;
                    sound
                }
                Err(fault) => {
                    if let Some(dropped) = counters.dropped.get_mut(fault as usize) {
                        *dropped += 1;
                    }
                    Verdict::Drop(fault as u8)
                }
            }
        });
        Progress::Done
    }

    fn writes_packets(&self) -> bool {
        false
    }

    fn hears_flow_ends(&self) -> bool {
        false
    }

    fn save(&mut self) -> Result<Option<Vec<u8>>, PluginError> {
        let Counters { packets, bytes, sent, dropped } = self.counters;
        Ok(Some(json!([[packets, bytes, sent], dropped]).to_string().into_bytes()))
    }

    fn restore(&mut self, state: &[u8], version: u32) -> Result<(), PluginError> {
        let ([packets, bytes, sent], dropped) = restored(state, version, STATE_VERSION)?;
        self.counters = Counters { packets, bytes, sent, dropped };
        Ok(())
    }

    fn control(&mut self, message: &Message) -> Reply {
        message.check(NAME, MESSAGES, &[])?;
        if message.name == "reset" {
            self.counters = Counters::default();
        }
        Ok(self.read())
    }
}

impl MinimalIpInstance {
    fn read(&self) -> Value {
        let Counters { packets, bytes, sent, dropped } = self.counters;
        let dropped: Map<_, _> = Fault::NAMES
            .iter()
            .zip(dropped)
            .map(|(name, count)| ((*name).to_owned(), json!(count)))
            .collect();
        let mut said = json!({ "packets": packets, "bytes": bytes, "sent": sent, "dropped": dropped });
        if let (Value::Object(said), Some(port)) = (&mut said, self.port) {
            said.insert("port".to_owned(), port.0.into());
        }
        said
    }
}

#[cfg(test)]
mod tests;
