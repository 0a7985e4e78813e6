//! Search of many packets at once.
//!
//! The lookups of a batch take turns: each descends by one node at a time, so the memory accesses of
//! different lookups overlap. When all lookups have reached leaves, the search tries the filters in the
//! leaves. Lookups that still have a rest to search then descend again.

use millrace_memory::{Operation, Vectors};

use crate::filter_table::Rank;
use crate::filter_table::batch::LANES;
use crate::filter_table::groups::Found;
use crate::filter_table::key::Key;
use crate::prefix_match::NotCounted;

use super::node::{Target, To};
use super::point::{MOST, Point, point};
use super::tree::{DEPTH, Tree};

/// Packets to look up, at most [`LANES`].
pub(super) struct BatchSearch<'a, const W: usize> {
    pub tree: &'a Tree<W>,
    pub keys: &'a [Key<W>],
    pub found: &'a mut [Found],
}

/// State of the lookup of one packet.
#[derive(Clone, Copy)]
struct Lane {
    point: Point,
    best: Rank,
    /// Nodes on the path whose rest has not been searched yet.
    rests: [u32; DEPTH],
    waiting: u32,
    at: Target,
}

impl Lane {
    const NONE: Self =
        Self { point: [0; MOST], best: Rank::LAST, rests: [0; DEPTH], waiting: 0, at: Target::NOTHING };
}

/// List of lookups, each given by the index of its packet in the batch.
struct Lanes {
    numbers: [u8; LANES],
    length: usize,
}

impl Lanes {
    const NONE: Self = Self { numbers: [0; LANES], length: 0 };

    /// Adds a lookup if `is_one` is true. Uses no branch.
    #[inline(always)]
    fn add(&mut self, number: u8, is_one: bool) {
        self.numbers[self.length % LANES] = number;
        self.length += usize::from(is_one);
    }

    #[inline(always)]
    fn iter(&self) -> impl Iterator<Item = u8> + '_ {
        self.numbers[..self.length.min(LANES)].iter().copied()
    }
}

impl<const W: usize> Operation for BatchSearch<'_, W> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vectors>(self, vectors: V) {
        let Self { tree, keys, found } = self;
        let mut lanes = [Lane::NONE; LANES];
        let mut open = Lanes::NONE;
        for ((number, key), lane) in (0..).zip(keys).zip(&mut lanes) {
            (lane.point, lane.at) = (point(key), tree.root);
            open.add(number, true);
        }
        while open.length > 0 {
            tree.walk(vectors, &mut lanes, &open);
            for number in open.iter() {
                if let To::Leaf(group) = lanes[usize::from(number) % LANES].at.to() {
                    tree.groups.prefetch(group);
                }
            }
            let mut next = Lanes::NONE;
            for number in open.iter() {
                let at = usize::from(number) % LANES;
                let lane = &mut lanes[at];
                if let To::Leaf(group) = lane.at.to()
                    && let Some(record) = tree.groups.find(group, &keys[at], &lane.best, &mut NotCounted)
                {
                    (found[at], lane.best) = (record.found(), record.rank());
                }
                next.add(number, tree.goes_on(lane));
            }
            open = next;
        }
    }
}

impl<const W: usize> Tree<W> {
    /// Lets the lookups in `open` descend to leaves.
    #[inline(always)]
    fn walk(&self, vectors: impl Vectors, lanes: &mut [Lane; LANES], open: &Lanes) {
        let mut walking = Lanes::NONE;
        for number in open.iter() {
            walking.add(number, lanes[usize::from(number) % LANES].at.is_node());
        }
        while walking.length > 0 {
            let mut next = Lanes::NONE;
            for number in walking.iter() {
                let lane = &mut lanes[usize::from(number) % LANES];
                let node = self.nodes.node(lane.at.0);
                lane.rests[lane.waiting as usize % DEPTH] = lane.at.0;
                lane.waiting += u32::from(node.rest() != Target::NOTHING);
                lane.at = node.way(vectors, &lane.point);
                next.add(number, lane.at.is_node());
            }
            walking = next;
        }
    }

    /// Moves a lookup to the next rest that may have a better filter than the one found so far. Returns
    /// `false` if no such rest is left.
    #[inline(always)]
    fn goes_on(&self, lane: &mut Lane) -> bool {
        while lane.waiting > 0 {
            lane.waiting -= 1;
            let node = self.nodes.node(lane.rests[lane.waiting as usize % DEPTH]);
            if node.rest_best() <= lane.best.upper {
                lane.at = node.rest();
                return true;
            }
        }
        false
    }
}
