//! FQ-CoDel: flows by hash, a round of deficits in which new flows go first, CoDel in each, and drops from the fattest
//! when all hold too much (RFC 8290).

use millrace_units::Instant;

use super::discipline::PacketScheduler;
use crate::aqm::{Codel, CodelQueue, CodelSettings};
use crate::arena::{Held, List, Load, NONE};
use crate::queue_manager::QueueManager;
use crate::{DropCause, DropCounts, DropSink, FlowNumber, Item};

/// How FQ-CoDel works. The defaults are RFC 8290's, section 5.2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FqCodelSettings {
    /// Flows that are told apart, by hash: 1 to 65,536; 1,024 by default.
    pub flows: u32,
    /// Bytes on the wire per round, at least 256; 1,538 by default, one Ethernet frame.
    pub quantum: u32,
    /// Packets that all flows may hold together, at least 1; 10,240 by default.
    pub limit: u32,
    /// CoDel in each flow; with marks by default.
    pub codel: CodelSettings,
    /// Varies the hash.
    pub seed: u64,
}

impl Default for FqCodelSettings {
    fn default() -> Self {
        Self { flows: 1024, quantum: 1538, limit: 10_240, codel: CodelSettings::default(), seed: 0 }
    }
}

/// Where a flow stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Nowhere,
    New,
    Old,
}

#[repr(C, align(64))]
#[derive(Clone, Debug)]
struct Flow {
    list: List,
    deficit: i32,
    next: u32,
    codel: Codel,
    place: Place,
}

const _: () = assert!(size_of::<Flow>() == 64);

/// A list of flows.
#[derive(Clone, Copy, Debug)]
struct Line {
    first: u32,
    last: u32,
}

impl Line {
    const EMPTY: Self = Self { first: NONE, last: NONE };

    #[inline]
    fn append(&mut self, flows: &mut [Flow], flow: u32) {
        flows[flow as usize].next = NONE;
        match flows.get_mut(self.last as usize) {
            Some(last) => last.next = flow,
            None => self.first = flow,
        }
        self.last = flow;
    }

    #[inline]
    fn remove_first(&mut self, flows: &[Flow]) {
        self.first = flows[self.first as usize].next;
        if self.first == NONE {
            self.last = NONE;
        }
    }
}

/// The leaf.
#[derive(Debug)]
pub(crate) struct FqCodel {
    settings: FqCodelSettings,
    flows: Box<[Flow]>,
    new: Line,
    old: Line,
    load: Load,
    max_packet: u32,
    /// Among which part of the flows the fattest is looked for next, and which one it was last.
    next_part: usize,
    fattest: usize,
    drops: DropCounts,
}

impl Default for FqCodel {
    fn default() -> Self {
        Self::new(FqCodelSettings { flows: 0, ..Default::default() })
    }
}

/// Packets dropped at once from the fattest flow, so that looking for it pays (RFC 8290, 4.1.3 recommends a batch).
const DROP_BATCH: u32 = 64;

/// Flows among which the fattest is looked for at once; where there are more, they take turns.
const LOOKED_AT: usize = 1024;

impl FqCodel {
    /// A leaf without packets.
    pub fn new(settings: FqCodelSettings) -> Self {
        let flow = Flow {
            list: List::EMPTY,
            deficit: 0,
            next: NONE,
            codel: Codel::default(),
            place: Place::Nowhere,
        };
        Self {
            settings,
            flows: vec![flow; settings.flows as usize].into_boxed_slice(),
            new: Line::EMPTY,
            old: Line::EMPTY,
            load: Load::NOTHING,
            max_packet: 0,
            next_part: 0,
            fattest: 0,
            drops: DropCounts::default(),
        }
    }

    /// How it works.
    pub fn settings(&self) -> &FqCodelSettings {
        &self.settings
    }

    /// Other settings but for the seed, and the same number of flows.
    pub fn set(&mut self, settings: FqCodelSettings) {
        let FqCodelSettings { flows, seed, .. } = self.settings;
        self.settings = FqCodelSettings { flows, seed, ..settings };
    }

    /// Tells another number of flows apart. What waits goes to its flow among these, in the order in which it would have been sent:
    /// each flow keeps its own. CoDel and the round begin anew. The packet that is sent next may be another one.
    pub fn set_flows<T: Item>(&mut self, queues: &mut QueueManager<T>, flows: u32, now: Instant) {
        let mut other = Self::new(FqCodelSettings { flows, ..self.settings });
        while let Some(held) = self.take_to_move(queues, now) {
            other.put(queues, held, now);
        }
        (other.drops, other.max_packet) = (std::mem::take(&mut self.drops), self.max_packet);
        *self = other;
    }

