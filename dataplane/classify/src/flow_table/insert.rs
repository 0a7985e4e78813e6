//! Making records, and room for them.

use millrace_packet::FlowKey;
use millrace_units::Instant;

use super::record::{
    FLAG_BITS, FarKey, FarRecord, FlowRecord, LIVE, NearKey, PROBATION, Upkeep, tick, ticks_since,
};
use super::{FlowAnswer, FlowIndex, FlowTable, PROBATION_SHARE, RemovalReason, SAMPLE};

/// Slots that a search for a record to recycle looks at, at most.
const LOOK_AT: u32 = 256;
/// Groups of buckets that are split with each new record while the table grows.
const SPLITS: u32 = 1;

/// Why a flow gets no record. Its packets can be forwarded without one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Full {
    /// The table has its maximum of records, and those that could be recycled are all reserved or stateful. (256
    /// slots are looked at; the next call goes on where this one gave up.)
    #[error("the flow table is full of reserved and stateful records")]
    Protected,
    /// Too many records ended without having been read by [`FlowTable::pop_removed`].
    #[error("the ends of flow records are not read")]
    Unread,
    /// 64 reserved or stateful records have hashes that lead to the same buckets, and the overflow is full.
    #[error("the flow table has no room for one more reserved or stateful record of like hash")]
    Collisions,
}

impl FlowTable {
    /// Makes a record, on probation and without packets: [`touch`](Self::touch) counts the first one, too. A record
    /// of that key and variant that is there already gets the new answer, and nothing else happens to it.
    ///
    /// When the table is full another record may be recycled, which [`pop_removed`](Self::pop_removed) tells then.
    ///
    /// # Errors
    /// [`Full`], counted.
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

    /// As [`insert`](Self::insert), for who has just seen that there is no such record: a second one would never be found.
    ///
    /// # Errors
    /// [`Full`], counted.
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

    /// Sees to it that there is a slot and an entry for one more record.
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

    /// Doubles the capacity, up to the maximum; false when that is reached.
    fn grow(&mut self) -> bool {
        if self.capacity == self.maximum {
            return false;
        }
        self.capacity = self.capacity.saturating_mul(2).min(self.maximum);
        self.buckets.double();
        true
    }

    /// Makes up to `count` of the splits that are wanted; returns how many it made.
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

    /// Ends a record for a new one: the oldest on probation where these have their share, else about the least recently
    /// used.
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

    /// Fetches what recycling the record that is now the oldest on probation needs, and half of what the next one
    /// needs.
    fn fetch_oldest(&self) {
        let oldest = self.probation.first();
        if oldest != 0 {
            self.prefetch(self.records.far(oldest).hash);
            self.fetch_all(self.upkeep[oldest as usize].next);
        }
    }

    /// The least recently used of the next [`SAMPLE`] records that may be recycled and are not on probation.
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

    /// Ends a record of the group of buckets that `hash` leads to: on probation if there is one, else the least
    /// recently used. With random hashes no table sees it: the group and the overflow would have to be full.
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
