//! Upgrade of an instance between two batches: a successor replaces it and gets its state.
//!
//! All contexts are replaced together, once none of them has a running call. Each hands its state over to the
//! same context of the successor.
//!
//! Paths and bindings stay, because they refer to the slot and not to the instance. If the successor's flow
//! state has another format, flows are classified again, and their state starts empty.

use millrace_plugin_abi::Instance;
use millrace_units::{InstanceId, Instant};

use super::Calls;
use crate::BindingTable;
use crate::execution::bindings::Bindings;
use crate::execution::health::{FaultHistory, Health};
use crate::execution::instances::{Contexts, Hosted, News};
use crate::execution::succession::{Inheritance, Inherited, Successed, Succession, Successor};
use crate::execution::waiting::{Backlog, Upgrade};
use crate::slab::Key;

impl Calls {
    /// Replaces an instance by a successor: now, or as soon as none of its contexts has a running call. `told`
    /// receives the result, with the copies that are no longer needed. It must pass them to another thread,
    /// because dropping them may take long.
    pub fn succeed<T: BindingTable>(
        &mut self,
        id: InstanceId,
        successor: Successor,
        bindings: &mut Bindings<T>,
        now: Instant,
        told: Successed,
    ) {
        let Some(key) = self.instances.key(id) else { return told(None) };
        if self.waiting.has_busy_context(key) {
            return self.waiting.await_upgrade(key, self.instances.contexts(key), successor, told);
        }
        self.succeed_now(key, successor, bindings, now, told);
    }

    /// Carries out the upgrade that the context of `backlog` waits for. Returns `false` if another context has
    /// to end its call first.
    pub(super) fn succeed_waiting<T: BindingTable>(
        &mut self,
        backlog: &mut Backlog,
        bindings: &mut Bindings<T>,
        now: Instant,
    ) -> bool {
        let Some(Upgrade { successor, told, .. }) = self.waiting.take_upgrade(backlog) else { return false };
        let key = self.succeed_now(backlog.context.instance, successor, bindings, now, told);
        let contexts = self.instances.contexts(key);
        if contexts > 0 {
            self.waiting.follow_upgrade(backlog, key, contexts);
        }
        true
    }

    /// Replaces an instance that has no running call; returns its new key.
    fn succeed_now<T: BindingTable>(
        &mut self,
        key: Key,
        successor: Successor,
        bindings: &mut Bindings<T>,
        now: Instant,
        told: Successed,
    ) -> Key {
        let Some((old, news)) = self.instances.contexts_mut(key) else {
            told(None);
            return key;
        };
        let same_version = successor.same_version;
        let restored = successor.history.clone();
        let history = FaultHistory(old.iter().map(|hosted| hosted.record).collect());
        let (mut contexts, inherited) = hand_over(old, successor, now, news);
        if inherited.is_err() {
            // The old copies stay. If one failed while it saved its state, it restarts at once, without its
            // state.
            old.iter_mut().for_each(|hosted| hosted.recover(now, news));
            told(Some(Succession { contexts, inherited, history }));
            return key;
        }
        let flow_state = |contexts: &Contexts| contexts.first().instance.flow_state();
        let before = flow_state(old);
        contexts = old.replace(contexts, news);
        old.restore(restored.unwrap_or_default(), news);
        let after = flow_state(old);
        let new = self.instances.introduce(key, before == after && same_version || before == 0);
        if let Some(new) = new {
            self.states.expect(new.state.into());
            bindings.rebind(key, new);
        }
        told(Some(Succession { contexts, inherited, history }));
        new.map_or(key, |new| new.key)
    }
}

