//! `syn-monitor`: watches how TCP connections begin, and tells when many stay half-open.
//!
//! # Purpose
//! To notice a SYN flood, and whom it is meant for. It is the service "SYN monitor" of S. C. Karlin, *Embedded Computational
//! Elements in Extensible Routers* (2003), table 4.1, which counts the rate of SYN segments; here each handshake is followed
//! as well. Packets always pass.
//!
//! # Gates
//! At positions `early`, `late` and `copy`.
//!
//! # Settings
//! - `threshold`: the alarm is raised when more connection attempts a second than this, over an interval, are neither
//!   completed nor given up by who made them: 0 (no alarm) to 1,000,000,000; 1,000 by default.
//! - `interval-ms`: milliseconds of an interval, 100 to 60,000; 1,000 by default.
//! - `prefix`, `prefix6`: bits of IPv4 and IPv6 destinations that are counted together: 0 to 32 and 0 to 128; by default
//!   32 and 128, each address by itself.
//! - `destinations`: how many destinations with half-open connections are told apart, 1 to 4,096; 256 by default. Those that
//!   find no place are counted together.
//!
//! Memory: one byte for each flow, and about 100 bytes for each of `destinations`, taken at the beginning. Each worker has all of
//! this for itself, its threshold and its alarm too.
//!
//! # What is followed
//! A handshake is followed by what the client sends, so that it does not matter which way the answers take: a SYN begins
//! an attempt; a segment with ACK completes it, for the client has had an answer then; RST gives it up. An attempt whose
//! flow the router forgets before, for nothing more came, has expired. Until then it is half-open. A SYN for a connection that
//! is half-open is the same attempt. Resets by the server are not seen: they belong to the other direction's flow.
//! Acknowledgment numbers are not verified: who sends blind ACKs behind his SYNs keeps them from being counted as half-open here,
//! not so their SYNs.
//!
//! # Messages
//! - `read`: counters, settings, and the destinations with the most half-open connections. Nothing is reset.
//! - `set threshold=… interval-ms=…`: changes what is given, all or, when one is wrong, none. An interval begins.
//! - `reset`: sets all counters to zero. What is half-open stays, and so does the alarm.
//!
//! # Counters
//! - `syn`, `syn_ack`: segments with SYN, without and with ACK.
//! - `attempts`, `repeated`: SYNs that began an attempt, and those that repeated one.
//! - `completed`, `aborted`, `expired`: attempts by their ends.
//! - `half_open`: attempts without an end, of these `half_open_elsewhere` at destinations that found no place.
//! - `unfollowed`: SYNs of flows for whose state there was no memory; they are counted in `syn` alone.
//! - `syn_per_second`, `half_open_per_second`: in the last interval, SYNs and what is held against the threshold.
//! - `alarm`: whether the last interval was above the threshold; `alarms`: how often it came to that.
//! - `top`: up to ten destinations with the most half-open connections.
//!
//! All of it goes with the instance when it gets other settings by `instance set`. With other prefixes, what is half-open then
//! counts as at destinations that found no place.
//!
//! # In the log
//! One line when the alarm is raised (a warning), and one when it is over.
//!
//! # Example
//! ```text
//! millrace instance create syn-monitor syns threshold=500
//! millrace bind syns --gate monitor --filter 'proto tcp'
//! millrace control syns read --json
//! {"aborted":0,"alarm":true,"alarms":1,"attempts":2150,"completed":140,"expired":0,"half_open":2010,…,
//!  "top":[{"destination":"192.0.2.7","half_open":2004},{"destination":"192.0.2.9","half_open":6}]}
//! ```
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod alarm;
mod destinations;
mod handshake;
mod settings;

use std::sync::LazyLock;

use millrace_plugin_abi::{
    Exceptions, Features, FlowEnd, FlowKey, Instance, Instant, Message, Output, Packet, Packets, Plugin,
    PluginError, Position, Progress, Reply, manual_of, merged_but, restored,
};
use millrace_wire::{Protocol, tcp};
use serde_json::{Map, Value, json};

