//! Analysis of a filter table: filters that never win, and pairs whose winner is hard to predict.
//!
//! A filter **covers** another if it matches every packet that the other matches.
//!
//! A filter is **better** than another if it wins for packets that match both. A filter is **shadowed**, and
//! never wins, if better filters cover it, alone or together. To find out whether several filters cover a
//! filter together, the analysis subtracts them from that filter piece by piece ([`cover`](super::cover)). If
//! that takes too long, it reports the filter as undecided. Alternatives of one expression have the same
//! action, so [`analyse`] doesn't compare them with each other.
//!
//! Two filters are **ambiguous** if they have the same priority, some packet matches both, and neither covers
//! the other. So neither is a special case of the other. Only the order of the fields in
//! [`Specificity`](crate::Specificity) decides between them; if their specificity is equal, their age. These
//! are the ambiguous filters of *Router Plugins* (section 5.1.2). Different priorities resolve the ambiguity.
//!
//! If one of two filters of equal priority covers the other, the covered filter wins, unless it is shadowed.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use crate::{CompiledFilter, Field};

use super::cover::{Cover, MOST, cover};
use super::shape::Shape;
use super::{Entry, FilterId, in_order};

/// Result of [`analyse`].
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Analysis {
    /// Filters that never win, in the order of the table (the best first).
    pub shadowed: Vec<Shadowed>,
    /// Filters that no single filter covers, and for which the search for a joint cover would take too long.
    pub undecided: Vec<FilterId>,
    /// Ambiguous pairs, up to the number that the caller requested. A shadowed filter is in no pair.
    pub ambiguous: Vec<Ambiguous>,
    /// Number of all ambiguous pairs.
    pub ambiguous_pairs: usize,
}

/// Filter that never wins.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Shadowed {
    /// The shadowed filter.
    pub filter: FilterId,
    /// The best filter that alone covers the shadowed filter. If there is none, a minimal set of better
    /// filters that cover it together.
    pub by: Vec<FilterId>,
}

/// Two filters of equal priority, of which neither covers the other, although some packet matches both.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ambiguous {
    /// Filter that wins.
    pub winner: FilterId,
    /// Filter that loses.
    pub loser: FilterId,
    /// Field in which the winner is more specific; `None` if the winner is only older.
    pub decided_by: Option<Field>,
}

/// Whether some packet matches both filters.
pub fn overlap(one: &CompiledFilter, other: &CompiledFilter) -> bool {
    Shape::of(one).overlaps(&Shape::of(other))
}

/// Finds the reason that none of the filters selected by `is_meant` can win. Returns the better filters that
/// cover the selected filters, alone or together. Returns `None` unless all selected filters are covered.
pub fn shadowed_by<'a, T: 'a>(
    entries: impl IntoIterator<Item = &'a Entry<T>>,
    is_meant: impl Fn(&Entry<T>) -> bool,
) -> Option<Vec<FilterId>> {
    let sorted = in_order(entries);
    let shapes: Vec<Shape> = sorted.iter().map(|entry| Shape::of(&entry.filter)).collect();
    let mut all: Vec<FilterId> = Vec::new();
    let meant: Vec<usize> = (0..sorted.len()).filter(|place| is_meant(sorted[*place])).collect();
    for place in &meant {
        let before: Vec<usize> = (0..*place).filter(|other| !meant.contains(other)).collect();
        let Cover::By(by) = cover(&shapes[*place], &shapes, &before, MOST) else { return None };
        for id in by.into_iter().map(|by| sorted[by].id) {
            if !all.contains(&id) {
                all.push(id);
            }
        }
    }
    (!meant.is_empty()).then_some(all)
}

