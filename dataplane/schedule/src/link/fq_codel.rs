//! FQ-CoDel (RFC 8290): flows by hash, deficit round robin that serves new flows first, and CoDel for each
//! flow. Above the packet limit, the flow with the most bytes loses packets.

use millrace_units::Instant;

use super::discipline::PacketScheduler;
use crate::aqm::{Codel, CodelQueue, CodelSettings};
use crate::arena::{Held, List, Load, NONE};
use crate::queue_manager::QueueManager;
use crate::{DropCause, DropCounts, DropSink, FlowNumber, Item};

/// Settings of FQ-CoDel. The defaults are RFC 8290's, section 5.2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FqCodelSettings {
    /// Number of flows, distinguished by hash: 1 to 65,536; 1,024 by default.
    pub flows: u32,
    /// Quantum in bytes on the wire per round, at least 256; 1,538 by default, one Ethernet frame.
    pub quantum: u32,
    /// Maximum number of packets in all flows together, at least 1; 10,240 by default.
    pub limit: u32,
    /// CoDel settings of each flow; with ECN marks by default.
    pub codel: CodelSettings,
    /// Seed of the flow hash.
    pub seed: u64,
}

impl Default for FqCodelSettings {
    fn default() -> Self {
        Self { flows: 1024, quantum: 1538, limit: 10_240, codel: CodelSettings::default(), seed: 0 }
    }
}

/// List of flows to which a flow belongs.
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

/// Linked list of flows, served in order.
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

/// FQ-CoDel leaf.
#[derive(Debug)]
pub(crate) struct FqCodel {
    settings: FqCodelSettings,
    flows: Box<[Flow]>,
    new: Line,
    old: Line,
    load: Load,
    max_packet: u32,
    /// Number of the part of the table that the next search for the fattest flow examines.
    next_part: usize,
    /// Index of the fattest flow that the last search found.
    fattest: usize,
    drops: DropCounts,
}

impl Default for FqCodel {
    fn default() -> Self {
        Self::new(FqCodelSettings { flows: 0, ..Default::default() })
    }
}

/// Maximum number of packets dropped from the fattest flow after one search, so that many drops share the
/// cost of the search (RFC 8290, 4.1.3).
const DROP_BATCH: u32 = 64;

/// Number of flows that one search for the fattest flow examines. In a larger table, each search examines the
/// next part.
const LOOKED_AT: usize = 1024;

impl FqCodel {
    /// Creates a leaf without packets.
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

    /// Returns the settings.
    pub fn settings(&self) -> &FqCodelSettings {
        &self.settings
    }

    /// Changes the settings, except the seed and the number of flows.
    pub fn set(&mut self, settings: FqCodelSettings) {
        let FqCodelSettings { flows, seed, .. } = self.settings;
        self.settings = FqCodelSettings { flows, seed, ..settings };
    }

    /// Changes the number of flows. Waiting packets move to their new flows in sending order, so the packets
    /// of each flow keep their order. The CoDel states and the round restart. The next packet to send may
    /// change.
    pub fn set_flows<T: Item>(&mut self, queues: &mut QueueManager<T>, flows: u32) {
        let mut other = Self::new(FqCodelSettings { flows, ..self.settings });
        while let Some(held) = self.take_to_move(queues) {
            other.put(queues, held);
        }
        (other.drops, other.max_packet) = (std::mem::take(&mut self.drops), self.max_packet);
        *self = other;
    }

    /// Returns the drop counters.
    pub fn drops(&self) -> &DropCounts {
        &self.drops
    }

