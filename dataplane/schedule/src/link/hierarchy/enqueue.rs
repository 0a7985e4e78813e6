//! Arrival of a packet at a leaf.

use millrace_units::Instant;

use super::node::{Kind, Node};
use super::{LinkScheduler, NodeId};
use crate::arena::Load;
use crate::link::discipline::PacketScheduler;
use crate::{DropCause, DropSink, FlowNumber, Item};

/// Number of queues checked in each leaf, when no queue is free.
const SWEEP: usize = 64;

impl<T: Item> LinkScheduler<T> {
    /// Enqueues a packet of a flow at a leaf. `sink` receives dropped packets, this one or others. Returns
    /// whether this packet stays. A FIFO ignores the flow but keeps it with the packet.
    #[inline]
    pub fn enqueue(
        &mut self,
        node: NodeId,
        flow: FlowNumber,
        item: T,
        now: Instant,
        sink: &mut impl DropSink<T>,
    ) -> bool {
        let Some(&Node { kind, ready, parent, .. }) = self.nodes.find(node.0 as usize) else {
            return self.refuse(item, sink);
        };
        let length = item.length();
        let queues = &mut self.queues;
        match kind {
            Kind::Fifo(mut fifo) => {
                if !fifo.enqueue(queues, flow, item, now, sink) {
                    return false;
                }
            }
            Kind::FlowQueues(index) => {
                let stays = self.flow_queues.get_mut(index).enqueue(queues, flow, item, now, sink);
                self.take_back_if_short();
                if !stays {
                    return false;
                }
                self.nodes[node.0 as usize].totals.entered(Load::of_packet(length));
            }
            Kind::FqCodel(_) => return self.enqueue_fq_codel(node, flow, item, now, sink),
            _ => return self.refuse(item, sink),
        }
        self.count_above(parent, length);
        if !ready {
            self.rouse_leaf(node.0, now);
        }
        true
    }

    /// Takes back unneeded queues, if a flow found no free queue, so that the next packet finds one.
    #[inline]
    pub(super) fn take_back_if_short(&mut self) {
        if self.queues.is_short {
            self.take_back_queues(SWEEP);
        }
    }

    /// Enqueues a packet at an FQ-CoDel leaf, which may drop other packets for it.
    #[inline]
    pub(super) fn enqueue_fq_codel(
        &mut self,
        node: NodeId,
        flow: FlowNumber,
        item: T,
        now: Instant,
        sink: &mut impl DropSink<T>,
    ) -> bool {
        let (before, length) = (self.queues.arena.load, item.length());
        let Kind::FqCodel(index) = self.nodes[node.0 as usize].kind else { return false };
        let stays = self.fq_codels.get_mut(index).enqueue(&mut self.queues, flow, item, now, sink);
        let mut came = Load::NOTHING;
        if stays {
            came = Load::of_packet(length);
            self.nodes[node.0 as usize].totals.entered(came);
            self.count_above(self.nodes[node.0 as usize].parent, length);
        }
        // The leaf may also have dropped other packets for a packet that did not stay.
        let dropped = before.plus(came).minus(self.queues.arena.load);
        if dropped != Load::NOTHING {
            self.count_lost(node.0, dropped);
        }
        if !stays {
            return false;
        }
        if !self.nodes[node.0 as usize].ready && self.held_by(node.0) != Load::NOTHING {
            self.rouse_leaf(node.0, now);
        }
        true
    }

    #[cold]
    fn refuse(&mut self, item: T, sink: &mut impl DropSink<T>) -> bool {
        self.lost.add(DropCause::NoQueue, item.length());
        sink.dropped(item, DropCause::NoQueue);
        false
    }

    /// Returns the load at or below a node.
    #[inline]
    pub(super) fn held_by(&self, node: u32) -> Load {
        let node = &self.nodes[node as usize];
        match node.kind {
            Kind::Fifo(fifo) => self.queues.queue(fifo.0).list.load,
            _ => node.totals.held,
        }
    }

    /// Adds a packet that entered a child of `parent` to the counters of `parent` and of all its ancestors.
    #[inline]
    pub(super) fn count_above(&mut self, mut parent: u32, length: u32) {
        while let Some(node) = self.nodes.find_mut(parent as usize) {
            node.totals.entered(Load::of_packet(length));
            parent = node.parent;
        }
    }

    /// Counts packets that a leaf held and dropped, at the leaf and above. A FIFO counts its own packets in
    /// its queue.
    pub(super) fn count_lost(&mut self, leaf: u32, load: Load) {
        let is_fifo = matches!(self.nodes[leaf as usize].kind, Kind::Fifo(_));
        let mut index = if is_fifo { self.nodes[leaf as usize].parent } else { leaf };
        while let Some(node) = self.nodes.find_mut(index as usize) {
            node.totals.left(load);
            index = node.parent;
        }
    }

    /// Prefetches the memory that [`enqueue`](Self::enqueue) touches first at a leaf with many queues. The
    /// caller prefetches for a whole batch of packets before it enqueues any of them.
    #[inline]
    pub(super) fn prefetch(&self, node: NodeId, flow: FlowNumber) {
        match self.nodes.find(node.0 as usize).map(|node| node.kind) {
            Some(Kind::FlowQueues(index)) => self.flow_queues.get(index).prefetch(flow),
            Some(Kind::FqCodel(index)) => self.fq_codels.get(index).prefetch(flow),
            _ => {}
        }
    }

    /// Prefetches the queue of a packet, after the memory of [`prefetch`](Self::prefetch) has arrived.
    #[inline]
    pub(super) fn prefetch_queue(&self, node: NodeId, flow: FlowNumber) {
        if let Some(Kind::FlowQueues(index)) = self.nodes.find(node.0 as usize).map(|node| node.kind) {
            self.flow_queues.get(index).prefetch_queue(&self.queues, flow);
        }
    }
}
