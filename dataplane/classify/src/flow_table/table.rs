//! The flow table: lookup, counting, insertion and end of records.

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

/// Number of groups of buckets that the table splits with each new record while it grows.
const SPLITS: u32 = 1;
/// Cost of a split, counted as this number of visited records.
const SPLIT_COST: usize = 32;

/// Table of flow records. The description of this module states its guarantees.
#[derive(Debug)]
pub struct FlowTable {
    hash: FlowHash,
    pub(super) set: RecordSet,
    capacity: u32,
    maximum: u32,
    eviction: Eviction,
    expiry: Expiry,
    /// Latest time that a caller has passed.
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

    /// Returns the number of records up to which the table neither grows nor displaces records.
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

    /// Returns the number of ended records that [`pop_removed`](Self::pop_removed) hasn't returned yet.
    #[inline]
    pub fn unread(&self) -> u32 {
        self.set.unread()
    }

    /// Returns the numbers of created, ended and refused records so far.
    #[inline]
    pub fn counts(&self) -> FlowTableCounts {
        self.set.counts
    }

    /// Returns the record at `index`: a live record, or an ended one that [`pop_removed`](Self::pop_removed)
    /// hasn't returned yet.
    ///
    /// # Panics
    /// If the index is from another, larger table.
    #[inline(always)]
    pub fn record(&self, index: FlowIndex) -> &FlowRecord {
        &self.set.slots.records[index.slot()]
    }

    /// Returns the answer of the record at `index`, to be changed.
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

    /// Returns the time of the record's creation.
    #[inline]
    pub fn created(&self, index: FlowIndex) -> Instant {
        self.set.slots.created(index.slot())
    }

    /// Returns the time of the flow's last packet, with a resolution of 17 ms.
    #[inline]
    pub fn last_used(&self, index: FlowIndex) -> Instant {
        self.set.slots.last_used(index.slot(), self.now)
    }

    /// Returns the word in which the pipeline stores the flow state. It is 0 at first, for no flow state.
    #[inline]
    pub fn state(&self, index: FlowIndex) -> u32 {
        self.record(index).state
    }

    /// Sets the word for the flow state. With a word other than 0, new flows displace the record only while
    /// it is on probation.
    #[inline]
    pub fn set_state(&mut self, index: FlowIndex, state: u32) {
        self.set.slots.records[index.slot()].state = state;
    }

    /// Sets whether the record belongs to a flow with a reservation. This ends the record's probation.
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

    /// Iterates over the live records in a range of slots, so a caller can walk a large table in parts. All
    /// records are in slots below [`slots`](Self::slots).
    pub fn range(&self, slots: Range<u32>) -> impl Iterator<Item = (FlowIndex, &FlowRecord)> {
        self.set.slots.live(slots)
    }

    /// Returns the largest slot used so far, plus one.
    #[inline]
    pub fn slots(&self) -> u32 {
        self.set.slots.end()
    }

    /// Returns the keyed hash of all six fields of a flow key, under which the table holds the flow's
    /// records.
    #[inline(always)]
    pub fn hash(&self, key: &FlowKey) -> u64 {
        self.hash.of(key)
    }

    /// Returns the [`hash`](Self::hash) of a key, and its [`flow_hash`](crate::flow_hash), which ignores the
    /// ingress port.
    #[inline(always)]
    pub fn hashes(&self, key: &FlowKey) -> (u64, u32) {
        self.hash.of_both(key)
    }

    /// Returns the [hash of the connection](crate::connection_hash) of a key.
    #[inline]
    pub fn connection_hash(&self, key: &FlowKey) -> u32 {
        self.hash.of_connection(key)
    }

    /// Returns both hashes of an IPv4 key. `last` is the key's last word without the ingress port, `port` the
    /// [term of the ingress port](Self::hash_of_port).
    #[inline(always)]
    pub fn hashes4(&self, addresses: u64, last: u64, port: u64) -> (u64, u32) {
        self.hash.of_both4(addresses, last, port)
    }

    /// Returns the term that an ingress port adds to the hash of all six fields.
    #[inline(always)]
    pub fn hash_of_port(&self, port: PortId) -> u64 {
        self.hash.of_port(port)
    }

