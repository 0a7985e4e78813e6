//! Expiry of records: those on probation end in the order of their creation, all others by a cyclic scan.

use std::time::Duration;

use millrace_units::Instant;

use super::record_set::RecordSet;
use super::removal::RemovalReason;
use super::storage::Slots;
use super::storage::record::{LIVE, PROBATION, tick, ticks, ticks_since};

/// Maximum number of records that end in one call of `expire`.
pub(super) const ENDS_AT_ONCE: usize = 128;

/// Ends a table's records that got no packet in time.
#[derive(Debug)]
pub(super) struct Expiry {
    sweep: Sweep,
    /// Idle time after which a record off probation ends, in ticks.
    idle: u32,
}

impl Expiry {
    /// Creates the expiry of a table. `idle` is the idle time of records off probation.
    pub fn new(idle: Duration) -> Self {
        Self { sweep: Sweep::new(idle), idle: ticks(idle) }
    }

    /// Ends expired records: at most [`ENDS_AT_ONCE`]. Visits about `budget` slots at most.
    pub fn expire(&mut self, set: &mut RecordSet, now: Instant, budget: usize) {
        let ended = expire_on_probation(set, now, budget.min(ENDS_AT_ONCE));
        self.sweep.advance(tick(now), set.slots.end() - 1);
        let budget = u32::try_from(budget - ended).unwrap_or(u32::MAX);
        let mut visits = self.sweep.due.min(budget);
        for _ in ended..ENDS_AT_ONCE {
            let Some(slot) = self.sweep.next(&set.slots, now, self.idle, &mut visits) else { return };
            set.end(slot, RemovalReason::Expired);
        }
    }

    /// Whether [`expire`](Self::expire) has work to do: slots are due for a visit, or a record on probation
    /// has expired.
    pub fn is_due(&self, set: &RecordSet, now: Instant) -> bool {
        self.sweep.due > 0 || set.probation().expired(&set.slots, now).is_some()
    }
}

/// Ends records that got no second packet in time, at most `most`. Returns their number.
fn expire_on_probation(set: &mut RecordSet, now: Instant, most: usize) -> usize {
    let mut ended = 0;
    while ended < most
        && let Some(slot) = set.probation().expired(&set.slots, now)
    {
        set.end(slot, RemovalReason::Expired);
        ended += 1;
    }
    ended
}

/// Cyclic scan for expired records. It visits every slot four times during the idle time.
#[derive(Clone, Copy, Debug)]
struct Sweep {
    /// Next slot to visit.
    slot: u32,
    /// Number of slots that the scan should have visited by now, and hasn't.
    due: u32,
    /// Fraction of one more slot to visit, in units of 1/`round`.
    remainder: u64,
    /// Tick up to which `due` is computed.
    tick: u32,
    /// Number of ticks in which the scan visits every slot once: a quarter of the idle time.
    round: u32,
}

impl Sweep {
    fn new(idle: Duration) -> Self {
        Self { slot: 1, due: 0, remainder: 0, tick: 0, round: ticks(idle / 4).max(1) }
    }

    /// Adds the slots that become due for a visit by `tick`. No more than all `slots` slots can be due.
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

    /// Visits up to `visits` slots, and decreases `visits` by the number of visited slots. Stops at the first
    /// record that got no packet for more than `idle` ticks, and returns its slot.
    fn next(&mut self, slots: &Slots, now: Instant, idle: u32, visits: &mut u32) -> Option<u32> {
        while *visits > 0 {
            *visits -= 1;
            self.due -= 1;
            let slot = if self.slot < slots.end() { self.slot } else { 1 };
            self.slot = slot + 1;
            let used = slots.records[slot].used;
            if used & (LIVE | PROBATION) == LIVE && ticks_since(now, used) > idle {
                return Some(slot);
            }
        }
        None
    }
}
