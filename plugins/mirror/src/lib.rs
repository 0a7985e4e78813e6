//! `mirror`: sends every copy to one or two ports.
//!
//! # Purpose
//! Shows all traffic of chosen flows at other ports, for a recorder or an intrusion detection system. The
//! packets themselves continue unchanged. To copy only a part of the traffic, use `sample`.
//!
//! # Gates
//! At position `copy`.
//!
//! # Settings
//! - `to`: name of the port for the copies; required.
//! - `also`: second port for another copy; none by default. If given, both ports must be among the first 64
//!   ports of the configuration.
//!
//! A copy leaves the port like any other packet. Its link header is for the gateway of its route, if the
//! gateway is at this port, and otherwise for its destination. If the port's MTU is smaller, the copy is
//! fragmented or dropped. So the receiver must answer for that address at the port (a static `[[neighbour]]`
//! can declare it). A filter with the action `copy-to PORT via ADDRESS` sends copies to one neighbour
//! instead.
//!
//! # Messages
//! - `read`: returns settings and counters. Resets nothing.
//! - `reset`: sets all counters to zero.
//!
//! # Counters
//! - `packets`: copies received, each sent to every configured port.
//! - `bytes`: bytes of these copies, link header included.
//! - `settings`: the settings, with ports as numbers.
//!
//! A change of settings by `instance set` keeps all counters.
//!
//! # Example
//! ```text
//! millrace instance create mirror m1 to=recorder also=ids
//! millrace bind m1 --gate tap --filter 'in lan proto tcp'
//! millrace control m1 read --json
//! {"bytes":1200,"packets":12,"settings":{"also":4,"to":3}}
//! ```
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic))]

use millrace_plugin_abi::{
    Features, Instance, Instant, Message, Packets, Plugin, PluginError, Position, Progress, Reply,
    SettingsReader, Verdict, declared, merged_but, restored, settings_of,
};
use millrace_units::PortId;
use serde_json::{Map, Value, json};

/// The plugin, for the registration of built-in plugins.
pub static PLUGIN: Mirror = Mirror;

/// Plugin `mirror`.
#[derive(Debug)]
pub struct Mirror;

const NAME: &str = "mirror";
const MESSAGES: &[(&str, &str)] =
    &[("read", "settings and counters"), ("reset", "sets all counters to zero")];
/// A verdict can combine only ports with numbers below this one.
const PORTS_TOGETHER: u16 = 64;
/// Version of the saved state's format.
const STATE_VERSION: u32 = 1;

impl Plugin for Mirror {
    declared! {
        name: NAME,
        summary: "Sends every copy to one or two ports.",
        positions: &[Position::Copy],
        features: Features::SAVED_STATE.and(Features::TO_PORTS),
        messages: MESSAGES,
        settings: settings_of(
            json!({
                "to": {"type": "string", "format": "port", "description": "port for the copies"},
                "also": {"type": "string", "format": "port", "description": "second port for another copy"},
            }),
            &["to"],
        ),
        state_version: STATE_VERSION,
        packet_budget: 300,
    }

    fn create(&self, settings: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError> {
        let reader = SettingsReader::new(NAME, settings);
        let missing = || refuse("to", "it is missing; give the name of a port, as in to=recorder");
        let to = reader.port("to")?.ok_or_else(missing)?;
        let also = reader.port("also")?;
        let verdict = verdict(to, also)?;
        Ok(Box::new(MirrorInstance { to, also, verdict, packets: 0, bytes: 0 }))
    }

    fn merge(&self, _message: &Message, replies: Vec<Value>) -> Value {
        merged_but(replies, &["settings"])
    }
}

fn refuse(setting: &str, problem: impl Into<String>) -> PluginError {
    PluginError::setting(NAME, setting, problem)
}

/// Returns the verdict for every copy.
fn verdict(to: PortId, also: Option<PortId>) -> Result<Verdict, PluginError> {
    let Some(also) = also else { return Ok(Verdict::Port(to)) };
    if also == to {
        return Err(refuse("also", "it names the same port as `to`; give another port, or omit it"));
    }
    for (setting, port) in [("to", to), ("also", also)] {
        if port.0 >= PORTS_TOGETHER {
            let problem = format!(
                "port {port} is not among the first 64 ports, as two ports require; give another port"
            );
            return Err(refuse(setting, problem));
        }
    }
    Ok(Verdict::Ports(1 << to.0 | 1 << also.0))
}

struct MirrorInstance {
    to: PortId,
    also: Option<PortId>,
    verdict: Verdict,
    packets: u64,
    bytes: u64,
}

impl Instance for MirrorInstance {
    fn process(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        self.packets += packets.len() as u64;
        packets.for_each(|_, packet| {
            self.bytes += packet.len() as u64;
            self.verdict
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
        Ok(Some(json!([self.packets, self.bytes]).to_string().into_bytes()))
    }

    fn restore(&mut self, state: &[u8], version: u32) -> Result<(), PluginError> {
        [self.packets, self.bytes] = restored(state, version, STATE_VERSION)?;
        Ok(())
    }

    fn control(&mut self, message: &Message) -> Reply {
        message.check(NAME, MESSAGES, &[])?;
        if message.name == "reset" {
            (self.packets, self.bytes) = (0, 0);
        }
        let mut settings = json!({ "to": self.to.0 });
        if let (Value::Object(settings), Some(also)) = (&mut settings, self.also) {
            settings.insert("also".to_owned(), also.0.into());
        }
        Ok(json!({ "packets": self.packets, "bytes": self.bytes, "settings": settings }))
    }
}

#[cfg(test)]
mod tests;
