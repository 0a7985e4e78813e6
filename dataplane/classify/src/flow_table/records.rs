//! Where records are: near and far parts side by side, so that who needs both translates one page.
//!
//! Under a hypervisor that backs memory by small pages, a table of a million records has many times the pages that a
//! processor remembers: a page translated costs what a line fetched does.

use std::ops::{Index, IndexMut};

use millrace_memory::{HugeSlice, MemoryError, prefetch, prefetch_at, zeroable};

use super::record::{FarRecord, FlowRecord};

/// What errors call them.
const WHAT: &str = "flow records";

zeroable! {
    /// Two records: three cache lines, of which a half belongs to no other.
    #[derive(Debug)]
    #[repr(C, align(64))]
    struct Pair {
        near: [FlowRecord; 2],
        far: [FarRecord; 2],
    }
}

/// Records by slot.
#[derive(Debug)]
pub(super) struct Records {
    pairs: HugeSlice<Pair>,
    slots: u32,
}

impl Records {
    /// So many of them, all zeros.
    pub fn new(slots: u32) -> Result<Self, MemoryError> {
        Ok(Self { pairs: HugeSlice::new(WHAT, slots.div_ceil(2) as usize)?, slots })
    }

    /// Takes the memory of all.
    pub fn populate(&mut self) -> Result<(), MemoryError> {
        self.pairs.populate(WHAT)
    }

    /// How many there are.
    #[inline]
    pub fn len(&self) -> u32 {
        self.slots
    }

    /// The far part.
    #[inline(always)]
    pub fn far(&self, slot: u32) -> &FarRecord {
        &self.pairs[slot as usize / 2].far[slot as usize % 2]
    }

    /// The far part, to be written.
    #[inline(always)]
    pub fn far_mut(&mut self, slot: u32) -> &mut FarRecord {
        &mut self.pairs[slot as usize / 2].far[slot as usize % 2]
    }

    /// Fetches the near part.
    #[inline(always)]
    pub fn prefetch(&self, slot: u32) {
        prefetch(&self[slot]);
    }

    /// The same without a look whether there is such a record.
    #[inline(always)]
    pub fn prefetch_unchecked(&self, slot: u32) {
        // The near parts of a pair are the first two of its three lines.
        prefetch_at(&self.pairs, slot as usize + slot as usize / 2, size_of::<FlowRecord>());
    }

    /// Fetches the far part.
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
