//! Leaves of the tree, which hold packets, and the queues that they share.

use millrace_units::Instant;

use super::ScheduleError;
use super::node::NodeKind;
use super::nodes::Kind;
use crate::arena::{Held, Load};
use crate::link::discipline::PacketScheduler;
use crate::link::fifo::Fifo;
use crate::link::flow_queues::FlowQueues;
use crate::link::fq_codel::FqCodel;
use crate::queue::QueueSettings;
use crate::queue_manager::{BufferLimits, QueueManager};
use crate::slots::Slots;
use crate::{Aqm, DropCounts, DropSink, FlowNumber, Item, LinkOverhead, NodeId};

/// Number of queues checked in each leaf for release, when the port has no free queue.
const SWEEP: usize = 64;

/// Schedulers of leaves by kind, and the queues of the port.
#[derive(Debug)]
pub(super) struct Leaves<T> {
    pub queues: QueueManager<T>,
    pub flow_queues: Slots<FlowQueues>,
    pub fq_codels: Slots<FqCodel>,
    limits: BufferLimits,
}

/// Calls the scheduler of a leaf.
macro_rules! with_leaf {
    ($self:ident, $kind:expr, ($leaf:ident, $queues:ident) => $call:expr, else $other:expr) => {{
        let $queues = &mut $self.queues;
        match $kind {
            Kind::Fifo(mut fifo) => {
                let $leaf = &mut fifo;
                $call
            }
            Kind::FlowQueues(index) => {
                let $leaf = &mut $self.flow_queues[index];
                $call
            }
            Kind::FqCodel(index) => {
                let $leaf = &mut $self.fq_codels[index];
                $call
            }
            Kind::Priority(_)
            | Kind::RoundRobin(_)
            | Kind::Hfsc { .. }
            | Kind::TokenBucket(_)
            | Kind::Vacant => $other,
        }
    }};
}

impl<T: Item> Leaves<T> {
    pub fn new(limits: BufferLimits, overhead: LinkOverhead) -> Self {
        let (flow_queues, fq_codels) = Default::default();
        Self { queues: QueueManager::new(limits, overhead), flow_queues, fq_codels, limits }
    }

    /// Returns the limits of all queues together.
    pub fn limits(&self) -> BufferLimits {
        self.limits
    }

    /// Returns the load of all queues together.
    #[inline]
    pub fn load(&self) -> Load {
        self.queues.arena.load
    }

    /// Creates the scheduler of a leaf; `None` for an inner node. If `anyway` is set, the leaf gets its own
    /// queue even if all queues of the port are in use.
    pub fn build(
        &mut self,
        node: NodeId,
        kind: &NodeKind,
        anyway: bool,
    ) -> Result<Option<Kind>, ScheduleError> {
        Ok(match kind {
            NodeKind::Fifo(settings) => Some(Kind::Fifo(Fifo(self.open(node, settings, anyway)?))),
            NodeKind::FlowQueues(settings) => {
                let shared = self.open(node, &settings.queue, anyway)?;
                Some(Kind::FlowQueues(self.flow_queues.insert(FlowQueues::new(*settings, shared))))
            }
            NodeKind::FqCodel(settings) => {
                Some(Kind::FqCodel(self.fq_codels.insert(FqCodel::new(*settings))))
            }
            _ => None,
        })
    }

    /// Opens a queue for a node. If `anyway` is set, the number of queues may exceed the maximum.
    fn open(&mut self, node: NodeId, settings: &QueueSettings, anyway: bool) -> Result<u32, ScheduleError> {
        self.make_room_for_queue();
        if anyway {
            return Ok(self.queues.open_anyway(settings));
        }
        let most = self.limits.queues;
        self.queues.open(settings).ok_or(ScheduleError::NoQueue { node, most })
    }

    /// Releases an empty leaf and its queues.
    pub fn close(&mut self, kind: Kind) {
        match kind {
            Kind::Fifo(fifo) => self.queues.close(fifo.0),
            Kind::FlowQueues(index) => self.flow_queues.remove(index).assignment.close(&mut self.queues),
            Kind::FqCodel(index) => drop(self.fq_codels.remove(index)),
            _ => {}
        }
    }

    /// Returns the settings of a leaf; `None` for an inner node.
    pub fn settings(&self, kind: Kind) -> Option<NodeKind> {
        match kind {
            Kind::Fifo(fifo) => {
                let view = self.queues.view(fifo.0);
                Some(NodeKind::Fifo(QueueSettings { threshold: view.threshold, aqm: view.aqm }))
            }
            Kind::FlowQueues(index) => Some(NodeKind::FlowQueues(*self.flow_queues[index].settings())),
            Kind::FqCodel(index) => Some(NodeKind::FqCodel(*self.fq_codels[index].settings())),
            _ => None,
        }
    }

