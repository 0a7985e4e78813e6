//! Scheduler tree of a port, with any kind at any node (the hierarchical scheduling framework planned in
//! *Router Plugins*, section 6).
//!
//! Leaves hold packets; other nodes choose among their children. A node is *ready* when it has a packet that
//! may be sent now. Only ready nodes are visible to their parent. A heap of timers holds the nodes that must
//! wait, such as a token bucket or an H-FSC at its limits. To send, the scheduler follows the choices from
//! the root to a leaf. Then it reports the sent packet and the next packet to each node on the path back.

mod arrival;
mod departure;
mod disciplines;
mod edit;
mod error;
mod guarantees;
mod leaves;
mod node;
mod nodes;
mod other_drops;
mod pacer;
mod report;
mod reserves;
mod timers;
mod tree;

use millrace_units::Instant;

use self::departure::PacedTree;
use self::edit::Checks;
pub use self::edit::{FlowEditor, Leftover, TreeEditor};
pub use self::error::{GuaranteeLimit, ScheduleError};
pub use self::node::{NodeKind, Share};
use self::nodes::Kind;
pub use self::pacer::LinkRate;
use self::pacer::Pacer;
pub use self::report::{LeafBacklog, NodeView, TreeReport, in_tree};
use self::tree::Tree;
use crate::arena::{Load, NONE};
use crate::queue_manager::{BufferLimits, MOST_QUEUES};
use crate::rate::MOST_BYTES;
use crate::{Arrival, DropSink, FlowNumber, Item, LinkOverhead, NodeId};

/// Upper bound of node ids, exclusive.
pub const MOST_NODES: u32 = 1 << 17;
/// Maximum number of nodes from root to leaf.
pub const MOST_DEPTH: usize = 16;

/// Queues and schedulers of one port. The result depends only on the inputs: packets, changes and times,
/// which must not go back.
///
/// The methods of the scheduler itself enqueue and send packets. [`edit`](Self::edit) returns an editor of
/// its tree, and [`report`](Self::report) a view of it. Dropping the scheduler drops its packets.
#[derive(Debug)]
pub struct LinkScheduler<T> {
    paced: PacedTree<T>,
    checks: Checks,
}

impl<T: Item> LinkScheduler<T> {
    /// Creates a port without nodes, which drops all packets.
    ///
    /// # Errors
    /// [`ScheduleError::Port`] when a limit is out of its range.
    pub fn new(link: LinkRate, overhead: LinkOverhead, limits: BufferLimits) -> Result<Self, ScheduleError> {
        in_range("queues", limits.queues.into(), 1, MOST_QUEUES.into())?;
        in_range("packets", limits.packets.into(), 1, 1 << 24)?;
        in_range("bytes", limits.bytes.into(), 1 << 16, u32::MAX.into())?;
        let paced = PacedTree { tree: Tree::new(limits, overhead), pacer: Pacer::default() };
        let mut scheduler = Self { paced, checks: Checks::default() };
        scheduler.set_link(link, Instant::ZERO)?;
        Ok(scheduler)
    }

    /// Sets whether the tree trusts the following changes. Trust requires that the caller has made all of
    /// them on a tree without packets, with the same nodes and flows. The tree then accepts a change that
    /// becomes valid only after later changes, or after packets have left. It doesn't check guarantees, and
    /// two nodes may exchange their levels. A node, or a flow with its own settings, gets its queue even if
    /// all queues are in use.
    pub fn trust(&mut self, trusting: bool) {
        self.checks.trusting = trusting;
    }

    /// Sets whether checks of guarantees are deferred. Otherwise each change checks them. With deferred
    /// checks, the time to build a large tree grows with the number of nodes, not with its square. The caller
    /// checks the guarantees afterwards, for instance by [`set_link`](Self::set_link).
    pub fn defer_promises(&mut self, deferring: bool) {
        self.checks.deferring = deferring;
    }

