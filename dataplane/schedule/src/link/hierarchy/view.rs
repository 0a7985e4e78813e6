//! Views of the tree for its user.

use super::levels::Served;
use super::node::{Kind, Node};
use super::{LinkScheduler, NodeId, NodeKind, Share};
use crate::arena::NONE;
use crate::queue::QueueSettings;
use crate::{DropCounts, Item, Rate};

/// Node with its settings and counters.
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
    /// below a later child of a priority scheduler, or if the link has no rate.
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
    /// Number of queues in use: 1 for a FIFO, queues of flows, buckets of FQ-CoDel; 0 for other kinds.
    pub queues: u32,
    /// Drops by cause at or below the node, including nodes removed from there.
    pub drops: DropCounts,
}

impl<T: Item> LinkScheduler<T> {
    /// Returns the settings of a node.
    pub(super) fn kind(&self, node: NodeId) -> NodeKind {
        match self.nodes[node.0 as usize].kind {
            Kind::Fifo(fifo) => {
                let view = self.queues.view(fifo.0);
                NodeKind::Fifo(QueueSettings { threshold: view.threshold, aqm: view.aqm })
            }
            Kind::FlowQueues(index) => NodeKind::FlowQueues(self.flow_queues.get(index).settings),
            Kind::FqCodel(index) => NodeKind::FqCodel(*self.fq_codels.get(index).settings()),
            Kind::Priority(_) => NodeKind::Priority,
            Kind::RoundRobin(_) => NodeKind::DeficitRoundRobin,
            Kind::Hfsc { .. } | Kind::Vacant => NodeKind::Hfsc,
            Kind::TokenBucket(index) => {
                let (rate, burst) = self.token_buckets.get(index).settings();
                NodeKind::TokenBucket { rate, burst }
            }
        }
    }

    /// Returns the view of a node; `None` if it does not exist.
    pub fn view(&self, node: NodeId) -> Option<NodeView> {
        let mut view = self.view_alone(node, Some(&Served::of(self)))?;
        if !view.kind.is_leaf() {
            let all = (0..self.nodes.len() as u32).map(NodeId);
            for below in all.filter(|below| *below != node && self.path_up(*below).any(|above| above == node))
            {
                self.count_drops(below, &mut view.drops);
            }
        }
        Some(view)
    }

    /// Returns the view of a node with only its own drops.
    fn view_alone(&self, node: NodeId, served: Option<&Served>) -> Option<NodeView> {
        let Node { kind, parent, totals, .. } = *self.node(node)?;
        let served = served.filter(|_| !self.is_behind_others(node.0));
        let promised = served.and_then(|served| served.by(node.0));
        let mut view = NodeView {
            node,
            parent: (parent != NONE).then_some(NodeId(parent)),
            share: self.share(node),
            kind: self.kind(node),
            promised,
            sent_packets: totals.sent_packets,
            sent_bytes: totals.sent_bytes,
            sent_wire_bytes: totals.sent_wire_bytes,
            held_packets: totals.held.packets(),
            held_bytes: totals.held.bytes(),
            peak_bytes: totals.peak_bytes,
            peak_packets: totals.peak_packets,
            queues: 0,
            drops: DropCounts::default(),
        };
        match kind {
            Kind::Fifo(fifo) => {
                let queue = self.queues.view(fifo.0);
                (view.sent_packets, view.sent_bytes) = (queue.sent_packets, queue.sent_bytes);
                (view.held_packets, view.held_bytes) = (queue.held_packets, queue.held_bytes);
                (view.peak_bytes, view.peak_packets) = (queue.peak_bytes, queue.peak_packets);
                view.queues = 1;
            }
            Kind::FlowQueues(index) => view.queues = self.flow_queues.get(index).queues().count() as u32,
            Kind::FqCodel(index) => view.queues = self.fq_codels.get(index).settings().flows,
            _ => {}
        }
        self.count_drops(node, &mut view.drops);
        Some(view)
    }

    /// Adds the drops of a leaf and of nodes removed from below a node.
    pub(super) fn count_drops(&self, node: NodeId, drops: &mut DropCounts) {
        if let Some(gone) = self.gone.get(&node) {
            drops.merge(gone);
        }
        match self.nodes[node.0 as usize].kind {
            Kind::Fifo(fifo) => drops.merge(&self.queues.view(fifo.0).drops),
            Kind::FlowQueues(index) => drops.merge(self.flow_queues.get(index).drops()),
            Kind::FqCodel(index) => drops.merge(self.fq_codels.get(index).drops()),
            _ => {}
        }
    }

    /// Returns all nodes, each after its parent, with subtrees kept together. The cost grows with the number
    /// of nodes times the depth of the tree.
    pub fn tree(&self) -> Vec<NodeView> {
        let served = Served::of(self);
        let all = (0..self.nodes.len() as u32).map(NodeId);
        in_tree(all.filter_map(|node| self.view_alone(node, Some(&served))).collect())
    }

    /// Returns the nodes of up to `most` numbers from `first` on, and the next number, if there may be more.
    /// The views have only their own drops, and no promised rate. [`in_tree`] makes a tree of all.
    pub fn nodes_from(&self, first: u32, most: u32) -> (Vec<NodeView>, Option<u32>) {
        let (count, end) = (self.nodes.len() as u32, first.saturating_add(most));
        let part = (first..end.min(count)).filter_map(|node| self.view_alone(NodeId(node), None));
        (part.collect(), Some(end).filter(|end| *end < count))
    }

    pub(super) fn own_drops(&self, node: NodeId) -> DropCounts {
        let mut drops = DropCounts::default();
        self.count_drops(node, &mut drops);
        drops
    }
}

/// Sorts views with only their own drops into tree order: each node after its parent, with subtrees kept
/// together. Adds the drops below each node.
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
    // The loop below takes the last child of a list first.
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
