//! Who chooses packets for a trace at a worker, and the ring to control.

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

/// Events that may wait for the reader of a trace, of each worker.
const RING: usize = 8192;
/// Events that a packet may have: one is chosen only where there is room for so many.
const LONGEST: usize = 64;
/// Events that it has as a rule, at most.
const USUAL: usize = 24;
/// Packets that are seen to leave by a port in a turn: as many as its queue may hold, and those that a turn puts in beyond that.
const LEAVING: usize = QUEUE_LIMIT + BATCH_SIZE;
/// Bits of a mark that say which packet of the worker it is; those above say which worker.
const NUMBER: u32 = 12;
/// Places in a queue.
const NOWHERE: Range<usize> = Range { start: usize::MAX, end: 0 };
const ANYWHERE: Range<usize> = 0..usize::MAX;
/// Most packets of a trace.
pub const MOST_TRACED: u32 = (1 << NUMBER) - 96;

/// Which packets are to be traced.
#[derive(Clone, Debug)]
pub struct TraceOrder {
    /// Those that this matches; all, if `None`.
    pub filter: Option<CompiledSelection>,
    /// Of the packets that come in, one in so many is looked at, on average; with 1, each.
    pub every: u32,
    /// So many, at most [`MOST_TRACED`].
    pub count: u32,
    /// For so long.
    pub time: Duration,
}

/// The worker's end of a trace.
pub struct TraceSink {
    /// The number by which the trace is ended.
    pub id: u32,
    order: TraceOrder,
    ring: Producer<TraceEvent>,
    /// First bytes of packets, in the order of the events that have some. Those of an event are here before it is in the ring.
    heads: Producer<Head>,
    lost: Arc<AtomicU64>,
    /// Packets of a queue that are about to leave, and how many there are: their memory is used again.
    leaving: (Box<[Leaving]>, usize),
}

/// A marked packet of a queue that is about to leave: its place there, its number, its length and its first bytes.
#[derive(Clone)]
struct Leaving {
    place: u64,
    mark: u16,
    length: u32,
    head: Head,
}

/// The reader's end of a trace.
#[derive(Debug)]
pub struct TraceSource {
    ring: Consumer<TraceEvent>,
    heads: Consumer<Head>,
    lost: Arc<AtomicU64>,
}

/// Makes a trace at a worker.
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
    /// The next event, if there is one.
    pub fn next_event(&mut self) -> Option<TraceEvent> {
        let mut event = self.ring.pop().ok()?;
        if event.step.has_head() {
            event.head = self.heads.pop().ok().map(Box::new);
        }
        Some(event)
    }

    /// Packets that were left out, or whose journey is not whole, because the reader was too slow.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Whether the trace was ended at the worker.
    pub fn is_ended(&self) -> bool {
        self.ring.is_abandoned()
    }
}

/// A trace at a worker.
pub(crate) struct Tracer {
    sink: TraceSink,
    worker: u8,
    until: Instant,
    left: u32,
    /// Packets that are not looked at before the next one that is.
    skip: u32,
    random: u32,
    number: u16,
    /// Marked packets that are inside.
    live: u32,
    /// Where marked packets may stand in a queue whose packets are about to leave.
    places: Range<usize>,
    /// The packet that was dropped last.
    pub dropped: u16,
    /// The counter when the last event was written.
    last: Option<u64>,
    /// Kept for its memory.
    room: Option<Box<Room>>,
}

impl std::fmt::Debug for Tracer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tracer").field("order", &self.sink.order).finish_non_exhaustive()
    }
}

impl Tracer {
    /// A trace that begins now. `first` is the number of the first packet: no packet of a trace before has it, that may
    /// still be inside.
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

    /// The number of the trace.
    pub fn id(&self) -> u32 {
        self.sink.id
    }

    /// The number of the next packet.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Whether no more packets are chosen.
    pub fn is_over(&self, now: Instant) -> bool {
        self.left == 0 || now >= self.until || self.sink.ring.is_abandoned()
    }

