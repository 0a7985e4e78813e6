//! A packet comes in at a leaf.

use millrace_units::Instant;

use super::node::{Kind, Node};
use super::{LinkScheduler, NodeId};
use crate::arena::Load;
use crate::link::discipline::PacketScheduler;
use crate::{DropCause, DropSink, FlowNumber, Item};

/// Queues of each leaf that are looked at, when one is wanted and none is left.
const SWEEP: usize = 64;

impl<T: Item> LinkScheduler<T> {
    /// A packet of a flow arrives for a leaf. What is dropped, this packet or others, goes to `sink`; returns whether this
    /// one stays. FIFO takes no notice of the flow but keeps it with the packet.
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

    /// Queues that others don't need any more are there for the next packet that wants one.
    #[inline]
    pub(super) fn take_back_if_short(&mut self) {
        if self.queues.is_short {
            self.take_back_queues(SWEEP);
        }
    }

    /// FQ-CoDel may drop others for the one that comes.
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
        // Others may have been dropped also for one that did not stay.
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

    /// Packets and bytes at or below a node.
    #[inline]
    pub(super) fn held_by(&self, node: u32) -> Load {
        let node = &self.nodes[node as usize];
        match node.kind {
            Kind::Fifo(fifo) => self.queues.queue(fifo.0).list.load,
            _ => node.totals.held,
        }
    }

    /// Counts a packet that came in at a parent and all nodes above.
    #[inline]
    pub(super) fn count_above(&mut self, mut parent: u32, length: u32) {
        while let Some(node) = self.nodes.find_mut(parent as usize) {
            node.totals.entered(Load::of_packet(length));
            parent = node.parent;
        }
    }

    /// Counts packets that a leaf held and dropped, at the leaf and above. A FIFO counts its own in its queue.
    pub(super) fn count_lost(&mut self, leaf: u32, load: Load) {
        let is_fifo = matches!(self.nodes[leaf as usize].kind, Kind::Fifo(_));
        let mut index = if is_fifo { self.nodes[leaf as usize].parent } else { leaf };
        while let Some(node) = self.nodes.find_mut(index as usize) {
            node.totals.left(load);
            index = node.parent;
        }
    }

    /// Asks for the memory that [`enqueue`](Self::enqueue) will touch first at a leaf with many queues: for a whole batch of packets
    /// before any of them.
    #[inline]
    pub(super) fn prefetch(&self, node: NodeId, flow: FlowNumber) {
        match self.nodes.find(node.0 as usize).map(|node| node.kind) {
            Some(Kind::FlowQueues(index)) => self.flow_queues.get(index).prefetch(flow),
            Some(Kind::FqCodel(index)) => self.fq_codels.get(index).prefetch(flow),
            _ => {}
        }
    }

    /// The second step of [`prefetch`](Self::prefetch), when what that asked for has come.
    #[inline]
    pub(super) fn prefetch_queue(&self, node: NodeId, flow: FlowNumber) {
        if let Some(Kind::FlowQueues(index)) = self.nodes.find(node.0 as usize).map(|node| node.kind) {
            self.flow_queues.get(index).prefetch_queue(&self.queues, flow);
        }
    }
}
