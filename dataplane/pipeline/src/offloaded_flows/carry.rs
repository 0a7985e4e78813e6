//! Carrying entries over to a new generation without an upcall.
//!
//! A change in the change log ends the use of all entries, because the XDP program compares generations only.
//! The worker compares each entry with the changes in the log. An entry that they don't concern gets the new
//! generation. The other entries are renewed by their flow's next upcall.

use millrace_classify::{ChangeLog, Touch};
use millrace_plugin::WorkerPlugins;

use super::entry::Entry;
use super::{ENTRIES_PER_TURN, OffloadedFlows};
use crate::gate_tables::WorkerTable;

/// Entries that the worker has not compared with the change log yet.
#[derive(Debug, Default)]
pub(super) struct Carry {
    left: usize,
    next: usize,
}

impl Carry {
    /// Starts over after a change that may concern any of the entries.
    pub fn begin(&mut self, entries: usize) {
        self.left = entries;
    }

    /// Returns whether entries remain.
    pub fn is_under_way(&self) -> bool {
        self.left > 0
    }

    /// Returns the place of the next entry.
    fn next(&mut self, entries: usize) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let place = if self.next < entries { self.next } else { 0 };
        self.next = place + 1;
        (place < entries).then_some(place)
    }
}

/// Returns the number in the change log that a generation contains.
fn logged(generation: u64) -> u32 {
    generation as u32
}

impl OffloadedFlows {
    /// Returns the next entry that is outdated by changes in the log alone.
    fn next_behind(&mut self) -> Option<(u32, Entry)> {
        let place = self.carry.next(self.entries.len())?;
        let entry = self.entries.get(place).copied().flatten().filter(|entry| {
            let is_logged = entry.generation >> 32 == self.published >> 32;
            entry.is_begun() && entry.generation != self.published && is_logged
        })?;
        Some((place as u32, entry))
    }

    /// Compares the next entries with the change log, at most [`ENTRIES_PER_TURN`], and carries over those
    /// that no change concerns.
    pub(super) fn carry_over(&mut self, changes: &ChangeLog, plugins: &WorkerPlugins<WorkerTable>) {
        for _ in 0..ENTRIES_PER_TURN {
            if !self.carry.is_under_way() {
                return;
            }
            let Some((slot, entry)) = self.next_behind() else { continue };
            if changes.touches(&entry.key, logged(entry.generation)) != Touch::Nothing {
                continue;
            }
            let policer = plugins.bindings.offload_policer(&entry.plan.form).map(|policer| &**policer);
            if let Some(content) = self.content(&entry.plan, policer) {
                self.renew(slot, (entry.plan, &content), entry.placed, entry.last_used);
            }
        }
    }
}
