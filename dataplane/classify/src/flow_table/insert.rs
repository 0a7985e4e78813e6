//! Insertion of records, with growth and recycling.

use millrace_packet::FlowKey;
use millrace_units::Instant;

use super::record::{
    FLAG_BITS, FarKey, FarRecord, FlowRecord, LIVE, NearKey, PROBATION, Upkeep, tick, ticks_since,
};
use super::{FlowAnswer, FlowIndex, FlowTable, PROBATION_SHARE, RemovalReason, SAMPLE};

/// Maximum number of slots that a search for a record to recycle visits.
const LOOK_AT: u32 = 256;
/// Number of groups that the table splits with each new record while it grows.
const SPLITS: u32 = 1;

/// Reason why a flow gets no record. The worker can forward its packets without one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Full {
    /// The table has its maximum of records, and all records that the search visited are reserved or
    /// stateful. A search visits 256 slots; the next search continues after them.
    #[error("the flow table is full, and all records that a search visited are reserved or stateful")]
    Protected,
    /// Too many ended records wait for [`FlowTable::pop_removed`].
    #[error("too many ended flow records wait to be read")]
    Unread,
    /// 64 reserved or stateful records have hashes of the same group of buckets, and the overflow is full.
    #[error("no room for the flow record: too many reserved or stateful records have a similar hash")]
    Collisions,
}

impl FlowTable {
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
        self.note_time(now);
        let hash = self.hash.with_variant(hash, variant);
        self.make_room(hash)?;
        let slot = self.take_slot().ok_or(Full::Unread)?;
        *self.records.far_mut(slot) = FarRecord { key: FarKey::of(key), hash };
        self.upkeep[slot as usize] =
            Upkeep { created: now.as_nanos(), previous: 0, next: 0, packets_high: 0, reason: 0 };
        let used = tick(now) << FLAG_BITS | LIVE | PROBATION;
        let key = NearKey::of(key);
        self.records[slot] = FlowRecord { key, variant, answer, used, state: 0, packets: 0, bytes: 0 };
        let entered = self.buckets.insert(hash, slot);
        debug_assert!(entered, "there was room in the buckets");
        self.probation.push_back(&mut self.upkeep, slot);
        self.live += 1;
        self.counts.inserted += 1;
        self.split_buckets(SPLITS);
        FlowIndex::from_slot(slot).ok_or(Full::Unread)
    }

    /// Ensures that one more record has a slot and a bucket entry.
    fn make_room(&mut self, hash: u64) -> Result<(), Full> {
        if self.free.first() == 0 && self.fresh >= self.records.len() {
            self.counts.refused_unread += 1;
            return Err(Full::Unread);
        }
        if self.live >= self.capacity && !self.grow() {
            self.recycle()?;
        }
        if !self.buckets.has_room(hash) {
            self.recycle_colliding(hash)?;
        }
        Ok(())
    }

    /// Doubles the capacity, up to the maximum; returns false if the table is at the maximum.
    fn grow(&mut self) -> bool {
        if self.capacity == self.maximum {
            return false;
        }
        self.capacity = self.capacity.saturating_mul(2).min(self.maximum);
        self.buckets.double();
        true
    }

    /// Makes up to `count` of the wanted splits; returns the number made.
    pub(super) fn split_buckets(&mut self, count: u32) -> u32 {
        let Self { buckets, records, .. } = self;
        let mut made = 0;
        while made < count && buckets.wants_split() {
            buckets.split(|slot| records.far(slot).hash, |slot| records.prefetch_far(slot));
            made += 1;
        }
        made
    }

    fn take_slot(&mut self) -> Option<u32> {
        self.free.pop_front(&mut self.upkeep).or_else(|| {
            let slot = self.fresh;
            (slot < self.records.len()).then(|| {
                self.fresh += 1;
                slot
            })
        })
    }

    /// Recycles a record for a new one. If probation has its share, recycles the oldest record on probation,
    /// else about the least recently used record.
    fn recycle(&mut self) -> Result<(), Full> {
        let has_share = self.probation.len() >= (self.maximum / PROBATION_SHARE).max(1);
        let unused = if has_share { None } else { self.least_recently_used() };
        match (unused, self.probation.first()) {
            (Some(slot), _) => self.end(slot, RemovalReason::Recycled),
            (None, 0) => {
                self.counts.refused_protected += 1;
                return Err(Full::Protected);
            }
            (None, oldest) => {
                self.end(oldest, RemovalReason::Recycled);
                self.fetch_oldest();
            }
        }
        Ok(())
    }

    /// Prefetches the bucket of the oldest record on probation, and all parts of the next one. Their
    /// recycling will need both.
    fn fetch_oldest(&self) {
        let oldest = self.probation.first();
        if oldest != 0 {
            self.prefetch(self.records.far(oldest).hash);
            self.fetch_all(self.upkeep[oldest as usize].next);
        }
    }

    /// Returns the least recently used of the next [`SAMPLE`] records that may be recycled and are off
    /// probation; `None` if the search finds no such record.
    fn least_recently_used(&mut self) -> Option<u32> {
        let (mut oldest, mut seen) = (None, 0);
        for _ in 0..LOOK_AT.min(self.fresh) {
            self.hand = if self.hand + 1 >= self.fresh { 1 } else { self.hand + 1 };
            let record = &self.records[self.hand];
            if !record.may_go() || record.is_on_probation() {
                continue;
            }
            let age = ticks_since(self.now, record.used);
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

    /// Recycles a record of the group of buckets of `hash`: one on probation, else the least recently used.
    /// Random hashes practically never lead here: the group and the overflow would have to be full.
    #[cold]
    fn recycle_colliding(&mut self, hash: u64) -> Result<(), Full> {
        let rank = |slot: &u32| {
            let record = &self.records[*slot];
            let age = self.now.as_nanos().saturating_sub(self.upkeep[*slot as usize].created);
            match record.is_on_probation() {
                true => (true, age),
                false => (false, u64::from(ticks_since(self.now, record.used))),
            }
        };
        let candidates = self.buckets.rivals_of(hash).filter(|&slot| self.records[slot].may_go());
        match candidates.max_by_key(rank) {
            Some(slot) => {
                self.end(slot, RemovalReason::Recycled);
                Ok(())
            }
            None => {
                self.counts.refused_collisions += 1;
                Err(Full::Collisions)
            }
        }
    }
}
