//! Departure of packets: the general path through the tree, and shorter paths for common trees.
//!
//! The general path searches for a leaf from the root down, and accounts for the packet from the leaf up. No
//! search is necessary if the root is a leaf, or a strict priority scheduler above FIFOs. All paths give the
//! same result.

#[expect(clippy::indexing_slicing, reason = "nodes and queues by links of the same tree")]
mod levels;

use millrace_units::Instant;

use super::leaves::Leaves;
use super::nodes::Kind;
use super::pacer::Pacer;
use super::tree::{Departure, Tree};
use crate::arena::{Held, Load, NONE};
use crate::link::discipline::{Discipline, PacketScheduler};
use crate::link::fifo::Fifo;
use crate::rate::Credit;
use crate::{DropSink, Item};

/// Maximum number of search attempts per call. Each failed attempt suspends one node that was marked as ready
/// but must wait.
const ATTEMPTS: usize = 1024;

/// Tree whose packets leave at the rate of a link.
#[derive(Debug)]
pub(super) struct PacedTree<T> {
    pub tree: Tree<T>,
    pub pacer: Pacer,
}

impl<T: Item> PacedTree<T> {
    /// Returns the packet to send now; `None` when the link is busy, nothing waits, or all packets must wait.
    /// Packets dropped by active queue management go to `sink`.
    #[inline]
    pub fn dequeue(&mut self, now: Instant, sink: &mut impl DropSink<T>) -> Option<T> {
        let Self { tree, pacer } = self;
        let before = tree.leaves.load();
        if !pacer.is_free(now) {
            return None;
        }
        let root = tree.nodes.find_root()?;
        if !root.ready && tree.timers.is_empty() {
            return None;
        }
        let held = match root.kind {
            Kind::Fifo(fifo) => self.dequeue_fifo(fifo, now, sink),
            kind @ (Kind::FlowQueues(_) | Kind::FqCodel(_)) => {
                let (held, more) = tree.leaves.dequeue(kind, now, sink);
                self.settle_root(before, more, held)
            }
            Kind::Priority(index) => match self.first_fifo(index) {
                Some((level, child, fifo)) => self.dequeue_level((index, level, child), fifo, now, sink),
                None => return self.dequeue_below(now, sink),
            },
            Kind::RoundRobin(_) | Kind::Hfsc { .. } | Kind::TokenBucket(_) | Kind::Vacant => {
                return self.dequeue_below(now, sink);
            }
        };
        let (item, wire) = held?;
        self.pacer.spend(wire, now);
        Some(item)
    }

    /// Takes a packet from a tree of any shape.
    fn dequeue_below(&mut self, now: Instant, sink: &mut impl DropSink<T>) -> Option<T> {
        if self.tree.timers.first_time() <= now {
            self.tree.fire_timers(now);
        }
        for _ in 0..ATTEMPTS {
            if !self.tree.nodes.find_root()?.ready {
                return None;
            }
            let Some((leaf, kind)) = self.tree.find_leaf(now) else { continue };
            if let Some(held) = self.take(leaf, kind, now, sink) {
                return Some(held.item);
            }
        }
        None
    }

    /// Takes a packet from a leaf and accounts for it at all ancestors.
    #[inline]
    fn take(&mut self, leaf: u32, kind: Kind, now: Instant, sink: &mut impl DropSink<T>) -> Option<Held<T>> {
        let Self { tree, pacer } = self;
        let before = tree.leaves.load();
        let (held, more) = tree.leaves.dequeue(kind, now, sink);
        let load = before.minus(tree.leaves.load());
        let Some(held) = held else {
            tree.count_lost(leaf, load);
            tree.suspend(leaf, now);
            return None;
        };
        let wire = tree.leaves.queues.wire_length(held.length);
        pacer.spend(wire, now);
        let node = &mut tree.nodes[leaf];
        if let Kind::Fifo(_) = kind {
            node.totals.sent_wire_bytes += u64::from(wire);
        } else {
            node.totals.left(load);
            node.totals.sent(held.length, wire);
        }
        node.ready = more;
        if node.parent != NONE {
            tree.settle(leaf, Departure { load, length: held.length, wire, arrival: held.arrival }, now);
        }
        Some(held)
    }

