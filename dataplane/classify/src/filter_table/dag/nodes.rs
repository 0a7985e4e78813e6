//! Nodes of a DAG, with their reference counts, sets of filters, and memory.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use super::branch::Branch;
use super::edges::{Target, To};
use super::leaf::Leaf;
use super::rule::Level;

/// Content of a node.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// Filters at the end of a path.
    Leaf(Leaf),
    /// Edges that divide the filters.
    Branch(Branch),
    /// Nothing: the node is unused, or a change has taken its content.
    Vacant,
}

/// Set of filters, identified by a sum: each filter has a 128-bit number, and the set has the sum of its
/// filters' numbers. Sets with equal sums count as equal. In a DAG of a billion nodes, two different sets
/// have equal sums with a probability of 1 in 10^20.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Set {
    /// The two 64-bit halves of the sum. Each half is summed without carry into the other. As two words, the
    /// struct needs no 16-byte alignment.
    sum: [u64; 2],
    pub filters: u32,
}

impl Set {
    pub fn of(slots: &[u32]) -> Self {
        slots.iter().fold(Self::default(), |set, slot| set.with(*slot))
    }

    pub fn with(self, slot: u32) -> Self {
        let [first, second] = numbers(slot);
        let sum = [self.sum[0].wrapping_add(first), self.sum[1].wrapping_add(second)];
        Self { sum, filters: self.filters + 1 }
    }

    pub fn without(self, slot: u32) -> Self {
        let [first, second] = numbers(slot);
        let sum = [self.sum[0].wrapping_sub(first), self.sum[1].wrapping_sub(second)];
        Self { sum, filters: self.filters - 1 }
    }
}

fn numbers(slot: u32) -> [u64; 2] {
    let even = 2 * u64::from(slot);
    [mixed(even), mixed(even + 1)]
}

/// Mixes a number by SplitMix64 (Steele, Lea and Flood 2014).
fn mixed(number: u64) -> u64 {
    let state = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let state = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ state >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ state >> 31
}

/// Meaning of a node: its set of filters, and the level by which the node divides the set (`None` for a
/// leaf). Edges to the same meaning share one node, which makes the tree a DAG.
pub(super) type Meaning = (Option<Level>, Set);

/// [`Meaning`] of a node, and the number of edges to the node.
#[derive(Clone, Copy, Debug)]
struct Record {
    sum: [u64; 2],
    filters: u32,
    references: u32,
    level: Option<Level>,
}

impl Record {
    fn new((level, Set { sum, filters }): Meaning, references: u32) -> Self {
        Self { sum, filters, references, level }
    }
}

/// All nodes of a DAG.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes {
    nodes: Vec<Node>,
    /// Record of each node. Lookups don't read it.
    records: Vec<Record>,
    unused: Vec<u32>,
    /// Index of the node with each known meaning, by the 64-bit hash of the meaning.
    known: HashMap<u64, u32, FixedState>,
    /// Memory in bytes that the nodes have allocated on the heap.
    behind: usize,
}

fn key((level, set): Meaning) -> u64 {
    let level = level.map_or(0, |level| level as u64 + 1);
    set.sum[0] ^ mixed(level)
}

impl Nodes {
    #[inline]
    pub fn node(&self, index: u32) -> &Node {
        &self.nodes[index as usize]
    }

    pub fn meaning(&self, index: u32) -> Meaning {
        let Record { sum, filters, level, .. } = self.records[index as usize];
        (level, Set { sum, filters })
    }

    /// Whether more than one edge leads to the node.
    pub fn is_shared(&self, index: u32) -> bool {
        self.records[index as usize].references > 1
    }

    /// Adds a node for one incoming edge. Further edges can't share it before
    /// [`make_known`](Self::make_known).
    pub fn add(&mut self, node: Node, meaning: Meaning) -> u32 {
        self.behind += heap(&node);
        let record = Record::new(meaning, 1);
        match self.unused.pop() {
            Some(index) => {
                self.nodes[index as usize] = node;
                self.records[index as usize] = record;
                index
            }
            None => {
                if self.nodes.len() == self.nodes.capacity() {
                    // Grow by an eighth: doubling might exceed the memory limit.
                    let more = (self.nodes.len() / 8).max(16);
                    self.nodes.reserve_exact(more);
                    self.records.reserve_exact(more);
                }
                self.nodes.push(node);
                self.records.push(record);
                self.nodes.len() as u32 - 1
            }
        }
    }

