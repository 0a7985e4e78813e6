//! Single flows of a leaf with a queue per flow: their quanta, thresholds and reserved rates.

use super::node::Kind;
use super::{LinkScheduler, NodeId, ScheduleError, in_range};
use crate::link::flow_queues::FlowQueuesSettings;
use crate::link::weights::MOST_QUANTUM;
use crate::queue_manager::MOST_QUEUES;
use crate::{FlowNumber, Item, QueueView, Rate};

impl<T: Item> LinkScheduler<T> {
    fn flow_leaf(&self, node: NodeId) -> Result<u32, ScheduleError> {
        match self.known(node)?.kind {
            Kind::FlowQueues(index) => Ok(index),
            _ => {
                let text = "it has no queue per flow; name a flow-queues node".to_owned();
                Err(ScheduleError::Settings { node, text })
            }
        }
    }

    /// Gives a flow its own queue with a quantum or threshold. The quantum is in bytes on the wire per round,
    /// up to 2^30; 0 restores the common quantum and ends a reservation. `Some(None)` restores the common
    /// threshold. `None` leaves a value unchanged.
    ///
    /// # Errors
    /// [`ScheduleError`] when the node has no flows, the quantum is out of range or no queue is left.
    pub fn set_flow(
        &mut self,
        node: NodeId,
        flow: FlowNumber,
        quantum: Option<u32>,
        threshold: Option<Option<u32>>,
    ) -> Result<(), ScheduleError> {
        let index = self.flow_leaf(node)?;
        if let Some(quantum) = quantum.filter(|quantum| *quantum > MOST_QUANTUM) {
            let (what, value, most) = ("the quantum", quantum.into(), MOST_QUANTUM.into());
            return Err(ScheduleError::Range { node, what, value, least: 0, most });
        }
        self.make_room_for_queue();
        let done = self.flow_queues.get_mut(index).set_flow(
            &mut self.queues,
            flow,
            quantum,
            threshold,
            self.trusting,
        );
        self.flow_queues.get_mut(index).note_said(&self.queues);
        self.queue_found(node, index, done)
    }

    fn queue_found(&self, node: NodeId, leaf: u32, done: bool) -> Result<(), ScheduleError> {
        let most = self.flow_queues.get(leaf).settings.queues;
        match (done, self.queues.available()) {
            (true, _) => Ok(()),
            (false, 0) => Err(ScheduleError::NoQueue { node, most: self.limits.queues }),
            (false, _) => Err(ScheduleError::LeafFull { node, most }),
        }
    }

    /// Reserves a rate for a flow. The weights of all reserved flows change at once; best-effort weights stay
    /// (*Router Plugins*, section 6.1).
    ///
    /// # Errors
    /// [`ScheduleError::Reservations`] when all reservations together reach the leaf's capacity; otherwise as
    /// for [`set_flow`](Self::set_flow).
    pub fn reserve_flow(&mut self, node: NodeId, flow: FlowNumber, rate: Rate) -> Result<(), ScheduleError> {
        let index = self.flow_leaf(node)?;
        if rate.0 == 0 {
            return Err(ScheduleError::Range { node, what: "the rate", value: 0, least: 1, most: u64::MAX });
        }
        let leaf = self.flow_queues.get_mut(index);
        let others = leaf.reserved_by_others(&self.queues, flow);
        let Some(capacity) = leaf.settings.capacity else {
            let text = "it has no rate to reserve from: set its rate first".to_owned();
            return Err(ScheduleError::Settings { node, text });
        };
        let sum = Rate(others.0.saturating_add(rate.0));
        if sum >= capacity && !self.trusting {
            return Err(ScheduleError::Reservations { node, flow, others, wanted: rate, sum, capacity });
        }
        self.make_room_for_queue();
        let leaf = self.flow_queues.get_mut(index);
        let done = leaf.reserve(&mut self.queues, flow, rate, self.trusting);
        leaf.note_said(&self.queues);
        self.queue_found(node, index, done)
    }

    /// Removes a flow's own reservation, quantum and threshold. Returns whether the flow had one of these.
    ///
    /// # Errors
    /// [`ScheduleError`] when the node has no flows.
    pub fn forget_flow(&mut self, node: NodeId, flow: FlowNumber) -> Result<bool, ScheduleError> {
        let index = self.flow_leaf(node)?;
        let leaf = self.flow_queues.get_mut(index);
        let was_said = leaf.forget(&mut self.queues, flow);
        leaf.note_said(&self.queues);
        Ok(was_said)
    }

    /// Returns a flow's own queue, with its quantum in force and its reserved rate; `None` if the flow has no
    /// queue.
    ///
    /// # Errors
    /// [`ScheduleError`] when the node has no flows.
    pub fn flow(
        &self,
        node: NodeId,
        flow: FlowNumber,
    ) -> Result<Option<(QueueView, Option<Rate>)>, ScheduleError> {
        let index = self.flow_leaf(node)?;
        let leaf = self.flow_queues.get(index);
        let Some(queue) = leaf.queue_of(flow) else { return Ok(None) };
        let (quantum, rate) = leaf.quantum(&self.queues, queue);
        Ok(Some((QueueView { quantum, ..self.queues.view(queue) }, rate)))
    }