/// Finds shadowed and ambiguous filters. Lists at most `most` ambiguous pairs.
///
/// `owner` returns the expression to which a filter belongs as an alternative. Filters of one owner have the
/// same action, and are not compared with each other. A pair of owners counts once, however many of their
/// filters are ambiguous.
///
/// The analysis compares all pairs: 10,000 filters take about a second, 100,000 filters a hundred times as
/// long. For each filter, the search for a joint cover has a maximum number of comparisons.
pub fn analyse<'a, T: 'a, K: Copy + Eq + Hash>(
    entries: impl IntoIterator<Item = &'a Entry<T>>,
    most: usize,
    owner: impl Fn(&Entry<T>) -> K,
) -> Analysis {
    let sorted = in_order(entries);
    let shapes: Vec<Shape> = sorted.iter().map(|entry| Shape::of(&entry.filter)).collect();
    let owners: Vec<K> = sorted.iter().map(|entry| owner(entry)).collect();
    let mut analysis = Analysis::default();
    // Indexes of the filters that can win.
    let mut alive: Vec<usize> = Vec::new();
    // Owners of the filters that can win.
    let mut can_win: HashSet<K> = HashSet::new();
    for (place, shape) in shapes.iter().enumerate() {
        // Leave out shadowed filters. If a shadowed filter covers this one, then the filters that shadow it
        // cover this one as well.
        let is_other = |other: &usize| owners[*other] != owners[place];
        let others: Vec<usize>;
        let before = if can_win.contains(&owners[place]) {
            others = alive.iter().copied().filter(is_other).collect();
            &others
        } else {
            &alive
        };
        let by = match cover(shape, &shapes, before, MOST) {
            Cover::None => None,
            Cover::By(by) => Some(by),
            Cover::Undecided => {
                analysis.undecided.push(sorted[place].id);
                None
            }
        };
        match by {
            Some(by) => {
                let by = by.into_iter().map(|by| sorted[by].id).collect();
                analysis.shadowed.push(Shadowed { filter: sorted[place].id, by });
            }
            None => {
                alive.push(place);
                can_win.insert(owners[place]);
            }
        }
    }
    note_ambiguous_pairs(&mut analysis, (&sorted, &shapes, &owners), &alive, most);
    analysis
}

/// Records the ambiguous pairs of filters with different owners. `alive` holds the indexes of all filters
/// that are not shadowed.
fn note_ambiguous_pairs<T, K: Copy + Eq + Hash>(
    analysis: &mut Analysis,
    (sorted, shapes, owners): (&[&Entry<T>], &[Shape], &[K]),
    alive: &[usize],
    most: usize,
) {
    for group in alive.chunk_by(|one, next| sorted[*one].priority == sorted[*next].priority) {
        let groups = by_owner(group, owners);
        for (number, own) in groups.iter().enumerate() {
            for others in &groups[number + 1..] {
                let pairs = own
                    .iter()
                    .flat_map(|one| others.iter().map(move |other| (one.min(other), one.max(other))));
                // The winner can't cover the loser: the loser would be shadowed, and not in `alive`.
                let is_ambiguous = |(winner, loser): &(&usize, &usize)| {
                    let (first, second) = (&shapes[**winner], &shapes[**loser]);
                    first.overlaps(second) && !second.covers(first)
                };
                let Some((winner, loser)) = { pairs }.find(is_ambiguous) else { continue };
                analysis.ambiguous_pairs += 1;
                if analysis.ambiguous.len() < most {
                    analysis.ambiguous.push(ambiguous(sorted[*winner], sorted[*loser]));
                }
            }
        }
    }
}

/// Groups indexes of filters by owner, in the order of each owner's first filter.
fn by_owner<K: Copy + Eq + Hash>(places: &[usize], owners: &[K]) -> Vec<Vec<usize>> {
    let (mut groups, mut numbers): (Vec<Vec<usize>>, HashMap<K, usize>) = Default::default();
    for place in places {
        let number = *numbers.entry(owners[*place]).or_insert(groups.len());
        if number == groups.len() {
            groups.push(Vec::new());
        }
        groups[number].push(*place);
    }
    groups
}

