//! `null`: lets every packet pass.
//!
//! # Purpose
//! The plugin verifies that a binding takes the intended packets, measures the cost of a plugin call, and
//! exempts flows: bound with a more specific filter, it keeps flows from another instance at the same gate.
//! With `work` it takes as much processor time as a real service would, to measure the remaining packet rate.
//!
//! # Gates
//! At every position.
//!
//! # Settings
//! - `work`: iterations of an empty loop for each packet, 0 to 10,000; 0 by default. An iteration takes about
//!   a cycle; measure the exact time.
//!
//! # Messages
//! - `read`: returns the counters. Resets nothing.
//! - `reset`: sets the counters to zero.
//!
//! # Counters
//! `packets`: packets that passed.
//!
//! # Example
//! ```text
//! millrace instance create null free
//! millrace bind free --gate firewall --filter 'src 192.0.2.7'
//! millrace control free read --json        # {"packets": 0}
//! millrace instance set free work=1000     # some 1,000 cycles for each packet
//! ```
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic))]

use millrace_plugin_abi::{
    Features, Instance, Instant, Message, Packets, Plugin, PluginError, Position, Progress, Reply,
    SettingsReader, declared, restored, settings_of,
};
use serde_json::{Map, Value, json};

/// The plugin, for the registration of built-in plugins.
pub static PLUGIN: Null = Null;

/// Plugin `null`.
#[derive(Debug)]
pub struct Null;

const NAME: &str = "null";
const MESSAGES: &[(&str, &str)] = &[("read", "the counters"), ("reset", "sets the counters to zero")];

/// Version of the saved state's format.
const STATE_VERSION: u32 = 1;

/// Maximum number of loop iterations per packet. With it, a batch of 256 packets takes a few milliseconds.
const MOST_WORK: u64 = 10_000;

impl Plugin for Null {
    declared! {
        name: NAME,
        summary: "Lets every packet pass.",
        positions: &Position::ALL,
        features: Features::SAVED_STATE,
        messages: MESSAGES,
        settings: settings_of(
            json!({
                "work": {"type": "integer", "minimum": 0, "maximum": MOST_WORK, "default": 0,
                    "description": "iterations of an empty loop for each packet, about as many cycles"},
            }),
            &[],
        ),
        state_version: STATE_VERSION,
    }

    fn packet_budget(&self, settings: &Map<String, Value>) -> Option<u32> {
        let work = settings.get("work").and_then(Value::as_u64).unwrap_or(0);
        // An iteration takes two cycles at most.
        Some(200 + 2 * work.min(MOST_WORK) as u32)
    }

    fn create(&self, settings: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError> {
        PluginError::unless_known(NAME, settings, &["work"])?;
        let work = SettingsReader::new(NAME, settings).number("work", 0..=MOST_WORK)?.unwrap_or_default();
        Ok(Box::new(NullInstance { packets: 0, work }))
    }
}

struct NullInstance {
    packets: u64,
    /// Loop iterations for each packet.
    work: u64,
}

impl Instance for NullInstance {
    #[inline]
    fn process(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        // A packet without a verdict passes.
        self.packets += packets.len() as u64;
        if self.work > 0 {
            spend(self.work * packets.len() as u64);
        }
        Progress::Done
    }

    fn writes_packets(&self) -> bool {
        false
    }

    fn looks_at_packets(&self) -> bool {
        false
    }

    fn hears_flow_ends(&self) -> bool {
        false
    }

    fn save(&mut self) -> Result<Option<Vec<u8>>, PluginError> {
        Ok(Some(json!(self.packets).to_string().into_bytes()))
    }

    fn restore(&mut self, state: &[u8], version: u32) -> Result<(), PluginError> {
        self.packets = restored(state, version, STATE_VERSION)?;
        Ok(())
    }

    fn control(&mut self, message: &Message) -> Reply {
        message.check(NAME, MESSAGES, &[])?;
        if message.name == "reset" {
            self.packets = 0;
        }
        Ok(json!({ "packets": self.packets }))
    }
}

/// Runs a number of iterations of an empty loop.
#[cold]
fn spend(iterations: u64) {
    (0..iterations).for_each(|iteration| {
        std::hint::black_box(iteration);
    });
}

#[cfg(test)]
mod tests {
    use millrace_packet::{FlowKey, Pool};
    use millrace_plugin_abi::Verdict;
    use millrace_units::PortId;
    use std::net::Ipv4Addr;

    use super::*;

    fn ask(instance: &mut dyn Instance, name: &str) -> Reply {
        instance.control(&Message { name: name.to_owned(), arguments: Map::new() })
    }

    #[test]
    fn packets_pass_and_are_counted_until_a_reset() {
        let mut instance = PLUGIN.create(&Map::new()).unwrap();
        let pool = Pool::new(3).unwrap();
        let mut packets: Vec<_> = (0..3).map(|byte| pool.packet_from(&[byte; 60]).unwrap()).collect();
        let keys = [FlowKey::v4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 17, (1, 2), PortId(0)); 3];
        let mut verdicts = [Verdict::Pass; 3];
        instance.process(&mut Packets::new(&mut packets, &keys, &[0, 2], &mut verdicts), Instant::ZERO);
        assert_eq!(verdicts, [Verdict::Pass; 3]);
        assert_eq!(packets[2].data(), [2; 60]);
        for _ in 0..2 {
            assert_eq!(ask(&mut *instance, "read").unwrap(), json!({ "packets": 2 }));
        }
        ask(&mut *instance, "reset").unwrap();
        assert_eq!(ask(&mut *instance, "read").unwrap(), json!({ "packets": 0 }));
    }

    #[test]
    fn work_takes_time_for_each_packet() {
        let [without, with] = [0, 10_000].map(|work| {
            let settings = json!({ "work": work }).as_object().unwrap().clone();
            let mut instance = PLUGIN.create(&settings).unwrap();
            let pool = Pool::new(2).unwrap();
            let mut packets: Vec<_> = (0..2).map(|_| pool.packet_from(&[0; 60]).unwrap()).collect();
            let keys = [FlowKey::v4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 17, (1, 2), PortId(0)); 2];
            let mut time = || {
                let mut verdicts = [Verdict::Pass; 2];
                let start = std::time::Instant::now();
                let members = &mut Packets::new(&mut packets, &keys, &[0, 1], &mut verdicts);
                instance.process(members, Instant::ZERO);
                start.elapsed()
            };
            (0..20).map(|_| time()).min().unwrap()
        });
        // 20,000 iterations take over a microsecond, if each takes more than a twentieth of a nanosecond.
        assert!(with > without + std::time::Duration::from_micros(1), "{without:?}, {with:?}");
    }

    #[test]
    fn the_counter_goes_over_to_another_instance() {
        let mut new = PLUGIN.create(&Map::new()).unwrap();
        new.restore(b"7", PLUGIN.state_version()).unwrap();
        assert_eq!(new.save().unwrap().unwrap(), b"7");
        assert_eq!(ask(&mut *new, "read").unwrap(), json!({ "packets": 7 }));
        assert!(new.restore(b"7", 0).is_err() && new.restore(b"x", 1).is_err());
    }

    #[test]
    fn unknown_settings_and_messages_are_refused() {
        for wrong in [json!({ "a": 1 }), json!({ "work": -1 }), json!({ "work": 10_001 })] {
            assert!(PLUGIN.create(wrong.as_object().unwrap()).is_err(), "{wrong}");
        }
        let mut instance = PLUGIN.create(&Map::new()).unwrap();
        assert!(matches!(ask(&mut *instance, "raed"), Err(PluginError::UnknownMessage { .. })));
    }
}