    /// Returns the editor of the tree.
    pub fn edit(&mut self) -> TreeEditor<'_, T> {
        TreeEditor { tree: &mut self.paced.tree, link: self.paced.pacer.link().rate, checks: self.checks }
    }

    /// Returns the report of the tree.
    pub fn report(&self) -> TreeReport<'_, T> {
        TreeReport { tree: &self.paced.tree, link: self.paced.pacer.link() }
    }

    /// Changes the rate of the port, from now on.
    ///
    /// # Errors
    /// [`ScheduleError`] when the rate is 0, the slack is above 10^9 bytes, or guarantees need more than the
    /// rate.
    pub fn set_link(&mut self, link: LinkRate, now: Instant) -> Result<(), ScheduleError> {
        in_range("slack", link.slack.into(), 0, MOST_BYTES.into())?;
        in_range("rate", link.rate.map_or(1, |rate| rate.0), 1, u64::MAX)?;
        let root = NodeId(self.paced.tree.nodes.root);
        TreeEditor { link: link.rate, ..self.edit() }.check_guarantees(root)?;
        self.paced.pacer.set(link, now);
        Ok(())
    }

    /// Changes the link overhead of packets sent from now on.
    pub fn set_overhead(&mut self, overhead: LinkOverhead) {
        self.paced.tree.leaves.queues.overhead = overhead;
    }

    /// Returns the number of packets in all queues.
    #[inline]
    pub fn held_packets(&self) -> u32 {
        self.paced.tree.leaves.load().packets()
    }

    /// Returns the number of bytes in all queues.
    #[inline]
    pub fn held_bytes(&self) -> u32 {
        self.paced.tree.leaves.load().bytes()
    }

    /// Returns the root; `None` if there is none.
    #[inline]
    pub fn root(&self) -> Option<NodeId> {
        (self.paced.tree.nodes.root != NONE).then_some(NodeId(self.paced.tree.nodes.root))
    }

    /// Whether a node has that id.
    pub fn contains(&self, id: NodeId) -> bool {
        self.paced.tree.nodes.existing(id).is_some()
    }

    /// Whether packets wait in a leaf; `false` for an unknown node.
    pub fn is_backlogged(&self, leaf: NodeId) -> bool {
        self.contains(leaf) && self.paced.tree.held_by(leaf.0).packets() > 0
    }

    /// Returns the backlog that a packet of `flow` would find at a leaf now; `None` if the node is no leaf.
    #[must_use]
    pub fn backlog(&self, leaf: NodeId, flow: FlowNumber) -> Option<LeafBacklog> {
        let kind = self.paced.tree.nodes.existing(leaf)?.kind;
        let (of_flow, load) = self.paced.tree.leaves.load_before(kind, flow)?;
        Some(LeafBacklog { of_flow, packets: load.packets(), bytes: load.bytes() })
    }

    /// Enqueues a packet of a flow at a leaf. `sink` receives all dropped packets: this packet, or others
    /// that make room for it. Returns whether this packet stays. A FIFO ignores the flow but keeps it with
    /// the packet.
    #[inline]
    pub fn enqueue(
        &mut self,
        node: NodeId,
        flow: FlowNumber,
        item: T,
        now: Instant,
        sink: &mut impl DropSink<T>,
    ) -> bool {
        arrival::enqueue(&mut self.paced.tree, node, flow, item, now, sink)
    }

    /// Enqueues the packets of `batch` in order, as [`enqueue`](Self::enqueue) does for each. `batch` is
    /// empty afterwards.
    // Not inlined: the loops over a batch need the registers for themselves.
    #[inline(never)]
    pub fn enqueue_batch(&mut self, batch: &mut Vec<Arrival<T>>, now: Instant, sink: &mut impl DropSink<T>) {
        arrival::enqueue_batch(&mut self.paced.tree, batch, now, sink);
    }

    /// Returns the packet to send now; `None` when the link is busy, the tree is empty, or all packets must
    /// wait. Packets dropped by active queue management go to `sink`.
    #[inline]
    pub fn dequeue(&mut self, now: Instant, sink: &mut impl DropSink<T>) -> Option<T> {
        self.paced.dequeue(now, sink)
    }

    /// Sends up to `most` packets to `out`: the packets that repeated calls of [`dequeue`](Self::dequeue)
    /// would return. Returns their number.
    // Not inlined: the loops over a batch need the registers for themselves.
    #[inline(never)]
    pub fn dequeue_batch(
        &mut self,
        most: usize,
        now: Instant,
        sink: &mut impl DropSink<T>,
        out: impl FnMut(T),
    ) -> usize {
        self.paced.dequeue_batch(most, now, sink, out)
    }

    /// Returns the time for the next call of [`dequeue`](Self::dequeue), which may be in the past;
    /// [`Instant::FOREVER`] when no packet waits.
    #[inline]
    pub fn next_ready(&self) -> Instant {
        let Some(root) = self.paced.tree.nodes.find_root() else { return Instant::FOREVER };
        let tree = if root.ready { Instant::ZERO } else { self.paced.tree.timers.first_time() };
        tree.max(self.paced.pacer.free_at())
    }

    /// Whether packets that are sent at once may bypass the tree. The tree must be empty and consist of one
    /// leaf, a FIFO or a queue per flow. The leaf must have no active queue management and no settings of
    /// single flows, and the link no rate. Such a tree sends each packet at the moment of its arrival, so
    /// packets in the tree and packets that bypass it have the same effect: they change only counters.
    #[inline]
    pub fn is_passable(&self) -> bool {
        let Tree { nodes, leaves, .. } = &self.paced.tree;
        let is_free = leaves.load() == Load::NOTHING && self.paced.pacer.is_unlimited();
        is_free && nodes.find_root().is_some_and(|root| leaves.is_passable(root.kind))
    }

    /// Counts packets that bypassed the tree as sent by its leaf. `lengths`: the packets' lengths in bytes.
    /// The caller has checked [`is_passable`](Self::is_passable). The packets' flows get no queues.
    #[inline]
    pub fn pass(&mut self, lengths: impl Iterator<Item = u32>) {
        let Tree { nodes, leaves, .. } = &mut self.paced.tree;
        let (mut packets, mut bytes, mut wire) = (0, 0, 0);
        for length in lengths {
            packets += 1;
            bytes += u64::from(length);
            wire += leaves.queues.overhead.wire_bytes(length);
        }
        let Some(root) = nodes.find_mut(nodes.root) else { return };
        root.totals.sent_wire_bytes += wire;
        if let Kind::Fifo(fifo) = root.kind {
            leaves.queues.queue_mut(fifo.0).passed(packets, bytes);
        } else {
            root.totals.sent_packets += packets;
            root.totals.sent_bytes += bytes;
        }
    }
}

fn in_range(what: &'static str, value: u64, least: u64, most: u64) -> Result<(), ScheduleError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(ScheduleError::Port { what, value, least, most })
}
