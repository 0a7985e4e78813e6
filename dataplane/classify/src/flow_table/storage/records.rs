//! Storage of records. The near and the far part of a record are side by side, so an access to both needs
//! only one page translation.
//!
//! Some hypervisors back memory with small pages. A table of a million records then has many more pages than
//! the TLB has entries. A page translation then costs as much as the fetch of a cache line.

use std::ops::{Index, IndexMut};

use millrace_memory::{HugeSlice, MemoryError, prefetch, prefetch_at, zeroable};

use super::record::{FarRecord, FlowRecord};

/// Name of this memory in errors.
pub(super) const WHAT: &str = "flow records";

zeroable! {
    /// Two records in three cache lines: their near parts in two lines, and both far parts in one.
    #[derive(Debug)]
    #[repr(C, align(64))]
    struct Pair {
        near: [FlowRecord; 2],
        far: [FarRecord; 2],
    }
}

/// Records by slot.
#[derive(Debug)]
pub(in crate::flow_table) struct Records {
    pairs: HugeSlice<Pair>,
    slots: u32,
}

impl Records {
    /// Maps memory for `slots` records, filled with zeros.
    pub fn new(slots: u32) -> Result<Self, MemoryError> {
        Ok(Self { pairs: HugeSlice::new(WHAT, slots.div_ceil(2) as usize)?, slots })
    }

    /// Populates the memory of all records.
    pub fn populate(&mut self) -> Result<(), MemoryError> {
        self.pairs.populate(WHAT)
    }

    /// Returns the number of slots.
    #[inline]
    pub fn len(&self) -> u32 {
        self.slots
    }

    /// Returns the far part of a record.
    #[inline(always)]
    pub fn far(&self, slot: u32) -> &FarRecord {
        &self.pairs[slot as usize / 2].far[slot as usize % 2]
    }

    #[inline(always)]
    pub fn far_mut(&mut self, slot: u32) -> &mut FarRecord {
        &mut self.pairs[slot as usize / 2].far[slot as usize % 2]
    }

    /// Prefetches the near part of a record.
    #[inline(always)]
    pub fn prefetch(&self, slot: u32) {
        prefetch(&self[slot]);
    }

    /// Prefetches the near part of a record, without a bounds check.
    #[inline(always)]
    pub fn prefetch_unchecked(&self, slot: u32) {
        // The three lines of a pair begin with its two near parts.
        prefetch_at(&self.pairs, slot as usize + slot as usize / 2, size_of::<FlowRecord>());
    }

    /// Prefetches the far part of a record.
    #[inline(always)]
    pub fn prefetch_far(&self, slot: u32) {
        prefetch(self.far(slot));
    }
}

impl Index<u32> for Records {
    type Output = FlowRecord;

    #[inline(always)]
    fn index(&self, slot: u32) -> &FlowRecord {
        &self.pairs[slot as usize / 2].near[slot as usize % 2]
    }
}

impl IndexMut<u32> for Records {
    #[inline(always)]
    fn index_mut(&mut self, slot: u32) -> &mut FlowRecord {
        &mut self.pairs[slot as usize / 2].near[slot as usize % 2]
    }
}
