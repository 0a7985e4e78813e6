//! Counting what a lookup reads.

/// Told of every cache line of the table that a lookup reads.
pub(super) trait Meter {
    /// `lines` more were read.
    fn read(&mut self, lines: usize);
}

/// Doesn't count: lookups with it are compiled as if there was no meter.
impl Meter for () {
    #[inline(always)]
    fn read(&mut self, _: usize) {}
}

/// Counts.
impl Meter for usize {
    #[inline(always)]
    fn read(&mut self, lines: usize) {
        *self += lines;
    }
}
