//! Strict priority: the ready child with the lowest level goes first.

use millrace_units::Instant;

use super::discipline::Discipline;
use crate::arena::NONE;

/// Number of levels of a priority scheduler; level 0 goes first.
pub const PRIORITY_LEVELS: u32 = 65_536;

/// Children by level, and a bitmap of the backlogged levels. The bitmap has three layers, so that three bit
/// scans find the first of 65,536 levels.
#[derive(Debug, Default)]
pub(crate) struct Priority {
    children: Vec<u32>,
    backlogged: Vec<u64>,
    groups: [u64; 16],
    top: u64,
    /// Lowest level with a child, backlogged or not.
    lowest: usize,
}

impl Priority {
    /// Puts a child at a free level.
    pub fn insert(&mut self, level: u32, child: u32) {
        let length = self.children.len().max(level as usize + 1);
        self.children.resize(length, NONE);
        self.backlogged.resize(length.div_ceil(64), 0);
        self.children[level as usize] = child;
        if level as usize <= self.lowest || self.children[self.lowest] == NONE {
            self.lowest = level as usize;
        }
    }

    /// Returns the child at a level; `None` for a level without a child.
    pub fn at(&self, level: u32) -> Option<u32> {
        self.children.get(level as usize).copied().filter(|child| *child != NONE)
    }

    /// Returns the highest level without a child, if there is one.
    pub fn free_level(&self) -> Option<u32> {
        (0..PRIORITY_LEVELS).rev().find(|level| self.at(*level).is_none())
    }

    /// Returns the child of the lowest level, backlogged or not.
    pub fn first(&self) -> Option<u32> {
        self.at(self.lowest as u32)
    }

    /// Returns the lowest backlogged level; `None` if no child is backlogged.
    #[inline]
    pub fn first_backlogged(&self) -> Option<u32> {
        if self.top == 0 {
            return None;
        }
        let group = self.top.trailing_zeros() as usize % 16;
        let word = group * 64 + self.groups[group].trailing_zeros() as usize;
        Some(word as u32 * 64 + self.backlogged[word].trailing_zeros())
    }

    /// Marks the first backlogged level as empty. Returns the next backlogged level, if there is one.
    #[inline(always)]
    pub fn next_without(&mut self, first: u32) -> Option<u32> {
        let number = first / 64;
        let word = &mut self.backlogged[number as usize];
        // The first level is the lowest set bit of its word.
        *word &= word.wrapping_sub(1);
        if *word != 0 {
            return Some(number * 64 + word.trailing_zeros());
        }
        self.next_word(first)
    }

    /// Clears the word of the first level, which is empty now. Returns the next backlogged level.
    #[inline(never)]
    fn next_word(&mut self, first: u32) -> Option<u32> {
        self.deactivate(first, Instant::ZERO);
        self.first_backlogged()
    }

    /// Removes a child that is not backlogged.
    pub fn remove(&mut self, level: u32) {
        self.children[level as usize] = NONE;
        if level as usize == self.lowest {
            // No child has a lower level.
            let next = self.children[self.lowest..].iter().position(|child| *child != NONE);
            self.lowest = next.map_or(0, |levels| self.lowest + levels);
        }
    }
}

impl Discipline for Priority {
    #[inline]
    fn activate(&mut self, slot: u32, _length: u32, _now: Instant) {
        let word = &mut self.backlogged[slot as usize / 64];
        if std::mem::replace(word, *word | 1 << (slot % 64)) == 0 {
            let (word, group) = (slot as usize / 64, slot as usize / 4096);
            self.groups[group] |= 1 << (word % 64);
            self.top |= 1 << group;
        }
    }

    #[inline]
    fn deactivate(&mut self, slot: u32, _now: Instant) {
        let (word, group) = (slot as usize / 64, slot as usize / 4096);
        self.backlogged[word] &= !(1 << (slot % 64));
        if self.backlogged[word] == 0 {
            self.groups[group] &= !(1 << (word % 64));
            if self.groups[group] == 0 {
                self.top &= !(1 << group);
            }
        }
    }

    #[inline]
    fn choose(&mut self, _now: Instant) -> Option<u32> {
        self.first_backlogged()
    }

    #[inline]
    fn served(&mut self, slot: u32, _bytes: u32, next: Option<u32>, now: Instant) {
        if next.is_none() {
            self.deactivate(slot, now);
        }
    }

    #[inline]
    fn next_ready(&mut self) -> Instant {
        if self.top == 0 { Instant::FOREVER } else { Instant::ZERO }
    }

    #[inline]
    fn child(&self, slot: u32) -> u32 {
        self.children[slot as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn the_lowest_level_goes_first(steps in prop::collection::vec((0_u32..PRIORITY_LEVELS, any::<bool>()), 1..300)) {
            let (mut priority, mut twin) = (Priority::default(), BTreeSet::new());
            for (level, active) in steps {
                if priority.at(level).is_none() {
                    priority.insert(level, level + 1);
                }
                if active {
                    priority.activate(level, 1, Instant::ZERO);
                    twin.insert(level);
                } else {
                    priority.deactivate(level, Instant::ZERO);
                    twin.remove(&level);
                }
                prop_assert_eq!(priority.choose(Instant::ZERO), twin.first().copied());
                prop_assert_eq!(priority.next_ready() == Instant::ZERO, !twin.is_empty());
                prop_assert_eq!(priority.child(level), level + 1);
                prop_assert_eq!(priority.first(), (0..=PRIORITY_LEVELS).find_map(|level| priority.at(level)));
            }
        }
    }
}
