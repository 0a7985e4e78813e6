//! Changes of a port's scheduler by control.

use millrace_schedule::ScheduleError;
use millrace_units::Instant;

use super::{Piece, PortScheduler, QueueDrops, ScheduleChange};
use crate::ports::PortEntry;

impl PortEntry {
    /// Changes the scheduler of the port. The first change creates the scheduler, with room for `frames`
    /// memory frames. After the last piece of a list, a scheduler without nodes and packets is removed.
    /// Control has checked the resulting tree. If a change is refused nevertheless, such as the removal of a
    /// missing node, the rest of the list is skipped.
    pub(crate) fn change_scheduler(
        &mut self,
        (changes, piece): (&[ScheduleChange], Piece),
        (frames, seed): (u32, u64),
        now: Instant,
        drops: &mut QueueDrops,
    ) -> Result<(), ScheduleError> {
        let scheduler = match &mut self.scheduler {
            Some(scheduler) => scheduler,
            none => none.insert(Box::new(PortScheduler::new(frames, seed)?)),
        };
        scheduler.refused &= !piece.begins;
        let mut changes = if scheduler.refused { [].iter() } else { changes.iter() };
        let changed = changes.try_for_each(|change| scheduler.change(change, now, drops));
        scheduler.refused |= changed.is_err();
        if piece.ends && scheduler.is_empty() {
            self.scheduler = None;
        }
        changed
    }
}
