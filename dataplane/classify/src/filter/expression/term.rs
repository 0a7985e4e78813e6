//! Terms of an expression's disjunctive normal form: a filter, and excluded address prefixes.
//!
//! A single filter can't exclude a prefix: `not src 10.0.0.1` takes a filter for each of 32 sibling prefixes,
//! and `not host 10.0.0.1` takes one for each pair of them. One term expresses either condition, so a
//! [`Selection`](super::Selection) stays small. Only filter tables need the [filters](Term::filters) of a
//! term.

use std::fmt;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::super::Filter;

/// Maximum number of comparisons that a term needs for a packet.
pub(super) const MOST_WEIGHT: usize = 1024;

/// Filter with excluded prefixes. A packet matches the term if it matches the filter and its addresses are
/// outside the excluded prefixes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Term {
    pub filter: Filter,
    /// Excluded source prefixes, sorted. None contains another.
    pub outside_source: Vec<IpNet>,
    /// Excluded destination prefixes, sorted. None contains another.
    pub outside_destination: Vec<IpNet>,
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} outside {:?} {:?}", self.filter, self.outside_source, self.outside_destination)
    }
}

impl From<Filter> for Term {
    fn from(filter: Filter) -> Self {
        Self { filter, outside_source: Vec::new(), outside_destination: Vec::new() }
    }
}

impl Term {
    /// Returns the term for packets whose source is outside a prefix.
    pub fn outside_source(net: IpNet) -> Self {
        Self { outside_source: vec![net], ..Filter::any().into() }
    }

    /// Returns the term for packets whose destination is outside a prefix.
    pub fn outside_destination(net: IpNet) -> Self {
        Self { outside_destination: vec![net], ..Filter::any().into() }
    }

    /// Returns the maximum number of comparisons for a packet.
    pub fn weight(&self) -> usize {
        1 + self.outside_source.len() + self.outside_destination.len()
    }

    /// Returns the term for packets that match `filter` and are outside the prefixes excluded by either term;
    /// `None` if there are no such packets.
    pub fn meet(&self, other: &Self, filter: Filter) -> Option<Self> {
        let is_left = |one: &Self, other: &Self| {
            other.weight() == 1
                && (filter.source(), filter.destination()) == (one.filter.source(), one.filter.destination())
        };
        let is_known = is_left(self, other) || is_left(other, self);
        let outside_source = merged(&self.outside_source, &other.outside_source, filter.source());
        let outside_destination =
            merged(&self.outside_destination, &other.outside_destination, filter.destination());
        let made = Self { filter, outside_source, outside_destination };
        (is_known || made.has_packets()).then_some(made)
    }

    /// Whether `narrow` excludes all addresses that this term excludes. Considers only addresses that the
    /// filter of `narrow` matches.
    pub fn outside_covers(&self, narrow: &Self) -> bool {
        implied(&self.outside_source, narrow.filter.source(), &narrow.outside_source)
            && implied(&self.outside_destination, narrow.filter.destination(), &narrow.outside_destination)
    }

    /// Whether any packet can match the term: for IPv4 or for IPv6, the term leaves source and destination
    /// addresses that it doesn't exclude.
    pub fn has_packets(&self) -> bool {
        let families = |net: Option<IpNet>, outside: &[IpNet]| -> [bool; 2] {
            let mut families = [false; 2];
            for net in whole(net) {
                if let Some(family) = families.get_mut(usize::from(net.addr().is_ipv6())) {
                    *family = has_rest(net, within(net, outside));
                }
            }
            families
        };
        let source = families(self.filter.source(), &self.outside_source);
        let destination = families(self.filter.destination(), &self.outside_destination);
        source.iter().zip(&destination).any(|(one, other)| *one && *other)
    }

    /// Returns the number of filters that [`filters`](Self::filters) returns.
    pub fn count(&self) -> u64 {
        let count = |net: Option<IpNet>, outside: &[IpNet]| -> Option<[u64; 2]> {
            (net.is_some() || !outside.is_empty()).then(|| {
                let mut families = [0; 2];
                for net in whole(net) {
                    let family = usize::from(net.addr().is_ipv6());
                    if let Some(count) = families.get_mut(family) {
                        *count += left(net, within(net, outside));
                    }
                }
                families
            })
        };
        let source = count(self.filter.source(), &self.outside_source);
        let destination = count(self.filter.destination(), &self.outside_destination);
        match (source, destination) {
            (None, None) => 1,
            (Some([v4, v6]), None) | (None, Some([v4, v6])) => v4 + v6,
            (Some(source), Some(destination)) => {
                source.iter().zip(&destination).map(|(one, other)| one * other).sum()
            }
        }
    }

    /// Returns filters that together match exactly the packets of the term. Their number is
    /// [`count`](Self::count).
    pub fn filters(&self) -> Vec<Filter> {
        let nets = |net: Option<IpNet>, outside: &[IpNet]| -> Vec<Option<IpNet>> {
            if outside.is_empty() {
                return vec![net];
            }
            let mut made = Vec::new();
            for net in whole(net) {
                split(net, within(net, outside), &mut made);
            }
            made.into_iter().map(Some).collect()
        };
        let destinations = nets(self.filter.destination(), &self.outside_destination);
        let mut made = Vec::new();
        for source in nets(self.filter.source(), &self.outside_source) {
            let of_family = |other: &&Option<IpNet>| match (source, other) {
                (Some(source), Some(other)) => source.addr().is_ipv4() == other.addr().is_ipv4(),
                _ => true,
            };
            let filters = destinations.iter().filter(of_family);
            made.extend(filters.map(|net| Filter { source, destination: *net, ..self.filter.clone() }));
        }
        made
    }
}

