//! The DAG: insertion and removal of filters, level by level.
//!
//! A node stands for a set of filters: all that can match the packets that reach the node. It divides the set
//! by one field. The edge of a condition leads to all filters of the set that cover this condition, so wider
//! filters are copied to narrower edges (*set pruning*). Therefore a lookup never backtracks, and all filters
//! at its end can match.
//!
//! Edges to the same set share one node. A field in which all filters of a set have the same condition has no
//! node. This is the node collapsing of *Router Plugins*, extended from wildcards to any common condition.
//! The skipped condition is still checked, because the end of each lookup checks the whole filter.
//!
//! A change modifies a node in place if only one edge leads to it, otherwise a copy. So the cost of a change
//! is the size of the changed part.

use crate::Rank;
use crate::prefix_match::{Count, PrefixMatchKind};

use super::branch::Branch;
use super::edges::{EdgeId, References, Target, To};
use super::leaf::Leaf;
use super::nodes::{Node, Nodes, Set};
use super::rule::{Level, Rule, Seen};

/// Error: the memory limit is reached. The filter was not added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Full;

/// Target after an insertion. The error holds the target without the new filter.
type Change = Result<Target, Target>;

/// Nodes of the DAG, and the rule and rank of the filter in each slot.
#[derive(Clone, Debug)]
pub(super) struct Graph {
    pub nodes: Nodes,
    pub rules: Vec<Rule>,
    pub ranks: Vec<Rank>,
    pub root: Target,
    /// Maximum number of filters in a leaf whose filters still differ in a level.
    leaf: usize,
    kind: PrefixMatchKind,
    /// Memory limit of the nodes in bytes for the current insertion.
    bound: usize,
}

impl Graph {
    pub fn new(kind: PrefixMatchKind, leaf: usize) -> Self {
        Self {
            nodes: Nodes::default(),
            rules: Vec::new(),
            ranks: Vec::new(),
            root: Target::NOTHING,
            leaf: leaf.max(1),
            kind,
            bound: usize::MAX,
        }
    }

    /// Returns the heap memory in bytes.
    pub fn memory(&self) -> usize {
        self.nodes.memory()
            + self.rules.capacity() * size_of::<Rule>()
            + self.ranks.capacity() * size_of::<Rank>()
    }

    /// Adds the filter in a slot. If the nodes would take more than `bound` bytes, leaves the graph
    /// unchanged.
    pub fn insert(&mut self, slot: u32, bound: usize) -> Result<(), Full> {
        self.bound = bound;
        match self.with(self.root, &Level::ALL, slot) {
            Ok(root) if self.nodes.memory() <= bound => {
                self.root = root;
                return Ok(());
            }
            // Only the index by meaning, which grows last, is over the limit.
            Ok(root) => self.root = self.without(root, slot),
            Err(root) => self.root = root,
        }
        self.compact();
        Err(Full)
    }

    /// Removes the filter in a slot.
    pub fn remove(&mut self, slot: u32) {
        self.root = self.without(self.root, slot);
        if self.nodes.is_sparse() {
            self.compact();
        }
    }

    fn compact(&mut self) {
        let now_at = self.nodes.compact();
        self.root = now_at(self.root);
    }

    /// Returns the slot of the best filter that matches, at or below `from`; `None` if no filter matches.
    #[inline]
    pub fn find(&self, from: Target, seen: &Seen<'_>, count: &mut impl Count) -> Option<u32> {
        let mut at = from;
        loop {
            match at.to() {
                To::Nothing => return None,
                To::Filter(slot) => {
                    count.read(&self.rules[slot as usize]);
                    return self.rules[slot as usize].matches(seen).then_some(slot);
                }
                To::Node(index) => {
                    let node = self.nodes.node(index);
                    count.read(node);
                    match node {
                        Node::Branch(branch) => at = branch.step(seen, count),
                        Node::Leaf(leaf) => {
                            if leaf.are_many() {
                                count.read(leaf.slots());
                            }
                            return leaf.slots().iter().copied().find(|slot| {
                                count.read(&self.rules[*slot as usize]);
                                self.rules[*slot as usize].matches(seen)
                            });
                        }
                        Node::Vacant => return None,
                    }
                }
            }
        }
    }

    /// Follows the edges that all packets of a rule take, and returns the last target before the packets take
    /// different edges. The rule may belong to another table.
    pub fn reach(&self, rule: &Rule) -> Target {
        let mut at = self.root;
        while let To::Node(index) = at.to()
            && let Node::Branch(branch) = self.nodes.node(index)
            && let Some(next) = branch.way_of(rule.condition(branch.level))
        {
            at = next;
        }
        at
    }

    fn agree(&self, level: Level, one: u32, other: u32) -> bool {
        self.rules[one as usize].condition(level) == self.rules[other as usize].condition(level)
    }

