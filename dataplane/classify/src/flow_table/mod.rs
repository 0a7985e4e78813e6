//! The flow table: what was found out about a flow when its first packet came, for all packets that follow.
//!
//! A table belongs to one thread. A record is 128 bytes in arrays that never move; [`Buckets`] find it by a keyed
//! [hash](FlowTable::hash), with one further cache line read per lookup. A packet reads and writes one line of the
//! record, and one of IPv6 reads half of another near it. The flows of a batch are [found](FlowTable::find_batch)
//! together, by the widest vectors that the processor has. Nothing is allocated after the table was made; memory is
//! mapped for the maximum, and taken at once or as records need it.
//!
//! **Growth.** The table takes `initial` records, and twice as many each time they are used up, to `maximum`. Records
//! stay where they are. The buckets are split group by group, one with each new record and more in
//! [`maintain`](FlowTable::maintain), so that no call does more than a bounded piece of it.
//!
//! **Probation.** A new record is on probation until its flow's second packet. When the maximum is reached, a new
//! flow recycles the oldest record on probation: those are kept in order, so this is exact. So a flood of new flows
//! displaces no others, once a [share](PROBATION_SHARE) of the records is on probation. As long as it is less, the least
//! recently used of the others is recycled, approximately: of the next [`SAMPLE`] records behind a hand that goes round, the one
//! whose last packet is oldest (sampled LRU, with a sample that moves on). Without a share of their own, new flows that
//! come between each other's packets would end each other before their second ones, in a table full of old flows (as in
//! 2Q: Johnson and Shasha, VLDB 1994). Reserved records are never recycled, and records with state not once they are off probation: a
//! flood of flows that an instance keeps state for displaces no other flow's state. Like all others they expire when
//! no packet came for the idle time.
//!
//! **The end of a record.** However a record ends, it leaves the table at once and waits, whole, until
//! [`pop_removed`](FlowTable::pop_removed) gives it out: each exactly once. Its place is used again only after that.
//! So a [`FlowIndex`] names the same record, with the same answer, from when it was found until its end was read; who
//! reads ends between batches can keep indexes through a batch whatever is inserted meanwhile. If ends aren't read,
//! new flows are [refused](Full::Unread) once [`UNREAD`] more records than the maximum are held.

mod batch_search;
mod buckets;
mod end;
mod hash;
mod insert;
mod list;
mod lookup;
mod meeting;
mod overflow;
mod record;
mod records;
#[cfg(test)]
mod tests;

use std::time::Duration;

use millrace_memory::{HugeSlice, MemoryError};
use millrace_packet::FlowKey;
use millrace_units::Instant;

use self::buckets::Buckets;
use self::end::Sweep;
pub use self::end::{RemovalReason, RemovedFlow};
use self::hash::FlowHash;
pub use self::hash::flow_hash;
pub use self::insert::Full;
use self::list::List;
pub use self::meeting::{Meeting, Sought};
pub use self::record::{FlowAnswer, FlowIndex, FlowRecord, NearKey};
use self::record::{LIVE, PROBATION, RESERVED, Upkeep};
use self::records::Records;

/// Records that may wait for [`FlowTable::pop_removed`] while the table is full, without new flows being refused.
pub const UNREAD: u32 = 4096;
/// One part in so many of the maximum is for records on probation.
pub const PROBATION_SHARE: u32 = 8;
/// Records of which the least recently used is recycled when none is on probation.
pub const SAMPLE: usize = 24;
/// The most records that a table can be made for.
pub const LARGEST: u32 = 1 << 24;

/// For how many records a group of buckets is made: when all are used it has 32 entries of 64, on average. By
/// Poisson's law one table of a million records in 150 then has a group that lacks a place (see [`overflow`]), and an
/// entry in 1,000 isn't at home.
const RECORDS_PER_GROUP: u32 = 32;

