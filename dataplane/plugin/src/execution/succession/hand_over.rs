//! Hand-over of the state of an instance to its successor, for each context on its own.
//!
//! Another process may save or restore the state. So the worker never waits for the end of a hand-over: it looks in each
//! iteration, until all contexts have ended.

use std::task::Poll;
use std::time::Duration;

use millrace_plugin_abi::{Instance, PluginError};
use millrace_units::Instant;

use super::{Inheritance, Inherited, Successor};
use crate::execution::instances::{Awaited, Contexts, Hosted, News};

/// Maximum time in which a process saves the state of a context, or restores it.
const LONGEST: Duration = Duration::from_secs(1);

/// State hand-over, with a step for each context of the old instance.
#[derive(Default)]
pub(crate) struct HandOver {
    steps: Vec<Step>,
    /// Time of the latest look.
    seen: Option<Instant>,
}

/// Step of the hand-over of a context.
enum Step {
    /// Not begun.
    Waits,
    /// The old context saves its state.
    Saves(Awaited),
    /// The new context restores this state.
    Restores(Awaited, Vec<u8>),
    Ended(Result<Inherited, String>),
}

impl HandOver {
    /// Whether the hand-over has begun.
    pub fn has_begun(&self) -> bool {
        !self.steps.is_empty()
    }

    /// Begins or continues the hand-over. Returns the result for all contexts together once all have ended; `None`
    /// before that. If a context fails, the contexts behind it that have not begun don't begin.
    pub fn go_on(
        &mut self,
        old: &mut Contexts,
        successor: &mut Successor,
        now: Instant,
        news: &mut News,
    ) -> Option<Result<Inherited, String>> {
        if successor.inheritance == Inheritance::Renounced {
            return Some(Ok(Inherited::Nothing));
        }
        // Each context of the instance asks, but one look in an iteration is enough.
        if self.seen.replace(now) == Some(now) {
            return None;
        }
        if self.steps.is_empty() {
            self.steps = (0..old.count()).map(|_| Step::Waits).collect();
        }
        let (count, mut is_refused) = (old.count(), false);
        for (number, step) in (0..count).zip(&mut self.steps) {
            if let Some(hosted) = old.get_mut(number)
                && !(is_refused && matches!(step, Step::Waits))
            {
                Context { number, count, hosted, successor }.go_on(step, now, news);
            }
            is_refused |= matches!(step, Step::Ended(Err(_)));
        }
        self.result()
    }

    fn result(&self) -> Option<Result<Inherited, String>> {
        let mut inherited = Ok(Inherited::Nothing);
        for step in &self.steps {
            inherited = match (inherited, step) {
                (before, Step::Ended(result)) => before.and_then(|before| Ok(before.and(result.clone()?))),
                (Err(problem), Step::Waits) => Err(problem),
                _ => return None,
            };
        }
        Some(inherited)
    }
}

/// Context that hands its state over to the same context of the successor, if that has one.
struct Context<'a> {
    number: u8,
    /// Number of contexts of the old instance.
    count: u8,
    hosted: &'a mut Hosted,
    successor: &'a mut Successor,
}

