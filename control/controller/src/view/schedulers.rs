//! Views of schedulers and queues.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::BindingView;

/// Scheduler of a port.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SchedulerView {
    /// Name of the port.
    pub port: String,
    /// Most bits per second that the port sends; absent where its rate is unlimited.
    pub rate: Option<u64>,
    /// Speed of the link in bits per second, where the kernel knows it; absent for virtual devices.
    pub link: Option<u64>,
    /// Warning about promises that exceed the link, and about leaf limits that exceed the packet memory.
    pub warning: Option<String>,
    /// Overhead that the link adds to each packet, as in the configuration.
    #[schemars(with = "String")]
    pub overhead: millrace_config::Overhead,
    /// Queue of packets without another queue.
    pub default: Option<String>,
    /// Output of the kernel itself by the port; absent at ports without a kernel device.
    pub host: Option<HostOutputView>,
    /// Packets waiting.
    pub held: u32,
    /// Bytes of the waiting packets.
    pub held_bytes: u32,
    /// Most packets that may wait in all queues, from the room in packet memory; a single leaf gets half of
    /// it.
    pub room_packets: u32,
    /// Most bytes that may wait in all queues.
    pub room_bytes: u32,
    /// Queues in use, including queues of flows.
    pub queues: u32,
    /// Most queues.
    pub most_queues: u32,
    /// Nodes of the scheduler, each behind its parent.
    pub nodes: Vec<SchedulerNodeView>,
}

/// Output of the kernel itself by a port with a scheduler.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct HostOutputView {
    /// Treatment of the kernel's packets: `queue`, `filter` or `direct`.
    pub setting: &'static str,
    /// Most packets that a worker takes in an iteration.
    pub weight: u16,
    /// Whether the packets are caught and wait in the queues.
    pub caught: bool,
    /// Reason why the packets are not caught although they should be.
    pub why: Option<String>,
    /// Packets caught.
    pub packets: u64,
    /// Bytes of the caught packets.
    pub bytes: u64,
    /// Caught packets that were lost before they were read, or for which there was no memory.
    pub lost: u64,
}

/// Node of a scheduler.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SchedulerNodeView {
    /// Name of the node.
    pub name: String,
    /// Number by which plugins name the node as a queue.
    pub id: u16,
    /// Kind of the node.
    pub kind: &'static str,
    /// Name of the parent.
    pub under: Option<String>,
    /// Settings of the node, with underscores where a file has hyphens.
    #[serde(serialize_with = "as_in_json")]
    pub settings: Map<String, Value>,
    /// Bits per second on the wire that the node gets when all others send as much as they can; absent where
    /// that is not bounded.
    pub promised: Option<u64>,
    /// Bits per second on the wire that the node sent since the last request.
    pub delivered: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Bytes of the sent packets.
    pub sent_bytes: u64,
    /// Bytes of the sent packets on the wire, with the overhead of the link.
    pub sent_wire_bytes: u64,
    /// Packets waiting at or below the node.
    pub held_packets: u32,
    /// Bytes of the waiting packets.
    pub held_bytes: u32,
    /// Peak of the waiting bytes.
    pub peak_bytes: u32,
    /// Peak of the waiting packets, possibly at another moment than the peak of bytes.
    pub peak_packets: u32,
    /// Queues in use.
    pub queues: u32,
    /// Packets dropped at or below the node, by cause.
    pub drops: BTreeMap<&'static str, u64>,
    /// Bytes of the dropped packets.
    pub dropped_bytes: u64,
    /// Packets marked (ECN) at or below the node, rather than dropped.
    pub marked_packets: u64,
}

/// Removed node of a scheduler, with all nodes below it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RemovedNodeView {
    /// Name of the port.
    pub port: String,
    /// Name of the node.
    pub node: String,
    /// Leaf that took the packets; absent if the packets were dropped.
    pub to: Option<String>,
    /// Whether the filters were removed; if not, they name the leaf `to` now.
    pub with_filters: bool,
    /// Filters whose queue was removed, in their former state.
    pub filters: Vec<BindingView>,
}

/// Queue of a port: a leaf of its scheduler.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct QueueView {
    /// Name of the port.
    pub port: String,
    /// Leaf.
    #[serde(flatten)]
    pub node: SchedulerNodeView,
    /// Packets that arrived: packets sent, waiting or dropped.
    pub offered_packets: u64,
    /// Bytes of the arrived packets.
    pub offered_bytes: u64,
    /// Queues of flows in the queue; only in the answer about a single queue.
    pub flows: Vec<FlowQueueView>,
}

/// Queue of a flow.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FlowQueueView {
    /// Filter that matches only the flow's packets; absent where the router has forgotten the flow or does
    /// not know it yet.
    pub flow: Option<String>,
    /// Whether the queue is the one shared by flows without a queue of their own.
    pub shared: bool,
    /// Quantum in bytes for each round.
    pub quantum: u32,
    /// Threshold in bytes above which arriving packets are dropped.
    pub threshold: u32,
    /// Reserved rate in bits per second.
    pub rate: Option<u64>,
    /// Packets that arrived: packets sent, moved, waiting or dropped.
    pub offered_packets: u64,
    /// Bytes of the arrived packets.
    pub offered_bytes: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Bytes of the sent packets.
    pub sent_bytes: u64,
    /// Packets moved to another queue, because their flow got a queue of its own.
    pub moved_packets: u64,
    /// Bytes of the moved packets.
    pub moved_bytes: u64,
    /// Packets waiting.
    pub held_packets: u32,
    /// Bytes of the waiting packets.
    pub held_bytes: u32,
    /// Peak of the waiting bytes.
    pub peak_bytes: u32,
    /// Peak of the waiting packets, possibly at another moment than the peak of bytes.
    pub peak_packets: u32,
    /// Packets dropped, by cause.
    pub drops: BTreeMap<&'static str, u64>,
    /// Bytes of the dropped packets.
    pub dropped_bytes: u64,
    /// Packets marked (ECN) rather than dropped.
    pub marked_packets: u64,
}

/// Serializes settings with the keys of JSON: underscores in place of hyphens.
fn as_in_json<S: Serializer>(settings: &Map<String, Value>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(settings.iter().map(|(key, value)| (key.replace('-', "_"), value)))
}
