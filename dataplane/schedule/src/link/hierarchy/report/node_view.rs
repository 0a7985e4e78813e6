//! Views of nodes, and their order in a tree.

use super::super::super::hfsc::NodeWaits;
use super::super::node::{NodeKind, Share};
use crate::{DropCounts, NodeId, Rate};

/// View of a node: its settings and counters.
#[derive(Clone, PartialEq, Debug)]
pub struct NodeView {
    /// Id of the node.
    pub node: NodeId,
    /// Parent; `None` for the root and for nodes that stand apart.
    pub parent: Option<NodeId>,
    /// Share in the parent.
    pub share: Share,
    /// Kind, with its settings.
    pub kind: NodeKind,
    /// Rate on the wire when all other nodes have packets to send: the greater of guarantee and share. `None`
    /// if the link has no rate, or if a priority scheduler above the node has another child at a lower level.
    pub promised: Option<Rate>,
    /// Number of packets sent.
    pub sent_packets: u64,
    /// Number of bytes sent.
    pub sent_bytes: u64,
    /// Bytes sent on the wire, with the link overhead.
    pub sent_wire_bytes: u64,
    /// Number of packets that wait at or below the node.
    pub held_packets: u32,
    /// Bytes of the packets that wait at or below the node.
    pub held_bytes: u32,
    /// Peak of waiting bytes.
    pub peak_bytes: u32,
    /// Peak of waiting packets.
    pub peak_packets: u32,
    /// Waits of packets; `None` without a real-time curve.
    pub waits: Option<NodeWaits>,
    /// Number of queues in use: 1 for a FIFO, the queues of flows, the hash queues of FQ-CoDel; 0 for other
    /// kinds.
    pub queues: u32,
    /// Drops by cause at or below the node, including removed descendants.
    pub drops: DropCounts,
}

/// Sorts views into tree order: each node after its parent, with subtrees kept together. Each view must
/// contain only its own drops; this function adds the drops below each node.
pub fn in_tree(nodes: Vec<NodeView>) -> Vec<NodeView> {
    let count = nodes.iter().map(|view| view.node.0 as usize + 1).max().unwrap_or(0);
    let mut views: Vec<Option<NodeView>> = vec![None; count];
    let dropped: Vec<_> = nodes
        .iter()
        .filter(|view| !view.drops.is_empty())
        .map(|view| (view.parent, view.drops.clone()))
        .collect();
    for view in nodes {
        let index = view.node.0 as usize;
        views[index] = Some(view);
    }
    for (parent, drops) in dropped {
        let mut next = parent;
        while let Some(above) = next.and_then(|above| views.get_mut(above.0 as usize)?.as_mut()) {
            above.drops.merge(&drops);
            next = above.parent;
        }
    }
    let mut children = vec![Vec::new(); count];
    let mut open = Vec::new();
    // Reversed, because the loop below takes the last child of a list first.
    for view in views.iter().rev().flatten() {
        let above = view.parent.and_then(|above| children.get_mut(above.0 as usize));
        above.unwrap_or(&mut open).push(view.node.0 as usize);
    }
    let mut all = Vec::new();
    while let Some(next) = open.pop() {
        all.extend(views[next].take());
        open.append(&mut children[next]);
    }
    all
}
