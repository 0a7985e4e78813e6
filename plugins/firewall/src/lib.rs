//! `firewall`: lets connections pass by policies between zones, and drops all others.
//!
//! # Purpose
//! Stateful firewall for forwarded packets. A policy decides about the first packet of a connection. Later packets of an
//! allowed connection pass in both directions, and so do the ICMP errors that quote its packets. The router tracks
//! connections for the plugin: TCP with its windows, SCTP, UDP, ICMP queries, and other protocols by their addresses.
//!
//! # Gates
//! At position `queue`, where the egress port is known. Make a gate of its own: `millrace gate create queue guard`. At
//! the gate `schedule`, packets of filters with the action `queue` or `principal` would bypass the instance. Bind it to all
//! packets: a filter that leaves out one direction of a connection makes its answers invalid. Packets to the router
//! itself don't pass there. Packets of the router and its kernel pass, such as its ICMP errors.
//!
//! # Settings
//! - `zones`: zones by name, each with the list of its ports. A port belongs to one zone at most. Up to 32 zones.
//! - `policies`: policies in order, up to 256; the first that matches decides. A policy is written
//!   `ACTION ZONE to ZONE [PROTOCOL [PORTS]]`. The actions are `allow`, `drop`, and `reject`, which drops the packet and
//!   sends an ICMP error (administratively prohibited) to its source. The zone `any` stands for all ports, with and
//!   without a zone. `PROTOCOL` is `tcp`, `udp`, `sctp`, `icmp` (for both IPv4 and IPv6), or a number. `PORTS` are
//!   destination ports and ranges, as in `80,443,8000-8999`.
//!
//! If no policy matches, the packet is dropped.
//!
//! # Connections
//! - **Answers** of allowed connections need no policy, between the zones of their first packet.
//! - **Related** ICMP errors pass if they quote a packet of an allowed connection.
//! - **Invalid** packets are dropped: those that belong to no connection and can't open one, those outside the TCP
//!   window, and ICMP errors that quote no connection.
//! - **Idle times**, and the largest number of connections, are in the table `[connections]` of the configuration.
//!   Packets of new connections beyond it are dropped as `connection_table_full` or `connection_source_full`.
//! - **Changed policies** apply to new connections. Allowed connections go on.
//! - **An upgrade** keeps allowed connections.
//!
//! # Messages
//! - `read`: returns counters and settings. Resets nothing.
//! - `reset`: sets all counters to zero. Connections stay.
//!
//! # Counters
//! - `policies`: for each policy its text, and `packets`: packets that it decided about. For `allow` these are the
//!   connections that it has allowed.
//! - `unmatched`: packets dropped because no policy matched.
//! - `established`: packets of allowed connections; `related`: ICMP errors of allowed connections.
//! - `invalid`: packets dropped as invalid.
//! - `made`: packets that the router made itself.
//!
//! # Drop reasons
//! 0: a policy; 1: no policy matched; 2: invalid.
//!
//! # Example
//! ```text
//! [[instance]]
//! plugin = "firewall"
//! name = "edge"
//! settings.zones = { lan = ["lan"], wan = ["wan"] }
//! settings.policies = ["allow lan to wan", "allow wan to lan tcp 22,443", "reject any to any"]
//!
//! [[bind]]
//! instance = "edge"
//! gate = "guard"
//! ```
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod policy;
mod settings;

use millrace_plugin_abi::{
    ConnectionStatus, Features, FlowKey, Instance, Instant, Message, Packets, Plugin, PluginError, Position,
    Progress, Reply, StateScope, Verdict, declared, merged_but, restored,
};
use millrace_units::PortId;
use serde_json::{Map, Value, json};

use policy::Action;
use settings::{Mark, Settings};

/// The plugin, for the registration of built-in plugins.
pub static PLUGIN: Firewall = Firewall;

/// Plugin `firewall`.
#[derive(Debug)]
pub struct Firewall;

const NAME: &str = "firewall";
const MESSAGES: &[(&str, &str)] =
    &[("read", "counters and settings"), ("reset", "sets all counters to zero; connections stay")];
/// Version of the format of saved states and connection states.
const STATE_VERSION: u32 = 1;
/// Most cycles of a packet without policies, and of each policy.
const CYCLES: u32 = 200;
const CYCLES_OF_POLICY: u32 = 12;

/// Drop reasons.
const BY_POLICY: u8 = 0;
const UNMATCHED: u8 = 1;
const INVALID: u8 = 2;

/// First byte of the connection state: whether a policy has allowed the connection. The marks of its two zones follow.
const ALLOWED: u8 = 1;
/// Bytes of the connection state.
const STATE: usize = 7;

impl Plugin for Firewall {
    declared! {
        name: NAME,
        summary: "Lets connections pass by policies between zones, and drops all others.",
        positions: &[Position::Queue],
        features: Features::CONNECTIONS.and(Features::FLOW_STATE).and(Features::SAVED_STATE).and(Features::REJECT),
        messages: MESSAGES,
        settings: settings::schema(),
        state_version: STATE_VERSION,
    }

    fn packet_budget(&self, settings: &Map<String, Value>) -> Option<u32> {
        let policies = settings.get("policies").and_then(Value::as_array).map_or(0, Vec::len);
        Some(CYCLES + CYCLES_OF_POLICY * policies.min(settings::MOST_POLICIES) as u32)
    }

