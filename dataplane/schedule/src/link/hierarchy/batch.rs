//! Batches of packets: the scheduler looks up common values once per batch, and prefetches memory. Both
//! directions give the same result as calls for single packets.

use millrace_units::Instant;

use super::LinkScheduler;
use super::node::Kind;
use super::plain::{Pause, Tally, send_levels};
use crate::arena::{Load, NONE};
use crate::link::discipline::PacketScheduler;
use crate::link::fifo::Fifo;
use crate::{Arrival, DropSink, Item, NodeId};

impl<T: Item> LinkScheduler<T> {
    /// Enqueues the packets of `batch` in order, as [`enqueue`](Self::enqueue) does for each. `batch` is
    /// empty afterwards.
    #[inline]
    pub fn enqueue_batch(&mut self, batch: &mut Vec<Arrival<T>>, now: Instant, sink: &mut impl DropSink<T>) {
        let Some(leaf) = batch.first().map(|first| first.leaf) else { return };
        let kind = self.nodes.find(leaf.0 as usize).map(|node| node.kind);
        let (before, mut bytes, mut is_one) = (self.queues.arena.load, 0, true);
        for arrival in batch.iter() {
            if arrival.leaf != leaf {
                is_one = false;
                break;
            }
            bytes += u64::from(arrival.item.length());
        }
        match kind {
            Some(Kind::Fifo(fifo)) if is_one => {
                self.queues.offer_all(fifo.0, (batch, bytes), now, sink);
                let came = self.queues.arena.load.minus(before);
                self.came_in(self.nodes[leaf.0 as usize].parent, leaf, came, now);
            }
            // Only at the root: a parent asks for the leaf's first packet as soon as there is one, and the
            // rest of the batch may change that packet.
            Some(Kind::FlowQueues(index)) if is_one && leaf.0 == self.root => {
                self.flow_queues.get_mut(index).enqueue_batch(&mut self.queues, batch, now, sink);
                self.take_back_if_short();
                let came = self.queues.arena.load.minus(before);
                self.came_in(leaf.0, leaf, came, now);
            }
            Some(Kind::FqCodel(index)) if is_one => {
                let flows = self.fq_codels.get(index);
                batch.iter().for_each(|arrival| flows.prefetch(arrival.flow));
                for Arrival { flow, item, .. } in batch.drain(..) {
                    self.enqueue_fq_codel(leaf, flow, item, now, sink);
                }
            }
            _ => self.enqueue_mixed(batch, now, sink),
        }
    }

    /// Enqueues packets for several leaves, or for a leaf that may drop other packets for them.
    fn enqueue_mixed(&mut self, batch: &mut Vec<Arrival<T>>, now: Instant, sink: &mut impl DropSink<T>) {
        // FIFO queues need no prefetch: the work for one packet does not wait for the packet before.
        if !self.flow_queues.is_empty() || !self.fq_codels.is_empty() {
            for arrival in batch.iter() {
                self.prefetch(arrival.leaf, arrival.flow);
            }
            for arrival in batch.iter() {
                self.prefetch_queue(arrival.leaf, arrival.flow);
            }
        }
        let bytes = batch.iter().map(|arrival| u64::from(arrival.item.length())).sum();
        let is_roomy = Load::of(batch.len(), bytes).is_some_and(|load| self.queues.arena.is_roomy(load));
        let (mut arrivals, mut tally) = (batch.drain(..), Tally::new(self.queues.arena.load));
        loop {
            let pause = if is_roomy {
                self.put_plain(&mut arrivals, now, &mut tally)
            } else {
                arrivals.next().map(Pause::Other)
            };
            match pause {
                None => break,
                Some(Pause::Rouse(leaf)) => self.rouse_counted(leaf, now, &mut tally),
                Some(Pause::Other(Arrival { leaf, flow, item })) => {
                    tally.settle(self.nodes.all_mut(), self.queues.arena.load, NONE);
                    self.enqueue(leaf, flow, item, now, sink);
                    tally = Tally::new(self.queues.arena.load);
                }
            }
        }
        tally.settle(self.nodes.all_mut(), self.queues.arena.load, NONE);
    }

    /// Counts packets that entered, at the node `first` and all nodes above it.
    #[inline]
    fn count_in(&mut self, first: u32, came: Load) {
        let mut index = first;
        while let Some(node) = self.nodes.find_mut(index as usize) {
            node.totals.entered(came);
            index = node.parent;
        }
    }

    /// Counts packets that entered at a leaf, from the node `first` upwards, and activates the leaf if it was
    /// not ready.
    #[inline]
    fn came_in(&mut self, first: u32, leaf: NodeId, came: Load, now: Instant) {
        if came == Load::NOTHING {
            return;
        }
        self.count_in(first, came);
        if !self.nodes[leaf.0 as usize].ready {
            self.rouse_leaf(leaf.0, now);
        }
    }