    /// What was dropped.
    pub fn drops(&self) -> &DropCounts {
        &self.drops
    }

    /// The flow's number here: its hash, scaled to the number of flows.
    #[inline]
    pub fn bucket(&self, flow: FlowNumber) -> u32 {
        let mut hash = (u64::from(flow.0) ^ self.settings.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 32;
        hash = hash.wrapping_mul(0xd6e8_feb8_6659_fd93);
        (((hash >> 32) * self.flows.len() as u64) >> 32) as u32
    }

    /// What waits in a flow.
    pub fn load_before(&self, flow: FlowNumber) -> Load {
        self.flows.get(self.bucket(flow) as usize).map_or(Load::NOTHING, |flow| flow.list.load)
    }

    /// Whether anything waits.
    #[inline]
    pub fn has_packets(&self) -> bool {
        self.load != Load::NOTHING
    }

    /// Asks for a flow's line.
    #[inline]
    pub fn prefetch(&self, flow: FlowNumber) {
        millrace_memory::prefetch_slice_element(&self.flows, self.bucket(flow) as usize);
    }

    #[inline]
    fn refuse<T: Item>(&mut self, item: T, sink: &mut impl DropSink<T>) {
        self.drops.add(DropCause::BufferFull, item.length());
        sink.dropped(item, DropCause::BufferFull);
    }

    /// Puts a packet into its flow, and the flow among the new ones if it was in no line. Returns the flow's number here.
    #[inline(always)]
    fn insert<T: Item>(&mut self, queues: &mut QueueManager<T>, held: Held<T>) -> u32 {
        let (index, length) = (self.bucket(held.flow), held.length);
        let flow = &mut self.flows[index as usize];
        queues.arena.push(&mut flow.list, held);
        self.load = self.load.plus(Load::of_packet(length));
        self.max_packet = self.max_packet.max(length);
        if flow.place == Place::Nowhere {
            flow.place = Place::New;
            flow.deficit = self.settings.quantum as i32;
            self.new.append(&mut self.flows, index);
        }
        index
    }

    /// The flow that holds most bytes. Of more than 1,024 flows it is the one among the next 1,024, that of last time and
    /// `arrived`, to which the last packet came.
    fn find_fattest(&mut self, arrived: usize) -> usize {
        let begin = self.next_part * LOOKED_AT;
        let end = (begin + LOOKED_AT).min(self.flows.len());
        self.next_part = if end == self.flows.len() { 0 } else { self.next_part + 1 };
        let candidates = [self.fattest, arrived].into_iter().chain(begin..end);
        candidates.max_by_key(|flow| self.flows[*flow].list.bytes()).unwrap_or(arrived)
    }

    /// Drops from the head of the flow that holds most bytes: half of what it has, 64 packets at most.
    #[cold]
    fn drop_from_fattest<T: Item>(
        &mut self,
        queues: &mut QueueManager<T>,
        arrived: u32,
        cause: DropCause,
        sink: &mut impl DropSink<T>,
    ) {
        for _ in 0..self.flows.len().div_ceil(LOOKED_AT) {
            self.fattest = self.find_fattest(arrived as usize);
            if self.flows[self.fattest].list.packets() > 1 {
                break;
            }
            // A sparse flow pays only where no other stands anywhere.
        }
        let flow = &mut self.flows[self.fattest];
        for _ in 0..flow.list.packets().div_ceil(2).min(DROP_BATCH) {
            let Some(held) = queues.arena.pop(&mut flow.list) else { return };
            self.load = self.load.minus(Load::of_packet(held.length));
            self.drops.add(cause, held.length);
            sink.dropped(held.item, cause);
        }
    }

    /// The flow whose turn it is, from the new ones first, with credit left and packets in it.
    #[inline(always)]
    fn choose(&mut self) -> Option<(Place, u32)> {
        loop {
            let (place, index) = match (self.new.first, self.old.first) {
                (NONE, NONE) => return None,
                (NONE, old) => (Place::Old, old),
                (new, _) => (Place::New, new),
            };
            let flow = &mut self.flows[index as usize];
            if flow.deficit > 0 && !flow.list.is_empty() {
                return Some((place, index));
            }
            if flow.deficit <= 0 {
                flow.deficit = flow.deficit.saturating_add_unsigned(self.settings.quantum);
                self.retire(place, index);
            } else {
                self.empty(place, index);
            }
        }
    }

    /// Moves the first flow of a line behind the old ones.
    #[inline]
    fn retire(&mut self, place: Place, index: u32) {
        let line = if place == Place::New { &mut self.new } else { &mut self.old };
        line.remove_first(&self.flows);
        self.flows[index as usize].place = Place::Old;
        self.old.append(&mut self.flows, index);
    }

    /// A flow without packets: a new one goes once through the old ones, so that it can't come back as new at once
    /// and starve them (RFC 8290, 4.2).
    #[inline]
    fn empty(&mut self, place: Place, index: u32) {
        if place == Place::New && self.old.first != NONE {
            return self.retire(place, index);
        }
        let line = if place == Place::New { &mut self.new } else { &mut self.old };
        line.remove_first(&self.flows);
        self.flows[index as usize].place = Place::Nowhere;
    }

    /// Asks for the lines that the next calls will need.
    #[inline]
    fn prefetch_next<T: Item>(&self, queues: &QueueManager<T>, index: u32) {
        let second = self.flows[index as usize].next;
        let second = if second == NONE { self.old.first } else { second };
        if let Some(flow) = self.flows.get(second as usize) {
            queues.arena.prefetch(&flow.list);
            millrace_memory::prefetch_slice_element(&self.flows, flow.next as usize);
        }
    }
}

impl<T: Item> PacketScheduler<T> for FqCodel {
    #[inline]
    fn enqueue(
        &mut self,
        queues: &mut QueueManager<T>,
        flow: FlowNumber,
        item: T,
        now: Instant,
        sink: &mut impl DropSink<T>,
    ) -> bool {
        let length = item.length();
        if !queues.arena.has_room(self.load, length) {
            // The fattest flow makes room, so that the others get through also where memory ends before the limit.
            self.drop_from_fattest(queues, self.bucket(flow), DropCause::BufferFull, sink);
        }
        if !queues.arena.has_room(self.load, length) {
            self.refuse(item, sink);
            return false;
        }
        let arrived = self.insert(queues, Held { item, arrival: now, length, flow });
        if self.load.packets() > self.settings.limit {
            self.drop_from_fattest(queues, arrived, DropCause::Overlimit, sink);
        }
        true
    }

