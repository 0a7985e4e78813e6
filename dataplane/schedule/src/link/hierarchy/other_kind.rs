//! Leaves become of another kind, with the packets that wait in them.

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
    /// Makes a leaf one of another kind, at the same place. All that waits in it goes on there, each flow in its order, whatever
    /// the new thresholds say; what it counted, it counts on. What was said of single flows is forgotten.
    ///
    /// # Errors
    /// [`ScheduleError`] when it is no leaf, should become none, or the settings can't be; nothing has changed then.
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

    /// Puts a new leaf at the place of an old one, and its packets there.
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

    /// What a leaf sent, the most that it held and what it dropped is counted on when it is another one.
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
