//! Counts of filters by the varying fields on which they have conditions.

use crate::CompiledFilter;

/// For each bit of [`Candidate::varying`](crate::Candidate::varying), the number of filters with a condition
/// on this bit.
#[derive(Clone, Copy, Default, Debug)]
pub struct VaryingBits {
    filters: [u32; 32],
    mask: u32,
}

impl VaryingBits {
    /// Adds a filter to the counts.
    pub fn add(&mut self, filter: &CompiledFilter) {
        self.count(filter.varying_mask(), |count| *count += 1);
    }

    /// Removes a filter from the counts; it must have been added.
    pub fn remove(&mut self, filter: &CompiledFilter) {
        self.count(filter.varying_mask(), |count| *count -= 1);
    }

    fn count(&mut self, mask: u32, change: impl Fn(&mut u32)) {
        for (bit, count) in self.filters.iter_mut().enumerate().filter(|(bit, _)| mask >> bit & 1 == 1) {
            change(count);
            self.mask = self.mask & !(1 << bit) | u32::from(*count > 0) << bit;
        }
    }

    /// Returns the bits on which any filter has a condition.
    #[inline]
    pub fn mask(&self) -> u32 {
        self.mask
    }
}
