//! Linear oracle: the reference for all other filter tables. It is a sorted list in which the first match
//! wins.

use crate::Candidate;

use super::{Entry, Explanation, FilterId, FilterTable, explain_in_order};

/// Filter table as a list sorted by rank. The time of a lookup grows with the number of filters before the
/// first match. The time of an insertion grows with the number of all filters.
#[derive(Clone, Debug)]
pub struct LinearOracle<T> {
    entries: Vec<Entry<T>>,
    next: u64,
}

impl<T> Default for LinearOracle<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), next: 0 }
    }
}

impl<T> LinearOracle<T> {
    /// Returns an empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// Iterates over the filters, the best first.
    pub fn iter(&self) -> impl Iterator<Item = &Entry<T>> {
        self.entries.iter()
    }
}

impl<T> FilterTable<T> for LinearOracle<T> {
    fn restore(&mut self, entry: Entry<T>) -> bool {
        if self.entries.iter().any(|other| other.id == entry.id) {
            return false;
        }
        self.next = self.next.max(entry.id.0 + 1);
        let place = self.entries.partition_point(|other| other.rank() < entry.rank());
        self.entries.insert(place, entry);
        true
    }

    fn next_id(&self) -> FilterId {
        FilterId(self.next)
    }

    fn remove(&mut self, id: FilterId) -> Option<T> {
        let place = self.entries.iter().position(|entry| entry.id == id)?;
        Some(self.entries.remove(place).value)
    }

    #[inline]
    fn lookup(&self, candidate: &Candidate) -> Option<(FilterId, &T)> {
        let entry = self.entries.iter().find(|entry| entry.filter.matches(candidate))?;
        Some((entry.id, &entry.value))
    }

    fn explain(&self, candidate: &Candidate) -> Vec<Explanation<'_, T>> {
        explain_in_order(&self.entries, candidate)
    }

    fn entries(&self) -> Box<dyn Iterator<Item = &Entry<T>> + '_> {
        Box::new(self.entries.iter())
    }

    fn len(&self) -> usize {
        self.entries.len()
    }

    fn memory(&self) -> usize {
        size_of::<Self>() + self.entries.capacity() * size_of::<Entry<T>>()
    }

    fn varying_mask(&self) -> u32 {
        self.entries.iter().fold(0, |mask, entry| mask | entry.filter.varying_mask())
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use millrace_packet::FlowKey;
    use millrace_units::PortId;
    use proptest::prelude::*;

    use super::*;
    use crate::Field;
    use crate::filter::Filter;
    use crate::filter::tests::{any_candidate, any_filter, compiled, misses, resolve};
    use crate::filter_table::Outcome;

    fn packet() -> Candidate {
        let key = FlowKey::v4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), 17, (7, 53), PortId(1));
        Candidate::plain(key)
    }

    fn table(filters: &[(&'static str, i32)]) -> LinearOracle<&'static str> {
        let mut table = LinearOracle::new();
        for (text, priority) in filters {
            table.insert(compiled(text), *priority, *text);
        }
        table
    }

    #[test]
    fn priority_beats_specificity_beats_age() {
        let by_age =
            table(&[("src 10.0.0.0/31", 0), ("src 10.0.0.0/31 tag 0", 0), ("src 10.0.0.0/31 dscp 0", 0)]);
        assert_eq!(by_age.lookup(&packet()).unwrap().1, &"src 10.0.0.0/31 tag 0");
        let by_specificity = table(&[("*", 0), ("src 10.0.0.1", 0), ("src 10.0.0.0/31", 0)]);
        assert_eq!(by_specificity.lookup(&packet()).unwrap().1, &"src 10.0.0.1");
        let by_priority = table(&[("src 10.0.0.1", -1), ("*", 0), ("proto tcp", 9)]);
        assert_eq!(by_priority.lookup(&packet()).unwrap().1, &"*");
        let mut same = table(&[("sport 7-8", 0), ("sport 6-7", 0)]);
        let (oldest, text) = same.lookup(&packet()).unwrap();
        assert_eq!(text, &"sport 7-8");
        assert_eq!(same.remove(oldest), Some("sport 7-8"));
        assert_eq!(same.lookup(&packet()).unwrap().1, &"sport 6-7");
        assert_eq!(same.remove(oldest), None);
    }

    #[test]
    fn every_losing_filter_has_a_reason() {
        let table = table(&[
            ("proto tcp", 5),
            ("proto udp dport 50-60", 1),
            ("proto udp dport 53", 1),
            ("proto udp dport 53 sport *", 1),
            ("src 10.0.0.1", 0),
        ]);
        let outcomes: Vec<_> =
            table.explain(&packet()).iter().map(|found| (found.entry.id.0, found.outcome)).collect();
        assert_eq!(
            outcomes,
            [
                (0, Outcome::Mismatch(Field::Protocol)),
                (2, Outcome::Chosen),
                (3, Outcome::Younger),
                (1, Outcome::LessSpecific(Field::DestinationPort)),
                (4, Outcome::LowerPriority),
            ]
        );
        assert_eq!(
            Outcome::Younger.to_string(),
            "matches, but is younger than the chosen one, which is as specific"
        );
    }

    /// Finds the winner by comparing all pairs of filters: the match that no other match beats.
    fn brute_force(filters: &[(Filter, i32)], candidate: &Candidate) -> Option<usize> {
        let specificity = |filter: &Filter| filter.compile(resolve).unwrap().specificity();
        let beats = |a: usize, b: usize| {
            let ((fa, pa), (fb, pb)) = (&filters[a], &filters[b]);
            pa > pb
                || pa == pb
                    && (specificity(fa) > specificity(fb) || specificity(fa) == specificity(fb) && a < b)
        };
        let matching: Vec<_> =
            (0..filters.len()).filter(|index| misses(&filters[*index].0, candidate).is_empty()).collect();
        matching.iter().copied().find(|a| matching.iter().all(|b| a == b || beats(*a, *b)))
    }

    proptest! {
        #[test]
        fn lookup_finds_the_best_match(
            filters in prop::collection::vec((any_filter(), 0i32..3), 0..12),
            removed in prop::collection::vec(any::<prop::sample::Index>(), 0..3),
            candidate in any_candidate(),
        ) {
            let mut table = LinearOracle::new();
            let ids: Vec<_> = filters
                .iter()
                .enumerate()
                .map(|(index, (filter, priority))| table.insert(filter.compile(resolve).unwrap(), *priority, index))
                .collect();
            let mut left: Vec<usize> = (0..filters.len()).collect();
            for index in removed.iter().filter(|_| !filters.is_empty()).map(|index| index.index(filters.len())) {
                prop_assert_eq!(table.remove(ids[index]).is_some(), left.contains(&index));
                left.retain(|other| *other != index);
            }
            let kept: Vec<_> = left.iter().map(|index| filters[*index].clone()).collect();
            let expected = brute_force(&kept, &candidate).map(|index| left[index]);
            prop_assert_eq!(table.lookup(&candidate).map(|(_, value)| *value), expected);
            let chosen: Vec<_> = table
                .explain(&candidate)
                .iter()
                .filter(|found| found.outcome == Outcome::Chosen)
                .map(|found| found.entry.value)
                .collect();
            prop_assert_eq!(chosen, expected.into_iter().collect::<Vec<_>>());
            prop_assert_eq!(table.len(), left.len());
        }
    }
}
