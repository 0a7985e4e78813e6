//! Doubly linked list of records. The links are in [`Upkeep`].

use super::record::Upkeep;

/// First and last slot of a list, and its length. Both slots are 0 if the list is empty.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::flow_table) struct List {
    first: u32,
    last: u32,
    len: u32,
}

impl List {
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Returns the first slot; 0 if the list is empty.
    pub fn first(&self) -> u32 {
        self.first
    }

    /// Appends `slot`, which must be in no list.
    pub fn push_back(&mut self, upkeep: &mut [Upkeep], slot: u32) {
        upkeep[slot as usize].previous = self.last;
        upkeep[slot as usize].next = 0;
        match self.last {
            0 => self.first = slot,
            last => upkeep[last as usize].next = slot,
        }
        self.last = slot;
        self.len += 1;
    }

    /// Prepends `slot`, which must be in no list.
    pub fn push_front(&mut self, upkeep: &mut [Upkeep], slot: u32) {
        upkeep[slot as usize].previous = 0;
        upkeep[slot as usize].next = self.first;
        match self.first {
            0 => self.last = slot,
            first => upkeep[first as usize].previous = slot,
        }
        self.first = slot;
        self.len += 1;
    }

    /// Removes `slot` from this list.
    pub fn unlink(&mut self, upkeep: &mut [Upkeep], slot: u32) {
        let (previous, next) = (upkeep[slot as usize].previous, upkeep[slot as usize].next);
        match previous {
            0 => self.first = next,
            previous => upkeep[previous as usize].next = next,
        }
        match next {
            0 => self.last = previous,
            next => upkeep[next as usize].previous = previous,
        }
        self.len -= 1;
    }

    /// Removes and returns the first slot.
    #[inline]
    pub fn pop_front(&mut self, upkeep: &mut [Upkeep]) -> Option<u32> {
        let first = self.first;
        (first != 0).then(|| {
            self.unlink(upkeep, first);
            first
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use millrace_memory::HugeSlice;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_list_is_a_deque(steps in prop::collection::vec((0..4_u8, 1..20_u32), 0..200)) {
            let mut upkeep = HugeSlice::<Upkeep>::new("upkeep", 20).unwrap();
            let (mut list, mut model) = (List::default(), VecDeque::new());
            for (step, slot) in steps {
                match (step, model.iter().position(|&other| other == slot)) {
                    (0, None) => {
                        list.push_back(&mut upkeep, slot);
                        model.push_back(slot);
                    }
                    (1, None) => {
                        list.push_front(&mut upkeep, slot);
                        model.push_front(slot);
                    }
                    (2, Some(at)) => {
                        list.unlink(&mut upkeep, slot);
                        model.remove(at);
                    }
                    (3, _) => prop_assert_eq!(list.pop_front(&mut upkeep), model.pop_front()),
                    _ => {}
                }
                prop_assert_eq!(list.len() as usize, model.len());
                prop_assert_eq!(list.first(), model.front().copied().unwrap_or(0));
            }
            while let Some(slot) = model.pop_front() {
                prop_assert_eq!(list.pop_front(&mut upkeep), Some(slot));
            }
            prop_assert_eq!(list.pop_front(&mut upkeep), None);
        }
    }
}
