//! Changes of the tree while it holds packets. A refused change leaves the tree unchanged: each change is
//! checked first, or undone at once.

use millrace_units::Instant;

use super::node::{Kind, Node};
use super::parameters::check_kind;
use super::{LinkRate, LinkScheduler, MOST_DEPTH, MOST_NODES, NodeId, NodeKind, ScheduleError, Share};
use crate::arena::NONE;
use crate::link::deficit_round_robin::DeficitRoundRobin;
use crate::link::fifo::Fifo;
use crate::link::flow_queues::FlowQueues;
use crate::link::fq_codel::FqCodel;
use crate::link::hfsc::{Child, HIERARCHY_ROOT, Hfsc};
use crate::link::priority::Priority;
use crate::link::token_bucket::TokenBucket;
use crate::queue::QueueSettings;
use crate::rate::{Credit, MOST_BYTES};
use crate::{Item, LinkOverhead, Rate};

impl<T: Item> LinkScheduler<T> {
    /// Changes the rate of the port, from now on.
    ///
    /// # Errors
    /// [`ScheduleError`] when the rate is 0, the slack is above 10^9 bytes, or guarantees need more than the
    /// rate.
    pub fn set_link(&mut self, link: LinkRate, now: Instant) -> Result<(), ScheduleError> {
        super::in_range("slack", link.slack.into(), 0, MOST_BYTES.into())?;
        super::in_range("rate", link.rate.map_or(1, |rate| rate.0), 1, u64::MAX)?;
        let before = std::mem::replace(&mut self.link, link);
        if let Err(error) = self.check_promises(NodeId(self.root)) {
            self.link = before;
            return Err(error);
        }
        match (link.rate, &mut self.pace) {
            (Some(rate), Some(pace)) => pace.set_link(rate, link.slack, now),
            (Some(rate), none) => *none = Some(Credit::for_link(rate, link.slack)),
            (None, pace) => *pace = None,
        }
        Ok(())
    }

    /// Changes the link overhead of packets sent from now on.
    pub fn set_overhead(&mut self, overhead: LinkOverhead) {
        self.queues.overhead = overhead;
    }

