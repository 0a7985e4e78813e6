//! Filters that are tried one after the other, side by side in memory, best first: those that share a key in a hash
//! table of tuple space search, or a leaf of a cutting tree.

use millrace_memory::prefetch_slice_element;

use super::key::{Condition, Key};
use crate::filter_table::{FilterId, Rank};
use crate::prefix_match::Count;

/// Set in [`Record::slot`] when the group goes on with the next record.
const MORE: u32 = 1 << 31;

/// A filter as it is searched. For IPv4 it fills a cache line, for IPv6 two.
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
    /// A filter that is kept in `slot`, which is below 2³¹.
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

    /// The filter as what a search found.
    #[inline(always)]
    pub fn found(&self) -> Found {
        Found { id: self.id, slot: self.slot() }
    }

    #[inline(always)]
    fn is_last(&self) -> bool {
        self.slot & MORE == 0
    }
}

/// A filter found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Found {
    pub id: FilterId,
    pub slot: u32,
}

impl Found {
    /// None: there is no such slot.
    pub const NONE: Self = Self { id: FilterId(u64::MAX), slot: u32::MAX };
}

/// All groups of a table, of one family. A group of n filters takes the next power of two from n of places.
#[derive(Clone, Debug)]
pub(super) struct Groups<const W: usize> {
    records: Vec<Record<W>>,
    /// Where places are free, by the binary logarithm of how many.
    free: [Vec<u32>; 32],
}

impl<const W: usize> Default for Groups<W> {
    fn default() -> Self {
        Self { records: Vec::new(), free: Default::default() }
    }
}

impl<const W: usize> Groups<W> {
    /// Has the first filter of a group fetched.
    #[inline(always)]
    pub fn prefetch(&self, group: u32) {
        prefetch_slice_element(&self.records, group as usize);
    }

    /// The first filter of the group that matches, if it comes before `best`.
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

    /// The filters of a group.
    pub fn records(&self, group: u32) -> &[Record<W>] {
        let from = &self.records[group as usize..];
        let last = from.iter().position(Record::is_last).unwrap_or(0);
        &from[..=last]
    }

    /// A new group of one filter.
    pub fn create(&mut self, record: Record<W>) -> u32 {
        self.store(&[record])
    }

    /// A new group of some filters, best first.
    ///
    /// # Panics
    /// When there are none.
    pub fn create_all(&mut self, records: &[Record<W>]) -> u32 {
        self.store(records)
    }

    /// Adds a filter to a group, which may move: its new place is returned.
    pub fn insert(&mut self, group: u32, record: Record<W>) -> u32 {
        let mut records = self.records(group).to_vec();
        let place = records.partition_point(|other| other.rank() < record.rank());
        records.insert(place, record);
        self.replace(group, &records)
    }

    /// Takes the filter in `slot`, which is in it, out of a group; `None` when the group is no more, else its place.
    pub fn remove(&mut self, group: u32, slot: u32) -> Option<u32> {
        let mut records = self.records(group).to_vec();
        records.retain(|record| record.slot() != slot);
        if records.is_empty() {
            self.free[0].push(group);
            return None;
        }
        Some(self.replace(group, &records))
    }

    /// Gives up a group.
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
        self.store(records)
    }

    fn store(&mut self, records: &[Record<W>]) -> u32 {
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

    /// Gives the filter in slot `from` of a group the slot `to`; `false` when it isn't in there.
    pub fn renumber(&mut self, group: u32, from: u32, to: u32) -> bool {
        let length = self.records(group).len();
        let records = &mut self.records[group as usize..][..length];
        let found = records.iter_mut().find(|record| record.slot() == from);
        found.map(|record| record.slot = record.slot & MORE | to).is_some()
    }

    /// Bytes behind the pointers.
    pub fn memory(&self) -> usize {
        let free: usize = self.free.iter().map(|places| places.capacity() * size_of::<u32>()).sum();
        self.records.capacity() * size_of::<Record<W>>() + free
    }
}

/// The binary logarithm of the places that a group of `length` filters takes.
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
                        None => groups.create(record),
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
