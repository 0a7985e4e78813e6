//! The scheduler of a port: what waits to be sent, in the order and at the rates that its tree says.

use std::collections::BTreeSet;
use std::fmt;

use millrace_classify::flow_hash;
use millrace_packet::{DropReason, FRAME_SIZE, FlowKey, Packet};
use millrace_schedule::{
    Arrival, BufferLimits, DropCause, FlowNumber, LeafBacklog, Leftover, LinkOverhead, LinkRate,
    LinkScheduler, NodeId, NodeKind, NodeView, QueueView, Rate, ScheduleError, Share,
};
use millrace_units::{Instant, PortId, QueueId};

use crate::router::Router;

/// Packets that come to the tree together, so that it asks for their memory before it needs it.
const TOGETHER: usize = 32;

/// Numbers of nodes that are shown between two batches.
const NODES_AT_ONCE: u32 = 256;

/// Queues of flows that are shown between two batches.
const QUEUES_AT_ONCE: usize = 256;

/// A change of a port's scheduler. Nodes are known by the numbers of their queues, from 1 on; packets for queue 0 go to the
/// default leaf.
#[derive(Clone, PartialEq, Debug)]
pub enum ScheduleChange {
    /// The port sends at another rate, over a link that adds something else.
    Link(LinkRate, LinkOverhead),
    /// The port has so many queues at most.
    Queues(u32),
    /// A new node. The first leaf is the default until another is named.
    Add {
        /// Its number.
        node: QueueId,
        /// The node above; `None` for the root.
        parent: Option<QueueId>,
        /// What the parent knows of it.
        share: Share,
        /// What it does.
        kind: NodeKind,
    },
    /// A node gets other settings, of the same kind.
    Set {
        /// Its number.
        node: QueueId,
        /// What the parent knows of it.
        share: Share,
        /// What it does.
        kind: NodeKind,
    },
    /// A leaf becomes of another kind, with the packets that wait in it.
    Become {
        /// Its number.
        node: QueueId,
        /// What it does from now on.
        kind: NodeKind,
    },
    /// A leaf is taken from where it stands, with its packets, until it moves.
    Apart(QueueId),
    /// A leaf that stands apart goes to another place.
    Move {
        /// Its number.
        node: QueueId,
        /// The node above; `None` for the root.
        parent: Option<QueueId>,
        /// What the parent knows of it.
        share: Share,
    },
    /// A node goes, with all below it. Its packets go to another leaf, or are dropped.
    Remove {
        /// Its number.
        node: QueueId,
        /// The leaf that gets its packets.
        to: Option<QueueId>,
    },
    /// The leaf for packets that nothing else is said of.
    Default(QueueId),
    /// How a leaf with a queue for each flow treats one of them.
    Flow(QueueId, FlowKey, FlowTreatment),
}

/// What part of a list of changes is told at once: a long one is told in pieces, one after the other, between which packets go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Whether the list begins with it.
    pub begins: bool,
    /// Whether the list ends with it.
    pub ends: bool,
}

impl Piece {
    /// A list that is told at once.
    pub const WHOLE: Self = Self { begins: true, ends: true };
}

/// How a flow is treated that has a queue of its own: all of it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum FlowTreatment {
    /// By a quantum, in bytes of each round (0: that of all others), with a threshold of its own or that of all others.
    BestEffort(u32, Option<u32>),
    /// It gets this rate however many others there are, with a threshold in the same way.
    Reserved(Rate, Option<u32>),
    /// Like all others.
    Common,
}

/// The queue of a flow.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowQueueReport {
    /// The hash of its six-tuple, by which the leaf knows it; none of the queue that flows share which have none of their own.
    pub hash: Option<u32>,
    /// The rate that is reserved for it.
    pub reserved: Option<Rate>,
    /// What waits, and what came before.
    pub queue: QueueView,
}

/// A port's scheduler at one moment.
#[derive(Clone, PartialEq, Debug)]
pub struct ScheduleReport {
    /// How fast the port sends.
    pub link: LinkRate,
    /// The leaf for packets that nothing else is said of; 0 while there is none.
    pub default: QueueId,
    /// Packets that wait.
    pub held: u32,
    /// Their bytes.
    pub held_bytes: u32,
    /// Packets and bytes that may wait in all queues together.
    pub room: BufferLimits,
    /// Queues in use, and all that the port has.
    pub queues: (u32, u32),
}