    /// Returns the queue of a FIFO with all counters; `None` for other nodes.
    pub fn queue(&self, node: NodeId) -> Option<QueueView> {
        match self.node(node)?.kind {
            Kind::Fifo(fifo) => Some(self.queues.view(fifo.0)),
            _ => None,
        }
    }

    /// Returns up to `most` flows with their own queues, from index `first` on. The order is arbitrary, and
    /// constant while no flow arrives or leaves. The last entry, without a flow, is the shared queue, if it
    /// was ever used.
    ///
    /// # Errors
    /// [`ScheduleError`] when the node has no flows.
    pub fn flows(
        &self,
        node: NodeId,
        first: usize,
        most: usize,
    ) -> Result<Vec<(Option<FlowNumber>, QueueView)>, ScheduleError> {
        let leaf = self.flow_queues.get(self.flow_leaf(node)?);
        let view = |queue: u32| {
            let (quantum, _) = leaf.quantum(&self.queues, queue);
            QueueView { quantum, ..self.queues.view(queue) }
        };
        let flow = |queue: u32| Some(FlowNumber(self.queues.queue(queue).flow));
        let own = leaf.queues().skip(1).map(|queue| (flow(queue), queue));
        let shared = leaf.queues().take(1).filter(|queue| self.queues.view(*queue).offered_packets > 0);
        let all = own.chain(shared.map(|queue| (None, queue)));
        Ok(all.skip(first).take(most).map(|(flow, queue)| (flow, view(queue))).collect())
    }

    /// Takes back all unused queues of flows, if no queue of the port is free.
    pub(super) fn make_room_for_queue(&mut self) {
        if self.queues.available() == 0 {
            self.take_back_queues(usize::MAX);
        }
    }

    /// Takes back unused queues of flows, checking up to `most` queues of each node.
    #[cold]
    #[inline(never)]
    pub(super) fn take_back_queues(&mut self, most: usize) {
        self.queues.is_short = false;
        for index in 0..self.nodes.len() {
            if let Kind::FlowQueues(leaf) = self.nodes[index].kind {
                self.flow_queues.get_mut(leaf).give_back(&mut self.queues, most);
            }
        }
    }

    /// Changes the maximum number of queues of the port. Queues that hold packets, or are kept for one flow,
    /// stay in excess of it.
    ///
    /// # Errors
    /// [`ScheduleError`] when the number is out of range, or fewer than a leaf may have; nothing has changed
    /// then.
    pub fn set_most_queues(&mut self, most: u32) -> Result<(), ScheduleError> {
        in_range("queues", most.into(), 1, MOST_QUEUES.into())?;
        let leaves = self.nodes.iter().enumerate().filter_map(|(index, node)| match node.kind {
            Kind::FlowQueues(leaf) => {
                Some((NodeId(index as u32), self.flow_queues.get(leaf).settings.queues))
            }
            _ => None,
        });
        for (node, queues) in leaves {
            self.leaf_fits(node, queues, most)?;
        }
        self.take_back_queues(usize::MAX);
        self.limits.queues = most;
        self.queues.set_limit(most);
        Ok(())
    }

    /// Returns the number of queues in use, and the maximum number of queues.
    pub fn queue_counts(&self) -> (u32, u32) {
        (self.queues.in_use(), self.limits.queues)
    }

    /// Changes the settings of a leaf with a queue per flow.
    pub(super) fn set_flow_queues(
        &mut self,
        node: NodeId,
        index: u32,
        settings: &FlowQueuesSettings,
    ) -> Result<(), ScheduleError> {
        self.leaf_fits(node, settings.queues, self.limits.queues)?;
        let trusting = self.trusting;
        let leaf = self.flow_queues.get_mut(index);
        let (before, reserved) = (leaf.settings, leaf.reserved());
        if !trusting && reserved > Rate(0) && settings.capacity.is_none_or(|capacity| capacity <= reserved) {
            let rate = settings
                .capacity
                .map_or("a missing rate".to_owned(), |capacity| format!("a rate of {capacity}"));
            let flows = leaf.reservations();
            let text = format!(
                "{rate} is not above the {reserved} reserved for {flows} of its flows: remove reservations \
                 first"
            );
            return Err(ScheduleError::Settings { node, text });
        }
        leaf.set(FlowQueuesSettings { seed: before.seed, ..*settings });
        if let Err(error) = self.check_promises(node) {
            self.flow_queues.get_mut(index).set(before);
            return Err(error);
        }
        let leaf = self.flow_queues.get_mut(index);
        leaf.shed(&mut self.queues);
        if settings.queue != before.queue {
            for queue in leaf.queues() {
                self.queues.set_common(queue, &settings.queue);
            }
        }
        Ok(())
    }

    /// Checks that a leaf's `queues` for flows, and its shared queue, fit into the `most` queues of the port.
    pub(super) fn leaf_fits(&self, node: NodeId, queues: u32, most: u32) -> Result<(), ScheduleError> {
        let fits = queues < most || self.trusting;
        if fits { Ok(()) } else { Err(ScheduleError::LeafQueues { node, queues, most }) }
    }
}
