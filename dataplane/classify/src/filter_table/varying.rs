//! Which fields that vary inside a flow the filters of a table look at.

use crate::CompiledFilter;

/// How many filters look at each bit of [`Candidate::varying`](crate::Candidate::varying).
#[derive(Clone, Copy, Default, Debug)]
pub struct VaryingBits {
    filters: [u32; 32],
    mask: u32,
}

impl VaryingBits {
    /// Counts a filter.
    pub fn add(&mut self, filter: &CompiledFilter) {
        self.count(filter.varying_mask(), |count| *count += 1);
    }

    /// Counts a filter no more that was counted.
    pub fn remove(&mut self, filter: &CompiledFilter) {
        self.count(filter.varying_mask(), |count| *count -= 1);
    }

    fn count(&mut self, mask: u32, change: impl Fn(&mut u32)) {
        for (bit, count) in self.filters.iter_mut().enumerate().filter(|(bit, _)| mask >> bit & 1 == 1) {
            change(count);
            self.mask = self.mask & !(1 << bit) | u32::from(*count > 0) << bit;
        }
    }

    /// The bits that some filter looks at.
    #[inline]
    pub fn mask(&self) -> u32 {
        self.mask
    }
}
