//! `sample`: sends one of every N copies to a port, and discards the others.
//!
//! # Purpose
//! Shows a part of the traffic of chosen flows at another port, where all of it would be too much. The
//! packets themselves continue unchanged.
//!
//! # Gates
//! At position `copy`.
//!
//! # Settings
//! - `to`: name of the port for the copies; required.
//! - `one-in`: the number N, 1 (the default, for all copies) to 4,294,967,295. The plugin sends one of every
//!   N copies.
//! - `mode`: `every` (the default) sends the last of every `one-in` copies; `random` sends each copy with the
//!   same probability, so that periodic traffic does not bias the sample.
//! - `seed`: seed of the random numbers, 1 to 2^64 - 1. The same seed leads to the same choices.
//!
//! Each worker counts and draws separately. A copy leaves the port like any other packet. Its link header is
//! for the gateway of its route, if the gateway is at this port, and otherwise for its destination. So the
//! receiver must answer for that address at the port (a static `[[neighbour]]` can declare it). A filter with
//! the action `copy-to PORT via ADDRESS` sends copies to one neighbour instead.
//!
//! # Messages
//! - `read`: returns settings and counters. Resets nothing.
//! - `set one-in=… mode=… seed=…`: changes the given settings: all of them, or none if one is invalid. The
//!   count up to the next copy restarts.
//! - `reset`: sets all counters to zero.
//!
//! # Counters
//! - `copies`: copies received.
//! - `sent`: copies sent to the port.
//! - `sent_bytes`: bytes of the sent copies, link header included.
//! - `settings`: the settings, with `to` as the port's number.
//!
//! A change of settings by `instance set` keeps all counters; the count up to the next copy restarts.
//!
//! # Example
//! ```text
//! millrace instance create sample s1 to=probe one-in=100
//! millrace bind s1 --gate tap --filter 'in lan'
//! millrace control s1 set one-in=10 mode=random
//! millrace control s1 read --json
//! {"copies":1000,"sent":98,"sent_bytes":9604,"settings":{"mode":"random","one-in":10,"seed":1,"to":2}}
//! ```
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod choice;
mod settings;

use millrace_plugin_abi::{
    Features, Instance, Instant, Message, Packets, Plugin, PluginError, Position, Progress, Reply, Verdict,
    declared, merged_but, name_of, restored, settings_of,
};
use serde_json::{Map, Value, json};

use choice::Choice;
use settings::{Mode, Settings};

/// The plugin, for the registration of built-in plugins.
pub static PLUGIN: Sample = Sample;

/// Plugin `sample`.
#[derive(Debug)]
pub struct Sample;

const NAME: &str = "sample";
const MESSAGES: &[(&str, &str)] = &[
    ("read", "settings and counters"),
    ("set", "one-in=100 mode=every|random seed=1: changes the given settings"),
    ("reset", "sets all counters to zero"),
];
/// Version of the saved state's format.
const STATE_VERSION: u32 = 1;

impl Plugin for Sample {
    declared! {
        name: NAME,
        summary: "Sends one of every N copies to a port, and discards the others.",
        positions: &[Position::Copy],
        features: Features::SAVED_STATE.and(Features::TO_PORTS),
        messages: MESSAGES,
        settings: settings_of(
            json!({
                "to": {"type": "string", "format": "port", "description": "port for the copies"},
                "one-in": {"type": "integer", "minimum": 1, "maximum": u32::MAX, "default": 1,
                    "description": "the number N: one of every N copies is sent"},
                "mode": {"enum": ["every", "random"], "default": "every",
                    "description": "the last of every N copies, or each copy with the same probability"},
                "seed": {"type": "integer", "minimum": 1, "default": 1, "description": "seed of the random numbers"},
            }),
            &["to"],
        ),
        state_version: STATE_VERSION,
        packet_budget: 300,
    }

    fn create(&self, settings: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError> {
        let settings = Settings::new(settings)?;
        let choice = Choice::new(&settings);
        Ok(Box::new(SampleInstance { settings, choice, counters: Counters::default() }))
    }

    fn merge(&self, _message: &Message, replies: Vec<Value>) -> Value {
        merged_but(replies, &["settings"])
    }
}

#[derive(Clone, Copy, Default)]
struct Counters {
    copies: u64,
    sent: u64,
    sent_bytes: u64,
}

struct SampleInstance {
    settings: Settings,
    choice: Choice,
    counters: Counters,
}

impl Instance for SampleInstance {
    fn process(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        let Self { settings, choice, counters } = self;
        counters.copies += packets.len() as u64;
        packets.for_each(|_, packet| {
            if !choice.next() {
                return Verdict::Consume;
            }
            counters.sent += 1;
            counters.sent_bytes += packet.len() as u64;
            Verdict::Port(settings.to)
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
        let Counters { copies, sent, sent_bytes } = self.counters;
        Ok(Some(json!([copies, sent, sent_bytes]).to_string().into_bytes()))
    }

    fn restore(&mut self, state: &[u8], version: u32) -> Result<(), PluginError> {
        let [copies, sent, sent_bytes] = restored(state, version, STATE_VERSION)?;
        self.counters = Counters { copies, sent, sent_bytes };
        Ok(())
    }

    fn control(&mut self, message: &Message) -> Reply {
        message.check(NAME, MESSAGES, &["set"])?;
        match message.name.as_str() {
            "reset" => self.counters = Counters::default(),
            "set" => {
                self.settings = self.settings.changed(&message.arguments)?;
                self.choice.change(&self.settings, message.arguments.contains_key("seed"));
            }
            _ => {}
        }
        Ok(self.read())
    }
}

impl SampleInstance {
    fn read(&self) -> Value {
        let Counters { copies, sent, sent_bytes } = self.counters;
        let Settings { to, one_in, mode, seed } = self.settings;
        json!({
            "copies": copies,
            "sent": sent,
            "sent_bytes": sent_bytes,
            "settings": { "to": to.0, "one-in": one_in, "mode": name_of(&mode, &Mode::NAMES), "seed": seed },
        })
    }
}

#[cfg(test)]
mod tests;
