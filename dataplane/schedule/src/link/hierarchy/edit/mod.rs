//! Changes of the tree while it holds packets. A refused change leaves the tree unchanged: each change is
//! checked first, or undone at once.

mod contents;
mod flows;
mod parameters;
mod place;

use millrace_units::Instant;

pub use self::contents::Leftover;
pub use self::flows::FlowEditor;
use self::parameters::{Place, check_kind};
use self::place::Places;
use super::guarantees::Guarantees;
use super::leaves::Leaves;
use super::node::{NodeKind, Share};
use super::nodes::{Kind, Node};
use super::tree::Tree;
use super::{MOST_DEPTH, MOST_NODES, ScheduleError, in_range};
use crate::arena::NONE;
use crate::link::flow_queues::FlowQueuesSettings;
use crate::link::hfsc::HIERARCHY_ROOT;
use crate::queue_manager::MOST_QUEUES;
use crate::{DropSink, Item, NodeId, Rate};

/// Editor of a scheduler tree. Packets stay in their queues unless a change removes their node.
#[derive(Debug)]
pub struct TreeEditor<'a, T> {
    pub(super) tree: &'a mut Tree<T>,
    /// Rate of the link; `None` for no limit.
    pub(super) link: Option<Rate>,
    pub(super) checks: Checks,
}

/// Checks that the editor skips.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Checks {
    /// Whether the caller has already checked all changes together. The editor then skips most checks.
    pub trusting: bool,
    /// Whether the caller checks the guarantees after the last change.
    pub deferring: bool,
}

