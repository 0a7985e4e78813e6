//! Flows, and what would become of a packet.

use schemars::JsonSchema;
use serde::Serialize;

/// What would happen to a packet.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LookupView {
    /// Stage by stage.
    pub steps: Vec<StepView>,
    /// What becomes of it in the end.
    pub verdict: String,
}

/// A stage of a packet's journey.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StepView {
    /// The stage.
    pub stage: &'static str,
    /// What happens there, and why.
    pub text: String,
}

/// Flows out of those that there are.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FlowsView {
    /// How many there are, those that are not shown included.
    pub found: usize,
    /// The first of them.
    pub flows: Vec<FlowView>,
}

/// A flow.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FlowView {
    /// The filter that only its packets match.
    pub flow: String,
    /// Source address.
    pub source: String,
    /// Destination address.
    pub destination: String,
    /// IP protocol: its name, or its number.
    pub protocol: String,
    /// Source port; 0 where the protocol has none.
    pub source_port: u16,
    /// Destination port; 0 where the protocol has none.
    pub destination_port: u16,
    /// The port that it comes in by; `-` for packets of the router's own.
    pub port: String,
    /// Packets since the router came to know it.
    pub packets: u64,
    /// Their bytes, link headers included.
    pub bytes: u64,
    /// Packets per second, where that was asked for.
    pub packet_rate: Option<f64>,
    /// Bits per second, where the rate was asked for.
    pub bit_rate: Option<f64>,
    /// Seconds since the router came to know it.
    pub age: f64,
    /// Seconds since its last packet.
    pub idle: f64,
    /// `driver` where the driver forwards it by itself, else `worker`.
    pub level: &'static str,
    /// Why it is not in the driver; nothing when it is.
    pub why_not_driver: Option<String>,
    /// Whether somebody has said where it is to be.
    pub placed: bool,
    /// The number of the worker that it belongs to: 0 where there is only one.
    pub worker: usize,
    /// `new` while it may be displaced by other new flows, then `established`; `reserved` while a rate is reserved for it, so that
    /// no other displaces it.
    pub state: &'static str,
    /// What it is bound to, in the order of the journey.
    pub bindings: Vec<String>,
    /// Where it goes.
    pub route: String,
}
