//! Views of flows, and explanations of packets.

use schemars::JsonSchema;
use serde::Serialize;

/// Explanation of how the router would treat a packet.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LookupView {
    /// Steps of the journey, stage by stage.
    pub steps: Vec<StepView>,
    /// Result for the packet: where it goes, or why it is dropped.
    pub verdict: String,
}

/// Step of a packet's journey: the result of one stage.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StepView {
    /// Name of the stage.
    pub stage: &'static str,
    /// Result of the stage, and its reason.
    pub text: String,
}

/// Result of flushing flows.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct Flushed {
    /// Number of flushed flows.
    pub flushed: u64,
}

/// List of flows.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FlowsView {
    /// Number of matching flows, including flows that are not listed.
    pub found: usize,
    /// First of the matching flows, in the requested order.
    pub flows: Vec<FlowView>,
}

/// Flow.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FlowView {
    /// Filter that matches exactly the packets of the flow.
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
    /// Port at which the flow arrives; `-` for packets that the router creates.
    pub port: String,
    /// Packets since the flow record was created.
    pub packets: u64,
    /// Bytes of the flow's packets, including link headers.
    pub bytes: u64,
    /// Packets per second; absent unless flows are ordered by rate.
    pub packet_rate: Option<f64>,
    /// Bits per second; absent unless flows are ordered by rate.
    pub bit_rate: Option<f64>,
    /// Seconds since the flow record was created.
    pub age: f64,
    /// Seconds since the last packet of the flow.
    pub idle: f64,
    /// Level of the flow.
    #[serde(flatten)]
    pub level: FlowLevelView,
    /// Number of the worker that owns the flow, counted from 0.
    pub worker: usize,
    /// `new` for a flow on probation, which other new flows may displace; `established` afterwards;
    /// `reserved` if a reserved rate protects the flow from displacement.
    pub state: &'static str,
    /// Bindings that apply to the flow's packets, in order.
    pub bindings: Vec<String>,
    /// Principals that pay for instances of the flow, in the order of the instances.
    pub payments: Vec<FlowPaymentView>,
    /// Route of the flow.
    pub route: String,
}

/// Level at which a flow is forwarded.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FlowLevelView {
    /// `offload` for an offloaded flow, else `worker`.
    pub level: &'static str,
    /// Reason why the flow is not offloaded; absent for an offloaded flow.
    pub why_not_offloaded: Option<String>,
    /// Whether a placement determines the level of the flow.
    pub placed: bool,
}

/// Account of a flow at a principal that pays for it, since the flow's packets began to wait for the processor.
/// All numbers are 0 when none waits and the flow owes nothing, and while it shares a queue with other flows.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FlowPaymentView {
    /// Name of the principal.
    pub principal: String,
    /// Processor time in cycles.
    pub cycles: u64,
    /// Number of packets that wait for the processor.
    pub waiting: u32,
    /// Bytes of these packets.
    pub waiting_bytes: u64,
    /// Number of packets dropped because too many waited.
    pub dropped: u64,
}
