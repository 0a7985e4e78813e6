//! The flow table. A record holds the classification of a flow's first packet, for all later packets of the
//! flow.
//!
//! A table belongs to one thread. A record is 128 bytes in arrays that never move. [`Buckets`] find a record
//! by a keyed [hash](FlowTable::hash), and read one further cache line per lookup. An IPv4 packet reads and
//! writes one line of the record. An IPv6 packet also reads half of another line near it.
//! [`find_batch`](FlowTable::find_batch) finds the flows of a batch together, with the widest vectors of the
//! processor. The table allocates nothing after it was made. It maps memory for the maximum, and populates
//! that memory at once or as records need it.
//!
//! **Growth.** The table starts with room for `initial` records, and doubles it whenever it is full, up to
//! `maximum`. Records never move. The table splits buckets group by group: one with each new record, and more
//! in [`maintain`](FlowTable::maintain). So each call does a bounded part of the work.
//!
//! **Probation.** A new record is on probation until its flow's second packet. At the maximum, a new flow
//! recycles the oldest record on probation. Records on probation are kept in order, so this choice is exact.
//! Once a [share](PROBATION_SHARE) of the records is on probation, a flood of new flows displaces no
//! established flow. Below that share, the table recycles about the least recently used established record.
//! It takes the record with the oldest last packet among the next [`SAMPLE`] records after a moving index
//! (sampled LRU). Without a share for probation, interleaved new flows in a table full of old flows would
//! displace each other before their second packets (as in 2Q: Johnson and Shasha, VLDB 1994). The table never
//! recycles reserved records, nor records with state that are off probation. So a flood of flows with state
//! displaces no other flow's state. Such records expire, like all others, when no packet arrives for the idle
//! time.
//!
//! **The end of a record.** A record that ends leaves the table at once. It waits unchanged until
//! [`pop_removed`](FlowTable::pop_removed) returns it, exactly once. Only then may the table reuse its slot.
//! So a [`FlowIndex`] names the same record and answer from the lookup until `pop_removed` returns the
//! record. A worker that calls `pop_removed` between batches can keep indexes for a whole batch, whatever
//! flows it inserts meanwhile. Without these calls, the table [refuses](Full::Unread) new flows once it holds
//! [`UNREAD`] records above the maximum.

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

/// Number of ended records that may wait for [`FlowTable::pop_removed`] in a full table before it refuses new
/// flows.
pub const UNREAD: u32 = 4096;
/// Divisor of the maximum that gives the share of records on probation.
pub const PROBATION_SHARE: u32 = 8;
/// Number of records from which the table recycles the least recently used, below the share of probation.
pub const SAMPLE: usize = 24;
/// Largest maximum of records of a table.
pub const LARGEST: u32 = 1 << 24;

/// Number of records per group of buckets. A full table uses 32 of the 64 entries of a group on average. By
/// Poisson's law, one in 150 tables of a million records then has a group that needs more than 64 (see
/// [`overflow`]). One entry in 1,000 is outside its home bucket.
const RECORDS_PER_GROUP: u32 = 32;

/// Configuration of a [`FlowTable`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowTableConfig {
    /// Initial number of records: 1 to `maximum`. 1,024 by default.
    pub initial: u32,
    /// Maximum number of records: up to [`LARGEST`]. A million by default, which take 136 MiB when all are
    /// used.
    pub maximum: u32,
    /// Idle time of a record, after which it ends: up to 26 days, in steps of 17 ms. 30 s by default. If
    /// [`FlowTable::maintain`] keeps up, a record ends after at most five quarters of this time.
    pub idle: Duration,
    /// Time from the creation of a record to its end if no second packet arrives. 5 s by default.
    pub probation_idle: Duration,
    /// Whether the table populates memory for `maximum` records when it is made. If not, it populates memory
    /// as records need it. About one new record in 30,000 then waits a few tenths of a millisecond for the
    /// kernel to clear a huge page.
    pub populate: bool,
    /// Seed of the hash, drawn at random when the router starts. So no sender can choose flows whose keys
    /// collide.
    pub seed: u64,
}

impl Default for FlowTableConfig {
    fn default() -> Self {
        let (idle, probation_idle) = (Duration::from_secs(30), Duration::from_secs(5));
        Self { initial: 1024, maximum: 1 << 20, idle, probation_idle, populate: false, seed: 0 }
    }
}

