//! Priority queue: a heap with four children per node. Removal of an item and change of its key take
//! logarithmic time.

use std::ops::Range;

use millrace_memory::prefetch_slice_element;

use crate::arena::NONE;

/// Key by which a heap orders its items.
pub(crate) trait Key: Copy + Ord {
    /// Greatest key.
    const GREATEST: Self;
}

impl Key for u64 {
    const GREATEST: Self = Self::MAX;
}

impl Key for u128 {
    const GREATEST: Self = Self::MAX;
}

#[derive(Clone, Copy, Debug)]
struct Member<K> {
    key: K,
    item: u32,
}

impl<K: Key> Member<K> {
    /// Empty entry, whose key is the greatest of all.
    const NOBODY: Self = Self { key: K::GREATEST, item: NONE };
}

/// The four children of a member. With keys of 64 bits, they are in one cache line, so that each level of the heap
/// costs one cache miss at most.
#[repr(align(64))]
#[derive(Clone, Copy, Debug)]
struct Group<K>([Member<K>; WIDTH]);

const WIDTH: usize = 4;
const _: () = assert!(size_of::<Group<u64>>() == 64);

impl<K: Key> Group<K> {
    /// Returns the child with the lowest key, and its index in the group.
    #[inline]
    fn least(&self) -> (usize, Member<K>) {
        let Self([first, second, third, fourth]) = self;
        let left = if second.key < first.key { (1, *second) } else { (0, *first) };
        let right = if fourth.key < third.key { (3, *fourth) } else { (2, *third) };
        if right.1.key < left.1.key { right } else { left }
    }
}

/// Heap with four children per node. Several heaps share a slice with the position of each item; an item is
/// in at most one of these heaps.
///
/// Positions are counted through all groups of four. The first member is alone, at the end of group 0. The
/// children of position `p` are in group `p - 2`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heap<K = u64> {
    groups: Vec<Group<K>>,
    length: usize,
    /// Item that most recently rose to the third level of the heap, or above it, or that will rise there from the
    /// end of the heap; [`NONE`] at first.
    risen: u32,
}

/// Position of the first member.
const FIRST: usize = WIDTH - 1;
/// Number of members behind the noted one at the end of the heap. With equal keys, the end moves up to the first
/// position member by member, so that none rises from level to level.
const AHEAD: usize = 4;
/// Groups of the third level.
const THIRD_LEVEL: Range<usize> = 2..6;
/// Position from which on a sinking member prefetches the groups below all of its children: members in front of it
/// are in a near cache.
const FAR: usize = 256;

impl<K: Key> Heap<K> {
    /// Reserves space for `members` members, so that later calls allocate nothing.
    pub fn reserve(&mut self, members: usize) {
        let groups = (members + FIRST).div_ceil(WIDTH);
        self.groups.reserve(groups.saturating_sub(self.groups.len()));
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the lowest key and its item.
    #[inline]
    pub fn first(&self) -> Option<(K, u32)> {
        let Group(group) = self.groups.first().filter(|_| self.length > 0)?;
        Some((group[FIRST].key, group[FIRST].item))
    }

    /// Returns the lowest key, or the greatest key when the heap is empty.
    #[inline]
    pub fn first_key(&self) -> K {
        self.groups.first().map_or(K::GREATEST, |Group(group)| group[FIRST].key)
    }

    /// Whether an item is in this heap. `positions` may hold its position in another heap.
    #[inline]
    pub fn contains(&self, positions: &[u32], item: u32) -> bool {
        let place = positions[item as usize] as usize;
        place < self.length + FIRST && self.at(place).item == item
    }

    /// Returns the item that most recently rose to the third level of the heap or above it, because other items
    /// sank, or with its own key; or an item near the end of the heap, while items with equal keys leave. This item
    /// is among the 20 candidates for the next heads, unless others overtake it.
    #[inline]
    pub fn risen(&self) -> u32 {
        self.risen
    }

    /// Returns the item that [rose](Self::risen) since the last call; [`NONE`] if none did.
    #[inline]
    pub fn take_risen(&mut self) -> u32 {
        std::mem::replace(&mut self.risen, NONE)
    }

    #[inline]
    fn at(&self, place: usize) -> Member<K> {
        self.groups[place / WIDTH].0[place % WIDTH]
    }

    #[inline]
    fn put(&mut self, positions: &mut [u32], place: usize, member: Member<K>) {
        self.groups[place / WIDTH].0[place % WIDTH] = member;
        positions[member.item as usize] = place as u32;
    }

    /// Adds an item that is in none of the heaps that share `positions`.
    #[inline]
    pub fn push(&mut self, positions: &mut [u32], key: K, item: u32) {
        let place = self.length + FIRST;
        if place / WIDTH == self.groups.len() {
            self.groups.push(Group([Member::NOBODY; WIDTH]));
        }
        self.length += 1;
        self.rise(positions, place, Member { key, item });
    }

    /// Changes the key of an item of this heap.
    #[inline]
    pub fn update(&mut self, positions: &mut [u32], key: K, item: u32) {
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
            if self.at(FIRST).item == last.item {
                self.risen = self.at(end.saturating_sub(AHEAD).max(FIRST)).item;
            }
        }
    }

    /// Puts a new member at the position of another member, and moves the new member up or down as its key
    /// requires.
    #[inline]
    fn replace(&mut self, positions: &mut [u32], place: usize, member: Member<K>) {
        if member.key < self.at(place).key {
            self.rise(positions, place, member);
        } else {
            self.sink(positions, place, member);
        }
    }

    #[inline]
    fn rise(&mut self, positions: &mut [u32], mut place: usize, member: Member<K>) {
        while place > FIRST {
            let above = place / WIDTH + 2;
            let parent = self.at(above);
            if parent.key <= member.key {
                break;
            }
            self.put(positions, place, parent);
            place = above;
        }
        if place < THIRD_LEVEL.end * WIDTH {
            self.risen = member.item;
        }
        self.put(positions, place, member);
    }

    #[inline]
    fn sink(&mut self, positions: &mut [u32], mut place: usize, member: Member<K>) {
        while let Some(group) = self.groups.get(place - 2) {
            if place >= FAR {
                let below = (place - 2) * WIDTH - 2;
                (0..WIDTH).for_each(|child| prefetch_slice_element(&self.groups, below + child));
            }
            let (offset, least) = group.least();
            if least.key >= member.key {
                break;
            }
            self.put(positions, place, least);
            if THIRD_LEVEL.contains(&(place / WIDTH)) {
                self.risen = least.item;
            }
            place = (place - 2) * WIDTH + offset;
        }
        self.put(positions, place, member);
    }
}

impl Heap {
    /// Subtracts `by` from all keys, down to 0. The order stays.
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
            let (mut heap, mut positions) = (Heap::<u64>::default(), vec![NONE; 40]);
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
