//! A worker's part of the flow cache.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use aya::Ebpf;
use millrace_packet::{OffloadTotals, OffloadedFlow};
use millrace_units::Amount;

use super::layout::{Aside, Entry, KEY_BYTES, PORTS, QueueWay, RX_QUEUES, Table, WORKERS, Way};
use super::policers::{PolicerPlace, Policers};
use super::table::Words;
use super::treatments::Treatments;
use crate::OffloadError;
use crate::bpf::mapped_map::MappedMap;

/// Entry of a flow in the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowSlot(u32);

impl FlowSlot {
    /// Returns the number of the entry, below the capacity of the cache.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Writer of a worker's part of the flow cache: its flows, its generation, and the upcall counters of the
/// ports whose packets it receives. All operations are stores to memory shared with the programs. Workers
/// share the words of the flow table.
///
/// Programs use entries of the generation that was [published](Self::publish) last.
#[derive(Debug)]
pub struct FlowCacheWriter {
    words: Words,
    entries: MappedMap,
    asides: MappedMap,
    treatments: Treatments,
    generations: MappedMap,
    ways: MappedMap,
    queue_ways: MappedMap,
    policers: Arc<Policers>,
    worker: u16,
    /// Generations published last, and the number by which programs know each.
    published: [(u64, u32); 2],
    last: u32,
    /// Released entries. The entries from `fresh` to `end` are free as well.
    free: Vec<u32>,
    /// First entry of this worker's part.
    begin: u32,
    fresh: u32,
    end: u32,
}

const ENTRY: usize = size_of::<Entry>();
const VERSION: usize = std::mem::offset_of!(Entry, version);
const BYTES: usize = std::mem::offset_of!(Entry, bytes);
const PACKETS: usize = std::mem::offset_of!(Entry, packets);
const TREATMENT: usize = std::mem::offset_of!(Entry, treatment);
const ASIDE: usize = size_of::<Aside>();
const FLOOR: usize = std::mem::offset_of!(Aside, floor);
const DROPPED: usize = std::mem::offset_of!(Aside, dropped);
const DROPPED_BYTES: usize = std::mem::offset_of!(Aside, dropped_bytes);
const DONE: usize = std::mem::offset_of!(Way, done);
const READ: [usize; 2] = [std::mem::offset_of!(QueueWay, read), std::mem::offset_of!(QueueWay, read) + 8];
const OVERLOADED: usize = std::mem::offset_of!(Way, overloaded);
/// Number of a generation that no entry has.
const NONE: u32 = u32::MAX;
/// Generation number of entries not in use.
const UNUSED: u32 = 0;

impl FlowCacheWriter {
    pub(super) fn new(
        object: &mut Ebpf,
        (capacity, table): (u32, Table),
        policers: Arc<Policers>,
        (worker, workers): (u16, u16),
    ) -> Result<Self, OffloadError> {
        let part = |worker: u16| (u64::from(capacity) * u64::from(worker) / u64::from(workers)) as u32;
        let mut writer = Self {
            words: Words::new(object, table)?,
            entries: MappedMap::new(object, "cached_flows", capacity as usize, ENTRY)?,
            asides: MappedMap::new(object, "asides", capacity as usize, ASIDE)?,
            treatments: Treatments::new(object, (worker, workers))?,
            generations: MappedMap::new(object, "generations", WORKERS, 8)?,
            ways: MappedMap::new(object, "ways", PORTS, size_of::<Way>())?,
            queue_ways: MappedMap::new(object, "queue_ways", PORTS * RX_QUEUES, size_of::<QueueWay>())?,
            policers,
            worker,
            published: [(u64::MAX, NONE); 2],
            last: UNUSED,
            free: Vec::new(),
            begin: part(worker),
            fresh: part(worker),
            end: part(worker + 1),
        };
        writer.publish(u64::MAX);
        Ok(writer)
    }

    /// Returns the number of flows that there is room for.
    pub fn room(&self) -> usize {
        self.free.len() + (self.end - self.fresh) as usize
    }

    /// Publishes a generation: from now on programs use only its entries. The generation must be neither 0
    /// nor the largest number.
    pub fn publish(&mut self, generation: u64) {
        let number = self.number_of(generation).unwrap_or_else(|| self.next_number());
        if generation != u64::MAX && self.published[0].0 != generation {
            self.published = [(generation, number), self.published[0]];
        }
        self.generations.word64(usize::from(self.worker) * 8).store(number.into(), Ordering::Release);
    }

