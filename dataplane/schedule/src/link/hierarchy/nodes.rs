//! Nodes of the tree: their kinds, the links between them, and their counters.

use std::collections::HashMap;
use std::ops::{Index, IndexMut};

use super::ScheduleError;
use crate::NodeId;
use crate::arena::{Load, NONE};
use crate::link::fifo::Fifo;
use crate::slots::Slots;

/// Kind of a node, with the index of its scheduler in the table of that kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Vacant,
    Fifo(Fifo),
    FlowQueues(u32),
    FqCodel(u32),
    Priority(u32),
    RoundRobin(u32),
    Hfsc { hierarchy: u32, class: u32 },
    TokenBucket(u32),
}

/// Counters of a node. For a FIFO only `sent_wire_bytes` is in use; its queue has the other counters.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub held: Load,
    pub sent_packets: u64,
    pub sent_bytes: u64,
    /// Bytes sent on the wire, for a FIFO as well.
    pub sent_wire_bytes: u64,
    pub peak_bytes: u32,
    pub peak_packets: u32,
}

impl Totals {
    #[inline]
    pub fn entered(&mut self, load: Load) {
        self.held = self.held.plus(load);
        self.peak_bytes = self.peak_bytes.max(self.held.bytes());
        self.peak_packets = self.peak_packets.max(self.held.packets());
    }

    #[inline]
    pub fn left(&mut self, load: Load) {
        self.held = self.held.minus(load);
    }

    #[inline]
    pub fn sent_all(&mut self, load: Load, wire: u64) {
        self.sent_packets += u64::from(load.packets());
        self.sent_bytes += u64::from(load.bytes());
        self.sent_wire_bytes += wire;
    }

    #[inline]
    pub fn sent(&mut self, length: u32, wire: u32) {
        self.sent_packets += 1;
        self.sent_bytes += u64::from(length);
        self.sent_wire_bytes += u64::from(wire);
    }
}

/// Node of the tree: one cache line.
#[repr(C, align(64))]
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub kind: Kind,
    pub parent: u32,
    /// Slot among the parent's children.
    pub slot: u32,
    /// Whether the node has a packet that may be sent now, and the parent has been notified of that.
    pub ready: bool,
    pub totals: Totals,
}

const _: () = assert!(size_of::<Node>() == 64);

impl Node {
    pub const VACANT: Self = Self {
        kind: Kind::Vacant,
        parent: NONE,
        slot: 0,
        ready: false,
        totals: Totals {
            held: Load::NOTHING,
            sent_packets: 0,
            sent_bytes: 0,
            sent_wire_bytes: 0,
            peak_bytes: 0,
            peak_packets: 0,
        },
    };
}

/// Nodes of a tree by number, and its root.
#[derive(Debug)]
pub(super) struct Nodes {
    slots: Slots<Node>,
    /// Root of the tree; [`NONE`] if there is none.
    pub root: u32,
}

impl Default for Nodes {
    fn default() -> Self {
        Self { slots: Slots::default(), root: NONE }
    }
}

impl Index<u32> for Nodes {
    type Output = Node;

    #[inline(always)]
    fn index(&self, node: u32) -> &Node {
        &self.slots[node]
    }
}

impl IndexMut<u32> for Nodes {
    #[inline(always)]
    fn index_mut(&mut self, node: u32) -> &mut Node {
        &mut self.slots[node]
    }
}