    /// Takes the content of a node for a change. Until the content is back, further edges can't share the
    /// node.
    pub fn take(&mut self, index: u32) -> Node {
        self.forget(index);
        let node = std::mem::replace(&mut self.nodes[index as usize], Node::Vacant);
        self.behind -= heap(&node);
        node
    }

    /// Puts the content back into its node.
    pub fn put(&mut self, index: u32, node: Node, meaning: Meaning) {
        self.behind += heap(&node);
        self.nodes[index as usize] = node;
        let record = &mut self.records[index as usize];
        *record = Record::new(meaning, record.references);
    }

    /// Frees a node without incoming edges. Returns the node's content, which still counts as a reference to
    /// each of its targets.
    pub fn discard(&mut self, index: u32) -> Node {
        self.unused.push(index);
        self.take(index)
    }

    pub fn make_known(&mut self, index: u32) {
        self.known.entry(key(self.meaning(index))).or_insert(index);
    }

    fn forget(&mut self, index: u32) {
        let key = key(self.meaning(index));
        if self.known.get(&key) == Some(&index) {
            self.known.remove(&key);
        }
    }

    /// Returns the node of a meaning, with one more reference; `None` if there is no such node.
    pub fn shared(&mut self, meaning: Meaning) -> Option<Target> {
        let index = *self.known.get(&key(meaning))?;
        (self.meaning(index) == meaning).then(|| {
            self.records[index as usize].references += 1;
            Target::node(index)
        })
    }

    /// Adds a reference to a target.
    pub fn refer(&mut self, target: Target) -> Target {
        if let To::Node(index) = target.to() {
            self.records[index as usize].references += 1;
        }
        target
    }

    /// Removes a reference to a target. Frees a node without references, and then releases its targets.
    pub fn release(&mut self, target: Target) {
        let To::Node(index) = target.to() else { return };
        let record = &mut self.records[index as usize];
        record.references -= 1;
        if record.references == 0
            && let Node::Branch(branch) = self.discard(index)
        {
            branch.targets().into_iter().for_each(|target| self.release(target));
        }
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len() - self.unused.len()
    }

    /// Returns the memory of all nodes and of the index by meaning, in bytes.
    pub fn memory(&self) -> usize {
        // A hash map keeps one slot in eight free, and has a control byte per slot.
        let known = self.known.capacity() * 8 / 7 * (size_of::<(u64, u32)>() + 1);
        self.nodes.capacity() * size_of::<Node>()
            + self.records.capacity() * size_of::<Record>()
            + self.unused.capacity() * size_of::<u32>()
            + known
            + self.behind
    }

    /// Whether unused nodes take most of the memory.
    pub fn is_sparse(&self) -> bool {
        self.unused.len() > 1000 && self.unused.len() > self.nodes.len() / 2
    }

    /// Compacts the nodes, and frees the memory of unused nodes. Returns the mapping from old to new targets,
    /// which the caller must apply to its own targets.
    pub fn compact(&mut self) -> impl Fn(Target) -> Target + use<> {
        let mut moved = vec![u32::MAX; self.nodes.len()];
        let mut used = 0;
        for (index, now) in moved.iter_mut().enumerate() {
            if !matches!(self.nodes[index], Node::Vacant) {
                *now = used as u32;
                self.nodes.swap(index, used);
                self.records.swap(index, used);
                used += 1;
            }
        }
        self.nodes.truncate(used);
        self.records.truncate(used);
        self.nodes.shrink_to_fit();
        self.records.shrink_to_fit();
        self.unused = Vec::new();
        let now_at = move |target: Target| match target.to() {
            To::Node(index) => Target::node(moved[index as usize]),
            _ => target,
        };
        for node in &mut self.nodes {
            if let Node::Branch(branch) = node {
                branch.for_each_target(|target| *target = now_at(*target));
            }
        }
        self.known = HashMap::default();
        (0..used as u32).for_each(|index| self.make_known(index));
        now_at
    }
}

fn heap(node: &Node) -> usize {
    match node {
        Node::Leaf(leaf) => leaf.heap(),
        Node::Branch(branch) => branch.heap(),
        Node::Vacant => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_as_large_as_a_cache_line() {
        assert_eq!((size_of::<Node>(), size_of::<Record>()), (64, 32));
    }
}