/// Returns the prefix as a list; for `None`, the prefixes 0.0.0.0/0 and ::/0.
fn whole(net: Option<IpNet>) -> Vec<IpNet> {
    let all = || vec![IpNet::V4(Ipv4Net::default()), IpNet::V6(Ipv6Net::default())];
    net.map_or_else(all, |net| vec![net])
}

/// Merges two lists of prefixes. Drops each prefix that another one contains, and each prefix that doesn't
/// overlap `net`.
fn merged(one: &[IpNet], other: &[IpNet], net: Option<IpNet>) -> Vec<IpNet> {
    let mut all: Vec<IpNet> = one.iter().chain(other).copied().collect();
    all.retain(|outside| net.is_none_or(|net| net.contains(outside) || outside.contains(&net)));
    // The sort puts a wider prefix before the prefixes inside it.
    all.sort_unstable();
    all.dedup_by(|later, kept| kept.contains(&*later));
    all
}

/// Whether the prefixes `narrow` contain all addresses that are both in `net` and in the prefixes `wide`. If
/// `net` is `None`, all addresses count.
fn implied(wide: &[IpNet], net: Option<IpNet>, narrow: &[IpNet]) -> bool {
    let is_apart = |outside: &IpNet| net.is_some_and(|net| !net.contains(outside) && !outside.contains(&net));
    wide.iter().all(|outside| is_apart(outside) || narrow.iter().any(|other| other.contains(outside)))
}

/// Returns the prefixes of a sorted list that `net` contains or that contain `net`.
fn within(net: IpNet, outside: &[IpNet]) -> &[IpNet] {
    let is_before = |other: &IpNet| *other < net && !other.contains(&net);
    let first = outside.partition_point(is_before);
    let rest = outside.get(first..).unwrap_or_default();
    let end = rest.partition_point(|other| other.contains(&net) || net.contains(other));
    rest.get(..end).unwrap_or_default()
}

/// Returns the two halves of a prefix; `None` for a single address.
fn halves(net: IpNet) -> Option<[IpNet; 2]> {
    let length = net.prefix_len().checked_add(1)?;
    let mut halves = match net {
        IpNet::V4(net) => net.subnets(length).ok()?.map(IpNet::V4).collect::<Vec<_>>(),
        IpNet::V6(net) => net.subnets(length).ok()?.map(IpNet::V6).collect(),
    }
    .into_iter();
    Some([halves.next()?, halves.next()?])
}

/// Whether `net` has addresses outside the excluded prefixes. The search halves `net` again and again, and
/// stops at a half that contains no excluded prefix. So the longest excluded prefix bounds the depth of the
/// search.
fn has_rest(net: IpNet, outside: &[IpNet]) -> bool {
    match outside.first() {
        None => true,
        Some(first) if first.contains(&net) => false,
        Some(_) => halves(net).is_some_and(|halves| {
            let parts = halves.map(|half| (half, within(half, outside)));
            parts.iter().any(|(_, inside)| inside.is_empty())
                || parts.iter().any(|(half, inside)| has_rest(*half, inside))
        }),
    }
}

/// Returns the number of prefixes that [`split`] appends for the same `net` and `outside`.
fn left(net: IpNet, outside: &[IpNet]) -> u64 {
    match outside.first() {
        None => 1,
        Some(first) if first.contains(&net) => 0,
        Some(_) => halves(net)
            .map_or(0, |halves| halves.iter().map(|half| left(*half, within(*half, outside))).sum()),
    }
}

/// Appends prefixes that cover all of `net` except the excluded prefixes.
fn split(net: IpNet, outside: &[IpNet], made: &mut Vec<IpNet>) {
    match outside.first() {
        None => made.push(net),
        Some(first) if first.contains(&net) => {}
        Some(_) => {
            for half in halves(net).into_iter().flatten() {
                split(half, within(half, outside), made);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Prefixes of both families that often contain each other.
    fn any_net() -> impl Strategy<Value = IpNet> {
        let v4 = (0_u32..4, 0_u8..=32).prop_map(|(high, length)| {
            IpNet::V4(Ipv4Net::new_assert((high << 30 | high).into(), length).trunc())
        });
        let v6 = (0_u128..4, 0_u8..=128).prop_map(|(high, length)| {
            IpNet::V6(Ipv6Net::new_assert((high << 126 | high).into(), length).trunc())
        });
        prop_oneof![v4, v6]
    }

    proptest! {
        #[test]
        fn term_matches_packets_of_its_filters(
            source in proptest::option::of(any_net()),
            destination in proptest::option::of(any_net()),
            outside_source in proptest::collection::vec(any_net(), 0..12),
            outside_destination in proptest::collection::vec(any_net(), 0..12),
        ) {
            let term = Term {
                filter: Filter { source, destination, ..Filter::any() },
                outside_source: merged(&outside_source, &[], source),
                outside_destination: merged(&outside_destination, &[], destination),
            };
            prop_assert_eq!(term.has_packets(), term.count() > 0, "{:?}", term);
        }
    }
}
