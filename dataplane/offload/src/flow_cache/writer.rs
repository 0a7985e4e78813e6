//! A worker's part of the flow cache.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use aya::Ebpf;

use super::descriptor;
use super::layout::{Entry, KEY_BYTES, PORTS, WORKERS, Way};
use super::policers::{PolicerPlace, Policers};
use crate::OffloadError;
use crate::bpf_syscall::{delete_key, insert_key};
use crate::mapped_map::MappedMap;

/// The place of a flow in the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowSlot(u32);

impl FlowSlot {
    /// Its number: below the number of flows that there is room for.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What the driver is to do with the packets of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CachedFlow {
    /// What becomes of them.
    pub action: CachedAction,
    /// The number of a token bucket that those find room in that go on.
    pub policer: Option<u16>,
    /// The number of the form of a plugin that is asked which packets go on.
    pub form: Option<u16>,
}

/// What becomes of packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CachedAction {
    /// They are forwarded.
    Send(CachedWay),
    /// They are dropped.
    Drop,
}

/// Where packets leave, and as what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CachedWay {
    /// The port to leave by.
    pub out: u16,
    /// The longest network packet that may leave there; longer ones go up.
    pub mtu: u16,
    /// The station to send to.
    pub destination: [u8; 6],
    /// The port's own address.
    pub source: [u8; 6],
}

/// What the driver has done with a flow. Bytes are those of frames, without what they are padded by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowTotals {
    /// Packets that it forwarded.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that it dropped, by a filter, a token bucket or the form of a plugin.
    pub dropped: u64,
    /// Their bytes.
    pub dropped_bytes: u64,
}

/// A worker's part of the flow cache: its own flows, its own generation, and the ways of the ports whose packets it
/// receives. Stores go to memory that it shares with the programs; only [`insert`](Self::insert) and
/// [`remove`](Self::remove) are system calls.
///
/// Entries are used as long as they bear the generation that was [published](Self::publish) last.
#[derive(Debug)]
pub struct FlowCacheWriter {
    keys: OwnedFd,
    entries: MappedMap,
    generations: MappedMap,
    ways: MappedMap,
    policers: Arc<Policers>,
    worker: u16,
    /// Slots that are free: those that were given back, and those from `fresh` to `end` that were never used.
    free: Vec<u32>,
    fresh: u32,
    end: u32,
}

const ENTRY: usize = size_of::<Entry>();
const GENERATION: usize = std::mem::offset_of!(Entry, generation);
const PACKETS: usize = std::mem::offset_of!(Entry, packets);
const BYTES: usize = std::mem::offset_of!(Entry, bytes);
const FLOOR: usize = std::mem::offset_of!(Entry, floor);
const OUT: usize = std::mem::offset_of!(Entry, out);
const MTU: usize = std::mem::offset_of!(Entry, mtu);
const LINK: usize = std::mem::offset_of!(Entry, link);
const DROPS: usize = std::mem::offset_of!(Entry, drops);
const POLICER: usize = std::mem::offset_of!(Entry, policer);
const FORM: usize = std::mem::offset_of!(Entry, form);
const DROPPED: usize = std::mem::offset_of!(Entry, dropped);
const DROPPED_BYTES: usize = std::mem::offset_of!(Entry, dropped_bytes);
const DONE: usize = std::mem::offset_of!(Way, done);
const OVERLOADED: usize = std::mem::offset_of!(Way, overloaded);

impl FlowCacheWriter {
    pub(super) fn new(
        object: &mut Ebpf,
        capacity: u32,
        (worker, workers): (u16, u16),
    ) -> Result<Self, OffloadError> {
        let entries = MappedMap::new(object, "cached_flows", capacity as usize, ENTRY)?;
        let generations = MappedMap::new(object, "generations", WORKERS, 8)?;
        let ways = MappedMap::new(object, "ways", PORTS, size_of::<Way>())?;
        let part = |worker: u16| (u64::from(capacity) * u64::from(worker) / u64::from(workers)) as u32;
        let (fresh, end) = (part(worker), part(worker + 1));
        let keys = descriptor(object, "flows")?;
        let policers = Policers::new(object)?;
        let free = Vec::new();
        let mut writer = Self { keys, entries, generations, ways, policers, worker, free, fresh, end };
        writer.publish(u64::MAX);
        Ok(writer)
    }

    /// Flows that there is room for still.
    pub fn room(&self) -> usize {
        self.free.len() + (self.end - self.fresh) as usize
    }

    /// From now on only entries of this generation are used, which is neither 0 nor the largest number.
    pub fn publish(&mut self, generation: u64) {
        self.generations.word64(usize::from(self.worker) * 8).store(generation, Ordering::Release);
    }

    /// A token bucket that programs take from too, full; `None` when all 1,024 are taken. A byte takes so many 65,536th parts of a tick,
    /// which is a sixteenth of a nanosecond, and `depth` ticks lie between a full bucket and an empty one.
    pub fn police(&mut self, byte: u64, depth: u64) -> Option<PolicerPlace> {
        self.policers.take(byte, depth)
    }