    /// Adds a filter to the filters that `at` leads to. `ahead` are the levels that may still divide these
    /// filters. Returns the new target. The caller's reference to `at` becomes a reference to the new target.
    fn with(&mut self, at: Target, ahead: &'static [Level], slot: u32) -> Change {
        let index = match at.to() {
            To::Nothing => return Ok(Target::filter(slot)),
            To::Filter(other) => return self.part(&[other, slot], ahead).map_err(|Full| at),
            To::Node(index) => index,
        };
        let (level, before) = self.nodes.meaning(index);
        let Some(level) = level else { return self.leaf_with(at, index, ahead, slot) };
        let member = self.member(at);
        let mut skipped = ahead.iter().copied().take_while(|other| *other < level);
        let above = skipped.find(|other| !self.agree(*other, member, slot));
        if let Some(known) = self.nodes.shared((Some(above.unwrap_or(level)), before.with(slot))) {
            self.nodes.release(at);
            return Ok(known);
        }
        if let Some(above) = above {
            return self.with_above(at, before, above, slot);
        }
        if !self.nodes.is_shared(index) {
            return self.add(index, slot).map(|()| at).map_err(|Full| at);
        }
        let copy = self.copy(index);
        let (result, unused) = match self.add(copy, slot) {
            Ok(()) => (Ok(Target::node(copy)), at),
            Err(Full) => (Err(at), Target::node(copy)),
        };
        self.nodes.release(unused);
        result
    }

    /// Adds a filter to the leaf at `at`, for [`with`](Self::with).
    fn leaf_with(&mut self, at: Target, index: u32, ahead: &'static [Level], slot: u32) -> Change {
        let Node::Leaf(leaf) = self.nodes.node(index) else { return Err(at) };
        let slots: Vec<_> = leaf.slots().iter().copied().chain([slot]).collect();
        let target = self.part(&slots, ahead).map_err(|Full| at)?;
        self.nodes.release(at);
        Ok(target)
    }

    /// Adds a filter, for [`with`](Self::with), at a level that has no node so far: at `level`, the filters
    /// below `at` have the same condition, and the new filter has another. Creates a node of this level above
    /// them.
    fn with_above(&mut self, at: Target, set: Set, level: Level, slot: u32) -> Change {
        let condition = self.rules[self.member(at) as usize].condition(level);
        let branch = Branch::among(level, self.kind, condition, at, set.filters);
        let above = self.nodes.add(Node::Branch(branch), (Some(level), set));
        self.add(above, slot).map(|()| Target::node(above)).map_err(|Full| {
            let only = match self.nodes.discard(above) {
                Node::Branch(branch) => branch.only_way(set.filters),
                _ => None,
            };
            only.unwrap_or(at)
        })
    }

    /// Returns a target for two or more filters; builds its nodes if needed.
    fn part(&mut self, slots: &[u32], ahead: &'static [Level]) -> Result<Target, Full> {
        let set = Set::of(slots);
        let parting =
            ahead.iter().copied().find(|level| slots.iter().any(|slot| !self.agree(*level, slots[0], *slot)));
        let parting = parting.filter(|_| slots.len() > self.leaf);
        if let Some(known) = self.nodes.shared((parting, set)) {
            return Ok(known);
        }
        let Some(level) = parting else {
            let target = self.leaf(slots.to_vec(), set);
            return self.unless_full(target);
        };
        let condition = self.rules[slots[0] as usize].condition(level);
        let branch = Branch::among(level, self.kind, condition, Target::filter(slots[0]), 1);
        let index = self.nodes.add(Node::Branch(branch), (Some(level), Set::of(&slots[..1])));
        for slot in &slots[1..] {
            self.add(index, *slot).inspect_err(|Full| self.nodes.release(Target::node(index)))?;
        }
        Ok(Target::node(index))
    }

    /// Creates a leaf of several filters.
    fn leaf(&mut self, mut slots: Vec<u32>, set: Set) -> Target {
        slots.sort_unstable_by_key(|slot| self.ranks[*slot as usize]);
        let index = self.nodes.add(Node::Leaf(Leaf::new(&slots)), (None, set));
        self.nodes.make_known(index);
        Target::node(index)
    }

    fn unless_full(&mut self, target: Target) -> Result<Target, Full> {
        if self.nodes.memory() > self.bound {
            self.nodes.release(target);
            return Err(Full);
        }
        Ok(target)
    }

    /// Copies a node. No edge leads to the copy yet.
    fn copy(&mut self, index: u32) -> u32 {
        let node = self.nodes.node(index).clone();
        if let Node::Branch(branch) = &node {
            for target in branch.targets() {
                self.nodes.refer(target);
            }
        }
        self.nodes.add(node, self.nodes.meaning(index))
    }

