//! Chains of numbered elements, linked through the elements.

use crate::arena::NONE;
use crate::slots::Slots;

/// Element that can be in one chain at a time.
pub(super) trait Linked {
    /// Returns the number of the next element of the chain.
    fn next(&self) -> u32;
    /// Sets the number of the next element of the chain.
    fn set_next(&mut self, number: u32);
}

/// Numbers of the first and of the last element; [`NONE`] in an empty chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    pub first: u32,
    pub last: u32,
}

impl Chain {
    pub const EMPTY: Self = Self { first: NONE, last: NONE };

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first == NONE
    }

    /// Adds an element, which is in no chain, at the end.
    #[inline]
    pub fn push(&mut self, number: u32, elements: &mut Slots<impl Linked>) {
        elements[number].set_next(NONE);
        match std::mem::replace(&mut self.last, number) {
            NONE => self.first = number,
            last => elements[last].set_next(number),
        }
    }

    /// Removes and returns the first element.
    #[inline]
    pub fn pop(&mut self, elements: &Slots<impl Linked>) -> Option<u32> {
        let first = self.first;
        self.first = elements.find(first)?.next();
        if self.first == NONE {
            self.last = NONE;
        }
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Link(u32);

    impl Linked for Link {
        fn next(&self) -> u32 {
            self.0
        }

        fn set_next(&mut self, number: u32) {
            self.0 = number;
        }
    }

    #[test]
    fn elements_leave_in_the_order_of_their_arrival() {
        let mut links = Slots::default();
        (0..3).for_each(|_| links.push(Link(7)));
        let mut chain = Chain::EMPTY;
        chain.push(2, &mut links);
        chain.push(0, &mut links);
        assert_eq!((chain.pop(&links), chain.is_empty()), (Some(2), false));
        chain.push(1, &mut links);
        assert_eq!([chain.pop(&links), chain.pop(&links), chain.pop(&links)], [Some(0), Some(1), None]);
        assert!(chain.is_empty());
        chain.push(1, &mut links);
        assert_eq!(chain.pop(&links), Some(1));
    }
}
