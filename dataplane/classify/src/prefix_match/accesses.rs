//! Counters for the memory accesses of a lookup.

/// Counter that a lookup calls for each memory access.
pub trait Count {
    /// Counts `accesses` dependent accesses.
    fn access(&mut self, accesses: u32);

    /// Counts one access to `place`.
    #[inline(always)]
    fn read<P: ?Sized>(&mut self, place: &P) {
        let _ = place;
        self.access(1);
    }

    /// Counts one access for each cache line of `place`.
    #[inline(always)]
    fn read_lines<P: ?Sized>(&mut self, place: &P) {
        self.access(size_of_val(place).div_ceil(LINE) as u32);
    }
}

/// Bytes of a cache line.
const LINE: usize = 64;

/// Counter that counts nothing, at no cost.
#[derive(Clone, Copy, Default, Debug)]
pub struct NotCounted;

impl Count for NotCounted {
    #[inline(always)]
    fn access(&mut self, _: u32) {}
}

/// Number of accesses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Accesses(pub u32);

impl Count for Accesses {
    fn access(&mut self, accesses: u32) {
        self.0 += accesses;
    }
}
