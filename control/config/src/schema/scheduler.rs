//! Scheduler settings of a port.

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
    /// Rate of the port on the wire: `"10mbit"`. Default: as fast as the port can send.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Bits>,
    /// Link overhead per packet: `ethernet`, `atm`, `atm BYTES`, `bytes BYTES`, `bytes BYTES minimum BYTES`
    /// or `none`. Default `ethernet`.
    #[serde(skip_serializing_if = "is_default")]
    pub overhead: Overhead,
    /// Leaf for packets that no filter assigns to a queue. Default: the first leaf.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// Maximum number of queues of the port, the queues of flows included, 1 to 65,536. Default 8,192.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<u32>,
    /// Treatment of packets that the kernel itself sends by the port's device. Default `queue`.
    #[serde(skip_serializing_if = "is_default")]
    pub host: HostOutput,
    /// Maximum number of packets taken from the kernel per iteration, 1 to 256, like `input-weight` of a
    /// port. Default 256.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(with = "u16")]
    pub host_weight: InputWeight,
    /// Nodes, each after its parent.
    pub node: Vec<SchedulerNode>,
    /// Flows with settings of their own for their queues.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flow: Vec<FlowQueue>,
}

/// Settings of the queue of one flow, in a leaf with a queue per flow: a rate, or quantum and threshold.
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
    /// Bytes in each round. Default: as for all other flows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantum: Option<QueueSize>,
    /// Bytes above which the queue drops arriving packets. Default: as for all other flows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<QueueSize>,
}

/// Reads a flow into its canonical spelling.
fn flow<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    crate::values::flow::one_flow(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

/// Treatment of packets that the kernel itself sends by a port with a scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HostOutput {
    /// Puts the packets into the port's queues; filters at gates of the position `queue` choose the queue.
    #[default]
    Queue,
    /// Passes the packets through the filters of all earlier gates, which may drop them, then into the port's
    /// queues.
    Filter,
    /// Leaves the packets to the kernel, which sends them at once and bypasses the scheduler.
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
    /// Under `priority`: level of the node, the lowest first, 0 to 65,535.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<u32>,
    /// Under `deficit-round-robin`: bytes in each round. For `flow-queues` and `fq-codel`: bytes of each flow
    /// in each round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantum: Option<QueueSize>,
    /// Under `hfsc`: guaranteed service, `"RATE"` or `"RATE TIME RATE"`: the first rate for that time, then
    /// the second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub real_time: Option<CurveText>,
    /// Under `hfsc`: service curve by which the node shares excess bandwidth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_sharing: Option<CurveText>,
    /// Under `hfsc`: maximum service of the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upper_limit: Option<CurveText>,
    /// Of a `token-bucket`: rate at which it releases packets. Of `flow-queues`: rate at which it is served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Bits>,
    /// Of a `token-bucket`: burst in bytes. Default 3,076, two Ethernet frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<QueueSize>,
    /// Of a queue: bytes above which it drops arriving packets. Default 262,144.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<QueueSize>,
    /// Of `flow-queues` and `fq-codel`: number of queues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<u32>,
    /// Of `fq-codel`: maximum number of packets in it. Default 10,240.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Of a queue: queue management. Default `tail-drop`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manage: Option<Manage>,
    /// Of `red`: unit of `minimum` and `maximum`. Default `bytes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<LengthUnit>,
    /// Of `red`: average length below which no packet is dropped. Default a quarter of `maximum`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minimum: Option<Length>,
    /// Of `red`: average length above which all packets are dropped; with `gentle`, above twice this length.
    /// Default half the threshold; with `unit = "packets"`, half the threshold in packets of 1,000 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maximum: Option<Length>,
    /// Of `red`: share of packets dropped when the average is at `maximum`, above 0 and up to 1. Default 0.1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probability: Option<f64>,
    /// Of `red`: weight of the newest length in the average, above 0 and up to 1. Default 0.002.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    /// Of `red`: whether the share of dropped packets rises gradually above `maximum`, up to all at twice
    /// `maximum`. Default true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gentle: Option<bool>,
    /// Of `codel` and `fq-codel`: acceptable queueing delay: `"5ms"`. Default 5 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<DelayTime>,
    /// Of `codel` and `fq-codel`: time for which the delay may exceed `target`: `"100ms"`. Default 100 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<DelayTime>,
    /// Of `red`, `codel` and `fq-codel`: whether packets of ECN-capable senders are marked rather than
    /// dropped. Default true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecn: Option<bool>,
}

/// Queueing delay: an hour at most.
pub type DelayTime = Time<0, 3_600_000_000>;

/// Scheduling discipline of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SchedulerKind {
    /// One queue.
    Fifo,
    /// One queue per flow, served by weighted deficit round robin.
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
    /// Drop of packets that arrive at a full queue.
    TailDrop,
    /// Random early detection.
    Red,
    /// Controlled delay (RFC 8289).
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
    /// Returns the leaf and the flow without its incoming port, as queues identify it.
    #[must_use]
    pub fn of_queue(&self) -> (&str, &str) {
        (&self.queue, without_incoming(&self.flow))
    }

    /// Whether a flow, in canonical spelling, waits in the same queue of a port.
    #[must_use]
    pub fn is_queue_of(&self, queue: &str, flow: &str) -> bool {
        self.of_queue() == (queue, without_incoming(flow))
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
            ("3601s", "out of range"),
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
