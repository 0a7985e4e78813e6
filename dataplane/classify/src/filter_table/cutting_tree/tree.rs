//! Cutting tree of one address family, with insertion and removal of filters.

use crate::filter_table::Rank;
use crate::filter_table::groups::{Found, Groups, Record};
use crate::filter_table::key::{Condition, Key};
use crate::prefix_match::Count;

use millrace_memory::Vectors;

use super::node::{Cut, Node, Nodes, PARTS, Target, To, Upkeep};
use super::plan::{LEAF, plan};
use super::point::{EVERYWHERE, Point, Region, point, range};

/// Maximum depth of the tree. At this depth, all remaining filters form one leaf.
pub(super) const DEPTH: usize = 16;
/// Number of copies per filter that all cuts of a new tree together may make on average.
const COPIES: f32 = 2.0;
/// A subtree is rebuilt when its number of filters has grown by this factor since it was built.
const GROWN: u32 = 2;
/// A subtree is rebuilt when its number of filters has shrunk by this factor since it was built.
const SHRUNK: u32 = 4;

/// Place in the tree: its region, its depth, and the number of copies per filter that further cuts below it
/// may make on average.
#[derive(Clone, Copy)]
struct At<'a> {
    region: &'a Region,
    depth: usize,
    copies: f32,
}

impl<'a> At<'a> {
    fn below(self, region: &'a Region) -> Self {
        Self { region, depth: self.depth + 1, ..self }
    }
}

/// Cutting tree with the filters for packets of one family.
#[derive(Clone, Debug)]
pub(super) struct Tree<const W: usize> {
    pub nodes: Nodes,
    pub groups: Groups<W>,
    pub root: Target,
}

impl<const W: usize> Default for Tree<W> {
    fn default() -> Self {
        Self { nodes: Nodes::default(), groups: Groups::default(), root: Target::NOTHING }
    }
}

impl<const W: usize> Tree<W> {
    /// Returns the best filter for a packet.
    #[inline(always)]
    pub fn find(&self, vectors: impl Vectors, key: &Key<W>, count: &mut impl Count) -> Found {
        let point: Point = point(key);
        let (mut found, mut best) = (Found::NONE, Rank::LAST);
        let (mut rests, mut waiting) = ([0; DEPTH], 0);
        let mut at = self.root;
        loop {
            while let To::Node(index) = at.to() {
                let node = self.nodes.node(index);
                count.read_lines(node);
                rests[waiting % DEPTH] = index;
                waiting += usize::from(node.rest() != Target::NOTHING);
                at = node.way(vectors, &point);
            }
            if let To::Leaf(group) = at.to()
                && let Some(record) = self.groups.find(group, key, &best, count)
            {
                (found, best) = (record.found(), record.rank());
            }
            at = loop {
                if waiting == 0 {
                    return found;
                }
                waiting -= 1;
                let node = self.nodes.node(rests[waiting % DEPTH]);
                if node.rest_best() <= best.upper {
                    break node.rest();
                }
            };
        }
    }

    /// Adds a filter. `slot` is its index in the table's entries.
    pub fn insert(&mut self, condition: &Condition<W>, rank: Rank, slot: u32) {
        let record = Record::new(*condition, rank, slot);
        let at = At { region: &EVERYWHERE, depth: 0, copies: COPIES };
        self.root = self.with(self.root, at, record);
    }

    /// Removes the filter in `slot`.
    pub fn remove(&mut self, condition: &Condition<W>, slot: u32) {
        let at = At { region: &EVERYWHERE, depth: 0, copies: COPIES };
        self.root = self.without(self.root, at, condition, slot);
    }

    /// Returns the target that replaces `target` after the insertion of a filter.
    fn with(&mut self, target: Target, at: At<'_>, record: Record<W>) -> Target {
        match target.to() {
            To::Nothing => Target::leaf(self.groups.create(&[record])),
            To::Leaf(group) => {
                let here = self.groups.records(group).len();
                // Try to cut a leaf again each time that its filters have doubled.
                if here >= LEAF && here.is_power_of_two() {
                    return self.rebuilt(target, at, Some(record));
                }
                Target::leaf(self.groups.insert(group, record))
            }
            To::Node(index) => {
                let upkeep = self.nodes.upkeep(index);
                upkeep.filters += 1;
                if upkeep.filters > GROWN * upkeep.made_for + LEAF as u32 {
                    return self.rebuilt(target, at, Some(record));
                }
                self.change_parts(index, at, record.condition(), |tree, target, at, is_rest| {
                    if is_rest {
                        let node = tree.nodes.node_mut(index);
                        node.set_rest_best(node.rest_best().min(record.rank().upper));
                    }
                    tree.with(target, at, record)
                });
                target
            }
        }
    }

