//! Overflow: entries that found no place in their group of buckets, in one short list for the whole table.
//!
//! Groups fill at random: by Poisson's law, one in 150 tables of a million records has a group that lacks a
//! place. With the overflow, a table with free records refuses and displaces no record because of such a
//! group. A search reads the overflow only if all buckets of the group are full.

/// Maximum number of entries in the overflow.
pub(super) const PLACES: usize = 32;

/// Entries that found no place in their group, in no particular order.
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

    /// Adds an entry. Returns `false` if the list is full.
    #[must_use]
    pub fn push(&mut self, entry: u32) -> bool {
        let Some(place) = self.entries.get_mut(self.length) else { return false };
        *place = entry;
        self.length += 1;
        true
    }

    /// Removes and returns the first entry for which `is_it` holds.
    pub fn take(&mut self, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let at = self.entries().iter().position(|&entry| is_it(entry))?;
        let entry = *self.entries.get(at)?;
        self.length -= 1;
        self.entries.swap(at, self.length);
        Some(entry)
    }
}
