//! Tree of schedulers: the choice of a leaf from the root down, and the readiness of nodes.
//!
//! A leaf that gets its first packet becomes ready, and makes its ancestors ready. A node that must wait is
//! not ready, until its timer expires.

use millrace_units::Instant;

use super::ScheduleError;
use super::disciplines::Disciplines;
use super::leaves::Leaves;
use super::node::{NodeKind, Share};
use super::nodes::{Kind, Node, Nodes};
use super::other_drops::OtherDrops;
use super::reserves::Reserves;
use super::timers::Timers;
use crate::arena::{Held, Load, NONE};
use crate::link::discipline::Discipline;
use crate::link::hfsc::HIERARCHY_ROOT;
use crate::queue_manager::BufferLimits;
use crate::{DropCounts, Item, LinkOverhead, NodeId};

/// Nodes of a port, with their schedulers, packets and timers.
#[derive(Debug)]
pub(super) struct Tree<T> {
    pub nodes: Nodes,
    pub disciplines: Disciplines,
    pub leaves: Leaves<T>,
    pub timers: Timers,
    pub other_drops: OtherDrops,
    pub reserves: Reserves,
}

/// Departure from a leaf: load that left, including drops, and the length of the sent packet.
#[derive(Clone, Copy)]
pub(super) struct Departure {
    pub load: Load,
    pub length: u32,
    pub wire: u32,
    /// Arrival of the packet.
    pub arrival: Instant,
}

impl<T: Item> Tree<T> {
    /// Creates a tree without nodes.
    pub fn new(limits: BufferLimits, overhead: LinkOverhead) -> Self {
        Self {
            nodes: Nodes::default(),
            disciplines: Disciplines::default(),
            leaves: Leaves::new(limits, overhead),
            timers: Timers::default(),
            other_drops: OtherDrops::default(),
            reserves: Reserves::default(),
        }
    }

    /// Returns the settings of a node.
    pub fn settings(&self, kind: Kind) -> NodeKind {
        self.leaves.settings(kind).or_else(|| self.disciplines.settings(kind)).unwrap_or(NodeKind::Hfsc)
    }

    /// Returns the share of a node in its parent.
    pub fn share(&self, node: &Node) -> Share {
        self.nodes.parent_kind(node).map_or(Share::Only, |parent| self.disciplines.share(parent, node.slot))
    }

    /// Holds memory back for a node with this share of its parent, in place of an earlier reserve.
    pub fn hold_back(&mut self, node: NodeId, share: &Share) {
        let (before, after) = self.reserves.set(node, share);
        self.leaves.queues.arena.change_reserve(before, after);
    }

    /// Whether a packet for a leaf is within the reserve of the leaf, or of a node above it.
    pub fn is_within_reserve(&self, leaf: NodeId, length: u32) -> bool {
        let arena = &self.leaves.queues.arena;
        self.nodes.path_up(leaf).any(|node| {
            let reserve = self.reserves.of(node);
            reserve.is_some_and(|reserve| arena.is_within(reserve, self.held_by(node.0), length))
        })
    }

    /// Creates the scheduler of a node. If `anyway` is set, a leaf gets its own queue even if all queues of
    /// the port are in use.
    pub fn build(&mut self, node: NodeId, kind: &NodeKind, anyway: bool) -> Result<Kind, ScheduleError> {
        let leaf = self.leaves.build(node, kind, anyway)?;
        Ok(leaf.unwrap_or_else(|| self.disciplines.build(node.0, kind)))
    }

    /// Releases the scheduler of a node.
    pub fn close(&mut self, kind: Kind) {
        self.leaves.close(kind);
        self.disciplines.close(kind);
    }

