//! Scheduler settings of a port.

use std::collections::BTreeMap;
use std::str::FromStr;

use millrace_units::remedy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::flow::without_incoming;
use crate::values::overhead::Overhead;
use crate::values::quantity::{Bits, CurveText, Length, QueueSize, Time};
use crate::values::{InputWeight, is_default};

/// Scheduler of a port: the rate of the port, and a tree of nodes that chooses the next packet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Scheduler {
    /// Rate of the port on the wire, such as `"10mbit"`. Default: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Bits>,
    /// Overhead that the link adds to each packet: `ethernet`, `atm`, `atm BYTES`, `bytes BYTES`, `bytes
    /// BYTES minimum BYTES` or `none`. Default `ethernet`.
    #[serde(skip_serializing_if = "is_default")]
    pub overhead: Overhead,
    /// Name of the leaf for packets that no filter assigns to a queue. Default: the first leaf.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// Maximum number of queues of the port, including queues of flows, 1 to 65,536. Default 8,192.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<u32>,
    /// Treatment of the kernel's own packets at the port's device. Default `queue`.
    #[serde(skip_serializing_if = "is_default")]
    pub host: HostOutput,
    /// Maximum number of the kernel's own packets that a worker takes in an iteration, 1 to 256. It
    /// corresponds to `input-weight` of a port. Default 256.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(with = "u16")]
    pub host_weight: InputWeight,
    /// Nodes of the tree, each listed after its parent.
    pub node: Vec<SchedulerNode>,
    /// Settings of single flows, which have their own queues.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flow: Vec<FlowQueue>,
    /// Names of queues whose packets enter the leaf of another name. The router derives them from principals.
    #[serde(skip)]
    pub same_as: BTreeMap<String, String>,
}

/// Settings of a single flow at a leaf with a queue per flow: a rate, or quantum and threshold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FlowQueue {
    /// Name of the leaf.
    pub queue: String,
    /// Complete flow key: `"src A dst B proto udp sport N dport N in PORT"`, without ports if the protocol
    /// has none.
    #[serde(deserialize_with = "flow")]
    pub flow: String,
    /// Rate reserved for the flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Bits>,
    /// Bytes in each round. Default: the quantum of all other flows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantum: Option<QueueSize>,
    /// Bytes above which the flow's queue drops new packets. Default: the threshold of all other flows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<QueueSize>,
}

/// Deserializes a flow, and converts it to its canonical spelling.
fn flow<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    crate::values::flow::one_flow(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

/// Treatment of the kernel's own packets at a port with a scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HostOutput {
    /// The packets enter the port's queues. Filters at gates of position `queue` choose the queue.
    #[default]
    Queue,
    /// The packets pass the filters of all gates from position `early` on, and then enter the port's queues.
    /// Filters may drop them.
    Filter,
    /// The kernel sends the packets directly, and they bypass the scheduler.
    Direct,
}

impl HostOutput {
    /// Returns the name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Filter => "filter",
            Self::Direct => "direct",
        }
    }
}

/// Node of a scheduler. The valid settings depend on its kind, and on the kind of its parent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SchedulerNode {
    /// Name of the node. The name of a leaf is also the name of its queue in filters: `queue NAME`.
    pub name: String,
    /// Scheduling discipline of the node.
    pub kind: SchedulerKind,
    /// Parent node; the root has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub under: Option<String>,
    /// Under `priority`: level of the node, 0 to 65,535. The lowest level sends first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<u32>,
    /// Under `deficit-round-robin`: bytes of the node in each round. For `flow-queues` and `fq-codel`: bytes
    /// of each flow in each round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantum: Option<QueueSize>,
    /// Under `hfsc`: service curve that is guaranteed to the node, `"RATE"` or `"RATE TIME RATE"`. The first
    /// rate applies for this time, then the second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub real_time: Option<CurveText>,
    /// Under `hfsc`: service curve that determines the node's share of excess bandwidth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_sharing: Option<CurveText>,
    /// Under `hfsc`: service curve that limits the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upper_limit: Option<CurveText>,
    /// For `token-bucket`: rate limit of the node. For `flow-queues`: rate of the node, of which single flows
    /// can reserve a part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Bits>,
    /// For `token-bucket`: burst in bytes. Default 3,076, which is two Ethernet frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<QueueSize>,
    /// For a queue: bytes above which it drops new packets. Default 262,144.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<QueueSize>,
    /// For `flow-queues` and `fq-codel`: number of queues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<u32>,
    /// For `fq-codel`: maximum number of packets in all queues of the node. Default 10,240.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// For a queue: queue management. Default `tail-drop`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manage: Option<Manage>,
    /// For `red`: unit of `minimum` and `maximum`. Default `bytes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<LengthUnit>,
    /// For `red`: average queue length below which no packet is dropped. Default: a quarter of `maximum`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minimum: Option<Length>,
    /// For `red`: average queue length above which all packets are dropped; with `gentle`, above twice this
    /// length. Default: half the threshold; with `unit = "packets"`, half the threshold in packets of 1,000
    /// bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maximum: Option<Length>,
    /// For `red`: share of packets dropped when the average queue length is at `maximum`, above 0 and up to
    /// 1. Default 0.1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probability: Option<f64>,
    /// For `red`: weight of the newest queue length in the average, above 0 and up to 1. Default 0.002.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    /// For `red`: whether the share of dropped packets rises gradually above `maximum`, until all are dropped
    /// at twice `maximum`. Default true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gentle: Option<bool>,
    /// For `codel` and `fq-codel`: acceptable queueing delay, such as `"5ms"`. Default 5 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<DelayTime>,
    /// For `codel` and `fq-codel`: time for which the queueing delay may exceed `target`, such as `"100ms"`.
    /// Default 100 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<DelayTime>,
    /// For `red`, `codel` and `fq-codel`: whether ECN-capable packets are marked instead of dropped. Default
    /// true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecn: Option<bool>,
}