/// Errors of [`FlowTable::new`].
#[derive(Debug, thiserror::Error)]
pub enum FlowTableError {
    /// The numbers of records are out of range.
    #[error(
        "flow table of {initial} to {maximum} records: both numbers must be 1 to {LARGEST}, and the first at \
         most the second"
    )]
    Size {
        /// Initial number of records.
        initial: u32,
        /// Maximum number of records.
        maximum: u32,
    },
    /// The kernel maps no memory for the table.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// Numbers of records made, ended and refused since the table was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowTableCounts {
    /// Number of records made.
    pub inserted: u64,
    /// Number of recycled records that were on probation.
    pub recycled_on_probation: u64,
    /// Number of recycled records that were off probation.
    pub recycled: u64,
    /// Number of records that expired.
    pub expired: u64,
    /// Number of records that [`FlowTable::remove`] removed.
    pub removed: u64,
    /// Number of records refused with [`Full::Protected`].
    pub refused_protected: u64,
    /// Number of records refused with [`Full::Unread`].
    pub refused_unread: u64,
    /// Number of records refused with [`Full::Collisions`].
    pub refused_collisions: u64,
}

/// Table of flow records. The module's description states its guarantees.
#[derive(Debug)]
pub struct FlowTable {
    hash: FlowHash,
    buckets: Buckets,
    records: Records,
    upkeep: HugeSlice<Upkeep>,
    maximum: u32,
    capacity: u32,
    live: u32,
    /// First slot that was never used. Slot 0 holds no record.
    fresh: u32,
    /// Released slots, the last one first.
    free: List,
    /// Records on probation, the oldest first.
    probation: List,
    /// Ended records that `pop_removed` has yet to return, the first one first.
    ended: List,
    /// Latest time that a caller passed.
    now: Instant,
    idle_ticks: u32,
    probation_idle: Duration,
    sweep: Sweep,
    /// Slot at which the next sample for recycling begins.
    hand: u32,
    counts: FlowTableCounts,
}

impl FlowTable {
    /// Returns an empty table.
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

    /// Returns the number of live records.
    #[inline]
    pub fn len(&self) -> u32 {
        self.live
    }

    /// Whether the table has no live record.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.live == 0
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
        self.probation.len()
    }

    /// Returns the number of ended records that [`pop_removed`](Self::pop_removed) has yet to return.
    #[inline]
    pub fn unread(&self) -> u32 {
        self.ended.len()
    }

    /// Returns the counts of records made, ended and refused so far.
    #[inline]
    pub fn counts(&self) -> FlowTableCounts {
        self.counts
    }

    /// Returns the record at `index`: a live one, or an ended one that `pop_removed` has yet to return.
    ///
    /// # Panics
    /// With an index of another, larger table.
    #[inline(always)]
    pub fn record(&self, index: FlowIndex) -> &FlowRecord {
        &self.records[index.slot()]
    }

    /// Returns the answer of the record at `index`, for changes.
    #[inline(always)]
    pub fn answer_mut(&mut self, index: FlowIndex) -> &mut FlowAnswer {
        &mut self.records[index.slot()].answer
    }

    /// Returns the flow key of the record.
    #[inline]
    pub fn key(&self, index: FlowIndex) -> FlowKey {
        self.record(index).key.whole(self.records.far(index.slot()).key)
    }

    /// Returns the number of packets of the flow so far.
    #[inline]
    pub fn packets(&self, index: FlowIndex) -> u64 {
        let high = self.upkeep[index.slot() as usize].packets_high;
        u64::from(self.record(index).packets) | u64::from(high) << 32
    }

    /// Returns the time at which the record was made.
    #[inline]
    pub fn created(&self, index: FlowIndex) -> Instant {
        Instant::from_nanos(self.upkeep[index.slot() as usize].created)
    }

    /// Returns the time of the flow's last packet, with a resolution of 17 ms.
    #[inline]
    pub fn last_used(&self, index: FlowIndex) -> Instant {
        record::last_used(self.now, self.record(index).used).max(self.created(index))
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
        self.records[index.slot()].state = state;
    }

    /// Sets whether the record belongs to a reservation. A reserved record is no longer on probation.
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

    /// Iterates over all live records, in the order of their slots.
    pub fn iter(&self) -> impl Iterator<Item = (FlowIndex, &FlowRecord)> {
        self.range(1..self.fresh)
    }

    /// Iterates over the live records in a range of slots. A caller can so walk a large table in pieces.
    /// Slots from [`slots`](Self::slots) on hold no record.
    pub fn range(&self, slots: std::ops::Range<u32>) -> impl Iterator<Item = (FlowIndex, &FlowRecord)> {
        let end = slots.end.min(self.fresh);
        (slots.start.min(end)..end).filter_map(|slot| {
            let record = &self.records[slot];
            FlowIndex::from_slot(slot).filter(|_| record.is_live()).map(|index| (index, record))
        })
    }

    /// Returns the largest slot ever used, plus one.
    #[inline]
    pub fn slots(&self) -> u32 {
        self.fresh
    }

    fn note_time(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }
}
