//! Service of the backlogged queues of a leaf: sends the packets of a batch.

use millrace_units::Instant;

use super::{Counting, Turn};
use crate::arena::Load;
use crate::link::round::{Entries, Server, Visit};
use crate::{DropSink, Item};

/// Sends packets from the backlogged queues of a leaf to an output.
pub(super) struct Service<'a, T, S, O> {
    turn: Turn<'a, T>,
    sink: Counting<'a, S>,
    out: &'a mut O,
    now: Instant,
    /// Packets and bytes sent so far.
    sent: Load,
    /// Bytes on the wire sent so far.
    wire: u64,
}

impl<'a, T: Item, S: DropSink<T>, O: FnMut(T)> Service<'a, T, S, O> {
    #[inline]
    pub fn new(turn: Turn<'a, T>, sink: Counting<'a, S>, out: &'a mut O, now: Instant) -> Self {
        Self { turn, sink, out, now, sent: Load::NOTHING, wire: 0 }
    }

    /// Returns the packets and bytes sent so far, and their bytes on the wire.
    #[inline]
    pub fn sent(&self) -> (Load, u64) {
        (self.sent, self.wire)
    }
}

impl<T: Item, S: DropSink<T>, O: FnMut(T)> Server for Service<'_, T, S, O> {
    #[inline]
    fn entries(&mut self) -> &mut impl Entries {
        &mut self.turn
    }

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
        let (held, more) = queues.take(entry, self.now, &mut self.sink);
        let Some(held) = held else { return (Visit::Poor, next) };
        self.sent = self.sent.plus(Load::of_packet(held.length));
        (self.out)(held.item);
        // If active queue management dropped the packet whose length was read, the sent packet is another
        // one.
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