    fn create(&self, settings: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError> {
        let settings = Settings::new(settings)?;
        let of_policies = vec![0; settings.policies.len()];
        Ok(Box::new(FirewallInstance { settings, of_policies, counters: Counters::default() }))
    }

    fn merge(&self, _message: &Message, replies: Vec<Value>) -> Value {
        merged_but(replies, &["settings"])
    }
}

/// Saved state: the counters in the order of their fields, then each policy's text with its count.
type Saved = ([u64; 5], Vec<(String, u64)>);

#[derive(Clone, Copy, Default)]
struct Counters {
    unmatched: u64,
    established: u64,
    related: u64,
    invalid: u64,
    made: u64,
}

struct FirewallInstance {
    settings: Settings,
    /// Packets that each policy has decided about.
    of_policies: Vec<u64>,
    counters: Counters,
}

/// Packet to be judged.
struct Judged<'a> {
    key: FlowKey,
    status: ConnectionStatus,
    from: PortId,
    to: PortId,
    /// State of the packet's connection; `None` without a connection.
    state: Option<&'a mut [u8; STATE]>,
}

impl Instance for FirewallInstance {
    fn process(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        for place in 0..packets.len() {
            let status = packets.connection(place).status;
            let (key, packet) = packets.get_mut(place);
            let (key, from, to) = (*key, packet.port, packet.out_port);
            let state = packets.state_mut(place).and_then(|state| state.first_chunk_mut());
            let verdict = self.judge(Judged { key, status, from, to, state });
            if verdict != Verdict::Pass {
                packets.set_verdict(place, verdict);
            }
        }
        Progress::Done
    }

    fn writes_packets(&self) -> bool {
        false
    }

    fn flow_state(&self) -> usize {
        STATE
    }

    fn state_scope(&self) -> StateScope {
        StateScope::Connection
    }

    fn hears_flow_ends(&self) -> bool {
        false
    }

    fn save(&mut self) -> Result<Option<Vec<u8>>, PluginError> {
        let Counters { unmatched, established, related, invalid, made } = self.counters;
        let texts = self.settings.policies.iter().map(|policy| policy.text.clone());
        let saved: Saved =
            ([unmatched, established, related, invalid, made], texts.zip(self.of_policies.clone()).collect());
        Ok(serde_json::to_vec(&saved).ok())
    }

    fn restore(&mut self, state: &[u8], version: u32) -> Result<(), PluginError> {
        let (counters, of_policies): Saved = restored(state, version, STATE_VERSION)?;
        let [unmatched, established, related, invalid, made] = counters;
        self.counters = Counters { unmatched, established, related, invalid, made };
        for (policy, count) in self.settings.policies.iter().zip(&mut self.of_policies) {
            let known = of_policies.iter().find(|(text, _)| *text == policy.text);
            *count = known.map_or(0, |(_, count)| *count);
        }
        Ok(())
    }

    fn control(&mut self, message: &Message) -> Reply {
        message.check(NAME, MESSAGES, &[])?;
        if message.name == "reset" {
            self.counters = Counters::default();
            self.of_policies.fill(0);
        }
        Ok(self.read())
    }
}

impl FirewallInstance {
    /// Decides about a packet, and counts it.
    fn judge(&mut self, packet: Judged<'_>) -> Verdict {
        if packet.from == PortId::NONE {
            self.counters.made += 1;
            return Verdict::Pass;
        }
        let zones = (self.settings.mark(packet.from), self.settings.mark(packet.to));
        let allowed = packet.state.as_deref().filter(|state| state[0] == ALLOWED);
        let (is_known, is_allowed) =
            (allowed.is_some(), allowed.is_some_and(|state| is_between(state, zones)));
        match packet.status {
            // A router anywhere may send an error.
            ConnectionStatus::Related if is_known => {
                self.counters.related += 1;
                Verdict::Pass
            }
            ConnectionStatus::Invalid | ConnectionStatus::Related => {
                self.counters.invalid += 1;
                Verdict::Drop(INVALID)
            }
            _ if is_allowed => {
                self.counters.established += 1;
                Verdict::Pass
            }
            _ => self.decide(packet),
        }
    }

    /// Decides about a packet of a connection that is not allowed, by the first policy that matches.
    fn decide(&mut self, Judged { key, from, to, state, .. }: Judged<'_>) -> Verdict {
        let zones = (self.settings.zone_of(from), self.settings.zone_of(to));
        let found = self.settings.policies.iter().position(|policy| policy.matches(zones, &key));
        let Some((policy, count)) =
            found.and_then(|at| Some((self.settings.policies.get(at)?, self.of_policies.get_mut(at)?)))
        else {
            self.counters.unmatched += 1;
            return Verdict::Drop(UNMATCHED);
        };
        *count += 1;
        match policy.action {
            Action::Allow => {
                if let Some(state) = state {
                    let ([a, b, c], [d, e, f]) = (self.settings.mark(from), self.settings.mark(to));
                    *state = [ALLOWED, a, b, c, d, e, f];
                }
                Verdict::Pass
            }
            Action::Drop => Verdict::Drop(BY_POLICY),
            Action::Reject => Verdict::Reject(BY_POLICY),
        }
    }

    fn read(&self) -> Value {
        let Counters { unmatched, established, related, invalid, made } = self.counters;
        let policies = self.settings.policies.iter().zip(&self.of_policies);
        let policies: Vec<_> =
            policies.map(|(policy, packets)| json!({ "policy": policy.text, "packets": packets })).collect();
        json!({
            "policies": policies,
            "unmatched": unmatched,
            "established": established,
            "related": related,
            "invalid": invalid,
            "made": made,
            "settings": self.settings.read(),
        })
    }
}

/// Whether the connection with this state is between two zones, in either direction.
fn is_between([_, a, b, c, d, e, f]: &[u8; STATE], (from, to): (Mark, Mark)) -> bool {
    let (one, other) = ([*a, *b, *c], [*d, *e, *f]);
    (from, to) == (one, other) || (from, to) == (other, one)
}

#[cfg(test)]
mod tests;
