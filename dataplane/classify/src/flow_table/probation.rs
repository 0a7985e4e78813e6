//! Records on probation, in the order of their creation.

use std::time::Duration;

use millrace_units::Instant;

use super::storage::record::{LIVE, PROBATION};
use super::storage::{List, Slots};

/// List of the records on probation, the oldest first.
#[derive(Debug)]
pub(super) struct Probation {
    list: List,
    /// Time after which a record ends if no second packet has arrived.
    idle: Duration,
}

impl Probation {
    /// Creates an empty list. Its records expire `idle` after their creation.
    pub fn new(idle: Duration) -> Self {
        Self { list: List::default(), idle }
    }

    /// Returns the number of records on probation.
    #[inline]
    pub fn len(&self) -> u32 {
        self.list.len()
    }

    /// Returns the slot of the oldest record; `None` if no record is on probation.
    #[inline]
    pub fn oldest(&self) -> Option<u32> {
        let oldest = self.list.first();
        (oldest != 0).then_some(oldest)
    }

    /// Returns the slot of the oldest record if it has expired.
    pub fn expired(&self, slots: &Slots, now: Instant) -> Option<u32> {
        self.oldest().filter(|&oldest| now >= slots.created(oldest) + self.idle)
    }

    /// Appends a new record. The caller sets its flag for probation.
    pub fn add(&mut self, slots: &mut Slots, slot: u32) {
        self.list.push_back(&mut slots.upkeep, slot);
    }

    /// Ends the probation of a live record, if it is on probation.
    #[inline]
    pub fn end(&mut self, slots: &mut Slots, slot: u32) {
        let record = &mut slots.records[slot];
        if record.has(LIVE) && record.has(PROBATION) {
            record.used &= !PROBATION;
            self.list.unlink(&mut slots.upkeep, slot);
        }
    }
}
