//! Settings of single flows of a leaf with a queue per flow: quanta, thresholds and reserved rates.

use super::super::ScheduleError;
use super::super::leaves::Leaves;
use crate::link::round::MOST_QUANTUM;
use crate::{FlowNumber, Item, NodeId, Rate};

/// Editor of the flows of one leaf.
#[derive(Debug)]
pub struct FlowEditor<'a, T> {
    pub(super) leaves: &'a mut Leaves<T>,
    pub(super) node: NodeId,
    /// Index of the leaf among the leaves with a queue per flow.
    pub(super) leaf: u32,
    pub(super) trusting: bool,
}

impl<T: Item> FlowEditor<'_, T> {
    /// Gives a flow its own queue with a quantum or threshold. The quantum is in bytes on the wire per round,
    /// 1 to 2^30; 0 restores the common quantum and ends a reservation. `Some(None)` restores the common
    /// threshold. `None` leaves a value unchanged.
    ///
    /// # Errors
    /// [`ScheduleError`] when the quantum is out of range or no queue is left.
    pub fn set(
        &mut self,
        flow: FlowNumber,
        quantum: Option<u32>,
        threshold: Option<Option<u32>>,
    ) -> Result<(), ScheduleError> {
        let (node, most) = (self.node, MOST_QUANTUM.into());
        if let Some(quantum) = quantum.filter(|quantum| *quantum > MOST_QUANTUM) {
            let (what, value) = ("the quantum", quantum.into());
            return Err(ScheduleError::Range { node, what, value, least: 0, most });
        }
        self.leaves.make_room_for_queue();
        let Leaves { queues, flow_queues, .. } = &mut *self.leaves;
        let is_done = flow_queues[self.leaf].set_flow(queues, flow, quantum, threshold, self.trusting);
        self.check_queue_found(is_done)
    }

    fn check_queue_found(&self, is_found: bool) -> Result<(), ScheduleError> {
        let (node, most) = (self.node, self.leaves.flow_queues[self.leaf].settings().queues);
        match (is_found, self.leaves.queues.available()) {
            (true, _) => Ok(()),
            (false, 0) => Err(ScheduleError::NoQueue { node, most: self.leaves.limits().queues }),
            (false, _) => Err(ScheduleError::LeafFull { node, most }),
        }
    }

    /// Reserves a rate for a flow. The weights of all reserved flows change at once; best-effort weights stay
    /// (*Router Plugins*, section 6.1).
    ///
    /// # Errors
    /// [`ScheduleError::Reservations`] when all reservations together reach the leaf's capacity; otherwise as
    /// for [`set`](Self::set).
    pub fn reserve(&mut self, flow: FlowNumber, rate: Rate) -> Result<(), ScheduleError> {
        let node = self.node;
        if rate.0 == 0 {
            return Err(ScheduleError::Range { node, what: "the rate", value: 0, least: 1, most: u64::MAX });
        }
        let leaf = &self.leaves.flow_queues[self.leaf];
        let others = leaf.reserved_by_others(&self.leaves.queues, flow);
        let Some(capacity) = leaf.settings().capacity else {
            let text = "it has no rate to reserve from: set its rate first".to_owned();
            return Err(ScheduleError::Settings { node, text });
        };
        let sum = Rate(others.0.saturating_add(rate.0));
        if sum >= capacity && !self.trusting {
            return Err(ScheduleError::Reservations { node, flow, others, wanted: rate, sum, capacity });
        }
        self.leaves.make_room_for_queue();
        let Leaves { queues, flow_queues, .. } = &mut *self.leaves;
        let is_done = flow_queues[self.leaf].reserve(queues, flow, rate, self.trusting);
        self.check_queue_found(is_done)
    }

    /// Removes a flow's own reservation, quantum and threshold. Returns whether the flow had any of them.
    pub fn forget(&mut self, flow: FlowNumber) -> bool {
        self.leaves.flow_queues[self.leaf].forget(&mut self.leaves.queues, flow)
    }
}