/// What a [`FlowTable`] is made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowTableConfig {
    /// Records at first: 1 to `maximum`. 1,024 by default.
    pub initial: u32,
    /// Records at most: up to [`LARGEST`]. A million by default: they take 136 MiB when all are used.
    pub maximum: u32,
    /// How long a record is kept without a packet; up to 26 days, in steps of 17 ms. 30 s by default. It ends after
    /// at most five quarters of this time, if [`FlowTable::maintain`] gets on.
    pub idle: Duration,
    /// How long after it was made a record without a second packet ends. 5 s by default.
    pub probation_idle: Duration,
    /// Whether memory for `maximum` records is taken when the table is made. If not it is taken as records need it,
    /// and about one new record in 30,000 waits for the kernel to clear a huge page, a few tenths of a millisecond.
    pub populate: bool,
    /// Drawn at random when the router starts, so that nobody can choose flows whose keys collide.
    pub seed: u64,
}

impl Default for FlowTableConfig {
    fn default() -> Self {
        let (idle, probation_idle) = (Duration::from_secs(30), Duration::from_secs(5));
        Self { initial: 1024, maximum: 1 << 20, idle, probation_idle, populate: false, seed: 0 }
    }
}

/// Why a table can't be made.
#[derive(Debug, thiserror::Error)]
pub enum FlowTableError {
    /// The numbers of records make no sense.
    #[error(
        "a flow table of {initial} to {maximum} records: it takes 1 to {LARGEST}, first the smaller number"
    )]
    Size {
        /// Records at first.
        initial: u32,
        /// Records at most.
        maximum: u32,
    },
    /// There is no memory for it.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// What became of records, and why new ones were refused, since the table was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowTableCounts {
    /// Records made.
    pub inserted: u64,
    /// Records on probation that were recycled.
    pub recycled_on_probation: u64,
    /// Others that were recycled.
    pub recycled: u64,
    /// Records that saw no packet for too long.
    pub expired: u64,
    /// Records that were removed by [`FlowTable::remove`].
    pub removed: u64,
    /// Records refused by [`Full::Protected`].
    pub refused_protected: u64,
    /// Records refused by [`Full::Unread`].
    pub refused_unread: u64,
    /// Records refused by [`Full::Collisions`].
    pub refused_collisions: u64,
}

/// The table. See the module's description for what it guarantees.
#[derive(Debug)]
pub struct FlowTable {
    hash: FlowHash,
    buckets: Buckets,
    records: Records,
    upkeep: HugeSlice<Upkeep>,
    maximum: u32,
    capacity: u32,
    live: u32,
    /// The first slot that was never used; slot 0 is none.
    fresh: u32,
    /// Slots given back, the last one first.
    free: List,
    /// Records on probation, the oldest first.
    probation: List,
    /// Records that ended and weren't read, the first one first.
    ended: List,
    /// The latest moment that the table was told.
    now: Instant,
    idle_ticks: u32,
    probation_idle: Duration,
    sweep: Sweep,
    /// Where the next sample for recycling begins.
    hand: u32,
    counts: FlowTableCounts,
}

impl FlowTable {
    /// An empty table.
    ///
    /// # Errors
    /// [`FlowTableError`] when sizes are out of range or the kernel maps no memory.
    pub fn new(config: FlowTableConfig) -> Result<Self, FlowTableError> {
        let FlowTableConfig { initial, maximum, .. } = config;
        if initial == 0 || initial > maximum || maximum > LARGEST {
            return Err(FlowTableError::Size { initial, maximum });
        }
        let slots = maximum + UNREAD + 1;
        let doublings = maximum.div_ceil(initial).next_power_of_two().ilog2();
        let groups = initial.div_ceil(RECORDS_PER_GROUP).next_power_of_two();
        let mut buckets = Buckets::new(groups, doublings, slots)?;
        let mut records = Records::new(slots)?;
        let mut upkeep = HugeSlice::new("flow records", slots as usize)?;
        if config.populate {
            buckets.populate()?;
            records.populate()?;
            upkeep.populate("flow records")?;
        }
        Ok(Self {
            hash: FlowHash::new(config.seed),
            buckets,
            records,
            upkeep,
            maximum,
            capacity: initial,
            live: 0,
            fresh: 1,
            free: List::default(),
            probation: List::default(),
            ended: List::default(),
            now: Instant::ZERO,
            idle_ticks: record::ticks(config.idle),
            probation_idle: config.probation_idle,
            sweep: Sweep::new(config.idle),
            hand: 1,
            counts: FlowTableCounts::default(),
        })
    }