use alarm::Alarm;
use destinations::Destinations;
use handshake::{Event, Segment, State};
use settings::Settings;

/// The type of plugin.
pub static PLUGIN: SynMonitor = SynMonitor;

/// Plugin `syn-monitor`.
#[derive(Debug)]
pub struct SynMonitor;

const NAME: &str = "syn-monitor";
const MESSAGES: &[(&str, &str)] = &[
    ("read", "counters, settings, and the destinations with the most half-open connections"),
    ("set", "threshold=1000 interval-ms=1000: changes what is given"),
    ("reset", "sets all counters to zero; what is half-open stays"),
];
/// The version of what instances save, and of the state of flows.
const STATE_VERSION: u32 = 1;

static SCHEMA: LazyLock<Map<String, Value>> = LazyLock::new(settings::schema);

impl Plugin for SynMonitor {
    fn name(&self) -> &'static str {
        NAME
    }

    fn version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }

    fn summary(&self) -> &'static str {
        "Watches how TCP connections begin, and tells when many stay half-open."
    }

    fn positions(&self) -> &'static [Position] {
        &[Position::Early, Position::Late, Position::Copy]
    }

    fn features(&self) -> Features {
        Features::FLOW_STATE.and(Features::FLOW_ENDS).and(Features::SAVED_STATE).and(Features::LOG)
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
        let destinations = Destinations::new(&settings);
        Ok(Box::new(SynMonitorInstance {
            settings,
            destinations,
            counters: Counters::default(),
            alarm: Alarm::default(),
        }))
    }

    fn state_version(&self) -> u32 {
        STATE_VERSION
    }

    fn merge(&self, _message: &Message, replies: Vec<Value>) -> Value {
        let alarm = replies.iter().any(|reply| reply.get("alarm") == Some(&Value::Bool(true)));
        let top = destinations::joined(&replies);
        let mut sum = merged_but(replies, &["settings"]);
        if let Value::Object(sum) = &mut sum {
            sum.insert("alarm".to_owned(), alarm.into());
            sum.insert("top".to_owned(), top);
        }
        sum
    }
}

/// What is saved: counters, the alarm and how often it was raised, and what is half-open.
type Saved = ([u64; 8], (bool, u64), destinations::Saved);

#[derive(Clone, Copy, Default)]
struct Counters {
    syn: u64,
    syn_ack: u64,
    attempts: u64,
    repeated: u64,
    completed: u64,
    aborted: u64,
    expired: u64,
    unfollowed: u64,
}

struct SynMonitorInstance {
    settings: Settings,
    destinations: Destinations,
    counters: Counters,
    alarm: Alarm,
}

/// The control bits of a TCP segment; `None` where the packet has none that can be read.
#[inline]
fn flags(key: &FlowKey, packet: &Packet) -> Option<tcp::Flags> {
    let hidden = Exceptions::FRAGMENT.with(Exceptions::CUT);
    if Protocol(key.protocol) != Protocol::TCP || packet.exceptions.bits() & hidden.bits() != 0 {
        return None;
    }
    tcp::Packet::new_checked(packet.transport()).ok().map(|tcp| tcp.flags())
}

impl Instance for SynMonitorInstance {
    fn process(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        for place in 0..packets.len() {
            let (key, packet) = packets.get_mut(place);
            let Some(segment) = flags(key, packet).and_then(Segment::of) else { continue };
            let key = *key;
            self.count(segment);
            match packets.state_mut(place).and_then(|state| state.first_mut()) {
                Some(state) => self.follow(&key, segment, state),
                None => self.counters.unfollowed += u64::from(segment == Segment::Syn),
            }
        }
        Progress::Done
    }

    fn writes_packets(&self) -> bool {
        false
    }

    fn flow_state(&self) -> usize {
        State::BYTES
    }

    fn flow_ended(&mut self, end: &FlowEnd, state: &[u8]) -> Progress {
        let state = State::load(state.first().copied().unwrap_or_default());
        if state.is_half_open() {
            self.counters.expired += 1;
            self.destinations.remove(&end.key, state);
        }
        Progress::Done
    }