impl<T: Item> TreeEditor<'_, T> {
    fn places(&mut self, now: Instant) -> Places<'_, T> {
        Places { tree: self.tree, now }
    }

    /// Runs a check of guarantees, unless the caller has made this check or makes it later.
    fn check(
        &self,
        check: impl FnOnce(Guarantees<'_, T>) -> Result<(), ScheduleError>,
    ) -> Result<(), ScheduleError> {
        if self.checks.trusting || self.checks.deferring {
            return Ok(());
        }
        check(Guarantees { tree: self.tree, link: self.link })
    }

    /// Checks all guarantees. Errors name `node` as the changed node.
    pub(super) fn check_guarantees(&self, node: NodeId) -> Result<(), ScheduleError> {
        self.check(|guarantees| guarantees.check(node))
    }

    /// Checks that a leaf's `queues` for flows, and its shared queue, fit into the `most` queues of the port.
    fn check_queues(&self, node: NodeId, queues: u32, most: u32) -> Result<(), ScheduleError> {
        let fits = queues < most || self.checks.trusting;
        if fits { Ok(()) } else { Err(ScheduleError::LeafQueues { node, queues, most }) }
    }

    /// Checks the settings of a node by themselves. Also checks that the queues of the node fit into those of
    /// the port.
    fn check_settings(&self, node: NodeId, kind: &NodeKind) -> Result<(), ScheduleError> {
        check_kind(node, kind)?;
        match kind {
            NodeKind::FlowQueues(settings) => {
                self.check_queues(node, settings.queues, self.tree.leaves.limits().queues)
            }
            _ => Ok(()),
        }
    }

    /// Adds a node below `parent`, with its share of the parent. A node without a parent becomes the root if
    /// there is no root. Further nodes without a parent stand apart: they accept packets, but send none until
    /// [`move_to`](Self::move_to) gives them a parent.
    pub fn add(
        &mut self,
        node: NodeId,
        parent: Option<NodeId>,
        share: Share,
        kind: &NodeKind,
        now: Instant,
    ) -> Result<(), ScheduleError> {
        if node.0 >= MOST_NODES {
            return Err(ScheduleError::Id(node));
        }
        if self.tree.nodes.existing(node).is_some() {
            return Err(ScheduleError::Duplicate(node));
        }
        check_kind(node, kind)?;
        let place = self.place(node, parent, 1, *kind == NodeKind::Hfsc)?;
        place.check_share(&self.tree.disciplines, &share, self.checks.trusting)?;
        self.check_settings(node, kind)?;
        self.tree.nodes.make_room(node.0);
        if !kind.is_leaf() {
            self.tree.timers.make_room(node.0);
        }
        let built = match place.is_inner_class {
            true => Kind::Vacant,
            false => self.tree.build(node, kind, self.checks.trusting)?,
        };
        self.tree.nodes[node.0] = Node { kind: built, ..Node::VACANT };
        self.places(now).attach(node, place.parent.0, &share, place.is_inner_class);
        if let Err(error) = self.check(|guarantees| guarantees.check_around(node)) {
            self.places(now).detach(node);
            self.places(now).discard(node);
            return Err(error);
        }
        self.ensure_root(node);
        Ok(())
    }

    /// Makes a node the root, if it has no parent and there is no root.
    fn ensure_root(&mut self, node: NodeId) {
        if self.tree.nodes[node.0].parent == NONE && self.tree.nodes.root == NONE {
            self.tree.nodes.root = node.0;
        }
    }

    /// Returns the place of a subtree with `height` levels below `parent`. Refuses a tree that would be too
    /// deep. An H-FSC node below another H-FSC node becomes an inner class.
    fn place(
        &self,
        node: NodeId,
        parent: Option<NodeId>,
        height: usize,
        is_hfsc: bool,
    ) -> Result<Place, ScheduleError> {
        let Some(parent) = parent else {
            return Ok(Place::new(node, NodeId(NONE), Kind::Vacant, is_hfsc));
        };
        let Some(&Node { kind: above, .. }) = self.tree.nodes.existing(parent) else {
            return Err(ScheduleError::UnknownParent { node, parent });
        };
        if let Some(leaf) = self.tree.leaves.settings(above) {
            return Err(ScheduleError::ParentIsLeaf { node, parent, kind: leaf.name() });
        }
        let depth = self.tree.nodes.path_up(parent).count() + height;
        if depth > MOST_DEPTH {
            return Err(ScheduleError::Depth { node, depth });
        }
        Ok(Place::new(node, parent, above, is_hfsc))
    }

    /// Changes the settings of a node, but not its kind. Its packets stay.
    pub fn set(&mut self, node: NodeId, kind: &NodeKind, now: Instant) -> Result<(), ScheduleError> {
        let before = self.tree.nodes.known(node)?.kind;
        check_kind(node, kind)?;
        match (before, kind) {
            (Kind::Fifo(fifo), NodeKind::Fifo(settings)) => self.tree.leaves.queues.set(fifo.0, settings),
            (Kind::FlowQueues(index), NodeKind::FlowQueues(settings)) => {
                return self.set_flow_queues(node, index, settings);
            }
            (Kind::FqCodel(index), NodeKind::FqCodel(settings)) => {
                self.tree.leaves.fq_codels[index].set(*settings);
                self.set_flow_count(node, index, settings.flows, now);
            }
            (Kind::TokenBucket(index), NodeKind::TokenBucket { rate, burst }) => {
                return self.set_bucket(node, index, (*rate, *burst), now);
            }
            (Kind::Priority(_), NodeKind::Priority)
            | (Kind::RoundRobin(_), NodeKind::DeficitRoundRobin)
            | (Kind::Hfsc { .. }, NodeKind::Hfsc) => {}
            (before, _) => {
                let before = self.tree.settings(before);
                return Err(ScheduleError::Kind { node, kind: before.name(), other: kind.name() });
            }
        }
        Ok(())
    }

    /// Changes the number of flows of an FQ-CoDel leaf. The change may alter the leaf's next packet, whose
    /// length the ancestors hold. So the leaf is suspended during the change.
    fn set_flow_count(&mut self, node: NodeId, index: u32, flows: u32, now: Instant) {
        if self.tree.leaves.fq_codels[index].settings().flows == flows {
            return;
        }
        let is_ready = self.tree.pause(node.0, now);
        let Leaves { queues, fq_codels, .. } = &mut self.tree.leaves;
        fq_codels[index].set_flows(queues, flows);
        self.tree.resume(node.0, is_ready, now);
    }

    fn set_bucket(
        &mut self,
        node: NodeId,
        index: u32,
        (rate, burst): (Rate, u32),
        now: Instant,
    ) -> Result<(), ScheduleError> {
        let before = self.tree.disciplines.token_buckets[index].settings();
        self.tree.disciplines.token_buckets[index].set(rate, burst, now);
        if let Err(error) = self.check_guarantees(node) {
            self.tree.disciplines.token_buckets[index].set(before.0, before.1, now);
            return Err(error);
        }
        // The new rate may bring the node's timer forward.
        if self.tree.timers.is_running(node.0) {
            self.tree.retry(node.0, now);
        }
        Ok(())
    }

    /// Changes the settings of a leaf with a queue per flow.
    fn set_flow_queues(
        &mut self,
        node: NodeId,
        index: u32,
        settings: &FlowQueuesSettings,
    ) -> Result<(), ScheduleError> {
        self.check_queues(node, settings.queues, self.tree.leaves.limits().queues)?;
        let leaf = &mut self.tree.leaves.flow_queues[index];
        let before = *leaf.settings();
        if !self.checks.trusting
            && let Some(text) = leaf.capacity_objection(settings.capacity)
        {
            return Err(ScheduleError::Settings { node, text });
        }
        leaf.set(FlowQueuesSettings { seed: before.seed, ..*settings });
        if let Err(error) = self.check_guarantees(node) {
            self.tree.leaves.flow_queues[index].set(before);
            return Err(error);
        }
        let Leaves { queues, flow_queues, .. } = &mut self.tree.leaves;
        let assignment = &mut flow_queues[index].assignment;
        assignment.shed(queues);
        if settings.queue != before.queue {
            assignment.queues().for_each(|queue| queues.set_common(queue, &settings.queue));
        }
        Ok(())
    }

    /// Changes the maximum number of queues of the port. Queues that hold packets, or are kept for one flow,
    /// stay open even above the maximum.
    ///
    /// # Errors
    /// [`ScheduleError`] when the number is out of range, or below the number of queues that a leaf may have;
    /// nothing has changed then.
    pub fn set_most_queues(&mut self, most: u32) -> Result<(), ScheduleError> {
        in_range("queues", most.into(), 1, MOST_QUEUES.into())?;
        for (index, node) in self.tree.nodes.iter() {
            if let Kind::FlowQueues(leaf) = node.kind {
                let queues = self.tree.leaves.flow_queues[leaf].settings().queues;
                self.check_queues(NodeId(index), queues, most)?;
            }
        }
        self.tree.leaves.set_most_queues(most);
        Ok(())
    }

    /// Returns the editor of the flows of a leaf with a queue per flow.
    ///
    /// # Errors
    /// [`ScheduleError`] when the node is unknown or has no queue per flow.
    pub fn flows(&mut self, node: NodeId) -> Result<FlowEditor<'_, T>, ScheduleError> {
        let leaf = self.tree.flow_leaf(node)?;
        Ok(FlowEditor { leaves: &mut self.tree.leaves, node, leaf, trusting: self.checks.trusting })
    }

    /// Changes the share of a node in its parent. Packets in the node stay.
    pub fn set_share(&mut self, node: NodeId, share: Share, now: Instant) -> Result<(), ScheduleError> {
        let entry = self.tree.nodes.known(node)?;
        let (parent, is_hfsc) = (NodeId(entry.parent), matches!(entry.kind, Kind::Hfsc { .. }));
        let above = self.tree.nodes.parent_kind(entry).unwrap_or(Kind::Vacant);
        let place = Place::new(node, parent, above, is_hfsc);
        place.check_share(&self.tree.disciplines, &share, self.checks.trusting)?;
        let before = self.tree.share(entry);
        self.places(now).set_share(node, &share);
        let checked = self.check(|guarantees| guarantees.check_around(node));
        if checked.is_err() {
            self.places(now).set_share(node, &before);
        }
        checked
    }

    /// Moves a node, with all nodes below it, to another parent. Packets stay in their queues.
    pub fn move_to(
        &mut self,
        node: NodeId,
        parent: Option<NodeId>,
        share: Share,
        now: Instant,
    ) -> Result<(), ScheduleError> {
        let nodes = &self.tree.nodes;
        let entry = nodes.known(node)?;
        let (old_parent, was_root, is_hfsc) = (entry.parent, nodes.root == node.0, nodes.is_hfsc(node.0));
        if let Some(parent) = parent.filter(|parent| nodes.is_below(*parent, node)) {
            let path = nodes.path_up(parent).take_while(|id| *id != node).collect();
            return Err(ScheduleError::Cycle { node, parent, path });
        }
        let before = self.tree.share(entry);
        let place = self.place(node, parent, self.height(node), is_hfsc)?;
        place.check_share(&self.tree.disciplines, &share, self.checks.trusting)?;
        if is_hfsc && (place.is_inner_class || self.tree.nodes.is_hfsc(old_parent)) {
            return self.move_class(&place, &share, now);
        }
        self.places(now).transplant(node, place.parent.0, &share);
        let checked = self.check_guarantees(node);
        if checked.is_err() {
            self.places(now).transplant(node, old_parent, &before);
            if was_root {
                self.tree.nodes.root = node.0;
            }
            return checked;
        }
        self.ensure_root(node);
        Ok(())
    }

    /// Returns the number of levels from a node to its deepest leaf.
    fn height(&self, node: NodeId) -> usize {
        let nodes = &self.tree.nodes;
        let depth = |below: NodeId| nodes.path_up(below).take_while(|above| *above != node).count();
        1 + self.tree.subtree(node).into_iter().map(depth).max().unwrap_or(0)
    }

    /// Moves an inner class of H-FSC to another parent class.
    fn move_class(&mut self, place: &Place, share: &Share, now: Instant) -> Result<(), ScheduleError> {
        let Place { node, parent, above, .. } = *place;
        let (
            Kind::Hfsc { hierarchy, class },
            Kind::Hfsc { hierarchy: there, class: to },
            Share::Curves(curves),
        ) = (self.tree.nodes[node.0].kind, above, share)
        else {
            return Err(inside_only(node));
        };
        if hierarchy != there || class == HIERARCHY_ROOT {
            return Err(inside_only(node));
        }
        let classes = &self.tree.disciplines.hierarchies[hierarchy];
        let before = (self.tree.nodes[node.0].parent, classes.parent(class), classes.curves(class));
        let active = self.places(now).pause_classes(node);
        let held = self.tree.held_by(node.0);
        self.tree.nodes.left(before.0, held);
        self.tree.nodes[node.0].parent = parent.0;
        self.tree.disciplines.hierarchies[hierarchy].move_below(class, to, curves, now);
        let checked = self.check_guarantees(node);
        if checked.is_err() {
            self.tree.disciplines.hierarchies[hierarchy].move_below(class, before.1, &before.2, now);
            self.tree.nodes[node.0].parent = before.0;
        }
        self.tree.nodes.entered(self.tree.nodes[node.0].parent, held);
        self.places(now).resume_classes(&active);
        checked
    }

    /// Detaches a node, with all nodes below it, from its parent. The nodes keep their packets and accept
    /// more, but send none until [`move_to`](Self::move_to).
    ///
    /// # Errors
    /// [`ScheduleError`] when the node is unknown, or an inner class of H-FSC; nothing has changed then.
    pub fn set_apart(&mut self, node: NodeId, now: Instant) -> Result<(), ScheduleError> {
        let parent = self.tree.nodes.known(node)?.parent;
        if self.tree.nodes.is_hfsc(node.0) && self.tree.nodes.is_hfsc(parent) {
            return Err(inside_only(node));
        }
        self.places(now).transplant(node, NONE, &Share::Only);
        Ok(())
    }

    /// Removes a node and its descendants. Returns the number of packets moved or dropped. The cost grows
    /// with the number of removed nodes and packets. If the node has children, one pass over all nodes of the
    /// port is necessary as well.
    ///
    /// # Errors
    /// [`ScheduleError`] when the node is unknown, or the target is no leaf or is removed as well; nothing
    /// has changed then.
    pub fn remove(
        &mut self,
        node: NodeId,
        leftover: Leftover,
        now: Instant,
        sink: &mut impl DropSink<T>,
    ) -> Result<u32, ScheduleError> {
        self.tree.nodes.known(node)?;
        if let Leftover::MoveTo(to) = leftover {
            self.check_target(node, to)?;
        }
        let mut count = 0;
        // Children come after their parents in the list, so the last node never has children.
        for gone in self.tree.subtree(node).into_iter().rev() {
            count += contents::empty(&mut self.places(now), gone, leftover, sink);
            contents::remove(&mut self.places(now), gone);
        }
        Ok(count)
    }

    fn check_target(&self, node: NodeId, to: NodeId) -> Result<(), ScheduleError> {
        let why = match self.tree.nodes.existing(to).map(|entry| entry.kind) {
            None => "no such node",
            Some(Kind::Fifo(_) | Kind::FlowQueues(_) | Kind::FqCodel(_)) => {
                if !self.tree.nodes.is_below(to, node) {
                    return Ok(());
                }
                "it is the same node, or below it"
            }
            Some(_) => "it is not a leaf; name a leaf",
        };
        Err(ScheduleError::MoveTarget { node, to, why })
    }

    /// Changes a leaf to another kind, at the same place. The leaf's packets stay, each flow in its order,
    /// even above the new thresholds. The leaf's counters continue. Settings of single flows are lost.
    ///
    /// # Errors
    /// [`ScheduleError`] when the node is no leaf, the new kind is no leaf, or the settings are invalid;
    /// nothing has changed then.
    pub fn become_kind(&mut self, node: NodeId, kind: &NodeKind, now: Instant) -> Result<(), ScheduleError> {
        let entry = self.tree.nodes.known(node)?;
        let (before, share) = (self.tree.settings(entry.kind), self.tree.share(entry));
        if !before.is_leaf() || !kind.is_leaf() {
            return Err(ScheduleError::Kind { node, kind: before.name(), other: kind.name() });
        }
        self.check_settings(node, kind)?;
        if let (NodeKind::FlowQueues(settings), false) = (kind, self.checks.trusting) {
            Guarantees { tree: self.tree, link: self.link }.check_leaf(node, settings.capacity)?;
        }
        let built = self.tree.build(node, kind, self.checks.trusting)?;
        contents::replace(&mut self.places(now), node, &share, built);
        Ok(())
    }
}

fn inside_only(node: NodeId) -> ScheduleError {
    let text =
        "an H-FSC class with children can move only within its hierarchy; create it anew at the other place";
    ScheduleError::Settings { node, text: text.to_owned() }
}
