//! Groups of filters that a search tries one after the other, the best first. A group is contiguous in
//! memory. It holds the filters of one key in tuple space search, or those of one leaf of a cutting tree.

use millrace_memory::prefetch_slice_element;

use super::key::{Condition, Key};
use crate::filter_table::{FilterId, Rank};
use crate::prefix_match::Count;

/// Flag in [`Record::slot`]: the group continues with the next record.
const MORE: u32 = 1 << 31;

/// Filter in the form for searches: one cache line for IPv4, two for IPv6.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Record<const W: usize> {
    upper: u64,
    id: FilterId,
    lower: u32,
    slot: u32,
    condition: Condition<W>,
}

impl<const W: usize> Record<W> {
    /// Creates the record of a filter. `slot` is its index in the table's entries, below 2³¹.
    pub fn new(condition: Condition<W>, rank: Rank, slot: u32) -> Self {
        Self { upper: rank.upper, id: rank.id, lower: rank.lower, slot, condition }
    }

    pub fn condition(&self) -> &Condition<W> {
        &self.condition
    }

    #[inline(always)]
    pub fn rank(&self) -> Rank {
        Rank { upper: self.upper, lower: self.lower, id: self.id }
    }

    #[inline(always)]
    pub fn slot(&self) -> u32 {
        self.slot & !MORE
    }

    /// Returns the filter as the result of a search.
    #[inline(always)]
    pub fn found(&self) -> Found {
        Found { id: self.id, slot: self.slot() }
    }

    #[inline(always)]
    fn is_last(&self) -> bool {
        self.slot & MORE == 0
    }
}

/// Filter that a search found, or [`NONE`](Self::NONE).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Found {
    pub id: FilterId,
    pub slot: u32,
}

impl Found {
    /// Result of a search without a match: no slot has this number.
    pub const NONE: Self = Self { id: FilterId(u64::MAX), slot: u32::MAX };
}

/// All groups of a table, for one family. A group of n filters occupies as many record places as the next
/// power of two.
#[derive(Clone, Debug)]
pub(super) struct Groups<const W: usize> {
    records: Vec<Record<W>>,
    /// Free ranges of record places, by the binary logarithm of their length.
    free: [Vec<u32>; 32],
}

impl<const W: usize> Default for Groups<W> {
    fn default() -> Self {
        Self { records: Vec::new(), free: Default::default() }
    }
}

impl<const W: usize> Groups<W> {
    /// Prefetches the first filter of a group.
    #[inline(always)]
    pub fn prefetch(&self, group: u32) {
        prefetch_slice_element(&self.records, group as usize);
    }

    /// Returns the first filter of the group that matches. Returns `None` if none matches, or if it isn't
    /// better than `best`.
    #[inline(always)]
    pub fn find(&self, group: u32, key: &Key<W>, best: &Rank, count: &mut impl Count) -> Option<&Record<W>> {
        for record in &self.records[group as usize..] {
            count.read_lines(record);
            if record.rank() >= *best {
                return None;
            }
            if record.condition.matches(key) {
                return Some(record);
            }
            if record.is_last() {
                return None;
            }
        }
        None
    }

    /// Returns the filters of a group.
    pub fn records(&self, group: u32) -> &[Record<W>] {
        let from = &self.records[group as usize..];
        let last = from.iter().position(Record::is_last).unwrap_or(0);
        &from[..=last]
    }

    /// Adds a filter to a group, and returns the group's place, which may change.
    pub fn insert(&mut self, group: u32, record: Record<W>) -> u32 {
        let mut records = self.records(group).to_vec();
        let place = records.partition_point(|other| other.rank() < record.rank());
        records.insert(place, record);
        self.replace(group, &records)
    }

    /// Removes the filter in `slot` from its group. Returns the place of the group, which may have changed.
    /// If the group is then empty, frees the group and returns `None`.
    pub fn remove(&mut self, group: u32, slot: u32) -> Option<u32> {
        let mut records = self.records(group).to_vec();
        records.retain(|record| record.slot() != slot);
        if records.is_empty() {
            self.free[0].push(group);
            return None;
        }
        Some(self.replace(group, &records))
    }

