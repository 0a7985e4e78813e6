//! Backlog of a packet: packets that wait in its queue, for the instance, and for the processor of the principal
//! that pays for the call.

use std::time::Duration;

use millrace_packet::Packet;
use millrace_units::{PortId, QueueId};

/// Current backlog of the queue that a packet would enter now. A later filter or instance may still choose
/// another queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueBacklog {
    /// Egress port of the packet.
    pub port: PortId,
    /// Scheduler leaf of the packet at its egress port; 0 if the port has no scheduler.
    pub queue: QueueId,
    /// Scope of the numbers: true if they count the queue of the packet's flow, which flows with the same
    /// hash may share (FQ-CoDel); false if they count all flows in the leaf.
    pub of_flow: bool,
    /// Number of waiting packets.
    pub packets: u32,
    /// Bytes of the waiting packets, link headers included.
    pub bytes: u64,
}

/// Principal that pays for a call: packets that wait for its processor time at the worker, and the time that it has
/// left. The values are those at the start of the call, or of its latest slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PayerBacklog {
    /// Number of packets of all its flows that wait, without those of the call.
    pub packets: u32,
    /// Bytes of `packets`, link headers included.
    pub bytes: u64,
    /// Processor time until the next slice of another principal, which the packets of earlier stages in the slice
    /// have reduced; `None` if the processor has no cycle counter. A longer call reduces later slices.
    pub allowance: Option<Duration>,
}

/// Backlog of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Backlog {
    /// Backlog of the packet's queue; `None` if the queue is not chosen yet or belongs to another worker.
    pub queue: Option<QueueBacklog>,
    /// Number of packets of all flows that wait until the instance ends its current call.
    pub instance_packets: u32,
    /// Bytes of `instance_packets`, link headers included.
    pub instance_bytes: u64,
    /// Principal that pays for the call; `None` if nobody pays.
    pub payer: Option<PayerBacklog>,
}

/// Source of queue backlogs.
pub trait Backlogs {
    /// Returns the backlog of the queue that the packet would enter now; `None` if it is not known.
    fn of(&self, packet: &Packet) -> Option<QueueBacklog>;
}

/// Backlog information that is given to an instance with a call.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// Source of queue backlogs.
    pub queues: &'a dyn Backlogs,
    /// Packets and bytes that wait for the instance, without the packets of the call.
    pub waiting: (u32, u64),
    /// Principal that pays for the call; `None` if nobody pays.
    pub payer: Option<PayerBacklog>,
}

impl std::fmt::Debug for Known<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Known")
            .field("waiting", &self.waiting)
            .field("payer", &self.payer)
            .finish_non_exhaustive()
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
