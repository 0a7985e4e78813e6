//! What waits before a packet: in the queue that it goes to, and for the instance that treats it.

use millrace_packet::Packet;
use millrace_units::{PortId, QueueId};

/// What waits in the queue that a packet goes to, as of now. A filter or an instance that comes later in the journey may
/// still send the packet elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueBacklog {
    /// The port that the packet leaves by.
    pub port: PortId,
    /// The leaf of the port's scheduler that it goes to; 0 where the port has no scheduler.
    pub queue: QueueId,
    /// Whether these are the packets of the packet's flow alone, or of those that share its queue by their hash (FQ-CoDel);
    /// if not, those of all flows in the leaf.
    pub of_flow: bool,
    /// Packets that wait.
    pub packets: u32,
    /// Their bytes, link headers included.
    pub bytes: u64,
}

/// What waits before a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Backlog {
    /// In its queue; `None` where its way is not known yet, or leads to no queue of this worker's.
    pub queue: Option<QueueBacklog>,
    /// Packets of all flows that wait for the instance to end the call that goes on.
    pub instance_packets: u32,
    /// Their bytes, link headers included.
    pub instance_bytes: u64,
}

/// Who knows what waits in queues.
pub trait Backlogs {
    /// What waits in the queue that a packet would go to as things stand; `None` where that is not known.
    fn of(&self, packet: &Packet) -> Option<QueueBacklog>;
}

/// What an instance may learn during a call.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// Of queues.
    pub queues: &'a dyn Backlogs,
    /// Packets that wait for the instance, beside those of the call, and their bytes.
    pub waiting: (u32, u64),
}

impl std::fmt::Debug for Known<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Known").field("waiting", &self.waiting).finish_non_exhaustive()
    }
}

/// Where nobody knows of any queue.
#[derive(Clone, Copy, Debug)]
pub struct NoQueues;

impl Backlogs for NoQueues {
    fn of(&self, _: &Packet) -> Option<QueueBacklog> {
        None
    }
}