    /// Returns the number by which programs know a generation, because entries have no room for the whole
    /// generation. The two generations published last are known, because the first may return after the
    /// second.
    fn number_of(&self, generation: u64) -> Option<u32> {
        if generation == u64::MAX {
            return Some(NONE);
        }
        self.published.iter().find(|(known, _)| *known == generation).map(|(_, number)| *number)
    }

    fn next_number(&mut self) -> u32 {
        self.last += 1;
        if self.last == NONE {
            // After so many numbers, entries would be mistaken for entries of another generation.
            (self.begin..self.fresh).for_each(|slot| self.store_version(FlowSlot(slot), UNUSED));
            self.last = UNUSED + 1;
        }
        self.last
    }

    /// Takes a full token bucket that programs share; `None` when all 1,024 are in use. `byte` is the cost of
    /// a byte, in 65,536ths of a tick, which is a sixteenth of a nanosecond. `depth` is the number of ticks
    /// between a full bucket and an empty one.
    pub fn police(&mut self, byte: u64, depth: u64) -> Option<PolicerPlace> {
        self.policers.take(byte, depth)
    }

    /// Inserts an entry for a flow, which [`begin`](Self::begin) puts into use. `None` when there is no room,
    /// no word of the flow's two buckets is free, or the flow has an entry already. `key` is a `FlowKey`,
    /// byte by byte.
    pub fn insert(&mut self, key: &[u8; KEY_BYTES], flow: &OffloadedFlow) -> Option<FlowSlot> {
        let slot = match self.free.last() {
            Some(slot) => *slot,
            None if self.fresh < self.end => self.fresh,
            None => return None,
        };
        let treatment = self.treatments.take(flow)?;
        let at = slot as usize * ENTRY;
        self.change(FlowSlot(slot));
        self.entries.write(at, key);
        self.entries.write(at + BYTES, &[0; ENTRY - BYTES]);
        self.entries.write(at + TREATMENT, &treatment.to_ne_bytes());
        self.asides.write(slot as usize * ASIDE, &[0; ASIDE]);
        self.store_version(FlowSlot(slot), UNUSED);
        let entries = &self.entries;
        // Another worker's entry is not this flow's, and may change meanwhile.
        let own = self.begin..self.end;
        let is_there = |number: u32| {
            own.contains(&number)
                && number != slot
                && entries.read::<KEY_BYTES>(number as usize * ENTRY) == *key
        };
        if !self.words.insert(key, slot, is_there) {
            self.treatments.give_back(treatment);
            self.entries.write(at, &[0; KEY_BYTES]);
            return None;
        }
        if self.free.pop().is_none() {
            self.fresh += 1;
        }
        Some(FlowSlot(slot))
    }

    /// Puts the entry of a flow into use as soon as all upcalls of `port` so far are done. The call must come
    /// some microseconds after the insertion, so that no program still handles a packet whose flow it did not
    /// find.
    pub fn begin(&mut self, slot: FlowSlot, port: u16, generation: u64) {
        let floor = self.up(port);
        self.asides.write(slot.index() * ASIDE + FLOOR, &floor.to_ne_bytes());
        self.store_version(slot, self.number_of(generation).unwrap_or(UNUSED));
    }

    /// Replaces the contents of a flow's entry, and sets its generation. The old generation must not be the
    /// published one. The entry is not used if the worker's share of the 65,536 treatments is exhausted.
    pub fn renew(&mut self, slot: FlowSlot, flow: &OffloadedFlow, generation: u64) {
        let old = self.treatment(slot);
        self.change(slot);
        let Some(treatment) = self.treatments.take(flow) else { return };
        self.entries.write(slot.index() * ENTRY + TREATMENT, &treatment.to_ne_bytes());
        self.treatments.give_back(old);
        self.store_version(slot, self.number_of(generation).unwrap_or(UNUSED));
    }

    /// Ends the use of an entry, which stays in the cache.
    pub fn stop(&mut self, slot: FlowSlot) {
        self.change(slot);
    }

    /// Removes a flow. Returns the totals of its packets.
    pub fn remove(&mut self, key: &[u8; KEY_BYTES], slot: FlowSlot) -> OffloadTotals {
        self.change(slot);
        self.words.remove(key, slot.0);
        self.entries.write(slot.index() * ENTRY, &[0; KEY_BYTES]);
        self.treatments.give_back(self.treatment(slot));
        self.free.push(slot.0);
        self.totals(slot)
    }

    /// Returns the totals of a flow's packets since it was inserted.
    pub fn totals(&self, slot: FlowSlot) -> OffloadTotals {
        let (entry, aside) = (slot.index() * ENTRY, slot.index() * ASIDE);
        let sent = Amount {
            packets: self.entries.word32(entry + PACKETS).load(Ordering::Relaxed).into(),
            bytes: self.entries.word64(entry + BYTES).load(Ordering::Relaxed),
        };
        let dropped = Amount {
            packets: self.asides.word64(aside + DROPPED).load(Ordering::Relaxed),
            bytes: self.asides.word64(aside + DROPPED_BYTES).load(Ordering::Relaxed),
        };
        OffloadTotals { sent, dropped }
    }

