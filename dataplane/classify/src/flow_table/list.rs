//! A list of records, linked through their far parts.

use super::record::FarRecord;

/// Ends of a list, by slot; 0 when it is empty.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct List {
    first: u32,
    last: u32,
    len: u32,
}

impl List {
    pub fn len(&self) -> u32 {
        self.len
    }

    /// The first slot, or 0.
    pub fn first(&self) -> u32 {
        self.first
    }

    /// Puts `slot`, which is in no list, behind all others.
    pub fn push_back(&mut self, records: &mut [FarRecord], slot: u32) {
        records[slot as usize].previous = self.last;
        records[slot as usize].next = 0;
        match self.last {
            0 => self.first = slot,
            last => records[last as usize].next = slot,
        }
        self.last = slot;
        self.len += 1;
    }

    /// Puts `slot`, which is in no list, before all others.
    pub fn push_front(&mut self, records: &mut [FarRecord], slot: u32) {
        records[slot as usize].previous = 0;
        records[slot as usize].next = self.first;
        match self.first {
            0 => self.last = slot,
            first => records[first as usize].previous = slot,
        }
        self.first = slot;
        self.len += 1;
    }

    /// Takes `slot` out, wherever it is in this list.
    pub fn unlink(&mut self, records: &mut [FarRecord], slot: u32) {
        let (previous, next) = (records[slot as usize].previous, records[slot as usize].next);
        match previous {
            0 => self.first = next,
            previous => records[previous as usize].next = next,
        }
        match next {
            0 => self.last = previous,
            next => records[next as usize].previous = previous,
        }
        self.len -= 1;
    }

    /// Takes out the first slot.
    pub fn pop_front(&mut self, records: &mut [FarRecord]) -> Option<u32> {
        let first = self.first;
        (first != 0).then(|| {
            self.unlink(records, first);
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
            let mut records = HugeSlice::<FarRecord>::new("records", 20).unwrap();
            let (mut list, mut model) = (List::default(), VecDeque::new());
            for (step, slot) in steps {
                match (step, model.iter().position(|&other| other == slot)) {
                    (0, None) => {
                        list.push_back(&mut records, slot);
                        model.push_back(slot);
                    }
                    (1, None) => {
                        list.push_front(&mut records, slot);
                        model.push_front(slot);
                    }
                    (2, Some(at)) => {
                        list.unlink(&mut records, slot);
                        model.remove(at);
                    }
                    (3, _) => prop_assert_eq!(list.pop_front(&mut records), model.pop_front()),
                    _ => {}
                }
                prop_assert_eq!(list.len() as usize, model.len());
                prop_assert_eq!(list.first(), model.front().copied().unwrap_or(0));
            }
            while let Some(slot) = model.pop_front() {
                prop_assert_eq!(list.pop_front(&mut records), Some(slot));
            }
            prop_assert_eq!(list.pop_front(&mut records), None);
        }
    }
}