    fn save(&mut self) -> Result<Option<Vec<u8>>, PluginError> {
        let Counters { syn, syn_ack, attempts, repeated, completed, aborted, expired, unfollowed } =
            self.counters;
        let counters = [syn, syn_ack, attempts, repeated, completed, aborted, expired, unfollowed];
        let saved: Saved = (counters, (self.alarm.is_on, self.alarm.raised), self.destinations.save());
        Ok(serde_json::to_vec(&saved).ok())
    }

    fn restore(&mut self, state: &[u8], version: u32) -> Result<(), PluginError> {
        let (counters, alarm, destinations): Saved = restored(state, version, STATE_VERSION)?;
        let [syn, syn_ack, attempts, repeated, completed, aborted, expired, unfollowed] = counters;
        self.counters =
            Counters { syn, syn_ack, attempts, repeated, completed, aborted, expired, unfollowed };
        (self.alarm.is_on, self.alarm.raised) = alarm;
        self.destinations.restore(destinations);
        Ok(())
    }

    fn control(&mut self, message: &Message) -> Reply {
        message.check(NAME, MESSAGES, &["set"])?;
        match message.name.as_str() {
            "reset" => {
                self.counters = Counters::default();
                self.alarm.reset();
            }
            "set" => {
                self.settings = self.settings.changed(&message.arguments)?;
                self.alarm.restart();
            }
            _ => {}
        }
        Ok(self.read())
    }

    fn next_call(&self) -> Option<Instant> {
        Some(self.alarm.due(self.settings.interval))
    }

    fn has_timers(&self) -> bool {
        true
    }

    fn periodic(&mut self, now: Instant) -> Progress {
        self.alarm.end_interval(now, self.settings.threshold, &self.destinations);
        Progress::Done
    }

    fn take_output(&mut self) -> Option<Output> {
        self.alarm.take_line().map(|(level, line)| Output::Log(level, line))
    }

    fn has_output(&self) -> bool {
        true
    }
}

impl SynMonitorInstance {
    #[inline]
    fn count(&mut self, segment: Segment) {
        match segment {
            Segment::Syn => {
                self.counters.syn += 1;
                self.alarm.interval.syn += 1;
            }
            Segment::SynAck => self.counters.syn_ack += 1,
            Segment::Ack | Segment::Reset => {}
        }
    }

    /// Takes a segment into the state of its flow.
    #[inline]
    fn follow(&mut self, key: &FlowKey, segment: Segment, kept: &mut u8) {
        let state = State::load(*kept);
        match state.event(segment) {
            Event::Nothing => return,
            Event::Repeated => {
                self.counters.repeated += 1;
                return;
            }
            Event::Begun => {
                self.counters.attempts += 1;
                self.alarm.interval.begun += 1;
                *kept = self.destinations.add(key).store();
                return;
            }
            Event::Completed => {
                self.counters.completed += 1;
                *kept = State::Open.store();
            }
            Event::Aborted => {
                self.counters.aborted += 1;
                *kept = State::None.store();
            }
        }
        self.alarm.interval.ended += 1;
        self.destinations.remove(key, state);
    }

    fn read(&self) -> Value {
        let Counters { syn, syn_ack, attempts, repeated, completed, aborted, expired, unfollowed } =
            self.counters;
        json!({
            "syn": syn,
            "syn_ack": syn_ack,
            "attempts": attempts,
            "repeated": repeated,
            "completed": completed,
            "aborted": aborted,
            "expired": expired,
            "unfollowed": unfollowed,
            "half_open": self.destinations.half_open(),
            "half_open_elsewhere": self.destinations.elsewhere(),
            "syn_per_second": self.alarm.last.syn,
            "half_open_per_second": self.alarm.last.half_open,
            "alarm": self.alarm.is_on,
            "alarms": self.alarm.raised,
            "top": self.destinations.read(),
            "settings": self.settings.read(),
        })
    }
}

#[cfg(test)]
mod tests;
