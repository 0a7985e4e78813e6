//! Moves of nodes in the tree, with all nodes below them and their packets.

use millrace_units::Instant;

use super::node::Kind;
use super::{LinkScheduler, NodeId, ScheduleError, Share};
use crate::Item;
use crate::arena::NONE;
use crate::link::hfsc::{Curves, HIERARCHY_ROOT};

impl<T: Item> LinkScheduler<T> {
    /// Moves a node, with all nodes below it, to another parent. Packets stay in their queues.
    ///
    /// # Errors
    /// [`ScheduleError`] with the reason; nothing has changed then.
    pub fn move_to(
        &mut self,
        node: NodeId,
        parent: Option<NodeId>,
        share: Share,
        now: Instant,
    ) -> Result<(), ScheduleError> {
        let old_parent = self.known(node)?.parent;
        if let Some(above) = parent.filter(|above| self.path_up(*above).any(|id| id == node)) {
            let path: Vec<String> =
                self.path_up(above).take_while(|id| *id != node).map(|id| id.to_string()).collect();
            let path = format!("{} < {node}", path.join(" < "));
            return Err(ScheduleError::Cycle { node, parent: above, path });
        }
        let parent = self.parent_for(node, parent, self.height(node))?;
        self.check_share(node, parent, &share, self.is_hfsc(node.0) && self.is_hfsc(parent))?;
        if self.is_hfsc(node.0) && (self.is_hfsc(old_parent) || self.is_hfsc(parent)) {
            return self.move_class(node, parent, &share, now);
        }
        let (before, was_root) = (self.share(node), self.root == node.0);
        self.transplant(node, parent, &share, now);
        if let Err(error) = self.check_promises(node) {
            self.transplant(node, old_parent, &before, now);
            if was_root {
                self.root = node.0;
            }
            return Err(error);
        }
        if parent == NONE && self.root == NONE {
            self.root = node.0;
        }
        Ok(())
    }

    /// Detaches a node, with all nodes below it, from its parent. The nodes keep their packets and accept
    /// more, but send none until [`move_to`](Self::move_to).
    ///
    /// # Errors
    /// [`ScheduleError`] when the node is unknown, or an inner class of H-FSC; nothing has changed then.
    pub fn set_apart(&mut self, node: NodeId, now: Instant) -> Result<(), ScheduleError> {
        let parent = self.known(node)?.parent;
        if self.is_hfsc(node.0) && self.is_hfsc(parent) {
            return Err(inside_only(node));
        }
        self.transplant(node, NONE, &Share::Only, now);
        Ok(())
    }

    fn transplant(&mut self, node: NodeId, parent: u32, share: &Share, now: Instant) {
        let held = self.held_by(node.0);
        self.leave_totals(node, held);
        self.detach(node, now);
        self.attach(node, parent, share, false, now);
        self.join_totals(node, held);
        let ready = self.nodes[node.0 as usize].ready;
        self.resume(node, ready, now);
    }

    /// Returns the number of levels from a node to its deepest leaf.
    fn height(&self, node: NodeId) -> usize {
        let depth = |below: NodeId| self.path_up(below).take_while(|above| *above != node).count();
        1 + self.with_all_below(node).into_iter().map(depth).max().unwrap_or(0)
    }

    /// Moves an inner class of H-FSC inside its hierarchy.
    fn move_class(
        &mut self,
        node: NodeId,
        parent: u32,
        share: &Share,
        now: Instant,
    ) -> Result<(), ScheduleError> {
        let (own, above) =
            (self.nodes[node.0 as usize].kind, self.nodes.find(parent as usize).map(|node| node.kind));
        let (
            Kind::Hfsc { hierarchy, class },
            Some(Kind::Hfsc { hierarchy: there, class: to }),
            Share::Curves(curves),
        ) = (own, above, share)
        else {
            return Err(inside_only(node));
        };
        if hierarchy != there || class == HIERARCHY_ROOT {
            return Err(inside_only(node));
        }
        let before: (u32, Curves) = {
            let classes = self.hierarchies.get(hierarchy);
            (classes.parent(class), classes.curves(class))
        };
        let active = self.pause_classes(node, now);
        let held = self.held_by(node.0);
        self.leave_totals(node, held);
        let old_parent = std::mem::replace(&mut self.nodes[node.0 as usize].parent, parent);
        let classes = self.hierarchies.get_mut(hierarchy);
        classes.reparent(class, to);
        classes.set_curves(class, curves, now);
        let checked = self.check_promises(node);
        if checked.is_err() {
            let classes = self.hierarchies.get_mut(hierarchy);
            classes.reparent(class, before.0);
            classes.set_curves(class, &before.1, now);
            self.nodes[node.0 as usize].parent = old_parent;
        }
        self.join_totals(node, held);
        self.resume_classes(&active, now);
        checked
    }
}

fn inside_only(node: NodeId) -> ScheduleError {
    let text =
        "an H-FSC class with children can move only within its hierarchy; create it anew at the other place";
    ScheduleError::Settings { node, text: text.to_owned() }
}
