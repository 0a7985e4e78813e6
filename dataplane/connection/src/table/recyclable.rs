//! Connections that new ones may recycle in a full table.
//!
//! They are in two lists, and the oldest of the longer list is recycled. So a flood that fills one list takes no
//! connection from the other list while the other list is shorter.

use millrace_memory::HugeSlice;

use super::list::List;
use crate::record::{Membership, Record};
use crate::state::Recycling;

/// Connections that new ones may recycle, oldest first.
#[derive(Debug, Default)]
pub(super) struct Recyclable {
    lists: [List; 2],
    lengths: [u32; 2],
}

impl Recyclable {
    /// Appends a record to a list.
    pub fn push(&mut self, records: &mut HugeSlice<Record>, list: Recycling, slot: u32) {
        self.lists[list as usize].push(records, Membership::Recyclable, slot);
        self.lengths[list as usize] += 1;
    }

    /// Removes a record of a list.
    pub fn remove(&mut self, records: &mut HugeSlice<Record>, list: Recycling, slot: u32) {
        self.lists[list as usize].remove(records, Membership::Recyclable, slot);
        self.lengths[list as usize] -= 1;
    }

    /// Returns the slot of the oldest record of the longer list; `None` if there is no record.
    pub fn next(&self) -> Option<u32> {
        let [unanswered, unassured] = self.lengths;
        let longer = if unanswered >= unassured { Recycling::Unanswered } else { Recycling::Unassured };
        self.lists[longer as usize].first()
    }
}