    /// Returns the number of a leaf with a queue per flow.
    ///
    /// # Errors
    /// [`ScheduleError`] if the node is unknown, or is no leaf with a queue per flow.
    pub fn flow_leaf(&self, node: NodeId) -> Result<u32, ScheduleError> {
        if let Kind::FlowQueues(index) = self.nodes.known(node)?.kind {
            return Ok(index);
        }
        let text = "it has no queue per flow; name a flow-queues node".to_owned();
        Err(ScheduleError::Settings { node, text })
    }

    /// Returns the drops of a node itself, if it is a leaf, and of its removed children.
    pub fn own_drops(&self, node: NodeId) -> DropCounts {
        let mut drops = DropCounts::default();
        self.other_drops.count_below(node, &mut drops);
        self.leaves.count_drops(self.nodes[node.0].kind, &mut drops);
        drops
    }

    /// Returns a node and its descendants, each after its parent. For a node with children, this takes one
    /// pass over all nodes of the port.
    pub fn subtree(&self, node: NodeId) -> Vec<NodeId> {
        let has_children =
            self.nodes.existing(node).is_some_and(|node| self.disciplines.has_children(node.kind));
        if has_children { self.nodes.subtree(node) } else { vec![node] }
    }

    /// Returns the load at or below a node.
    #[inline]
    pub fn held_by(&self, node: u32) -> Load {
        let node = &self.nodes[node];
        match node.kind {
            Kind::Fifo(fifo) => self.leaves.queues.queue(fifo.0).list.load,
            _ => node.totals.held,
        }
    }

    /// Appends a packet taken from another leaf.
    pub fn put(&mut self, to: NodeId, held: Held<T>, now: Instant) {
        let Node { kind, parent, ready, .. } = self.nodes[to.0];
        let length = held.length;
        self.leaves.put(kind, held);
        let first = if matches!(kind, Kind::Fifo(_)) { parent } else { to.0 };
        self.nodes.entered(first, Load::of_packet(length));
        if !ready {
            self.rouse(to.0, now);
        }
    }

    /// Subtracts packets that a leaf held and then dropped, at the leaf and its ancestors. For a FIFO, the
    /// queue itself has subtracted them already.
    pub fn count_lost(&mut self, leaf: u32, load: Load) {
        let Node { kind, parent, .. } = self.nodes[leaf];
        self.nodes.left(if matches!(kind, Kind::Fifo(_)) { parent } else { leaf }, load);
    }

    /// Returns the leaf to serve next. Returns `None` when a node on the path must wait; that node is then
    /// suspended.
    #[inline]
    pub fn find_leaf(&mut self, now: Instant) -> Option<(u32, Kind)> {
        let (mut node, mut below_bucket) = (self.nodes.root, false);
        let leaf = loop {
            let kind = self.nodes[node].kind;
            let choice = match kind {
                Kind::Priority(index) => {
                    let priority = &self.disciplines.priorities[index];
                    priority.first_backlogged().map(|level| priority.child(level))
                }
                Kind::RoundRobin(_) | Kind::Hfsc { .. } => self.disciplines.choose(kind, now),
                Kind::TokenBucket(_) => {
                    below_bucket = true;
                    self.disciplines.choose(kind, now)
                }
                Kind::Fifo(_) | Kind::FlowQueues(_) | Kind::FqCodel(_) | Kind::Vacant => break (node, kind),
            };
            match choice {
                Some(child) => node = child,
                None => {
                    self.wait(node, now);
                    return None;
                }
            }
        };
        if below_bucket && !self.buckets_allow(node, now) {
            return None;
        }
        Some(leaf)
    }

    /// Whether all token buckets above a leaf have enough credit for the leaf's next packet.
    fn buckets_allow(&mut self, leaf: u32, now: Instant) -> bool {
        let Some(length) = self.first_length(leaf, now) else { return true };
        let mut node = leaf;
        while node != NONE {
            if let Kind::TokenBucket(index) = self.nodes[node].kind
                && !self.disciplines.token_buckets[index].allows(length, now)
            {
                self.wait(node, now);
                return false;
            }
            node = self.nodes[node].parent;
        }
        true
    }

