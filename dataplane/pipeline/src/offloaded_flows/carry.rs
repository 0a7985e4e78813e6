//! Carries entries over to a new generation without an upcall.
//!
//! A change in the change log ends the use of all entries, because the XDP program compares generations only.
//! The worker then compares each entry with the changes in the log. An entry that no change affects gets the
//! new generation. Each other entry is renewed by the next upcall of its flow.

use millrace_classify::{ChangeLog, Touch};
use millrace_plugin::WorkerPlugins;

use super::entry::Entry;
use super::{ENTRIES_PER_ITERATION, OffloadedFlows};
use crate::gate_tables::WorkerTable;

/// Progress of comparing the entries with the change log.
#[derive(Debug, Default)]
pub(super) struct Carry {
    left: usize,
    next: usize,
}

impl Carry {
    /// Starts over with all entries after a change in the log.
    pub fn begin(&mut self, entries: usize) {
        self.left = entries;
    }

    /// Returns whether some entries have not been compared yet.
    pub fn is_under_way(&self) -> bool {
        self.left > 0
    }

    /// Returns the index of the next entry to compare; `None` if there is no such entry, or all entries have
    /// been compared.
    fn next(&mut self, entries: usize) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let place = if self.next < entries { self.next } else { 0 };
        self.next = place + 1;
        (place < entries).then_some(place)
    }
}

/// Returns the part of a generation that is the generation of the change log.
fn logged(generation: u64) -> u32 {
    generation as u32
}

impl OffloadedFlows {
    /// Returns the next entry if it has begun and only changes in the log have outdated it; `None` for any
    /// other entry.
    fn next_behind(&mut self) -> Option<(u32, Entry)> {
        let place = self.carry.next(self.entries.len())?;
        let entry = self.entries.get(place).copied().flatten().filter(|entry| {
            let is_logged = entry.generation >> 32 == self.published >> 32;
            entry.is_begun() && entry.generation != self.published && is_logged
        })?;
        Some((place as u32, entry))
    }

    /// Compares at most [`ENTRIES_PER_ITERATION`] further entries with the change log, and carries over those
    /// that no change affects.
    pub(super) fn carry_over(&mut self, changes: &ChangeLog, plugins: &WorkerPlugins<WorkerTable>) {
        for _ in 0..ENTRIES_PER_ITERATION {
            if !self.carry.is_under_way() {
                return;
            }
            let Some((slot, entry)) = self.next_behind() else { continue };
            if changes.touches(&entry.key, logged(entry.generation)) != Touch::Nothing {
                continue;
            }
            let policer = plugins.bindings.offload_policer(&entry.plan.steps).map(|policer| &**policer);
            if let Some(content) = self.content(&entry.plan, policer) {
                self.renew(slot, (entry.plan, &content), entry.placed, entry.last_used);
            }
        }
    }
}
