//! Nodes of the tree, of two cache lines each.

use millrace_memory::{Vectors, Words};

use super::point::{MOST, Point, Range, Region};

/// Maximum number of parts of a node's region.
pub(super) const PARTS: usize = 14;

/// Target of an edge: a node, a leaf or nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Target(pub u32);

const LEAF: u32 = 1 << 31;

/// Decoded [`Target`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum To {
    /// Nothing: there are no filters.
    Nothing,
    /// Leaf: a group of filters, which the search tries one after the other.
    Leaf(u32),
    /// Node, by its index.
    Node(u32),
}

impl Target {
    pub const NOTHING: Self = Self(u32::MAX);

    pub fn leaf(group: u32) -> Self {
        Self(group | LEAF)
    }

    pub fn node(index: u32) -> Self {
        Self(index)
    }

    #[inline(always)]
    pub fn to(self) -> To {
        match self.0 {
            u32::MAX => To::Nothing,
            leaf if leaf & LEAF != 0 => To::Leaf(leaf & !LEAF),
            node => To::Node(node),
        }
    }

    /// Whether the target is a node.
    #[inline(always)]
    pub fn is_node(self) -> bool {
        self.0 & LEAF == 0
    }
}

/// Cut of a region into parts along one dimension. Filters that span more than `reach` parts are in the
/// node's rest.
///
/// A node has two cache lines, and a lookup reads both together: the first selects the part, the second holds
/// the targets.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(128))]
pub(super) struct Node {
    /// Last value of each part except the last part, in ascending order; `u32::MAX` for unused parts. Then
    /// dimension, reach, and the upper half of [`rest_best`](Self::rest_best).
    cut: Words,
    /// Target of each part, then the target of the rest, and the lower half of
    /// [`rest_best`](Self::rest_best).
    ways: Words,
}

const BOUNDS: usize = PARTS - 1;
const DIMENSION: usize = BOUNDS;
const REACH: usize = BOUNDS + 1;
const REST: usize = PARTS;
const BEST: usize = 15;

/// Cut of a region into parts along one dimension.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cut {
    pub dimension: usize,
    /// Last value of each part except the last part; `u32::MAX` for unused parts.
    pub bounds: [u32; BOUNDS],
    /// Maximum number of parts that a filter may span; wider filters go to the rest.
    pub reach: u32,
}

impl Cut {
    /// Creates a cut whose parts end at these values: ascending, at most [`PARTS`] - 1.
    pub fn behind(dimension: usize, values: impl Iterator<Item = u32>) -> Self {
        let mut bounds = [u32::MAX; BOUNDS];
        bounds.iter_mut().zip(values).for_each(|(bound, value)| *bound = value);
        Self { dimension, bounds, reach: PARTS as u32 }
    }

    /// Returns the first and the last part that the range overlaps.
    #[inline]
    pub fn parts(&self, range: Range) -> (usize, usize) {
        let part = |value: u32| self.bounds.iter().filter(|bound| **bound < value).count();
        (part(range.first), part(range.last))
    }

    /// Returns the region of a part, within `region`.
    pub fn narrowed(&self, region: &Region, part: usize) -> Region {
        let mut narrowed = *region;
        let range = &mut narrowed[self.dimension];
        if part > 0 {
            range.first = range.first.max(self.bounds[part - 1].saturating_add(1));
        }
        if part < BOUNDS {
            range.last = range.last.min(self.bounds[part]);
        }
        narrowed
    }
}

impl Node {
    /// Creates a node without targets.
    pub fn new(cut: &Cut) -> Self {
        let mut node = Self { cut: [0; 16], ways: [Target::NOTHING.0; 16] };
        node.cut[..BOUNDS].copy_from_slice(&cut.bounds);
        (node.cut[DIMENSION], node.cut[REACH]) = (cut.dimension as u32, cut.reach);
        node.set_rest_best(u64::MAX);
        node
    }

    /// Returns the node's cut.
    pub fn cut(&self) -> Cut {
        let bounds = std::array::from_fn(|at| self.cut[at]);
        Cut { dimension: self.cut[DIMENSION] as usize, bounds, reach: self.cut[REACH] }
    }

