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

/// Number of a flow's entry in the flow cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowSlot(u32);

impl FlowSlot {
    /// Returns the number of the entry, below the capacity of the cache.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Writer of a worker's part of the flow cache: the worker's flows, its generation, and the upcall counters
/// of the ports whose packets it receives. All operations are stores to memory that the programs read. The
/// words of the flow table are common to all workers.
///
/// Programs use only entries of the generation that was [published](Self::publish) last.
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
    /// The two generations published last, each with the 32-bit number that stands for it in entries.
    published: [(u64, u32); 2],
    last: u32,
    /// Entries that were used and released. The entries from `fresh` to `end` are free as well, because they
    /// have never been used.
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

    /// Returns the number of the first entry of this worker's part.
    pub fn first(&self) -> usize {
        self.begin as usize
    }

    /// Returns the number of further flows that this worker's part has room for.
    pub fn room(&self) -> usize {
        self.free.len() + (self.end - self.fresh) as usize
    }

    /// Publishes a generation: from now on programs use only entries of this generation. The generation must
    /// not be 0. The largest `u64` means that programs use no entry.
    pub fn publish(&mut self, generation: u64) {
        let number = self.number_of(generation).unwrap_or_else(|| self.next_number());
        if generation != u64::MAX && self.published[0].0 != generation {
            self.published = [(generation, number), self.published[0]];
        }
        self.generations.word64(usize::from(self.worker) * 8).store(number.into(), Ordering::Release);
    }

    /// Returns the 32-bit number that stands for a generation in entries, which have no room for 64 bits.
    /// `None` unless the generation is one of the two published last: the older of them may be published
    /// again.
    fn number_of(&self, generation: u64) -> Option<u32> {
        if generation == u64::MAX {
            return Some(NONE);
        }
        self.published.iter().find(|(known, _)| *known == generation).map(|(_, number)| *number)
    }

    fn next_number(&mut self) -> u32 {
        self.last += 1;
        if self.last == NONE {
            // The numbers start again, so older entries could be mistaken for entries of a new generation.
            (self.begin..self.fresh).for_each(|slot| self.store_version(FlowSlot(slot), UNUSED));
            self.last = UNUSED + 1;
        }
        self.last
    }

    /// Takes a full token bucket that programs share; `None` when all 1,024 are in use. `byte`: cost of a
    /// byte, in 65,536ths of a tick (a sixteenth of a nanosecond). `depth`: number of ticks in which an empty
    /// bucket becomes full.
    pub fn police(&mut self, byte: u64, depth: u64) -> Option<PolicerPlace> {
        self.policers.take(byte, depth)
    }

    /// Inserts an entry for a flow. Programs use the entry only after [`begin`](Self::begin). `key` holds the
    /// bytes of a `FlowKey`. Returns `None` if this worker's part has no room, or no word of the flow's two
    /// buckets is free. Also returns `None` if the worker has an entry for the flow already.
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
        // An entry of another worker is never this flow's, and may change during the comparison.
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

    /// Puts the entry of a flow into use: programs use it once all upcalls that `port` has had so far are
    /// completed. The caller waits some microseconds between the insertion and this call. By then, no program
    /// still handles a packet for which it found no entry.
    pub fn begin(&mut self, slot: FlowSlot, port: u16, generation: u64) {
        let floor = self.up(port);
        self.asides.write(slot.index() * ASIDE + FLOOR, &floor.to_ne_bytes());
        self.store_version(slot, self.number_of(generation).unwrap_or(UNUSED));
    }

    /// Replaces the treatment of a flow's entry, and sets the entry's generation. The entry's old generation
    /// must not be the published one. If the worker's share of the 65,536 treatments is exhausted, programs
    /// don't use the entry.
    pub fn renew(&mut self, slot: FlowSlot, flow: &OffloadedFlow, generation: u64) {
        let old = self.treatment(slot);
        self.change(slot);
        let Some(treatment) = self.treatments.take(flow) else { return };
        self.entries.write(slot.index() * ENTRY + TREATMENT, &treatment.to_ne_bytes());
        self.treatments.give_back(old);
        self.store_version(slot, self.number_of(generation).unwrap_or(UNUSED));
    }

    /// Takes an entry out of use. The flow keeps the entry.
    pub fn stop(&mut self, slot: FlowSlot) {
        self.change(slot);
    }

    /// Removes a flow. Returns the totals of the packets that the flow cache handled.
    pub fn remove(&mut self, key: &[u8; KEY_BYTES], slot: FlowSlot) -> OffloadTotals {
        self.change(slot);
        self.words.remove(key, slot.0);
        self.entries.write(slot.index() * ENTRY, &[0; KEY_BYTES]);
        self.treatments.give_back(self.treatment(slot));
        self.free.push(slot.0);
        self.totals(slot)
    }

    /// Returns the totals of a flow's packets in the flow cache since the insertion.
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

    /// Returns the number of upcalls by one receive queue of a port so far. A value read after
    /// [`up`](Self::up) includes all upcalls of this queue that `up` counted.
    pub fn up_by(&self, port: u16, queue: usize) -> u64 {
        queue_way(port, queue).map_or(0, |at| self.queue_ways.word64(at).load(Ordering::Acquire))
    }

    /// Records the watermark of a receive queue in an epoch (the number of a grace period). The port's
    /// upcalls are numbered; its worker has read each upcall of this queue with a number below the watermark
    /// `read`. See [`noted_read`](Self::noted_read).
    pub fn note_read(&self, (port, queue): (u16, usize), epoch: u64, read: u64) {
        if let Some(at) = queue_way(port, queue) {
            self.queue_ways.word64(at + read_at(epoch)).store(read, Ordering::Release);
        }
    }

    /// Returns the watermark that was last recorded for a receive queue in this epoch, or in an earlier epoch
    /// that is even or odd like this one; 0 without a record.
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

    /// Sets whether a receive queue of a port has more upcalls than its worker can handle. While any queue of
    /// the port is overloaded, programs drop further packets of a cached flow that has upcalls in flight.
    /// Once these upcalls are completed, the flow cache forwards the flow's packets.
    pub fn set_overloaded(&self, (port, queue): (u16, usize), overloaded: bool) {
        let Some(at) = way(port).filter(|_| queue < RX_QUEUES) else { return };
        let (word, bit) = (self.ways.word64(at + OVERLOADED), 1 << queue);
        // A load first, because workers call this in each iteration and the value rarely changes.
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

    /// Marks an entry as changing. A program that has read a part of the entry then doesn't use the entry.
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
    /// Takes all entries of this worker out of use.
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

/// Returns the byte offset of an epoch's record. All even epochs share one record, and all odd epochs another
/// one.
fn read_at(epoch: u64) -> usize {
    let [even, odd] = READ;
    if epoch.is_multiple_of(2) { even } else { odd }
}
