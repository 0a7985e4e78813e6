//! Entries of flows that a change does not concern go on without a packet that comes up.
//!
//! A change in the change log ends the use of all entries, as programs know only whether something has changed. What has, the log
//! knows: entries of flows that it does not touch bear the new generation as soon as their turn has come, and those of others when their
//! flow's next packet has come up.

use millrace_classify::Touch;

use super::{DriverFlows, ENTRIES_PER_TURN, Entry};
use crate::router::Router;

/// Which entries are still to be looked at.
#[derive(Debug, Default)]
pub(super) struct Carry {
    left: usize,
    next: usize,
}

impl Carry {
    /// Something has changed that may concern any of so many entries.
    pub fn begin(&mut self, entries: usize) {
        self.left = entries;
    }

    /// Whether entries are still to be looked at.
    pub fn is_under_way(&self) -> bool {
        self.left > 0
    }

    /// The place of the next entry, of so many.
    fn next(&mut self, entries: usize) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let place = if self.next < entries { self.next } else { 0 };
        self.next = place + 1;
        (place < entries).then_some(place)
    }
}

/// The number in the change log that a generation bears.
fn logged(generation: u64) -> u32 {
    generation as u32
}

impl DriverFlows {
    /// The next entry that is of an older generation by changes in the log alone.
    fn next_behind(&mut self) -> Option<(u32, Entry)> {
        let place = self.carry.next(self.entries.len())?;
        let entry = self.entries.get(place).copied().flatten().filter(|entry| {
            let is_logged = entry.generation >> 32 == self.published >> 32;
            entry.begun && entry.generation != self.published && is_logged
        })?;
        Some((place as u32, entry))
    }
}

impl Router {
    /// Looks at some of the entries that a change has left behind.
    pub(super) fn carry_over(&mut self) {
        for _ in 0..ENTRIES_PER_TURN {
            let Some(driver) = self.driver.as_mut().filter(|driver| driver.carry.is_under_way()) else {
                return;
            };
            let Some((slot, entry)) = driver.next_behind() else { continue };
            if self.classifier.changes.touches(&entry.key, logged(entry.generation)) != Touch::Nothing {
                continue;
            }
            let policer = self.gates.plugins().driver_policer(&entry.plan.form).map(|policer| &**policer);
            if let Some(content) = driver.content(&entry.plan, policer) {
                driver.renew(slot, (entry.plan, &content), entry.placed, entry.last_used);
            }
        }
    }
}
