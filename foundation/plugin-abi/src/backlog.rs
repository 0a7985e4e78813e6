//! Backlog of a packet: packets that wait in its queue, and packets that wait for the instance.

use millrace_packet::Packet;
use millrace_units::{PortId, QueueId};

/// Current backlog of the queue that a packet goes to. A later filter or instance may still send the packet
/// to another queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueBacklog {
    /// Output port of the packet.
    pub port: PortId,
    /// Scheduler leaf of the packet at the port; 0 if the port has no scheduler.
    pub queue: QueueId,
    /// Whether the numbers count the queue of the packet's flow, which other flows with the same hash may
    /// share (FQ-CoDel). If not, they count all flows in the leaf.
    pub of_flow: bool,
    /// Number of waiting packets.
    pub packets: u32,
    /// Bytes of the waiting packets, link headers included.
    pub bytes: u64,
}

/// Backlog of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Backlog {
    /// Backlog of the packet's queue; `None` if the queue is not known yet or belongs to another worker.
    pub queue: Option<QueueBacklog>,
    /// Number of packets of all flows that wait until the instance ends its current call.
    pub instance_packets: u32,
    /// Bytes of these packets, link headers included.
    pub instance_bytes: u64,
}

/// Source of queue backlogs.
pub trait Backlogs {
    /// Returns the backlog of the queue that the packet would go to now; `None` if it is not known.
    fn of(&self, packet: &Packet) -> Option<QueueBacklog>;
}

/// Backlog information for a call of an instance.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// Source of queue backlogs.
    pub queues: &'a dyn Backlogs,
    /// Packets that wait for the instance besides the packets of the call, and their bytes.
    pub waiting: (u32, u64),
}

impl std::fmt::Debug for Known<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Known").field("waiting", &self.waiting).finish_non_exhaustive()
    }
}

/// Source of queue backlogs that knows no queue.
#[derive(Clone, Copy, Debug)]
pub struct NoQueues;

impl Backlogs for NoQueues {
    fn of(&self, _: &Packet) -> Option<QueueBacklog> {
        None
    }
}
