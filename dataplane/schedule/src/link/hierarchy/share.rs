//! Shares of nodes in their parents, and changes of them under load.

use millrace_units::Instant;

use super::node::{Kind, Node};
use super::{LinkScheduler, NodeId, ScheduleError, Share};
use crate::Item;

impl<T: Item> LinkScheduler<T> {
    /// Changes the share of a node in its parent. Packets in the node stay.
    ///
    /// # Errors
    /// [`ScheduleError`] with the reason; nothing has changed then.
    pub fn set_share(&mut self, node: NodeId, share: Share, now: Instant) -> Result<(), ScheduleError> {
        let parent = self.known(node)?.parent;
        let inner_class = self.is_hfsc(node.0) && self.is_hfsc(parent);
        self.check_share(node, parent, &share, inner_class)?;
        let before = self.share(node);
        self.put_share(node, &share, now);
        let has_children = self.has_children(node);
        if let Err(error) = self.check_around(node, has_children) {
            self.put_share(node, &before, now);
            return Err(error);
        }
        Ok(())
    }

    /// Writes a checked share. Classes of H-FSC are idle while their curves change.
    fn put_share(&mut self, node: NodeId, share: &Share, now: Instant) {
        let Node { parent, slot, ready, .. } = self.nodes[node.0 as usize];
        let Some(above) = self.nodes.find(parent as usize) else { return };
        match (above.kind, share) {
            (Kind::Priority(index), Share::Level(level)) => {
                self.pause(node, now);
                self.priorities.get_mut(index).remove(slot);
                // The other child at this level gets this node's old level, until its own change follows.
                self.vacate(index, *level, slot, now);
                self.put_at_level(node, index, *level);
                self.resume(node, ready, now);
            }
            (Kind::RoundRobin(index), Share::Quantum(quantum)) => {
                self.round_robins.get_mut(index).set_quantum(slot, *quantum);
            }
            (Kind::Hfsc { hierarchy, .. }, Share::Curves(curves)) => {
                let active = self.pause_classes(node, now);
                self.hierarchies.get_mut(hierarchy).set_curves(slot, curves, now);
                self.resume_classes(&active, now);
            }
            _ => {}
        }
    }

    /// Moves the child at a level of a priority scheduler to a free level.
    pub(super) fn vacate(&mut self, priority: u32, level: u32, to: u32, now: Instant) {
        let Some(other) = self.priorities.get(priority).at(level).map(NodeId) else { return };
        let is_ready = self.nodes[other.0 as usize].ready;
        self.pause(other, now);
        self.priorities.get_mut(priority).remove(level);
        self.put_at_level(other, priority, to);
        self.resume(other, is_ready, now);
    }

    fn put_at_level(&mut self, node: NodeId, priority: u32, level: u32) {
        self.priorities.get_mut(priority).insert(level, node.0);
        self.nodes[node.0 as usize].slot = level;
    }

    pub(super) fn pause(&mut self, node: NodeId, now: Instant) {
        if self.nodes[node.0 as usize].ready {
            self.suspend(node.0, now);
        }
    }

    pub(super) fn resume(&mut self, node: NodeId, ready: bool, now: Instant) {
        if ready {
            self.rouse(node.0, now);
        }
    }

    /// Suspends the leaf classes of H-FSC at or below a node. Returns the classes that were ready.
    pub(super) fn pause_classes(&mut self, node: NodeId, now: Instant) -> Vec<NodeId> {
        let mut active = Vec::new();
        let mut open = vec![node];
        while let Some(next) = open.pop() {
            if self.is_hfsc(next.0) && (next == node || self.is_hfsc(self.nodes[next.0 as usize].parent)) {
                open.extend(self.children(next));
            } else if self.nodes[next.0 as usize].ready {
                self.suspend(next.0, now);
                active.push(next);
            }
        }
        active
    }

    pub(super) fn resume_classes(&mut self, classes: &[NodeId], now: Instant) {
        for class in classes {
            self.rouse(class.0, now);
        }
    }

    /// Returns the share of a node in its parent.
    pub(super) fn share(&self, node: NodeId) -> Share {
        let Node { parent, slot, .. } = self.nodes[node.0 as usize];
        match self.nodes.find(parent as usize).map(|parent| parent.kind) {
            Some(Kind::Priority(_)) => Share::Level(slot),
            Some(Kind::RoundRobin(index)) => Share::Quantum(self.round_robins.get(index).quantum(slot)),
            Some(Kind::Hfsc { hierarchy, .. }) => Share::Curves(self.hierarchies.get(hierarchy).curves(slot)),
            _ => Share::Only,
        }
    }
}
