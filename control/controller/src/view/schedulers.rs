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
    /// Rate of the port in bits per second; absent if it is unlimited.
    pub rate: Option<u64>,
    /// Link speed in bits per second; absent if the kernel doesn't know it, and for virtual devices.
    pub link: Option<u64>,
    /// Warning about promises above the link speed, or leaf limits above the packet memory; absent if there
    /// is none.
    pub warning: Option<String>,
    /// Overhead that the link adds to each packet, in the form of the configuration.
    #[schemars(with = "String")]
    pub overhead: millrace_config::Overhead,
    /// Name of the leaf for packets that no filter assigns to a queue.
    pub default: Option<String>,
    /// Host output of the port; absent without a kernel device.
    pub host: Option<HostOutputView>,
    /// Packets waiting.
    pub held: u32,
    /// Bytes of the waiting packets.
    pub held_bytes: u32,
    /// Maximum number of packets that may wait in all queues. It depends on the size of the packet memory. A
    /// single leaf may use half of it.
    pub room_packets: u32,
    /// Maximum number of bytes that may wait in all queues.
    pub room_bytes: u32,
    /// Number of queues in use, including queues of flows.
    pub queues: u32,
    /// Maximum number of queues.
    pub queues_limit: u32,
    /// Nodes of the scheduler, each after its parent.
    pub nodes: Vec<SchedulerNodeView>,
}

/// Host output: the kernel's own packets, sent through the scheduler of a port.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct HostOutputView {
    /// Treatment of the kernel's packets: `queue`, `filter` or `direct`.
    pub setting: &'static str,
    /// Maximum number of the kernel's packets that a worker takes in an iteration.
    pub weight: u16,
    /// Whether the packets are redirected into the queues at present.
    pub queued_here: bool,
    /// Reason why the packets are not redirected as configured; absent if they are.
    pub why: Option<String>,
    /// Packets redirected.
    pub packets: u64,
    /// Bytes of the redirected packets.
    pub bytes: u64,
    /// Redirected packets that were lost before the worker read them, or because packet memory was full.
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
    /// Settings of the node. Keys have underscores where a configuration file has hyphens.
    #[serde(serialize_with = "as_in_json")]
    pub settings: Map<String, Value>,
    /// Promised rate in bits per second on the wire: the rate that the node gets when all other nodes send at
    /// their maximum. Absent if the node's rate is unlimited.
    pub promised: Option<u64>,
    /// Delivered rate in bits per second on the wire, since the last request.
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
    /// Highest number of waiting bytes so far.
    pub peak_bytes: u32,
    /// Highest number of waiting packets so far. It may have occurred at another time than `peak_bytes`.
    pub peak_packets: u32,
    /// Number of queues in use.
    pub queues: u32,
    /// Packets dropped at or below the node, by cause.
    pub drops: BTreeMap<&'static str, u64>,
    /// Bytes of the dropped packets.
    pub dropped_bytes: u64,
    /// Packets at or below the node that were marked (ECN) instead of dropped.
    pub marked_packets: u64,
}

/// Scheduler node that was removed, with all nodes below it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RemovedNodeView {
    /// Name of the port.
    pub port: String,
    /// Name of the node.
    pub node: String,
    /// Leaf that got the packets; absent if they were dropped.
    pub to: Option<String>,
    /// Whether the filters were removed. Otherwise they name leaf `to` now.
    pub with_filters: bool,
    /// Filters whose queue was removed, as they were before the removal.
    pub filters: Vec<BindingView>,
}

/// Queue of a port: a leaf of its scheduler.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct QueueView {
    /// Name of the port.
    pub port: String,
    /// Leaf of the scheduler, with its counters.
    #[serde(flatten)]
    pub node: SchedulerNodeView,
    /// Packets offered to the queue: the sum of sent, waiting and dropped packets.
    pub offered_packets: u64,
    /// Bytes of the offered packets.
    pub offered_bytes: u64,
    /// Queues of flows in the queue; filled only in the answer about a single queue.
    pub flows: Vec<FlowQueueView>,
}

/// Queue of a flow.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FlowQueueView {
    /// Filter that matches exactly the flow's packets. Absent for the shared queue, or if the router doesn't
    /// know the flow.
    pub flow: Option<String>,
    /// Whether this is the shared queue, for flows without a queue of their own.
    pub shared: bool,
    /// Quantum in bytes per round.
    pub quantum: u32,
    /// Discard threshold in bytes: new packets are dropped above it.
    pub threshold: u32,
    /// Reserved rate in bits per second; `null` without a reservation.
    pub rate: Option<u64>,
    /// Packets offered to the queue: the sum of sent, moved, waiting and dropped packets.
    pub offered_packets: u64,
    /// Bytes of the offered packets.
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
    /// Highest number of waiting bytes so far.
    pub peak_bytes: u32,
    /// Highest number of waiting packets so far. It may have occurred at another time than `peak_bytes`.
    pub peak_packets: u32,
    /// Packets dropped, by cause.
    pub drops: BTreeMap<&'static str, u64>,
    /// Bytes of the dropped packets.
    pub dropped_bytes: u64,
    /// Packets marked (ECN) instead of dropped.
    pub marked_packets: u64,
}

/// Serializes settings with the JSON spelling of keys: underscores instead of hyphens.
fn as_in_json<S: Serializer>(settings: &Map<String, Value>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(settings.iter().map(|(key, value)| (key.replace('-', "_"), value)))
}
