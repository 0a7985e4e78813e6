//! Flows that were set aside and may go on: their port or their instance takes packets again.
//!
//! A context of an instance whose calls another process runs makes one call at a time. There, principals take turns
//! by their shares of the processor and the measured time of their calls ([`CpuTurns`]). The context stays free for
//! the principal whose turn it is, until it has the processor, but no longer than [`GRANT`]. A principal that can't get
//! the processor, because its limit is used up, takes no turn until it can.

use std::time::Duration;
use std::vec::Drain;

use millrace_plugin::{AwaitedContext, Intake, Served, Waiting};
use millrace_schedule::cpu::{CpuQueues, CpuScheduler, CpuTurns};
use millrace_units::{Instant, PrincipalId};

/// Maximum number of flows that are looked at in an iteration, and of those of a principal whose turn it is.
const MOST_LOOKED_AT: u32 = 32;
/// Time for which a context stays free for the principal whose turn it is.
const GRANT: Duration = Duration::from_millis(1);

/// Turns at a context.
#[derive(Debug)]
struct Turns {
    context: AwaitedContext,
    /// Principals that may have packets for the context. Whether they have any is checked at their turn.
    waiting: CpuTurns,
    /// Principal whose turn it is, and since when.
    grant: Option<(PrincipalId, Instant)>,
}

impl Turns {
    /// Returns the next principal that can get the processor, of a limited number. Others wait no longer: they wait
    /// anew when they are looked at and can.
    fn next(&mut self, scheduler: &CpuScheduler) -> Option<PrincipalId> {
        for _ in 0..MOST_LOOKED_AT {
            let payer = self.waiting.first()?;
            if scheduler.can_run(payer) {
                return Some(payer);
            }
            self.waiting.leave(payer);
        }
        None
    }

    /// Gives the turn to the next principal for which `finds` a flow, if the context `takes` packets. Returns the
    /// principal.
    fn give(
        &mut self,
        takes: bool,
        scheduler: &CpuScheduler,
        now: Instant,
        mut finds: impl FnMut(AwaitedContext, PrincipalId) -> bool,
    ) -> Option<PrincipalId> {
        match self.grant.filter(|_| takes) {
            Some((payer, since)) if now.since(since) < GRANT && scheduler.can_run(payer) => return None,
            Some((payer, _)) => self.waiting.leave(payer),
            None => {}
        }
        self.grant = None;
        if !takes {
            return None;
        }
        for _ in 0..MOST_LOOKED_AT {
            let payer = self.next(scheduler)?;
            if finds(self.context, payer) {
                self.grant = Some((payer, now));
                return Some(payer);
            }
            self.waiting.leave(payer);
        }
        None
    }

    /// Notes that a principal has packets. Returns whether it is its turn, if the context `takes` packets.
    fn takes(&mut self, payer: PrincipalId, takes: bool, scheduler: &CpuScheduler) -> bool {
        self.waiting.join(payer, scheduler.share(payer));
        let is_next = match self.grant {
            Some((granted, _)) => granted == payer,
            None => takes && self.next(scheduler) == Some(payer),
        };
        if takes && is_next {
            self.grant = None;
        }
        takes && is_next
    }
}

/// Turns at the contexts whose calls other processes run, and the look at flows that were set aside.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    contexts: Vec<Turns>,
    /// Principals of flows that go on. Scratch memory.
    woken: Vec<PrincipalId>,
}

impl Grants {
    /// Notes that a principal has packets for a context. Returns whether it is its turn, so that its packets go on now,
    /// if the context `takes` packets.
    pub fn takes_turn(
        &mut self,
        context: AwaitedContext,
        payer: PrincipalId,
        takes: bool,
        scheduler: &CpuScheduler,
    ) -> bool {
        let turns = turns_at(&mut self.contexts, context);
        turns.is_some_and(|turns| turns.takes(payer, takes, scheduler))
    }

    /// Charges an ended call to its principal.
    pub fn charge(&mut self, Served { context, payer, took }: Served) {
        if let Some(turns) = turns_at(&mut self.contexts, context) {
            turns.waiting.charge(payer, took);
        }
    }

    /// Forgets a removed principal.
    pub fn forget(&mut self, payer: PrincipalId) {
        for turns in &mut self.contexts {
            turns.waiting.forget(payer);
            turns.grant.take_if(|(granted, _)| *granted == payer);
        }
    }

    /// Lets flows go on if their stage takes packets, as `intake` tells for their first one; for a context whose calls
    /// another process runs, a flow of the principal whose turn it is. Looks at a limited number of flows. `takes`:
    /// whether a context takes packets; `None` if it exists no longer. Returns the principals of flows that go on.
    pub fn look_aside(
        &mut self,
        queues: &mut CpuQueues<Waiting>,
        (intake, takes): (impl Fn(&Waiting) -> Intake, impl Fn(&AwaitedContext) -> Option<bool>),
        scheduler: &CpuScheduler,
        now: Instant,
    ) -> Drain<'_, PrincipalId> {
        let Self { contexts, woken } = self;
        let can_go_on = |first: &Waiting| match (intake(first), first.payer) {
            (Intake { awaited: Some(context), .. }, Some(payer)) => {
                let turns = turns_at(contexts, context).filter(|_| scheduler.can_run(payer));
                turns.is_some_and(|turns| turns.takes(payer, false, scheduler))
            }
            (Intake { most, .. }, _) => most > 0,
        };
        queues.look_aside(MOST_LOOKED_AT, can_go_on, |payer| woken.push(payer));
        contexts.retain_mut(|turns| {
            let Some(takes) = takes(&turns.context) else { return false };
            let finds = |context, payer| {
                let wants = |first: &Waiting| {
                    let Intake { most, awaited } = intake(first);
                    most > 0 && awaited == Some(context)
                };
                queues.first(payer).is_some_and(wants) || queues.look_at(payer, MOST_LOOKED_AT, wants)
            };
            woken.extend(turns.give(takes, scheduler, now, finds));
            true
        });
        woken.drain(..)
    }
}

/// Returns the turns at a context, which may be new.
fn turns_at(contexts: &mut Vec<Turns>, context: AwaitedContext) -> Option<&mut Turns> {
    let place = contexts.iter().position(|turns| turns.context == context);
    if place.is_none() {
        contexts.push(Turns { context, waiting: CpuTurns::default(), grant: None });
    }
    match place {
        Some(place) => contexts.get_mut(place),
        None => contexts.last_mut(),
    }
}