    /// Returns the number of upcalls of a port so far.
    pub fn up(&self, port: u16) -> u64 {
        way(port).map_or(0, |at| self.ways.word64(at).load(Ordering::Acquire))
    }

    /// Returns the number of upcalls by one receive queue of a port so far. Read after [`up`](Self::up), it
    /// includes all upcalls of the queue that `up` counts.
    pub fn up_by(&self, port: u16, queue: usize) -> u64 {
        queue_way(port, queue).map_or(0, |at| self.queue_ways.word64(at).load(Ordering::Acquire))
    }

    /// Records the watermark of a receive queue in an epoch: it has no unread upcall below this number of the
    /// port's upcalls. See [`noted_read`](Self::noted_read).
    pub fn note_read(&self, (port, queue): (u16, usize), epoch: u64, read: u64) {
        if let Some(at) = queue_way(port, queue) {
            self.queue_ways.word64(at + read_at(epoch)).store(read, Ordering::Release);
        }
    }

    /// Returns the last record of a receive queue in this epoch, or in an earlier epoch of the same parity; 0
    /// without a record.
    pub fn noted_read(&self, (port, queue): (u16, usize), epoch: u64) -> u64 {
        let word = |at| self.queue_ways.word64(at + read_at(epoch)).load(Ordering::Acquire);
        queue_way(port, queue).map_or(0, word)
    }

    /// Publishes the number of completed upcalls of a port: packets sent or dropped by workers.
    pub fn set_done(&mut self, port: u16, done: u64) {
        if let Some(at) = way(port) {
            self.ways.word64(at + DONE).store(done, Ordering::Release);
        }
    }

    /// Sets whether a receive queue of a port has more upcalls than its worker can handle. While any queue is
    /// overloaded, programs drop new packets of the port's cached flows that have upcalls in flight. Once
    /// these upcalls are done, the flow cache forwards the flow.
    pub fn set_overloaded(&self, (port, queue): (u16, usize), overloaded: bool) {
        let Some(at) = way(port).filter(|_| queue < RX_QUEUES) else { return };
        let (word, bit) = (self.ways.word64(at + OVERLOADED), 1 << queue);
        // Workers call this in each iteration, and the value hardly ever changes.
        match (word.load(Ordering::Relaxed) & bit != 0, overloaded) {
            (false, true) => _ = word.fetch_or(bit, Ordering::Release),
            (true, false) => _ = word.fetch_and(!bit, Ordering::Release),
            _ => {}
        }
    }

    /// Returns whether any receive queue of a port is overloaded, as set by any worker.
    pub fn is_overloaded(&self, port: u16) -> bool {
        way(port).is_some_and(|at| self.ways.word64(at + OVERLOADED).load(Ordering::Relaxed) != 0)
    }

    fn treatment(&self, slot: FlowSlot) -> u16 {
        u16::from_ne_bytes(self.entries.read(slot.index() * ENTRY + TREATMENT))
    }

    /// Marks an entry as changing, so that programs that have read a part of it do not use it.
    fn change(&mut self, slot: FlowSlot) {
        self.store_version(slot, UNUSED);
        fence(Ordering::Release);
    }

    fn store_version(&self, slot: FlowSlot, number: u32) {
        let version = self.entries.word64(slot.index() * ENTRY + VERSION);
        let changes = version.load(Ordering::Relaxed) as u32;
        let next = u64::from(number) << 32 | u64::from(changes.wrapping_add(1));
        version.store(next, Ordering::Release);
    }
}

impl Drop for FlowCacheWriter {
    /// Ends the use of all entries of this worker.
    fn drop(&mut self) {
        self.publish(u64::MAX);
    }
}

fn queue_way(port: u16, queue: usize) -> Option<usize> {
    let is_known = usize::from(port) < PORTS && queue < RX_QUEUES;
    is_known.then(|| (usize::from(port) * RX_QUEUES + queue) * size_of::<QueueWay>())
}

fn way(port: u16) -> Option<usize> {
    (usize::from(port) < PORTS).then(|| usize::from(port) * size_of::<Way>())
}

/// Returns the offset of the record of an epoch: one for even epochs, one for odd ones.
fn read_at(epoch: u64) -> usize {
    let [even, odd] = READ;
    if epoch.is_multiple_of(2) { even } else { odd }
}
