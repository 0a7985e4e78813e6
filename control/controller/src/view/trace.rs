//! Views of the journeys of packets, and of dropped packets.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

/// Journey of a traced packet.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TraceView {
    /// Number of the packet in the trace, counted from 1.
    pub number: u64,
    /// Time of arrival: date and time, UTC.
    pub time: String,
    /// Port of arrival.
    pub port: String,
    /// Level and processor that treated the packet: `worker 0` is the first worker.
    pub level: String,
    /// Length of the packet in bytes, including the link header.
    pub length: u32,
    /// First 128 bytes of the packet at arrival, in hexadecimal.
    pub frame: String,
    /// Steps of the journey, stage by stage.
    pub steps: Vec<TraceStepView>,
    /// Result for the packet: where it went, or why it was dropped.
    pub verdict: String,
    /// Drop reason, if the packet was dropped.
    pub reason: Option<&'static str>,
    /// Sum of the known CPU cycles of all steps, from the time-stamp counter; absent if none is known.
    pub cycles: Option<u64>,
    /// Whether the end of the journey was recorded; otherwise the packet may still be held.
    pub is_over: bool,
    /// First bytes of the packet, for capture files.
    #[serde(skip)]
    pub raw: RawFrame,
}

/// Step of a journey.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TraceStepView {
    /// Stage: `receive`, `worker`, `parse`, `classify`, `gate`, `copy`, `route`, `error`, `rewrite`,
    /// `fragment`, `queue`, `wait`, `transmit`, `host`, `own`, `plugin` or `drop`.
    pub stage: &'static str,
    /// Number of the worker.
    pub worker: u8,
    /// CPU cycles of the step; `null` if unknown, because other packets shared the step.
    pub cycles: Option<u64>,
    /// Outcome of the step, and its reason.
    pub text: String,
    /// Name of the gate, at steps of stage `gate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<String>,
    /// Number of the filter or binding, at a gate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binding: Option<u64>,
    /// Expression of the filter, at a gate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// Action of the filter, at a gate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Name of the bound instance, at a gate with one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Decision at a gate (`pass`, `drop`, `consume`, `hold`, `queue`, `send`, `classify`), or result of the
    /// flow table lookup (`hit`, `checked`, `rerouted`, `reclassified`, `miss`, `none`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<&'static str>,
    /// Port of the step, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// Neighbour to which the packet is sent, at the step of stage `route`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_hop: Option<String>,
    /// Prefix of the route, at the step of stage `route`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Drop reason, at the step of stage `drop`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
}

/// Dropped packet.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DroppedView {
    /// Time of the drop: date and time, UTC.
    pub time: String,
    /// Drop reason.
    pub reason: &'static str,
    /// Number of the worker.
    pub worker: usize,
    /// Port of arrival; `-` for packets that the router creates.
    pub port: String,
    /// Egress port; absent if none was chosen yet.
    pub out_port: Option<String>,
    /// Length of the packet in bytes.
    pub length: u32,
    /// Headers of the packet in one line.
    pub summary: String,
    /// Number of the filter or binding that dropped the packet, if known.
    pub binding: Option<u64>,
    /// Expression of the filter that dropped the packet, if known.
    pub filter: Option<String>,
    /// Instance that dropped the packet, if known.
    pub instance: Option<String>,
    /// Text that names the filter or instance by which the packet was dropped. If several of them may have
    /// dropped it, their texts are joined by `or`.
    pub by: Option<String>,
    /// First 128 bytes of the packet, in hexadecimal.
    pub frame: String,
    /// First bytes of the packet, for capture files.
    #[serde(skip)]
    pub raw: RawFrame,
}

/// Frame for capture files.
#[derive(Clone, Debug, Default)]
pub struct RawFrame {
    /// Name of the port.
    pub port: String,
    /// Time since 1970.
    pub at: Duration,
    /// Length of the frame in bytes.
    pub length: u32,
    /// First bytes of the frame, including a link header.
    pub bytes: Vec<u8>,
}

impl TraceView {
    /// Returns the journey as text, for the comment in a capture file.
    pub fn comment(&self) -> String {
        let line = |step: &TraceStepView| match step.cycles {
            Some(cycles) => format!("{}: {} [{cycles} cycles]\n", step.stage, step.text),
            None => format!("{}: {}\n", step.stage, step.text),
        };
        self.steps.iter().map(line).collect::<String>() + &self.verdict
    }
}

impl DroppedView {
    /// Returns the drop as a line of text, for the comment in a capture file.
    pub fn comment(&self) -> String {
        match &self.by {
            Some(by) => format!("dropped: {}, by {by}", self.reason),
            None => format!("dropped: {}", self.reason),
        }
    }
}