    /// Sends up to `most` packets to `out`, the same packets as repeated [`dequeue`](Self::dequeue) calls.
    /// Returns their number.
    #[inline]
    pub fn dequeue_batch(
        &mut self,
        most: usize,
        now: Instant,
        sink: &mut impl DropSink<T>,
        mut out: impl FnMut(T),
    ) -> usize {
        let mut count = 0;
        if self.timers.is_empty()
            && let Some(root) = self.nodes.find(self.root as usize)
            && root.ready
        {
            count = match root.kind {
                Kind::Fifo(fifo) => self.send_queue(fifo, most, now, &mut out),
                Kind::FlowQueues(index) => self.send_flows(index, most, now, sink, &mut out),
                Kind::FqCodel(index) => self.send_fq_codel(index, most, now, sink, &mut out),
                Kind::Priority(index) => self.send_levels(index, most, now, &mut out),
                _ => 0,
            };
        }
        while count < most
            && let Some(item) = self.dequeue(now, sink)
        {
            count += 1;
            out(item);
        }
        count
    }

    /// Sends packets of a root FIFO.
    #[inline]
    fn send_queue(&mut self, fifo: Fifo, most: usize, now: Instant, out: &mut impl FnMut(T)) -> usize {
        let (sent, _) = self.send_of(self.root, fifo, most, now, out);
        self.nodes[self.root as usize].ready = !self.queues.queue(fifo.0).list.is_empty();
        sent.packets() as usize
    }

    /// Sends packets of a FIFO without active queue management, as far as the link's rate allows. Returns
    /// their load and their bytes on the wire.
    #[inline]
    fn send_of(
        &mut self,
        leaf: u32,
        fifo: Fifo,
        most: usize,
        now: Instant,
        out: &mut impl FnMut(T),
    ) -> (Load, u64) {
        let (overhead, mut wire) = (self.queues.overhead, 0);
        let sent = match &mut self.pace {
            None => {
                let all = |length| {
                    wire += overhead.wire_bytes(length);
                    true
                };
                self.queues.take_while(fifo.0, most, all, out)
            }
            Some(pace) => {
                let covered = |length| {
                    let goes = pace.covers(0, now);
                    if goes {
                        let own = overhead.wire_length(length);
                        wire += u64::from(own);
                        pace.spend(own, now);
                    }
                    goes
                };
                self.queues.take_while(fifo.0, most, covered, out)
            }
        };
        self.nodes[leaf as usize].totals.sent_wire_bytes += wire;
        (sent, wire)
    }

    /// Sends packets of a root leaf with a queue per flow, on a link without a rate.
    #[inline]
    fn send_flows(
        &mut self,
        index: u32,
        most: usize,
        now: Instant,
        sink: &mut impl DropSink<T>,
        out: &mut impl FnMut(T),
    ) -> usize {
        if self.pace.is_some() {
            return 0;
        }
        let before = self.queues.arena.load;
        let leaf = self.flow_queues.get_mut(index);
        let (sent, wire) = leaf.dequeue_batch(&mut self.queues, most, now, sink, out);
        let more = leaf.has_packets();
        self.settle_batch(before, sent, wire, more)
    }

    /// Sends packets of a root FQ-CoDel leaf, on a link without a rate.
    #[inline]
    fn send_fq_codel(
        &mut self,
        index: u32,
        most: usize,
        now: Instant,
        sink: &mut impl DropSink<T>,
        out: &mut impl FnMut(T),
    ) -> usize {
        if self.pace.is_some() {
            return 0;
        }
        let (before, overhead) = (self.queues.arena.load, self.queues.overhead);
        let (mut sent, mut wire) = (Load::NOTHING, 0);
        let leaf = self.fq_codels.get_mut(index);
        while (sent.packets() as usize) < most
            && let (Some(held), _) = leaf.dequeue(&mut self.queues, now, sink)
        {
            sent = sent.plus(Load::of_packet(held.length));
            wire += u64::from(overhead.wire_length(held.length));
            out(held.item);
        }
        let more = leaf.has_packets();
        self.settle_batch(before, sent, wire, more)
    }

    /// Accounts for packets that a root leaf sent. `before` is the port's load before.
    #[inline]
    fn settle_batch(&mut self, before: Load, sent: Load, wire: u64, more: bool) -> usize {
        let root = &mut self.nodes[self.root as usize];
        root.totals.left(before.minus(self.queues.arena.load));
        root.totals.sent_all(sent, wire);
        root.ready = more;
        sent.packets() as usize
    }

    /// Sends packets of FIFOs below strict priority at the root. Each FIFO sends as long as it has packets.
    #[inline]
    fn send_levels(&mut self, index: u32, most: usize, now: Instant, out: &mut impl FnMut(T)) -> usize {
        let Self { nodes, queues, priorities, pace, .. } = self;
        let (overhead, priority) = (queues.overhead, priorities.get_mut(index));
        let tree = (nodes.all_mut(), queues, priority);
        let (sent, wire) = match pace {
            None => send_levels(tree, most, |_| true, out),
            Some(pace) => {
                let covered = |length| {
                    let goes = pace.covers(0, now);
                    if goes {
                        pace.spend(overhead.wire_length(length), now);
                    }
                    goes
                };
                send_levels(tree, most, covered, out)
            }
        };
        let root = &mut self.nodes[self.root as usize];
        root.totals.left(sent);
        root.totals.sent_all(sent, wire);
        root.ready = self.priorities.get(index).first_backlogged().is_some();
        sent.packets() as usize
    }
}
