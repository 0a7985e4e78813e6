//! Interface between a worker and the flow cache. The builder of a router implements it.

use millrace_packet::{FlowKey, OffloadTotals, OffloadedFlow};
use millrace_plugin::Policer;
use millrace_units::PortId;

/// Offload capabilities of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OffloadPort {
    /// Whether the XDP program looks up packets in the flow cache when the port receives them.
    pub receives: bool,
    /// Whether the XDP program can send packets out of the port.
    pub sends: bool,
    /// Bit mask of the receive queues that workers read.
    pub receive_queues: u64,
    /// Whether packets to the port pass a scheduler, at this worker or another one.
    pub queues: bool,
}

/// A worker's part of the flow cache that the XDP programs of its ports read.
///
/// The XDP program looks up the flow of each packet. It treats the packet by the flow's entry under three
/// conditions: the entry has begun, it has the published generation, and the workers are done with all
/// earlier upcalls of the flow. All other packets are upcalls.
///
/// Each worker has its own part. The owner of a port publishes the number of its upcalls that the workers are
/// done with. All methods are loads and stores.
pub trait WorkerFlowCache: Send {
    /// Returns the number of free slots.
    fn room(&self) -> usize;
    /// Publishes a generation, which is neither 0 nor `u64::MAX`. The XDP program uses entries of this
    /// generation only.
    fn publish(&mut self, generation: u64);
    /// Shares a token bucket with the XDP program. Returns its number, which stays the same while the bucket
    /// exists; `None` if all numbers are in use.
    fn police(&mut self, policer: &Policer) -> Option<u16>;
    /// Inserts an entry that the XDP program does not use before [`begin`](Self::begin). Returns its slot, or
    /// `None` if there is no room.
    fn insert(&mut self, key: &FlowKey, flow: &OffloadedFlow) -> Option<u32>;
    /// Begins an entry: from now on, the XDP program uses the entry as soon as the workers are done with all
    /// earlier upcalls of `port`. To be called some microseconds after the insertion.
    fn begin(&mut self, slot: u32, port: PortId, generation: u64);
    /// Replaces the contents of an entry whose generation is not the published one.
    fn renew(&mut self, slot: u32, flow: &OffloadedFlow, generation: u64);
    /// Removes the entry of a flow. Returns the counts of all packets that the entry has treated.
    fn remove(&mut self, key: &FlowKey, slot: u32) -> OffloadTotals;
    /// Returns the counts of all packets that an entry has treated since its insertion.
    fn totals(&self, slot: u32) -> OffloadTotals;
    /// Returns the number of upcalls of a port so far.
    fn up(&self, port: PortId) -> u64;
    /// Returns the number of upcalls by one receive queue of a port. If the caller reads [`up`](Self::up)
    /// first, this number includes all upcalls of the queue that `up` counted.
    fn up_by(&self, port: PortId, queue: usize) -> u64;
    /// Records how far a receive queue was read in the grace period `epoch`. `read` is a count of the port's
    /// upcalls, over all its queues: the worker has read every earlier upcall of this queue. The records of
    /// the last two epochs are kept.
    fn note_read(&self, queue: (PortId, usize), epoch: u64, read: u64);
    /// Returns the number that any worker recorded for a receive queue in an epoch by
    /// [`note_read`](Self::note_read); 0 without a record.
    fn noted_read(&self, queue: (PortId, usize), epoch: u64) -> u64;
    /// Publishes how many upcalls of a port the workers have sent or dropped, in the order of the upcalls.
    fn set_done(&mut self, port: PortId, done: u64);
    /// Sets whether a receive queue is overloaded: it gets more upcalls than the worker can treat. During an
    /// overload, the XDP program drops the packets of a flow that has both an entry and an upcall in flight.
    /// Without an overload, these packets are further upcalls.
    fn set_overloaded(&self, queue: (PortId, usize), overloaded: bool);
    /// Returns whether some receive queue of a port is overloaded, by the last
    /// [`set_overloaded`](Self::set_overloaded) for the queue.
    fn is_overloaded(&self, port: PortId) -> bool;
}
