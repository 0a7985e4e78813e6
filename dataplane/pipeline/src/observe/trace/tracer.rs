//! Worker's part of a trace: selects packets, and writes events into the rings to control.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millrace_classify::{Candidate, CompiledSelection};
use millrace_packet::{BATCH_SIZE, DropReason, FlowKey, Packet};
use millrace_units::{Instant, PortId, QueueId};
use rtrb::{Consumer, Producer, RingBuffer};

use super::event::{Head, TraceEnd, TraceEvent, TraceStep};
use super::room::Room;
use crate::ports::QUEUE_LIMIT;
use crate::tsc::cycles;

/// Maximum number of a worker's events that wait for the reader of a trace.
const RING: usize = 8192;
/// Maximum number of events of a packet. A packet is selected only if the ring has this number of free slots.
const LONGEST: usize = 64;
/// Usual maximum number of events of a packet. For each packet selected earlier in the batch, the ring must
/// have this number of further free slots.
const USUAL: usize = 24;
/// Maximum number of departures recorded for a port in an iteration: those of a full queue and a further
/// batch.
const LEAVING: usize = QUEUE_LIMIT + BATCH_SIZE;
/// Number of low bits of a trace number that hold the packet's number; the bits above hold the worker's
/// number.
const NUMBER: u32 = 12;
/// Empty range of positions in a queue.
const NOWHERE: Range<usize> = Range { start: usize::MAX, end: 0 };
/// Range of all positions in a queue.
const ANYWHERE: Range<usize> = 0..usize::MAX;
/// Maximum number of packets of a trace.
pub const MOST_TRACED: u32 = (1 << NUMBER) - 96;

/// Parameters of a trace.
#[derive(Clone, Debug)]
pub struct TraceOrder {
    /// Filter of the packets; `None` for all packets.
    pub filter: Option<CompiledSelection>,
    /// Sampling interval: on average, one of this number of received packets is tested against the filter; 1
    /// tests every packet.
    pub every: u32,
    /// Number of packets to trace, at most [`MOST_TRACED`].
    pub count: u32,
    /// Duration of the trace.
    pub time: Duration,
}

/// Worker's end of a trace.
pub struct TraceSink {
    /// Number of the trace, used to end it.
    pub id: u32,
    order: TraceOrder,
    ring: Producer<TraceEvent>,
    /// First bytes of packets, in the order of the events to which they belong. The bytes are pushed before
    /// their event.
    heads: Producer<Head>,
    lost: Arc<AtomicU64>,
    /// Traced packets that are about to leave their queue, and their number. Scratch memory.
    leaving: (Box<[Leaving]>, usize),
}

/// Traced packet that is about to leave its queue: its position, trace number, length and first bytes.
#[derive(Clone)]
struct Leaving {
    place: u64,
    mark: u16,
    length: u32,
    head: Head,
}

/// Reader's end of a trace.
#[derive(Debug)]
pub struct TraceSource {
    ring: Consumer<TraceEvent>,
    heads: Consumer<Head>,
    lost: Arc<AtomicU64>,
}

/// Creates both ends of a trace at a worker.
pub fn trace(id: u32, order: TraceOrder) -> (TraceSink, TraceSource) {
    let (producer, consumer) = RingBuffer::new(RING);
    let (heads, of_events) = RingBuffer::new(RING + 1);
    let lost = Arc::new(AtomicU64::new(0));
    let leaving = Leaving { place: 0, mark: 0, length: 0, head: Head::NONE };
    let leaving = (vec![leaving; LEAVING].into(), 0);
    (
        TraceSink { id, order, ring: producer, heads, lost: lost.clone(), leaving },
        TraceSource { ring: consumer, heads: of_events, lost },
    )
}

impl TraceSource {
    /// Returns the next event, if there is one.
    pub fn next_event(&mut self) -> Option<TraceEvent> {
        let mut event = self.ring.pop().ok()?;
        if event.step.has_head() {
            event.head = self.heads.pop().ok().map(Box::new);
        }
        Some(event)
    }

    /// Returns the number of packets that were not selected, plus the number of lost events, because the ring
    /// was full.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Returns whether the worker has ended the trace.
    pub fn is_ended(&self) -> bool {
        self.ring.is_abandoned()
    }
}

