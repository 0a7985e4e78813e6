//! FIFO leaf: one queue, with its configured active queue management.

use millrace_units::Instant;

use super::discipline::PacketScheduler;
use crate::arena::Held;
use crate::queue_manager::{Offer, QueueManager};
use crate::{DropSink, FlowNumber, Item};

/// Number of the queue of a FIFO leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fifo(pub u32);

impl<T: Item> PacketScheduler<T> for Fifo {
    #[inline]
    fn enqueue(
        &mut self,
        queues: &mut QueueManager<T>,
        flow: FlowNumber,
        item: T,
        now: Instant,
        sink: &mut impl DropSink<T>,
    ) -> bool {
        queues.offer(self.0, flow, item, now, sink) != Offer::Refused
    }

    #[inline]
    fn dequeue(
        &mut self,
        queues: &mut QueueManager<T>,
        now: Instant,
        sink: &mut impl DropSink<T>,
    ) -> (Option<Held<T>>, bool) {
        queues.take(self.0, now, sink)
    }

    #[inline]
    fn head_length(&mut self, queues: &mut QueueManager<T>) -> Option<u32> {
        queues.arena.head_length(&queues.queue(self.0).list)
    }

    fn take_to_move(&mut self, queues: &mut QueueManager<T>) -> Option<Held<T>> {
        queues.take_to_move(self.0)
    }

    fn put(&mut self, queues: &mut QueueManager<T>, held: Held<T>) {
        queues.put(self.0, held);
    }
}