fn ambiguous<T>(winner: &Entry<T>, loser: &Entry<T>) -> Ambiguous {
    let decided_by = winner.filter.specificity().decided_by(&loser.filter.specificity());
    Ambiguous { winner: winner.id, loser: loser.id, decided_by }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use millrace_packet::{Exceptions, FlowKey};
    use millrace_units::PortId;
    use proptest::prelude::*;

    use super::*;
    use crate::filter::tests::{any_candidate, any_filter, compiled, resolve};
    use crate::{Candidate, CompiledFilter, FilterTable, LinearOracle};

    fn table(filters: &[(&str, i32)]) -> LinearOracle<()> {
        let mut table = LinearOracle::new();
        for (text, priority) in filters {
            table.insert(compiled(text), *priority, ());
        }
        table
    }

    fn shadowed_by(filters: &[(&str, i32)]) -> Vec<(u64, Vec<u64>)> {
        let found = analyse(table(filters).entries(), 0, |entry| entry.id);
        assert_eq!(found.undecided, []);
        let by = |shadowed: &Shadowed| {
            let mut by: Vec<u64> = shadowed.by.iter().map(|by| by.0).collect();
            by.sort_unstable();
            by
        };
        found.shadowed.iter().map(|shadowed| (shadowed.filter.0, by(shadowed))).collect()
    }

    fn shadowed(filters: &[(&str, i32)]) -> Vec<(u64, u64)> {
        shadowed_by(filters).into_iter().map(|(filter, by)| (filter, by[0])).collect()
    }

    fn ambiguous(filters: &[(&str, i32)]) -> Vec<(u64, u64, Option<Field>)> {
        let found = analyse(table(filters).entries(), 10, |entry| entry.id);
        assert_eq!(found.ambiguous.len(), found.ambiguous_pairs);
        found.ambiguous.iter().map(|pair| (pair.winner.0, pair.loser.0, pair.decided_by)).collect()
    }

    #[test]
    fn filter_covered_by_a_better_filter_never_wins() {
        assert_eq!(shadowed(&[("src 10.0.0.1", 0), ("src 10.0.0.0/8", 1), ("*", 2)]), [(1, 2), (0, 2)]);
        assert_eq!(shadowed(&[("src 10.0.0.1", 2), ("src 10.0.0.0/8", 1), ("*", 0)]), []);
        assert_eq!(shadowed(&[("proto tcp dport 7", 0), ("proto tcp dport 7", 0)]), [(1, 0)]);
        assert_eq!(shadowed(&[("dport 5-9", 1), ("proto tcp dport 7", 0)]), [(1, 0)]);
        // TCP packets without exceptions have known ports; other TCP packets may have unknown ports.
        assert_eq!(shadowed(&[("dport 0-65535", 1), ("proto tcp", 0)]), []);
        assert_eq!(shadowed(&[("dport 0-65535", 1), ("proto tcp exceptions none", 0)]), [(1, 0)]);
        // A destination prefix restricts the filter to IPv4. The other filter wins, because the source is the
        // more significant field.
        assert_eq!(shadowed(&[("dst 10.0.0.0/8", 0), ("src 0.0.0.0/0", 0)]), [(0, 1)]);
    }

    #[test]
    fn filter_covered_by_several_better_filters_never_wins() {
        let ports = [("dport 1-5", 1), ("dport 20", 1), ("dport 6-9", 1)];
        let with = |more| shadowed_by(&[&ports[..], &[more]].concat());
        assert_eq!(with(("dport 2-9", 0)), [(3, vec![0, 2])]);
        assert_eq!(with(("dport 2-10", 0)), []);
        assert_eq!(with(("src 10.0.0.1 proto tcp dport 2-9 flags syn", 0)), [(3, vec![0, 2])]);
        let halves =
            [("src 10.0.0.0/9", 1), ("src 10.128.0.0/9", 1), ("src 10.0.0.0/8", 0), ("src 10.0.0.0/7", 0)];
        assert_eq!(shadowed_by(&halves), [(2, vec![0, 1])]);
        let versions = [("src 0.0.0.0/0", 2), ("dst ::/0", 1), ("proto udp", 0)];
        assert_eq!(shadowed_by(&versions), [(2, vec![0, 1])]);
        // TCP packets may have unreadable ports, which no port range matches.
        let all_ports = [("sport 0-99", 1), ("sport 100-65535", 1)];
        let with = |more| shadowed_by(&[&all_ports[..], &[more]].concat());
        assert_eq!(with(("proto tcp", 0)), []);
        assert_eq!(with(("proto tcp exceptions none", 0)), [(2, vec![0, 1])]);
        // Filters 1 and 2 together cover filter 3, so the report doesn't name filter 0.
        let crossed = [("src 10.0.0.0/8", 1), ("dport 5-9", 1), ("dport 1-4", 1), ("proto udp dport 1-9", 0)];
        assert_eq!(shadowed_by(&crossed), [(3, vec![1, 2])]);
    }

    #[test]
    fn filters_that_cross_are_ambiguous_unless_their_priority_decides() {
        let source = "src 10.0.0.0/8";
        assert_eq!(ambiguous(&[("dst 10.0.0.0/8", 0), (source, 0)]), [(1, 0, Some(Field::Source))]);
        assert_eq!(ambiguous(&[("dst 10.0.0.0/8", 0), (source, 1)]), []);
        assert_eq!(ambiguous(&[("dport 1-5", 0), ("dport 4-8", 0)]), [(0, 1, None)]);
        assert_eq!(ambiguous(&[("dport 1-3", 0), ("dport 4-8", 0)]), []);
        assert_eq!(ambiguous(&[(source, 0), ("src 10.1.0.0/16", 0)]), []);
        assert_eq!(ambiguous(&[("src 10.0.0.0/8", 0), ("dst 2001::/16", 0)]), []);
        // ESP has no ports, and fragments have unknown ports.
        assert_eq!(ambiguous(&[("proto esp", 0), ("dport 7", 0)]), []);
        assert_eq!(ambiguous(&[("exceptions fragment", 0), ("dport 7", 0)]), []);
        assert_eq!(ambiguous(&[("exceptions ttl", 0), ("dport 7", 0)]).len(), 1);
        // A shadowed filter is in no pair.
        assert_eq!(ambiguous(&[("dst 10.0.0.0/8", 0), (source, 0), ("*", 1)]), []);
        assert_eq!(
            analyse(table(&[("dport 1-5", 0), ("dport 4-8", 0), ("dport 3-9", 0)]).entries(), 1, |entry| {
                entry.id
            })
            .ambiguous
            .len(),
            1
        );
    }

    #[test]
    fn filters_of_one_owner_are_not_compared_and_a_pair_of_owners_counts_once() {
        let filters = [("sport 1-9", 0), ("dport 1-9", 0), ("src 10.0.0.0/8", 0)];
        let table = table(&filters);
        let pairs = |owner: fn(&Entry<()>) -> u64| {
            let found = analyse(table.entries(), 10, owner);
            assert_eq!(found.ambiguous.len(), found.ambiguous_pairs);
            found.ambiguous_pairs
        };
        assert_eq!(pairs(|entry| entry.id.0), 3);
        // The first two filters belong to one owner, the third to another.
        assert_eq!(pairs(|entry| entry.id.0 / 2), 1);
        assert_eq!(pairs(|_| 0), 0);
        // Filters of the same owner don't shadow each other.
        let covered = [("src 10.0.0.0/8", 0), ("src 10.0.0.1", 0), ("src 10.0.0.0/9", 1)];
        let found = analyse(self::table(&covered).entries(), 0, |_| 0);
        assert_eq!((found.shadowed, found.undecided), (vec![], vec![]));
    }

    /// Returns one packet of every kind that the filters of [`few_filters`] distinguish.
    fn all_packets() -> Vec<Candidate> {
        let v4 = |last| IpAddr::from(Ipv4Addr::new(10, 0, 0, last));
        let v6 = |first| IpAddr::from(Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, 1));
        let mut packets = Vec::new();
        for source in [v4(0), v4(1), v4(2), v6(0x2001), v6(0x3001)] {
            for (protocol, port) in [6, 17, 50, 1, 132]
                .into_iter()
                .flat_map(|protocol| [0, 1, 2, 3, 4].map(|port| (protocol, port)))
            {
                let key = match source {
                    IpAddr::V4(source) => FlowKey::v4(source, source, protocol, (port, 9), PortId(0)),
                    IpAddr::V6(source) => FlowKey::v6(source, source, protocol, (port, 9), PortId(0)),
                };
                for (bits, flags) in
                    (0..16).flat_map(|bits| [None, Some(0), Some(2)].map(|flags| (bits, flags)))
                {
                    let exceptions = Exceptions::from_bits(bits);
                    let tcp_flags = flags.filter(|_| protocol == 6);
                    packets.push(Candidate { exceptions, tcp_flags, ..Candidate::plain(key) });
                }
            }
        }
        packets
    }

    fn few_filters() -> impl Strategy<Value = CompiledFilter> {
        let addresses = [
            "",
            "src 10.0.0.0/31",
            "src 10.0.0.1",
            "src 2001::/16",
            "src 0.0.0.0/0",
            "dst 0.0.0.0/0",
            "dst ::/0",
        ];
        let rest = [
            "",
            "proto tcp",
            "proto udp",
            "proto esp",
            "sport 1-2",
            "sport 2-3",
            "sport 0-65535",
            "proto tcp sport 2",
            "proto tcp flags syn",
            "proto tcp flags none/syn",
        ];
        let exceptions =
            ["", "exceptions none", "exceptions ttl", "exceptions none/fragment,cut", "exceptions fragment"];
        (
            prop::sample::select(addresses.to_vec()),
            prop::sample::select(rest.to_vec()),
            prop::sample::select(exceptions.to_vec()),
        )
            .prop_filter_map("contradictory", |(addresses, rest, exceptions)| {
                let filter: crate::Filter = format!("{addresses} {rest} {exceptions}").parse().ok()?;
                filter.compile(resolve).ok()
            })
    }

    proptest! {
        #[test]
        fn cover_and_overlap_equal_a_test_of_all_packets(one in few_filters(), other in few_filters()) {
            let packets = all_packets();
            let (first, second) = (Shape::of(&one), Shape::of(&other));
            let covers = packets.iter().all(|packet| !other.matches(packet) || one.matches(packet));
            let overlaps = packets.iter().any(|packet| other.matches(packet) && one.matches(packet));
            prop_assert_eq!(first.covers(&second), covers);
            prop_assert_eq!(first.overlaps(&second), overlaps);
            prop_assert_eq!(second.overlaps(&first), overlaps);
        }

        #[test]
        fn shadowed_filters_never_win_and_ambiguous_pairs_overlap(
            filters in prop::collection::vec((any_filter(), 0i32..2), 0..30),
            candidates in prop::collection::vec(any_candidate(), 1..50),
        ) {
            let mut table = LinearOracle::new();
            for (filter, priority) in &filters {
                table.insert(filter.compile(resolve).unwrap(), *priority, ());
            }
            let found = analyse(table.entries(), usize::MAX, |entry| entry.id);
            prop_assert_eq!(found.ambiguous.len(), found.ambiguous_pairs);
            for candidate in &candidates {
                let winner = table.lookup(candidate).map(|(id, _)| id);
                prop_assert!(found.shadowed.iter().all(|shadowed| Some(shadowed.filter) != winner));
                let matching: Vec<_> = table.iter().filter(|entry| entry.filter.matches(candidate)).collect();
                for (number, loser) in matching.iter().enumerate() {
                    for winner in &matching[..number] {
                        // The analysis must report a pair exactly if the priorities are equal, neither filter
                        // covers the other, and neither is shadowed.
                        let (first, second) = (Shape::of(&winner.filter), Shape::of(&loser.filter));
                        let pair = found.ambiguous.iter().any(|pair| (pair.winner, pair.loser) == (winner.id, loser.id));
                        let dead = |id| found.shadowed.iter().any(|shadowed| shadowed.filter == id);
                        let plain = winner.priority != loser.priority || first.covers(&second) || second.covers(&first);
                        prop_assert_eq!(pair, !plain && !dead(winner.id) && !dead(loser.id));
                    }
                }
            }
        }

        /// Compares the analysis with the winners of all packets that the filters can distinguish.
        #[test]
        fn shadowing_sets_are_found_and_minimal(
            filters in prop::collection::vec((few_filters(), 0i32..2), 0..12),
        ) {
            let mut table = LinearOracle::new();
            for (filter, priority) in &filters {
                table.insert(*filter, *priority, ());
            }
            let found = analyse(table.entries(), 0, |entry| entry.id);
            prop_assert!(found.undecided.is_empty());
            let packets = all_packets();
            let winners: std::collections::HashSet<FilterId> =
                packets.iter().filter_map(|packet| table.lookup(packet).map(|(id, _)| id)).collect();
            let never: Vec<FilterId> =
                in_order(table.entries()).iter().map(|entry| entry.id).filter(|id| !winners.contains(id)).collect();
            let shadowed: Vec<FilterId> = found.shadowed.iter().map(|shadowed| shadowed.filter).collect();
            prop_assert_eq!(shadowed, never);
            let filter = |id: FilterId| table.iter().find(|entry| entry.id == id).map(|entry| entry.filter).unwrap();
            for shadowed in &found.shadowed {
                let matched: Vec<_> = packets.iter().filter(|packet| filter(shadowed.filter).matches(packet)).collect();
                for left_out in 0..=shadowed.by.len() {
                    let by = || shadowed.by.iter().enumerate().filter(|(number, _)| *number != left_out);
                    let all = matched.iter().all(|packet| by().any(|(_, by)| filter(*by).matches(packet)));
                    // The reported filters cover the shadowed filter together, but no longer if one of them
                    // is left out.
                    prop_assert_eq!(all, left_out == shadowed.by.len());
                }
            }
        }
    }
}