    /// Prefetches the home bucket of a flow's base record.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        self.set.buckets.prefetch(self.set.buckets.home(hash));
    }

    /// Finds a record of a flow; `None` if there is none. `variant` is 0 for the base record. `hash` is the
    /// key's hash.
    #[inline]
    pub fn find(&self, key: &FlowKey, hash: u64, variant: u32) -> Option<FlowIndex> {
        self.set.lookup().find(key, self.hash.with_variant(hash, variant), variant)
    }

    /// Finds the base records of a batch's flows: sets `found[i]` to the record of `keys[i]`, whose hash is
    /// `hashes[i]`. Prefetches the memory that the search reads.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn find_batch(&self, keys: &[FlowKey], hashes: &[u64], found: &mut [Option<FlowIndex>]) {
        with_widest(BatchSearch::new(self.set.lookup(), keys, hashes, found));
    }

    /// Finds the base records of a batch's flows like [`find_batch`](Self::find_batch), and lets `meeting`
    /// treat the packets of known flows. Each packet comes with a note, a value of the caller.
    ///
    /// Counts each treated packet like [`touch`](Self::touch), at the time `now`. Appends the indexes of all
    /// other packets to `rest`. The caller should have [prefetched](Self::prefetch) the buckets. Returns
    /// `meeting`.
    ///
    /// # Panics
    /// If the slices differ in length.
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

    /// Counts a packet of `bytes` bytes at the time `now` in the record at `index`. The caller must also
    /// count a flow's first packet. The second packet ends the record's probation.
    #[inline(always)]
    pub fn touch(&mut self, index: FlowIndex, bytes: u32, now: Instant) {
        self.set.touch(index.slot(), bytes, now);
    }

    /// Counts packets of a live record's flow that the offload forwarded. Sets `now` as the time of the last
    /// packet.
    pub fn touch_many(&mut self, index: FlowIndex, packets: u64, bytes: u64, now: Instant) {
        self.set.touch_many(index.slot(), packets, bytes, now);
    }

    /// Inserts a record on probation, without a packet: [`touch`](Self::touch) counts the first packet, too.
    /// If there is a record of this key and variant already, only its answer changes.
    ///
    /// A full table may displace another record, which [`pop_removed`](Self::pop_removed) then returns.
    ///
    /// # Errors
    /// [`Full`]. The table counts each refusal.
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

    /// Inserts a record like [`insert`](Self::insert). The caller must know that the table has no record of
    /// this key and variant; otherwise lookups would find only one of both records.
    ///
    /// # Errors
    /// [`Full`]. The table counts each refusal.
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

    /// Ensures that a slot and a bucket entry are free for one more record.
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

    /// Doubles the capacity, up to the maximum. Returns `false` if the table is at the maximum.
    fn grow(&mut self) -> bool {
        if self.capacity == self.maximum {
            return false;
        }
        self.capacity = self.capacity.saturating_mul(2).min(self.maximum);
        self.set.buckets.double();
        true
    }

    /// Ends the record at `index`. Returns `false` if it had ended before.
    pub fn remove(&mut self, index: FlowIndex) -> bool {
        let live = self.record(index).is_live();
        if live {
            self.set.end(index.slot(), RemovalReason::Removed);
        }
        live
    }

    /// Frees the slot of the record that ended first, and returns a copy of the record; `None` if no ended
    /// record is left.
    #[inline]
    pub fn pop_removed(&mut self) -> Option<RemovedFlow> {
        self.set.pop_ended(self.now)
    }

    /// Does a bounded part of the work between batches: splits buckets, and ends expired records. Visits
    /// about `budget` records at most, and ends at most 128, so notifying plugins of these ends takes little
    /// time. Returns whether more work is due, which a worker without packets can do at once.
    pub fn maintain(&mut self, now: Instant, budget: usize) -> bool {
        self.now = self.now.max(now);
        let splits = u32::try_from(budget / SPLIT_COST).unwrap_or(u32::MAX);
        let budget = budget - SPLIT_COST * self.set.split_buckets(splits) as usize;
        self.expiry.expire(&mut self.set, self.now, budget);
        self.set.buckets.wants_split() || self.expiry.is_due(&self.set, self.now)
    }
}
