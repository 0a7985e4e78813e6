//! Places of nodes in the tree, and their shares there. The methods here change nodes that may hold packets,
//! and check nothing: the callers check each change before.

use millrace_units::Instant;

use super::super::node::Share;
use super::super::nodes::{Kind, Node};
use super::super::tree::Tree;
use crate::arena::NONE;
use crate::link::hfsc::Child;
use crate::{Item, NodeId};

/// Tree whose nodes change places, with the time of the changes.
pub(super) struct Places<'a, T> {
    pub tree: &'a mut Tree<T>,
    pub now: Instant,
}

impl<T: Item> Places<'_, T> {
    /// Adds a node to the children of a parent; [`NONE`] is no parent.
    pub fn attach(&mut self, node: NodeId, parent: u32, share: &Share, is_inner_class: bool) {
        let Node { kind, .. } = self.tree.nodes[node.0];
        let above = self.tree.nodes.kind(parent).unwrap_or(Kind::Vacant);
        if let (Kind::Priority(index), Share::Level(level)) = (above, share)
            && let Some(free) = self.tree.disciplines.priorities[index].free_level()
        {
            // If another child has this level, a later change moves that child to another level.
            self.vacate(index, *level, free);
        }
        let queue = if let Kind::Fifo(fifo) = kind { fifo.0 } else { NONE };
        let child = Child { node: node.0, queue };
        let slot = self.tree.disciplines.attach(above, share, child, is_inner_class);
        self.tree.hold_back(node, share);
        let entry = &mut self.tree.nodes[node.0];
        (entry.parent, entry.slot) = (parent, slot);
        if let Kind::Hfsc { hierarchy, .. } = above
            && is_inner_class
        {
            entry.kind = Kind::Hfsc { hierarchy, class: slot };
        }
    }

    /// Detaches a node from its parent. The node keeps its packets.
    pub fn detach(&mut self, node: NodeId) {
        let Node { parent, slot, .. } = self.tree.nodes[node.0];
        self.tree.nodes[node.0].ready = self.tree.pause(node.0, self.now);
        if self.tree.nodes.root == node.0 {
            self.tree.nodes.root = NONE;
        }
        if let Some(above) = self.tree.nodes.kind(parent) {
            self.tree.disciplines.detach(above, slot);
            self.tree.nodes[node.0].parent = NONE;
            self.tree.hold_back(node, &Share::Only);
        }
    }

    /// Moves a node to another parent, with its descendants and all their packets.
    pub fn transplant(&mut self, node: NodeId, parent: u32, share: &Share) {
        let held = self.tree.held_by(node.0);
        self.tree.nodes.left(self.tree.nodes[node.0].parent, held);
        self.detach(node);
        self.attach(node, parent, share, false);
        self.tree.nodes.entered(parent, held);
        let is_ready = self.tree.nodes[node.0].ready;
        self.tree.resume(node.0, is_ready, self.now);
    }

    /// Removes a node. The node must be detached, empty and without children.
    pub fn discard(&mut self, node: NodeId) {
        self.tree.timers.stop(node.0);
        self.tree.other_drops.forget(node);
        let Node { kind, .. } = std::mem::replace(&mut self.tree.nodes[node.0], Node::VACANT);
        self.tree.close(kind);
    }

    /// Changes the share of a node in its parent. The leaf classes of H-FSC are suspended while curves
    /// change.
    pub fn set_share(&mut self, node: NodeId, share: &Share) {
        let entry = &self.tree.nodes[node.0];
        let (above, slot) = (self.tree.nodes.parent_kind(entry), entry.slot);
        match (above, share) {
            (Some(Kind::Priority(index)), Share::Level(level)) => {
                let is_ready = self.tree.pause(node.0, self.now);
                self.tree.disciplines.priorities[index].remove(slot);
                // If another child has this level, it gets this node's old level until a later change moves
                // it.
                self.vacate(index, *level, slot);
                self.put_at_level(node.0, index, *level);
                self.tree.resume(node.0, is_ready, self.now);
            }
            (Some(Kind::RoundRobin(index)), Share::Quantum(quantum)) => {
                self.tree.disciplines.round_robins[index].set_quantum(slot, *quantum);
            }
            (Some(Kind::Hfsc { hierarchy, .. }), Share::Curves(curves)) => {
                let active = self.pause_classes(node);
                self.tree.disciplines.hierarchies[hierarchy].set_curves(slot, curves, self.now);
                self.tree.hold_back(node, share);
                self.resume_classes(&active);
            }
            _ => {}
        }
    }

    /// Moves the child at a level of a priority scheduler to a free level.
    fn vacate(&mut self, priority: u32, level: u32, to: u32) {
        let Some(other) = self.tree.disciplines.priorities[priority].at(level) else { return };
        let is_ready = self.tree.pause(other, self.now);
        self.tree.disciplines.priorities[priority].remove(level);
        self.put_at_level(other, priority, to);
        self.tree.resume(other, is_ready, self.now);
    }

    fn put_at_level(&mut self, node: u32, priority: u32, level: u32) {
        self.tree.disciplines.priorities[priority].insert(level, node);
        self.tree.nodes[node].slot = level;
    }

    /// Suspends the leaf classes of H-FSC at or below a node. Returns the suspended classes, which were ready
    /// before.
    pub fn pause_classes(&mut self, node: NodeId) -> Vec<u32> {
        let mut active = Vec::new();
        let mut open = vec![node.0];
        while let Some(next) = open.pop() {
            let nodes = &self.tree.nodes;
            if nodes.is_hfsc(next) && (next == node.0 || nodes.is_hfsc(nodes[next].parent)) {
                open.extend(nodes.children(next));
            } else if self.tree.pause(next, self.now) {
                active.push(next);
            }
        }
        active
    }

    pub fn resume_classes(&mut self, classes: &[u32]) {
        for class in classes {
            self.tree.rouse(*class, self.now);
        }
    }
}
