//! Commands to the schedulers of ports.

use super::{Piece, PortScheduler, ScheduleChange};
use crate::router::Router;
use millrace_schedule::ScheduleError;
use millrace_units::{Instant, PortId};

impl Router {
    /// Changes the scheduler of a port. The first node creates the scheduler. After the last piece of a list,
    /// a scheduler without nodes and packets is removed. Control has checked the resulting tree. If a change
    /// is refused nevertheless, such as one of a missing node, the rest of the list is skipped. Nothing
    /// changes at a worker that does not own the port's device.
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