    /// Returns the target of the part that contains the point.
    #[inline(always)]
    pub fn way(&self, vectors: impl Vectors, point: &Point) -> Target {
        let value = point[self.cut[DIMENSION] as usize % MOST];
        let below = vectors.below(&self.cut, value) & ((1 << BOUNDS) - 1);
        Target(self.ways[below.count_ones() as usize % self.ways.len()])
    }

    pub fn part(&self, part: usize) -> Target {
        Target(self.ways[part])
    }

    pub fn set_part(&mut self, part: usize, target: Target) {
        self.ways[part] = target.0;
    }

    /// Returns the targets of the parts and of the rest.
    pub fn targets(&self) -> impl Iterator<Item = Target> + use<> {
        let ways = self.ways;
        ways.into_iter().take(REST + 1).map(Target)
    }

    #[inline(always)]
    pub fn rest(&self) -> Target {
        Target(self.ways[REST])
    }

    pub fn set_rest(&mut self, target: Target) {
        self.ways[REST] = target.0;
    }

    /// Returns a lower bound of the best rank in the rest: the upper word of the smallest rank, or a smaller
    /// number.
    #[inline(always)]
    pub fn rest_best(&self) -> u64 {
        u64::from(self.cut[BEST]) << 32 | u64::from(self.ways[BEST])
    }

    pub fn set_rest_best(&mut self, upper: u64) {
        (self.cut[BEST], self.ways[BEST]) = ((upper >> 32) as u32, upper as u32);
    }
}

/// Data about a node that only changes of filters need.
#[derive(Clone, Copy, Debug)]
pub(super) struct Upkeep {
    /// Number of different filters at the node and below.
    pub filters: u32,
    /// Number of these filters when the node was built.
    pub made_for: u32,
    /// Average number of copies that the node and the nodes below may make of a filter.
    pub copies: f32,
}

/// All nodes of a tree.
#[derive(Clone, Default, Debug)]
pub(super) struct Nodes {
    nodes: Vec<Node>,
    upkeep: Vec<Upkeep>,
    free: Vec<u32>,
}

impl Nodes {
    pub fn add(&mut self, node: Node, upkeep: Upkeep) -> u32 {
        if let Some(index) = self.free.pop() {
            (self.nodes[index as usize], self.upkeep[index as usize]) = (node, upkeep);
            return index;
        }
        self.nodes.push(node);
        self.upkeep.push(upkeep);
        self.nodes.len() as u32 - 1
    }

    /// Frees a node, but not its targets.
    pub fn remove(&mut self, index: u32) {
        self.free.push(index);
    }

    #[inline(always)]
    pub fn node(&self, index: u32) -> &Node {
        &self.nodes[index as usize]
    }

    pub fn node_mut(&mut self, index: u32) -> &mut Node {
        &mut self.nodes[index as usize]
    }

    pub fn upkeep(&mut self, index: u32) -> &mut Upkeep {
        &mut self.upkeep[index as usize]
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// Returns the heap memory in bytes.
    pub fn memory(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
            + self.upkeep.capacity() * size_of::<Upkeep>()
            + self.free.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use millrace_memory::Portable;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_node_is_two_cache_lines() {
        assert_eq!((size_of::<Node>(), align_of::<Node>()), (128, 128));
    }

    proptest! {
        #[test]
        fn point_descends_to_its_part(
            mut bounds in prop::collection::vec(any::<u32>(), 0..PARTS), value: u32, at in 0..PARTS, dimension in 0..MOST,
        ) {
            bounds.sort_unstable();
            let value = *bounds.get(at).unwrap_or(&value);
            let cut = Cut::behind(dimension, bounds.into_iter());
            let mut node = Node::new(&cut);
            prop_assert_eq!(node.cut(), cut);
            (0..PARTS).for_each(|part| node.set_part(part, Target::leaf(part as u32)));
            node.set_rest_best(u64::from(value) << 32 | 7);
            prop_assert_eq!(node.rest_best(), u64::from(value) << 32 | 7);
            let mut point = [0; MOST];
            point[dimension] = value;
            let (part, last) = cut.parts(Range { first: value, last: value });
            prop_assert_eq!(part, last);
            prop_assert_eq!(node.way(Portable, &point), Target::leaf(part as u32));
            let region = cut.narrowed(&super::super::point::EVERYWHERE, part)[dimension];
            prop_assert!(region.first <= value && value <= region.last);
        }
    }
}