impl Context<'_> {
    fn go_on(&mut self, step: &mut Step, now: Instant, news: &mut News) {
        if matches!(step, Step::Waits) {
            *step = self.begin(now, news);
        }
        if let Step::Saves(times) = step
            && let Some(next) = self.save(times, now)
        {
            *step = next;
        }
        if let Step::Restores(times, state) = step
            && let Some(result) = self.restore(times, state, now)
        {
            *step = Step::Ended(result);
        }
    }

    fn begin(&mut self, now: Instant, news: &mut News) -> Step {
        let Self { number, hosted, successor, .. } = self;
        // Before asking for the context's state, restart the context if its pause is over.
        let is_well = hosted.is_well(now, news);
        let common = hosted.instance.service_state();
        let same_version = successor.same_version;
        match successor.contexts.get_mut(usize::from(*number)) {
            Some(new) => {
                if same_version && common.len() == new.service_state().len() {
                    new.adopt_service_state(&common);
                }
                if !is_well {
                    let health = hosted.record.health.name();
                    return Step::Ended(Ok(Inherited::Lost(format!(
                        "the old instance was {health} and handed over no state; the new instance starts without state"
                    ))));
                }
            }
            None if !is_well => return Step::Ended(Ok(Inherited::Nothing)),
            None if !common.is_empty() => return self.abandon(),
            None => {}
        }
        Step::Saves(Awaited::since(now))
    }

    /// Ends a context without a counterpart that has state.
    fn abandon(&self) -> Step {
        Step::Ended(self.successor.lose(format!(
            "the new version has fewer contexts, {} instead of {}, and the state of the other contexts would be lost",
            self.successor.contexts.len(),
            self.count
        )))
    }

    /// Looks whether the old context has saved its state. Returns the next step then.
    fn save(&mut self, times: &mut Awaited, now: Instant) -> Option<Step> {
        let saved = self.hosted.call(|old| within(times, old, now, |old| old.poll_save()))?;
        let has_counterpart = self.successor.contexts.get(usize::from(self.number)).is_some();
        Some(match saved {
            Ok(None) if has_counterpart && self.successor.inheritance == Inheritance::Indispensable => {
                Step::Ended(Err("the old instance can't hand over its state".to_owned()))
            }
            Ok(None) => Step::Ended(Ok(Inherited::Nothing)),
            _ if !has_counterpart => self.abandon(),
            Ok(Some(state)) => Step::Restores(Awaited::since(now), state),
            Err(error) => {
                Step::Ended(self.successor.lose(format!("the old instance hands over no state: {error}")))
            }
        })
    }

    /// Looks whether the new context has restored the state. Returns the result then.
    fn restore(
        &mut self,
        times: &mut Awaited,
        state: &[u8],
        now: Instant,
    ) -> Option<Result<Inherited, String>> {
        let Successor { contexts, version, inheritance, .. } = &mut *self.successor;
        let new = contexts.get_mut(usize::from(self.number))?;
        let restore = |new: &mut dyn Instance| new.poll_restore(state, *version);
        let restored = self.hosted.call(|_| within(times, &mut **new, now, restore))?;
        let Err(error) = restored else { return Some(Ok(Inherited::Bytes(state.len()))) };
        let problem = format!("the new instance does not accept the state: {error}");
        Some(match inheritance {
            Inheritance::Tried => begin_anew(&mut **new, problem),
            _ => Err(problem),
        })
    }
}

impl Successor {
    /// Returns the result for state that is lost for this reason.
    fn lose(&self, problem: String) -> Result<Inherited, String> {
        if self.inheritance == Inheritance::Tried { Ok(Inherited::Lost(problem)) } else { Err(problem) }
    }
}

/// Polls an instance. Returns the result once there is one. Aborts an instance that has had its time.
fn within<T>(
    times: &mut Awaited,
    instance: &mut dyn Instance,
    now: Instant,
    poll: impl FnOnce(&mut dyn Instance) -> Poll<Result<T, PluginError>>,
) -> Option<Result<T, String>> {
    if let Poll::Ready(result) = poll(instance) {
        return Some(result.map_err(|error| error.to_string()));
    }
    times.look(0, now);
    let exceeded = times.exceeded(LONGEST, || (None, 1))?;
    instance.abort();
    Some(Err(exceeded.to_string()))
}

/// Restarts a successor that refused the state, because it may have adopted a part of the state.
fn begin_anew(instance: &mut dyn Instance, problem: String) -> Result<Inherited, String> {
    match instance.restart() {
        Ok(()) => Ok(Inherited::Lost(problem)),
        Err(error) => Err(format!("{problem}; and the new instance can't restart: {error}")),
    }
}
