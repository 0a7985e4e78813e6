//! Lookup of records, and counting of packets.

use millrace_memory::with_widest;
use millrace_packet::{Family, FlowKey};
use millrace_units::{Instant, PortId};

use super::batch_search::BatchSearch;
use super::record::{FLAG_BITS, FLAGS, NearKey, PROBATION, tick};
use super::{FlowIndex, FlowTable};

impl FlowTable {
    /// Returns the hash under which a flow's records are stored: of all six fields, with this table's secret
    /// key.
    #[inline(always)]
    pub fn hash(&self, key: &FlowKey) -> u64 {
        self.hash.of(key)
    }

    /// Returns the table's hash of a key, and its [`flow_hash`](crate::flow_hash), which ignores the incoming
    /// port.
    #[inline(always)]
    pub fn hashes(&self, key: &FlowKey) -> (u64, u32) {
        self.hash.of_both(key)
    }

    /// Returns both hashes of an IPv4 key. Takes its addresses, its last word without the port, and the [hash
    /// of the port](Self::hash_of_port).
    #[inline(always)]
    pub fn hashes4(&self, addresses: u64, last: u64, port: u64) -> (u64, u32) {
        self.hash.of_both4(addresses, last, port)
    }

    /// Returns the term that the incoming port adds to a packet's hash.
    #[inline(always)]
    pub fn hash_of_port(&self, port: PortId) -> u64 {
        self.hash.of_port(port)
    }

    /// Prefetches the bucket at which the search for a flow's base record begins.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        self.buckets.prefetch(self.buckets.home(hash));
    }

    /// Prefetches the bucket at which the search for a variant record of a flow begins.
    #[inline(always)]
    pub fn prefetch_variant(&self, hash: u64, variant: u32) {
        self.prefetch(self.hash.with_variant(hash, variant));
    }

    /// Prefetches the record at `index`, to which [`touch`](Self::touch) will write.
    #[inline(always)]
    pub fn prefetch_record(&self, index: FlowIndex) {
        self.records.prefetch(index.slot());
    }

    /// Finds the record of a flow; `None` if it has none. Variant 0 is its base record. `hash` is the key's
    /// hash.
    #[inline]
    pub fn find(&self, key: &FlowKey, hash: u64, variant: u32) -> Option<FlowIndex> {
        let near = NearKey::of(key);
        let hash = self.hash.with_variant(hash, variant);
        let slot = self.buckets.find(hash, |slot| self.is_it(slot, near, key, variant))?;
        FlowIndex::from_slot(slot)
    }

    /// Finds the base records of a batch's flows: `found[i]` becomes the record of `keys[i]`, whose hash is
    /// `hashes[i]`. Prefetches the memory that the search needs.
    ///
    /// # Panics
    /// When the slices differ in length.
    pub fn find_batch(&self, keys: &[FlowKey], hashes: &[u64], found: &mut [Option<FlowIndex>]) {
        with_widest(BatchSearch::new(self, keys, hashes, found));
    }

    #[inline(always)]
    fn is_it(&self, slot: u32, near: NearKey, key: &FlowKey, variant: u32) -> bool {
        let record = &self.records[slot];
        record.is_near(near, variant) && (key.family() == Family::V4 || self.records.far(slot).key.is_of(key))
    }

    /// Counts a packet of `bytes` at `now` in the record at `index`. The caller also counts the first packet
    /// of a flow. The second packet ends the record's probation.
    #[inline(always)]
    pub fn touch(&mut self, index: FlowIndex, bytes: u32, now: Instant) {
        let record = &mut self.records[index.slot()];
        let used = record.used;
        record.used = tick(now) << FLAG_BITS | used & FLAGS;
        record.bytes = record.bytes.wrapping_add(u64::from(bytes));
        let (packets, carry) = record.packets.overflowing_add(1);
        record.packets = packets;
        if used & PROBATION != 0 || carry {
            self.touch_rarely(index.slot(), carry);
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn touch_rarely(&mut self, slot: u32, carry: bool) {
        if carry {
            let high = &mut self.upkeep[slot as usize].packets_high;
            *high = high.wrapping_add(1);
        }
        if self.records[slot].packets >= 2 {
            self.end_probation(slot);
        }
    }

    /// Counts packets of a live record's flow that the offload forwarded, the last of them by `now`.
    pub fn touch_many(&mut self, index: FlowIndex, packets: u64, bytes: u64, now: Instant) {
        let sum = self.packets(index).wrapping_add(packets);
        let record = &mut self.records[index.slot()];
        record.used = tick(now) << FLAG_BITS | record.used & FLAGS;
        record.bytes = record.bytes.wrapping_add(bytes);
        record.packets = sum as u32;
        self.upkeep[index.slot() as usize].packets_high = (sum >> 32) as u32;
        if sum >= 2 {
            self.end_probation(index.slot());
        }
    }
}
