//! Scheduler of a port: queued packets, and the tree that determines their order and rates.

mod changes;
mod leaves;

use std::fmt;
use std::time::Duration;

use millrace_classify::flow_hash;
use millrace_packet::{DropReason, FRAME_SIZE, FlowKey, Packet};
use millrace_schedule::{
    Arrival, BufferLimits, DropCause, FlowNumber, LeafBacklog, Leftover, LinkOverhead, LinkRate,
    LinkScheduler, NodeId, NodeKind, NodeView, QueueView, Rate, ScheduleError, Share,
};
use millrace_units::{Instant, QueueId};

use leaves::Leaves;

/// Number of packets that enter the tree together, so that the tree can prefetch their memory.
const TOGETHER: usize = 32;

/// Maximum number of nodes reported between two batches.
const NODES_AT_ONCE: u32 = 256;

/// Maximum number of flow queues reported between two batches.
const QUEUES_AT_ONCE: usize = 256;

/// Time for which the packets that a leaf pulls keep the link busy.
const PULL_AHEAD: Duration = Duration::from_millis(1);

/// Least and greatest number of pulled packets that wait in a leaf, or for their turn in it.
const PULL_LEAST: u32 = 2;
const PULL_MOST: u32 = 64;

/// Change of a port's scheduler. A node is identified by its queue number, from 1 on. Packets for queue 0
/// enter the default leaf.
#[derive(Clone, PartialEq, Debug)]
pub enum ScheduleChange {
    /// Sets the rate and overhead of the link.
    Link(LinkRate, LinkOverhead),
    /// Sets the maximum number of queues of the port.
    Queues(u32),
    /// Adds a node. The first leaf is the default leaf until a change sets another.
    Add {
        /// Number of the node.
        node: QueueId,
        /// Parent node; `None` for the root.
        parent: Option<QueueId>,
        /// Share of the node at its parent.
        share: Share,
        /// Discipline of the node.
        kind: NodeKind,
    },
    /// Changes the settings of a node, within the same discipline.
    Set {
        /// Number of the node.
        node: QueueId,
        /// Share of the node at its parent.
        share: Share,
        /// Discipline of the node.
        kind: NodeKind,
    },
    /// Changes the discipline of a leaf. The leaf keeps its packets.
    Become {
        /// Number of the leaf.
        node: QueueId,
        /// New discipline of the leaf.
        kind: NodeKind,
    },
    /// Detaches a leaf from its parent until a [`Move`](Self::Move). The leaf keeps its packets.
    Apart(QueueId),
    /// Attaches a detached leaf to another parent.
    Move {
        /// Number of the leaf.
        node: QueueId,
        /// Parent node; `None` for the root.
        parent: Option<QueueId>,
        /// Share of the leaf at its parent.
        share: Share,
    },
    /// Removes a node and all nodes below it. Their packets move to another leaf, or are dropped.
    Remove {
        /// Number of the node.
        node: QueueId,
        /// Leaf that receives the packets; `None` drops them.
        to: Option<QueueId>,
    },
    /// Removes the leaf of a released principal. Its packets are dropped as [`DropReason::PrincipalReleased`].
    Release(QueueId),
    /// Sets the default leaf, for packets whose queue number belongs to no leaf.
    Default(QueueId),
    /// Sets the leaf of another number for the packets of a queue without a leaf of its own. `None`: the packets
    /// enter the default leaf, as soon as the other leaf has been empty once.
    SameAs {
        /// Number of the queue.
        queue: QueueId,
        /// Leaf that the packets enter.
        leaf: Option<QueueId>,
    },
    /// Sets the treatment of a flow in a leaf with a queue per flow.
    Flow(QueueId, FlowKey, FlowTreatment),
}

/// Position of a piece in a list of changes. Control sends a long list in pieces, and the worker treats
/// packets between them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Whether the piece is the first of the list.
    pub begins: bool,
    /// Whether the piece is the last of the list.
    pub ends: bool,
}

impl Piece {
    /// List sent as a single piece.
    pub const WHOLE: Self = Self { begins: true, ends: true };
}

/// Settings of a flow in a leaf with a queue per flow. A change replaces all settings of the flow.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum FlowTreatment {
    /// Quantum in bytes per round, and discard threshold in bytes. A quantum of 0 and a threshold of `None`
    /// stand for the leaf's settings.
    BestEffort(u32, Option<u32>),
    /// Reserved rate, and discard threshold in bytes. The rate does not depend on the number of other flows.
    /// A threshold of `None` stands for the leaf's setting.
    Reserved(Rate, Option<u32>),
    /// Settings of the leaf, as for flows without settings of their own.
    Common,
}

