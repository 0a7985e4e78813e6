//! Commands about principals: owners of shares of the processor.

use millrace_plugin::Payers;
use millrace_schedule::cpu::{CpuScheduleError, CpuSchedulerSettings};
use millrace_units::{Instant, PrincipalId};

use super::{ReplyTo, answer};
use crate::offloaded_flows::Invalidation;
use crate::pending::for_processor::{ForProcessor, PrincipalSettings};
use crate::router::Router;
use crate::router::slices::Slices;

/// Command about principals.
#[derive(Debug)]
pub enum PrincipalCommand {
    /// Sets the CPU scheduler. The first such command makes it.
    Configure(CpuSchedulerSettings, ReplyTo<Result<(), CpuScheduleError>>),
    /// Adds a principal, or changes its settings.
    Set(PrincipalId, PrincipalSettings, ReplyTo<Result<(), CpuScheduleError>>),
    /// Removes a principal. No binding may name it; its waiting packets continue.
    Remove(PrincipalId),
}

impl PrincipalCommand {
    pub(super) fn invalidation(&self) -> Invalidation<'_> {
        match self {
            // Principals change when packets of a path run, not their path.
            Self::Configure(..) | Self::Set(..) | Self::Remove(_) => Invalidation::Nothing,
        }
    }

    pub(super) fn is_small(&self) -> bool {
        match self {
            Self::Set(..) => true,
            Self::Configure(..) | Self::Remove(_) => false,
        }
    }

    /// Carries out the command.
    pub(crate) fn carry_out(self, router: &mut Router, now: Instant) {
        let seed = router.seed;
        match self {
            Self::Configure(settings, reply) => {
                let result = match &mut router.pending.for_processor {
                    Some(waiting) => waiting.scheduler.set(settings, now),
                    none => {
                        *none = Some(Box::new(ForProcessor::new(settings, seed)));
                        Payers::of(router.gates.plugins_mut()).schedule();
                        Ok(())
                    }
                };
                answer(&reply, result);
            }
            Self::Set(id, settings, reply) => {
                let result = match &mut router.pending.for_processor {
                    Some(waiting) => waiting.set(id, settings, now),
                    None => Err(CpuScheduleError::Unknown(id.0)),
                };
                answer(&reply, result);
            }
            Self::Remove(id) => Slices::of(router).remove(id, now),
        }
    }
}
