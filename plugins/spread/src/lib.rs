//! `spread`: distributes the flows of its binding over several instances.
//!
//! # Purpose
//! One gate, and its held packets, can be served by several instances. Instances of a slow plugin each hold
//! up only their own flows. Instances of different plugins can be compared under the same traffic.
//!
//! # Gates
//! At positions `early` and `late`.
//!
//! # Settings
//! - `to`: name of an instance; required.
//! - `to2` to `to8`: further instances, all different.
//!
//! All packets of a flow go to the same instance, in their order. With many flows, each instance gets about
//! the same number. When `instance set` removes an instance, only its flows move. When it adds one, only the
//! flows of the new instance move (rendezvous hashing: Thaler and Ravishankar, 1998). If an instance fails on
//! a packet, the binding of `spread` determines the packet's treatment. An instance in quarantine keeps its
//! share of flows.
//!
//! # Messages
//! - `read`: returns settings and counters. Resets nothing.
//! - `reset`: sets all counters to zero.
//!
//! # Counters
//! - `packets`: packets that each instance got, by the name of the setting.
//! - `settings`: the settings, with instances as numbers.
//!
//! # Example
//! ```text
//! millrace instance create statistics s1
//! millrace instance create statistics s2
//! millrace instance create spread both to=s1 to2=s2
//! millrace bind both --gate monitor --filter 'proto udp'
//! millrace control both read --json
//! {"packets":{"to":17,"to2":14},"settings":{"to":0,"to2":1}}
//! ```
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic))]

use millrace_plugin_abi::{
    Features, Instance, Instant, Message, Packets, Plugin, PluginError, Position, Progress, Reply,
    SettingsReader, Verdict, declared, merged_but, restored, settings_of,
};
use millrace_units::InstanceId;
use serde_json::{Map, Value, json};

/// The plugin, for the registration of built-in plugins.
pub static PLUGIN: Spread = Spread;

/// Plugin `spread`.
#[derive(Debug)]
pub struct Spread;

const NAME: &str = "spread";
const MESSAGES: &[(&str, &str)] =
    &[("read", "settings and counters"), ("reset", "sets all counters to zero")];
/// Names of the settings that name instances.
const SETTINGS: [&str; 8] = ["to", "to2", "to3", "to4", "to5", "to6", "to7", "to8"];
/// Version of the saved state's format.
const STATE_VERSION: u32 = 1;

impl Plugin for Spread {
    declared! {
        name: NAME,
        summary: "Distributes flows over several instances.",
        positions: &[Position::Early, Position::Late],
        features: Features::SAVED_STATE.and(Features::TO_INSTANCES),
        messages: MESSAGES,
        settings: schema(),
        state_version: STATE_VERSION,
        packet_budget: 300,
    }

    fn create(&self, settings: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError> {
        let reader = SettingsReader::new(NAME, settings);
        let mut targets: Vec<Target> = Vec::with_capacity(SETTINGS.len());
        for setting in SETTINGS {
            let Some(instance) = reader.instance(setting)? else { continue };
            if let Some(same) = targets.iter().find(|target| target.instance == instance) {
                let problem =
                    format!("it names the same instance as {}; give another instance", same.setting);
                return Err(PluginError::setting(NAME, setting, problem));
            }
            targets.push(Target { setting, instance, packets: 0 });
        }
        if settings.contains_key("to") {
            return Ok(Box::new(SpreadInstance { targets }));
        }
        let problem = "it is missing; give the name of an instance, as in to=s1";
        Err(PluginError::setting(NAME, "to", problem))
    }

    fn merge(&self, _message: &Message, replies: Vec<Value>) -> Value {
        merged_but(replies, &["settings"])
    }
}

/// Returns the JSON Schema of the settings.
fn schema() -> Map<String, Value> {
    let property = |setting: &&str| {
        let schema = json!({"type": "string", "format": "instance", "description": "instance that gets a share of the flows"});
        ((*setting).to_owned(), schema)
    };
    settings_of(Value::Object(SETTINGS.iter().map(property).collect()), &["to"])
}

/// Instance to which the plugin passes a part of the flows.
struct Target {
    setting: &'static str,
    instance: InstanceId,
    packets: u64,
}

impl Target {
    /// Returns the weight of this target for a flow. The target with the greatest weight gets the flow.
    fn weight(&self, flow: u32) -> u64 {
        // Last step of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): every bit of the result depends on every
        // input bit.
        let mut mixed =
            (u64::from(flow) << 16 | u64::from(self.instance.0)).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

struct SpreadInstance {
    /// Targets among which the flows are distributed, at least one.
    targets: Vec<Target>,
}

impl Instance for SpreadInstance {
    fn process(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        packets.for_each(|_, packet| {
            let Some(target) = self.targets.iter_mut().max_by_key(|target| target.weight(packet.hash)) else {
                return Verdict::Pass;
            };
            target.packets += 1;
            Verdict::Instance(target.instance)
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
        let counts: Vec<_> = self.targets.iter().map(|target| (target.instance.0, target.packets)).collect();
        Ok(Some(json!(counts).to_string().into_bytes()))
    }

    fn restore(&mut self, state: &[u8], version: u32) -> Result<(), PluginError> {
        let counts: Vec<(u16, u64)> = restored(state, version, STATE_VERSION)?;
        for target in &mut self.targets {
            let count = counts.iter().find(|(instance, _)| *instance == target.instance.0);
            target.packets = count.map_or(0, |(_, packets)| *packets);
        }
        Ok(())
    }

    fn control(&mut self, message: &Message) -> Reply {
        message.check(NAME, MESSAGES, &[])?;
        if message.name == "reset" {
            self.targets.iter_mut().for_each(|target| target.packets = 0);
        }
        let by_setting = |value: fn(&Target) -> u64| -> Map<String, Value> {
            self.targets.iter().map(|target| (target.setting.to_owned(), value(target).into())).collect()
        };
        let (packets, settings) =
            (by_setting(|target| target.packets), by_setting(|target| target.instance.0.into()));
        Ok(json!({ "packets": packets, "settings": settings }))
    }
}

#[cfg(test)]
mod tests;