    /// Whether the packets of a flow have to come to the worker.
    pub fn wants(&self, key: &FlowKey) -> bool {
        self.left > 0 && self.sink.order.filter.as_ref().is_none_or(|filter| filter.may_match_flow(key))
    }

    /// Whether it matters what a packet is.
    #[inline]
    pub fn has_filter(&self) -> bool {
        self.sink.order.filter.is_some()
    }

    /// Whether marked packets are inside.
    #[inline]
    pub fn has_live(&self) -> bool {
        self.live > 0
    }

    /// The first packet that is looked at, of `count`; those before it, or all, are skipped.
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

    /// Whether none of so many packets that come next is looked at; they are skipped then.
    #[inline]
    pub fn passes(&mut self, count: usize) -> bool {
        let passes = self.skip as usize >= count;
        self.skip -= if passes { count as u32 } else { 0 };
        passes
    }

    /// No packets are chosen any more, so they need not be looked at.
    pub fn rest(&mut self) {
        self.skip = u32::MAX;
    }

    /// How many packets are skipped before the next one: between 0 and twice the average, so that no pattern of what comes
    /// decides what is seen (xorshift, Marsaglia 2003).
    fn gap(&mut self) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        ((u64::from(self.random) * u64::from(2 * self.sink.order.every - 1)) >> 32) as u32
    }

    /// The memory for a batch.
    pub fn take_room(&mut self) -> Box<Room> {
        self.room.take().unwrap_or_default()
    }

    /// Gives it back.
    pub fn keep_room(&mut self, room: Box<Room>) {
        self.room = Some(room);
    }

    /// Chooses a packet, if it is one of those that are asked for and there is room to write. `candidate`: as filters see it, if it
    /// could be read and there [is one](Self::has_filter). So many of its batch are chosen already, and have just begun.
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

    /// A packet that is marked is inside from now on.
    pub fn enter(&mut self) {
        self.live += 1;
        self.last = cycles();
    }

    /// One is not any more.
    pub fn leave(&mut self) {
        self.live = self.live.saturating_sub(1);
    }

    /// The clock runs from now on: what was before is not the next step's.
    pub fn restart(&mut self) {
        self.last = cycles();
    }

    /// Notes the marked packets in a queue whose packets are about to leave.
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

    /// All queues have sent what they could. What is still inside may come to stand anywhere.
    pub fn looked(&mut self) {
        self.places = if self.live > 0 { ANYWHERE } else { NOWHERE };
    }

    /// Writes down that a packet is put into a queue: a step of that kind.
    pub fn write_queued(&mut self, mark: u16, step: TraceStep, now: Instant) {
        if let TraceStep::Queued { leaf, before, .. } = step {
            self.note_place(leaf, before);
        }
        self.write(mark, step, now);
    }

    /// Writes down that a packet is cut into so many fragments, each of which has an end.
    pub fn write_fragmented(&mut self, mark: u16, fragments: usize, now: Instant) {
        self.write(mark, TraceStep::Fragmented(fragments as u16), now);
        self.places = ANYWHERE;
        (1..fragments).for_each(|_| self.enter());
    }

    /// A marked packet is put into a queue.
    fn note_place(&mut self, leaf: Option<QueueId>, before: u32) {
        let place = before as usize;
        self.places = match leaf {
            None => self.places.start.min(place)..self.places.end.max(place + 1),
            // A scheduler says when it comes to the queue that leaves.
            Some(_) => ANYWHERE,
        };
    }

    /// Of the queue that was looked at last, so many packets were given to the device of a port, and so many are left; those
    /// behind were dropped.
    pub fn left(&mut self, port: PortId, sent: u64, left: u64, reason: DropReason, now: Instant) {
        for index in 0..self.sink.leaving.1 {
            let Some(&Leaving { place, mark, length, head }) = self.sink.leaving.0.get(index) else { break };
            if (sent..sent + left).contains(&place) {
                continue;
            }
            // What it took the device is not this packet's alone.
            self.last = None;
            if place >= sent {
                self.write(mark, TraceStep::End(TraceEnd::Dropped(reason)), now);
            } else if self.sink.note_head(|_| head) {
                self.write(mark, TraceStep::End(TraceEnd::Sent(port, length)), now);
            }
            self.leave();
        }
    }

    /// Writes down that a packet came in.
    pub fn write_arrived(&mut self, packet: &Packet, now: Instant) {
        if self.sink.note_head(|_| Head::of(packet)) {
            let step = TraceStep::Arrived(packet.port, packet.len() as u32);
            self.write(packet.trace, step, now);
        }
    }

    /// Writes down what happened to a packet.
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
    /// Notes the first bytes of a packet, for the event that is written next; whether that finds room. Otherwise they would be taken
    /// for another's.
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
mod tests {
    use millrace_packet::Pool;