impl Nodes {
    /// Returns the number of slots for nodes; all node numbers are below it.
    pub fn count(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Makes room for a node of this number.
    pub fn make_room(&mut self, node: u32) {
        while self.slots.len() <= node as usize {
            self.slots.push(Node::VACANT);
        }
    }

    /// Returns all slots for writing, for a loop over many nodes.
    #[inline(always)]
    pub fn all_mut(&mut self) -> &mut [Node] {
        self.slots.all_mut()
    }

    /// Returns the node or vacant slot of a number; `None` if the number is out of range.
    #[inline(always)]
    pub fn find(&self, node: u32) -> Option<&Node> {
        self.slots.find(node)
    }

    #[inline(always)]
    pub fn find_mut(&mut self, node: u32) -> Option<&mut Node> {
        self.slots.find_mut(node)
    }

    /// Returns the kind of a node; `None` if the number is out of range.
    #[inline(always)]
    pub fn kind(&self, node: u32) -> Option<Kind> {
        self.find(node).map(|node| node.kind)
    }

    /// Returns the kind of a node's parent; `None` for a node without a parent.
    #[inline]
    pub fn parent_kind(&self, node: &Node) -> Option<Kind> {
        self.kind(node.parent)
    }

    /// Returns the root, if there is one.
    #[inline(always)]
    pub fn find_root(&self) -> Option<&Node> {
        self.find(self.root)
    }

    /// Returns the root, which must exist.
    #[inline(always)]
    pub fn root_mut(&mut self) -> &mut Node {
        &mut self.slots[self.root]
    }

    /// Returns a node, if it exists.
    #[inline]
    pub fn existing(&self, id: NodeId) -> Option<&Node> {
        self.find(id.0).filter(|node| node.kind != Kind::Vacant)
    }

    /// Returns a node.
    ///
    /// # Errors
    /// [`ScheduleError::Unknown`] if there is no such node.
    pub fn known(&self, id: NodeId) -> Result<&Node, ScheduleError> {
        self.existing(id).ok_or(ScheduleError::Unknown(id))
    }

    /// Iterates over the nodes, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Node)> {
        let all = self.slots.all().iter().enumerate().map(|(index, node)| (index as u32, node));
        all.filter(|(_, node)| node.kind != Kind::Vacant)
    }

    /// Prefetches the cache line of a node.
    #[inline]
    pub fn prefetch(&self, node: u32) {
        millrace_memory::prefetch_slice_element(self.slots.all(), node as usize);
    }

    /// Iterates over a node and its ancestors, up to the root.
    pub fn path_up(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        std::iter::successors(Some(node), |node| {
            let parent = self.find(node.0)?.parent;
            (parent != NONE).then_some(NodeId(parent))
        })
    }

    /// Whether a node equals `above` or is a descendant of it.
    pub fn is_below(&self, node: NodeId, above: NodeId) -> bool {
        self.path_up(node).any(|id| id == above)
    }

    /// Iterates over the children of a node, by a pass over all nodes.
    pub fn children(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        self.iter().filter(move |(_, child)| child.parent == node).map(|(child, _)| child)
    }

    /// Returns a node and its descendants, each after its parent, by a pass over all nodes.
    pub fn subtree(&self, node: NodeId) -> Vec<NodeId> {
        let mut children: HashMap<u32, Vec<NodeId>> = HashMap::new();
        for (child, Node { parent, .. }) in self.iter() {
            if *parent != NONE {
                children.entry(*parent).or_default().push(NodeId(child));
            }
        }
        let (mut all, mut next) = (vec![node], 0);
        while let Some(above) = all.get(next) {
            all.extend(children.remove(&above.0).unwrap_or_default());
            next += 1;
        }
        all
    }

    /// Whether a node is an H-FSC scheduler, or an inner class of one.
    pub fn is_hfsc(&self, node: u32) -> bool {
        matches!(self.kind(node), Some(Kind::Hfsc { .. }))
    }

    /// Counts packets that entered, at the node `first` and its ancestors.
    #[inline]
    pub fn entered(&mut self, first: u32, load: Load) {
        count_entered(self.all_mut(), first, load);
    }

    /// Subtracts packets that left without being sent, at the node `first` and its ancestors.
    pub fn left(&mut self, first: u32, load: Load) {
        let mut index = first;
        while let Some(node) = self.find_mut(index) {
            node.totals.left(load);
            index = node.parent;
        }
    }
}

/// Counts packets that entered, at the node `first` and its ancestors.
#[inline]
pub(super) fn count_entered(nodes: &mut [Node], first: u32, load: Load) {
    let mut index = first;
    while let Some(node) = nodes.get_mut(index as usize) {
        node.totals.entered(load);
        index = node.parent;
    }
}
