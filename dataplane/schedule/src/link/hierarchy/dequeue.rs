//! Departure of a packet: the search for a leaf from the root down, and the accounting from the leaf up.

use millrace_units::Instant;

use super::node::{Kind, Node};
use super::{LinkScheduler, with_discipline, with_leaf};
use crate::arena::{Held, Load, NONE};
use crate::link::discipline::{Discipline, PacketScheduler};
use crate::link::fifo::Fifo;
use crate::link::hfsc::HIERARCHY_ROOT;
use crate::{DropSink, Item};

/// Maximum number of search attempts per call. Each failed attempt suspends one node that was not ready.
const ATTEMPTS: usize = 1024;

impl<T: Item> LinkScheduler<T> {
    /// Returns the packet to send now; `None` when the link is busy, nothing waits, or all packets must wait.
    /// Packets dropped by active queue management go to `sink`.
    #[inline]
    pub fn dequeue(&mut self, now: Instant, sink: &mut impl DropSink<T>) -> Option<T> {
        let before = self.queues.arena.load;
        if let Some(pace) = &mut self.pace
            && !pace.covers(0, now)
        {
            return None;
        }
        let root = self.nodes.find(self.root as usize)?;
        if !root.ready && self.timers.is_empty() {
            return None;
        }
        let held = match root.kind {
            Kind::Fifo(fifo) => self.dequeue_fifo(fifo, now, sink),
            Kind::FlowQueues(index) => {
                let (held, more) = self.flow_queues.get_mut(index).dequeue(&mut self.queues, now, sink);
                self.settle_root(before, more, held)
            }
            Kind::FqCodel(index) => {
                let (held, more) = self.fq_codels.get_mut(index).dequeue(&mut self.queues, now, sink);
                self.settle_root(before, more, held)
            }
            Kind::Priority(index) => match self.first_fifo(index) {
                Some((level, child, fifo)) => self.dequeue_level((index, level, child), fifo, now, sink),
                None => return self.dequeue_below(now, sink),
            },
            _ => return self.dequeue_below(now, sink),
        };
        let (item, wire) = held?;
        if let Some(pace) = &mut self.pace {
            pace.spend(wire, now);
        }
        Some(item)
    }

    /// Takes a packet from a tree of any shape.
    fn dequeue_below(&mut self, now: Instant, sink: &mut impl DropSink<T>) -> Option<T> {
        if self.timers.first_key() <= now.as_nanos() {
            self.fire_timers(now);
        }
        for _ in 0..ATTEMPTS {
            if !self.nodes.find(self.root as usize)?.ready {
                return None;
            }
            let Some((leaf, kind)) = self.find_leaf(now) else { continue };
            if let Some(held) = self.take(leaf, kind, now, sink) {
                return Some(held.item);
            }
        }
        None
    }

    /// Takes a packet from a FIFO that is the whole tree.
    #[inline]
    fn dequeue_fifo(&mut self, fifo: Fifo, now: Instant, sink: &mut impl DropSink<T>) -> Option<(T, u32)> {
        let (held, more) = self.queues.take(fifo.0, now, sink);
        let root = &mut self.nodes[self.root as usize];
        if !more {
            root.ready = false;
        }
        let held = held?;
        let wire = self.queues.overhead.wire_length(held.length);
        root.totals.sent_wire_bytes += u64::from(wire);
        Some((held.item, wire))
    }

    /// Accounts for a packet that a root leaf sent. `before` is the port's load before. Returns the packet
    /// and its bytes on the wire.
    #[inline]
    fn settle_root(&mut self, before: Load, more: bool, held: Option<Held<T>>) -> Option<(T, u32)> {
        let root = &mut self.nodes[self.root as usize];
        root.totals.left(before.minus(self.queues.arena.load));
        root.ready = more;
        let held = held?;
        let wire = self.queues.overhead.wire_length(held.length);
        root.totals.sent(held.length, wire);
        Some((held.item, wire))
    }

