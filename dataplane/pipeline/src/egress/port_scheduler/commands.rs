//! Commands to the schedulers of ports.

use super::{
    FlowQueueReport, NODES_AT_ONCE, NodesPage, Piece, PortScheduler, QUEUES_AT_ONCE, ScheduleChange,
};
use crate::egress::ports::PortTable;
use crate::router::Router;
use millrace_schedule::ScheduleError;
use millrace_units::{Instant, PortId, QueueId};

impl PortTable {
    /// Returns a bounded part of the flow queues of a leaf, from number `first` on; none if this worker has
    /// no such scheduler.
    pub(crate) fn flow_queues(
        &self,
        port: PortId,
        leaf: QueueId,
        first: usize,
    ) -> Result<Vec<FlowQueueReport>, ScheduleError> {
        let scheduler = self.get(port).and_then(|entry| entry.scheduler.as_ref());
        scheduler.map_or(Ok(Vec::new()), |own| own.flow_queues(leaf, first, QUEUES_AT_ONCE))
    }

    /// Returns whether packets at a port wait only for room at its device.
    pub(crate) fn is_sending(&self) -> bool {
        self.iter().any(|(_, entry)| !entry.queue.is_empty())
    }

    /// Returns a bounded part of the nodes of a port's scheduler, from number `first` on; none if this worker
    /// has no such scheduler.
    pub(crate) fn nodes(&self, port: PortId, first: u32, now: Instant) -> NodesPage {
        let scheduler = self.get(port).and_then(|entry| entry.scheduler.as_ref());
        let part = scheduler.map(|own| own.tree.nodes_from(first, NODES_AT_ONCE));
        let (nodes, next) = part.unwrap_or_default();
        NodesPage { at: now, nodes, next }
    }
}

impl Router {
    /// Changes the scheduler of a port. The first node creates the scheduler. After the last piece of a list,
    /// a scheduler without nodes and packets is removed. Control has checked the resulting tree; a change
    /// that is refused nevertheless, such as of a missing node, ends the list. Nothing changes at a worker
    /// that does not own the port's device.
    pub(crate) fn schedule(
        &mut self,
        port: PortId,
        changes: &[ScheduleChange],
        piece: Piece,
        now: Instant,
    ) -> Result<(), ScheduleError> {
        // Half of the packet memory is left to packets outside schedulers.
        let frames = self.pool.capacity() / 2 / self.ports.iter().count().max(1) as u32;
        let is_ours = self.ports.get(port).is_some_and(|entry| self.has(entry.settings.device));
        let Some(entry) = self.ports.get_mut(port).filter(|_| is_ours) else { return Ok(()) };
        let scheduler = match &mut entry.scheduler {
            Some(scheduler) => scheduler,
            none => none.insert(Box::new(PortScheduler::new(frames, self.seed)?)),
        };
        scheduler.refused &= !piece.begins;
        let mut changes = if scheduler.refused { [].iter() } else { changes.iter() };
        let changed =
            changes.try_for_each(|change| scheduler.change(change, now, &mut self.scratch.queue_drops));
        scheduler.refused |= changed.is_err();
        if piece.ends && scheduler.is_empty() {
            entry.scheduler = None;
        }
        self.drop_queued();
        changed
    }
}
