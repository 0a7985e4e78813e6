//! Change of the kind of a leaf, with its waiting packets.

use millrace_units::Instant;

use super::check::check_capacity;
use super::levels::Served;
use super::node::{Kind, Totals};
use super::parameters::check_kind;
use super::{LinkScheduler, NodeId, NodeKind, ScheduleError, with_leaf};
use crate::Item;
use crate::arena::Load;
use crate::link::discipline::PacketScheduler;

impl<T: Item> LinkScheduler<T> {
    /// Changes a leaf to another kind, at the same place. Its packets stay, each flow in its order,
    /// regardless of the new thresholds. Its counters continue. Settings of single flows are lost.
    ///
    /// # Errors
    /// [`ScheduleError`] when the node is no leaf, the new kind is no leaf, or the settings are invalid;
    /// nothing has changed then.
    pub fn become_kind(&mut self, node: NodeId, kind: &NodeKind, now: Instant) -> Result<(), ScheduleError> {
        self.known(node)?;
        let before = self.kind(node);
        if !before.is_leaf() || !kind.is_leaf() {
            return Err(ScheduleError::Kind { node, kind: before.name(), other: kind.name() });
        }
        check_kind(node, kind)?;
        if let NodeKind::FlowQueues(settings) = kind {
            self.leaf_fits(node, settings.queues, self.limits.queues)?;
            if !self.trusting {
                check_capacity(node, settings.capacity, Served::of(self).by(node.0))?;
            }
        }
        if kind.needs_queue() {
            self.make_room_for_queue();
        }
        let built = self.build(node, kind)?;
        self.exchange(node, built, now);
        Ok(())
    }

    /// Replaces the leaf of a node by a new one, and moves the packets there.
    fn exchange(&mut self, node: NodeId, built: Kind, now: Instant) {
        let index = node.0 as usize;
        let (share, parent, was_root) = (self.share(node), self.nodes[index].parent, self.root == node.0);
        self.carry_counters(node, built);
        let held = self.held_by(node.0);
        self.leave_totals(node, held);
        self.detach(node, now);
        let old = std::mem::replace(&mut self.nodes[index].kind, built);
        self.nodes[index].totals.held = Load::NOTHING;
        self.nodes[index].ready = false;
        self.attach(node, parent, &share, false, now);
        if was_root {
            self.root = node.0;
        }
        loop {
            let queues = &mut self.queues;
            let Some(held) = with_leaf!(self, old, leaf => leaf.take_to_move(queues, now), else None) else {
                break;
            };
            self.put(node, held, now);
        }
        self.close(old);
    }

    /// Carries the sent counters, the peaks and the drops of a leaf over to its replacement.
    fn carry_counters(&mut self, node: NodeId, built: Kind) {
        let drops = self.own_drops(node);
        if !drops.is_empty() {
            self.gone.insert(node, drops);
        }
        let mut totals = self.nodes[node.0 as usize].totals;
        if let Kind::Fifo(fifo) = self.nodes[node.0 as usize].kind {
            let queue = self.queues.view(fifo.0);
            totals = Totals {
                held: totals.held,
                sent_packets: queue.sent_packets,
                sent_bytes: queue.sent_bytes,
                sent_wire_bytes: totals.sent_wire_bytes,
                peak_bytes: queue.peak_bytes,
                peak_packets: queue.peak_packets,
            };
        }
        if let Kind::Fifo(fifo) = built {
            let (sent, peak) =
                ((totals.sent_packets, totals.sent_bytes), (totals.peak_bytes, totals.peak_packets));
            self.queues.queue_mut(fifo.0).count_on(sent, peak);
        }
        self.nodes[node.0 as usize].totals = totals;
    }
}