    /// Returns any filter of the set at `at`, which must not be empty.
    fn member(&self, mut at: Target) -> u32 {
        loop {
            match at.to() {
                To::Nothing => return 0,
                To::Filter(slot) => return slot,
                To::Node(index) => match self.nodes.node(index) {
                    Node::Leaf(leaf) => return leaf.slots()[0],
                    Node::Branch(branch) => at = branch.any_target(),
                    Node::Vacant => return 0,
                },
            }
        }
    }

    /// Adds a filter to a branch with at most one incoming edge. At the memory limit, leaves the branch
    /// unchanged.
    fn add(&mut self, index: u32, slot: u32) -> Result<(), Full> {
        let (level, set) = self.nodes.meaning(index);
        let Node::Branch(mut branch) = self.nodes.take(index) else { return Ok(()) };
        let condition = self.rules[slot as usize].condition(branch.level);
        let references = branch.open(condition);
        self.apply(references);
        let edges = branch.touched(condition);
        let done = edges.iter().position(|edge| {
            let change = self.with(branch.target(*edge), branch.level.behind(), slot);
            let (Ok(target) | Err(target)) = change;
            branch.set_target(*edge, target);
            change.is_err()
        });
        let over = self.nodes.memory() + branch.heap() > self.bound;
        if done.is_none() && !over {
            self.nodes.put(index, Node::Branch(branch), (level, set.with(slot)));
            self.nodes.make_known(index);
            return Ok(());
        }
        self.leave(&mut branch, &edges[..done.unwrap_or(edges.len())], slot);
        let references = branch.close(condition);
        self.apply(references);
        self.nodes.put(index, Node::Branch(branch), (level, set));
        self.nodes.make_known(index);
        Err(Full)
    }

    fn leave(&mut self, branch: &mut Branch, edges: &[EdgeId], slot: u32) {
        for edge in edges {
            branch.set_target(*edge, self.without(branch.target(*edge), slot));
        }
    }

    fn apply(&mut self, references: References) {
        for target in references.more {
            self.nodes.refer(target);
        }
        references.fewer.into_iter().for_each(|target| self.nodes.release(target));
    }

    /// Removes a filter from the filters that `at` leads to, and returns the new target. The caller's
    /// reference to `at` becomes a reference to the new target.
    fn without(&mut self, at: Target, slot: u32) -> Target {
        let To::Node(index) = at.to() else { return Target::NOTHING };
        let (level, before) = self.nodes.meaning(index);
        let set = before.without(slot);
        if set.filters as usize <= self.leaf / 2 || level.is_none() || set.filters == 1 {
            return self.leaf_without(at, set, slot);
        }
        if let Some(known) = self.nodes.shared((level, set)) {
            self.nodes.release(at);
            return known;
        }
        if !self.nodes.is_shared(index) {
            return self.subtract(index, slot);
        }
        let copy = self.copy(index);
        self.nodes.release(at);
        self.subtract(copy, slot)
    }

    /// Removes a filter, for [`without`](Self::without). Used if a leaf, a single filter or nothing is left.
    fn leaf_without(&mut self, at: Target, set: Set, slot: u32) -> Target {
        let mut slots = Vec::new();
        self.gather(at, &mut slots);
        slots.sort_unstable();
        slots.dedup();
        slots.retain(|other| *other != slot);
        self.nodes.release(at);
        match slots[..] {
            [] => Target::NOTHING,
            [only] => Target::filter(only),
            _ => match self.nodes.shared((None, set)) {
                Some(known) => known,
                None => self.leaf(slots, set),
            },
        }
    }

    fn gather(&self, at: Target, slots: &mut Vec<u32>) {
        match at.to() {
            To::Nothing => {}
            To::Filter(slot) => slots.push(slot),
            To::Node(index) => match self.nodes.node(index) {
                Node::Leaf(leaf) => slots.extend(leaf.slots()),
                Node::Branch(branch) => {
                    branch.targets().into_iter().for_each(|target| self.gather(target, slots));
                }
                Node::Vacant => {}
            },
        }
    }

    /// Removes a filter from a branch with one incoming edge. Returns the target that replaces the branch.
    fn subtract(&mut self, index: u32, slot: u32) -> Target {
        let (level, set) = self.nodes.meaning(index);
        let set = set.without(slot);
        let Node::Branch(mut branch) = self.nodes.take(index) else { return Target::NOTHING };
        let condition = self.rules[slot as usize].condition(branch.level);
        let edges = branch.touched(condition);
        self.leave(&mut branch, &edges, slot);
        let references = branch.close(condition);
        self.apply(references);
        let only = branch.only_way(set.filters).map(|only| self.nodes.refer(only));
        self.nodes.put(index, Node::Branch(branch), (level, set));
        match only {
            Some(only) => {
                self.nodes.release(Target::node(index));
                only
            }
            None => {
                self.nodes.make_known(index);
                Target::node(index)
            }
        }
    }
}
