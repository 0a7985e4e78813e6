//! Flow cache: its creation, and the part of each worker.

use std::sync::atomic::AtomicU64;

use millrace_offload::{FlowCache, FlowCacheWriter, FlowSlot, KEY_BYTES, PolicerPlace};
use millrace_packet::{Family, FlowKey, OffloadTotals, OffloadedFlow};
use millrace_pipeline::WorkerFlowCache;
use millrace_plugin::{Policer, SharedBucket};
use millrace_units::PortId;

/// Part of the flow cache that belongs to a worker.
pub(super) struct WorkerCache {
    writer: FlowCacheWriter,
    /// Slots of this worker's entries, by their numbers in this part; `None` for a free number.
    slots: Vec<Option<FlowSlot>>,
}

impl WorkerCache {
    /// Creates a part without entries.
    pub fn new(writer: FlowCacheWriter) -> Self {
        Self { writer, slots: Vec::new() }
    }

    fn slot(&self, number: u32) -> Option<FlowSlot> {
        *self.slots.get(number as usize)?
    }
}

/// Token bucket in the flow cache, shared by workers and XDP program.
#[derive(Debug)]
struct Bucket(PolicerPlace);

impl SharedBucket for Bucket {
    #[inline]
    fn word(&self) -> &AtomicU64 {
        self.0.paid()
    }

    fn place(&self) -> u16 {
        self.0.number()
    }
}

/// Returns a flow key in the layout of `struct flow_key` of the XDP program.
fn bytes(key: &FlowKey) -> [u8; KEY_BYTES] {
    let mut bytes = [0; KEY_BYTES];
    bytes[..16].copy_from_slice(key.source_bytes());
    bytes[16..32].copy_from_slice(key.destination_bytes());
    bytes[32..34].copy_from_slice(&key.source_port.to_ne_bytes());
    bytes[34..36].copy_from_slice(&key.destination_port.to_ne_bytes());
    bytes[36] = key.protocol;
    bytes[37] = match key.family() {
        Family::V4 => 4,
        Family::V6 => 6,
    };
    bytes[38..].copy_from_slice(&key.port.0.to_ne_bytes());
    bytes
}

impl WorkerFlowCache for WorkerCache {
    fn room(&self) -> usize {
        self.writer.room()
    }

    fn publish(&mut self, generation: u64) {
        self.writer.publish(generation);
    }

    fn police(&mut self, policer: &Policer) -> Option<u16> {
        if policer.place().is_none() {
            let price = policer.price();
            policer.share(Box::new(Bucket(self.writer.police(price.token(), price.depth())?)));
        }
        policer.place()
    }

    fn insert(&mut self, key: &FlowKey, flow: &OffloadedFlow) -> Option<u32> {
        let slot = self.writer.insert(&bytes(key), flow)?;
        // Worker and part keep lists of entries by number, which grow with it.
        let number = slot.index().saturating_sub(self.writer.first());
        if self.slots.len() <= number {
            self.slots.resize(number + 1, None);
        }
        self.slots[number] = Some(slot);
        Some(number as u32)
    }

    fn begin(&mut self, slot: u32, port: PortId, generation: u64) {
        if let Some(slot) = self.slot(slot) {
            self.writer.begin(slot, port.0, generation);
        }
    }

    fn renew(&mut self, slot: u32, flow: &OffloadedFlow, generation: u64) {
        if let Some(slot) = self.slot(slot) {
            self.writer.renew(slot, flow, generation);
        }
    }

    fn remove(&mut self, key: &FlowKey, slot: u32) -> OffloadTotals {
        let Some(slot) = self.slots.get_mut(slot as usize).and_then(Option::take) else {
            return OffloadTotals::default();
        };
        self.writer.remove(&bytes(key), slot)
    }

    fn totals(&self, slot: u32) -> OffloadTotals {
        self.slot(slot).map(|slot| self.writer.totals(slot)).unwrap_or_default()
    }

    fn up(&self, port: PortId) -> u64 {
        self.writer.up(port.0)
    }

    fn up_by(&self, port: PortId, queue: usize) -> u64 {
        self.writer.up_by(port.0, queue)
    }

    fn note_read(&self, (port, queue): (PortId, usize), epoch: u64, read: u64) {
        self.writer.note_read((port.0, queue), epoch, read);
    }

    fn noted_read(&self, (port, queue): (PortId, usize), epoch: u64) -> u64 {
        self.writer.noted_read((port.0, queue), epoch)
    }

    fn set_done(&mut self, port: PortId, done: u64) {
        self.writer.set_done(port.0, done);
    }

    fn set_overloaded(&self, (port, queue): (PortId, usize), overloaded: bool) {
        self.writer.set_overloaded((port.0, queue), overloaded);
    }

    fn is_overloaded(&self, port: PortId) -> bool {
        self.writer.is_overloaded(port.0)
    }
}

/// Returns the reason why the configuration allows no flow cache; `None` if it allows one.
pub(crate) fn why_no_cache(has_kernel: bool, flows: u32) -> Option<&'static str> {
    match (has_kernel, flows) {
        (false, _) => Some("no port has a kernel device"),
        (true, 0) => Some("the configuration sets offloaded-flows = 0"),
        (true, _) => None,
    }
}

/// Creates the flow cache of a router with kernel ports, or returns the reason why there is none.
pub(crate) fn make_cache(has_kernel: bool, flows: u32, workers: usize) -> Result<FlowCache, &'static str> {
    if let Some(why) = why_no_cache(has_kernel, flows) {
        return Err(why);
    }
    FlowCache::new(flows, workers).map_err(|error| {
        tracing::info!("no flow is offloaded, because the flow cache can't be created: {error}");
        "the kernel refused the flow cache: see the log"
    })
}

#[cfg(test)]
mod tests {
    use millrace_packet::OffloadAction;

    use super::*;

    /// The lists of a worker would otherwise begin with entries for all workers before it: tens of megabytes, which the
    /// worker would fill at its first flow.
    #[test]
    fn entries_of_each_worker_are_numbered_from_0() {
        if !nix::unistd::Uid::effective().is_root() {
            return millrace_testkit::skip("needs root");
        }
        let mut cache = FlowCache::new(3000, 3).unwrap();
        let flow = OffloadedFlow { action: OffloadAction::Drop { mtu: 1500 }, policer: None, variant: None };
        let key = |host: [u8; 4]| FlowKey::v4(host.into(), [10, 0, 0, 9].into(), 17, (1, 2), PortId(0));
        for worker in 0..3 {
            let mut part = WorkerCache::new(cache.writer(worker).unwrap());
            let keys = [1, 2].map(|number| key([10, worker as u8, 0, number]));
            assert_eq!(keys.map(|key| part.insert(&key, &flow)), [Some(0), Some(1)], "worker {worker}");
            assert!(part.slot(0) != part.slot(1) && part.slots.len() == 2);
            assert_eq!(part.remove(&keys[0], 0), OffloadTotals::default());
            assert_eq!((part.slot(0), part.insert(&keys[0], &flow)), (None, Some(0)));
        }
    }
}
