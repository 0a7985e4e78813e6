//! Geometry of the cutting tree: packets as points, and filters as ranges in each dimension.

use crate::candidate::{DSCP_SHIFT, TAG_SHIFT};
use crate::filter_table::key::{Condition, Key, V4};

/// Maximum number of dimensions, with reserve.
///
/// IPv4 has 8 dimensions: both addresses, both ports, protocol, ingress port, tag and DSCP. IPv6 has 14: each
/// address is four words, and a prefix is a range in each word. Flags and exceptions are no dimensions: their
/// masks may select any bits, which form no range.
pub(super) const MOST: usize = 16;

/// Value of a packet in each dimension.
pub(super) type Point = [u32; MOST];

/// Returns the number of dimensions, for keys of `words` words.
pub(super) const fn dimensions(words: usize) -> usize {
    if words == V4 { 8 } else { 14 }
}

/// Returns the number of address dimensions, for keys of `words` words.
const fn of_addresses(words: usize) -> usize {
    dimensions(words) - FURTHER
}

/// Number of dimensions other than those of addresses.
const FURTHER: usize = 6;

/// Range of values, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Range {
    pub first: u32,
    pub last: u32,
}

impl Range {
    /// Range of all values.
    pub const ALL: Self = Self { first: 0, last: u32::MAX };

    /// Whether this range contains all values of `other`.
    pub fn covers(self, other: Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }
}

/// Part of the space: a range in each dimension.
pub(super) type Region = [Range; MOST];

/// The whole space.
pub(super) const EVERYWHERE: Region = [Range::ALL; MOST];

/// Returns the point of a packet.
#[inline(always)]
pub(super) fn point<const W: usize>(key: &Key<W>) -> Point {
    let mut point = [0; MOST];
    let addresses = of_addresses(W);
    for (pair, word) in point[..addresses].chunks_exact_mut(2).zip(&key.words) {
        (pair[0], pair[1]) = ((word >> 32) as u32, *word as u32);
    }
    let (meta, varying) = ((key.words[W - 1] >> 32) as u32, key.words[W - 1] as u32);
    let further = [
        key.ports >> 16,
        key.ports & 0xffff,
        meta & 0xff,
        meta >> 16,
        varying >> TAG_SHIFT & 31,
        varying >> DSCP_SHIFT & 63,
    ];
    point[addresses..][..FURTHER].copy_from_slice(&further);
    point
}

/// Returns a filter's range in a dimension. A packet with a value outside doesn't match the filter; a packet
/// with a value inside may match.
pub(super) fn range<const W: usize>(condition: &Condition<W>, dimension: usize) -> Range {
    let (values, masks) = condition.words();
    let addresses = of_addresses(W);
    if dimension < addresses {
        let shift = if dimension.is_multiple_of(2) { 32 } else { 0 };
        let (value, mask) = (values[dimension / 2] >> shift, masks[dimension / 2] >> shift);
        return Range { first: value as u32, last: value as u32 | !(mask as u32) };
    }
    let (value, mask) = (values[W - 1], masks[W - 1]);
    let exact = |shift: u32, bits: u64| match mask >> shift & bits == bits {
        true => Range { first: (value >> shift & bits) as u32, last: (value >> shift & bits) as u32 },
        false => Range::ALL,
    };
    let ports = |side: usize| match condition.ports()[side] {
        (0, u16::MAX) => Range::ALL,
        (first, last) => Range { first: first.into(), last: last.into() },
    };
    match dimension - addresses {
        side @ (0 | 1) => ports(side),
        2 => exact(32, 0xff),
        3 => exact(48, 0xffff),
        4 => exact(TAG_SHIFT, 31),
        5 => exact(DSCP_SHIFT, 63),
        _ => Range::ALL,
    }
}

#[cfg(test)]
mod tests {
    use millrace_packet::Family;
    use proptest::prelude::*;

    use super::*;
    use crate::filter::tests::{any_candidate, any_filter, compiled, resolve};
    use crate::filter_table::key::V6;
    use crate::{Candidate, CompiledFilter};

    fn is_inside<const W: usize>(filter: &CompiledFilter, candidate: &Candidate) -> bool {
        let (Some(condition), point) = (Condition::<W>::of(filter), point::<W>(&Key::of(candidate))) else {
            return false;
        };
        (0..MOST).all(|at| {
            let Range { first, last } = range(&condition, at);
            (first..=last).contains(&point[at])
        })
    }

    proptest! {
        #[test]
        fn packets_that_match_lie_inside_of_all_ranges(filter in any_filter(), candidate in any_candidate()) {
            let filter = filter.compile(resolve).unwrap();
            let inside = match candidate.key.family() {
                Family::V4 => is_inside::<V4>(&filter, &candidate),
                Family::V6 => is_inside::<V6>(&filter, &candidate),
            };
            prop_assert!(inside || !filter.matches(&candidate));
        }
    }

    #[test]
    fn a_filter_asks_for_a_range_in_each_dimension() {
        let filter = compiled("src 10.1.0.0/16 dst 10.2.3.4 proto udp sport 7-9 tag 3 dscp 46");
        let ranges = [0, 1, 2, 3, 4, 5, 6, 7].map(|dimension| {
            let Range { first, last } = range(&Condition::<V4>::of(&filter).unwrap(), dimension);
            (first, last)
        });
        let any = (0, u32::MAX);
        let expected = [
            (0x0a01_0000, 0x0a01_ffff),
            (0x0a02_0304, 0x0a02_0304),
            (7, 9),
            any,
            (17, 17),
            any,
            (3, 3),
            (46, 46),
        ];
        assert_eq!(ranges, expected);
        let six = compiled("src 2001:db8:1230::/44 dport 80");
        let condition = Condition::<V6>::of(&six).unwrap();
        assert_eq!(range(&condition, 0), Range { first: 0x2001_0db8, last: 0x2001_0db8 });
        assert_eq!(range(&condition, 1), Range { first: 0x1230_0000, last: 0x123f_ffff });
        assert_eq!(range(&condition, 2), Range::ALL);
        assert_eq!(range(&condition, 9), Range { first: 80, last: 80 });
    }
}
