//! Journeys of packets, and packets that were dropped.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

/// The journey of a packet that was traced.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TraceView {
    /// Its number in the trace, from 1.
    pub number: u64,
    /// When it came: date and time, UTC.
    pub time: String,
    /// The port that it came in by.
    pub port: String,
    /// The level that treated it: `worker 0` is the first worker.
    pub level: String,
    /// Its length, link header included.
    pub length: u32,
    /// Its first bytes as they came, up to 128, in hexadecimal.
    pub frame: String,
    /// Stage by stage.
    pub steps: Vec<TraceStepView>,
    /// What became of it in the end.
    pub verdict: String,
    /// Why it was dropped, if it was.
    pub reason: Option<&'static str>,
    /// Cycles of all steps of which it is known, on the processor's time-stamp counter.
    pub cycles: Option<u64>,
    /// Whether its end was seen; it may still wait for something.
    pub is_over: bool,
    /// What files get.
    #[serde(skip)]
    pub raw: RawFrame,
}

/// A step of the journey.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TraceStepView {
    /// The stage: `receive`, `worker`, `parse`, `classify`, `gate`, `copy`, `route`, `error`, `rewrite`, `fragment`, `queue`, `wait`,
    /// `transmit`, `host`, `own`, `plugin` or `drop`.
    pub stage: &'static str,
    /// The number of the worker.
    pub worker: u8,
    /// Cycles that it took; `null` where that is not known, as it was done for others too.
    pub cycles: Option<u64>,
    /// What happened, and why.
    pub text: String,
    /// At a gate: its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<String>,
    /// At a gate: the number of the filter or binding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binding: Option<u64>,
    /// At a gate: what the filter matches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// At a gate: what is done with what it matches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// At a gate: the instance that is bound, if one is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// What was decided: at gates `pass`, `drop`, `consume`, `hold`, `queue`, `send` or `classify`; at the flow table `hit`, `checked`,
    /// `rerouted`, `reclassified`, `miss` or `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<&'static str>,
    /// The port, where the step is at one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// Of a route: the neighbour that gets the packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_hop: Option<String>,
    /// Of a route: its prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Of a drop: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
}

/// A packet that was dropped.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DroppedView {
    /// When: date and time, UTC.
    pub time: String,
    /// Why.
    pub reason: &'static str,
    /// The number of the worker.
    pub worker: usize,
    /// The port that it came in by; `-` for the router's own.
    pub port: String,
    /// The port that it was to leave by, if that was decided.
    pub out_port: Option<String>,
    /// Its length.
    pub length: u32,
    /// Its headers in a line.
    pub summary: String,
    /// The number of the filter or binding that dropped it, where it is known.
    pub binding: Option<u64>,
    /// What that matches.
    pub filter: Option<String>,
    /// The instance that dropped it, where it is known.
    pub instance: Option<String>,
    /// What dropped it, in words; where several instances may have, which.
    pub by: Option<String>,
    /// Its first bytes, up to 128, in hexadecimal.
    pub frame: String,
    /// What files get.
    #[serde(skip)]
    pub raw: RawFrame,
}

/// A frame as files get it.
#[derive(Clone, Debug, Default)]
pub struct RawFrame {
    /// The port's name.
    pub port: String,
    /// When, since 1970.
    pub at: Duration,
    /// Its length.
    pub length: u32,
    /// Its first bytes, with a link header.
    pub bytes: Vec<u8>,
}

impl TraceView {
    /// The journey in lines, as a comment in a file.
    pub fn comment(&self) -> String {
        let line = |step: &TraceStepView| match step.cycles {
            Some(cycles) => format!("{}: {} [{cycles} cycles]\n", step.stage, step.text),
            None => format!("{}: {}\n", step.stage, step.text),
        };
        self.steps.iter().map(line).collect::<String>() + &self.verdict
    }
}

impl DroppedView {
    /// Why, in a line, as a comment in a file.
    pub fn comment(&self) -> String {
        match &self.by {
            Some(by) => format!("dropped: {}, by {by}", self.reason),
            None => format!("dropped: {}", self.reason),
        }
    }
}
