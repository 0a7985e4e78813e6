//! Timing wheel: finds the connections whose idle time may be over.
//!
//! The wheel is hierarchical (Varghese and Lauck, SOSP 1987, scheme 7): three levels of 64 slots, with ticks
//! of 250 ms, 16 s and 17 min. A packet only stores the new end of the idle time in its record; the record
//! moves when its slot comes up. So a packet costs the wheel nothing, unless the end comes *earlier* than the
//! slot.

use std::time::Duration;

use millrace_memory::HugeSlice;
use millrace_units::Instant;

use super::list::List;
use crate::record::{Membership, Record};

/// Nanoseconds of a tick.
const TICK: u64 = 250_000_000;
/// Binary logarithm of the slots of a level.
const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
const LEVELS: usize = 3;
/// Largest number of ticks that the wheel can hold, about 18 hours. A record with a longer time moves then.
const MOST_TICKS: u32 = (1 << (BITS * LEVELS as u32)) - SLOTS as u32;
/// Largest number of ticks of an idle time, about 8 years; longer times are cut.
const LONGEST: u64 = 1 << 30;

/// Returns the tick of an instant.
#[inline]
pub(super) fn tick(now: Instant) -> u32 {
    (now.as_nanos() / TICK) as u32
}

/// Returns the tick at which a duration that begins now is over.
#[inline]
pub(super) fn tick_after(now: Instant, duration: Duration) -> u32 {
    let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let ticks = nanoseconds.div_ceil(TICK).min(LONGEST);
    tick(now).wrapping_add(ticks as u32).wrapping_add(1)
}

/// Returns the instant of a tick.
pub(super) fn instant(tick: u32) -> Instant {
    Instant::from_nanos(u64::from(tick) * TICK)
}

/// Returns whether a tick comes after another one.
#[inline]
pub(super) fn is_after(tick: u32, other: u32) -> bool {
    tick.wrapping_sub(other) as i32 > 0
}

/// Timing wheel.
#[derive(Debug)]
pub(super) struct Wheel {
    levels: [[List; SLOTS]; LEVELS],
    /// Tick up to which all slots have come up.
    now: u32,
}

impl Wheel {
    pub fn new(now: Instant) -> Self {
        Self { levels: [[List::default(); SLOTS]; LEVELS], now: tick(now) }
    }

    /// Adds a record, for the tick in its `expires`, or for the last tick of the wheel before it.
    #[inline]
    pub fn add(&mut self, records: &mut HugeSlice<Record>, slot: u32) {
        let expires = records[slot as usize].expires;
        let ticks = if is_after(expires, self.now) { expires.wrapping_sub(self.now) } else { 1 };
        let due = self.now.wrapping_add(ticks.min(MOST_TICKS));
        let ahead = (due ^ self.now) | 1;
        let level = (ahead.ilog2() / BITS).min(LEVELS as u32 - 1);
        let spoke = (due >> (BITS * level)) as usize % SLOTS;
        records[slot as usize].spoke = (level as usize * SLOTS + spoke) as u8;
        self.levels[level as usize][spoke].push(records, Membership::Wheel, slot);
    }

    /// Removes a record.
    #[inline]
    pub fn remove(&mut self, records: &mut HugeSlice<Record>, slot: u32) {
        let spoke = usize::from(records[slot as usize].spoke);
        self.levels[spoke / SLOTS][spoke % SLOTS].remove(records, Membership::Wheel, slot);
    }

    /// Returns the next record whose idle time is over by `now`, and removes it from the wheel. Moves records
    /// whose slots have come up, and decreases `budget` by one for each record and each tick. Returns `None`
    /// if the budget is used up.
    pub fn expired(
        &mut self,
        records: &mut HugeSlice<Record>,
        now: Instant,
        budget: &mut u32,
    ) -> Option<u32> {
        let until = tick(now);
        while *budget > 0 {
            *budget -= 1;
            let spoke = self.now as usize % SLOTS;
            if let Some(slot) = self.levels[0][spoke].first() {
                self.levels[0][spoke].remove(records, Membership::Wheel, slot);
                if !is_after(records[slot as usize].expires, self.now) {
                    return Some(slot);
                }
                self.add(records, slot);
            } else if let Some((level, spoke)) = self.cascade() {
                if let Some(slot) = self.levels[level][spoke].first() {
                    self.levels[level][spoke].remove(records, Membership::Wheel, slot);
                    self.add_now(records, slot);
                }
            } else if is_after(until, self.now) {
                self.now = self.now.wrapping_add(1);
            } else {
                return None;
            }
        }
        None
    }

    /// Returns the slot of a higher level that has come up, and still has records.
    fn cascade(&self) -> Option<(usize, usize)> {
        (1..LEVELS).find_map(|level| {
            let below = BITS * level as u32;
            let spoke = (self.now >> below) as usize % SLOTS;
            let is_up = self.now & ((1 << below) - 1) == 0;
            (is_up && self.levels[level][spoke].first().is_some()).then_some((level, spoke))
        })
    }

    /// Adds a record of a slot that has come up; a record that is due now goes to the slot of this tick.
    fn add_now(&mut self, records: &mut HugeSlice<Record>, slot: u32) {
        if is_after(records[slot as usize].expires, self.now) {
            return self.add(records, slot);
        }
        let spoke = self.now as usize % SLOTS;
        records[slot as usize].spoke = spoke as u8;
        self.levels[0][spoke].push(records, Membership::Wheel, slot);
    }
}