    /// Takes a packet from a FIFO that is the whole tree.
    #[inline]
    fn dequeue_fifo(&mut self, fifo: Fifo, now: Instant, sink: &mut impl DropSink<T>) -> Option<(T, u32)> {
        let Self { tree, .. } = self;
        let (held, more) = tree.leaves.queues.take(fifo.0, now, sink);
        let root = tree.nodes.root_mut();
        if !more {
            root.ready = false;
        }
        let held = held?;
        let wire = tree.leaves.queues.overhead.wire_length(held.length);
        root.totals.sent_wire_bytes += u64::from(wire);
        Some((held.item, wire))
    }

    /// Accounts for a packet that a root leaf sent. `before`: the port's load before the departure. Returns
    /// the packet and its bytes on the wire.
    #[inline]
    fn settle_root(&mut self, before: Load, more: bool, held: Option<Held<T>>) -> Option<(T, u32)> {
        let Self { tree, .. } = self;
        let root = tree.nodes.root_mut();
        root.totals.left(before.minus(tree.leaves.load()));
        root.ready = more;
        let held = held?;
        let wire = tree.leaves.queues.overhead.wire_length(held.length);
        root.totals.sent(held.length, wire);
        Some((held.item, wire))
    }

    /// Returns the child that strict priority at the root chooses, if the child is a FIFO and no timer runs.
    #[inline(always)]
    fn first_fifo(&mut self, index: u32) -> Option<(u32, u32, Fifo)> {
        let Self { tree, .. } = self;
        if !tree.timers.is_empty() {
            return None;
        }
        let priority = &tree.disciplines.priorities[index];
        let level = priority.first_backlogged()?;
        let child = priority.child(level);
        match tree.nodes[child].kind {
            Kind::Fifo(fifo) => Some((level, child, fifo)),
            _ => None,
        }
    }

    /// Takes a packet from a FIFO below strict priority at the root.
    #[inline]
    fn dequeue_level(
        &mut self,
        (index, level, child): (u32, u32, u32),
        fifo: Fifo,
        now: Instant,
        sink: &mut impl DropSink<T>,
    ) -> Option<(T, u32)> {
        let before = self.tree.leaves.load();
        let (held, more) = self.tree.leaves.queues.take(fifo.0, now, sink);
        let sent = self.settle_root(before, true, held);
        let Self { tree, .. } = self;
        let leaf = &mut tree.nodes[child];
        leaf.totals.sent_wire_bytes += sent.as_ref().map_or(0, |(_, wire)| u64::from(*wire));
        if !more {
            leaf.ready = false;
            let priority = &mut tree.disciplines.priorities[index];
            priority.deactivate(level, now);
            let is_ready = priority.next_ready() == Instant::ZERO;
            tree.nodes.root_mut().ready = is_ready;
        }
        sent
    }