/// Hands the state of each context over to the same context of the successor. Returns the copies of the
/// successor, with the result for all contexts together.
fn hand_over(
    old: &mut Contexts,
    successor: Successor,
    now: Instant,
    news: &mut News,
) -> (Vec<Box<dyn Instance>>, Result<Inherited, String>) {
    let Successor { mut contexts, inheritance, version, same_version, .. } = successor;
    let count = (usize::from(old.count()), contexts.len());
    if inheritance == Inheritance::Renounced {
        return (contexts, Ok(Inherited::Nothing));
    }
    let mut successors = contexts.iter_mut();
    let mut inherited = Ok(Inherited::Nothing);
    for number in 0..old.count() {
        let Some(hosted) = old.get_mut(number) else { break };
        // Before asking for the instance's state, restart the instance if its pause is over.
        hosted.is_well(now, news);
        let of_context = match successors.next() {
            Some(new) => hand_over_context(hosted, &mut **new, (version, same_version), inheritance),
            None => abandon(hosted, count, inheritance),
        };
        inherited = inherited.and_then(|before| Ok(before.and(of_context?)));
        if inherited.is_err() {
            break;
        }
    }
    (contexts, inherited)
}

/// Hands the state of a context over to the same context of the successor. `inheritance` states whether the
/// successor may start without the state; it isn't renounced.
fn hand_over_context(
    hosted: &mut Hosted,
    new: &mut dyn Instance,
    (version, same_version): (u32, bool),
    inheritance: Inheritance,
) -> Result<Inherited, String> {
    if same_version {
        let common = hosted.instance.service_state();
        if common.len() == new.service_state().len() {
            new.adopt_service_state(&common);
        }
    }
    if hosted.record.health != Health::Well {
        return Ok(Inherited::Lost(format!(
            "the old instance was {} and handed over no state; the new instance starts without state",
            hosted.record.health.name()
        )));
    }
    hosted.call(|old| inherit(old, new, version, inheritance))
}

/// Ends a context without a counterpart, because the successor has fewer contexts. `old` and `new`: numbers of
/// contexts. Its state is lost, if it has any.
fn abandon(
    hosted: &mut Hosted,
    (old, new): (usize, usize),
    inheritance: Inheritance,
) -> Result<Inherited, String> {
    let has_state = hosted.record.health == Health::Well
        && (!hosted.instance.service_state().is_empty()
            || hosted.call(|old| !matches!(old.save(), Ok(None))));
    if !has_state {
        return Ok(Inherited::Nothing);
    }
    let problem = format!(
        "the new version has fewer contexts, {new} instead of {old}, and the state of the other contexts would be lost"
    );
    if inheritance == Inheritance::Tried { Ok(Inherited::Lost(problem)) } else { Err(problem) }
}

/// Hands the state of an instance over to its successor. `inheritance` states whether the successor may start
/// without the state.
fn inherit(
    old: &mut dyn Instance,
    new: &mut dyn Instance,
    version: u32,
    inheritance: Inheritance,
) -> Result<Inherited, String> {
    let is_tried = inheritance == Inheritance::Tried;
    let state = match old.save() {
        Ok(Some(state)) => state,
        Ok(None) if inheritance == Inheritance::Indispensable => {
            return Err("the old instance can't hand over its state".to_owned());
        }
        Ok(None) => return Ok(Inherited::Nothing),
        Err(error) => {
            let problem = format!("the old instance hands over no state: {error}");
            return if is_tried { Ok(Inherited::Lost(problem)) } else { Err(problem) };
        }
    };
    let Err(error) = new.restore(&state, version) else { return Ok(Inherited::Bytes(state.len())) };
    let problem = format!("the new instance does not accept the state: {error}");
    if is_tried { begin_anew(new, problem) } else { Err(problem) }
}

/// Restarts a successor that refused the state, because it may have adopted a part of the state.
fn begin_anew(instance: &mut dyn Instance, problem: String) -> Result<Inherited, String> {
    match instance.restart() {
        Ok(()) => Ok(Inherited::Lost(problem)),
        Err(error) => Err(format!("{problem}; and the new instance can't restart: {error}")),
    }
}
