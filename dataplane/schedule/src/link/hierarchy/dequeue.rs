//! A packet goes out: from the root along the choices to a leaf, and back with the news of what was sent.

use millrace_units::Instant;

use super::node::{Kind, Node};
use super::{LinkScheduler, with_discipline, with_leaf};
use crate::arena::{Held, Load, NONE};
use crate::link::discipline::{Discipline, PacketScheduler};
use crate::link::fifo::Fifo;
use crate::link::hfsc::HIERARCHY_ROOT;
use crate::{DropSink, Item};

/// How often nodes may turn out not to be ready before the search is given up for now. One such node is suspended each
/// time.
const ATTEMPTS: usize = 1024;

impl<T: Item> LinkScheduler<T> {
    /// The packet to send now; `None` when the link is busy, nothing waits, or all that waits must wait on. What active
    /// queue management drops instead of sending goes to `sink`.
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

    /// From a tree of any shape.
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

    /// A FIFO alone: the whole tree is one queue.
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

    /// A leaf alone sent a packet; `before` is what the port held then. The packet, and its bytes on the wire.
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

    /// The child that strict priority at the root chooses, if that is a FIFO and no timer runs.
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

    /// From a FIFO behind strict priority at the root.
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

    /// When [`dequeue`](Self::dequeue) should be called next: [`Instant::FOREVER`] when nothing waits. May be in the past.
    #[inline]
    pub fn next_ready(&self) -> Instant {
        let Some(root) = self.nodes.find(self.root as usize) else { return Instant::FOREVER };
        let tree = if root.ready { Instant::ZERO } else { Instant::from_nanos(self.timers.first_key()) };
        match &self.pace {
            Some(pace) if tree != Instant::FOREVER => tree.max(pace.covers_at(0)),
            _ => tree,
        }
    }

    /// The leaf whose turn it is. `None` when a node on the way has to wait, which is known above it by then.
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

    /// Whether all token buckets above a leaf have enough for the very packet that would be sent.
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

    /// Takes a node out of the search until its time comes.
    fn wait(&mut self, node: u32, now: Instant) {
        let unclear = self.may_send(node, now);
        self.suspend(node, now);
        if unclear {
            // It says that it may send, and names nobody: asked again a moment later, it can't be forgotten.
            self.start_timer(node, Instant::from_nanos(now.as_nanos().saturating_add(1)));
        }
    }

    /// Takes a packet from a leaf and settles with everyone above.
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

    /// Tells every node above a leaf what was sent, and whether there is more.
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
            // Inner classes of H-FSC are told by their hierarchy, once, for the leaf class.
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

    /// Asks for what the packets need that an H-FSC at the root will send next. Those of a small tree are in the cache.
    #[inline]
    fn fetch_ahead(&self, root: Kind) {
        let Kind::Hfsc { hierarchy, .. } = root else { return };
        let classes = self.hierarchies.get(hierarchy);
        classes.fetch_ahead(|child| {
            millrace_memory::prefetch_slice_element(self.nodes.all(), child.node as usize);
            self.queues.prefetch(child.queue);
        });
        // The queue of the next one was asked for before.
        if let Some(queue) = classes.next_child().and_then(|child| self.queues.find(child.queue)) {
            self.queues.arena.prefetch(&queue.list);
        }
    }

    /// Bytes on the wire of the next packet of a node, if it is ready; 1 when its scheduler doesn't ask.
    #[inline]
    fn next_length(&mut self, node: u32, now: Instant) -> Option<u32> {
        let Node { parent, ready, .. } = self.nodes[node as usize];
        if !ready {
            return None;
        }
        if self.needs_length(parent) { self.first_length(node, now) } else { Some(1) }
    }
}

/// The child that a discipline chooses.
#[inline]
fn choice(discipline: &mut impl Discipline, now: Instant) -> Option<u32> {
    let slot = discipline.choose(now)?;
    Some(discipline.child(slot))
}

/// What left a leaf: packets and bytes with what was dropped, and the one that was sent.
#[derive(Clone, Copy)]
struct Departure {
    load: Load,
    length: u32,
    wire: u32,
}
