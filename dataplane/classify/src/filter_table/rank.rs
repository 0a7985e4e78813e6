//! Ranks: the order in which filters win, as numbers.

use crate::Specificity;

use super::FilterId;

const LOWER: u32 = (1 << 30) - 1;

/// Rank of a filter; the smaller rank wins. Priority decides first, then [`Specificity`], then age.
///
/// A rank depends only on its own filter, so additions and removals of other filters don't change it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Rank {
    /// Upper 64 of the 94 bits of priority and specificity, inverted: the smaller number wins.
    pub(super) upper: u64,
    /// Lower 30 bits of priority and specificity, inverted.
    pub(super) lower: u32,
    pub(super) id: FilterId,
}

impl Rank {
    /// Rank that is larger than the rank of any filter.
    pub const LAST: Self = Self { upper: u64::MAX, lower: u32::MAX, id: FilterId(u64::MAX) };

    /// Computes the rank of a filter from its priority, specificity and id.
    pub fn new(priority: i32, specificity: Specificity, id: FilterId) -> Self {
        // Flip the sign bit: unsigned numbers then have the order of the signed numbers.
        let priority = priority.cast_unsigned() ^ 1 << 31;
        let specificity = specificity.packed();
        let upper = !(u64::from(priority) << 32 | specificity >> 30);
        Self { upper, lower: !(specificity as u32) & LOWER, id }
    }

    /// Returns the filter's id.
    pub fn id(self) -> FilterId {
        self.id
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use proptest::prelude::*;

    use super::*;
    use crate::filter::tests::{any_filter, resolve};

    proptest! {
        #[test]
        fn ranks_have_the_order_of_priority_specificity_and_age(
            one in (any_filter(), prop_oneof![-1i32..2, Just(i32::MIN), Just(i32::MAX)], 0u64..3),
            other in (any_filter(), prop_oneof![-1i32..2, Just(i32::MIN), Just(i32::MAX)], 0u64..3),
        ) {
            let specificity = |filter: &crate::Filter| filter.compile(resolve).unwrap().specificity();
            let slow = |(filter, priority, id): &(crate::Filter, i32, u64)| (Reverse(*priority), Reverse(specificity(filter)), *id);
            let fast = |(filter, priority, id): &(crate::Filter, i32, u64)| Rank::new(*priority, specificity(filter), FilterId(*id));
            prop_assert_eq!(slow(&one).cmp(&slow(&other)), fast(&one).cmp(&fast(&other)));
            prop_assert!(fast(&one) < Rank::LAST);
        }
    }
}