/// Queueing delay, up to an hour.
pub type DelayTime = Time<0, 3_600_000_000>;

/// Scheduling discipline of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SchedulerKind {
    /// One queue.
    Fifo,
    /// One queue per flow; the flows are served by weighted deficit round robin.
    FlowQueues,
    /// FQ-CoDel (RFC 8290).
    FqCodel,
    /// Strict priority among the children, by level.
    Priority,
    /// Weighted deficit round robin among the children.
    DeficitRoundRobin,
    /// Hierarchical fair service curves of the children.
    Hfsc,
    /// Token bucket that limits the rate of the only child.
    TokenBucket,
}

/// Queue management: policy that limits the length of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Manage {
    /// Tail drop: a full queue drops new packets.
    TailDrop,
    /// Random early detection (RED).
    Red,
    /// Controlled delay (CoDel, RFC 8289).
    Codel,
}

/// Unit of queue length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LengthUnit {
    /// Bytes.
    Bytes,
    /// Packets.
    Packets,
}

impl FlowQueue {
    /// Returns the leaf, and the flow without its ingress port. Together they identify a flow's queue.
    #[must_use]
    pub fn of_queue(&self) -> (&str, &str) {
        (&self.queue, without_incoming(&self.flow))
    }

    /// Whether `flow` at leaf `queue` has the same queue of the port as this flow. `flow` is in canonical
    /// spelling.
    #[must_use]
    pub fn is_queue_of(&self, queue: &str, flow: &str) -> bool {
        self.of_queue() == (queue, without_incoming(flow))
    }
}

impl SchedulerNode {
    /// Returns a node below `under`, with the defaults of all settings.
    #[must_use]
    pub fn below(name: String, kind: SchedulerKind, under: Option<String>) -> Self {
        Self {
            name,
            kind,
            under,
            level: None,
            quantum: None,
            real_time: None,
            link_sharing: None,
            upper_limit: None,
            rate: None,
            burst: None,
            threshold: None,
            queues: None,
            limit: None,
            manage: None,
            unit: None,
            minimum: None,
            maximum: None,
            probability: None,
            weight: None,
            gentle: None,
            target: None,
            interval: None,
            ecn: None,
        }
    }
}

impl SchedulerKind {
    /// All kinds with their names.
    pub const ALL: [(&'static str, Self); 7] = [
        ("fifo", Self::Fifo),
        ("flow-queues", Self::FlowQueues),
        ("fq-codel", Self::FqCodel),
        ("priority", Self::Priority),
        ("deficit-round-robin", Self::DeficitRoundRobin),
        ("hfsc", Self::Hfsc),
        ("token-bucket", Self::TokenBucket),
    ];

    /// Whether nodes of the kind hold packets themselves.
    pub fn is_leaf(self) -> bool {
        matches!(self, Self::Fifo | Self::FlowQueues | Self::FqCodel)
    }

    /// Returns the name of the kind.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }
}

impl FromStr for SchedulerKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((_, kind)) = Self::ALL.iter().find(|(name, _)| *name == text) {
            return Ok(*kind);
        }
        let names = Self::ALL.map(|(name, _)| name);
        Err(format!("no scheduler kind is named {text:?}{}", remedy("kind", text, names)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_have_one_slope_or_two() {
        let curve: CurveText = "1mbit 10ms 64kbit".parse().unwrap();
        assert_eq!((curve.first.0, curve.micros, curve.then.0), (1_000_000, 10_000, 64_000));
        assert_eq!(curve.to_string(), "1mbit 10ms 64kbit");
        let flat: CurveText = "0bit 10ms 64kbit".parse().unwrap();
        assert_eq!((flat.first.0, flat.to_string().parse()), (0, Ok(flat)), "convex, as the paper's own");
        assert!("0bit".parse::<CurveText>().is_err() && "1mbit 10ms 0bit".parse::<CurveText>().is_err());
        assert_eq!("2mbit".parse::<CurveText>().unwrap().to_string(), "2mbit");
        assert!("1mbit 10ms".parse::<CurveText>().unwrap_err().contains("is no service curve"));
        for (wrong, why) in [
            ("soon", "is no time"),
            ("3601s", "the time must be"),
            ("18446744073709551s", "is no time"),
            ("10", "\"10ms\""),
        ] {
            assert!(format!("1mbit {wrong} 1mbit").parse::<CurveText>().unwrap_err().contains(why));
        }
    }

    #[test]
    fn an_unknown_kind_names_the_nearest() {
        assert_eq!("hfsc".parse(), Ok(SchedulerKind::Hfsc));
        let refused = "fq_codel".parse::<SchedulerKind>().unwrap_err();
        assert!(refused.contains("did you mean \"fq-codel\""), "{refused}");
    }
}