    /// Returns the child that strict priority at the root chooses, if the child is a FIFO and no timer runs.
    #[inline(always)]
    pub(super) fn first_fifo(&mut self, index: u32) -> Option<(u32, u32, Fifo)> {
        if !self.timers.is_empty() {
            return None;
        }
        let priority = self.priorities.get_mut(index);
        let level = priority.choose(Instant::ZERO)?;
        let child = priority.child(level);
        match self.nodes[child as usize].kind {
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
        let before = self.queues.arena.load;
        let (held, more) = self.queues.take(fifo.0, now, sink);
        let sent = self.settle_root(before, true, held);
        let leaf = &mut self.nodes[child as usize];
        leaf.totals.sent_wire_bytes += sent.as_ref().map_or(0, |(_, wire)| u64::from(*wire));
        if !more {
            leaf.ready = false;
            let priority = self.priorities.get_mut(index);
            priority.deactivate(level, now);
            self.nodes[self.root as usize].ready = priority.next_ready() == Instant::ZERO;
        }
        sent
    }

    /// Returns the time for the next call of [`dequeue`](Self::dequeue); [`Instant::FOREVER`] when nothing
    /// waits. May be in the past.
    #[inline]
    pub fn next_ready(&self) -> Instant {
        let Some(root) = self.nodes.find(self.root as usize) else { return Instant::FOREVER };
        let tree = if root.ready { Instant::ZERO } else { Instant::from_nanos(self.timers.first_key()) };
        match &self.pace {
            Some(pace) if tree != Instant::FOREVER => tree.max(pace.covers_at(0)),
            _ => tree,
        }
    }

    /// Returns the leaf to serve next. Returns `None` when a node on the path must wait; then the nodes above
    /// it know that already.
    #[inline]
    fn find_leaf(&mut self, now: Instant) -> Option<(u32, Kind)> {
        let (mut node, mut below_bucket) = (self.root, false);
        let leaf = loop {
            let kind = self.nodes[node as usize].kind;
            let choice = match kind {
                Kind::Priority(index) => choice(self.priorities.get_mut(index), now),
                Kind::RoundRobin(index) => choice(self.round_robins.get_mut(index), now),
                Kind::Hfsc { hierarchy, .. } => choice(self.hierarchies.get_mut(hierarchy), now),
                Kind::TokenBucket(index) => {
                    below_bucket = true;
                    choice(self.token_buckets.get_mut(index), now)
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
            if let Kind::TokenBucket(index) = self.nodes[node as usize].kind
                && !self.token_buckets.get_mut(index).allows(length, now)
            {
                self.wait(node, now);
                return false;
            }
            node = self.nodes[node as usize].parent;
        }
        true
    }

    /// Suspends a node until its timer fires.
    fn wait(&mut self, node: u32, now: Instant) {
        let unclear = self.may_send(node, now);
        self.suspend(node, now);
        if unclear {
            // The node claims to be ready but chooses no child. A timer of one nanosecond ensures another
            // attempt.
            self.start_timer(node, Instant::from_nanos(now.as_nanos().saturating_add(1)));
        }
    }

    /// Takes a packet from a leaf and accounts for it at all nodes above.
    #[inline]
    fn take(&mut self, leaf: u32, kind: Kind, now: Instant, sink: &mut impl DropSink<T>) -> Option<Held<T>> {
        let before = self.queues.arena.load;
        let queues = &mut self.queues;
        let (held, more) =
            with_leaf!(self, kind, leaf => leaf.dequeue(queues, now, sink), else (None, false));
        let load = before.minus(self.queues.arena.load);
        let Some(held) = held else {
            self.count_lost(leaf, load);
            self.suspend(leaf, now);
            return None;
        };
        let wire = self.queues.wire_length(held.length);
        if let Some(pace) = &mut self.pace {
            pace.spend(wire, now);
        }
        let node = &mut self.nodes[leaf as usize];
        match kind {
            Kind::Fifo(_) => node.totals.sent_wire_bytes += u64::from(wire),
            _ => {
                node.totals.left(load);
                node.totals.sent(held.length, wire);
            }
        }
        node.ready = more;
        if node.parent != NONE {
            self.settle(leaf, Departure { load, length: held.length, wire }, now);
        }
        Some(held)
    }

    /// Notifies every node above a leaf of the departure, and of the next packet.
    #[inline]
    fn settle(&mut self, leaf: u32, gone: Departure, now: Instant) {
        let mut node = leaf;
        let mut next = self.next_length(leaf, now);
        loop {
            let Node { parent, slot, kind, .. } = self.nodes[node as usize];
            let is_class = matches!(kind, Kind::Hfsc { .. });
            let Some(above) = self.nodes.find_mut(parent as usize) else { return };
            above.totals.left(gone.load);
            above.totals.sent(gone.length, gone.wire);
            let (kind, has_parent) = (above.kind, above.parent != NONE);
            // The hierarchy notifies inner classes of H-FSC, once, for the leaf class.
            let inside = is_class && matches!(kind, Kind::Hfsc { .. });
            let at = with_discipline!(self, kind, discipline => {
                if !inside {
                    discipline.served(slot, gone.wire, next, now);
                }
                discipline.next_ready()
            }, else Instant::ZERO);
            if !matches!(kind, Kind::Hfsc { class, .. } if class != HIERARCHY_ROOT) {
                if at > now {
                    self.nodes[parent as usize].ready = false;
                    self.start_timer(parent, at);
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

    /// Prefetches the data of the packets that an H-FSC at the root will send next. The data of a small tree
    /// is in the cache anyway.
    #[inline]
    fn fetch_ahead(&self, root: Kind) {
        let Kind::Hfsc { hierarchy, .. } = root else { return };
        let classes = self.hierarchies.get(hierarchy);
        classes.fetch_ahead(|child| {
            millrace_memory::prefetch_slice_element(self.nodes.all(), child.node as usize);
            self.queues.prefetch(child.queue);
        });
        // An earlier call prefetched the queue of the next child.
        if let Some(queue) = classes.next_child().and_then(|child| self.queues.find(child.queue)) {
            self.queues.arena.prefetch(&queue.list);
        }
    }

    /// Returns the bytes on the wire of a node's next packet, if the node is ready; 1 when its scheduler
    /// ignores lengths.
    #[inline]
    fn next_length(&mut self, node: u32, now: Instant) -> Option<u32> {
        let Node { parent, ready, .. } = self.nodes[node as usize];
        if !ready {
            return None;
        }
        if self.needs_length(parent) { self.first_length(node, now) } else { Some(1) }
    }
}

/// Returns the child that a discipline chooses.
#[inline]
fn choice(discipline: &mut impl Discipline, now: Instant) -> Option<u32> {
    let slot = discipline.choose(now)?;
    Some(discipline.child(slot))
}

/// Departure from a leaf: packets and bytes that left, with drops, and the length of the packet sent.
#[derive(Clone, Copy)]
struct Departure {
    load: Load,
    length: u32,
    wire: u32,
}
