//! Common interfaces of schedulers in the tree: one trait for leaves, which hold packets, and one for nodes
//! that choose among children.

use millrace_units::Instant;

use crate::arena::Held;
use crate::queue_manager::QueueManager;
use crate::{DropSink, FlowNumber};

/// Leaf scheduler, which holds packets.
pub(crate) trait PacketScheduler<T> {
    /// Enqueues an arriving packet. Returns whether the packet stays; `sink` receives dropped packets.
    fn enqueue(
        &mut self,
        queues: &mut QueueManager<T>,
        flow: FlowNumber,
        item: T,
        now: Instant,
        sink: &mut impl DropSink<T>,
    ) -> bool;

    /// Returns the next packet to send, and whether more packets wait. A non-empty leaf always yields a
    /// packet.
    fn dequeue(
        &mut self,
        queues: &mut QueueManager<T>,
        now: Instant,
        sink: &mut impl DropSink<T>,
    ) -> (Option<Held<T>>, bool);

    /// Returns the length in bytes of the packet that would be sent next; `None` if the leaf is empty.
    fn head_length(&mut self, queues: &mut QueueManager<T>) -> Option<u32>;

    /// Removes the next packet, to move it to another leaf. Each flow's packets come out in order.
    fn take_to_move(&mut self, queues: &mut QueueManager<T>) -> Option<Held<T>>;

    /// Adds a packet taken from another leaf, with its original arrival time. The leaf drops nothing.
    fn put(&mut self, queues: &mut QueueManager<T>, held: Held<T>);
}

/// Scheduler that chooses among children. A child is identified by its slot, and is active while it may send.
/// Lengths are in bytes on the wire.
pub(crate) trait Discipline {
    /// Activates a child that became backlogged. `length`: bytes on the wire of the child's first packet.
    fn activate(&mut self, slot: u32, length: u32, now: Instant);

    /// Deactivates a child that has no packet, or may not send now.
    fn deactivate(&mut self, slot: u32, now: Instant);

    /// Returns the slot of the child that sends next; `None` if no child may send now. Until the next change,
    /// repeated calls return the same slot.
    fn choose(&mut self, now: Instant) -> Option<u32>;

    /// Counts `bytes` sent by the chosen child. `next`: length of the child's next packet; `None` if the
    /// child is empty.
    fn served(&mut self, slot: u32, bytes: u32, next: Option<u32>, now: Instant);

    /// Returns the earliest time at which [`choose`](Self::choose) finds a child; [`Instant::FOREVER`] if no
    /// packet waits.
    fn next_ready(&mut self) -> Instant;

    /// Returns the child in a slot.
    fn child(&self, slot: u32) -> u32;
}
