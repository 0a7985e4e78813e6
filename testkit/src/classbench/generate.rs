//! Generator of filter sets in the style of ClassBench's seeds.

use std::collections::HashSet;

use millrace_classify::Filter;
use millrace_packet::Family;

use super::address::Pool;
use super::style::{Figures, Ports};
use super::{FilterSet, Style};
use crate::random::Random;

/// Generates `count` different filters in a style. More specific filters mostly come first. The same `seed`
/// gives the same set.
pub fn generate(style: Style, family: Family, count: usize, seed: u64) -> FilterSet {
    let mut random = Random::new(seed);
    let figures = style.figures();
    let sources = Pool::new(family, &figures.source, count, &mut random);
    let destinations = Pool::new(family, &figures.destination, count, &mut random);
    let mut filters: Vec<(u32, Filter)> = Vec::with_capacity(count);
    let mut seen = HashSet::new();
    while filters.len() < count {
        let (source, destination) = *random.weighted(figures.lengths);
        let addresses = format!(
            "src {} dst {}",
            sources.prefix(source, &mut random),
            destinations.prefix(destination, &mut random)
        );
        let filter: Filter =
            (addresses + &rest(figures, &mut random)).parse().expect("a filter is made of good parts");
        if seen.insert(filter.clone()) {
            // ClassBench puts a filter before filters that contain it. Random noise makes this order less
            // strict.
            let noise = random.below(8) as u32;
            filters.push((u32::from(source) + u32::from(destination) + noise, filter));
        }
    }
    filters.sort_by_key(|(length, _)| std::cmp::Reverse(*length));
    let family = if family == Family::V4 { "IPv4" } else { "IPv6" };
    let name = format!("{style} {}k {family}", count / 1000);
    FilterSet { name, filters: filters.into_iter().map(|(_, filter)| filter).collect() }
}

/// Returns the text of a filter's port conditions and protocol.
fn rest(figures: &Figures, random: &mut Random) -> String {
    let (source, destination) = *random.weighted(figures.ports);
    let mut text = String::new();
    for (keyword, kind) in [("sport", source), ("dport", destination)] {
        let (first, last) = match kind {
            Ports::Any => continue,
            Ports::High => (1024, 65535),
            Ports::Exact => {
                let port = *random.weighted(figures.exact);
                (port, port)
            }
            Ports::Range => *random.weighted(figures.ranges),
        };
        text += &format!(" {keyword} {first}-{last}");
    }
    let has_ports = !text.is_empty();
    match random.weighted(figures.protocols) {
        Some(protocol) if !has_ports || [6, 17].contains(protocol) => text += &format!(" proto {protocol}"),
        Some(_) => text += " proto 6",
        None => {}
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_as_many_filters_as_asked_for_and_is_the_same_each_time() {
        for style in Style::ALL {
            for family in [Family::V4, Family::V6] {
                let set = generate(style, family, 2000, 7);
                assert_eq!(set.filters.len(), 2000);
                assert_eq!(set.filters, generate(style, family, 2000, 7).filters);
                assert_ne!(set.filters, generate(style, family, 2000, 8).filters);
            }
        }
    }
}
