//! Commands about principals: owners of shares of the processor.

use millrace_plugin::{Payers, PrincipalMemory};
use millrace_schedule::cpu::{CpuPrincipal, CpuScheduleError, CpuSchedulerSettings};
use millrace_units::{Instant, PrincipalId};

use super::{ReplyTo, answer};
use crate::offloaded_flows::Invalidation;
use crate::pending::core_settings::CoreSettings;
use crate::pending::for_processor::{ForProcessor, PrincipalSettings};
use crate::router::Router;
use crate::router::slices::Slices;

/// Command about principals.
#[derive(Debug)]
pub enum PrincipalCommand {
    /// Sets the CPU scheduler and the share of core. The first such command makes the scheduler.
    Configure(CpuSchedulerSettings, CoreSettings, ReplyTo<Result<(), CpuScheduleError>>),
    /// Adds a principal, or changes its settings.
    Set(PrincipalId, PrincipalSettings, ReplyTo<Result<(), CpuScheduleError>>),
    /// Changes the parts of principals' shares at this worker, in order. A part that doesn't fit changes nothing.
    Share(Vec<(PrincipalId, CpuPrincipal)>),
    /// Limits the memory of a principal at this worker: flow state, waiting packets and sandboxed instances, in
    /// bytes; `None` lifts the limit.
    LimitMemory(PrincipalId, Option<u64>),
    /// Drops the packets that wait for a principal.
    DropWaiting(PrincipalId),
    /// Removes a principal. No binding may name it; its waiting packets continue.
    Remove(PrincipalId),
}

impl PrincipalCommand {
    pub(super) fn invalidation(&self) -> Invalidation<'_> {
        match self {
            // Principals change when packets of a path run, not their path.
            Self::Configure(..)
            | Self::Set(..)
            | Self::Share(..)
            | Self::LimitMemory(..)
            | Self::DropWaiting(_)
            | Self::Remove(_) => Invalidation::Nothing,
        }
    }

    pub(super) fn is_small(&self) -> bool {
        match self {
            Self::Set(..) | Self::LimitMemory(..) => true,
            Self::Configure(..) | Self::Share(..) | Self::DropWaiting(_) | Self::Remove(_) => false,
        }
    }

    /// Carries out the command.
    pub(crate) fn carry_out(self, router: &mut Router, now: Instant) {
        let (seed, loads) = (router.seed, router.pending.loads.clone());
        match self {
            Self::Configure(settings, core, reply) => {
                let result = match router.pending.for_processor.get_mut() {
                    Some(waiting) => waiting.scheduler.set(settings, now),
                    None => {
                        let waiting = ForProcessor::new(settings, loads, (router.pool.capacity(), seed));
                        router.pending.for_processor.put(Box::new(waiting));
                        Payers::of(router.gates.plugins_mut()).schedule(crate::tsc::cycles);
                        Ok(())
                    }
                };
                if let Some(waiting) = router.pending.for_processor.get_mut().filter(|_| result.is_ok()) {
                    waiting.core.set(core);
                }
                answer(&reply, result);
            }
            Self::Set(id, settings, reply) => {
                let limit = memory(router).account(id).limit;
                memory(router).set_limit(id, limit);
                Payers::of(router.gates.plugins_mut()).set_queue(id, settings.link_queue);
                let result = match router.pending.for_processor.get_mut() {
                    Some(waiting) => waiting.set(id, settings, now),
                    None => Err(CpuScheduleError::Unknown(id.0)),
                };
                answer(&reply, result);
            }
            Self::Share(parts) => {
                if let Some(waiting) = router.pending.for_processor.get_mut() {
                    parts.into_iter().for_each(|(id, cpu)| waiting.share(id, cpu, now));
                }
            }
            Self::LimitMemory(id, limit) => memory(router).set_limit(id, limit),
            Self::DropWaiting(id) => Slices::of(router).drop_waiting(id, now),
            Self::Remove(id) => Slices::of(router).remove(id, now),
        }
    }
}

fn memory(router: &mut Router) -> &mut PrincipalMemory {
    Payers::memory(router.gates.plugins_mut())
}
