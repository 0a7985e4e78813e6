//! Upgrade of an instance between two batches: a successor replaces it and gets its state.
//!
//! All contexts are replaced together, once none of them has a running call. Each hands its state over to the
//! same context of the successor. As long as that takes, the packets of the instance wait, and the worker serves others.
//!
//! Paths and bindings stay, because they refer to the slot and not to the instance. If the successor's flow
//! state has another format, flows are classified again, and their state starts empty.

use millrace_plugin_abi::{Instance, StateScope};
use millrace_units::{InstanceId, Instant};

use super::Calls;
use crate::BindingTable;
use crate::connection_state::ConnectionStates;
use crate::execution::bindings::Bindings;
use crate::execution::health::FaultHistory;
use crate::execution::instances::Contexts;
use crate::execution::succession::{HandOver, Inherited, Successed, Succession, Successor};
use crate::execution::waiting::{Backlog, Upgrade};
use crate::slab::Key;

impl Calls {
    /// Replaces an instance by a successor: now, or as soon as none of its contexts has a running call and the state is
    /// handed over. `told` receives the result, with the copies that are no longer needed. It must pass them to another
    /// thread, because dropping them may take long.
    pub fn succeed<T: BindingTable>(
        &mut self,
        id: InstanceId,
        successor: Successor,
        bindings: &mut Bindings<T>,
        now: Instant,
        told: Successed,
    ) {
        let Some(instance) = self.instances.key(id) else { return told(None) };
        let mut upgrade = Upgrade { instance, successor, hand_over: HandOver::default(), told };
        if !self.waiting.has_busy_context(instance)
            && let Some(inherited) = self.hand_over(&mut upgrade, now)
        {
            self.end_upgrade(upgrade, inherited, bindings, now);
            return;
        }
        if let Some(refused) = self.waiting.await_upgrade(upgrade, self.instances.contexts(instance)) {
            let connection_states = self.states_given_to(instance.slot, &refused.successor.contexts);
            refused.refuse(connection_states);
        }
    }

    /// Removes and returns the states of connections that are kept for a successor of the instance in a slot.
    fn states_given_to(&mut self, slot: u32, successor: &[Box<dyn Instance>]) -> Option<ConnectionStates> {
        let first = successor.first().filter(|instance| instance.state_scope() == StateScope::Connection)?;
        self.connections.take_given(slot, first.flow_state())
    }

    /// Carries out the upgrade that the context of `backlog` waits for. Returns `false` if another context has
    /// to end its call first, or if the state is not handed over yet.
    pub(super) fn succeed_waiting<T: BindingTable>(
        &mut self,
        backlog: &mut Backlog,
        bindings: &mut Bindings<T>,
        now: Instant,
    ) -> bool {
        let Some(mut upgrade) = self.waiting.take_upgrade(backlog) else { return false };
        let Some(inherited) = self.hand_over(&mut upgrade, now) else {
            self.waiting.put_upgrade(upgrade);
            return false;
        };
        self.waiting.end_wait_for_upgrade(upgrade.instance);
        let key = self.end_upgrade(upgrade, inherited, bindings, now);
        let contexts = self.instances.contexts(key);
        if contexts > 0 {
            self.waiting.follow_upgrade(backlog, key, contexts);
        }
        true
    }

    /// Hands over the state of an instance that has no running call. Returns the result once it is known.
    fn hand_over(&mut self, upgrade: &mut Upgrade, now: Instant) -> Option<Result<Inherited, String>> {
        let Upgrade { instance, successor, hand_over, .. } = upgrade;
        // A state that is being saved or restored is waited for: a process would lose it.
        if !hand_over.has_begun() && successor.claim.is_taken() {
            return Some(Err(called_off()));
        }
        match self.instances.contexts_mut(*instance) {
            Some((old, news)) => hand_over.go_on(old, successor, now, news),
            None => Some(Ok(Inherited::Nothing)),
        }
    }

    /// Replaces an instance that has no running call; returns its new key. `inherited`: result of the state hand-over.
    fn end_upgrade<T: BindingTable>(
        &mut self,
        Upgrade { instance: key, successor, told, .. }: Upgrade,
        inherited: Result<Inherited, String>,
        bindings: &mut Bindings<T>,
        now: Instant,
    ) -> Key {
        let Some((old, news)) = self.instances.contexts_mut(key) else {
            told(None);
            return key;
        };
        let Successor { mut contexts, same_version, history: restored, claim, .. } = successor;
        let inherited =
            inherited.and_then(|result| if claim.take() { Ok(result) } else { Err(called_off()) });
        let history = FaultHistory(old.iter().map(|hosted| hosted.record).collect());
        if inherited.is_err() {
            // The old copies stay. If one failed while it saved its state, it restarts at once, without its
            // state.
            old.iter_mut().for_each(|hosted| hosted.recover(now, news));
            let connection_states = self.states_given_to(key.slot, &contexts);
            told(Some(Succession { contexts, inherited, history, connection_states }));
            return key;
        }
        let kept_state = |contexts: &Contexts| {
            let instance = &contexts.first().instance;
            (instance.flow_state(), instance.state_scope())
        };
        let before = kept_state(old);
        contexts = old.replace(contexts, news);
        old.restore(restored.unwrap_or_default(), news);
        let after @ (bytes, scope) = kept_state(old);
        let keeps_state = before == after && same_version;
        let had_none = before == (0, StateScope::Flow);
        let new = self.instances.introduce(key, keeps_state || had_none);
        let tracked = (scope == StateScope::Connection).then_some(bytes);
        let connection_states = if keeps_state {
            tracked.and_then(|bytes| self.connections.take_given(key.slot, bytes))
        } else {
            self.connections.note_change(before.1 != scope);
            self.connections.put(key.slot, tracked)
        };
        if let Some(new) = new {
            self.states.expect(new.state.into());
            bindings.rebind(key, new);
        }
        told(Some(Succession { contexts, inherited, history, connection_states }));
        new.map_or(key, |new| new.key)
    }
}

/// Returns the reason that the old instance stays after control has waited for too long.
fn called_off() -> String {
    "the upgrade was called off: the instance did not end its call, or hand its state over, in time"
        .to_owned()
}