    /// Adds a node below `parent`, with its share of the parent. A node without a parent becomes the root if
    /// there is no root. Other nodes without a parent stand apart: they hold packets and send nothing until
    /// [`set_root`](Self::set_root).
    ///
    /// # Errors
    /// [`ScheduleError`] with the reason; nothing has changed then.
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
        if self.node(node).is_some() {
            return Err(ScheduleError::Duplicate(node));
        }
        check_kind(node, kind)?;
        let parent = self.parent_for(node, parent, 1)?;
        let inner_class = *kind == NodeKind::Hfsc && self.is_hfsc(parent);
        self.check_share(node, parent, &share, inner_class)?;
        while self.nodes.len() <= node.0 as usize {
            self.nodes.push(Node::VACANT);
        }
        if !kind.is_leaf() && self.timer_places.len() <= node.0 as usize {
            self.timer_places.resize(node.0 as usize + 1, NONE);
        }
        if let NodeKind::FlowQueues(settings) = kind {
            self.leaf_fits(node, settings.queues, self.limits.queues)?;
        }
        if kind.needs_queue() {
            self.make_room_for_queue();
        }
        let built = if inner_class { Kind::Vacant } else { self.build(node, kind)? };
        self.nodes[node.0 as usize] = Node { kind: built, ..Node::VACANT };
        self.attach(node, parent, &share, inner_class, now);
        self.timers.reserve(self.timer_places.len());
        if let Err(error) = self.check_around(node, false) {
            self.detach(node, now);
            self.discard(node);
            return Err(error);
        }
        if parent == NONE && self.root == NONE {
            self.root = node.0;
        }
        Ok(())
    }

    /// Returns the index of `parent`, or [`NONE`], if a subtree of `height` levels fits there.
    pub(super) fn parent_for(
        &self,
        node: NodeId,
        parent: Option<NodeId>,
        height: usize,
    ) -> Result<u32, ScheduleError> {
        let Some(parent) = parent else { return Ok(NONE) };
        let Some(entry) = self.node(parent) else {
            return Err(ScheduleError::UnknownParent { node, parent });
        };
        let kind = match entry.kind {
            Kind::Fifo(_) => "fifo",
            Kind::FlowQueues(_) => "flow-queues",
            Kind::FqCodel(_) => "fq-codel",
            _ => "",
        };
        if !kind.is_empty() {
            return Err(ScheduleError::ParentIsLeaf { node, parent, kind });
        }
        let depth = self.path_up(parent).count() + height;
        if depth > MOST_DEPTH {
            return Err(ScheduleError::Depth { node, depth });
        }
        Ok(parent.0)
    }

    /// Iterates over a node and the nodes above it, up to the root.
    pub(super) fn path_up(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        std::iter::successors(Some(node), |node| {
            let parent = self.nodes.find(node.0 as usize)?.parent;
            (parent != NONE).then_some(NodeId(parent))
        })
    }

    pub(super) fn is_hfsc(&self, node: u32) -> bool {
        matches!(self.nodes.find(node as usize), Some(Node { kind: Kind::Hfsc { .. }, .. }))
    }

    /// Builds the scheduler of a node.
    pub(super) fn build(&mut self, node: NodeId, kind: &NodeKind) -> Result<Kind, ScheduleError> {
        Ok(match kind {
            NodeKind::Fifo(settings) => Kind::Fifo(Fifo(self.queue_for(node, settings)?)),
            NodeKind::FlowQueues(settings) => {
                let shared = self.queue_for(node, &settings.queue)?;
                Kind::FlowQueues(self.flow_queues.insert(FlowQueues::new(*settings, shared)))
            }
            NodeKind::FqCodel(settings) => Kind::FqCodel(self.fq_codels.insert(FqCodel::new(*settings))),
            NodeKind::Priority => Kind::Priority(self.priorities.insert(Priority::default())),
            NodeKind::DeficitRoundRobin => {
                Kind::RoundRobin(self.round_robins.insert(DeficitRoundRobin::default()))
            }
            NodeKind::Hfsc => {
                Kind::Hfsc { hierarchy: self.hierarchies.insert(Hfsc::new(node.0)), class: HIERARCHY_ROOT }
            }
            NodeKind::TokenBucket { rate, burst } => {
                Kind::TokenBucket(self.token_buckets.insert(TokenBucket::new(*rate, *burst)))
            }
        })
    }

    /// Opens a queue for a node.
    fn queue_for(&mut self, node: NodeId, settings: &QueueSettings) -> Result<u32, ScheduleError> {
        if self.trusting {
            return Ok(self.queues.open_anyway(settings));
        }
        let most = self.limits.queues;
        self.queues.open(settings).ok_or(ScheduleError::NoQueue { node, most })
    }

    /// Adds a node to the children of a parent.
    pub(super) fn attach(
        &mut self,
        node: NodeId,
        parent: u32,
        share: &Share,
        inner_class: bool,
        now: Instant,
    ) {
        self.nodes[node.0 as usize].parent = parent;
        let kind = if parent == NONE { Kind::Vacant } else { self.nodes[parent as usize].kind };
        let slot = match (kind, share) {
            (Kind::Priority(index), Share::Level(level)) => {
                // The level is taken only if a later change moves the other child away.
                if let Some(free) = self.priorities.get(index).free_level() {
                    self.vacate(index, *level, free, now);
                }
                self.priorities.get_mut(index).insert(*level, node.0);
                *level
            }
            (Kind::RoundRobin(index), Share::Quantum(quantum)) => {
                self.round_robins.get_mut(index).insert(node.0, *quantum)
            }
            (Kind::TokenBucket(index), _) => {
                self.token_buckets.get_mut(index).set_child(node.0);
                0
            }
            (Kind::Hfsc { hierarchy, class }, Share::Curves(curves)) => {
                let queue = match self.nodes[node.0 as usize].kind {
                    Kind::Fifo(fifo) => fifo.0,
                    _ => NONE,
                };
                let child = Child { node: node.0, queue };
                let new = self.hierarchies.get_mut(hierarchy).insert(class, child, curves, inner_class);
                if inner_class {
                    self.nodes[node.0 as usize].kind = Kind::Hfsc { hierarchy, class: new };
                }
                new
            }
            _ => 0,
        };
        self.nodes[node.0 as usize].slot = slot;
    }

    /// Detaches a node from its parent. Its packets stay in it, and the nodes above no longer count them.
    pub(super) fn detach(&mut self, node: NodeId, now: Instant) {
        let Node { parent, slot, ready, .. } = self.nodes[node.0 as usize];
        if ready {
            self.suspend(node.0, now);
            self.nodes[node.0 as usize].ready = true;
        }
        if self.root == node.0 {
            self.root = NONE;
        }
        let Some(above) = self.nodes.find(parent as usize) else { return };
        match above.kind {
            Kind::Priority(index) => self.priorities.get_mut(index).remove(slot),
            Kind::RoundRobin(index) => self.round_robins.get_mut(index).remove(slot),
            Kind::TokenBucket(index) => self.token_buckets.get_mut(index).set_child(NONE),
            Kind::Hfsc { hierarchy, .. } => self.hierarchies.get_mut(hierarchy).remove(slot),
            _ => {}
        }
        self.nodes[node.0 as usize].parent = NONE;
    }

    /// Removes a node that is detached, empty and without children.
    pub(super) fn discard(&mut self, node: NodeId) {
        self.stop_timer(node.0);
        self.gone.remove(&node);
        let kind = std::mem::replace(&mut self.nodes[node.0 as usize], Node::VACANT).kind;
        self.close(kind);
    }

    /// Releases the scheduler of a node.
    pub(super) fn close(&mut self, kind: Kind) {
        match kind {
            Kind::Fifo(fifo) => self.queues.close(fifo.0),
            Kind::FlowQueues(index) => self.flow_queues.remove(index).close(&mut self.queues),
            Kind::FqCodel(index) => drop(self.fq_codels.remove(index)),
            Kind::Priority(index) => drop(self.priorities.remove(index)),
            Kind::RoundRobin(index) => drop(self.round_robins.remove(index)),
            Kind::TokenBucket(index) => drop(self.token_buckets.remove(index)),
            Kind::Hfsc { hierarchy, class: HIERARCHY_ROOT } => drop(self.hierarchies.remove(hierarchy)),
            Kind::Hfsc { .. } | Kind::Vacant => {}
        }
    }

    /// Checks the guarantees that a node's place and share affect.
    pub(super) fn check_around(&self, node: NodeId, has_children: bool) -> Result<(), ScheduleError> {
        let Node { parent, slot, .. } = self.nodes[node.0 as usize];
        match self.nodes.find(parent as usize).map(|parent| parent.kind) {
            None | Some(Kind::Priority(_)) if !has_children && !self.has_capacity(node) => Ok(()),
            Some(Kind::Hfsc { hierarchy, .. }) if !has_children && !self.has_capacity(node) => {
                self.check_class(node, hierarchy, slot)
            }
            _ => self.check_promises(node),
        }
    }

    /// Whether flows of a leaf may reserve parts of its rate.
    fn has_capacity(&self, node: NodeId) -> bool {
        let Kind::FlowQueues(index) = self.nodes[node.0 as usize].kind else { return false };
        self.flow_queues.get(index).settings.capacity.is_some()
    }

    /// Changes the settings of a node, but not its kind. Its packets stay.
    ///
    /// # Errors
    /// [`ScheduleError`] with the reason; nothing has changed then.
    pub fn set(&mut self, node: NodeId, kind: &NodeKind, now: Instant) -> Result<(), ScheduleError> {
        self.known(node)?;
        check_kind(node, kind)?;
        let before = self.kind(node);
        match (self.nodes[node.0 as usize].kind, kind) {
            (Kind::Fifo(fifo), NodeKind::Fifo(settings)) => self.queues.set(fifo.0, settings),
            (Kind::FlowQueues(index), NodeKind::FlowQueues(settings)) => {
                return self.set_flow_queues(node, index, settings);
            }
            (Kind::FqCodel(index), NodeKind::FqCodel(settings)) => {
                self.fq_codels.get_mut(index).set(*settings);
                self.set_flow_count(node, index, settings.flows, now);
            }
            (Kind::TokenBucket(index), NodeKind::TokenBucket { rate, burst }) => {
                return self.set_bucket(node, index, (*rate, *burst), now);
            }
            (Kind::Priority(_), NodeKind::Priority)
            | (Kind::RoundRobin(_), NodeKind::DeficitRoundRobin)
            | (Kind::Hfsc { .. }, NodeKind::Hfsc) => {}
            _ => return Err(ScheduleError::Kind { node, kind: before.name(), other: kind.name() }),
        }
        Ok(())
    }

    /// Changes the number of flows of an FQ-CoDel leaf. The leaf is suspended meanwhile, because its next
    /// packet, whose length the nodes above know, may change.
    fn set_flow_count(&mut self, node: NodeId, index: u32, flows: u32, now: Instant) {
        if self.fq_codels.get(index).settings().flows == flows {
            return;
        }
        let is_ready = self.nodes[node.0 as usize].ready;
        self.pause(node, now);
        self.fq_codels.get_mut(index).set_flows(&mut self.queues, flows, now);
        self.resume(node, is_ready, now);
    }

    fn set_bucket(
        &mut self,
        node: NodeId,
        index: u32,
        (rate, burst): (Rate, u32),
        now: Instant,
    ) -> Result<(), ScheduleError> {
        let before = self.token_buckets.get(index).settings();
        self.token_buckets.get_mut(index).set(rate, burst, now);
        if let Err(error) = self.check_promises(node) {
            self.token_buckets.get_mut(index).set(before.0, before.1, now);
            return Err(error);
        }
        // The new rate may bring the node's timer forward.
        let waits = self.has_timer(node.0);
        if waits && self.may_send(node.0, now) {
            self.rouse(node.0, now);
        }
        Ok(())
    }

    /// Makes a node without a parent the root. From now on the scheduler serves the nodes below it. The nodes
    /// below the old root wait until they are moved or removed.
    ///
    /// # Errors
    /// [`ScheduleError`] when the node is unknown or has a parent.
    pub fn set_root(&mut self, node: NodeId) -> Result<(), ScheduleError> {
        let parent = self.known(node)?.parent;
        if parent != NONE {
            let text = format!("it is a child of node {parent}; a root has no parent");
            return Err(ScheduleError::Settings { node, text });
        }
        self.root = node.0;
        Ok(())
    }
}
