//! Bypass of the tree for packets that would not wait: the tree is empty and imposes no delay.

use super::LinkScheduler;
use super::node::Kind;
use crate::Aqm;
use crate::Item;

impl<T: Item> LinkScheduler<T> {
    /// Whether packets that are sent at once may bypass the tree. The tree must be empty and must be one
    /// leaf, a FIFO or a queue per flow. The leaf must have no active queue management and no settings of
    /// single flows, and the link no rate. Packets that arrive at such a tree and are requested at the same
    /// moment all leave. They change only counters, because an empty queue has no credit in the round.
    #[inline]
    pub fn is_passable(&self) -> bool {
        if self.queues.arena.load.packets() > 0 || self.pace.is_some() {
            return false;
        }
        match self.nodes.find(self.root as usize).map(|root| root.kind) {
            Some(Kind::Fifo(fifo)) => {
                !self.queues.queue(fifo.0).is_managed() || self.queues.view(fifo.0).aqm == Aqm::TailDrop
            }
            Some(Kind::FlowQueues(index)) => self.flow_queues.get(index).is_passable(),
            _ => false,
        }
    }

    /// Counts packets of these lengths as sent by the leaf that they bypass, if
    /// [`is_passable`](Self::is_passable) allows it. Their flows get no queues.
    #[inline]
    pub fn pass(&mut self, lengths: impl Iterator<Item = u32>) {
        let overhead = self.queues.overhead;
        let (mut packets, mut bytes, mut wire) = (0, 0, 0);
        for length in lengths {
            packets += 1;
            bytes += u64::from(length);
            wire += overhead.wire_bytes(length);
        }
        let Some(root) = self.nodes.find_mut(self.root as usize) else { return };
        root.totals.sent_wire_bytes += wire;
        match root.kind {
            Kind::Fifo(fifo) => self.queues.queue_mut(fifo.0).passed(packets, bytes),
            _ => {
                root.totals.sent_packets += packets;
                root.totals.sent_bytes += bytes;
            }
        }
    }
}
