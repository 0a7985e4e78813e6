//! The flow table: lookup, count, insertion and end of records.

use std::ops::Range;

use millrace_memory::with_widest;
use millrace_packet::FlowKey;
use millrace_units::{Instant, PortId};

use super::batch_search::BatchSearch;
use super::config::{FlowTableConfig, LARGEST};
use super::counts::FlowTableCounts;
use super::error::{FlowTableError, Full};
use super::eviction::{Eviction, recycle_colliding};
use super::expiry::Expiry;
use super::index::FlowHash;
use super::meeting::{BatchMeeting, Meeting, Sought};
use super::record_set::RecordSet;
use super::removal::{RemovalReason, RemovedFlow};
use super::storage::record::RESERVED;
use super::storage::{FlowAnswer, FlowIndex, FlowRecord};

/// Number of groups that the table splits with each new record while it grows.
const SPLITS: u32 = 1;
/// Cost of a split, in visits of records.
const SPLIT_COST: usize = 32;

/// Table of flow records. The module's description states its guarantees.
#[derive(Debug)]
pub struct FlowTable {
    hash: FlowHash,
    pub(super) set: RecordSet,
    capacity: u32,
    maximum: u32,
    eviction: Eviction,
    expiry: Expiry,
    /// Latest time that a caller passed.
    now: Instant,
}

impl FlowTable {
    /// Returns an empty table.
    pub fn new(config: FlowTableConfig) -> Result<Self, FlowTableError> {
        let FlowTableConfig { initial, maximum, .. } = config;
        if initial == 0 || initial > maximum || maximum > LARGEST {
            return Err(FlowTableError::Size { initial, maximum });
        }
        Ok(Self {
            hash: FlowHash::new(config.seed),
            set: RecordSet::new(&config)?,
            capacity: initial,
            maximum,
            eviction: Eviction::new(maximum),
            expiry: Expiry::new(config.idle),
            now: Instant::ZERO,
        })
    }

    /// Returns the number of live records.
    #[inline]
    pub fn len(&self) -> u32 {
        self.set.len()
    }