    use super::*;

    fn order(every: u32, count: u32) -> TraceOrder {
        TraceOrder { filter: None, every, count, time: Duration::from_secs(1) }
    }

    #[test]
    fn one_in_so_many_is_looked_at_on_average() {
        let (sink, _source) = trace(1, order(1000, 4000));
        let mut tracer = Tracer::new(sink, 0, 1, Instant::ZERO);
        let looked: usize = (0..40_000).filter(|_| tracer.next_of(50).is_some()).count();
        assert!((1900..2100).contains(&looked), "{looked}");
        let (sink, _source) = trace(1, order(1, 4000));
        let mut tracer = Tracer::new(sink, 0, 1, Instant::ZERO);
        assert!((0..100).all(|_| tracer.next_of(1) == Some(0)));
    }

    #[test]
    fn each_packet_of_a_full_queue_has_an_end() {
        let pool = Pool::new(QUEUE_LIMIT as u32 + 8).unwrap();
        let (sink, mut source) = trace(1, order(1, MOST_TRACED));
        let mut tracer = Tracer::new(sink, 0, 1, Instant::ZERO);
        let marked = |mark| {
            let mut packet = pool.packet_from(&[0; 60]).unwrap();
            packet.trace = mark;
            packet
        };
        let queue: VecDeque<Packet> = (1..=QUEUE_LIMIT as u16).map(marked).collect();
        // They have come there in turns before.
        (0..QUEUE_LIMIT).for_each(|_| tracer.enter());
        tracer.looked();
        tracer.look_for(&queue);
        tracer.left(PortId(1), 1000, 500, DropReason::QueueFull, Instant::ZERO);
        let ends: Vec<(u16, bool)> = std::iter::from_fn(|| source.next_event())
            .map(|event| (event.mark, matches!(event.step, TraceStep::End(TraceEnd::Sent(..)))))
            .collect();
        let expected: Vec<(u16, bool)> = (1..=1000)
            .map(|mark| (mark, true))
            .chain((1501..=QUEUE_LIMIT as u16).map(|mark| (mark, false)))
            .collect();
        assert_eq!(ends, expected, "those that are left have none yet");
    }

