//! `delay`: holds packets for a configured time.
//!
//! # Purpose
//! Shows the effect of a longer path on an application, with live traffic and flow by flow.
//!
//! # Gates
//! At positions `early`, `route`, `late` and `queue`.
//!
//! # Settings
//! - `ms`: delay in milliseconds, 0 to 10,000, with decimals as in `0.5`; 0 by default.
//!
//! Packets keep their order: when the delay becomes shorter, no packet overtakes an earlier one. Packets
//! continue within a millisecond of their time. Delayed packets occupy packet memory. When held packets take
//! half of that memory, the router drops further packets as `plugin_busy`.
//!
//! # Messages
//! - `read`: returns setting and counters. Resets nothing.
//! - `set ms=…`: sets the delay of packets that arrive from now on. `instance set` does the same, and keeps
//!   the order of packets, too.
//! - `reset`: sets the counter to zero.
//!
//! # Counters
//! `packets`: delayed packets.
//!
//! # Example
//! ```text
//! millrace instance create delay far ms=40
//! millrace bind far --gate process --filter 'proto icmp'
//! millrace control far set ms=5
//! millrace control far read --json        # {"ms": 5.0, "packets": 12}
//! ```
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic))]

use std::time::Duration;

use millrace_plugin_abi::{
    Features, Instance, Instant, Message, Packets, Plugin, PluginError, Position, Progress, Reply, Verdict,
    declared, merged_but, restored, settings_of,
};
use serde_json::{Map, Value, json};

/// The plugin, for the registration of built-in plugins.
pub static PLUGIN: Delay = Delay;

/// Plugin `delay`.
#[derive(Debug)]
pub struct Delay;

const NAME: &str = "delay";
const MESSAGES: &[(&str, &str)] = &[
    ("read", "setting and counters"),
    ("set", "ms=0 to 10000: sets the delay of packets that arrive from now on"),
    ("reset", "sets the counter to zero"),
];
/// Maximum delay in milliseconds.
const LONGEST: f64 = 10_000.0;

/// Version of the saved state's format.
const STATE_VERSION: u32 = 1;

impl Plugin for Delay {
    declared! {
        name: NAME,
        summary: "Holds packets for a configured time.",
        positions: &[Position::Early, Position::Route, Position::Late, Position::Queue],
        features: Features::HOLD.and(Features::SAVED_STATE),
        messages: MESSAGES,
        settings: settings_of(
            json!({
                "ms": {"type": "number", "minimum": 0, "maximum": LONGEST as u64, "default": 0,
                    "description": "delay in milliseconds"},
            }),
            &[],
        ),
        state_version: STATE_VERSION,
        packet_budget: 200,
    }

    /// Sums the counters. The setting is the same at all workers.
    fn merge(&self, _message: &Message, replies: Vec<Value>) -> Value {
        merged_but(replies, &["ms"])
    }

    fn create(&self, settings: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError> {
        let delay = delay(settings)?.unwrap_or_default();
        Ok(Box::new(DelayInstance { delay, latest: Instant::ZERO, packets: 0 }))
    }
}

/// Reads the setting `ms`; `None` if it is not given.
fn delay(settings: &Map<String, Value>) -> Result<Option<Duration>, PluginError> {
    PluginError::unless_known(NAME, settings, &["ms"])?;
    let Some(value) = settings.get("ms") else { return Ok(None) };
    let number = value.as_f64().or_else(|| value.as_str()?.parse().ok());
    let within = number.filter(|number| (0.0..=LONGEST).contains(number));
    let wrong = || PluginError::setting(NAME, "ms", format!("{value} is not a number from 0 to {LONGEST}"));
    within.map(|number| Some(Duration::from_secs_f64(number / 1e3))).ok_or_else(wrong)
}

struct DelayInstance {
    delay: Duration,
    /// Latest release time of all packets so far.
    latest: Instant,
    packets: u64,
}

impl Instance for DelayInstance {
    fn process(&mut self, packets: &mut Packets<'_>, now: Instant) -> Progress {
        let until = now + self.delay;
        self.latest = self.latest.max(until);
        // With a delay of 0, packets are held only if earlier packets are still held.
        if self.latest > now {
            self.packets += packets.len() as u64;
            packets.for_each(|_, _| Verdict::Hold(self.latest));
        }
        Progress::Done
    }

    fn writes_packets(&self) -> bool {
        false
    }

    fn hears_flow_ends(&self) -> bool {
        false
    }

