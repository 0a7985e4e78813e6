//! Chained hash tables over slots: each bucket holds the first slot of a chain.

use millrace_memory::{HugeSlice, MemoryError, Zeroable};

/// Element that a chain links.
pub(super) trait Chained: Zeroable {
    /// Returns the next slot of the chain; 0 for none.
    fn next(&self) -> u32;
    /// Sets the next slot of the chain.
    fn set_next(&mut self, slot: u32);
}

/// Slots of a table, from 1 on, with a chained hash index. Allocates nothing after its creation.
#[derive(Debug)]
pub(super) struct Chains<T> {
    pub slots: HugeSlice<T>,
    buckets: HugeSlice<u32>,
    mask: u64,
    /// First slot that was never used.
    fresh: u32,
    /// First free slot that was used before; 0 for none.
    free: u32,
    used: u32,
}

impl<T: Chained> Chains<T> {
    /// Creates a table of `most` slots. `what` names it in errors.
    pub fn new(what: &'static str, most: u32) -> Result<Self, MemoryError> {
        let buckets = most.next_power_of_two() as usize;
        Ok(Self {
            slots: HugeSlice::new(what, most as usize + 1)?,
            buckets: HugeSlice::new(what, buckets)?,
            mask: buckets as u64 - 1,
            fresh: 1,
            free: 0,
            used: 0,
        })
    }

    /// Returns the number of used slots.
    #[inline]
    pub fn len(&self) -> u32 {
        self.used
    }

    /// Returns the number of slots.
    pub fn maximum(&self) -> u32 {
        self.slots.len() as u32 - 1
    }

    /// Returns whether no slot is free.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.used >= self.maximum()
    }

    /// Returns the bytes that the table maps for each slot.
    pub const fn bytes_per_slot() -> usize {
        size_of::<T>() + 2 * size_of::<u32>()
    }

    /// Returns the slot under `hash` that `is` accepts.
    #[inline]
    pub fn find(&self, hash: u64, is: impl Fn(&T) -> bool) -> Option<u32> {
        let mut slot = self.buckets[(hash & self.mask) as usize];
        while slot != 0 {
            let element = &self.slots[slot as usize];
            if is(element) {
                return Some(slot);
            }
            slot = element.next();
        }
        None
    }

    /// Takes a free slot, and enters it under `hash`. Returns `None` if no slot is free. The slot still holds
    /// the element of its last use.
    #[inline]
    pub fn insert(&mut self, hash: u64) -> Option<u32> {
        let slot = match self.free {
            0 if (self.fresh as usize) < self.slots.len() => {
                self.fresh += 1;
                self.fresh - 1
            }
            0 => return None,
            free => {
                self.free = self.slots[free as usize].next();
                free
            }
        };
        self.used += 1;
        let bucket = &mut self.buckets[(hash & self.mask) as usize];
        let next = std::mem::replace(bucket, slot);
        self.slots[slot as usize].set_next(next);
        Some(slot)
    }

    /// Removes a slot that was entered under `hash`.
    pub fn remove(&mut self, hash: u64, slot: u32) {
        let bucket = (hash & self.mask) as usize;
        let next = self.slots[slot as usize].next();
        if self.buckets[bucket] == slot {
            self.buckets[bucket] = next;
        } else {
            let mut before = self.buckets[bucket];
            while before != 0 && self.slots[before as usize].next() != slot {
                before = self.slots[before as usize].next();
            }
            if before == 0 {
                return;
            }
            self.slots[before as usize].set_next(next);
        }
        self.slots[slot as usize].set_next(self.free);
        self.free = slot;
        self.used -= 1;
    }

    /// Returns all slots that were ever used.
    pub fn ever_used(&self) -> std::ops::Range<u32> {
        1..self.fresh
    }
}
