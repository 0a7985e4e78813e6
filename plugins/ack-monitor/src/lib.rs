//! `ack-monitor`: counts the acknowledgments of TCP flows, their duplicates and their rate.
//!
//! # Purpose
//! Shows the quality of connections from the middle of the network. Duplicate acknowledgments mean that
//! segments were lost or reordered on their way to the acknowledging host. Three duplicates in a row make the
//! sender retransmit a segment. The plugin is the service "ACK monitor" of S. C. Karlin, *Embedded
//! Computational Elements in Extensible Routers* (2003), table 4.1. All packets pass.
//!
//! # Gates
//! At positions `early`, `late` and `copy`.
//!
//! # Settings
//! `worst`: number of ended flows to keep, the ones with the most duplicates: 0 to 64, 8 by default.
//!
//! Memory: 40 bytes for each flow, and 80 bytes for each kept flow.
//!
//! # Counted segments
//! The plugin counts TCP segments with the flag ACK and without RST. A duplicate is a segment without data,
//! SYN and FIN. It has the highest acknowledgment number of its flow and the window of the previous
//! acknowledgment (RFC 5681, 2). The RFC also requires outstanding data, which one direction does not show.
//! So keepalive probes count as well. Each direction of a connection is a separate flow. Later fragments and
//! packets with cut headers don't count.
//!
//! # Messages
//! - `read`: returns counters and the worst flows. Resets nothing.
//! - `set worst=…`: changes the number of ended flows to keep; the worst of the present ones stay.
//! - `reset`: sets all counters to zero and drops the ended flows. Flows in progress keep their numbers.
//!
//! # Counters
//! - `acks`: acknowledgments.
//! - `duplicates`: duplicate acknowledgments.
//! - `fast`: number of third duplicates in a row, each of which makes the sender retransmit a segment.
//! - `old`: acknowledgments with a lower number than an earlier one, due to reordering.
//! - `flows`, `ended`: flows that started, and the number of them that ended.
//! - `unfollowed`: acknowledgments of flows without memory for their state; only `acks` counts them.
//! - `acks_per_second`: rate from the first to the last acknowledgment since the reset.
//! - `worst`: ended flows, sorted by duplicates: the flow, `acks`, `duplicates`, `fast`, `longest_run` (most
//!   duplicates in a row), and `acks_per_second` between its first and its last acknowledgment.
//!
//! A change of settings by `instance set` keeps all counters and flows.
//!
//! # Example
//! ```text
//! millrace instance create ack-monitor acks
//! millrace bind acks --gate monitor --filter 'proto tcp'
//! millrace control acks read --json
//! {"acks":5210,"acks_per_second":521.0,"duplicates":12,"ended":1,"fast":2,"flows":3,"old":0,"settings":{"worst":8},
//!  "unfollowed":0,"worst":[{"acks":900,"acks_per_second":300.0,"duplicates":9,"fast":2,
//!  "flow":"src 10.0.0.1 dst 10.0.0.2 proto 6 sport 4000 dport 80 in 0","longest_run":5}]}
//! ```
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod flow;
mod segment;
mod worst;

use millrace_plugin_abi::{
    Features, FlowEnd, Instance, Instant, Message, Packets, Plugin, PluginError, Position, Progress, Reply,
    SettingsReader, declared, merged_but, restored, settings_of,
};
use serde_json::{Map, Value, json};

use flow::{Flow, Meaning, STATE_BYTES, per_second};
use segment::Segment;
use worst::{MOST_WORST, Worst};

/// The plugin, for the registration of built-in plugins.
pub static PLUGIN: AckMonitor = AckMonitor;

/// Plugin `ack-monitor`.
#[derive(Debug)]
pub struct AckMonitor;

const NAME: &str = "ack-monitor";
const MESSAGES: &[(&str, &str)] = &[
    ("read", "counters and the worst flows"),
    ("set", "worst=0 to 64: sets the number of ended flows to keep"),
    ("reset", "sets all counters to zero and drops the ended flows"),
];
/// Default number of ended flows to keep.
const DEFAULT_WORST: usize = 8;
/// Version of the format of saved states and flow states.
const STATE_VERSION: u32 = 1;

impl Plugin for AckMonitor {
    declared! {
        name: NAME,
        summary: "Counts the acknowledgments of TCP flows, their duplicates and their rate.",
        positions: &[Position::Early, Position::Late, Position::Copy],
        features: Features::FLOW_STATE.and(Features::FLOW_ENDS).and(Features::SAVED_STATE),
        messages: MESSAGES,
        settings: settings_of(
            json!({
                "worst": {"type": "integer", "minimum": 0, "maximum": MOST_WORST, "default": DEFAULT_WORST,
                    "description": "number of ended flows to keep"},
            }),
            &[],
        ),
        state_version: STATE_VERSION,
        packet_budget: 500,
    }