    /// Suspends a node until its timer fires.
    fn wait(&mut self, node: u32, now: Instant) {
        let unclear = self.may_send(node, now);
        self.suspend(node, now);
        if unclear {
            // The node claims to be ready but chooses no child. A timer of one nanosecond triggers another
            // attempt.
            self.timers.start(node, Instant::from_nanos(now.as_nanos().saturating_add(1)));
        }
    }

    /// Reports the departure and the next packet to every ancestor of a leaf.
    #[inline]
    pub fn settle(&mut self, leaf: u32, gone: Departure, now: Instant) {
        let mut node = leaf;
        let mut next = self.next_length(leaf, now);
        loop {
            let Node { parent, slot, kind, .. } = self.nodes[node];
            let is_class = matches!(kind, Kind::Hfsc { .. });
            let Some(above) = self.nodes.find_mut(parent) else { return };
            above.totals.left(gone.load);
            above.totals.sent(gone.length, gone.wire);
            let (kind, has_parent) = (above.kind, above.parent != NONE);
            // An H-FSC hierarchy updates its inner classes itself, once, for the leaf class.
            let is_inside = is_class && matches!(kind, Kind::Hfsc { .. });
            if let Kind::Hfsc { hierarchy, .. } = kind
                && !is_inside
            {
                self.disciplines.hierarchies[hierarchy].note_wait(slot, gone.arrival, now);
            }
            let at = self.disciplines.served(kind, (slot, is_inside), gone.wire, next, now);
            if !matches!(kind, Kind::Hfsc { class, .. } if class != HIERARCHY_ROOT) {
                if at > now {
                    self.nodes[parent].ready = false;
                    self.timers.start(parent, at);
                }
                if !has_parent {
                    self.fetch_ahead(kind);
                    return;
                }
                next = self.next_length(parent, now);
            }
            node = parent;
        }
    }

    /// Prefetches the data of the packets that an H-FSC at the root sends next. Small trees are in the cache
    /// anyway.
    #[inline]
    fn fetch_ahead(&self, root: Kind) {
        let Kind::Hfsc { hierarchy, .. } = root else { return };
        let (classes, queues) = (&self.disciplines.hierarchies[hierarchy], &self.leaves.queues);
        classes.fetch_ahead(|child| {
            self.nodes.prefetch(child.node);
            queues.prefetch(child.queue);
        });
        // An earlier call prefetched the queue of the next child.
        if let Some(queue) = classes.next_child().and_then(|child| queues.find(child.queue)) {
            queues.arena.prefetch(&queue.list);
        }
    }

    /// Returns the bytes on the wire of a node's next packet; `None` if the node isn't ready. Returns 1 if
    /// the parent is a strict priority scheduler, which ignores lengths.
    #[inline(always)]
    fn next_length(&mut self, node: u32, now: Instant) -> Option<u32> {
        let Node { parent, ready, .. } = self.nodes[node];
        if !ready {
            return None;
        }
        if self.needs_length(parent) { self.first_length(node, now) } else { Some(1) }
    }

    /// Returns the node that schedules `node`: its parent, or the root of the hierarchy above an inner class.
    #[inline]
    fn scheduled_by(&self, node: u32) -> u32 {
        let parent = self.nodes[node].parent;
        match self.nodes.kind(parent) {
            Some(Kind::Hfsc { hierarchy, .. }) => self.disciplines.hierarchies[hierarchy].root_node(),
            _ => parent,
        }
    }

    /// Whether the scheduler of a node uses packet lengths.
    #[inline]
    fn needs_length(&self, scheduler: u32) -> bool {
        self.nodes.kind(scheduler).is_some_and(|kind| !matches!(kind, Kind::Priority(_)))
    }

