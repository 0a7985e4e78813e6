//! Entries of full groups of buckets, in one short list for the whole table.
//!
//! Groups fill at random: by Poisson's law, one in 150 tables of a million records has a group that lacks a
//! place. The surplus entries of such a group go to this list. So a table with free records neither refuses
//! nor displaces any. A search reads the list only when every bucket of the group is full.

/// Number of entries that the list holds.
pub(super) const PLACES: usize = 32;

/// List of entries that found no place in their group. The order of entries has no meaning.
#[derive(Debug)]
pub(super) struct Overflow {
    entries: [u32; PLACES],
    length: usize,
}

impl Overflow {
    /// Returns an empty list.
    pub const fn new() -> Self {
        Self { entries: [0; PLACES], length: 0 }
    }

    /// Whether the list is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Whether the list has room for another entry.
    pub fn has_room(&self) -> bool {
        self.length < PLACES
    }

    /// Returns the entries.
    pub fn entries(&self) -> &[u32] {
        self.entries.get(..self.length).unwrap_or_default()
    }

    /// Adds an entry; returns false when the list is full.
    #[must_use]
    pub fn push(&mut self, entry: u32) -> bool {
        let Some(place) = self.entries.get_mut(self.length) else { return false };
        *place = entry;
        self.length += 1;
        true
    }

    /// Removes and returns the first entry that `is_it` accepts.
    pub fn take(&mut self, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let at = self.entries().iter().position(|&entry| is_it(entry))?;
        let entry = *self.entries.get(at)?;
        self.length -= 1;
        self.entries.swap(at, self.length);
        Some(entry)
    }
}
