//! What is shown of schedulers and queues.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::BindingView;

/// The scheduler of a port.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SchedulerView {
    /// The port.
    pub port: String,
    /// Bits in a second that it sends at most; none if it sends as fast as it can.
    pub rate: Option<u64>,
    /// Bits in a second that its link carries, where the kernel knows: that of no virtual device.
    pub link: Option<u64>,
    /// What the link can't carry of what is promised, and memory not hold of what was said of leaves.
    pub warning: Option<String>,
    /// What its link adds to each packet, as the configuration has it.
    #[schemars(with = "String")]
    pub overhead: millrace_config::Overhead,
    /// The queue of packets that nothing else is said of.
    pub default: Option<String>,
    /// What the kernel itself sends by the port; none at ports without a kernel device.
    pub host: Option<HostOutputView>,
    /// Packets that wait.
    pub held: u32,
    /// Their bytes.
    pub held_bytes: u32,
    /// Packets that may wait in all its queues, by the room in packet memory; one leaf alone gets half of it.
    pub room_packets: u32,
    /// Bytes that may wait in all its queues.
    pub room_bytes: u32,
    /// Queues in use, those of flows included.
    pub queues: u32,
    /// Queues that there may be.
    pub most_queues: u32,
    /// Its nodes, each behind the one above it.
    pub nodes: Vec<SchedulerNodeView>,
}

/// What the kernel itself sends by a port that has a scheduler.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct HostOutputView {
    /// What becomes of it: `queue`, `filter` or `direct`.
    pub setting: &'static str,
    /// Packets that are taken in a round, at most.
    pub weight: u16,
    /// Whether it is caught, and waits in the queues.
    pub caught: bool,
    /// Why it is not, although it should be.
    pub why: Option<String>,
    /// Packets that were caught.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets of these that were lost before they were read, or for which there was no memory.
    pub lost: u64,
}

/// A node of a scheduler.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SchedulerNodeView {
    /// Its name.
    pub name: String,
    /// The number by which plugins name it as a queue.
    pub id: u16,
    /// What it does.
    pub kind: &'static str,
    /// The node above.
    pub under: Option<String>,
    /// Its settings, with underscores where a file has hyphens.
    #[serde(serialize_with = "as_in_json")]
    pub settings: Map<String, Value>,
    /// Bits in a second on the wire that it gets when all others send as much as they can, as far as that is bounded.
    pub promised: Option<u64>,
    /// Bits in a second on the wire that it sent since it was last asked for.
    pub delivered: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// What they took on the wire: their bytes and what the link adds.
    pub sent_wire_bytes: u64,
    /// Packets that wait at or below it.
    pub held_packets: u32,
    /// Their bytes.
    pub held_bytes: u32,
    /// The most bytes that ever waited.
    pub peak_bytes: u32,
    /// The most packets that ever waited, not always at the same moment.
    pub peak_packets: u32,
    /// Queues in use.
    pub queues: u32,
    /// Packets dropped at or below it, by cause.
    pub drops: BTreeMap<&'static str, u64>,
    /// Their bytes.
    pub dropped_bytes: u64,
    /// Packets that were marked (ECN) at or below it, rather than dropped.
    pub marked_packets: u64,
}

/// A node of a scheduler that was removed, with all below it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RemovedNodeView {
    /// The port.
    pub port: String,
    /// Its name.
    pub node: String,
    /// The leaf that has its packets now; none, if they were dropped.
    pub to: Option<String>,
    /// Whether the filters were removed; if not, they name the leaf now.
    pub with_filters: bool,
    /// Filters whose queue is gone, as they were.
    pub filters: Vec<BindingView>,
}

/// A queue of a port: a leaf of its scheduler.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct QueueView {
    /// The port.
    pub port: String,
    /// The leaf.
    #[serde(flatten)]
    pub node: SchedulerNodeView,
    /// Packets that arrived: those that were sent, wait or were dropped.
    pub offered_packets: u64,
    /// Their bytes.
    pub offered_bytes: u64,
    /// The queues of flows in it; only where one queue was asked for.
    pub flows: Vec<FlowQueueView>,
}

/// The queue of a flow.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FlowQueueView {
    /// The filter that only the flow's packets match; none when the router knows it no longer, or does not yet.
    pub flow: Option<String>,
    /// Whether flows share it that have no queue of their own.
    pub shared: bool,
    /// Bytes in each round.
    pub quantum: u32,
    /// Bytes above which what arrives is dropped.
    pub threshold: u32,
    /// Bits in a second that are reserved for it.
    pub rate: Option<u64>,
    /// Packets that arrived: those that were sent, moved, wait or were dropped.
    pub offered_packets: u64,
    /// Their bytes.
    pub offered_bytes: u64,
    /// Packets that were sent.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Packets that went to another queue: those of a flow that got one of its own.
    pub moved_packets: u64,
    /// Their bytes.
    pub moved_bytes: u64,
    /// Packets that wait.
    pub held_packets: u32,
    /// Their bytes.
    pub held_bytes: u32,
    /// The most bytes that ever waited.
    pub peak_bytes: u32,
    /// The most packets that ever waited, not always at the same moment.
    pub peak_packets: u32,
    /// Packets that were dropped, by cause.
    pub drops: BTreeMap<&'static str, u64>,
    /// Their bytes.
    pub dropped_bytes: u64,
    /// Packets that were marked (ECN) rather than dropped.
    pub marked_packets: u64,
}

/// Keys of a file as JSON has them.
fn as_in_json<S: Serializer>(settings: &Map<String, Value>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(settings.iter().map(|(key, value)| (key.replace('-', "_"), value)))
}