    /// Returns the target that replaces `target` after the removal of a filter.
    fn without(&mut self, target: Target, at: At<'_>, condition: &Condition<W>, slot: u32) -> Target {
        match target.to() {
            To::Nothing => target,
            To::Leaf(group) => self.groups.remove(group, slot).map_or(Target::NOTHING, Target::leaf),
            To::Node(index) => {
                self.change_parts(index, at, condition, |tree, target, at, _| {
                    tree.without(target, at, condition, slot)
                });
                let upkeep = self.nodes.upkeep(index);
                upkeep.filters -= 1;
                if upkeep.filters <= LEAF as u32 / 2 || upkeep.filters < upkeep.made_for / SHRUNK {
                    return self.rebuilt(target, at, None);
                }
                target
            }
        }
    }

    /// Calls `change` for those targets of a node that lead to a filter with this condition. Replaces each of
    /// them by the returned target.
    fn change_parts(
        &mut self,
        index: u32,
        at: At<'_>,
        condition: &Condition<W>,
        mut change: impl FnMut(&mut Self, Target, At<'_>, bool) -> Target,
    ) {
        let cut = self.nodes.node(index).cut();
        let at = At { copies: self.nodes.upkeep(index).copies, ..at };
        let (first, last) = cut.parts(range(condition, cut.dimension));
        if last - first >= cut.reach as usize {
            let changed = change(self, self.nodes.node(index).rest(), at.below(at.region), true);
            self.nodes.node_mut(index).set_rest(changed);
            return;
        }
        for part in first..=last {
            let region = cut.narrowed(at.region, part);
            let changed = change(self, self.nodes.node(index).part(part), at.below(&region), false);
            self.nodes.node_mut(index).set_part(part, changed);
        }
    }

    /// Rebuilds the subtree at `target`, with the filter `more` if given. Returns the new target.
    fn rebuilt(&mut self, target: Target, at: At<'_>, more: Option<Record<W>>) -> Target {
        let mut records: Vec<_> = more.into_iter().collect();
        self.take(target, &mut records);
        records.sort_unstable_by_key(Record::rank);
        records.dedup_by_key(|record| record.slot());
        self.build(&records, at)
    }

    /// Frees the subtree at `target`, and collects its filters. Copied filters appear several times.
    fn take(&mut self, target: Target, records: &mut Vec<Record<W>>) {
        match target.to() {
            To::Nothing => {}
            To::Leaf(group) => {
                records.extend(self.groups.records(group));
                self.groups.clear(group);
            }
            To::Node(index) => {
                self.nodes.node(index).targets().for_each(|target| self.take(target, records));
                self.nodes.remove(index);
            }
        }
    }

    /// Builds a subtree from filters sorted by rank. Returns its target.
    fn build(&mut self, records: &[Record<W>], at: At<'_>) -> Target {
        if records.is_empty() {
            return Target::NOTHING;
        }
        let parted = records.len() > LEAF && at.depth < DEPTH;
        match parted.then(|| plan(records, at.region, at.copies)).flatten() {
            Some(plan) => self.branch(records, &plan.cut, At { copies: at.copies / plan.copies, ..at }),
            None => Target::leaf(self.groups.create(records)),
        }
    }

    fn branch(&mut self, records: &[Record<W>], cut: &Cut, at: At<'_>) -> Target {
        let mut node = Node::new(cut);
        let spans: Vec<_> =
            records.iter().map(|record| cut.parts(range(record.condition(), cut.dimension))).collect();
        let some = |is_there: &dyn Fn(usize, usize) -> bool| -> Vec<_> {
            let here = records.iter().zip(&spans).filter(|(_, (first, last))| is_there(*first, *last));
            here.map(|(record, _)| *record).collect()
        };
        let is_rest = |first, last| last - first >= cut.reach as usize;
        let rest = some(&is_rest);
        if let Some(best) = rest.first() {
            node.set_rest_best(best.rank().upper);
            node.set_rest(self.build(&rest, at.below(at.region)));
        }
        for part in 0..PARTS {
            let here = some(&|first, last| first <= part && part <= last && !is_rest(first, last));
            if !here.is_empty() {
                let region = cut.narrowed(at.region, part);
                node.set_part(part, self.build(&here, at.below(&region)));
            }
        }
        let filters = records.len() as u32;
        Target::node(self.nodes.add(node, Upkeep { filters, made_for: filters, copies: at.copies }))
    }

    /// Returns the heap memory in bytes.
    pub fn memory(&self) -> usize {
        self.nodes.memory() + self.groups.memory()
    }
}