    /// Whether the table has no live record.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.set.len() == 0
    }

    /// Returns the number of records that the table holds before it grows or recycles.
    #[inline]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Returns the maximum number of records.
    #[inline]
    pub fn maximum(&self) -> u32 {
        self.maximum
    }

    /// Returns the number of records on probation.
    #[inline]
    pub fn on_probation(&self) -> u32 {
        self.set.probation().len()
    }

    /// Returns the number of ended records that [`pop_removed`](Self::pop_removed) has yet to return.
    #[inline]
    pub fn unread(&self) -> u32 {
        self.set.unread()
    }

    /// Returns the counts of records made, ended and refused so far.
    #[inline]
    pub fn counts(&self) -> FlowTableCounts {
        self.set.counts
    }

    /// Returns the record at `index`. The record is live, or it has ended and
    /// [`pop_removed`](Self::pop_removed) has not returned it yet.
    ///
    /// # Panics
    /// With an index of another, larger table.
    #[inline(always)]
    pub fn record(&self, index: FlowIndex) -> &FlowRecord {
        &self.set.slots.records[index.slot()]
    }

    /// Returns the answer of the record at `index`, for changes.
    #[inline(always)]
    pub fn answer_mut(&mut self, index: FlowIndex) -> &mut FlowAnswer {
        &mut self.set.slots.records[index.slot()].answer
    }

    /// Returns the flow key of the record.
    #[inline]
    pub fn key(&self, index: FlowIndex) -> FlowKey {
        self.set.slots.key(index.slot())
    }

    /// Returns the number of packets of the flow so far.
    #[inline]
    pub fn packets(&self, index: FlowIndex) -> u64 {
        self.set.slots.packets(index.slot())
    }

    /// Returns the time at which the record was made.
    #[inline]
    pub fn created(&self, index: FlowIndex) -> Instant {
        self.set.slots.created(index.slot())
    }

    /// Returns the time of the flow's last packet, with a resolution of 17 ms.
    #[inline]
    pub fn last_used(&self, index: FlowIndex) -> Instant {
        self.set.slots.last_used(index.slot(), self.now)
    }

    /// Returns the word that the pipeline stores for the plugin state of the flow. It starts as 0, for no
    /// state.
    #[inline]
    pub fn state(&self, index: FlowIndex) -> u32 {
        self.record(index).state
    }

    /// Sets the word for the plugin state of the flow. A record with a word other than 0 has state. The table
    /// never recycles such a record once it is off probation.
    #[inline]
    pub fn set_state(&mut self, index: FlowIndex, state: u32) {
        self.set.slots.records[index.slot()].state = state;
    }

    /// Sets whether the record belongs to a reservation. A reserved record is no longer on probation.
    pub fn set_reserved(&mut self, index: FlowIndex, reserved: bool) {
        let slot = index.slot();
        let used = &mut self.set.slots.records[slot].used;
        *used = if reserved { *used | RESERVED } else { *used & !RESERVED };
        if reserved {
            self.set.end_probation(slot);
        }
    }

    /// Iterates over all live records, in the order of their slots.
    pub fn iter(&self) -> impl Iterator<Item = (FlowIndex, &FlowRecord)> {
        self.range(1..self.slots())
    }

    /// Iterates over the live records in a range of slots. A caller can so walk a large table in pieces.
    /// Slots from [`slots`](Self::slots) on hold no record.
    pub fn range(&self, slots: Range<u32>) -> impl Iterator<Item = (FlowIndex, &FlowRecord)> {
        self.set.slots.live(slots)
    }

    /// Returns the largest slot ever used, plus one.
    #[inline]
    pub fn slots(&self) -> u32 {
        self.set.slots.end()
    }

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
        self.set.buckets.prefetch(self.set.buckets.home(hash));
    }

    /// Finds the record of a flow; `None` if it has none. Variant 0 is its base record. `hash` is the key's
    /// hash.
    #[inline]
    pub fn find(&self, key: &FlowKey, hash: u64, variant: u32) -> Option<FlowIndex> {
        self.set.lookup().find(key, self.hash.with_variant(hash, variant), variant)
    }

    /// Finds the base records of a batch's flows: `found[i]` becomes the record of `keys[i]`, whose hash is
    /// `hashes[i]`. Prefetches the memory that the search needs.
    ///
    /// # Panics
    /// When the slices differ in length.
    pub fn find_batch(&self, keys: &[FlowKey], hashes: &[u64], found: &mut [Option<FlowIndex>]) {
        with_widest(BatchSearch::new(self.set.lookup(), keys, hashes, found));
    }

    /// Finds the base records of a batch's flows as [`find_batch`](Self::find_batch) does, and lets `meeting`
    /// treat the packets of known flows, each with its note. Counts each treated packet in its flow at `now`,
    /// as [`touch`](Self::touch) does. Adds the numbers of all other packets to `rest`. The caller should
    /// have [prefetched](Self::prefetch) the buckets. Returns `meeting`.
    ///
    /// # Panics
    /// When the slices differ in length.
    pub fn meet_batch<P, N, M: Meeting<P, N>>(
        &mut self,
        sought: Sought<'_>,
        found: &mut [Option<FlowIndex>],
        packets: (&mut [P], &mut [N]),
        now: Instant,
        (meeting, rest): (M, &mut Vec<u16>),
    ) -> M {
        with_widest(BatchMeeting::new(&mut self.set, sought, found, packets, now, (meeting, rest)))
    }

    /// Counts a packet of `bytes` at `now` in the record at `index`. The caller also counts the first packet
    /// of a flow. The second packet ends the record's probation.
    #[inline(always)]
    pub fn touch(&mut self, index: FlowIndex, bytes: u32, now: Instant) {
        self.set.touch(index.slot(), bytes, now);
    }

    /// Counts packets of a live record's flow that the offload forwarded, the last of them by `now`.
    pub fn touch_many(&mut self, index: FlowIndex, packets: u64, bytes: u64, now: Instant) {
        self.set.touch_many(index.slot(), packets, bytes, now);
    }

    /// Inserts a record, on probation and with no packets. [`touch`](Self::touch) counts the first packet,
    /// too. If there is already a record of that key and variant, only its answer changes.
    ///
    /// A full table may recycle another record, which [`pop_removed`](Self::pop_removed) then returns.
    ///
    /// # Errors
    /// [`Full`]; the table counts each refusal.
    #[inline]
    pub fn insert(
        &mut self,
        key: &FlowKey,
        hash: u64,
        variant: u32,
        answer: FlowAnswer,
        now: Instant,
    ) -> Result<FlowIndex, Full> {
        if let Some(index) = self.find(key, hash, variant) {
            *self.answer_mut(index) = answer;
            return Ok(index);
        }
        self.insert_absent(key, hash, variant, answer, now)
    }

    /// Inserts a record as [`insert`](Self::insert) does, for a caller that has just found no such record. A
    /// second record of a key would never be found.
    ///
    /// # Errors
    /// [`Full`]; the table counts each refusal.
    pub fn insert_absent(
        &mut self,
        key: &FlowKey,
        hash: u64,
        variant: u32,
        answer: FlowAnswer,
        now: Instant,
    ) -> Result<FlowIndex, Full> {
        debug_assert!(self.find(key, hash, variant).is_none(), "there is a record of the flow");
        self.now = self.now.max(now);
        let hash = self.hash.with_variant(hash, variant);
        self.make_room(hash).inspect_err(|reason| self.set.counts.refused(reason))?;
        let index = self.set.add(key, hash, variant, answer, now).ok_or(Full::Unread)?;
        self.set.split_buckets(SPLITS);
        Ok(index)
    }

    /// Ensures that one more record has a slot and a bucket entry.
    fn make_room(&mut self, hash: u64) -> Result<(), Full> {
        if !self.set.slots.has_free() {
            return Err(Full::Unread);
        }
        if self.set.len() >= self.capacity && !self.grow() {
            self.eviction.recycle(&mut self.set, self.now)?;
        }
        if !self.set.buckets.has_room(hash) {
            recycle_colliding(&mut self.set, hash, self.now)?;
        }
        Ok(())
    }

    /// Doubles the capacity, up to the maximum; returns false if the table is at the maximum.
    fn grow(&mut self) -> bool {
        if self.capacity == self.maximum {
            return false;
        }
        self.capacity = self.capacity.saturating_mul(2).min(self.maximum);
        self.set.buckets.double();
        true
    }

    /// Ends the record at `index`; returns false if it had ended before.
    pub fn remove(&mut self, index: FlowIndex) -> bool {
        let live = self.record(index).is_live();
        if live {
            self.set.end(index.slot(), RemovalReason::Removed);
        }
        live
    }

    /// Returns the next ended record, in the order of their ends, and frees its slot; `None` if none is left.
    #[inline]
    pub fn pop_removed(&mut self) -> Option<RemovedFlow> {
        self.set.pop_ended(self.now)
    }

    /// Does a bounded part of the work between batches: splits of buckets, and expiry of records. Visits
    /// about `budget` records at most. Ends at most 128 of them, so that the notification of plugins stays
    /// short. Returns whether more work is due, for a worker that has time.
    pub fn maintain(&mut self, now: Instant, budget: usize) -> bool {
        self.now = self.now.max(now);
        let splits = u32::try_from(budget / SPLIT_COST).unwrap_or(u32::MAX);
        let budget = budget - SPLIT_COST * self.set.split_buckets(splits) as usize;
        self.expiry.expire(&mut self.set, self.now, budget);
        self.set.buckets.wants_split() || self.expiry.is_due(&self.set, self.now)
    }
}
