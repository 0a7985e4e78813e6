//! Settings of single flows: quanta, thresholds and reserved rates, with a queue that stays the flow's own.

use super::flow_queues::FlowQueues;
use super::weights::{RESERVED, Reservation};
use crate::queue_manager::QueueManager;
use crate::rate::Rate;
use crate::{FlowNumber, Item};

impl FlowQueues {
    /// Gives a flow its own queue with a quantum or threshold. The quantum is in bytes, 1 to 2^30; 0 restores
    /// the common quantum and ends a reservation. `Some(None)` restores the common threshold. `None` leaves a
    /// value unchanged. A queue with its own quantum or threshold is never given to another flow. Returns
    /// whether there was a queue for the flow.
    pub fn set_flow<T: Item>(
        &mut self,
        queues: &mut QueueManager<T>,
        flow: FlowNumber,
        quantum: Option<u32>,
        threshold: Option<Option<u32>>,
        trusted: bool,
    ) -> bool {
        let Some(queue) = self.own_queue_with_packets(queues, flow, trusted) else { return false };
        if let Some(threshold) = threshold {
            queues.set_own_threshold(queue, threshold, self.settings.queue.threshold);
        }
        if let Some(quantum) = quantum {
            self.release(queues, flow);
            self.set_quantum(queues, queue, quantum);
        }
        true
    }

    fn set_quantum<T: Item>(&mut self, queues: &mut QueueManager<T>, queue: u32, quantum: u32) {
        let entry = queues.queue_mut(queue);
        let (before, backlogged) = (std::mem::replace(&mut entry.quantum, quantum), !entry.list.is_empty());
        if backlogged {
            self.weights.count(before, false);
            self.weights.count(quantum, true);
        }
    }

    /// Returns the sum of the reserved rates, without that of `flow`.
    pub fn reserved_by_others<T: Item>(&self, queues: &QueueManager<T>, flow: FlowNumber) -> Rate {
        let own = self
            .reservation(queues, flow)
            .and_then(|index| self.weights.reservations.get(index))
            .map_or(0, |own| own.rate.0);
        Rate(self.weights.reserved - own)
    }

    fn reservation<T: Item>(&self, queues: &QueueManager<T>, flow: FlowNumber) -> Option<usize> {
        let quantum = queues.queue(self.table.get(flow)?).quantum;
        (quantum & RESERVED != 0).then_some((quantum & !RESERVED) as usize)
    }

    /// Reserves a rate for a flow, in place of an earlier reservation. The sum must stay below the capacity.
    /// Returns whether there was a queue for the flow.
    pub fn reserve<T: Item>(
        &mut self,
        queues: &mut QueueManager<T>,
        flow: FlowNumber,
        rate: Rate,
        trusted: bool,
    ) -> bool {
        self.release(queues, flow);
        let Some(queue) = self.own_queue_with_packets(queues, flow, trusted) else {
            return false;
        };
        self.set_quantum(queues, queue, RESERVED | self.weights.reservations.len() as u32);
        self.weights.reservations.push(Reservation { queue, rate, rest: 0 });
        self.weights.reserved += rate.0;
        true
    }

    /// Removes a flow's own quantum, threshold and reservation. Returns whether it had any of them.
    pub fn forget<T: Item>(&mut self, queues: &mut QueueManager<T>, flow: FlowNumber) -> bool {
        let is_reserved = self.release(queues, flow);
        let Some(queue) = self.table.get(flow) else { return is_reserved };
        let is_own = queues.own_threshold(queue).is_some() || queues.queue(queue).quantum != 0;
        queues.set_own_threshold(queue, None, self.settings.queue.threshold);
        self.set_quantum(queues, queue, 0);
        is_reserved || is_own
    }

    /// Ends a flow's reservation. The flow continues as best effort. Returns whether it had a reservation.
    pub fn release<T: Item>(&mut self, queues: &mut QueueManager<T>, flow: FlowNumber) -> bool {
        let Some(index) = self.reservation(queues, flow) else { return false };
        let gone = self.weights.reservations.swap_remove(index);
        self.weights.reserved -= gone.rate.0;
        self.set_quantum(queues, gone.queue, 0);
        if let Some(moved) = self.weights.reservations.get(index) {
            queues.queue_mut(moved.queue).quantum = RESERVED | index as u32;
        }
        true
    }

    /// Returns the number of flows with a reservation.
    pub fn reservations(&self) -> usize {
        self.weights.reservations.len()
    }

    /// Returns the sum of the reserved rates.
    pub fn reserved(&self) -> Rate {
        Rate(self.weights.reserved)
    }
}
