//! Flows that were set aside and may go on: their port or their instance takes packets again.
//!
//! An instance whose calls another process runs makes one call at a time. So one flow goes on for each such context,
//! and principals take turns: the one that paid for the latest call comes after all others that wait.

use millrace_plugin::{AwaitedContext, Intake, Waiting};
use millrace_schedule::cpu::CpuQueues;
use millrace_units::PrincipalId;

/// Maximum number of flows that are looked at in an iteration.
const MOST_LOOKED_AT: u32 = 32;

/// Looks at the flows that were set aside.
#[derive(Debug)]
pub(crate) struct Grants {
    /// Contexts that take packets of a flow which goes on in this iteration, with the principal of the flow.
    contexts: Vec<(AwaitedContext, Option<PrincipalId>)>,
}

impl Default for Grants {
    fn default() -> Self {
        Self { contexts: Vec::with_capacity(MOST_LOOKED_AT as usize) }
    }
}

impl Grants {
    /// Whether a context takes packets of another principal in this iteration. A new flow doesn't overtake it.
    #[inline]
    pub fn is_of_other(&self, context: &AwaitedContext, payer: PrincipalId) -> bool {
        self.contexts.iter().any(|(granted, to)| granted.is_same(context) && *to != Some(payer))
    }

    /// Lets flows go on if their stage takes packets, as `intake` tells for their first one. Looks at a limited number
    /// of flows. `woken` gets the principals of those that go on.
    pub fn look_aside(
        &mut self,
        queues: &mut CpuQueues<Waiting>,
        intake: impl Fn(&Waiting) -> Intake,
        mut woken: impl FnMut(PrincipalId),
    ) {
        let contexts = &mut self.contexts;
        contexts.clear();
        for is_again in [false, true] {
            let mut was_latest = false;
            let can_go_on = |first: &Waiting| {
                let Intake { most, awaited } = intake(first);
                let Some(context) = awaited.filter(|_| most > 0) else { return most > 0 };
                let is_latest = context.latest_payer == first.payer && !is_again;
                if is_latest || contexts.iter().any(|(granted, _)| granted.is_same(&context)) {
                    was_latest |= is_latest;
                    return false;
                }
                contexts.push((context, first.payer));
                true
            };
            queues.look_aside(MOST_LOOKED_AT, can_go_on, &mut woken);
            if !was_latest {
                return;
            }
        }
    }
}