/// Report on the queue of a flow.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowQueueReport {
    /// Flow hash, which identifies the flow in the leaf; `None` for the shared queue.
    pub hash: Option<u32>,
    /// Rate reserved for the flow.
    pub reserved: Option<Rate>,
    /// Backlog and counters.
    pub queue: QueueView,
}

/// State of a port's scheduler.
#[derive(Clone, PartialEq, Debug)]
pub struct ScheduleReport {
    /// Rate of the link.
    pub link: LinkRate,
    /// Default leaf; 0 if there is none.
    pub default: QueueId,
    /// Number of queued packets.
    pub held: u32,
    /// Number of queued bytes.
    pub held_bytes: u32,
    /// Maximum number of packets and bytes in all queues together.
    pub room: BufferLimits,
    /// Number of queues in use, and maximum number of queues.
    pub queues: (u32, u32),
}

/// Page of the nodes of a port's scheduler.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct NodesPage {
    /// Time of the report.
    pub at: Instant,
    /// Nodes in the order of their numbers. A node's drops don't include those of its descendants, and
    /// promised rates are missing.
    pub nodes: Vec<NodeView>,
    /// First node number of the next page; `None` on the last page.
    pub next: Option<u32>,
}

/// Packets dropped by a scheduler and not yet counted.
pub(crate) type QueueDrops = Vec<(Packet, DropReason)>;

/// Queues of a port, and the tree that schedules them.
pub struct PortScheduler {
    tree: LinkScheduler<Packet>,
    leaves: Leaves,
    /// Whether a piece of the current list of changes was refused, so that the rest of the list is skipped.
    refused: bool,
    /// Packets that have arrived and enter the tree next.
    arrivals: Vec<Arrival<Packet>>,
    /// Seed of the flow hashes.
    seed: u64,
}

impl fmt::Debug for PortScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortScheduler")
            .field("default", &self.leaves.default)
            .field("held", &self.tree.held_packets())
            .finish_non_exhaustive()
    }
}

impl PortScheduler {
    /// Returns a scheduler without nodes, for a link without a rate limit. `frames`: maximum number of memory
    /// frames in its queues. `seed` keys the flow hashes.
    pub fn new(frames: u32, seed: u64) -> Result<Self, ScheduleError> {
        let usual = BufferLimits::default();
        let packets = frames.clamp(64, usual.packets);
        let bytes = packets.saturating_mul(FRAME_SIZE as u32).min(usual.bytes);
        let limits = BufferLimits { packets, bytes, ..usual };
        let mut tree = LinkScheduler::new(LinkRate::default(), LinkOverhead::default(), limits)?;
        // Control has applied the same changes to a copy of the tree before. So no change is refused after
        // earlier ones took effect.
        tree.trust(true);
        let arrivals = Vec::with_capacity(TOGETHER);
        Ok(Self { tree, leaves: Leaves::default(), refused: false, arrivals, seed })
    }

