//! Doubly linked lists of records, by slots.

use millrace_memory::HugeSlice;

use crate::record::{Links, Membership, Record};

/// Ends of a list; 0 if it is empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct List {
    first: u32,
    last: u32,
}

impl List {
    /// Returns the slot of the first record; `None` if the list is empty.
    #[inline]
    pub fn first(&self) -> Option<u32> {
        (self.first != 0).then_some(self.first)
    }

    /// Appends a record that is in no list of this membership.
    #[inline]
    pub fn push(&mut self, records: &mut HugeSlice<Record>, membership: Membership, slot: u32) {
        let previous = std::mem::replace(&mut self.last, slot);
        records[slot as usize].links[membership as usize] = Links { previous, next: 0 };
        match previous {
            0 => self.first = slot,
            previous => records[previous as usize].links[membership as usize].next = slot,
        }
    }

    /// Removes a record of the list.
    #[inline]
    pub fn remove(&mut self, records: &mut HugeSlice<Record>, membership: Membership, slot: u32) {
        let Links { previous, next } = std::mem::take(&mut records[slot as usize].links[membership as usize]);
        match previous {
            0 => self.first = next,
            previous => records[previous as usize].links[membership as usize].next = next,
        }
        match next {
            0 => self.last = previous,
            next => records[next as usize].links[membership as usize].previous = previous,
        }
    }
}