/// Some of the nodes of a port's scheduler.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct NodesPage {
    /// When they were looked at.
    pub at: Instant,
    /// What they are, by their numbers, each with its own drops only and without what it is promised.
    pub nodes: Vec<NodeView>,
    /// The number from which on there may be more.
    pub next: Option<u32>,
}

/// Packets that a scheduler dropped, until they are counted.
pub(crate) type QueueDrops = Vec<(Packet, DropReason)>;

/// The queues of a port, and who chooses among them.
pub struct PortScheduler {
    tree: LinkScheduler<Packet>,
    default: QueueId,
    /// For each number the leaf where packets for it wait: that node itself, or the one that got its packets when it was
    /// removed. 0 where nothing is known.
    leaves: Vec<QueueId>,
    /// The numbers whose packets wait in another leaf, each behind that leaf.
    heirs: BTreeSet<(QueueId, QueueId)>,
    /// No leaf has a number below this.
    lowest: usize,
    /// Whether a piece of the last list of changes was refused, so that the others are not made.
    refused: bool,
    /// Packets that come to the tree next: in this turn.
    arrivals: Vec<Arrival<Packet>>,
    /// What flows are hashed with.
    seed: u64,
}

impl fmt::Debug for PortScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortScheduler")
            .field("default", &self.default)
            .field("held", &self.tree.held_packets())
            .finish_non_exhaustive()
    }
}

impl PortScheduler {
    /// A scheduler without nodes, of a port that sends as fast as it can. It may hold so many frames of packet memory.
    /// `seed` is that of the hashes of packets.
    ///
    /// # Errors
    /// None: its limits are in range.
    pub fn new(frames: u32, seed: u64) -> Result<Self, ScheduleError> {
        let usual = BufferLimits::default();
        let packets = frames.clamp(64, usual.packets);
        let bytes = packets.saturating_mul(FRAME_SIZE as u32).min(usual.bytes);
        let limits = BufferLimits { packets, bytes, ..usual };
        let mut tree = LinkScheduler::new(LinkRate::default(), LinkOverhead::default(), limits)?;
        // Control has built the tree that changes lead to, so that none of them is refused when others were made.
        tree.trust(true);
        let arrivals = Vec::with_capacity(TOGETHER);
        let (leaves, heirs) = (Vec::new(), BTreeSet::new());
        Ok(Self { tree, default: QueueId(0), leaves, heirs, lowest: 0, refused: false, arrivals, seed })
    }