/// Running trace of a worker.
pub(crate) struct Tracer {
    sink: TraceSink,
    worker: u8,
    until: Instant,
    left: u32,
    /// Number of packets to skip before the next one that is tested.
    skip: u32,
    random: u32,
    number: u16,
    /// Number of traced packets at this worker.
    live: u32,
    /// Range of queue positions that may hold traced packets.
    places: Range<usize>,
    /// Trace number of the packet dropped last.
    pub dropped: u16,
    /// Time-stamp counter after the last event was written; `None` if the next step has no cycle count.
    last: Option<u64>,
    /// Scratch memory for batches with traced packets; `None` while it is in use.
    room: Option<Box<Room>>,
}

impl std::fmt::Debug for Tracer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tracer").field("order", &self.sink.order).finish_non_exhaustive()
    }
}

impl Tracer {
    /// Starts a trace. `first` is the number of its first packet. No packet of an earlier trace that is still
    /// inside the router may have this number.
    pub fn new(sink: TraceSink, worker: usize, first: u16, now: Instant) -> Self {
        let TraceOrder { every, count, time, .. } = sink.order;
        let mut tracer = Self {
            sink,
            worker: worker as u8,
            until: now + time,
            left: count.min(MOST_TRACED),
            skip: 0,
            random: 0x9e37_79b9 ^ worker as u32,
            number: first,
            live: 0,
            places: NOWHERE,
            dropped: 0,
            last: None,
            room: Some(Box::new(Room { traced: Vec::with_capacity(BATCH_SIZE), ..Room::default() })),
        };
        if every > 1 {
            tracer.skip = tracer.gap();
        }
        tracer
    }

    /// Returns the number of the trace.
    pub fn id(&self) -> u32 {
        self.sink.id
    }

    /// Returns the number of the next packet to trace.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Returns whether the trace selects no more packets.
    pub fn is_over(&self, now: Instant) -> bool {
        self.left == 0 || now >= self.until || self.sink.ring.is_abandoned()
    }

    /// Returns whether the trace may select packets of a flow. Such a flow must not be offloaded.
    pub fn wants(&self, key: &FlowKey) -> bool {
        self.left > 0 && self.sink.order.filter.as_ref().is_none_or(|filter| filter.may_match_flow(key))
    }

    /// Returns whether the trace has a filter.
    #[inline]
    pub fn has_filter(&self) -> bool {
        self.sink.order.filter.is_some()
    }

    /// Returns whether traced packets are at this worker.
    #[inline]
    pub fn has_live(&self) -> bool {
        self.live > 0
    }

    /// Tests whether the trace selects one of the next `count` packets. Returns the index of that packet, or
    /// `None` if the trace skips all of them.
    #[inline]
    pub fn next_of(&mut self, count: usize) -> Option<usize> {
        let skip = self.skip as usize;
        if skip >= count {
            self.skip -= count as u32;
            return None;
        }
        self.skip = if self.sink.order.every > 1 { self.gap() } else { 0 };
        Some(skip)
    }

    /// Skips the next `count` packets if the trace selects none of them. Returns whether it has skipped them.
    #[inline]
    pub fn passes(&mut self, count: usize) -> bool {
        let passes = self.skip as usize >= count;
        self.skip -= if passes { count as u32 } else { 0 };
        passes
    }

    /// Skips all further packets of the trace.
    pub fn rest(&mut self) {
        self.skip = u32::MAX;
    }

