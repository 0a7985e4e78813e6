//! The scheduler of a port, as people write it.

use std::str::FromStr;

use millrace_units::remedy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::flow::without_incoming;
use crate::overhead::Overhead;
use crate::quantity::{Bits, CurveText, Length, QueueSize, Time};
use crate::values::{InputWeight, is_default};

/// The scheduler of a port: how fast it sends, and the tree that says what comes next.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Scheduler {
    /// How fast the port sends, on the wire: `"10mbit"`. Default: as fast as it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Bits>,
    /// What the link adds to each packet: `ethernet`, `atm`, `atm BYTES`, `bytes BYTES`, `bytes BYTES minimum BYTES` or `none`.
    /// Default `ethernet`.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(with = "String")]
    pub overhead: Overhead,
    /// The leaf for packets that nothing else is said of. Default: the first one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// Queues that the port has at most, those of flows included, 1 to 65,536. Default 8,192.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<u32>,
    /// What becomes of packets that the kernel itself sends by the port's device. Default `queue`.
    #[serde(skip_serializing_if = "is_default")]
    pub host: HostOutput,
    /// Packets that are taken of these in a round, at most, 1 to 256, like `input-weight` of a port. Default 256.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(with = "u16")]
    pub host_weight: InputWeight,
    /// The nodes, each behind the one above it.
    pub node: Vec<SchedulerNode>,
    /// Flows whose queues are treated in a way of their own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flow: Vec<FlowQueue>,
}

/// How the queue of one flow is treated, in a leaf that has a queue for each: by a rate, or by quantum and threshold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FlowQueue {
    /// The leaf.
    pub queue: String,
    /// All of the flow: `"src A dst B proto udp sport N dport N in PORT"`, without ports where the protocol has none.
    #[serde(deserialize_with = "flow")]
    pub flow: String,
    /// What is reserved for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Bits>,
    /// Bytes in each round. Default: those of all others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantum: Option<QueueSize>,
    /// Bytes above which what arrives is dropped. Default: those of all others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<QueueSize>,
}

/// A flow in the spelling that all are compared in.
fn flow<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    crate::flow::one_flow(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

/// What becomes of packets that the kernel itself sends by a port that has a scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HostOutput {
    /// They wait in the port's queues; filters at gates of the position `queue` say in which.
    #[default]
    Queue,
    /// The same, but they pass the filters of all gates before: what drops there drops them.
    Filter,
    /// The kernel sends them at once, beside the scheduler.
    Direct,
}

impl HostOutput {
    /// Its name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Filter => "filter",
            Self::Direct => "direct",
        }
    }
}

/// A node of a scheduler. Which settings it takes depends on its kind, and on the kind of the node above.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SchedulerNode {
    /// Its name. A leaf's is that of a queue, which filters name: `queue NAME`.
    pub name: String,
    /// What it does.
    pub kind: SchedulerKind,
    /// The node above; without it this is the root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub under: Option<String>,
    /// Under `priority`: its level, the lowest first, 0 to 65,535.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<u32>,
    /// Under `deficit-round-robin`: bytes in each round. For `flow-queues` and `fq-codel`: those of each flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantum: Option<QueueSize>,
    /// Under `hfsc`: what it is guaranteed, `"RATE"` or `"RATE TIME RATE"`: the first rate for that time, then the second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub real_time: Option<CurveText>,
    /// Under `hfsc`: how it shares what is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_sharing: Option<CurveText>,
    /// Under `hfsc`: what it must not exceed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upper_limit: Option<CurveText>,
    /// Of a `token-bucket`: how fast it lets packets go. Of `flow-queues`: what it is served with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Bits>,
    /// Of a `token-bucket`: bytes that may go at once. Default 3,076, two Ethernet frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<QueueSize>,
    /// Of a queue: bytes above which what arrives is dropped. Default 262,144.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<QueueSize>,
    /// Of `flow-queues` and `fq-codel`: how many queues there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<u32>,
    /// Of `fq-codel`: packets that it holds at most. Default 10,240.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Of a queue: how it keeps itself short. Default `tail-drop`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manage: Option<Manage>,
    /// Of `red`: what `minimum` and `maximum` are counted in. Default `bytes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<LengthUnit>,
    /// Of `red`: the average length below which nothing is dropped. Default a quarter of `maximum`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minimum: Option<Length>,
    /// Of `red`: the average length above which all is dropped, or with `gentle` above twice as much. Default half the threshold,
    /// in packets that of packets of 1,000 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maximum: Option<Length>,
    /// Of `red`: the share of packets that is dropped when the average is at `maximum`, above 0 and up to 1. Default 0.1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probability: Option<f64>,
    /// Of `red`: the weight of the newest length in the average, above 0 and up to 1. Default 0.002.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    /// Of `red`: whether above `maximum` more and more is dropped, up to all at twice as much, rather than all at once. Default
    /// true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gentle: Option<bool>,
    /// Of `codel` and `fq-codel`: time that packets may wait: `"5ms"`. Default 5 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<DelayTime>,
    /// Of `codel` and `fq-codel`: time for which they may wait longer: `"100ms"`. Default 100 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<DelayTime>,
    /// Of `red`, `codel` and `fq-codel`: whether packets are marked rather than dropped where their senders understand it.
    /// Default true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecn: Option<bool>,
}

