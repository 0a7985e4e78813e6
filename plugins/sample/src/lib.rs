//! `sample`: sends one in so many copies to a port, and uses up the others.
//!
//! # Purpose
//! To watch a part of the traffic of some flows at another port, where all of it would be too much. The packets
//! themselves go their way.
//!
//! # Gates
//! At position `copy`.
//!
//! # Settings
//! - `to`: the name of the port that copies are sent to. It must be said.
//! - `one-in`: one in so many copies is sent: 1 (the default: all) to 4,294,967,295.
//! - `mode`: `every` (the default): of each so many copies the last; `random`: each with the same chance, so that traffic
//!   with a rhythm of its own is not seen crooked.
//! - `seed`: where the random numbers begin, 1 to 2^64 - 1. From the same seed the same choices follow.
//!
//! Each worker counts, and draws, for itself. A copy leaves by the port as any packet does: with a link header for the
//! gateway of its route, if that lies there, and for its destination otherwise.
//! So who is to get it must answer there for that address (a `[[neighbour]]` can say so); a filter with the action
//! `copy-to PORT via ADDRESS` sends copies to one neighbour instead.
//!
//! # Messages
//! - `read`: settings and counters. Nothing is reset.
//! - `set one-in=… mode=… seed=…`: changes the settings that are given, all of them or, when one is wrong, none. Counting
//!   up to the next copy begins anew.
//! - `reset`: sets all counters to zero.
//!
//! # Counters
//! - `copies`: copies seen.
//! - `sent`: those that were sent to the port.
//! - `sent_bytes`: their bytes, link header included.
//! - `settings`: the settings, `to` as the port's number.
//!
//! They go with the instance when it gets other settings by `instance set`; counting up to the next copy begins anew.
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

use std::sync::LazyLock;

use millrace_plugin_abi::{
    Features, Instance, Instant, Message, Packets, Plugin, PluginError, Position, Progress, Reply, Verdict,
    manual_of, merged_but, restored, settings_of,
};
use serde_json::{Map, Value, json};

use choice::Choice;
use settings::Settings;

/// The type of plugin.
pub static PLUGIN: Sample = Sample;

/// Plugin `sample`.
#[derive(Debug)]
pub struct Sample;

const NAME: &str = "sample";
const MESSAGES: &[(&str, &str)] = &[
    ("read", "settings and counters"),
    ("set", "one-in=100 mode=every|random seed=1: changes the settings that are given"),
    ("reset", "sets all counters to zero"),
];
/// The version of what instances save.
const STATE_VERSION: u32 = 1;

static SCHEMA: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    let properties = json!({
            "to": {"type": "string", "format": "port", "description": "the port that copies are sent to"},
            "one-in": {"type": "integer", "minimum": 1, "maximum": u32::MAX, "default": 1,
                "description": "one in so many copies is sent"},
            "mode": {"enum": ["every", "random"], "default": "every",
                "description": "of each so many copies the last, or each with the same chance"},
            "seed": {"type": "integer", "minimum": 1, "default": 1, "description": "where random numbers begin"},
    });
    settings_of(properties, &["to"])
});

impl Plugin for Sample {
    fn name(&self) -> &'static str {
        NAME
    }

    fn version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }

    fn summary(&self) -> &'static str {
        "Sends one in so many copies to a port, and uses up the others."
    }

    fn positions(&self) -> &'static [Position] {
        &[Position::Copy]
    }

    fn features(&self) -> Features {
        Features::SAVED_STATE.and(Features::TO_PORTS)
    }

    fn manual(&self) -> Option<String> {
        Some(manual_of(include_str!("lib.rs")))
    }

    fn messages(&self) -> &'static [(&'static str, &'static str)] {
        MESSAGES
    }

    fn settings_schema(&self) -> Option<&Map<String, Value>> {
        Some(&SCHEMA)
    }

    fn create(&self, settings: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError> {
        let settings = Settings::new(settings)?;
        let choice = Choice::new(&settings);
        Ok(Box::new(SampleInstance { settings, choice, counters: Counters::default() }))
    }

    fn state_version(&self) -> u32 {
        STATE_VERSION
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
            "set" => self.set(&message.arguments)?,
            _ => {}
        }
        Ok(self.read())
    }
}

impl SampleInstance {
    fn set(&mut self, arguments: &Map<String, Value>) -> Result<(), PluginError> {
        self.settings = self.settings.changed(arguments)?;
        self.choice.change(&self.settings, arguments.contains_key("seed"));
        Ok(())
    }

    fn read(&self) -> Value {
        let Counters { copies, sent, sent_bytes } = self.counters;
        let Settings { to, one_in, mode, seed } = self.settings;
        json!({
            "copies": copies,
            "sent": sent,
            "sent_bytes": sent_bytes,
            "settings": { "to": to.0, "one-in": one_in, "mode": mode.name(), "seed": seed },
        })
    }
}

#[cfg(test)]
mod tests;