    /// Gives a flow an entry, which is used from [`begin`](Self::begin) on; `None` when there is no room, the
    /// flow has one already, or the kernel refuses. `key` is a `FlowKey`, byte by byte.
    pub fn insert(&mut self, key: &[u8; KEY_BYTES], flow: &CachedFlow) -> Option<FlowSlot> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.fresh < self.end => {
                self.fresh += 1;
                self.fresh - 1
            }
            None => return None,
        };
        let at = slot as usize * ENTRY;
        self.entries.write(at, &[0; ENTRY]);
        self.entries.write(at + std::mem::offset_of!(Entry, worker), &self.worker.to_ne_bytes());
        self.write(slot, flow);
        match insert_key(&self.keys, key, &slot) {
            Ok(()) => Some(FlowSlot(slot)),
            Err(_) => {
                self.free.push(slot);
                None
            }
        }
    }

    /// Lets the entry of a flow be used as soon as none of the packets that have gone up from `port` so far is under way
    /// there. This must be some microseconds after it was inserted, so that no program still looks at a packet whose
    /// flow it did not find.
    pub fn begin(&mut self, slot: FlowSlot, port: u16, generation: u64) {
        let floor = self.up(port);
        self.entries.write(slot.index() * ENTRY + FLOOR, &floor.to_ne_bytes());
        self.store_generation(slot, generation);
    }

    /// Changes the entry of a flow, whose generation is not the published one: from now on it is of this generation.
    pub fn renew(&mut self, slot: FlowSlot, flow: &CachedFlow, generation: u64) {
        self.write(slot.0, flow);
        self.store_generation(slot, generation);
    }

    /// Ends the use of an entry.
    pub fn stop(&mut self, slot: FlowSlot) {
        self.store_generation(slot, 0);
    }

    /// Removes a flow. Returns what was forwarded of it.
    pub fn remove(&mut self, key: &[u8; KEY_BYTES], slot: FlowSlot) -> FlowTotals {
        self.stop(slot);
        // It was inserted with this key; that it is gone is what is wanted.
        let _ = delete_key(&self.keys, key);
        self.free.push(slot.0);
        self.totals(slot)
    }

    /// What was forwarded of a flow since it was inserted.
    pub fn totals(&self, slot: FlowSlot) -> FlowTotals {
        let at = slot.index() * ENTRY;
        FlowTotals {
            packets: self.entries.word64(at + PACKETS).load(Ordering::Relaxed),
            bytes: self.entries.word64(at + BYTES).load(Ordering::Relaxed),
            dropped: self.entries.word64(at + DROPPED).load(Ordering::Relaxed),
            dropped_bytes: self.entries.word64(at + DROPPED_BYTES).load(Ordering::Relaxed),
        }
    }

    /// Packets that went up from a port so far.
    pub fn up(&self, port: u16) -> u64 {
        way(port).map_or(0, |at| self.ways.word64(at).load(Ordering::Acquire))
    }

    /// Says that so many of the packets that went up from a port are sent on, or dropped.
    pub fn set_done(&mut self, port: u16, done: u64) {
        if let Some(at) = way(port) {
            self.ways.word64(at + DONE).store(done, Ordering::Release);
        }
    }

    /// Says whether more packets go up from a port than are dealt with. As long as it is so a flow that has an entry,
    /// and packets under way, loses what comes until those are done, and is then forwarded in the driver.
    pub fn set_overloaded(&mut self, port: u16, overloaded: bool) {
        if let Some(at) = way(port) {
            self.ways.word32(at + OVERLOADED).store(overloaded.into(), Ordering::Release);
        }
    }

    fn write(&mut self, slot: u32, flow: &CachedFlow) {
        let at = slot as usize * ENTRY;
        let policer = flow.policer.map_or(0, |place| place + 1);
        self.entries.write(at + POLICER, &policer.to_ne_bytes());
        let form = flow.form.map_or(0, |place| place + 1);
        self.entries.write(at + FORM, &form.to_ne_bytes());
        let drops = u16::from(flow.action == CachedAction::Drop);
        self.entries.write(at + DROPS, &drops.to_ne_bytes());
        // What is dropped may be of any length.
        let mtu = if let CachedAction::Send(way) = flow.action { way.mtu } else { u16::MAX };
        self.entries.write(at + MTU, &mtu.to_ne_bytes());
        if let CachedAction::Send(way) = flow.action {
            self.entries.write(at + OUT, &way.out.to_ne_bytes());
            self.entries.write(at + LINK, &way.destination);
            self.entries.write(at + LINK + way.destination.len(), &way.source);
        }
    }

    fn store_generation(&mut self, slot: FlowSlot, generation: u64) {
        self.entries.word64(slot.index() * ENTRY + GENERATION).store(generation, Ordering::Release);
    }
}

impl Drop for FlowCacheWriter {
    /// Nothing of this worker is forwarded in the driver any more.
    fn drop(&mut self) {
        self.publish(u64::MAX);
    }
}

fn way(port: u16) -> Option<usize> {
    (usize::from(port) < PORTS).then(|| usize::from(port) * size_of::<Way>())
}