    /// Frees a group.
    pub fn clear(&mut self, group: u32) {
        self.free[size_class(self.records(group).len())].push(group);
    }

    fn replace(&mut self, group: u32, records: &[Record<W>]) -> u32 {
        let (before, after) = (size_class(self.records(group).len()), size_class(records.len()));
        if before == after {
            self.write(group, records);
            return group;
        }
        self.free[before].push(group);
        self.create(records)
    }

    /// Creates a group of filters, sorted by rank.
    ///
    /// # Panics
    /// If `records` is empty.
    pub fn create(&mut self, records: &[Record<W>]) -> u32 {
        let class = size_class(records.len());
        let group = self.free[class].pop().unwrap_or_else(|| {
            let start = self.records.len();
            self.records.resize(start + (1 << class), records[0]);
            start as u32
        });
        self.write(group, records);
        group
    }

    fn write(&mut self, group: u32, records: &[Record<W>]) {
        let places = &mut self.records[group as usize..][..records.len()];
        places.copy_from_slice(records);
        for place in places.iter_mut() {
            place.slot |= MORE;
        }
        places[records.len() - 1].slot &= !MORE;
    }

    /// Changes the slot of a group's filter from `from` to `to`. Returns `false` if the group has no filter
    /// with the slot `from`.
    pub fn renumber(&mut self, group: u32, from: u32, to: u32) -> bool {
        let length = self.records(group).len();
        let records = &mut self.records[group as usize..][..length];
        let found = records.iter_mut().find(|record| record.slot() == from);
        found.map(|record| record.slot = record.slot & MORE | to).is_some()
    }

    /// Returns the heap memory in bytes.
    pub fn memory(&self) -> usize {
        let free: usize = self.free.iter().map(|places| places.capacity() * size_of::<u32>()).sum();
        self.records.capacity() * size_of::<Record<W>>() + free
    }
}

/// Returns the binary logarithm of the number of record places for `length` filters.
fn size_class(length: usize) -> usize {
    length.next_power_of_two().trailing_zeros() as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::filter::tests::compiled;
    use crate::filter_table::key::{V4, V6};

    #[test]
    fn a_record_of_ipv4_fills_a_line_and_one_of_ipv6_two() {
        assert_eq!((size_of::<Record<V4>>(), size_of::<Record<V6>>()), (64, 128));
    }

    proptest! {
        #[test]
        fn groups_are_sorted_lists(changes in prop::collection::vec((0usize..4, any::<bool>(), -4i32..4), 0..200)) {
            let filter = compiled("src 10.0.0.0/8");
            let (mut groups, mut starts, mut lists) = (Groups::<V4>::default(), [None; 4], [const { Vec::new() }; 4]);
            for (slot, (list, insert, priority)) in changes.into_iter().enumerate() {
                let (start, list) = (&mut starts[list], &mut lists[list]);
                if insert {
                    let rank = Rank::new(priority, filter.specificity(), FilterId(slot as u64));
                    let record = Record::new(Condition::of(&filter).unwrap(), rank, slot as u32);
                    *start = Some(match *start {
                        Some(start) => groups.insert(start, record),
                        None => groups.create(&[record]),
                    });
                    list.push((rank, slot as u32));
                    list.sort();
                } else if let (Some(group), Some((_, slot))) = (*start, list.get(priority.unsigned_abs() as usize).copied()) {
                    prop_assert!(!groups.renumber(group, u32::MAX >> 1, 0));
                    *start = groups.remove(group, slot);
                    list.retain(|(_, other)| *other != slot);
                }
                for (start, list) in starts.iter().zip(&lists) {
                    let records = start.map_or(&[][..], |start| groups.records(start));
                    prop_assert!(records.iter().map(|record| (record.rank(), record.slot())).eq(list.iter().copied()));
                }
            }
        }
    }
}