    /// Sends up to `most` packets to `out`: the packets that repeated calls of [`dequeue`](Self::dequeue)
    /// would return. Returns their number.
    #[inline]
    pub fn dequeue_batch(
        &mut self,
        most: usize,
        now: Instant,
        sink: &mut impl DropSink<T>,
        mut out: impl FnMut(T),
    ) -> usize {
        let mut count = 0;
        if self.tree.timers.is_empty()
            && let Some(root) = self.tree.nodes.find_root()
            && root.ready
        {
            count = match root.kind {
                Kind::Fifo(fifo) => self.send_queue(fifo, most, now, &mut out),
                Kind::FlowQueues(index) => self.send_flows(index, most, now, sink, &mut out),
                Kind::FqCodel(index) => self.send_fq_codel(index, most, now, sink, &mut out),
                Kind::Priority(index) => self.send_levels(index, most, now, &mut out),
                Kind::RoundRobin(_) | Kind::Hfsc { .. } | Kind::TokenBucket(_) | Kind::Vacant => 0,
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

    /// Sends packets of a root FIFO without active queue management, as far as the link's rate allows.
    #[inline]
    fn send_queue(&mut self, fifo: Fifo, most: usize, now: Instant, out: &mut impl FnMut(T)) -> usize {
        let Self { tree, pacer } = self;
        let (queues, mut wire) = (&mut tree.leaves.queues, 0);
        let overhead = queues.overhead;
        let sent = match pacer.credit() {
            None => {
                let all = |length| {
                    wire += overhead.wire_bytes(length);
                    true
                };
                queues.take_while(fifo.0, most, all, out)
            }
            Some(credit) => {
                let covered = |length| {
                    let own = overhead.wire_length(length);
                    let goes = spend_covered(credit, own, now);
                    wire += if goes { u64::from(own) } else { 0 };
                    goes
                };
                queues.take_while(fifo.0, most, covered, out)
            }
        };
        let is_empty = queues.queue(fifo.0).list.is_empty();
        let root = tree.nodes.root_mut();
        root.totals.sent_wire_bytes += wire;
        root.ready = !is_empty;
        sent.packets() as usize
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
        if !self.pacer.is_unlimited() {
            return 0;
        }
        let before = self.tree.leaves.load();
        let Leaves { queues, flow_queues, .. } = &mut self.tree.leaves;
        let leaf = &mut flow_queues[index];
        let (sent, wire) = leaf.dequeue_batch(queues, most, now, sink, out);
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
        if !self.pacer.is_unlimited() {
            return 0;
        }
        let before = self.tree.leaves.load();
        let (mut sent, mut wire) = (Load::NOTHING, 0);
        let Leaves { queues, fq_codels, .. } = &mut self.tree.leaves;
        let leaf = &mut fq_codels[index];
        let overhead = queues.overhead;
        while (sent.packets() as usize) < most
            && let (Some(held), _) = leaf.dequeue(queues, now, sink)
        {
            sent = sent.plus(Load::of_packet(held.length));
            wire += u64::from(overhead.wire_length(held.length));
            out(held.item);
        }
        let more = leaf.has_packets();
        self.settle_batch(before, sent, wire, more)
    }

    /// Accounts for packets that a root leaf sent. `before`: the port's load before the departure. Returns
    /// the number of packets.
    #[inline]
    fn settle_batch(&mut self, before: Load, sent: Load, wire: u64, more: bool) -> usize {
        let gone = before.minus(self.tree.leaves.load());
        let root = self.tree.nodes.root_mut();
        root.totals.left(gone);
        root.totals.sent_all(sent, wire);
        root.ready = more;
        sent.packets() as usize
    }

    /// Sends packets of FIFOs below strict priority at the root. Each FIFO sends until it is empty.
    #[inline]
    fn send_levels(&mut self, index: u32, most: usize, now: Instant, out: &mut impl FnMut(T)) -> usize {
        let Self { tree, pacer } = self;
        let queues = &mut tree.leaves.queues;
        let (overhead, priority) = (queues.overhead, &mut tree.disciplines.priorities[index]);
        let parts = (tree.nodes.all_mut(), queues, &mut *priority);
        let (sent, wire) = match pacer.credit() {
            None => levels::send(parts, most, |_| true, out),
            Some(credit) => {
                let covered = |length| spend_covered(credit, overhead.wire_length(length), now);
                levels::send(parts, most, covered, out)
            }
        };
        let more = priority.first_backlogged().is_some();
        let root = tree.nodes.root_mut();
        root.totals.left(sent);
        root.totals.sent_all(sent, wire);
        root.ready = more;
        sent.packets() as usize
    }
}

/// Spends `wire` bytes of the link's credit, if the link is free now. Returns whether the link was free.
#[inline]
fn spend_covered(credit: &mut Credit, wire: u32, now: Instant) -> bool {
    let goes = credit.covers(0, now);
    if goes {
        credit.spend(wire, now);
    }
    goes
}