    fn create(&self, settings: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError> {
        let worst = Worst::new(worst(SettingsReader::new(NAME, settings))?.unwrap_or(DEFAULT_WORST));
        Ok(Box::new(AckMonitorInstance { counters: Counters::default(), worst }))
    }

    fn merge(&self, _message: &Message, replies: Vec<Value>) -> Value {
        let worst = worst::joined(&replies);
        let mut sum = merged_but(replies, &["settings"]);
        if let Value::Object(sum) = &mut sum {
            sum.insert("worst".to_owned(), worst);
        }
        sum
    }
}

/// Reads the setting `worst`; `None` if it is not given.
fn worst(reader: SettingsReader<'_>) -> Result<Option<usize>, PluginError> {
    Ok(reader.number("worst", 0..=MOST_WORST as u64)?.map(|number| number as usize))
}

/// Saved state: counters, times of the first and last acknowledgment, and worst flows.
type Saved = ([u64; 7], Option<[u64; 2]>, Vec<worst::Saved>);

#[derive(Clone, Copy, Default)]
struct Counters {
    acks: u64,
    duplicates: u64,
    fast: u64,
    old: u64,
    flows: u64,
    ended: u64,
    unfollowed: u64,
    /// Times of the first and the last acknowledgment.
    span: Option<(Instant, Instant)>,
}

impl Counters {
    #[inline]
    fn add(&mut self, now: Instant) {
        self.acks += 1;
        self.span = Some((self.span.map_or(now, |(first, _)| first), now));
    }

    #[inline]
    fn add_meaning(&mut self, meaning: Meaning) {
        match meaning {
            Meaning::First => self.flows += 1,
            Meaning::Duplicate { in_a_row } => {
                self.duplicates += 1;
                self.fast += u64::from(in_a_row == flow::FAST);
            }
            Meaning::Old => self.old += 1,
            Meaning::Other => {}
        }
    }
}

struct AckMonitorInstance {
    counters: Counters,
    worst: Worst,
}

impl Instance for AckMonitorInstance {
    fn process(&mut self, packets: &mut Packets<'_>, now: Instant) -> Progress {
        for place in 0..packets.len() {
            let (key, packet) = packets.get_mut(place);
            let Some(segment) = Segment::read(key, packet) else { continue };
            self.counters.add(now);
            let state = packets.state_mut(place);
            let Some((flow, state)) = state.and_then(|state| Some((Flow::load(state)?, state))) else {
                self.counters.unfollowed += 1;
                continue;
            };
            let mut flow = flow;
            self.counters.add_meaning(flow.add(&segment, now));
            flow.store(state);
        }
        Progress::Done
    }

    fn writes_packets(&self) -> bool {
        false
    }

    fn flow_state(&self) -> usize {
        STATE_BYTES
    }

    fn flow_ended(&mut self, end: &FlowEnd, state: &[u8]) -> Progress {
        if let Some(flow) = Flow::load(state).filter(|flow| flow.acks > 0) {
            self.counters.ended += 1;
            self.worst.add(end.key, flow);
        }
        Progress::Done
    }

    fn save(&mut self) -> Result<Option<Vec<u8>>, PluginError> {
        let Counters { acks, duplicates, fast, old, flows, ended, unfollowed, span } = self.counters;
        let span = span.map(|(first, last)| [first, last].map(Instant::as_nanos));
        let saved: Saved = ([acks, duplicates, fast, old, flows, ended, unfollowed], span, self.worst.save());
        Ok(serde_json::to_vec(&saved).ok())
    }

    fn restore(&mut self, state: &[u8], version: u32) -> Result<(), PluginError> {
        let (counters, span, worst): Saved = restored(state, version, STATE_VERSION)?;
        let [acks, duplicates, fast, old, flows, ended, unfollowed] = counters;
        let span = span.map(|[first, last]| (Instant::from_nanos(first), Instant::from_nanos(last)));
        self.counters = Counters { acks, duplicates, fast, old, flows, ended, unfollowed, span };
        self.worst.restore(&worst);
        Ok(())
    }

    fn control(&mut self, message: &Message) -> Reply {
        message.check(NAME, MESSAGES, &["set"])?;
        match message.name.as_str() {
            "reset" => {
                self.counters = Counters::default();
                self.worst = Worst::new(self.worst.limit);
            }
            "set" => {
                let reader = SettingsReader::new(NAME, &message.arguments);
                reader.check_changes(&["worst"])?;
                if let Some(limit) = worst(reader)? {
                    self.worst.set_limit(limit);
                }
            }
            _ => {}
        }
        Ok(self.read())
    }
}

impl AckMonitorInstance {
    fn read(&self) -> Value {
        let Counters { acks, duplicates, fast, old, flows, ended, unfollowed, span } = self.counters;
        let rate = span.map_or(0.0, |(first, last)| per_second(acks, last.since(first)));
        json!({
            "acks": acks,
            "duplicates": duplicates,
            "fast": fast,
            "old": old,
            "flows": flows,
            "ended": ended,
            "unfollowed": unfollowed,
            "acks_per_second": rate,
            "worst": self.worst.read(),
            "settings": { "worst": self.worst.limit },
        })
    }
}

#[cfg(test)]
mod tests;