    /// Saves the counter, and the latest release time of all held packets. These packets keep their release
    /// times during an upgrade, so the next instance must not release a packet before that time.
    fn save(&mut self) -> Result<Option<Vec<u8>>, PluginError> {
        Ok(Some(json!([self.packets, self.latest.as_nanos()]).to_string().into_bytes()))
    }

    fn restore(&mut self, state: &[u8], version: u32) -> Result<(), PluginError> {
        let [packets, latest] = restored(state, version, STATE_VERSION)?;
        (self.packets, self.latest) = (packets, Instant::from_nanos(latest));
        Ok(())
    }

    fn control(&mut self, message: &Message) -> Reply {
        message.check(NAME, MESSAGES, &["set"])?;
        match message.name.as_str() {
            "reset" => self.packets = 0,
            "set" => {
                let missing = || PluginError::setting(NAME, "ms", "it is missing; write ms=5");
                self.delay = delay(&message.arguments)?.ok_or_else(missing)?;
            }
            _ => {}
        }
        Ok(json!({ "ms": self.delay.as_secs_f64() * 1e3, "packets": self.packets }))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use millrace_packet::{FlowKey, Pool};
    use millrace_units::PortId;

    use super::*;

    fn settings(value: Value) -> Map<String, Value> {
        Map::from_iter([("ms".to_owned(), value)])
    }

    fn verdict(instance: &mut dyn Instance, now: Instant) -> Verdict {
        let pool = Pool::new(1).unwrap();
        let mut packets = [pool.packet_from(&[0; 60]).unwrap()];
        let keys = [FlowKey::v4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 17, (1, 2), PortId(0))];
        let mut verdicts = [Verdict::Pass];
        instance.process(&mut Packets::new(&mut packets, &keys, &[0], &mut verdicts), now);
        verdicts[0]
    }

    #[test]
    fn another_instance_keeps_the_order() {
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        let mut old = PLUGIN.create(&settings(json!(100))).unwrap();
        assert_eq!(verdict(&mut *old, at(0)), Verdict::Hold(at(100)));
        let saved = old.save().unwrap().unwrap();
        let mut new = PLUGIN.create(&settings(json!(1))).unwrap();
        assert!(new.restore(&saved, 0).is_err() && new.restore(b"[]", 1).is_err());
        new.restore(&saved, PLUGIN.state_version()).unwrap();
        assert_eq!(verdict(&mut *new, at(1)), Verdict::Hold(at(100)));
        assert_eq!(ask(&mut *new, "read", Map::new()).unwrap()["packets"], 2);
    }

    fn ask(instance: &mut dyn Instance, name: &str, arguments: Map<String, Value>) -> Reply {
        instance.control(&Message { name: name.to_owned(), arguments })
    }

    #[test]
    fn packets_continue_in_order_even_if_the_delay_shrinks() {
        let at = |milliseconds| Instant::ZERO + Duration::from_millis(milliseconds);
        let mut instance = PLUGIN.create(&settings(json!(10))).unwrap();
        assert_eq!(verdict(&mut *instance, at(0)), Verdict::Hold(at(10)));
        ask(&mut *instance, "set", settings(json!("2"))).unwrap();
        assert_eq!(verdict(&mut *instance, at(1)), Verdict::Hold(at(10)));
        assert_eq!(verdict(&mut *instance, at(9)), Verdict::Hold(at(11)));
        ask(&mut *instance, "set", settings(json!(0))).unwrap();
        assert_eq!(verdict(&mut *instance, at(10)), Verdict::Hold(at(11)));
        assert_eq!(verdict(&mut *instance, at(11)), Verdict::Pass);
        let read = ask(&mut *instance, "read", Map::new()).unwrap();
        assert_eq!(read, json!({ "ms": 0.0, "packets": 4 }));
    }

    #[test]
    fn invalid_delay_is_refused() {
        for wrong in [json!(-1), json!(10_001), json!("far"), json!(null), json!("inf")] {
            let refused = PLUGIN.create(&settings(wrong)).err().unwrap().to_string();
            assert!(refused.contains("is not a number from 0 to 10000"), "{refused}");
        }
        let mut instance = PLUGIN.create(&Map::new()).unwrap();
        assert!(ask(&mut *instance, "set", Map::new()).unwrap_err().to_string().contains("write ms=5"));
        assert_eq!(verdict(&mut *instance, Instant::ZERO), Verdict::Pass);
    }
}
