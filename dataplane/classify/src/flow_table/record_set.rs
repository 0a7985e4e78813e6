//! Live and ended records of a table.

use millrace_packet::FlowKey;
use millrace_units::Instant;

use super::config::FlowTableConfig;
use super::counts::FlowTableCounts;
use super::error::FlowTableError;
use super::index::Buckets;
use super::lookup::Lookup;
use super::probation::Probation;
use super::removal::{RemovalReason, RemovedFlow};
use super::storage::record::{FLAG_BITS, FLAGS, FarKey, FarRecord, LIVE, PROBATION, Upkeep, tick};
use super::storage::{FlowAnswer, FlowIndex, FlowRecord, List, NearKey, Slots};

/// Maximum number of ended records of a full table that may wait for
/// [`FlowTable::pop_removed`](super::FlowTable::pop_removed). Beyond it, the table refuses new flows.
pub(super) const UNREAD: u32 = 4096;
/// Average number of records per group of buckets in a full table. A group has 64 entries, twice this number.
/// By Poisson's law, one in 150 tables of a million records then has a group that needs more than 64 entries
/// (see [`index`](super::index)). One entry in 1,000 is outside its home bucket.
const RECORDS_PER_GROUP: u32 = 32;

/// Live and ended records of a table. The buckets find only live records. Ended records wait for
/// [`pop_ended`](Self::pop_ended).
#[derive(Debug)]
pub(super) struct RecordSet {
    pub buckets: Buckets,
    pub slots: Slots,
    live: u32,
    probation: Probation,
    /// Ended records that `pop_ended` hasn't returned yet, in the order of their ends.
    ended: List,
    pub counts: FlowTableCounts,
}

impl RecordSet {
    /// Maps memory for the maximum number of records. The configuration must be valid.
    pub fn new(config: &FlowTableConfig) -> Result<Self, FlowTableError> {
        let &FlowTableConfig { initial, maximum, .. } = config;
        let slots = maximum + UNREAD + 1;
        let doublings = maximum.div_ceil(initial).next_power_of_two().ilog2();
        let groups = initial.div_ceil(RECORDS_PER_GROUP).next_power_of_two();
        let mut buckets = Buckets::new(groups, doublings, slots)?;
        let mut slots = Slots::new(slots)?;
        if config.populate {
            buckets.populate()?;
            slots.populate()?;
        }
        Ok(Self {
            buckets,
            slots,
            live: 0,
            probation: Probation::new(config.probation_idle),
            ended: List::default(),
            counts: FlowTableCounts::default(),
        })
    }

    /// Returns the number of live records.
    #[inline]
    pub fn len(&self) -> u32 {
        self.live
    }

    /// Returns the number of ended records that [`pop_ended`](Self::pop_ended) hasn't returned yet.
    #[inline]
    pub fn unread(&self) -> u32 {
        self.ended.len()
    }

    /// Returns the records on probation.
    #[inline]
    pub fn probation(&self) -> &Probation {
        &self.probation
    }

