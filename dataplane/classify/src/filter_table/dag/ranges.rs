//! Port ranges of a level, cut into segments: ranges start and end only at the ends of segments.

use crate::prefix_match::Count;

use super::edges::{EdgeId, References, Target};

/// Port ranges of a node, which may overlap. Their ends cut the ports into segments. The target of a segment
/// leads to all filters whose ranges contain the segment.
#[derive(Clone, Default, Debug)]
pub(super) struct Ranges {
    /// First and last port of each range, with the number of filters that have this range; in ascending
    /// order.
    ranges: Vec<((u16, u16), u32)>,
    /// Segments in ascending order. Ports outside all ranges have no segment.
    segments: Vec<Segment>,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    first: u16,
    last: u16,
    target: Target,
}

/// Number of segments in a cache line.
const LINE: usize = 64 / size_of::<Segment>();

impl Ranges {
    /// Returns the target of a port; `None` if the port is outside all ranges. A binary search halves the
    /// list of segments until the remaining segments fit into a cache line. Each halving takes one memory
    /// access.
    #[inline]
    pub fn step(&self, port: u16, count: &mut impl Count) -> Option<Target> {
        let (mut low, mut high) = (0, self.segments.len());
        while high - low > LINE {
            let middle = (low + high) / 2;
            count.read(&self.segments[middle]);
            if self.segments[middle].first <= port { low = middle } else { high = middle }
        }
        count.read(&self.segments[low..high]);
        let found = self.segments[low..high].iter().rev().find(|segment| segment.first <= port)?;
        (port <= found.last).then_some(found.target)
    }

    /// Adds a filter's range. `otherwise` is the target of ports outside all ranges.
    pub fn open(&mut self, range: (u16, u16), otherwise: Target) -> References {
        match self.ranges.binary_search_by_key(&range, |(range, _)| *range) {
            Ok(place) => {
                self.ranges[place].1 += 1;
                References::default()
            }
            Err(place) => {
                self.ranges.insert(place, (range, 1));
                self.cut(otherwise)
            }
        }
    }

    /// Removes a filter's range. `otherwise` is the target of ports outside all ranges.
    pub fn close(&mut self, range: (u16, u16), otherwise: Target) -> References {
        let Ok(place) = self.ranges.binary_search_by_key(&range, |(range, _)| *range) else {
            return References::default();
        };
        self.ranges[place].1 -= 1;
        if self.ranges[place].1 > 0 {
            return References::default();
        }
        self.ranges.remove(place);
        self.cut(otherwise)
    }

    /// Computes the segments anew. A new segment gets the target that its first port had before.
    fn cut(&mut self, otherwise: Target) -> References {
        let ends =
            self.ranges.iter().flat_map(|((first, last), _)| [u32::from(*first), u32::from(*last) + 1]);
        let mut ends: Vec<u32> = ends.collect();
        ends.sort_unstable();
        ends.dedup();
        let mut furthest = 0;
        let mut ranges = self.ranges.iter().map(|(range, _)| range).peekable();
        let mut segments = Vec::with_capacity(ends.len());
        for pair in ends.windows(2) {
            while let Some((_, last)) = ranges.next_if(|(first, _)| u32::from(*first) <= pair[0]) {
                furthest = furthest.max(u32::from(*last) + 1);
            }
            if furthest >= pair[1] {
                let (first, last) = (pair[0] as u16, (pair[1] - 1) as u16);
                let target = self.step(first, &mut crate::prefix_match::NotCounted).unwrap_or(otherwise);
                segments.push(Segment { first, last, target });
            }
        }
        segments.shrink_to_fit();
        let targets = |segments: &[Segment]| segments.iter().map(|segment| segment.target).collect();
        let more = targets(&segments);
        let fewer = targets(&std::mem::replace(&mut self.segments, segments));
        References { more, fewer }
    }

    /// Appends the segments from port `first` to port `last`. Both must be the ends of a range of the node.
    pub fn touched(&self, (first, last): (u16, u16), found: &mut Vec<EdgeId>) {
        let inside = |segment: &Segment| first <= segment.first && segment.last <= last;
        found.extend(
            (0..)
                .zip(&self.segments)
                .filter(|(_, segment)| inside(segment))
                .map(|(index, _)| EdgeId::Index(index)),
        );
    }

    /// Returns the target that all ports from `first` to `last` share; `None` if they have several. Ports
    /// without a segment have the target `otherwise`.
    pub fn way_of(&self, (first, last): (u16, u16), otherwise: Target) -> Option<Target> {
        match self.segments.iter().find(|segment| segment.last >= first) {
            Some(segment) if segment.first <= first && last <= segment.last => Some(segment.target),
            Some(segment) if segment.first <= last => None,
            _ => Some(otherwise),
        }
    }

    /// If there is only one range, returns its target and its number of filters; otherwise `None`.
    pub fn only(&self) -> Option<(Target, u32)> {
        match (&self.ranges[..], &self.segments[..]) {
            ([(_, filters)], [segment]) => Some((segment.target, *filters)),
            _ => None,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub fn target(&self, index: u32) -> Target {
        self.segments[index as usize].target
    }

    pub fn set_target(&mut self, index: u32, target: Target) {
        self.segments[index as usize].target = target;
    }

    pub fn targets(&self) -> impl Iterator<Item = Target> {
        self.segments.iter().map(|segment| segment.target)
    }

    pub fn targets_mut(&mut self) -> impl Iterator<Item = &mut Target> {
        self.segments.iter_mut().map(|segment| &mut segment.target)
    }

    pub fn heap(&self) -> usize {
        self.ranges.capacity() * size_of::<((u16, u16), u32)>()
            + self.segments.capacity() * size_of::<Segment>()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::prefix_match::NotCounted;

    const OTHERWISE: Target = Target::NOTHING;

    fn range() -> impl Strategy<Value = (u16, u16)> {
        (0u16..12, 1u16..6).prop_map(|(first, more)| (first, first + more))
    }

    proptest! {
        /// Adds and removes ranges. Ports with equal targets must then lie in the same ranges.
        #[test]
        fn segments_are_the_ports_that_the_same_ranges_hold(
            opened in prop::collection::vec(range(), 0..6),
            closed in 0usize..6,
            probe in range(),
        ) {
            let mut ranges = Ranges::default();
            opened.iter().for_each(|range| _ = ranges.open(*range, OTHERWISE));
            let (gone, left) = opened.split_at(closed.min(opened.len()));
            gone.iter().for_each(|range| _ = ranges.close(*range, OTHERWISE));
            let count = ranges.targets().count() as u32;
            (0..count).for_each(|index| ranges.set_target(index, Target::node(index)));
            let holding = |port: u16| -> Vec<_> {
                left.iter().filter(|(first, last)| (*first..=*last).contains(&port)).collect()
            };
            let step = |port| ranges.step(port, &mut NotCounted);
            for port in 0..24u16 {
                prop_assert_eq!(step(port).is_none(), holding(port).is_empty());
                prop_assert!(step(port) != step(port + 1) || holding(port) == holding(port + 1));
            }
            let steps: Vec<_> = (probe.0..=probe.1).map(|port| step(port).unwrap_or(OTHERWISE)).collect();
            let together = steps.iter().all(|target| *target == steps[0]).then_some(steps[0]);
            prop_assert_eq!(ranges.way_of(probe, OTHERWISE), together);
        }
    }
}