    /// Returns the bytes on the wire of the packet that a node would send now; `None` if the node has no
    /// packet.
    #[inline]
    fn first_length(&mut self, node: u32, now: Instant) -> Option<u32> {
        let kind = self.nodes[node].kind;
        if let Kind::Fifo(_) = kind {
            self.leaves.first_length(kind)
        } else {
            self.first_length_below(node, now)
        }
    }

    fn first_length_below(&mut self, mut node: u32, now: Instant) -> Option<u32> {
        for _ in 0..super::MOST_DEPTH {
            let kind = self.nodes[node].kind;
            if let Kind::Fifo(_) | Kind::FlowQueues(_) | Kind::FqCodel(_) = kind {
                return self.leaves.first_length(kind);
            }
            node = self.disciplines.choose(kind, now)?;
        }
        None
    }

    /// Marks a leaf as ready and activates its ancestors. If the parent is a strict priority scheduler that
    /// is already ready, only its bitmap changes.
    #[inline(always)]
    pub fn rouse_leaf(&mut self, leaf: u32, now: Instant) {
        let Node { parent, slot, .. } = self.nodes[leaf];
        if let Some(&Node { kind: Kind::Priority(index), ready, .. }) = self.nodes.find(parent) {
            self.nodes[leaf].ready = true;
            self.disciplines.priorities[index].activate(slot, 1, now);
            if !ready {
                self.rouse(parent, now);
            }
            return;
        }
        self.rouse(leaf, now);
    }

    /// Marks a node as ready and activates its ancestors. Stops at the first ancestor that was ready already
    /// or must wait.
    pub fn rouse(&mut self, node: u32, now: Instant) {
        let mut node = node;
        loop {
            self.timers.stop(node);
            self.nodes[node].ready = true;
            let above = self.scheduled_by(node);
            if above == NONE {
                return;
            }
            let length = if self.needs_length(above) { self.first_length(node, now).unwrap_or(1) } else { 1 };
            self.disciplines.activate(self.nodes[above].kind, self.nodes[node].slot, length, now);
            if self.nodes[above].ready || !self.may_send(above, now) {
                return;
            }
            node = above;
        }
    }

    /// Returns whether an inner node may send now. If not, starts the node's timer.
    #[inline]
    fn may_send(&mut self, node: u32, now: Instant) -> bool {
        let at = self.disciplines.next_ready(self.nodes[node].kind);
        if at <= now {
            return true;
        }
        self.nodes[node].ready = false;
        self.timers.start(node, at);
        false
    }

    /// Marks a ready node as not ready, and deactivates ancestors that have no other ready child.
    pub fn suspend(&mut self, node: u32, now: Instant) {
        let mut node = node;
        loop {
            self.nodes[node].ready = false;
            let above = self.scheduled_by(node);
            if above == NONE {
                return;
            }
            self.disciplines.deactivate(self.nodes[above].kind, self.nodes[node].slot, now);
            let was_ready = self.nodes[above].ready;
            if self.may_send(above, now) || !was_ready {
                return;
            }
            node = above;
        }
    }

    /// Suspends a node for a change. Returns whether it was ready.
    pub fn pause(&mut self, node: u32, now: Instant) -> bool {
        let is_ready = self.nodes[node].ready;
        if is_ready {
            self.suspend(node, now);
        }
        is_ready
    }

    /// Resumes a node after a change, if it was `ready` before.
    pub fn resume(&mut self, node: u32, ready: bool, now: Instant) {
        if ready {
            self.rouse(node, now);
        }
    }

    /// Activates a node whose timer has expired or was brought forward, if it may send.
    pub fn retry(&mut self, node: u32, now: Instant) {
        if self.may_send(node, now) {
            self.rouse(node, now);
        }
    }

    /// Activates the nodes whose timers have expired.
    #[cold]
    pub fn fire_timers(&mut self, now: Instant) {
        while let Some(node) = self.timers.expire(now) {
            self.retry(node, now);
        }
    }
}
