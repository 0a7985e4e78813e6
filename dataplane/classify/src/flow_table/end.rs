//! The end of records: by command, by time, and their way out.

use std::time::Duration;

use millrace_memory::prefetch_slice_element;
use millrace_packet::FlowKey;
use millrace_units::Instant;

use super::record::{LIVE, PROBATION, tick, ticks, ticks_since};
use super::{FlowAnswer, FlowIndex, FlowTable};

/// Records that end in one step.
pub(super) const ENDS_AT_ONCE: usize = 128;

/// Why a record ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum RemovalReason {
    /// [`FlowTable::remove`] said so.
    Removed,
    /// A new flow needed its place.
    Recycled,
    /// No packet came for too long.
    Expired,
}

impl RemovalReason {
    fn from_code(code: u8) -> Self {
        [Self::Removed, Self::Recycled, Self::Expired][usize::from(code) % 3]
    }
}

/// A record that ended, as it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemovedFlow {
    /// Where it was. The place can be another record's after the next [`insert`](FlowTable::insert).
    pub index: FlowIndex,
    /// Its key.
    pub key: FlowKey,
    /// Which of the flow's records it was: 0 for the base record.
    pub variant: u32,
    /// What the pipeline said last.
    pub answer: FlowAnswer,
    /// The word that the pipeline kept with it.
    pub state: u32,
    /// Packets of the flow.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// When it was made.
    pub created: Instant,
    /// When its last packet came, to 17 ms.
    pub last_used: Instant,
    /// Whether it belonged to a reservation.
    pub reserved: bool,
    /// Why it ended.
    pub reason: RemovalReason,
}

/// The hand that goes round all records, four times in the idle time, to find those that expired.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sweep {
    /// The slot that is looked at next.
    slot: u32,
    /// Slots still to be looked at for the time that has passed.
    due: u32,
    /// The remainder of that, in slots per `round`.
    remainder: u64,
    /// Coarse time for which `due` was reckoned.
    tick: u32,
    /// Ticks in which the hand goes round once.
    round: u32,
}

impl Sweep {
    pub fn new(idle: Duration) -> Self {
        Self { slot: 1, due: 0, remainder: 0, tick: 0, round: ticks(idle / 4).max(1) }
    }

    /// Reckons how many of `slots` are to be looked at by `tick`; never more than all.
    fn advance(&mut self, tick: u32, slots: u32) {
        let passed = tick.wrapping_sub(self.tick).min(self.round);
        if passed == 0 {
            return;
        }
        self.tick = tick;
        let slots_in_time = u64::from(slots) * u64::from(passed) + self.remainder;
        self.remainder = slots_in_time % u64::from(self.round);
        let due = u64::from(self.due) + slots_in_time / u64::from(self.round);
        self.due = due.min(u64::from(slots)) as u32;
    }
}

impl FlowTable {
    /// Ends the record at `index`; false when it ended before.
    pub fn remove(&mut self, index: FlowIndex) -> bool {
        let live = self.record(index).is_live();
        if live {
            self.end(index.slot(), RemovalReason::Removed);
        }
        live
    }

    /// The next record that ended, in the order of their ends; its place is free then.
    #[inline]
    pub fn pop_removed(&mut self) -> Option<RemovedFlow> {
        let slot = self.ended.pop_front(&mut self.upkeep)?;
        self.fetch_all(self.ended.first());
        let index = FlowIndex::from_slot(slot)?;
        let (record, upkeep) = (self.record(index), &self.upkeep[slot as usize]);
        let removed = RemovedFlow {
            index,
            key: self.key(index),
            variant: record.variant,
            answer: record.answer,
            state: record.state,
            packets: self.packets(index),
            bytes: record.bytes,
            created: self.created(index),
            last_used: self.last_used(index),
            reserved: record.is_reserved(),
            reason: RemovalReason::from_code(upkeep.reason),
        };
        self.free.push_front(&mut self.upkeep, slot);
        Some(removed)
    }

    /// Fetches all parts of the record in `slot`.
    pub(super) fn fetch_all(&self, slot: u32) {
        self.records.prefetch(slot);
        self.records.prefetch_far(slot);
        prefetch_slice_element(&self.upkeep, slot as usize);
    }

    /// A step of what has to be done between batches: growth that is under way, and records that expired. Looks at
    /// about `budget` records, at most, of which so many end that who is told of them takes no long. Returns whether more is due, for a
    /// worker that has time.
    pub fn maintain(&mut self, now: Instant, budget: usize) -> bool {
        self.note_time(now);
        let budget = self.split_within(budget);
        let ended = self.expire_on_probation(budget.min(ENDS_AT_ONCE));
        self.sweep.advance(tick(self.now), self.fresh - 1);
        self.expire_swept(budget - ended, ENDS_AT_ONCE - ended);
        self.buckets.wants_split() || self.sweep.due > 0 || self.oldest_has_expired()
    }

    /// Splits buckets, at a cost of 32 each; returns what is left of the budget.
    fn split_within(&mut self, budget: usize) -> usize {
        let most = u32::try_from(budget / 32).unwrap_or(u32::MAX);
        budget - 32 * self.split_buckets(most) as usize
    }

    fn oldest_has_expired(&self) -> bool {
        let oldest = self.probation.first();
        oldest != 0 && {
            let used = Instant::from_nanos(self.upkeep[oldest as usize].created);
            self.now >= used + self.probation_idle
        }
    }

    /// Ends so many records at most that got no second packet; returns how many.
    fn expire_on_probation(&mut self, most: usize) -> usize {
        let mut ended = 0;
        while ended < most && self.oldest_has_expired() {
            self.end(self.probation.first(), RemovalReason::Expired);
            ended += 1;
        }
        ended
    }

    /// Looks at so many records at most, until so many have ended.
    fn expire_swept(&mut self, budget: usize, mut ends: usize) {
        let steps = self.sweep.due.min(u32::try_from(budget).unwrap_or(u32::MAX));
        for _ in 0..steps {
            if ends == 0 {
                return;
            }
            self.sweep.due -= 1;
            let slot = if self.sweep.slot < self.fresh { self.sweep.slot } else { 1 };
            self.sweep.slot = slot + 1;
            let used = self.records[slot].used;
            if used & (LIVE | PROBATION) == LIVE && ticks_since(self.now, used) > self.idle_ticks {
                self.end(slot, RemovalReason::Expired);
                ends -= 1;
            }
        }
    }

    /// Takes a live record out of the table; it waits to be read.
    pub(super) fn end(&mut self, slot: u32, reason: RemovalReason) {
        let counts = &mut self.counts;
        *match reason {
            RemovalReason::Removed => &mut counts.removed,
            RemovalReason::Expired => &mut counts.expired,
            RemovalReason::Recycled if self.records[slot].is_on_probation() => {
                &mut counts.recycled_on_probation
            }
            RemovalReason::Recycled => &mut counts.recycled,
        } += 1;
        self.end_probation(slot);
        let records = &self.records;
        self.buckets.remove(records.far(slot).hash, slot, |slot| records.far(slot).hash);
        self.records[slot].used &= !LIVE;
        self.upkeep[slot as usize].reason = reason as u8;
        self.ended.push_back(&mut self.upkeep, slot);
        self.live -= 1;
    }
}