    /// Makes a change.
    ///
    /// # Errors
    /// [`ScheduleError`] says why not; nothing has changed then.
    pub(crate) fn change(
        &mut self,
        change: &ScheduleChange,
        now: Instant,
        drops: &mut QueueDrops,
    ) -> Result<(), ScheduleError> {
        self.settle(now, drops);
        match change {
            ScheduleChange::Link(link, overhead) => {
                self.tree.set_link(*link, now)?;
                self.tree.set_overhead(*overhead);
            }
            ScheduleChange::Queues(most) => self.tree.set_most_queues(*most)?,
            ScheduleChange::Add { node, parent, share, kind } => {
                self.tree.add(id(*node), parent.map(id), *share, kind, now)?;
                if kind.is_leaf() {
                    self.add_leaf(*node);
                }
            }
            ScheduleChange::Set { node, share, kind } => {
                self.tree.set(id(*node), kind, now)?;
                self.tree.set_share(id(*node), *share, now)?;
            }
            ScheduleChange::Become { node, kind } => self.tree.become_kind(id(*node), kind, now)?,
            ScheduleChange::Apart(node) => self.tree.set_apart(id(*node), now)?,
            ScheduleChange::Move { node, parent, share } => {
                self.tree.move_to(id(*node), parent.map(id), *share, now)?;
            }
            ScheduleChange::Remove { node, to } => {
                let leftover = to.map_or(Leftover::Drop, |to| Leftover::MoveTo(id(to)));
                let gone = self.tree.with_all_below(id(*node));
                self.tree.remove(id(*node), leftover, now, &mut sink(drops))?;
                self.forget_leaves(&gone, *to);
            }
            ScheduleChange::Default(node) => {
                if !self.is_leaf(*node) {
                    return Err(ScheduleError::Unknown(id(*node)));
                }
                self.default = *node;
            }
            ScheduleChange::Flow(node, key, treatment) => {
                let flow = FlowNumber(flow_hash(key, self.seed));
                match treatment {
                    FlowTreatment::BestEffort(quantum, threshold) => {
                        self.tree.set_flow(id(*node), flow, Some(*quantum), Some(*threshold))?;
                    }
                    FlowTreatment::Reserved(rate, threshold) => {
                        self.tree.reserve_flow(id(*node), flow, *rate)?;
                        self.tree.set_flow(id(*node), flow, None, Some(*threshold))?;
                    }
                    FlowTreatment::Common => {
                        self.tree.forget_flow(id(*node), flow)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Up to `most` queues of flows of a leaf, from the `first` on: an order that holds while no flow comes or goes.
    ///
    /// # Errors
    /// [`ScheduleError`] when the leaf has no queue for each flow.
    pub(crate) fn flow_queues(
        &self,
        leaf: QueueId,
        first: usize,
        most: usize,
    ) -> Result<Vec<FlowQueueReport>, ScheduleError> {
        let flows = self.tree.flows(id(leaf), first, most)?;
        let report = |(flow, queue): (Option<FlowNumber>, QueueView)| {
            let said = flow.map(|flow| self.tree.flow(id(leaf), flow)).transpose()?.flatten();
            let reserved = said.and_then(|(_, rate)| rate);
            Ok(FlowQueueReport { hash: flow.map(|flow| flow.0), reserved, queue })
        };
        flows.into_iter().map(report).collect()
    }

    fn add_leaf(&mut self, node: QueueId) {
        let index = node.index();
        self.leaves.resize(self.leaves.len().max(index + 1), QueueId(0));
        if let Some(leaf) = self.leaves.get_mut(index) {
            let before = std::mem::replace(leaf, node);
            self.heirs.remove(&(before, node));
        }
        self.lowest = self.lowest.min(index);
        if self.default == QueueId(0) {
            self.default = node;
        }
    }

    /// Forgets leaves that are gone; what is sent there goes `to` another, behind what was moved there, until that has been empty.
    fn forget_leaves(&mut self, gone: &[NodeId], to: Option<QueueId>) {
        for node in gone.iter().map(|node| QueueId(node.0 as u16)) {
            if self.is_leaf(node) {
                self.forget_leaf(node, to.unwrap_or_default());
            }
        }
        if !self.is_leaf(self.default) {
            self.default = to.unwrap_or_else(|| self.first_leaf());
        }
    }

    /// The same of one leaf. Nothing else is looked at than what was sent there.
    fn forget_leaf(&mut self, node: QueueId, to: QueueId) {
        let sent_there = self.heirs.range((node, QueueId(0))..=(node, QueueId(u16::MAX)));
        let numbers: Vec<QueueId> = sent_there.map(|(_, number)| *number).chain([node]).collect();
        for number in numbers {
            self.heirs.remove(&(node, number));
            if let Some(leaf) = self.leaves.get_mut(number.index()) {
                *leaf = to;
            }
            if to != QueueId(0) {
                self.heirs.insert((to, number));
            }
        }
    }

    /// The leaf of the lowest number; 0 where there is none. What was looked at before is not looked at again.
    fn first_leaf(&mut self) -> QueueId {
        let mut own = (self.lowest..self.leaves.len()).map(|index| QueueId(index as u16));
        let first = own.find(|node| self.is_leaf(*node));
        self.lowest = first.map_or(self.leaves.len(), QueueId::index);
        first.unwrap_or_default()
    }

    fn is_leaf(&self, node: QueueId) -> bool {
        node != QueueId(0) && self.leaves.get(node.index()) == Some(&node)
    }

    /// The leaf where packets for a queue wait.
    #[inline]
    pub(crate) fn leaf_for(&self, queue: QueueId) -> QueueId {
        match self.leaves.get(queue.index()) {
            None | Some(QueueId(0)) => self.default,
            Some(leaf) if *leaf == queue || self.waits(*leaf) => *leaf,
            Some(_) => self.default,
        }
    }

    /// Whether a packet waits in a leaf, or is about to.
    #[cold]
    fn waits(&self, leaf: QueueId) -> bool {
        let is_here = |arrival: &Arrival<Packet>| arrival.leaf == id(leaf);
        self.tree.is_backlogged(id(leaf)) || self.arrivals.iter().any(is_here)
    }

    /// The same for a packet that comes. Once the leaf that got the packets of one that is gone has been empty, nothing can be overtaken,
    /// and what names the one that is gone goes where it would go after a restart.
    #[inline]
    fn enter(&mut self, queue: QueueId) -> QueueId {
        let leaf = self.leaf_for(queue);
        if leaf != queue
            && let Some(heir) = self.leaves.get_mut(queue.index()).filter(|heir| **heir != leaf)
        {
            let heir = std::mem::take(heir);
            self.heirs.remove(&(heir, queue));
        }
        leaf
    }

    /// Whether there is neither a node nor a packet: the port sends as if it never had a scheduler.
    fn is_empty(&self) -> bool {
        self.tree.root().is_none() && !self.takes_packets() && self.held() == 0
    }

    /// Whether there is a leaf at all.
    pub fn takes_packets(&self) -> bool {
        self.default != QueueId(0)
    }

    /// A packet arrives for the queue that it names, or the default one. It is in its queue once the turn comes to what is
    /// sent, or others have come with it.
    #[inline]
    pub(crate) fn enqueue(&mut self, packet: Packet, now: Instant, drops: &mut QueueDrops) {
        let leaf = id(self.enter(packet.queue));
        self.arrivals.push(Arrival { leaf, flow: FlowNumber(packet.hash), item: packet });
        if self.arrivals.len() == TOGETHER {
            self.settle(now, drops);
        }
    }

    /// Whether packets that the device takes at once need not come to the tree: see [`LinkScheduler::is_passable`].
    #[inline]
    pub(crate) fn is_passable(&self) -> bool {
        self.arrivals.is_empty() && self.tree.root() == Some(id(self.default)) && self.tree.is_passable()
    }

    /// Counts packets that pass the tree by.
    #[inline]
    pub(crate) fn pass<'p>(&mut self, packets: impl Iterator<Item = &'p Packet>) {
        self.tree.pass(packets.map(|packet| packet.len() as u32));
    }

    /// Puts what has come into its queues.
    #[inline]
    fn settle(&mut self, now: Instant, drops: &mut QueueDrops) {
        self.tree.enqueue_batch(&mut self.arrivals, now, &mut sink(drops));
    }

    /// The leaf that a packet would go to, and what waits there before it.
    pub(crate) fn backlog(&self, packet: &Packet) -> Option<(QueueId, LeafBacklog)> {
        let leaf = self.leaf_for(packet.queue);
        let mut backlog = self.tree.backlog(id(leaf), FlowNumber(packet.hash))?;
        let is_before = |arrival: &&Arrival<Packet>| {
            arrival.leaf == id(leaf) && (!backlog.of_flow || arrival.flow == FlowNumber(packet.hash))
        };
        let (packets, bytes) = self
            .arrivals
            .iter()
            .filter(is_before)
            .fold((0, 0), |(packets, bytes), arrival| (packets + 1, bytes + arrival.item.len() as u32));
        (backlog.packets, backlog.bytes) = (backlog.packets + packets, backlog.bytes + bytes);
        Some((leaf, backlog))
    }

    /// Gives `out` the packets to send now, `most` of them at most.
    #[inline]
    pub(crate) fn release(
        &mut self,
        most: usize,
        now: Instant,
        drops: &mut QueueDrops,
        out: impl FnMut(Packet),
    ) {
        self.settle(now, drops);
        if self.tree.held_packets() > 0 {
            self.tree.dequeue_batch(most, now, &mut sink(drops), out);
        }
    }

    /// When there may be a packet to send; `None` while nothing waits.
    pub(crate) fn next_ready(&self) -> Option<Instant> {
        if !self.arrivals.is_empty() {
            return Some(Instant::ZERO);
        }
        (self.tree.held_packets() > 0).then(|| self.tree.next_ready())
    }

    /// Packets that wait.
    pub fn held(&self) -> usize {
        self.tree.held_packets() as usize + self.arrivals.len()
    }

    pub(crate) fn report(&self) -> ScheduleReport {
        let (link, default, held) = (self.tree.link(), self.default, self.tree.held_packets());
        let (held_bytes, room) = (self.tree.held_bytes(), self.tree.limits());
        ScheduleReport { link, default, held, held_bytes, room, queues: self.tree.queue_counts() }
    }

    #[cfg(test)]
    pub(crate) fn nodes(&self) -> Vec<NodeView> {
        self.tree.tree()
    }
}

impl Router {
    /// Changes the scheduler of a port; the first node makes one, and with the last one it goes, once all pieces of a list are made.
    /// Control has checked where the changes lead: one that is refused all the same, of a node that is not there, ends them.
    /// Nothing changes at a worker that does not have the port's device.
    pub(crate) fn schedule(
        &mut self,
        port: PortId,
        changes: &[ScheduleChange],
        piece: Piece,
        now: Instant,
    ) -> Result<(), ScheduleError> {
        // Half of the packet memory is left to what waits elsewhere.
        let frames = self.pool.capacity() / 2 / self.ports.iter().count().max(1) as u32;
        let is_ours = self.ports.get(port).is_some_and(|entry| self.has(entry.settings.device));
        let Some(entry) = self.ports.get_mut(port).filter(|_| is_ours) else { return Ok(()) };
        let scheduler = match &mut entry.scheduler {
            Some(scheduler) => scheduler,
            none => none.insert(Box::new(PortScheduler::new(frames, self.seed)?)),
        };
        scheduler.refused &= !piece.begins;
        let mut changes = if scheduler.refused { [].iter() } else { changes.iter() };
        let changed = changes.try_for_each(|change| scheduler.change(change, now, &mut self.queue_drops));
        scheduler.refused |= changed.is_err();
        if piece.ends && scheduler.is_empty() {
            entry.scheduler = None;
        }
        self.drop_queued();
        changed
    }

    /// Whether packets wait at a port for nothing but room at its device.
    pub(crate) fn is_sending(&self) -> bool {
        self.ports.iter().any(|(_, entry)| !entry.queue.is_empty())
    }

    /// A bounded part of the nodes of a port's scheduler, from a number on; none where this worker has no such port.
    pub(crate) fn nodes(&self, port: PortId, first: u32, now: Instant) -> NodesPage {
        let scheduler = self.ports.get(port).and_then(|entry| entry.scheduler.as_ref());
        let part = scheduler.map(|own| own.tree.nodes_from(first, NODES_AT_ONCE));
        let (nodes, next) = part.unwrap_or_default();
        NodesPage { at: now, nodes, next }
    }

    /// A bounded part of the queues of flows of a leaf, from the `first` on; none where this worker has no such port.
    pub(crate) fn flow_queues(
        &self,
        port: PortId,
        leaf: QueueId,
        first: usize,
    ) -> Result<Vec<FlowQueueReport>, ScheduleError> {
        let scheduler = self.ports.get(port).and_then(|entry| entry.scheduler.as_ref());
        scheduler.map_or(Ok(Vec::new()), |own| own.flow_queues(leaf, first, QUEUES_AT_ONCE))
    }
}

fn id(node: QueueId) -> NodeId {
    NodeId(node.0.into())
}

fn sink(drops: &mut QueueDrops) -> impl FnMut(Packet, DropCause) + '_ {
    |packet, cause| drops.push((packet, reason(cause)))
}

/// What a packet is counted as that a scheduler dropped.
fn reason(cause: DropCause) -> DropReason {
    match cause {
        DropCause::Threshold | DropCause::BufferFull | DropCause::Overlimit | DropCause::NoQueue => {
            DropReason::QueueFull
        }
        DropCause::Early | DropCause::Forced | DropCause::Sojourn => DropReason::QueueManaged,
        DropCause::Removed => DropReason::QueueRemoved,
    }
}

#[cfg(test)]
mod tests;
