//! Test whether several filters cover another filter together.
//!
//! The search subtracts the filters from that filter one after the other, as constructive solid geometry
//! subtracts boxes. What remains of that filter consists of pieces that overlap none of the subtracted
//! filters. If a piece remains at the end, the filter wins for the packets in this piece.
//!
//! The number of pieces may become very large, so the search has a limit. Before the search, random packets
//! are tried. For most filters that can win, one of these packets shows it.

use super::shape::Shape;
use super::witness::is_alone;

/// Maximum number of comparisons between pieces and filters, for one filter.
pub(super) const MOST: usize = 1 << 17;

/// Result of a search for filters that cover a given filter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Cover {
    /// No filters cover the given filter.
    None,
    /// Index of the filter that alone covers the given filter, or indexes of filters that cover it together.
    By(Vec<usize>),
    /// No single filter covers the given filter, and the search for a joint cover would take too long.
    Undecided,
}

/// Finds the filters that cover `shape`. Considers only the shapes with the indexes `places`. Makes at most
/// `most` comparisons of a filter with a piece of `shape`.
pub(super) fn cover(shape: &Shape, shapes: &[Shape], places: &[usize], most: usize) -> Cover {
    let mut overlapping = Vec::new();
    for place in places {
        let other = &shapes[*place];
        if other.covers(shape) {
            return Cover::By(vec![*place]);
        }
        if other.overlaps(shape) {
            overlapping.push(*place);
        }
    }
    if is_alone(shape, shapes, &overlapping) {
        return Cover::None;
    }
    // Subtract the largest overlaps first: fewer pieces are then left.
    overlapping.sort_by_cached_key(|place| shapes[*place].bits_beyond(shape));
    let mut budget = most;
    let by = |places: &[usize], budget: &mut usize| taken_away(shape, shapes, places, budget);
    match by(&overlapping, &mut budget) {
        None => Cover::Undecided,
        Some(false) => Cover::None,
        Some(true) => {
            let mut needed = needed(overlapping, |places| by(places, &mut budget));
            needed.sort_unstable();
            Cover::By(needed)
        }
    }
}

/// Reduces a joint cover to the filters that it needs. If the limit of comparisons is reached, filters that
/// could not be tested stay.
fn needed(mut places: Vec<usize>, mut cover: impl FnMut(&[usize]) -> Option<bool>) -> Vec<usize> {
    // Trying to remove halves, then quarters and so on, soon finds a few needed filters among many.
    let mut size = places.len();
    loop {
        let mut from = 0;
        while from < places.len() {
            let to = (from + size).min(places.len());
            let others = [&places[..from], &places[to..]].concat();
            match cover(&others) {
                Some(true) => places = others,
                _ => from = to,
            }
        }
        if size == 1 {
            return places;
        }
        size = size.div_ceil(2);
    }
}

/// Whether the shapes with the indexes `places` together cover `shape` completely. `None` if the budget of
/// comparisons is used up.
fn taken_away(shape: &Shape, shapes: &[Shape], places: &[usize], budget: &mut usize) -> Option<bool> {
    // Pieces of the shape, each with a position in `places`. Only the shapes from this position on may still
    // overlap the piece.
    let mut pieces = vec![(*shape, 0)];
    while let Some((piece, from)) = pieces.pop() {
        let found = places[from..].iter().position(|place| shapes[*place].overlaps(&piece));
        let compared = found.map_or(places.len() - from, |found| found + 1);
        *budget = budget.checked_sub(compared.max(1))?;
        let Some(found) = found else { return Some(false) };
        let other = &shapes[places[from + found]];
        // Take the largest pieces first: of all pieces, they most likely contain packets that no filter
        // covers.
        let left = piece.without(other).into_iter().rev();
        pieces.extend(left.map(|piece| (piece, from + found + 1)));
    }
    Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::tests::compiled;

    fn shapes(filters: &[&str]) -> Vec<Shape> {
        filters.iter().map(|filter| Shape::of(&compiled(filter))).collect()
    }

    #[test]
    fn long_cover_check_is_left_undecided() {
        let ports: Vec<String> =
            (0..100).map(|port| format!("dport {}-{}", port * 10, port * 10 + 9)).collect();
        let shapes = shapes(&ports.iter().map(String::as_str).collect::<Vec<_>>());
        let places: Vec<usize> = (0..shapes.len()).collect();
        let wide = |text: &str, most| cover(&Shape::of(&compiled(text)), &shapes, &places, most);
        assert_eq!(wide("dport 5-994", 50), Cover::Undecided);
        assert_eq!(wide("dport 5-994", MOST), Cover::By((0..100).collect()));
        assert_eq!(wide("dport 5-1000", MOST), Cover::None);
        assert_eq!(wide("dport 5-9", 0), Cover::By(vec![0]));
    }

    #[test]
    fn remaining_pieces_are_disjoint_and_complete_the_whole() {
        let shapes = shapes(&["src 10.0.0.0/8 dport 1-9", "src 10.1.0.0/16 proto tcp dport 3-20"]);
        let pieces = shapes[0].without(&shapes[1]);
        assert!(!pieces.is_empty());
        for (number, piece) in pieces.iter().enumerate() {
            assert!(shapes[0].covers(piece) && !shapes[1].overlaps(piece));
            assert!(pieces[..number].iter().all(|other| !other.overlaps(piece)));
        }
    }
}
