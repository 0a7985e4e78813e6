//! Choice of the best cut for a region: the cut with the shortest expected lookup, under the assumption that
//! each filter gets the same number of packets.

use crate::filter_table::groups::Record;

use super::node::{Cut, PARTS};
use super::point::{Range, Region, dimensions, range};

/// Largest number of filters in a leaf that the tree doesn't try to cut; a power of two. The search tries the
/// filters of a leaf one after the other.
pub(super) const LEAF: usize = 8;
/// Maximum number of filters that are examined to choose a cut. If a region has more filters, every n-th of
/// them is examined.
const SAMPLE: usize = 1024;

/// Estimated cost of reaching a leaf, in units of about a nanosecond.
const COME: f32 = 4.0;
/// Estimated cost of trying a filter.
const TRY: f32 = 3.0;
/// Estimated cost of passing a node.
const GO: f32 = 10.0;
/// Cost charged for one copy of each filter: larger tables have slower lookups.
const COPY: f32 = 10.0;

/// Possible cut, with its expected lookup cost, and the number of copies per filter that it makes on average.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub cut: Cut,
    cost: f32,
    pub copies: f32,
}

/// Estimates the cost of a lookup among `filters` filters, before it is known how they will be cut.
fn among(filters: usize) -> f32 {
    let leaf = |filters: f32| COME + TRY * (filters + 1.0) / 2.0;
    match filters {
        0 => 0.0,
        1..=LEAF => leaf(filters as f32),
        _ => {
            leaf(LEAF as f32 / 2.0) + 2.0 * GO * (filters as f32 / LEAF as f32 * 2.0).log(PARTS as f32 / 2.0)
        }
    }
}

/// Returns the best cut for filters in a region. The cut makes at most `copies` copies per filter on average.
/// Returns `None` if it is cheaper to try the filters one after the other.
pub(super) fn plan<const W: usize>(records: &[Record<W>], region: &Region, copies: f32) -> Option<Plan> {
    let alone = COME + TRY * (records.len() as f32 + 1.0) / 2.0;
    let plans = (0..dimensions(W)).flat_map(|dimension| along(records, region, dimension, copies));
    plans.filter(|plan| plan.cost < alone).min_by(|one, other| one.cost.total_cmp(&other.cost))
}

/// Returns plans for cuts along one dimension.
fn along<const W: usize>(records: &[Record<W>], region: &Region, dimension: usize, copies: f32) -> Vec<Plan> {
    let within = region[dimension];
    let ranges: Vec<Range> = records
        .iter()
        .step_by(records.len().div_ceil(SAMPLE))
        .map(|record| range(record.condition(), dimension))
        .collect();
    let mut ends = Vec::with_capacity(2 * ranges.len());
    for range in ranges.iter().filter(|range| !range.covers(within)) {
        ends.extend((range.first > within.first).then(|| range.first - 1));
        ends.extend((range.last < within.last).then_some(range.last));
    }
    ends.sort_unstable();
    if ends.is_empty() {
        return Vec::new();
    }
    let cut = Cut::behind(dimension, quantiles(&ends).into_iter());
    judged(&cut, &ranges, records.len(), copies)
}

/// Returns distinct values that divide the sorted values into parts of equal number.
fn quantiles(ends: &[u32]) -> Vec<u32> {
    let mut distinct = ends.to_vec();
    distinct.dedup();
    if distinct.len() < PARTS {
        return distinct;
    }
    let mut values: Vec<u32> = (1..PARTS).map(|part| ends[part * ends.len() / PARTS]).collect();
    values.dedup();
    values
}

/// Returns a plan for each useful reach of the cut. The reach is the maximum number of parts that a filter
/// may span outside the rest.
fn judged(cut: &Cut, ranges: &[Range], filters: usize, most_copies: f32) -> Vec<Plan> {
    let spans: Vec<_> = ranges.iter().map(|range| cut.parts(*range)).collect();
    let scale = filters as f32 / ranges.len() as f32;
    let with_reach = |reach: usize| {
        let (mut sizes, mut rest) = ([0_usize; PARTS], 0);
        for (first, last) in &spans {
            if last - first < reach {
                sizes[*first..=*last].iter_mut().for_each(|size| *size += 1);
            } else {
                rest += 1;
            }
        }
        let parted: usize = sizes.iter().sum();
        let copies = (parted + rest) as f32 / spans.len() as f32;
        let largest = sizes.into_iter().max().unwrap_or(0);
        if parted == 0 || largest.max(rest) >= spans.len() || copies > most_copies {
            return None;
        }
        let scaled = |size: usize| (size as f32 * scale).ceil() as usize;
        // The estimate assumes that a part with a share of the filters gets the same share of the packets.
        let part = |size: usize| size as f32 / parted as f32 * among(scaled(size));
        let cost =
            GO + sizes.into_iter().map(part).sum::<f32>() + among(scaled(rest)) + COPY * (copies - 1.0);
        Some(Plan { cut: Cut { reach: reach as u32, ..*cut }, cost, copies })
    };
    [1, 2, 4, PARTS].into_iter().filter_map(with_reach).collect()
}
