//! Ranges of prefix-ordered tables, such as all entries after one prefix and inside another. They are found
//! without a scan of earlier entries.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::ops::{Bound, RangeInclusive};

use ipnet::IpNet;

/// Range of a table whose keys are prefixes, ordered by family, address and length.
#[derive(Clone, Copy, Debug, Default)]
pub struct PrefixRange {
    /// Exclusive lower bound; `None` for no bound.
    pub after: Option<IpNet>,
    /// Prefix that contains all prefixes of the range. The range may include this prefix itself. `None` for
    /// all prefixes.
    pub within: Option<IpNet>,
}

impl PrefixRange {
    /// Returns the entries of a table in the range.
    pub fn of<'a, V>(
        &self,
        table: &'a BTreeMap<IpNet, V>,
    ) -> impl Iterator<Item = (IpNet, &'a V)> + use<'a, V> {
        let within = self.within;
        let entries = self.bounds().map(|bounds| table.range(bounds));
        let entries = entries.into_iter().flatten().map(|(prefix, value)| (*prefix, value));
        // The span also has shorter prefixes with the same address, which are not inside `within`.
        entries.filter(move |(prefix, _)| within.is_none_or(|within| within.contains(prefix)))
    }

    /// Returns the bounds of the range as keys; `None` if the range is empty.
    fn bounds(&self) -> Option<(Bound<IpNet>, Bound<IpNet>)> {
        let span = self.within.map(span);
        let end = span.as_ref().map(|span| *span.end());
        if self.after.zip(end).is_some_and(|(after, end)| after > end) {
            return None;
        }
        let first = span.as_ref().map(|span| *span.start());
        let start = match (self.after, first) {
            (Some(after), Some(first)) if after < first => Bound::Included(first),
            (Some(after), _) => Bound::Excluded(after),
            (None, first) => first.map_or(Bound::Unbounded, Bound::Included),
        };
        Some((start, end.map_or(Bound::Unbounded, Bound::Included)))
    }
}

/// Returns the key range that holds every prefix inside `prefix`.
pub(crate) fn span(prefix: IpNet) -> RangeInclusive<IpNet> {
    let first = IpNet::new_assert(prefix.network(), 0);
    let last = match prefix {
        IpNet::V4(net) => IpNet::new_assert(net.broadcast().into(), 32),
        IpNet::V6(net) => {
            let last = Ipv6Addr::from(u128::from(net.network()) | u128::from(net.hostmask()));
            IpNet::new_assert(last.into(), 128)
        }
    };
    first..=last
}

/// Merges two tables in the order of prefixes; if both have a prefix, the entry of the first table wins.
pub fn merged<T>(
    first: impl Iterator<Item = (IpNet, T)>,
    second: impl Iterator<Item = (IpNet, T)>,
) -> impl Iterator<Item = (IpNet, T)> {
    let (mut first, mut second) = (first.peekable(), second.peekable());
    let key = |entry: Option<&(IpNet, T)>| entry.map(|(prefix, _)| *prefix);
    std::iter::from_fn(move || match (key(first.peek()), key(second.peek())) {
        (Some(one), Some(other)) if other < one => second.next(),
        (Some(one), other) => {
            if other == Some(one) {
                let _ = second.next();
            }
            first.next()
        }
        (None, _) => second.next(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Generates prefixes from a small set, so that many of them contain each other.
    fn any_prefix() -> impl Strategy<Value = IpNet> {
        let v4 = (0..4_u32, 0..=32_u8)
            .prop_map(|(bits, length)| IpNet::new_assert((bits << 30 | bits).to_be_bytes().into(), length));
        let v6 = (0..4_u128, 0..=128_u8)
            .prop_map(|(bits, length)| IpNet::new_assert((bits << 126 | bits).to_be_bytes().into(), length));
        prop_oneof![v4, v6].prop_map(|prefix| prefix.trunc())
    }

    proptest! {
        #[test]
        fn range_equals_a_scan_of_all_entries(
            all in prop::collection::btree_map(any_prefix(), any::<u8>(), 0..40),
            after in prop::option::of(any_prefix()),
            within in prop::option::of(any_prefix()),
        ) {
            let is_meant = |prefix: &IpNet| {
                after.is_none_or(|after| *prefix > after) && within.is_none_or(|within| within.contains(prefix))
            };
            let simple: Vec<_> = all.iter().filter(|(prefix, _)| is_meant(prefix)).map(|(prefix, value)| (*prefix, value)).collect();
            prop_assert_eq!(PrefixRange { after, within }.of(&all).collect::<Vec<_>>(), simple);
        }

        #[test]
        fn two_tables_are_merged_as_a_map_would(
            first in prop::collection::btree_map(any_prefix(), 0..100_u8, 0..40),
            second in prop::collection::btree_map(any_prefix(), 100..200_u8, 0..40),
        ) {
            let (copy, other) = (first.clone(), second.clone());
            let simple: BTreeMap<IpNet, u8> = second.into_iter().chain(first).collect();
            prop_assert_eq!(merged(copy.into_iter(), other.into_iter()).collect::<Vec<_>>(), simple.into_iter().collect::<Vec<_>>());
        }
    }
}
