//! Eviction: chooses the record that makes room for a new one.

use millrace_units::Instant;

use super::error::Full;
use super::record_set::RecordSet;
use super::removal::RemovalReason;
use super::storage::Slots;
use super::storage::record::ticks_since;

/// Determines the share of the probation: the table's maximum number of records, divided by this number.
pub(super) const PROBATION_SHARE: u32 = 8;
/// Number of records off probation among which eviction chooses the least recently used one. Used as long as
/// the number of records on probation is below their share.
pub(super) const SAMPLE: usize = 24;
/// Maximum number of slots that eviction visits in search of records off probation.
const LOOK_AT: u32 = 256;

/// Eviction from a full table.
#[derive(Debug)]
pub(super) struct Eviction {
    /// Share of the probation, as a number of records. While at least so many records are on probation, new
    /// flows displace only records on probation.
    share: u32,
    /// Slot behind which the next search begins.
    hand: u32,
}

impl Eviction {
    /// Creates the eviction for a table with at most `maximum` records.
    pub fn new(maximum: u32) -> Self {
        Self { share: (maximum / PROBATION_SHARE).max(1), hand: 1 }
    }

    /// Ends a record to make room for a new one. If the number of records on probation has reached `share`,
    /// ends the oldest of them. Otherwise ends approximately the least recently used record off probation, or
    /// the oldest one on probation if the search finds none.
    ///
    /// # Errors
    /// [`Full::Protected`] if no record is on probation and the search finds no record that may be displaced.
    pub fn recycle(&mut self, set: &mut RecordSet, now: Instant) -> Result<(), Full> {
        let has_share = set.probation().len() >= self.share;
        let unused = if has_share { None } else { self.least_recently_used(&set.slots, now) };
        if let Some(slot) = unused {
            set.end(slot, RemovalReason::Recycled);
            return Ok(());
        }
        let oldest = set.probation().oldest().ok_or(Full::Protected)?;
        set.end(oldest, RemovalReason::Recycled);
        prefetch_oldest(set);
        Ok(())
    }

    /// Returns the least recently used among the next [`SAMPLE`] records that are off probation and may be
    /// displaced. `None` if the search finds no such record.
    fn least_recently_used(&mut self, slots: &Slots, now: Instant) -> Option<u32> {
        let (mut oldest, mut seen) = (None, 0);
        for _ in 0..LOOK_AT.min(slots.end()) {
            self.hand = if self.hand + 1 >= slots.end() { 1 } else { self.hand + 1 };
            let record = &slots.records[self.hand];
            if !record.may_go() || record.is_on_probation() {
                continue;
            }
            let age = ticks_since(now, record.used);
            if oldest.is_none_or(|(most, _)| age > most) {
                oldest = Some((age, self.hand));
            }
            seen += 1;
            if seen == SAMPLE {
                break;
            }
        }
        oldest.map(|(_, slot)| slot)
    }
}

/// Prefetches memory for the next evictions: the bucket of the oldest record on probation, and all parts of
/// the second oldest record.
fn prefetch_oldest(set: &RecordSet) {
    if let Some(oldest) = set.probation().oldest() {
        set.buckets.prefetch(set.buckets.home(set.slots.records.far(oldest).hash));
        set.slots.prefetch(set.slots.upkeep[oldest as usize].next);
    }
}

/// Ends a record in the group of buckets of `hash` or in the overflow: the oldest one on probation, otherwise
/// the least recently used one. Called only if the group and the overflow are full, which practically never
/// happens with random hashes.
///
/// # Errors
/// [`Full::Collisions`] if none of these records may be displaced.
#[cold]
pub(super) fn recycle_colliding(set: &mut RecordSet, hash: u64, now: Instant) -> Result<(), Full> {
    let slots = &set.slots;
    let rank = |slot: &u32| {
        let record = &slots.records[*slot];
        let age = now.as_nanos().saturating_sub(slots.upkeep[*slot as usize].created);
        match record.is_on_probation() {
            true => (true, age),
            false => (false, u64::from(ticks_since(now, record.used))),
        }
    };
    let candidates = set.buckets.rivals_of(hash).filter(|&slot| slots.records[slot].may_go());
    let slot = candidates.max_by_key(rank).ok_or(Full::Collisions)?;
    set.end(slot, RemovalReason::Recycled);
    Ok(())
}
