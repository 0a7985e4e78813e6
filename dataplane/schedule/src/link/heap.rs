//! A heap whose members can be moved and removed: who is first by a key, with the cost of a logarithm.

use crate::arena::NONE;

#[derive(Clone, Copy, Debug)]
struct Member {
    key: u64,
    item: u32,
}

impl Member {
    /// What stands where nobody does: behind everyone.
    const NOBODY: Self = Self { key: u64::MAX, item: NONE };
}

/// The children of a member: a cache line, so that a level of the heap is one line to fetch.
#[repr(align(64))]
#[derive(Clone, Copy, Debug)]
struct Group([Member; WIDTH]);

const WIDTH: usize = 4;
const _: () = assert!(size_of::<Group>() == 64);

impl Group {
    /// The child with the lowest key, and where it stands.
    #[inline]
    fn least(&self) -> (usize, Member) {
        let Self([first, second, third, fourth]) = self;
        let left = if second.key < first.key { (1, *second) } else { (0, *first) };
        let right = if fourth.key < third.key { (3, *fourth) } else { (2, *third) };
        if right.1.key < left.1.key { right } else { left }
    }
}

/// A heap of four children per node. Where each item stands is noted in a slice that several heaps share, as long as an
/// item is in one of them at most.
///
/// Places are counted through the groups. The first member stands alone, at the end of group 0; the children of place `p`
/// are group `p - 2`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heap {
    groups: Vec<Group>,
    length: usize,
    /// The item that came to stand right below the first last, because others sank; one that can't be an item before.
    risen: u32,
}

/// The place of the first member.
const FIRST: usize = WIDTH - 1;

impl Heap {
    /// Makes room for `members`, so that nothing is allocated later.
    pub fn reserve(&mut self, members: usize) {
        let groups = (members + FIRST).div_ceil(WIDTH);
        self.groups.reserve(groups.saturating_sub(self.groups.len()));
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The lowest key, and its item.
    #[inline]
    pub fn first(&self) -> Option<(u64, u32)> {
        let Group(group) = self.groups.first().filter(|_| self.length > 0)?;
        Some((group[FIRST].key, group[FIRST].item))
    }

    /// The lowest key; the greatest number when there is none.
    #[inline]
    pub fn first_key(&self) -> u64 {
        self.groups.first().map_or(u64::MAX, |Group(group)| group[FIRST].key)
    }

    /// The item that came to stand right below the first last: it is among the next four to be first, as far as nobody
    /// comes before it.
    #[inline]
    pub fn risen(&self) -> u32 {
        self.risen
    }

    #[inline]
    fn at(&self, place: usize) -> Member {
        self.groups[place / WIDTH].0[place % WIDTH]
    }

    #[inline]
    fn put(&mut self, positions: &mut [u32], place: usize, member: Member) {
        self.groups[place / WIDTH].0[place % WIDTH] = member;
        positions[member.item as usize] = place as u32;
    }

    /// Adds an item that is in no heap of these positions.
    #[inline]
    pub fn push(&mut self, positions: &mut [u32], key: u64, item: u32) {
        let place = self.length + FIRST;
        if place / WIDTH == self.groups.len() {
            self.groups.push(Group([Member::NOBODY; WIDTH]));
        }
        self.length += 1;
        self.rise(positions, place, Member { key, item });
    }

    /// Gives an item of this heap another key.
    #[inline]
    pub fn update(&mut self, positions: &mut [u32], key: u64, item: u32) {
        let place = positions[item as usize] as usize;
        self.replace(positions, place, Member { key, item });
    }

    /// Removes an item of this heap.
    #[inline]
    pub fn remove(&mut self, positions: &mut [u32], item: u32) {
        let place = std::mem::replace(&mut positions[item as usize], NONE) as usize;
        let end = self.length + FIRST - 1;
        let last = self.at(end);
        self.groups[end / WIDTH].0[end % WIDTH] = Member::NOBODY;
        self.length -= 1;
        if place != end {
            self.replace(positions, place, last);
        }
    }

    /// Puts a member at a place whose own goes.
    #[inline]
    fn replace(&mut self, positions: &mut [u32], place: usize, member: Member) {
        if member.key < self.at(place).key {
            self.rise(positions, place, member);
        } else {
            self.sink(positions, place, member);
        }
    }

    #[inline]
    fn rise(&mut self, positions: &mut [u32], mut place: usize, member: Member) {
        while place > FIRST {
            let above = place / WIDTH + 2;
            let parent = self.at(above);
            if parent.key <= member.key {
                break;
            }
            self.put(positions, place, parent);
            place = above;
        }
        self.put(positions, place, member);
    }

    #[inline]
    fn sink(&mut self, positions: &mut [u32], mut place: usize, member: Member) {
        while let Some(group) = self.groups.get(place - 2) {
            let (offset, least) = group.least();
            if least.key >= member.key {
                break;
            }
            self.put(positions, place, least);
            if place / WIDTH == 1 {
                self.risen = least.item;
            }
            place = (place - 2) * WIDTH + offset;
        }
        self.put(positions, place, member);
    }

    /// All keys less `by`, as far as they are above it: their order stays.
    pub fn lower(&mut self, by: u64) {
        let members = self.groups.iter_mut().flat_map(|Group(group)| group);
        for member in members.filter(|member| member.item != NONE) {
            member.key = member.key.saturating_sub(by);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn the_first_is_the_least(steps in prop::collection::vec((0_u32..40, 0_u64..30, 0_u8..3), 1..400)) {
            let (mut heap, mut positions) = (Heap::default(), vec![NONE; 40]);
            let mut twin: BTreeMap<u32, u64> = BTreeMap::new();
            for (item, key, step) in steps {
                match (step, twin.contains_key(&item)) {
                    (0, true) => {
                        heap.remove(&mut positions, item);
                        twin.remove(&item);
                    }
                    (_, true) => {
                        heap.update(&mut positions, key, item);
                        twin.insert(item, key);
                    }
                    (_, false) => {
                        heap.push(&mut positions, key, item);
                        twin.insert(item, key);
                    }
                }
                prop_assert_eq!(heap.first().map(|(key, _)| key), twin.values().min().copied());
                prop_assert_eq!(heap.length, twin.len());
                let places = heap.groups.iter().flat_map(|Group(group)| group).enumerate();
                let members = places.filter(|(_, member)| member.item != NONE);
                prop_assert_eq!(members.clone().count(), twin.len());
                for (place, member) in members {
                    prop_assert_eq!(twin[&member.item], member.key);
                    prop_assert_eq!(positions[member.item as usize] as usize, place);
                }
            }
        }
    }
}
