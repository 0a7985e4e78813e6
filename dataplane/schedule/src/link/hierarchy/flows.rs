//! Flows of a leaf with a queue per flow: quanta, thresholds and reserved rates of their own.

use millrace_units::Instant;

use super::node::Kind;
use super::parameters::check_queue;
use super::{LinkScheduler, NodeId, ScheduleError};
use crate::link::flow_queues::{FlowQueuesSettings, MOST_QUANTUM};
use crate::{FlowNumber, Item, QueueSettings, QueueView, Rate};

impl<T: Item> LinkScheduler<T> {
    fn flow_leaf(&self, node: NodeId) -> Result<u32, ScheduleError> {
        match self.known(node)?.kind {
            Kind::FlowQueues(index) => Ok(index),
            _ => {
                let text = "it has no queue for each flow; flow-queues has".to_owned();
                Err(ScheduleError::Settings { node, text })
            }
        }
    }

    /// Gives a flow a queue with a quantum of its own, in bytes on the wire per round up to 2^30, and its own threshold.
    /// With quantum 0 it has the common quantum again. Ends a reservation of that flow.
    ///
    /// # Errors
    /// [`ScheduleError`] when the node has no flows, the quantum is out of range or no queue is left.
    pub fn set_flow(
        &mut self,
        node: NodeId,
        flow: FlowNumber,
        quantum: u32,
        settings: &QueueSettings,
        now: Instant,
    ) -> Result<(), ScheduleError> {
        let index = self.flow_leaf(node)?;
        check_queue(node, settings)?;
        if quantum > MOST_QUANTUM {
            let (what, value, most) = ("the quantum", quantum.into(), MOST_QUANTUM.into());
            return Err(ScheduleError::Range { node, what, value, least: 0, most });
        }
        let done = self.flow_queues.get_mut(index).set_flow(&mut self.queues, flow, quantum, settings, now);
        self.queue_found(node, done)
    }

    fn queue_found(&self, node: NodeId, done: bool) -> Result<(), ScheduleError> {
        if done { Ok(()) } else { Err(ScheduleError::NoQueue { node, most: self.limits.queues }) }
    }

    /// Reserves a rate for a flow. The weights of all reserved flows follow at once; those of best effort stay
    /// (*Router Plugins*, section 6.1).
    ///
    /// # Errors
    /// [`ScheduleError::Reservations`] when all together reach the leaf's capacity, and as for
    /// [`set_flow`](Self::set_flow).
    pub fn reserve_flow(
        &mut self,
        node: NodeId,
        flow: FlowNumber,
        rate: Rate,
        now: Instant,
    ) -> Result<(), ScheduleError> {
        let index = self.flow_leaf(node)?;
        if rate.0 == 0 {
            return Err(ScheduleError::Range { node, what: "the rate", value: 0, least: 1, most: u64::MAX });
        }
        let leaf = self.flow_queues.get_mut(index);
        let (others, capacity) = (leaf.reserved_by_others(&self.queues, flow), leaf.settings.capacity);
        let sum = Rate(others.0.saturating_add(rate.0));
        if sum >= capacity {
            return Err(ScheduleError::Reservations { node, flow, others, wanted: rate, sum, capacity });
        }
        let done = leaf.reserve(&mut self.queues, flow, rate, now);
        self.queue_found(node, done)
    }

    /// Ends a flow's reservation: it goes on as best effort. Returns whether it had one.
    ///
    /// # Errors
    /// [`ScheduleError`] when the node has no flows.
    pub fn release_flow(&mut self, node: NodeId, flow: FlowNumber) -> Result<bool, ScheduleError> {
        let index = self.flow_leaf(node)?;
        Ok(self.flow_queues.get_mut(index).release(&mut self.queues, flow))
    }

    /// A flow's queue, with its quantum in force and its reserved rate; `None` while it has none of its own.
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

    /// The queue of a FIFO, with counters before and behind it; `None` for other nodes.
    pub fn queue(&self, node: NodeId) -> Option<QueueView> {
        match self.node(node)?.kind {
            Kind::Fifo(fifo) => Some(self.queues.view(fifo.0)),
            _ => None,
        }
    }

    /// Up to `most` flows with a queue of their own, from the `first` on, with these queues: in no order that means
    /// anything, which holds as long as no flow comes or goes.
    ///
    /// # Errors
    /// [`ScheduleError`] when the node has no flows.
    pub fn flows(
        &self,
        node: NodeId,
        first: usize,
        most: usize,
    ) -> Result<Vec<(FlowNumber, QueueView)>, ScheduleError> {
        let leaf = self.flow_queues.get(self.flow_leaf(node)?);
        let own = leaf.queues().skip(1).skip(first).take(most);
        let view = |queue: u32| {
            let (quantum, _) = leaf.quantum(&self.queues, queue);
            (FlowNumber(self.queues.queue(queue).flow), QueueView { quantum, ..self.queues.view(queue) })
        };
        Ok(own.map(view).collect())
    }

    /// Takes back queues of flows that have been idle for as long as their node says, looking at up to `most` queues of
    /// each node. It is done by itself where a node wants a queue and has none left; this makes room for others.
    pub fn take_back_idle_queues(&mut self, now: Instant, most: usize) {
        let leaves: Vec<u32> = self
            .nodes
            .iter()
            .filter_map(|node| match node.kind {
                Kind::FlowQueues(index) => Some(index),
                _ => None,
            })
            .collect();
        for index in leaves {
            self.flow_queues.get_mut(index).reclaim(&mut self.queues, now, most);
        }
    }

    /// Other settings of a leaf with a queue per flow. The number of flows' places, and so of queues, can't grow beyond
    /// what it was made for.
    pub(super) fn set_flow_queues(
        &mut self,
        node: NodeId,
        index: u32,
        settings: &FlowQueuesSettings,
    ) -> Result<(), ScheduleError> {
        let leaf = self.flow_queues.get_mut(index);
        let (before, reserved) = (leaf.settings, leaf.reserved());
        if settings.queues > before.queues {
            let (what, value, most) = ("queues", settings.queues.into(), before.queues.into());
            return Err(ScheduleError::Range { node, what, value, least: 1, most });
        }
        if settings.capacity <= reserved {
            let text =
                format!("capacity {} must stay above the {reserved} that is reserved", settings.capacity);
            return Err(ScheduleError::Settings { node, text });
        }
        leaf.set(FlowQueuesSettings { seed: before.seed, ..*settings });
        if settings.queue != before.queue {
            for queue in leaf.queues() {
                self.queues.set(queue, &settings.queue);
            }
        }
        Ok(())
    }
}