    /// Returns buckets and records, for a lookup.
    #[inline(always)]
    pub fn lookup(&self) -> Lookup<'_> {
        Lookup { buckets: &self.buckets, records: &self.slots.records }
    }

    /// Adds a record on probation. `hash` is the hash of key and variant together, and the buckets must have
    /// room for an entry of this hash. Returns `None`, and adds nothing, if no slot is free.
    #[inline(always)]
    pub fn add(
        &mut self,
        key: &FlowKey,
        hash: u64,
        variant: u32,
        answer: FlowAnswer,
        now: Instant,
    ) -> Option<FlowIndex> {
        let slot = self.slots.take()?;
        *self.slots.records.far_mut(slot) = FarRecord { key: FarKey::of(key), hash };
        self.slots.upkeep[slot as usize] =
            Upkeep { created: now.as_nanos(), previous: 0, next: 0, packets_high: 0, reason: 0 };
        let used = tick(now) << FLAG_BITS | LIVE | PROBATION;
        let key = NearKey::of(key);
        self.slots.records[slot] = FlowRecord { key, variant, answer, used, state: 0, packets: 0, bytes: 0 };
        let entered = self.buckets.insert(hash, slot);
        debug_assert!(entered, "there was room in the buckets");
        self.probation.add(&mut self.slots, slot);
        self.live += 1;
        self.counts.inserted += 1;
        FlowIndex::from_slot(slot)
    }

    /// Counts a packet of `bytes` at `now`.
    #[inline(always)]
    pub fn touch(&mut self, slot: u32, bytes: u32, now: Instant) {
        let record = &mut self.slots.records[slot];
        let used = record.used;
        record.used = tick(now) << FLAG_BITS | used & FLAGS;
        record.bytes = record.bytes.wrapping_add(u64::from(bytes));
        let (packets, carry) = record.packets.overflowing_add(1);
        record.packets = packets;
        if used & PROBATION != 0 || carry {
            self.touch_rarely(slot, carry);
        }
    }

    /// Completes the count of a packet in two rare cases. If `carry` is set, increments the upper half of the
    /// packet count. If this is the flow's second packet, ends the record's probation.
    #[cold]
    #[inline(never)]
    pub fn touch_rarely(&mut self, slot: u32, carry: bool) {
        if carry {
            let high = &mut self.slots.upkeep[slot as usize].packets_high;
            *high = high.wrapping_add(1);
        }
        if self.slots.records[slot].packets >= 2 {
            self.end_probation(slot);
        }
    }

    /// Counts several packets of a live record's flow. Sets `now` as the time of the last packet.
    pub fn touch_many(&mut self, slot: u32, packets: u64, bytes: u64, now: Instant) {
        let sum = self.slots.packets(slot).wrapping_add(packets);
        let record = &mut self.slots.records[slot];
        record.used = tick(now) << FLAG_BITS | record.used & FLAGS;
        record.bytes = record.bytes.wrapping_add(bytes);
        record.packets = sum as u32;
        self.slots.upkeep[slot as usize].packets_high = (sum >> 32) as u32;
        if sum >= 2 {
            self.end_probation(slot);
        }
    }

    /// Ends the probation of a live record, if it is on probation.
    #[inline]
    pub fn end_probation(&mut self, slot: u32) {
        self.probation.end(&mut self.slots, slot);
    }

    /// Removes a live record from the buckets, and adds it to the list of ended records.
    pub fn end(&mut self, slot: u32, reason: RemovalReason) {
        self.counts.ended(reason, self.slots.records[slot].is_on_probation());
        self.end_probation(slot);
        let records = &self.slots.records;
        self.buckets.remove(records.far(slot).hash, slot, |slot| records.far(slot).hash);
        self.slots.records[slot].used &= !LIVE;
        self.slots.upkeep[slot as usize].reason = reason as u8;
        self.ended.push_back(&mut self.slots.upkeep, slot);
        self.live -= 1;
    }

    /// Frees the slot of the record that ended first, and returns a copy of the record; `None` if no ended
    /// record is left.
    #[inline(always)]
    pub fn pop_ended(&mut self, now: Instant) -> Option<RemovedFlow> {
        let slot = self.ended.pop_front(&mut self.slots.upkeep)?;
        let slots = &mut self.slots;
        slots.prefetch(self.ended.first());
        let record = &slots.records[slot];
        let removed = RemovedFlow {
            index: FlowIndex::from_slot(slot)?,
            key: slots.key(slot),
            variant: record.variant,
            answer: record.answer,
            state: record.state,
            packets: slots.packets(slot),
            bytes: record.bytes,
            created: slots.created(slot),
            last_used: slots.last_used(slot, now),
            reserved: record.is_reserved(),
            reason: RemovalReason::from_code(slots.upkeep[slot as usize].reason),
        };
        slots.release(slot);
        Some(removed)
    }

    /// Splits up to `count` groups of buckets, if splits are due. Returns the number of splits.
    pub fn split_buckets(&mut self, count: u32) -> u32 {
        let Self { buckets, slots: Slots { records, .. }, .. } = self;
        let mut made = 0;
        while made < count && buckets.wants_split() {
            buckets.split(|slot| records.far(slot).hash, |slot| records.prefetch_far(slot));
            made += 1;
        }
        made
    }
}
