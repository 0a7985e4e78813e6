//! What every scheduler of the tree does, one trait for those that hold packets and one for those that choose among
//! children.

use millrace_units::Instant;

use crate::arena::Held;
use crate::queue_manager::QueueManager;
use crate::{DropSink, FlowNumber};

/// A scheduler that holds packets: a leaf of the tree.
pub(crate) trait PacketScheduler<T> {
    /// A packet arrives. Returns whether it stays; whatever is dropped goes to `sink`.
    fn enqueue(
        &mut self,
        queues: &mut QueueManager<T>,
        flow: FlowNumber,
        item: T,
        now: Instant,
        sink: &mut impl DropSink<T>,
    ) -> bool;

    /// The next packet to send, and whether there are more. With packets in it, a leaf always yields one.
    fn dequeue(
        &mut self,
        queues: &mut QueueManager<T>,
        now: Instant,
        sink: &mut impl DropSink<T>,
    ) -> (Option<Held<T>>, bool);

    /// Bytes of the packet that would be sent next; `None` when there is none.
    fn head_length(&mut self, queues: &mut QueueManager<T>) -> Option<u32>;

    /// Takes a packet out to put it elsewhere; the order inside each flow is kept.
    fn take_to_move(&mut self, queues: &mut QueueManager<T>, now: Instant) -> Option<Held<T>>;

    /// Puts a packet in that was taken elsewhere, and may have come long before `now`. Nothing is dropped.
    fn put(&mut self, queues: &mut QueueManager<T>, held: Held<T>, now: Instant);
}

/// A scheduler that chooses among children, by their slots. It sees those children only that may send now; lengths are
/// those on the wire.
pub(crate) trait Discipline {
    /// A child has something to send from now on; its first packet takes `length` bytes.
    fn activate(&mut self, slot: u32, length: u32, now: Instant);

    /// A child has nothing to send any more, or must wait.
    fn deactivate(&mut self, slot: u32, now: Instant);

    /// Which child sends next. Asking again without a change in between gives the same answer.
    fn choose(&mut self, now: Instant) -> Option<u32>;

    /// The chosen child sent `bytes`; its next packet takes `next`, `None` when it has nothing to send any more.
    fn served(&mut self, slot: u32, bytes: u32, next: Option<u32>, now: Instant);

    /// From when on [`choose`](Self::choose) will find somebody; [`Instant::FOREVER`] when nothing waits.
    fn next_ready(&mut self) -> Instant;

    /// The child in a slot.
    fn child(&self, slot: u32) -> u32;
}