    #[inline]
    fn dequeue(
        &mut self,
        queues: &mut QueueManager<T>,
        now: Instant,
        sink: &mut impl DropSink<T>,
    ) -> (Option<Held<T>>, bool) {
        let Some((_, index)) = self.choose() else { return (None, false) };
        self.prefetch_next(queues, index);
        let before = queues.arena.load;
        let Self { flows, drops, max_packet, .. } = self;
        let flow = &mut flows[index as usize];
        let (arena, list) = (&mut queues.arena, &mut flow.list);
        let mut queue = CodelQueue { arena, list, max_packet: *max_packet, has_marked: false };
        let held = flow.codel.dequeue(&self.settings.codel, &mut queue, now, |held| {
            drops.add(DropCause::Sojourn, held.length);
            sink.dropped(held.item, DropCause::Sojourn);
        });
        if queue.has_marked {
            drops.mark();
        }
        self.load = self.load.minus(before.minus(queues.arena.load));
        if let Some(held) = &held {
            flow.deficit = flow.deficit.saturating_sub_unsigned(queues.wire_length(held.length));
        }
        if self.load == Load::NOTHING {
            // As the RFC's next call would: it finds all flows empty, and takes them out of both lines.
            self.choose();
        }
        (held, self.load != Load::NOTHING)
    }

    fn head_length(&mut self, queues: &mut QueueManager<T>) -> Option<u32> {
        let (_, index) = self.choose()?;
        queues.arena.head_length(&self.flows[index as usize].list)
    }

    fn take_to_move(&mut self, queues: &mut QueueManager<T>, _now: Instant) -> Option<Held<T>> {
        let (_, index) = self.choose()?;
        let flow = &mut self.flows[index as usize];
        let held = queues.arena.pop(&mut flow.list)?;
        flow.deficit = flow.deficit.saturating_sub_unsigned(queues.wire_length(held.length));
        self.load = self.load.minus(Load::of_packet(held.length));
        Some(held)
    }

    fn put(&mut self, queues: &mut QueueManager<T>, held: Held<T>, _now: Instant) {
        self.insert(queues, held);
    }
}