    #[test]
    fn packets_that_came_to_a_queue_in_this_turn_are_looked_for_where_they_were_put() {
        let pool = Pool::new(64).unwrap();
        let (sink, mut source) = trace(1, order(1, MOST_TRACED));
        let mut tracer = Tracer::new(sink, 0, 1, Instant::ZERO);
        let mut queue: VecDeque<Packet> = (0..20).map(|_| pool.packet_from(&[0; 60]).unwrap()).collect();
        let mut put = |tracer: &mut Tracer, place: u32, mark| {
            queue[place as usize].trace = mark;
            tracer.enter();
            let step = TraceStep::Queued { port: PortId(1), leaf: None, before: place };
            tracer.write_queued(mark, step, Instant::ZERO);
        };
        put(&mut tracer, 4, 1);
        put(&mut tracer, 9, 2);
        assert_eq!(tracer.places, 4..10);
        tracer.look_for(&queue);
        tracer.left(PortId(1), 6, 14, DropReason::QueueFull, Instant::ZERO);
        tracer.looked();
        // The device took six: what is left stands elsewhere now.
        queue.drain(..6);
        tracer.look_for(&queue);
        tracer.left(PortId(1), 14, 0, DropReason::QueueFull, Instant::ZERO);
        tracer.looked();
        assert_eq!((tracer.has_live(), &tracer.places), (false, &NOWHERE));
        let ends: Vec<u16> = std::iter::from_fn(|| source.next_event())
            .filter(|event| matches!(event.step, TraceStep::End(TraceEnd::Sent(..))))
            .map(|event| event.mark)
            .collect();
        assert_eq!(ends, [1, 2]);
        let step = TraceStep::Queued { port: PortId(1), leaf: Some(QueueId(3)), before: 7 };
        tracer.write_queued(3, step, Instant::ZERO);
        assert_eq!(tracer.places, ANYWHERE, "a scheduler says where");
        tracer.looked();
        tracer.write_fragmented(3, 2, Instant::ZERO);
        assert_eq!(tracer.places, ANYWHERE, "the number of fragments says where");
    }

    #[test]
    fn first_bytes_go_with_their_own_packet_also_when_there_was_no_room_for_another_event() {
        let pool = Pool::new(4).unwrap();
        let (sink, mut source) = trace(1, order(1, 4000));
        let mut tracer = Tracer::new(sink, 0, 1, Instant::ZERO);
        let arrives = |tracer: &mut Tracer, mark: u16| {
            let mut packet = pool.packet_from(&[mark as u8; 60]).unwrap();
            (packet.trace, packet.port) = (mark, PortId(1));
            tracer.write_arrived(&packet, Instant::ZERO);
        };
        arrives(&mut tracer, 1);
        (1..RING).for_each(|_| tracer.write(1, TraceStep::GoesOn, Instant::ZERO));
        arrives(&mut tracer, 2);
        assert_eq!(source.lost(), 1);
        let first = source.next_event().unwrap();
        assert_eq!(first.head.unwrap().bytes(), [1; 60]);
        assert!(source.next_event().unwrap().head.is_none());
        arrives(&mut tracer, 3);
        let last = std::iter::from_fn(|| source.next_event()).last().unwrap();
        assert_eq!((last.mark, last.head.unwrap().bytes()), (3, &[3; 60][..]));
    }

    #[test]
    fn a_trace_ends_with_its_count_its_time_or_its_reader_and_what_finds_no_room_is_lost() {
        let pool = Pool::new(4).unwrap();
        let mut packet = pool.packet_from(&[0; 60]).unwrap();
        let (sink, source) = trace(1, order(1, 2));
        let mut tracer = Tracer::new(sink, 3, 4095, Instant::ZERO);
        let mut marks = Vec::new();
        while tracer.choose(&mut packet, None, 0) {
            marks.push(packet.trace);
        }
        assert_eq!(marks, [(3 << 12) | 4095, (3 << 12) | 1], "numbers begin anew, and none is 0");
        assert!(tracer.is_over(Instant::ZERO));
        let (sink, slow) = trace(2, order(1, 4000));
        let mut tracer = Tracer::new(sink, 0, 1, Instant::ZERO);
        assert!(!tracer.is_over(Instant::ZERO) && tracer.is_over(Instant::ZERO + Duration::from_secs(1)));
        while tracer.choose(&mut packet, None, 0) {
            tracer.write(packet.trace, TraceStep::Copied(1), Instant::ZERO);
            (1..LONGEST).for_each(|_| tracer.write(packet.trace, TraceStep::GoesOn, Instant::ZERO));
        }
        assert_eq!(slow.lost(), 1);
        drop((source, slow));
        assert!(tracer.is_over(Instant::ZERO));
    }
}
