//! Upgrade of an instance between two batches: a successor replaces it and gets its state.
//!
//! Paths and bindings stay, because they refer to the slot and not to the instance. If the successor's flow
//! state has another format, flows are classified again, and their state starts empty.

use millrace_plugin_abi::Instance;
use millrace_units::{InstanceId, Instant};

use super::Calls;
use crate::BindingTable;
use crate::execution::bindings::Bindings;
use crate::execution::health::Health;
use crate::execution::succession::{Inheritance, Inherited, Successed, Succession, Successor};
use crate::execution::waiting::Asked;
use crate::slab::Key;

impl Calls {
    /// Replaces an instance by a successor: now, or after the instance's current call. `told` receives the
    /// result, with the instance that is no longer needed. It must pass that instance to another thread,
    /// because dropping it may take long.
    pub fn succeed<T: BindingTable>(
        &mut self,
        id: InstanceId,
        successor: Successor,
        bindings: &mut Bindings<T>,
        now: Instant,
        told: Successed,
    ) {
        let Some(key) = self.instances.key(id) else { return told(None) };
        if self.waiting.is_busy(key) {
            self.waiting.ask(key, Asked::Succeed(successor, told));
            return;
        }
        self.succeed_now(key, successor, bindings, now, told);
    }

    /// Replaces an instance that isn't busy; returns its new key.
    pub(super) fn succeed_now<T: BindingTable>(
        &mut self,
        key: Key,
        successor: Successor,
        bindings: &mut Bindings<T>,
        now: Instant,
        told: Successed,
    ) -> Key {
        let Successor { mut instance, inheritance, version, same_version } = successor;
        let Some((hosted, news)) = self.instances.get_mut(key) else {
            told(None);
            return key;
        };
        // Before asking for the instance's state, restart the instance if its pause is over.
        hosted.is_well(now, news);
        let well = hosted.record.health == Health::Well;
        if same_version && inheritance != Inheritance::Renounced {
            let common = hosted.instance.service_state();
            if common.len() == instance.service_state().len() {
                instance.adopt_service_state(&common);
            }
        }
        let inherited = match inheritance {
            Inheritance::Renounced => Ok(Inherited::Nothing),
            _ if !well => Ok(Inherited::Lost(format!(
                "the old instance was {} and handed over no state; the new instance starts without state",
                hosted.record.health.name()
            ))),
            _ => hosted.call(|old| inherit(old, &mut *instance, version, inheritance)),
        };
        if inherited.is_err() {
            // The old instance stays. If it failed while it saved its state, it restarts at once, without its
            // state.
            hosted.recover(now, news);
            told(Some(Succession { instance, inherited }));
            return key;
        }
        let keeps = instance.flow_state() == hosted.instance.flow_state() && same_version;
        let instance = hosted.replace(instance, news);
        let new = self.instances.introduce(key, keeps || instance.flow_state() == 0);
        if let Some(new) = new {
            self.states.expect(new.state.into());
            bindings.rebind(key, new);
        }
        told(Some(Succession { instance, inherited }));
        new.map_or(key, |new| new.key)
    }
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
