//! The interface of the flow cache to a worker. The builder of a router implements it.

use millrace_packet::{DriverFlow, DriverTotals, FlowKey};
use millrace_plugin::Policer;
use millrace_units::PortId;

/// Offload capabilities of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DriverPort {
    /// Whether the XDP program looks up packets of the port in the flow cache.
    pub receives: bool,
    /// Whether the XDP program can send packets by the port.
    pub sends: bool,
    /// Bits of the receive queues that workers read.
    pub receive_queues: u64,
    /// Whether packets that leave by the port wait in a scheduler, of this worker or another one.
    pub queues: bool,
}

/// A worker's part of the flow cache that the XDP programs of its ports read.
///
/// The XDP program looks up the flow of each packet. The program acts by the flow's entry if the entry has
/// begun and has the published generation. No earlier upcall of the flow may be in flight to the workers. All
/// other packets are upcalls.
///
/// Each of several workers has a part of its own. The owner of a port publishes the upcalls that are done
/// with. All methods are loads and stores.
pub trait DriverCache: Send {
    /// Returns the number of free slots.
    fn room(&self) -> usize;
    /// Publishes a generation, which is neither 0 nor `u64::MAX`. The XDP program uses entries of this
    /// generation only.
    fn publish(&mut self, generation: u64);
    /// Shares a token bucket with the XDP program. Returns its place, which it keeps as long as it lives;
    /// `None` if all places are taken.
    fn police(&mut self, policer: &Policer) -> Option<u16>;
    /// Inserts an entry that is not used yet. Returns its slot, or `None` if there is no room.
    fn insert(&mut self, key: &FlowKey, flow: &DriverFlow) -> Option<u32>;
    /// Begins an entry, some microseconds after its insertion. The XDP program uses it as soon as no upcall
    /// of `port` until now is in flight.
    fn begin(&mut self, slot: u32, port: PortId, generation: u64);
    /// Replaces the contents of an entry whose generation is not the published one.
    fn renew(&mut self, slot: u32, flow: &DriverFlow, generation: u64);
    /// Removes the entry of a flow. Returns the totals of its packets.
    fn remove(&mut self, key: &FlowKey, slot: u32) -> DriverTotals;
    /// Returns the totals of an entry's packets since its insertion.
    fn totals(&self, slot: u32) -> DriverTotals;
    /// Returns the number of upcalls of a port so far.
    fn up(&self, port: PortId) -> u64;
    /// Returns the number of upcalls by one receive queue of a port. A caller that reads it after
    /// [`up`](Self::up) finds all upcalls counted there.
    fn up_by(&self, port: PortId, queue: usize) -> u64;
    /// Records the progress of a receive queue in a grace period, given by its epoch. `read`: number of
    /// upcalls of the port, by all queues, before which this queue has no unread upcall. The records of two
    /// successive epochs are kept.
    fn note_read(&self, queue: (PortId, usize), epoch: u64, read: u64);
    /// Returns the record of a receive queue in an epoch, whichever worker made it; 0 without a record.
    fn noted_read(&self, queue: (PortId, usize), epoch: u64) -> u64;
    /// Publishes the number of upcalls of a port that are done with: sent or dropped.
    fn set_done(&mut self, port: PortId, done: u64);
    /// Sets whether a receive queue gets more upcalls than the worker treats. During an overload, packets of
    /// flows with an entry are dropped until no upcall of the flow is in flight, instead of being further
    /// upcalls.
    fn set_overloaded(&self, queue: (PortId, usize), overloaded: bool);
    /// Returns whether a receive queue of a port is overloaded, by any worker's last report.
    fn is_overloaded(&self, port: PortId) -> bool;
}
