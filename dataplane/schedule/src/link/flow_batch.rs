//! Batches through a leaf with a queue for each flow.

use millrace_units::Instant;

use super::flow_queues::{Counting, FlowQueues, Turn};
use super::round::{Entries, Place, Server, Visit};
use crate::Arrival;
use crate::arena::{Load, NONE};
use crate::queue_manager::QueueManager;
use crate::{DropCounts, DropSink, Item};

/// Number of packets whose queues are looked up before the first of them is enqueued.
const AHEAD: usize = 32;

impl FlowQueues {
    /// Enqueues the packets of a batch in order. `batch` is empty afterwards.
    #[inline]
    pub fn enqueue_batch<T: Item>(
        &mut self,
        queues: &mut QueueManager<T>,
        batch: &mut Vec<Arrival<T>>,
        now: Instant,
        sink: &mut impl DropSink<T>,
    ) {
        let mut found = [NONE; AHEAD];
        for arrival in batch.iter() {
            self.table.prefetch(arrival.flow);
        }
        for (arrival, found) in batch.iter().zip(&mut found) {
            *found = self.table.get(arrival.flow).unwrap_or(NONE);
            queues.prefetch(*found);
        }
        let mut found = found.into_iter();
        let mut is_known = true;
        for Arrival { flow, item, .. } in batch.drain(..) {
            let mut index = found.next().unwrap_or(NONE);
            if index == NONE || !is_known {
                // A queue assigned to a flow now may have belonged to another flow, so later entries of
                // `found` may be wrong.
                is_known = false;
                index = self.queue_for(queues, flow);
            }
            let offer = queues.offer(index, flow, item, now, &mut self.counting(sink));
            self.offered(queues, index, flow, offer);
        }
    }

    /// Sends up to `most` packets to `out`. Returns their count, their bytes, and their bytes on the wire.
    #[inline]
    pub fn dequeue_batch<T: Item>(
        &mut self,
        queues: &mut QueueManager<T>,
        most: usize,
        now: Instant,
        sink: &mut impl DropSink<T>,
        out: &mut impl FnMut(T),
    ) -> (Load, u64) {
        let Self { round, weights, drops, .. } = self;
        let turn = Turn { queues, weights };
        let mut service = Service { turn, drops, sink, out, now, sent: Load::NOTHING, wire: 0 };
        round.serve(&mut service, most);
        (service.sent, service.wire)
    }
}

/// Service of queues in the round, and the output of their packets.
struct Service<'a, T, S, O> {
    turn: Turn<'a, T>,
    drops: &'a mut DropCounts,
    sink: &'a mut S,
    out: &'a mut O,
    now: Instant,
    /// Packets and bytes sent so far.
    sent: Load,
    /// Bytes on the wire sent so far.
    wire: u64,
}

impl<T: Item, S: DropSink<T>, O: FnMut(T)> Server for Service<'_, T, S, O> {
    #[inline]
    fn serve(&mut self, entry: u32, grant: bool) -> (Visit, u32) {
        let queues = &mut *self.turn.queues;
        let Some((queue, length)) = queues.first(entry) else { return (Visit::Poor, entry) };
        let (next, wire) = (queue.next, queues.wire_length(length));
        let queue = queues.queue_mut(entry);
        let credit = if grant { self.turn.weights.credit(queue.quantum, 1) } else { 0 };
        let deficit = queue.deficit.saturating_add_unsigned(credit);
        queue.deficit = deficit;
        if i64::from(deficit) < i64::from(wire) {
            return (Visit::Poor, next);
        }
        let (held, more) = queues.take(entry, self.now, &mut Counting { drops: self.drops, sink: self.sink });
        let Some(held) = held else { return (Visit::Poor, next) };
        self.sent = self.sent.plus(Load::of_packet(held.length));
        (self.out)(held.item);
        // Active queue management may have dropped the packet whose length was read.
        let wire = if held.length == length { wire } else { queues.wire_length(held.length) };
        self.wire += u64::from(wire);
        let queue = queues.queue_mut(entry);
        queue.deficit = if more { deficit.saturating_sub_unsigned(wire) } else { 0 };
        (if more { Visit::Sent } else { Visit::Emptied }, next)
    }

    #[inline]
    fn left(&mut self, entry: u32) {
        let quantum = self.turn.queues.queue(entry).quantum;
        self.turn.weights.count(quantum, false);
    }
}

impl<T: Item, S, O> Entries for Service<'_, T, S, O> {
    #[inline]
    fn credit(&mut self, entry: u32, rounds: u32) -> u32 {
        self.turn.credit(entry, rounds)
    }

    #[inline]
    fn rounds(&self, entry: u32, bytes: u32) -> u32 {
        self.turn.rounds(entry, bytes)
    }

    #[inline]
    fn head(&self, entry: u32) -> u32 {
        self.turn.head(entry)
    }

    #[inline]
    fn place(&mut self, entry: u32) -> Place<'_> {
        self.turn.place(entry)
    }
}