/// Time that packets wait: an hour at most.
pub type DelayTime = Time<0, 3_600_000_000>;

/// What a node of a scheduler does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SchedulerKind {
    /// One queue.
    Fifo,
    /// A queue per flow, by weighted deficit round robin.
    FlowQueues,
    /// FQ-CoDel (RFC 8290).
    FqCodel,
    /// Its children by level.
    Priority,
    /// Its children by weighted deficit round robin.
    DeficitRoundRobin,
    /// Its children by their service curves.
    Hfsc,
    /// Its only child at a rate.
    TokenBucket,
}

/// How a queue keeps itself short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Manage {
    /// It drops what finds it full.
    TailDrop,
    /// Random early detection.
    Red,
    /// Controlled delay (RFC 8289).
    Codel,
}

/// What the length of a queue is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LengthUnit {
    /// Bytes.
    Bytes,
    /// Packets.
    Packets,
}

impl FlowQueue {
    /// The leaf, and what its queues know the flow by: all but the port that its packets come in by.
    #[must_use]
    pub fn of_queue(&self) -> (&str, &str) {
        (&self.queue, without_incoming(&self.flow))
    }

    /// Whether a flow, in the same spelling, waits in the same queue of a port.
    #[must_use]
    pub fn is_queue_of(&self, queue: &str, flow: &str) -> bool {
        self.of_queue() == (queue, without_incoming(flow))
    }
}

impl SchedulerKind {
    /// Every kind with its name.
    pub const ALL: [(&'static str, Self); 7] = [
        ("fifo", Self::Fifo),
        ("flow-queues", Self::FlowQueues),
        ("fq-codel", Self::FqCodel),
        ("priority", Self::Priority),
        ("deficit-round-robin", Self::DeficitRoundRobin),
        ("hfsc", Self::Hfsc),
        ("token-bucket", Self::TokenBucket),
    ];

    /// Whether such a node holds packets itself.
    pub fn is_leaf(self) -> bool {
        matches!(self, Self::Fifo | Self::FlowQueues | Self::FqCodel)
    }

    /// Its name.
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
        Err(format!("no kind of scheduler is named {text:?}{}", remedy("kind", text, names)))
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
        assert!("1mbit 10ms".parse::<CurveText>().unwrap_err().contains("is no curve"));
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
    fn a_kind_that_there_is_not_is_told_with_the_nearest() {
        assert_eq!("hfsc".parse(), Ok(SchedulerKind::Hfsc));
        let refused = "fq_codel".parse::<SchedulerKind>().unwrap_err();
        assert!(refused.contains("did you mean \"fq-codel\""), "{refused}");
    }
}
