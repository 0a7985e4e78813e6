//! Packets that pass the tree by: nothing waits in it, and nothing in it would have them wait.

use super::LinkScheduler;
use super::node::Kind;
use crate::Aqm;
use crate::Item;

impl<T: Item> LinkScheduler<T> {
    /// Whether packets that are sent at once need not come in: the tree is one leaf, a FIFO or a queue for each flow, without
    /// active queue management, the link has no rate, nothing is said of single flows, and nothing waits. What comes in then, and is asked for at the same
    /// moment, all goes, and leaves nothing behind but counters: a queue that is empty has no credit in the round.
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

    /// Counts packets of these lengths as sent by the leaf that they pass by, where they [may](Self::is_passable). Flows get no
    /// queues for them.
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