    /// Returns the load that waits ahead of a new packet of a flow; `None` for an inner node. The boolean is
    /// true if the load consists of that flow's packets only. For FQ-CoDel, it is true if the load consists
    /// of packets with the flow's hash.
    pub fn load_before(&self, kind: Kind, flow: FlowNumber) -> Option<(bool, Load)> {
        match kind {
            Kind::Fifo(fifo) => Some((false, self.queues.queue(fifo.0).list.load)),
            Kind::FlowQueues(index) => {
                Some(self.flow_queues[index].assignment.load_before(&self.queues, flow))
            }
            Kind::FqCodel(index) => Some((true, self.fq_codels[index].load_before(flow))),
            _ => None,
        }
    }

    /// Adds the drops of a leaf to `drops`.
    pub fn count_drops(&self, kind: Kind, drops: &mut DropCounts) {
        match kind {
            Kind::Fifo(fifo) => drops.merge(&self.queues.view(fifo.0).drops),
            Kind::FlowQueues(index) => drops.merge(self.flow_queues[index].drops()),
            Kind::FqCodel(index) => drops.merge(self.fq_codels[index].drops()),
            _ => {}
        }
    }

    /// Whether packets that are sent at once may bypass an empty leaf, without any effect on later packets.
    #[inline]
    pub fn is_passable(&self, kind: Kind) -> bool {
        match kind {
            Kind::Fifo(fifo) => {
                !self.queues.queue(fifo.0).is_managed() || self.queues.view(fifo.0).aqm == Aqm::TailDrop
            }
            Kind::FlowQueues(index) => self.flow_queues[index].is_passable(),
            _ => false,
        }
    }

    /// Returns the next packet of a leaf, and whether more packets wait.
    #[inline]
    pub fn dequeue(
        &mut self,
        kind: Kind,
        now: Instant,
        sink: &mut impl DropSink<T>,
    ) -> (Option<Held<T>>, bool) {
        with_leaf!(self, kind, (leaf, queues) => leaf.dequeue(queues, now, sink), else (None, false))
    }

    /// Returns the bytes on the wire of a leaf's next packet; `None` when the leaf is empty.
    #[inline]
    pub fn first_length(&mut self, kind: Kind) -> Option<u32> {
        let length = with_leaf!(self, kind, (leaf, queues) => leaf.head_length(queues), else None)?;
        Some(self.queues.wire_length(length))
    }

    /// Removes the next packet of a leaf, to move it to another leaf.
    pub fn take_to_move(&mut self, kind: Kind) -> Option<Held<T>> {
        with_leaf!(self, kind, (leaf, queues) => leaf.take_to_move(queues), else None)
    }

    /// Appends a packet taken from another leaf.
    pub fn put(&mut self, kind: Kind, held: Held<T>) {
        with_leaf!(self, kind, (leaf, queues) => leaf.put(queues, held), else ());
    }

    /// Whether all leaves that the tree ever had are FIFOs.
    #[inline]
    pub fn are_fifos(&self) -> bool {
        self.flow_queues.len() + self.fq_codels.len() == 0
    }

    /// Prefetches the memory that an arriving packet touches first, for a leaf with many queues. The caller
    /// prefetches for a whole batch before it enqueues the first packet.
    #[inline]
    pub fn prefetch(&self, kind: Kind, flow: FlowNumber) {
        if let Kind::FlowQueues(index) = kind {
            self.flow_queues[index].assignment.prefetch(flow);
        } else if let Kind::FqCodel(index) = kind {
            self.fq_codels[index].prefetch(flow);
        }
    }

    /// Prefetches the queue of a packet. The caller has called [`prefetch`](Self::prefetch) for this packet
    /// some time before.
    #[inline]
    pub fn prefetch_queue(&self, kind: Kind, flow: FlowNumber) {
        if let Kind::FlowQueues(index) = kind {
            self.flow_queues[index].assignment.prefetch_queue(&self.queues, flow);
        }
    }

    /// Changes the maximum number of queues of the port. Queues that hold packets, or have settings for one
    /// flow, stay open even above the maximum.
    pub fn set_most_queues(&mut self, most: u32) {
        self.take_back_queues(usize::MAX);
        self.limits.queues = most;
        self.queues.set_limit(most);
    }

    /// If the port has no free queue, frees flow queues that are dispensable (empty, and without settings of
    /// their own).
    pub fn make_room_for_queue(&mut self) {
        if self.queues.available() == 0 {
            self.take_back_queues(usize::MAX);
        }
    }

    /// Releases dispensable queues if a flow found no free queue, so that the next packet finds a free queue.
    #[inline]
    pub fn take_back_if_short(&mut self) {
        if self.queues.is_short {
            self.take_back_queues(SWEEP);
        }
    }

    /// Checks up to `most` flow queues of each leaf, and returns those that are dispensable (empty, and
    /// without settings of their own) to the port.
    #[cold]
    #[inline(never)]
    fn take_back_queues(&mut self, most: usize) {
        self.queues.is_short = false;
        for leaf in self.flow_queues.all_mut() {
            leaf.assignment.give_back(&mut self.queues, most);
        }
    }
}
