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

    /// Returns the length in bytes of the packet that would be sent next; `None` when the leaf is empty.
    fn head_length(&mut self, queues: &mut QueueManager<T>) -> Option<u32>;

    /// Removes the next packet, to move it to another leaf. The packets of a flow come out in order.
    fn take_to_move(&mut self, queues: &mut QueueManager<T>) -> Option<Held<T>>;

    /// Adds a packet that was taken from another leaf. It may have arrived long ago. The leaf drops nothing.
    fn put(&mut self, queues: &mut QueueManager<T>, held: Held<T>);
}

/// Scheduler that chooses among children, by their slots. A child is active while it may send. Lengths are
/// lengths on the wire.
pub(crate) trait Discipline {
    /// Activates a child that has something to send from now on. Its first packet takes `length` bytes.
    fn activate(&mut self, slot: u32, length: u32, now: Instant);

    /// Deactivates a child that has nothing to send any more, or must wait.
    fn deactivate(&mut self, slot: u32, now: Instant);

    /// Returns the slot of the child that sends next; `None` if no child may send now. Repeated calls without
    /// a change in between return the same slot.
    fn choose(&mut self, now: Instant) -> Option<u32>;

    /// Notes that the chosen child sent `bytes`. Its next packet takes `next` bytes, `None` when it has
    /// nothing more to send.
    fn served(&mut self, slot: u32, bytes: u32, next: Option<u32>, now: Instant);

    /// Returns the time from which on [`choose`](Self::choose) finds a child; [`Instant::FOREVER`] when
    /// nothing waits.
    fn next_ready(&mut self) -> Instant;

    /// Returns the child in a slot.
    fn child(&self, slot: u32) -> u32;
}
