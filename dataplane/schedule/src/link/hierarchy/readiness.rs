//! Readiness of nodes: it spreads upwards from a leaf that gets its first packet, and is withdrawn when a
//! node must wait. Timers restore it.

use millrace_units::Instant;

use super::node::{Kind, Node};
use super::{LinkScheduler, with_discipline, with_leaf};
use crate::Item;
use crate::arena::NONE;
use crate::link::discipline::{Discipline, PacketScheduler};
use crate::link::hfsc::HIERARCHY_ROOT;

impl<T: Item> LinkScheduler<T> {
    /// Returns the node that schedules `node`: its parent, or the root of the hierarchy above an inner class.
    #[inline]
    pub(super) fn scheduled_by(&self, node: u32) -> u32 {
        let parent = self.nodes[node as usize].parent;
        match self.nodes.find(parent as usize).map(|parent| parent.kind) {
            Some(Kind::Hfsc { hierarchy, .. }) => self.hierarchies.get(hierarchy).child(HIERARCHY_ROOT),
            _ => parent,
        }
    }

    /// Returns the time from which on an inner node has something to send.
    #[inline]
    pub(super) fn ready_at(&mut self, node: u32) -> Instant {
        let kind = self.nodes[node as usize].kind;
        with_discipline!(self, kind, discipline => discipline.next_ready(), else Instant::FOREVER)
    }

    /// Whether the scheduler of a node uses packet lengths.
    #[inline]
    pub(super) fn needs_length(&self, scheduler: u32) -> bool {
        match self.nodes.find(scheduler as usize) {
            Some(node) => !matches!(node.kind, Kind::Priority(_)),
            None => false,
        }
    }

    /// Returns the bytes on the wire of the packet that a node would send now; `None` when it has none.
    #[inline]
    pub(super) fn first_length(&mut self, node: u32, now: Instant) -> Option<u32> {
        if let Kind::Fifo(mut fifo) = self.nodes[node as usize].kind {
            let length = fifo.head_length(&mut self.queues)?;
            return Some(self.queues.wire_length(length));
        }
        self.first_length_below(node, now)
    }

    fn first_length_below(&mut self, mut node: u32, now: Instant) -> Option<u32> {
        for _ in 0..super::MOST_DEPTH {
            let kind = self.nodes[node as usize].kind;
            if let Kind::Fifo(_) | Kind::FlowQueues(_) | Kind::FqCodel(_) = kind {
                let queues = &mut self.queues;
                let length = with_leaf!(self, kind, leaf => leaf.head_length(queues), else None)?;
                return Some(self.queues.wire_length(length));
            }
            node = self.chosen_child(node, now)?;
        }
        None
    }

    /// Returns the child that an inner node chooses.
    #[inline]
    pub(super) fn chosen_child(&mut self, node: u32, now: Instant) -> Option<u32> {
        let kind = self.nodes[node as usize].kind;
        with_discipline!(self, kind, discipline => {
            let slot = discipline.choose(now)?;
            Some(discipline.child(slot))
        }, else None)
    }

    /// Marks a leaf as ready and notifies the nodes above it. Below strict priority this sets only a bit or
    /// two, because such a node is ready as soon as one child is.
    #[inline(always)]
    pub(super) fn rouse_leaf(&mut self, leaf: u32, now: Instant) {
        let Node { parent, slot, .. } = self.nodes[leaf as usize];
        if let Some(&Node { kind: Kind::Priority(index), ready, .. }) = self.nodes.find(parent as usize) {
            self.nodes[leaf as usize].ready = true;
            self.priorities.get_mut(index).activate(slot, 1, now);
            if !ready {
                self.rouse(parent, now);
            }
            return;
        }
        self.rouse(leaf, now);
    }

    /// Marks a node as ready, and notifies the nodes above that do not know it yet.
    pub(super) fn rouse(&mut self, node: u32, now: Instant) {
        let mut node = node;
        loop {
            self.stop_timer(node);
            self.nodes[node as usize].ready = true;
            let above = self.scheduled_by(node);
            if above == NONE {
                return;
            }
            let length = if self.needs_length(above) { self.first_length(node, now).unwrap_or(1) } else { 1 };
            let (slot, kind) = (self.nodes[node as usize].slot, self.nodes[above as usize].kind);
            with_discipline!(self, kind, discipline => discipline.activate(slot, length, now), else ());
            if self.nodes[above as usize].ready || !self.may_send(above, now) {
                return;
            }
            node = above;
        }
    }

    /// Whether an inner node may send now; if not, starts its timer.
    #[inline]
    pub(super) fn may_send(&mut self, node: u32, now: Instant) -> bool {
        let at = self.ready_at(node);
        if at <= now {
            return true;
        }
        self.nodes[node as usize].ready = false;
        self.start_timer(node, at);
        false
    }

    /// Marks a ready node as not ready, and notifies the nodes above.
    pub(super) fn suspend(&mut self, node: u32, now: Instant) {
        let mut node = node;
        loop {
            self.nodes[node as usize].ready = false;
            let above = self.scheduled_by(node);
            if above == NONE {
                return;
            }
            let (slot, kind) = (self.nodes[node as usize].slot, self.nodes[above as usize].kind);
            with_discipline!(self, kind, discipline => discipline.deactivate(slot, now), else ());
            let was_ready = self.nodes[above as usize].ready;
            if self.may_send(above, now) || !was_ready {
                return;
            }
            node = above;
        }
    }

    pub(super) fn start_timer(&mut self, node: u32, at: Instant) {
        let running = self.has_timer(node);
        if !running && at == Instant::FOREVER {
            return;
        }
        match (running, at == Instant::FOREVER) {
            (true, true) => self.timers.remove(&mut self.timer_places, node),
            (true, false) => self.timers.update(&mut self.timer_places, at.as_nanos(), node),
            (false, true) => {}
            (false, false) => self.timers.push(&mut self.timer_places, at.as_nanos(), node),
        }
    }

    /// Whether a node has a running timer. Leaves have none.
    #[inline]
    pub(super) fn has_timer(&self, node: u32) -> bool {
        self.timer_places.get(node as usize).is_some_and(|place| *place != NONE)
    }

    #[inline]
    pub(super) fn stop_timer(&mut self, node: u32) {
        if self.has_timer(node) {
            self.timers.remove(&mut self.timer_places, node);
        }
    }

    /// Activates the nodes whose timers have expired.
    #[cold]
    pub(super) fn fire_timers(&mut self, now: Instant) {
        while let Some((at, node)) = self.timers.first() {
            if at > now.as_nanos() {
                return;
            }
            self.stop_timer(node);
            if self.may_send(node, now) {
                self.rouse(node, now);
            }
        }
    }
}