    /// Returns the flow's index in the table: its hash, scaled to the number of flows.
    #[inline]
    pub fn bucket(&self, flow: FlowNumber) -> u32 {
        let mut hash = (u64::from(flow.0) ^ self.settings.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 32;
        hash = hash.wrapping_mul(0xd6e8_feb8_6659_fd93);
        (((hash >> 32) * self.flows.len() as u64) >> 32) as u32
    }

    /// Returns the load of the waiting packets of a flow.
    pub fn load_before(&self, flow: FlowNumber) -> Load {
        self.flows.get(self.bucket(flow) as usize).map_or(Load::NOTHING, |flow| flow.list.load)
    }

    /// Whether any packet waits.
    #[inline]
    pub fn has_packets(&self) -> bool {
        self.load != Load::NOTHING
    }

    /// Prefetches the cache line of a flow.
    #[inline]
    pub fn prefetch(&self, flow: FlowNumber) {
        millrace_memory::prefetch_slice_element(&self.flows, self.bucket(flow) as usize);
    }

    #[inline]
    fn refuse<T: Item>(&mut self, item: T, sink: &mut impl DropSink<T>) {
        self.drops.add(DropCause::BufferFull, item.length());
        sink.dropped(item, DropCause::BufferFull);
    }

    /// Appends a packet to its flow's list. If the flow was in no list of flows, appends the flow to the list
    /// of new flows. Returns the flow's index.
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

    /// Returns the flow that holds most bytes. In a table of more than 1,024 flows, it compares only the next
    /// 1,024 flows, the last result, and `arrived`, the flow of the newest packet.
    fn find_fattest(&mut self, arrived: usize) -> usize {
        let begin = self.next_part * LOOKED_AT;
        let end = (begin + LOOKED_AT).min(self.flows.len());
        self.next_part = if end == self.flows.len() { 0 } else { self.next_part + 1 };
        let candidates = [self.fattest, arrived].into_iter().chain(begin..end);
        candidates.max_by_key(|flow| self.flows[*flow].list.bytes()).unwrap_or(arrived)
    }

    /// Drops packets from the head of the flow that holds most bytes: half of its packets, at most 64.
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
            // A flow with a single packet loses it only after all parts of the table have been searched.
        }
        let flow = &mut self.flows[self.fattest];
        for _ in 0..flow.list.packets().div_ceil(2).min(DROP_BATCH) {
            let Some(held) = queues.arena.pop(&mut flow.list) else { return };
            self.load = self.load.minus(Load::of_packet(held.length));
            self.drops.add(cause, held.length);
            sink.dropped(held.item, cause);
        }
    }

    /// Returns the flow to serve next, with credit and packets; `None` without packets. New flows come before
    /// old.
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

    /// Moves the first flow of a list to the end of the old flows.
    #[inline]
    fn retire(&mut self, place: Place, index: u32) {
        let line = if place == Place::New { &mut self.new } else { &mut self.old };
        line.remove_first(&self.flows);
        self.flows[index as usize].place = Place::Old;
        self.old.append(&mut self.flows, index);
    }

    /// Takes an empty flow out of its list. A flow from the list of new flows first moves to the end of the
    /// old flows. Otherwise its next packet would make it a new flow at once, and such flows could starve old
    /// flows (RFC 8290, 4.2).
    #[inline]
    fn empty(&mut self, place: Place, index: u32) {
        if place == Place::New && self.old.first != NONE {
            return self.retire(place, index);
        }
        let line = if place == Place::New { &mut self.new } else { &mut self.old };
        line.remove_first(&self.flows);
        self.flows[index as usize].place = Place::Nowhere;
    }

    /// Prefetches the first packet of the flow after `index`, and the flow after that one.
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
            // The fattest flow makes room, so that other flows get through even if memory runs out below the
            // packet limit.
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
            // Removes the empty flows from both lists now; the RFC does so at the next dequeue.
            self.choose();
        }
        (held, self.load != Load::NOTHING)
    }

    fn head_length(&mut self, queues: &mut QueueManager<T>) -> Option<u32> {
        let (_, index) = self.choose()?;
        queues.arena.head_length(&self.flows[index as usize].list)
    }

    fn take_to_move(&mut self, queues: &mut QueueManager<T>) -> Option<Held<T>> {
        let (_, index) = self.choose()?;
        let flow = &mut self.flows[index as usize];
        let held = queues.arena.pop(&mut flow.list)?;
        flow.deficit = flow.deficit.saturating_sub_unsigned(queues.wire_length(held.length));
        self.load = self.load.minus(Load::of_packet(held.length));
        Some(held)
    }

    fn put(&mut self, queues: &mut QueueManager<T>, held: Held<T>) {
        self.insert(queues, held);
    }
}
