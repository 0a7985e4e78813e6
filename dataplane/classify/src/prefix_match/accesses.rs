//! Counting accesses to memory, where somebody wants to know.

/// Told of each access to memory in a lookup.
pub trait Count {
    /// So many accesses follow one upon the other.
    fn access(&mut self, accesses: u32);

    /// There is one access, to this place.
    #[inline(always)]
    fn read<P: ?Sized>(&mut self, place: &P) {
        let _ = place;
        self.access(1);
    }

    /// There is an access to each line of this place.
    #[inline(always)]
    fn read_lines<P: ?Sized>(&mut self, place: &P) {
        self.access(size_of_val(place).div_ceil(LINE) as u32);
    }
}

/// Bytes that come from memory at once.
const LINE: usize = 64;

/// Counts nothing, and costs nothing.
#[derive(Clone, Copy, Default, Debug)]
pub struct NotCounted;

impl Count for NotCounted {
    #[inline(always)]
    fn access(&mut self, _: u32) {}
}

/// How many accesses there were.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Accesses(pub u32);

impl Count for Accesses {
    fn access(&mut self, accesses: u32) {
        self.0 += accesses;
    }
}
