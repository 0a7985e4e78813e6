//! Report of a scheduler tree: nodes, queues and counters.

mod backlog;
#[expect(clippy::indexing_slicing, reason = "views of nodes, of which one is made for each node")]
mod node_view;

pub use self::backlog::LeafBacklog;
pub use self::node_view::{NodeView, in_tree};
use super::super::hfsc::NodeWaits;
use super::guarantees::Served;
use super::nodes::{Kind, Node};
use super::pacer::LinkRate;
use super::tree::Tree;
use crate::arena::NONE;
use crate::queue_manager::BufferLimits;
use crate::{DropCounts, FlowNumber, Item, LinkOverhead, NodeId, QueueView, Rate, ScheduleError};

/// Report of a scheduler: its settings, nodes, queues and counters.
#[derive(Debug)]
pub struct TreeReport<'a, T> {
    pub(super) tree: &'a Tree<T>,
    pub(super) link: LinkRate,
}

impl<T: Item> TreeReport<'_, T> {
    /// Returns the rate of the port.
    pub fn link(&self) -> LinkRate {
        self.link
    }

    /// Returns the link overhead of each packet.
    pub fn overhead(&self) -> LinkOverhead {
        self.tree.leaves.queues.overhead
    }

    /// Returns the limits of all queues together.
    pub fn limits(&self) -> BufferLimits {
        self.tree.leaves.limits()
    }

    /// Returns the number of queues in use, and the maximum number of queues.
    pub fn queue_counts(&self) -> (u32, u32) {
        (self.tree.leaves.queues.in_use(), self.limits().queues)
    }

    /// Returns the drops of packets for unknown nodes, and of packets that a removed node still held.
    pub fn lost(&self) -> &DropCounts {
        self.tree.other_drops.lost()
    }

    /// Returns the memory of queues and nodes in bytes, without packets.
    pub fn memory(&self) -> usize {
        let nodes = self.tree.nodes.count() as usize * size_of::<Node>();
        self.tree.leaves.queues.memory() + nodes + self.tree.timers.memory()
    }

    /// Returns a node and its descendants, each after its parent. For a node with children, this takes one
    /// pass over all nodes of the port.
    pub fn with_all_below(&self, node: NodeId) -> Vec<NodeId> {
        self.tree.subtree(node)
    }

    /// Returns all nodes, each after its parent, with subtrees kept together. The cost grows with the number
    /// of nodes times the depth of the tree.
    pub fn tree(&self) -> Vec<NodeView> {
        let served = self.served();
        let all = (0..self.tree.nodes.count()).map(NodeId);
        in_tree(all.filter_map(|node| self.view_alone(node, Some(&served))).collect())
    }

    /// Returns views of the nodes with numbers from `first` on, for a range of `most` numbers. The second
    /// value is the start of the next range; `None` after the last range. Each view contains only the node's
    /// own drops, and no promised rate. [`in_tree`] orders the views of all ranges as a tree.
    pub fn nodes_from(&self, first: u32, most: u32) -> (Vec<NodeView>, Option<u32>) {
        let (count, end) = (self.tree.nodes.count(), first.saturating_add(most));
        let part = (first..end.min(count)).filter_map(|node| self.view_alone(NodeId(node), None));
        (part.collect(), Some(end).filter(|end| *end < count))
    }

    /// Returns the view of a node; `None` if it does not exist.
    pub fn view(&self, node: NodeId) -> Option<NodeView> {
        let mut view = self.view_alone(node, Some(&self.served()))?;
        for below in self.tree.subtree(node).into_iter().skip(1) {
            view.drops.merge(&self.tree.own_drops(below));
        }
        Some(view)
    }

    fn served(&self) -> Served {
        Served::of(&self.tree.nodes, &self.tree.disciplines, self.link.rate)
    }

    /// Returns the view of a node with only its own drops, without those of its descendants.
    fn view_alone(&self, node: NodeId, served: Option<&Served>) -> Option<NodeView> {
        let Tree { nodes, leaves, .. } = self.tree;
        let entry = nodes.existing(node)?;
        let Node { kind, parent, totals, .. } = *entry;
        let served = served.filter(|_| !self.is_behind_others(node.0));
        let mut view = NodeView {
            node,
            parent: (parent != NONE).then_some(NodeId(parent)),
            share: self.tree.share(entry),
            kind: self.tree.settings(kind),
            promised: served.and_then(|served| served.by(node.0)),
            sent_packets: totals.sent_packets,
            sent_bytes: totals.sent_bytes,
            sent_wire_bytes: totals.sent_wire_bytes,
            held_packets: totals.held.packets(),
            held_bytes: totals.held.bytes(),
            peak_bytes: totals.peak_bytes,
            peak_packets: totals.peak_packets,
            waits: self.waits(entry),
            queues: 0,
            drops: self.tree.own_drops(node),
        };
        match kind {
            Kind::Fifo(fifo) => {
                let queue = leaves.queues.view(fifo.0);
                (view.sent_packets, view.sent_bytes) = (queue.sent_packets, queue.sent_bytes);
                (view.held_packets, view.held_bytes) = (queue.held_packets, queue.held_bytes);
                (view.peak_bytes, view.peak_packets) = (queue.peak_bytes, queue.peak_packets);
                view.queues = 1;
            }
            Kind::FlowQueues(index) => {
                view.queues = leaves.flow_queues[index].assignment.queues().count() as u32;
            }
            Kind::FqCodel(index) => view.queues = leaves.fq_codels[index].settings().flows,
            _ => {}
        }
        Some(view)
    }

    /// Returns the waits of the packets of a node; `None` without a real-time curve.
    fn waits(&self, node: &Node) -> Option<NodeWaits> {
        let Tree { nodes, disciplines, .. } = self.tree;
        let Kind::Hfsc { hierarchy, .. } = nodes.find(node.parent)?.kind else { return None };
        disciplines.hierarchies[hierarchy].waits(node.slot)
    }

    /// Whether another subtree has priority over a node: a priority scheduler above the node has another
    /// child at a lower level.
    fn is_behind_others(&self, node: u32) -> bool {
        let Tree { nodes, disciplines, .. } = self.tree;
        let mut path = nodes.path_up(NodeId(node));
        path.any(|NodeId(node)| match nodes.parent_kind(&nodes[node]) {
            Some(Kind::Priority(priority)) => disciplines.priorities[priority].first() != Some(node),
            _ => false,
        })
    }

    /// Returns the queue of a FIFO with all counters; `None` for other nodes.
    pub fn queue(&self, node: NodeId) -> Option<QueueView> {
        match self.tree.nodes.existing(node)?.kind {
            Kind::Fifo(fifo) => Some(self.tree.leaves.queues.view(fifo.0)),
            _ => None,
        }
    }

    /// Returns the view of a flow's own queue, with the quantum that applies now, and the flow's reserved
    /// rate. `None` if the flow has no queue.
    pub fn flow(
        &self,
        node: NodeId,
        flow: FlowNumber,
    ) -> Result<Option<(QueueView, Option<Rate>)>, ScheduleError> {
        let index = self.tree.flow_leaf(node)?;
        let queue = self.tree.leaves.flow_queues[index].assignment.queue_of(flow);
        Ok(queue.map(|queue| self.flow_queue(index, queue)))
    }

    /// Returns up to `most` flows that have their own queues, from index `first` on. The order is arbitrary,
    /// and constant while no flow gets or loses a queue. The last entry, without a flow, is the shared queue,
    /// if it was ever used.
    pub fn flows(
        &self,
        node: NodeId,
        first: usize,
        most: usize,
    ) -> Result<Vec<(Option<FlowNumber>, QueueView)>, ScheduleError> {
        let index = self.tree.flow_leaf(node)?;
        let (assignment, queues) =
            (&self.tree.leaves.flow_queues[index].assignment, &self.tree.leaves.queues);
        let own = assignment.owned().map(|queue| (Some(FlowNumber(queues.queue(queue).flow)), queue));
        let is_used = queues.view(assignment.shared()).offered_packets > 0;
        let all = own.chain(is_used.then_some((None, assignment.shared())));
        let part = all.skip(first).take(most);
        Ok(part.map(|(flow, queue)| (flow, self.flow_queue(index, queue).0)).collect())
    }

    /// Returns the view of a queue in a leaf with a queue per flow. The view has the quantum that applies
    /// now. The second value is the reserved rate, if there is one.
    fn flow_queue(&self, leaf: u32, queue: u32) -> (QueueView, Option<Rate>) {
        let queues = &self.tree.leaves.queues;
        let (quantum, rate) = self.tree.leaves.flow_queues[leaf].quantum(queues, queue);
        (QueueView { quantum, ..queues.view(queue) }, rate)
    }
}
