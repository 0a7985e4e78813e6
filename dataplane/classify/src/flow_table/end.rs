//! The end of records: by command and by time, and their return to the caller.

use std::time::Duration;

use millrace_memory::prefetch_slice_element;
use millrace_packet::FlowKey;
use millrace_units::Instant;

use super::record::{LIVE, PROBATION, tick, ticks, ticks_since};
use super::{FlowAnswer, FlowIndex, FlowTable};

/// Maximum number of records that end in one step.
pub(super) const ENDS_AT_ONCE: usize = 128;

/// Reason for the end of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum RemovalReason {
    /// [`FlowTable::remove`] removed the record.
    Removed,
    /// A new flow took the record's place.
    Recycled,
    /// No packet arrived for the idle time.
    Expired,
}

impl RemovalReason {
    fn from_code(code: u8) -> Self {
        [Self::Removed, Self::Recycled, Self::Expired][usize::from(code) % 3]
    }
}

/// Copy of a record that ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemovedFlow {
    /// Index of the record. After the next [`insert`](FlowTable::insert) it may name another record.
    pub index: FlowIndex,
    /// Flow key of the record.
    pub key: FlowKey,
    /// Number of the record among the flow's records: 0 for the base record.
    pub variant: u32,
    /// Last answer that the pipeline stored.
    pub answer: FlowAnswer,
    /// Word that the pipeline stored for plugin state.
    pub state: u32,
    /// Number of packets of the flow.
    pub packets: u64,
    /// Number of bytes of the flow's packets.
    pub bytes: u64,
    /// Time at which the record was made.
    pub created: Instant,
    /// Time of the flow's last packet, with a resolution of 17 ms.
    pub last_used: Instant,
    /// Whether the record belonged to a reservation.
    pub reserved: bool,
    /// Reason for the record's end.
    pub reason: RemovalReason,
}

/// Cyclic scan for expired records. It visits all slots four times in the idle time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sweep {
    /// Next slot to visit.
    slot: u32,
    /// Number of slots that are due for a visit.
    due: u32,
    /// Fraction of a due slot, in units of 1/`round`.
    remainder: u64,
    /// Coarse time up to which `due` is computed.
    tick: u32,
    /// Number of ticks in which the scan visits every slot once.
    round: u32,
}

impl Sweep {
    pub fn new(idle: Duration) -> Self {
        Self { slot: 1, due: 0, remainder: 0, tick: 0, round: ticks(idle / 4).max(1) }
    }

    /// Adds the slots that are due by `tick`: at most all of `slots`.
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
    /// Ends the record at `index`; returns false if it had ended before.
    pub fn remove(&mut self, index: FlowIndex) -> bool {
        let live = self.record(index).is_live();
        if live {
            self.end(index.slot(), RemovalReason::Removed);
        }
        live
    }

    /// Returns the next ended record, in the order of their ends, and frees its slot; `None` if none is left.
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

    /// Prefetches all parts of the record in `slot`.
    pub(super) fn fetch_all(&self, slot: u32) {
        self.records.prefetch(slot);
        self.records.prefetch_far(slot);
        prefetch_slice_element(&self.upkeep, slot as usize);
    }

    /// Does a bounded part of the work between batches: splits of buckets, and expiry of records. Visits
    /// about `budget` records at most. Ends at most `ENDS_AT_ONCE` of them, so that the notification of
    /// plugins stays short. Returns whether more work is due, for a worker that has time.
    pub fn maintain(&mut self, now: Instant, budget: usize) -> bool {
        self.note_time(now);
        let budget = self.split_within(budget);
        let ended = self.expire_on_probation(budget.min(ENDS_AT_ONCE));
        self.sweep.advance(tick(self.now), self.fresh - 1);
        self.expire_swept(budget - ended, ENDS_AT_ONCE - ended);
        self.buckets.wants_split() || self.sweep.due > 0 || self.oldest_has_expired()
    }

    /// Splits buckets, at a cost of 32 each; returns the rest of the budget.
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

    /// Ends at most `most` records that got no second packet in time; returns their number.
    fn expire_on_probation(&mut self, most: usize) -> usize {
        let mut ended = 0;
        while ended < most && self.oldest_has_expired() {
            self.end(self.probation.first(), RemovalReason::Expired);
            ended += 1;
        }
        ended
    }

    /// Visits at most `budget` due slots, and stops after `ends` records have ended.
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

    /// Removes a live record from the table, and adds it to the list of ended records.
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
