//! A heap whose members can be moved and removed: who is first by a key, with the cost of a logarithm.

use crate::arena::NONE;

#[derive(Clone, Copy, Debug)]
struct Member {
    key: u64,
    item: u32,
}

/// A heap of four children per node. Where each item stands is noted in a slice that several heaps share, as long as an
/// item is in one of them at most.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heap {
    members: Vec<Member>,
}

const WIDTH: usize = 4;

impl Heap {
    /// Makes room for `members`, so that nothing is allocated later.
    pub fn reserve(&mut self, members: usize) {
        self.members.reserve(members.saturating_sub(self.members.len()));
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The lowest key, and its item.
    #[inline]
    pub fn first(&self) -> Option<(u64, u32)> {
        self.members.first().map(|member| (member.key, member.item))
    }

    /// The lowest key; the greatest number when there is none.
    #[inline]
    pub fn first_key(&self) -> u64 {
        self.members.first().map_or(u64::MAX, |member| member.key)
    }

    /// The items right below the first: one of them is the next first, when that goes.
    #[inline]
    pub fn second(&self) -> impl Iterator<Item = u32> + '_ {
        self.members.iter().skip(1).take(WIDTH).map(|member| member.item)
    }

    #[inline]
    fn put(&mut self, positions: &mut [u32], at: usize, member: Member) {
        self.members[at] = member;
        positions[member.item as usize] = at as u32;
    }

    /// Adds an item that is in no heap of these positions.
    #[inline]
    pub fn push(&mut self, positions: &mut [u32], key: u64, item: u32) {
        let member = Member { key, item };
        self.members.push(member);
        self.rise(positions, self.members.len() - 1, member);
    }

    /// Gives an item of this heap another key.
    #[inline]
    pub fn update(&mut self, positions: &mut [u32], key: u64, item: u32) {
        let at = positions[item as usize] as usize;
        let member = Member { key, item };
        if key < self.members[at].key {
            self.rise(positions, at, member);
        } else {
            self.sink(positions, at, member);
        }
    }

    /// Removes an item of this heap.
    #[inline]
    pub fn remove(&mut self, positions: &mut [u32], item: u32) {
        let at = positions[item as usize] as usize;
        positions[item as usize] = NONE;
        let Some(last) = self.members.pop() else { return };
        if at == self.members.len() {
            return;
        }
        if last.key < self.members[at].key {
            self.rise(positions, at, last);
        } else {
            self.sink(positions, at, last);
        }
    }

    #[inline]
    fn rise(&mut self, positions: &mut [u32], mut at: usize, member: Member) {
        while at > 0 {
            let parent = (at - 1) / WIDTH;
            if self.members[parent].key <= member.key {
                break;
            }
            self.put(positions, at, self.members[parent]);
            at = parent;
        }
        self.put(positions, at, member);
    }

    #[inline]
    fn sink(&mut self, positions: &mut [u32], mut at: usize, member: Member) {
        loop {
            let first = at * WIDTH + 1;
            let end = (first + WIDTH).min(self.members.len());
            let Some(children) = self.members.get(first..end) else { break };
            let Some((offset, least)) = children.iter().enumerate().min_by_key(|(_, child)| child.key) else {
                break;
            };
            if least.key >= member.key {
                break;
            }
            let least = *least;
            self.put(positions, at, least);
            at = first + offset;
        }
        self.put(positions, at, member);
    }

    /// All keys less `by`, as far as they are above it: their order stays.
    pub fn lower(&mut self, by: u64) {
        for member in &mut self.members {
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
                prop_assert_eq!(heap.members.len(), twin.len());
                for (at, member) in heap.members.iter().enumerate() {
                    prop_assert_eq!(twin[&member.item], member.key);
                    prop_assert_eq!(positions[member.item as usize] as usize, at);
                }
            }
        }
    }
}
