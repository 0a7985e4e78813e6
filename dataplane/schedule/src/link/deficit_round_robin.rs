//! Weighted deficit round robin among the children of a node: each child sends its quantum of bytes per
//! round.

use millrace_units::Instant;

use super::discipline::Discipline;
use super::round::{Entries, Place, Round};
use crate::arena::NONE;
use crate::slots::Slots;

#[derive(Clone, Copy, Debug)]
struct Entry {
    quantum: u32,
    deficit: i32,
    next: u32,
    head: u32,
    child: u32,
}

/// Children of a node with their quanta, and the round: the order in which backlogged children send.
#[derive(Debug, Default)]
pub(crate) struct DeficitRoundRobin {
    entries: Slots<Entry>,
    round: Round,
}

impl Entries for Slots<Entry> {
    #[inline]
    fn credit(&mut self, entry: u32, rounds: u32) -> u32 {
        self[entry].quantum.saturating_mul(rounds)
    }

    #[inline]
    fn rounds(&self, entry: u32, bytes: u32) -> u32 {
        bytes.div_ceil(self[entry].quantum)
    }

    #[inline]
    fn place(&mut self, entry: u32) -> Place<'_> {
        let Entry { deficit, next, .. } = &mut self[entry];
        Place { deficit, next }
    }

    #[inline]
    fn visit(&mut self, entry: u32, grant: bool) -> bool {
        let Entry { quantum, deficit, next, head, .. } = &mut self[entry];
        Place { deficit, next }.grant(if grant { *quantum } else { 0 }, *head)
    }

    #[inline]
    fn head(&self, entry: u32) -> u32 {
        self[entry].head
    }
}

impl DeficitRoundRobin {
    /// Adds a child with `quantum` bytes per round. Returns its slot.
    pub fn insert(&mut self, child: u32, quantum: u32) -> u32 {
        self.entries.insert(Entry { quantum, deficit: 0, next: NONE, head: 0, child })
    }

    /// Removes a child that is not backlogged.
    pub fn remove(&mut self, slot: u32) {
        self.entries.release(slot);
    }

    /// Whether the node has no children.
    pub fn is_empty(&self) -> bool {
        self.entries.in_use() == 0
    }

    /// Returns the quantum of a child, in bytes per round.
    pub fn quantum(&self, slot: u32) -> u32 {
        self.entries[slot].quantum
    }

    /// Changes the quantum of a child. The new quantum applies from the child's next visit on.
    pub fn set_quantum(&mut self, slot: u32, quantum: u32) {
        self.entries[slot].quantum = quantum;
    }
}

impl Discipline for DeficitRoundRobin {
    #[inline]
    fn activate(&mut self, slot: u32, length: u32, _now: Instant) {
        self.entries[slot].head = length;
        self.round.join(&mut self.entries, slot);
    }

    fn deactivate(&mut self, slot: u32, _now: Instant) {
        self.round.leave(&mut self.entries, slot);
    }

    #[inline]
    fn choose(&mut self, _now: Instant) -> Option<u32> {
        self.round.choose(&mut self.entries)
    }

    #[inline]
    fn served(&mut self, slot: u32, bytes: u32, next: Option<u32>, _now: Instant) {
        self.entries[slot].head = next.unwrap_or(0);
        self.round.served(&mut self.entries, slot, bytes, next.is_some());
    }

    #[inline]
    fn next_ready(&mut self) -> Instant {
        if self.round.len() == 0 { Instant::FOREVER } else { Instant::ZERO }
    }

    #[inline]
    fn child(&self, slot: u32) -> u32 {
        self.entries[slot].child
    }
}