    /// Records that are found.
    #[inline]
    pub fn len(&self) -> u32 {
        self.live
    }

    /// Whether none is.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Records that there may be before the table grows or recycles.
    #[inline]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Records that there may be at most.
    #[inline]
    pub fn maximum(&self) -> u32 {
        self.maximum
    }

    /// Records on probation.
    #[inline]
    pub fn on_probation(&self) -> u32 {
        self.probation.len()
    }

    /// Records that ended and weren't read yet.
    #[inline]
    pub fn unread(&self) -> u32 {
        self.ended.len()
    }

    /// What happened so far.
    #[inline]
    pub fn counts(&self) -> FlowTableCounts {
        self.counts
    }

    /// The record at `index`, also when it ended and wasn't read yet.
    ///
    /// # Panics
    /// With an index of another, larger table.
    #[inline(always)]
    pub fn record(&self, index: FlowIndex) -> &FlowRecord {
        &self.records[index.slot()]
    }

    /// The answer of the record at `index`, to be changed.
    #[inline(always)]
    pub fn answer_mut(&mut self, index: FlowIndex) -> &mut FlowAnswer {
        &mut self.records[index.slot()].answer
    }

    /// The flow's key.
    #[inline]
    pub fn key(&self, index: FlowIndex) -> FlowKey {
        self.record(index).key.whole(self.records.far(index.slot()).key)
    }

    /// Packets of the flow so far.
    #[inline]
    pub fn packets(&self, index: FlowIndex) -> u64 {
        let high = self.upkeep[index.slot() as usize].packets_high;
        u64::from(self.record(index).packets) | u64::from(high) << 32
    }

    /// When the record was made.
    #[inline]
    pub fn created(&self, index: FlowIndex) -> Instant {
        Instant::from_nanos(self.upkeep[index.slot() as usize].created)
    }

    /// When its last packet came, to 17 ms.
    #[inline]
    pub fn last_used(&self, index: FlowIndex) -> Instant {
        record::last_used(self.now, self.record(index).used).max(self.created(index))
    }

    /// The word that the pipeline keeps with the record, for what plugins know of the flow; 0, for nothing, at first.
    #[inline]
    pub fn state(&self, index: FlowIndex) -> u32 {
        self.record(index).state
    }

    /// Sets that word. A record with one that isn't 0 has state that must not be lost: off probation, it is never recycled.
    #[inline]
    pub fn set_state(&mut self, index: FlowIndex, state: u32) {
        self.records[index.slot()].state = state;
    }

    /// Says whether the record belongs to a reservation. One that does is on probation no longer.
    pub fn set_reserved(&mut self, index: FlowIndex, reserved: bool) {
        let slot = index.slot();
        let used = &mut self.records[slot].used;
        *used = if reserved { *used | RESERVED } else { *used & !RESERVED };
        if reserved {
            self.end_probation(slot);
        }
    }

    /// Removes a live record from the probation list, if it is on probation.
    #[inline]
    fn end_probation(&mut self, slot: u32) {
        let record = &mut self.records[slot];
        if record.has(LIVE) && record.has(PROBATION) {
            record.used &= !PROBATION;
            self.probation.unlink(&mut self.upkeep, slot);
        }
    }

    /// All records, in the order of their slots.
    pub fn iter(&self) -> impl Iterator<Item = (FlowIndex, &FlowRecord)> {
        self.range(1..self.fresh)
    }

    /// The records in some slots: a part of [`iter`](Self::iter), so that a large table can be gone through in
    /// pieces. Slots from [`slots`](Self::slots) on hold none.
    pub fn range(&self, slots: std::ops::Range<u32>) -> impl Iterator<Item = (FlowIndex, &FlowRecord)> {
        let end = slots.end.min(self.fresh);
        (slots.start.min(end)..end).filter_map(|slot| {
            let record = &self.records[slot];
            FlowIndex::from_slot(slot).filter(|_| record.is_live()).map(|index| (index, record))
        })
    }

    /// One more than the largest slot that was ever used.
    #[inline]
    pub fn slots(&self) -> u32 {
        self.fresh
    }

    fn note_time(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }
}
