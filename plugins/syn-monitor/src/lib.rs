//! `syn-monitor`: follows TCP handshakes, and raises an alarm when many stay half-open.
//!
//! # Purpose
//! Detects a SYN flood and its target. The service "SYN monitor" of S. C. Karlin, *Embedded Computational
//! Elements in Extensible Routers* (2003), table 4.1, counts the rate of SYN segments. This plugin also
//! follows each handshake. All packets pass.
//!
//! # Gates
//! At positions `early`, `late` and `copy`.
//!
//! # Settings
//! - `threshold`: number of connection attempts per second, neither completed nor aborted by the client,
//!   above which the alarm is raised at the end of an interval: 0 (no alarm) to 1,000,000,000; 1,000 by
//!   default.
//! - `interval-ms`: length of an interval in milliseconds, 100 to 60,000; 1,000 by default.
//! - `prefix`, `prefix6`: prefix lengths by which IPv4 and IPv6 destinations are grouped: 0 to 32 and 0 to
//!   128; by default 32 and 128, which count each address separately.
//! - `destinations`: maximum number of destinations with half-open connections that are counted separately, 1
//!   to 4,096; 256 by default. Further destinations share one count.
//!
//! Memory: one byte for each flow, and about 100 bytes for each of `destinations`, allocated at the start.
//! Each worker has its own memory, its own threshold and its own alarm.
//!
//! # Followed handshakes
//! The plugin follows a handshake by the client's segments, so the path of the answers doesn't matter. A SYN
//! begins an attempt. A segment with ACK completes it, as the client must have had an answer. RST aborts it.
//! If the router's flow record ends first, the attempt has expired. Until one of these events, the attempt is
//! half-open. Another SYN of a half-open connection belongs to the same attempt. The plugin doesn't see
//! resets by the server, which belong to the flow of the other direction. The plugin doesn't verify
//! acknowledgment numbers. So a sender of blind ACKs after its SYNs avoids the half-open count, but its SYNs
//! still count.
//!
//! # Messages
//! - `read`: returns counters, settings, and the destinations with the most half-open connections. Resets
//!   nothing.
//! - `set threshold=… interval-ms=…`: changes the given settings: all of them, or none if one is invalid. A
//!   new interval begins.
//! - `reset`: sets all counters to zero. Half-open connections and the alarm stay.
//!
//! # Counters
//! - `syn`, `syn_ack`: segments with SYN, without and with ACK.
//! - `attempts`, `repeated`: SYNs that began an attempt, and SYNs that repeated one.
//! - `completed`, `aborted`, `expired`: ended attempts, by kind of end.
//! - `half_open`: attempts in progress; `half_open_elsewhere`: the part of them at further destinations.
//! - `unfollowed`: SYNs of flows without memory for their state; only `syn` counts them.
//! - `syn_per_second`, `half_open_per_second`: rates of the last interval: SYNs, and the rate compared with
//!   the threshold.
//! - `alarm`: whether the last interval exceeded the threshold; `alarms`: number of alarms raised.
//! - `top`: up to ten destinations with the most half-open connections.
//!
//! A change of settings by `instance set` keeps all counters. If the prefixes change, half-open connections
//! then count at further destinations.
//!
//! # In the log
//! One line when the alarm is raised (a warning), and one line when it ends.
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

use millrace_plugin_abi::{
    Exceptions, Features, FlowEnd, FlowKey, Instance, Instant, Message, Output, Packet, Packets, Plugin,
    PluginError, Position, Progress, Reply, declared, merged_but, restored,
};
use millrace_wire::{Protocol, tcp};
use serde_json::{Map, Value, json};

use alarm::Alarm;
use destinations::Destinations;
use handshake::{Segment, State};
use settings::Settings;

/// The plugin, for the registration of built-in plugins.
pub static PLUGIN: SynMonitor = SynMonitor;

/// Plugin `syn-monitor`.
#[derive(Debug)]
pub struct SynMonitor;

const NAME: &str = "syn-monitor";
const MESSAGES: &[(&str, &str)] = &[
    ("read", "counters, settings, and the destinations with the most half-open connections"),
    ("set", "threshold=1000 interval-ms=1000: changes the given settings"),
    ("reset", "sets all counters to zero; half-open connections stay"),
];
/// Version of the format of saved states and flow states.
const STATE_VERSION: u32 = 1;

impl Plugin for SynMonitor {
    declared! {
        name: NAME,
        summary: "Follows TCP handshakes, and raises an alarm when many stay half-open.",
        positions: &[Position::Early, Position::Late, Position::Copy],
        features: Features::FLOW_STATE.and(Features::FLOW_ENDS).and(Features::SAVED_STATE).and(Features::LOG),
        messages: MESSAGES,
        settings: settings::schema(),
        state_version: STATE_VERSION,
        packet_budget: 500,
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

/// Saved state: the counters, the alarm (whether it is raised, and how often it was raised), and the
/// half-open connections.
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

/// Returns the flags of a TCP segment; `None` for another protocol or an unreadable header.
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
                self.alarm.raised = 0;
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
        self.alarm.line.take().map(|(level, line)| Output::Log(level, line))
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

    /// Updates the handshake's state and the counters for a segment. `kept` is the byte of the flow state.
    #[inline]
    fn follow(&mut self, key: &FlowKey, segment: Segment, kept: &mut u8) {
        let state = State::load(*kept);
        match (segment, state.is_half_open()) {
            (Segment::Syn, false) => {
                self.counters.attempts += 1;
                self.alarm.interval.begun += 1;
                *kept = self.destinations.add(key).store();
                return;
            }
            (Segment::Syn, true) => {
                self.counters.repeated += 1;
                return;
            }
            (Segment::Ack, true) => {
                self.counters.completed += 1;
                *kept = State::Open.store();
            }
            (Segment::Reset, true) => {
                self.counters.aborted += 1;
                *kept = State::None.store();
            }
            (Segment::SynAck, _) | (Segment::Ack | Segment::Reset, false) => return,
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
            "half_open": self.destinations.half_open,
            "half_open_elsewhere": self.destinations.elsewhere,
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