    /// Returns a random number of packets to skip, 0 to twice the average, so that no traffic pattern biases
    /// the selection (xorshift, Marsaglia 2003).
    fn gap(&mut self) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        ((u64::from(self.random) * u64::from(2 * self.sink.order.every - 1)) >> 32) as u32
    }

    /// Takes the scratch memory for a batch.
    pub fn take_room(&mut self) -> Box<Room> {
        self.room.take().unwrap_or_default()
    }

    /// Gives the scratch memory for a batch back.
    pub fn keep_room(&mut self, room: Box<Room>) {
        self.room = Some(room);
    }

    /// Selects a packet and gives it a trace number, if the filter matches and the ring has room. Returns
    /// whether the packet is selected. `candidate`: fields that filters match; `None` if the packet was not
    /// parsed or there [is no filter](Self::has_filter). `before`: number of packets of the batch selected so
    /// far, most of whose events are not written yet.
    pub fn choose(&mut self, packet: &mut Packet, candidate: Option<&Candidate>, before: usize) -> bool {
        let is_other =
            |filter: &CompiledSelection| candidate.is_none_or(|candidate| !filter.matches(candidate));
        if self.left == 0 || self.sink.order.filter.as_ref().is_some_and(is_other) {
            return false;
        }
        if self.sink.ring.slots() < LONGEST + before * USUAL {
            self.sink.lost.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        self.left -= 1;
        packet.trace = (u16::from(self.worker) << NUMBER) | self.number;
        self.number = if self.number + 1 == 1 << NUMBER { 1 } else { self.number + 1 };
        true
    }

    /// Counts a traced packet that enters the worker.
    pub fn enter(&mut self) {
        self.live += 1;
        self.last = cycles();
    }

    /// Counts a traced packet that leaves the worker.
    pub fn leave(&mut self) {
        self.live = self.live.saturating_sub(1);
    }

    /// Starts the cycle count of the next step now.
    pub fn restart(&mut self) {
        self.last = cycles();
    }

    /// Notes the traced packets in a queue before its packets are sent.
    pub fn look_for(&mut self, queue: &VecDeque<Packet>) {
        let (leaving, count) = &mut self.sink.leaving;
        let end = self.places.end.min(queue.len());
        let start = self.places.start.min(end);
        *count = 0;
        for (place, packet) in (start..end).zip(queue.range(start..end)) {
            if packet.trace != 0
                && let Some(next) = leaving.get_mut(*count)
            {
                (next.place, next.mark, next.length) = (place as u64, packet.trace, packet.len() as u32);
                next.head.take(packet);
                *count += 1;
            }
        }
    }

    /// Resets the search range after all queues have sent. Packets that remain may be at any position.
    pub fn looked(&mut self) {
        self.places = if self.live > 0 { ANYWHERE } else { NOWHERE };
    }

    /// Records a packet's entry into a queue; `step` is a [`TraceStep::Queued`].
    pub fn write_queued(&mut self, mark: u16, step: TraceStep, now: Instant) {
        if let TraceStep::Queued { leaf, before, .. } = step {
            self.note_place(leaf, before);
        }
        self.write(mark, step, now);
    }

    /// Records the fragmentation of a packet. The journey of each fragment ends separately.
    pub fn write_fragmented(&mut self, mark: u16, fragments: usize, now: Instant) {
        self.write(mark, TraceStep::Fragmented(fragments as u16), now);
        self.places = ANYWHERE;
        (1..fragments).for_each(|_| self.enter());
    }

    /// Extends the search range by the position of a traced packet in a queue.
    fn note_place(&mut self, leaf: Option<QueueId>, before: u32) {
        let place = before as usize;
        self.places = match leaf {
            None => self.places.start.min(place)..self.places.end.max(place + 1),
            // The scheduler determines the position later, when the packet enters the port's queue.
            Some(_) => ANYWHERE,
        };
    }

    /// Records how the journeys of the traced packets in the last searched queue end. The device took the
    /// first `sent` packets, the next `left` packets remain in the queue, and the rest was dropped.
    pub fn left(&mut self, port: PortId, sent: u64, left: u64, reason: DropReason, now: Instant) {
        for index in 0..self.sink.leaving.1 {
            let Some(&Leaving { place, mark, length, head }) = self.sink.leaving.0.get(index) else { break };
            if (sent..sent + left).contains(&place) {
                continue;
            }
            // The device spent its cycles on a batch, not on this packet alone.
            self.last = None;
            if place >= sent {
                self.write(mark, TraceStep::End(TraceEnd::Dropped(reason)), now);
            } else if self.sink.note_head(|_| head) {
                self.write(mark, TraceStep::End(TraceEnd::Sent(port, length)), now);
            }
            self.leave();
        }
    }

    /// Records the arrival of a packet.
    pub fn write_arrived(&mut self, packet: &Packet, now: Instant) {
        if self.sink.note_head(|_| Head::of(packet)) {
            let step = TraceStep::Arrived(packet.port, packet.len() as u32);
            self.write(packet.trace, step, now);
        }
    }

    /// Records a step of a packet.
    pub fn write(&mut self, mark: u16, step: TraceStep, now: Instant) {
        let counter = cycles();
        let spent = counter.zip(self.last).map(|(counter, last)| counter.saturating_sub(last));
        let event =
            TraceEvent { mark, worker: self.worker, at: now, counter, cycles: spent, step, head: None };
        if self.sink.ring.push(event).is_err() {
            self.sink.lost.fetch_add(1, Ordering::Relaxed);
        }
        self.last = cycles();
    }
}

impl TraceSink {
    /// Pushes the first bytes of a packet, if there is also room for its event, which the caller writes next.
    /// Returns whether there was room. The reader assigns bytes to events by their order, so bytes must not
    /// be pushed without an event.
    fn note_head(&mut self, head: impl FnOnce(&Self) -> Head) -> bool {
        let has_room = !self.ring.is_full() && {
            let head = head(self);
            self.heads.push(head).is_ok()
        };
        if !has_room {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        has_room
    }
}

#[cfg(test)]
mod tests;
