//! Extraction: takes packets out of the middle of a list.

use super::{Arena, Held, List, Load};

impl<T, F: Copy> Arena<T, F> {
    /// Takes the packets that `is_wanted` accepts out of `list`, and passes them to `out`. The others keep their order.
    /// Returns the load of the packets taken.
    pub fn extract(
        &mut self,
        list: &mut List,
        mut is_wanted: impl FnMut(&T) -> bool,
        mut out: impl FnMut(Held<T, F>),
    ) -> Load {
        let first = self.slots.get(list.head as usize);
        let mut slots = std::iter::successors(first, |slot| self.slots.get(slot.next as usize));
        if !slots.any(|slot| slot.item.as_ref().is_some_and(&mut is_wanted)) {
            return Load::NOTHING;
        }
        let mut rest = std::mem::take(list);
        let all = rest.load;
        while let Some(held) = self.pop(&mut rest) {
            match is_wanted(&held.item) {
                true => out(held),
                false => self.push(list, held),
            }
        }
        all.minus(list.load)
    }
}
