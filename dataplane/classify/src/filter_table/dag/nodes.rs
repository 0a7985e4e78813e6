//! The nodes of a DAG: who refers to them, which sets of filters they stand for, and how much memory they take.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use super::branch::Branch;
use super::edges::{Target, To};
use super::rule::Level;

/// What is at a node.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// The few filters that are left, in the order in which they win.
    Leaf(Vec<u32>),
    /// The filters part here.
    Branch(Branch),
    /// Not in use, or being changed.
    Vacant,
}

/// A set of filters as a number: the sum of a number of 128 bits for each. Equal sums are taken for equal sets; that two
/// different ones of a billion nodes have the same is as likely as 1 in 10^20.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Set {
    sum: u128,
    pub filters: u32,
}

impl Set {
    pub fn of(slots: &[u32]) -> Self {
        slots.iter().fold(Self::default(), |set, slot| set.with(*slot))
    }

    pub fn with(self, slot: u32) -> Self {
        Self { sum: self.sum.wrapping_add(number(slot)), filters: self.filters + 1 }
    }

    pub fn without(self, slot: u32) -> Self {
        Self { sum: self.sum.wrapping_sub(number(slot)), filters: self.filters - 1 }
    }
}

fn number(slot: u32) -> u128 {
    u128::from(mixed(2 * u64::from(slot))) << 64 | u128::from(mixed(2 * u64::from(slot) + 1))
}

/// SplitMix64 (Steele, Lea and Flood 2014).
fn mixed(number: u64) -> u64 {
    let state = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let state = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ state >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ state >> 31
}

/// A node stands for a set of filters, parted from a level on; `None` for a leaf. There is one node for each, whatever
/// leads to it: that makes the tree a DAG.
pub(super) type Meaning = (Option<Level>, Set);

#[derive(Clone, Copy, Debug)]
struct Record {
    meaning: Meaning,
    references: u32,
}

/// The nodes of a DAG.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    nodes: Vec<Node>,
    /// What lookups don't need, beside each node.
    records: Vec<Record>,
    unused: Vec<u32>,
    /// Nodes by what they stand for, shortened to 64 bits.
    known: HashMap<u64, u32, FixedState>,
    /// Bytes behind the nodes.
    behind: usize,
}

fn key((level, set): Meaning) -> u64 {
    let level = level.map_or(0, |level| level as u64 + 1);
    set.sum as u64 ^ mixed(level)
}

impl Nodes {
    #[inline]
    pub fn node(&self, index: u32) -> &Node {
        &self.nodes[index as usize]
    }

    pub fn meaning(&self, index: u32) -> Meaning {
        self.records[index as usize].meaning
    }

    /// Whether more than one edge leads to the node.
    pub fn is_shared(&self, index: u32) -> bool {
        self.records[index as usize].references > 1
    }

    /// A node to which one edge will lead, and which no other will, until it is made [`known`](Self::make_known).
    pub fn add(&mut self, node: Node, meaning: Meaning) -> u32 {
        self.behind += heap(&node);
        let record = Record { meaning, references: 1 };
        match self.unused.pop() {
            Some(index) => {
                self.nodes[index as usize] = node;
                self.records[index as usize] = record;
                index
            }
            None => {
                self.nodes.push(node);
                self.records.push(record);
                self.nodes.len() as u32 - 1
            }
        }
    }

    /// Takes the contents of a node that is about to change; others no longer find it.
    pub fn take(&mut self, index: u32) -> Node {
        self.forget(index);
        let node = std::mem::replace(&mut self.nodes[index as usize], Node::Vacant);
        self.behind -= heap(&node);
        node
    }

    /// Gives a node its contents back.
    pub fn put(&mut self, index: u32, node: Node, meaning: Meaning) {
        self.behind += heap(&node);
        self.nodes[index as usize] = node;
        self.records[index as usize].meaning = meaning;
    }

    /// Takes a node away that no edge leads to, but none of what it leads to.
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

    /// The node that stands for this, with one edge more that leads to it.
    pub fn shared(&mut self, meaning: Meaning) -> Option<Target> {
        let index = *self.known.get(&key(meaning))?;
        (self.meaning(index) == meaning).then(|| {
            self.records[index as usize].references += 1;
            Target::node(index)
        })
    }

    /// One edge more leads there.
    pub fn refer(&mut self, target: Target) -> Target {
        if let To::Node(index) = target.to() {
            self.records[index as usize].references += 1;
        }
        target
    }

    /// One edge less leads there; nodes that nothing leads to are gone, and with them what only they led to.
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

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.nodes.len() - self.unused.len()
    }

    /// Bytes of all nodes, and of what finds them.
    pub fn memory(&self) -> usize {
        // A slot and a control byte; of the slots, seven in eight may be in use.
        let known = self.known.capacity() * 8 / 7 * (size_of::<(u64, u32)>() + 1);
        self.nodes.capacity() * size_of::<Node>()
            + self.records.capacity() * size_of::<Record>()
            + self.unused.capacity() * size_of::<u32>()
            + known
            + self.behind
    }

    /// Gives memory back that the unused nodes at the end take.
    pub fn shrink(&mut self) {
        let mut used = self.nodes.len();
        while used > 0 && matches!(self.nodes[used - 1], Node::Vacant) {
            used -= 1;
        }
        self.unused.retain(|index| (*index as usize) < used);
        self.nodes.truncate(used);
        self.records.truncate(used);
        self.nodes.shrink_to_fit();
        self.records.shrink_to_fit();
        self.unused.shrink_to_fit();
        self.known.shrink_to_fit();
    }
}

fn heap(node: &Node) -> usize {
    match node {
        Node::Leaf(slots) => slots.capacity() * size_of::<u32>(),
        Node::Branch(branch) => branch.heap(),
        Node::Vacant => 0,
    }
}