    /// Makes a change.
    ///
    /// # Errors
    /// Returns a [`ScheduleError`] with the reason of a refusal; in this case nothing has changed.
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
            ScheduleChange::Queues(most) => self.tree.edit().set_most_queues(*most)?,
            ScheduleChange::Add { node, parent, share, kind } => {
                self.tree.edit().add(id(*node), parent.map(id), *share, kind, now)?;
                if kind.is_leaf() {
                    self.leaves.add(*node);
                }
            }
            ScheduleChange::Set { node, share, kind } => {
                let mut tree = self.tree.edit();
                tree.set(id(*node), kind, now)?;
                tree.set_share(id(*node), *share, now)?;
            }
            ScheduleChange::Become { node, kind } => self.tree.edit().become_kind(id(*node), kind, now)?,
            ScheduleChange::Apart(node) => self.tree.edit().set_apart(id(*node), now)?,
            ScheduleChange::Move { node, parent, share } => {
                self.tree.edit().move_to(id(*node), parent.map(id), *share, now)?;
            }
            ScheduleChange::Remove { node, to } => self.remove((*node, *to), now, &mut sink(drops))?,
            ScheduleChange::Release(leaf) => {
                let released = &mut |packet, _| drops.push((packet, DropReason::PrincipalReleased));
                self.remove((*leaf, None), now, released)?;
            }
            ScheduleChange::Default(node) => {
                if !self.leaves.is_leaf(*node) {
                    return Err(ScheduleError::Unknown(id(*node)));
                }
                self.leaves.default = *node;
            }
            ScheduleChange::SameAs { queue, leaf } => {
                let shared = self.leaves.share(*queue, *leaf);
                shared.map_err(|leaf| ScheduleError::Unknown(id(leaf)))?;
            }
            ScheduleChange::Flow(node, key, treatment) => self.set_flow(*node, key, treatment)?,
        }
        Ok(())
    }

    /// Removes a node and all nodes below it. Their packets move to leaf `to`, or `dropped` receives them.
    fn remove(
        &mut self,
        (node, to): (QueueId, Option<QueueId>),
        now: Instant,
        dropped: &mut impl FnMut(Packet, DropCause),
    ) -> Result<(), ScheduleError> {
        let leftover = to.map_or(Leftover::Drop, |to| Leftover::MoveTo(id(to)));
        let gone = self.tree.report().with_all_below(id(node));
        self.tree.edit().remove(id(node), leftover, now, dropped)?;
        self.leaves.forget(gone.iter().map(|node| QueueId(node.0 as u16)), to);
        Ok(())
    }

    /// Sets the treatment of a flow in a leaf with a queue per flow.
    fn set_flow(
        &mut self,
        node: QueueId,
        key: &FlowKey,
        treatment: &FlowTreatment,
    ) -> Result<(), ScheduleError> {
        let flow = FlowNumber(flow_hash(key, self.seed));
        let mut tree = self.tree.edit();
        let mut flows = tree.flows(id(node))?;
        match treatment {
            FlowTreatment::BestEffort(quantum, threshold) => {
                flows.set(flow, Some(*quantum), Some(*threshold))?;
            }
            FlowTreatment::Reserved(rate, threshold) => {
                flows.reserve(flow, *rate)?;
                flows.set(flow, None, Some(*threshold))?;
            }
            FlowTreatment::Common => _ = flows.forget(flow),
        }
        Ok(())
    }

    /// Returns a bounded number of nodes from number `first` on, and the first number of the next page;
    /// `None` after the last page.
    pub(crate) fn nodes_from(&self, first: u32) -> (Vec<NodeView>, Option<u32>) {
        self.tree.report().nodes_from(first, NODES_AT_ONCE)
    }

    /// Returns a bounded number of a leaf's flow queues, from index `first` on. Their order stays the same
    /// until a flow gets or loses a queue.
    ///
    /// # Errors
    /// [`ScheduleError`] when the leaf has no queue per flow.
    pub(crate) fn flow_queues(
        &self,
        leaf: QueueId,
        first: usize,
    ) -> Result<Vec<FlowQueueReport>, ScheduleError> {
        let tree = self.tree.report();
        let flows = tree.flows(id(leaf), first, QUEUES_AT_ONCE)?;
        let report = |(flow, queue): (Option<FlowNumber>, QueueView)| {
            let said = flow.map(|flow| tree.flow(id(leaf), flow)).transpose()?.flatten();
            let reserved = said.and_then(|(_, rate)| rate);
            Ok(FlowQueueReport { hash: flow.map(|flow| flow.0), reserved, queue })
        };
        flows.into_iter().map(report).collect()
    }

    /// Returns the leaf that packets for a queue enter.
    #[inline]
    pub(crate) fn leaf_for(&self, queue: QueueId) -> QueueId {
        self.leaves.find(queue, |leaf| self.waits(leaf))
    }

    /// Returns whether a packet waits in a leaf or is about to enter it.
    #[cold]
    fn waits(&self, leaf: QueueId) -> bool {
        let is_here = |arrival: &Arrival<Packet>| arrival.leaf == id(leaf);
        self.tree.is_backlogged(id(leaf)) || self.arrivals.iter().any(is_here)
    }

    /// Returns the leaf that a packet for a queue enters now. If the queue's leaf was removed, its packets
    /// were moved to another leaf. Until that other leaf has been empty once, the packet enters it too, so
    /// that it overtakes none of the moved packets. Later packets enter the default leaf, as after a restart.
    #[inline]
    fn enter(&mut self, queue: QueueId) -> QueueId {
        let leaf = self.leaf_for(queue);
        self.leaves.note_entry(queue, leaf);
        leaf
    }

    /// Returns whether the scheduler has neither nodes nor packets, so that the port can do without a
    /// scheduler.
    fn is_empty(&self) -> bool {
        self.tree.root().is_none() && !self.takes_packets() && self.held() == 0
    }

    /// Returns whether the scheduler has a leaf.
    pub fn takes_packets(&self) -> bool {
        self.leaves.default != QueueId(0)
    }

    /// Puts a packet into the leaf for its queue number. The packet enters the tree when [`TOGETHER`] packets
    /// have arrived, or before the next release.
    #[inline]
    pub(crate) fn enqueue(&mut self, packet: Packet, now: Instant, drops: &mut QueueDrops) {
        let leaf = id(self.enter(packet.queue));
        self.arrivals.push(Arrival { leaf, flow: FlowNumber(packet.hash), item: packet });
        if self.arrivals.len() == TOGETHER {
            self.settle(now, drops);
        }
    }

    /// Returns whether packets may bypass the tree if the device accepts them at once (see
    /// [`LinkScheduler::is_passable`]).
    #[inline]
    pub(crate) fn is_passable(&self) -> bool {
        self.arrivals.is_empty()
            && self.tree.root() == Some(id(self.leaves.default))
            && self.tree.is_passable()
    }

    /// Counts packets that bypass the tree.
    #[inline]
    pub(crate) fn pass<'p>(&mut self, packets: impl Iterator<Item = &'p Packet>) {
        self.tree.pass(packets.map(|packet| packet.len() as u32));
    }

    /// Moves the arrived packets into the tree.
    #[inline]
    fn settle(&mut self, now: Instant, drops: &mut QueueDrops) {
        self.tree.enqueue_batch(&mut self.arrivals, now, &mut sink(drops));
    }

    /// Returns the leaf that a packet would enter, and the backlog in front of it.
    pub(crate) fn backlog(&self, packet: &Packet) -> Option<(QueueId, LeafBacklog)> {
        self.backlog_at(packet.queue, packet)
    }

    /// Returns the leaf that a packet for a queue would enter, and the backlog in front of it.
    fn backlog_at(&self, queue: QueueId, packet: &Packet) -> Option<(QueueId, LeafBacklog)> {
        let leaf = self.leaf_for(queue);
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

    /// Returns how many packets of a packet's flow the scheduler takes now into the leaf for a queue: as many as
    /// keep it busy for [`PULL_AHEAD`], less those that wait there.
    pub(crate) fn pulls(&self, packet: &Packet, queue: QueueId) -> u32 {
        let backlog = self.backlog_at(queue, packet);
        let backlog = backlog.map_or((0, 0), |(_, backlog)| (backlog.packets, backlog.bytes));
        let ahead = match self.tree.report().link().rate {
            Some(rate) => {
                let bytes = u128::from(rate.0) * PULL_AHEAD.as_nanos() / 8_000_000_000;
                let length = packet.len().max(1) as u128;
                u32::try_from(bytes.saturating_sub(backlog.1.into()) / length).unwrap_or(u32::MAX)
            }
            None => PULL_MOST.saturating_sub(backlog.0),
        };
        // With less than two packets, the leaf would be empty while the next one is on its way.
        ahead.max(PULL_LEAST.saturating_sub(backlog.0)).min(PULL_MOST)
    }

    /// Calls `out` with each packet that may be sent now, but with at most `most` packets.
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

    /// Returns the earliest time at which a packet may be sent; `None` if no packet waits.
    pub(crate) fn next_ready(&self) -> Option<Instant> {
        if !self.arrivals.is_empty() {
            return Some(Instant::ZERO);
        }
        (self.tree.held_packets() > 0).then(|| self.tree.next_ready())
    }

    /// Returns the number of queued packets.
    pub fn held(&self) -> usize {
        self.tree.held_packets() as usize + self.arrivals.len()
    }

    pub(crate) fn report(&self) -> ScheduleReport {
        let (tree, default, held) = (self.tree.report(), self.leaves.default, self.tree.held_packets());
        let (link, held_bytes, room) = (tree.link(), self.tree.held_bytes(), tree.limits());
        ScheduleReport { link, default, held, held_bytes, room, queues: tree.queue_counts() }
    }

    #[cfg(test)]
    pub(crate) fn nodes(&self) -> Vec<NodeView> {
        self.tree.report().tree()
    }
}

fn id(node: QueueId) -> NodeId {
    NodeId(node.0.into())
}

fn sink(drops: &mut QueueDrops) -> impl FnMut(Packet, DropCause) + '_ {
    |packet, cause| drops.push((packet, reason(cause)))
}

/// Returns the drop reason that corresponds to a scheduler's drop cause.
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
