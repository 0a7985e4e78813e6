//! Upgrade of an instance between two batches: replacement by a successor with state hand-over.
//!
//! Paths and bindings stay, as they refer to the slot and not to the instance. Only if the successor keeps
//! another kind of flow state, flows are classified anew and their state starts anew.

use millrace_packet::Pool;
use millrace_plugin_abi::Instance;
use millrace_units::{InstanceId, Instant};

use super::WorkerPlugins;
use crate::BindingTable;
use crate::execution::health::Health;
use crate::execution::shadow::{Reported, Shadow};
use crate::execution::succession::{Inheritance, Inherited, Successed, Succession, Successor};
use crate::execution::waiting::Asked;
use crate::path::Step;
use crate::slab::Key;

impl<T: BindingTable> WorkerPlugins<T> {
    /// Replaces an instance by a successor, now or after the current call. `told` receives the old instance,
    /// to be dropped where time doesn't matter.
    pub fn succeed(&mut self, id: InstanceId, successor: Successor, now: Instant, told: Successed) {
        let Some(key) = self.instances.key(id) else { return told(None) };
        if self.waiting.is_busy(key) {
            self.waiting.ask(key, Asked::Succeed(successor, told));
            return;
        }
        self.succeed_now(key, successor, now, told);
    }

    /// Replaces an instance that isn't busy; returns its new key.
    pub(crate) fn succeed_now(
        &mut self,
        key: Key,
        successor: Successor,
        now: Instant,
        told: Successed,
    ) -> Key {
        let Successor { mut instance, inheritance, version, same_version } = successor;
        let Some(hosted) = self.instances.get_mut(key) else {
            told(None);
            return key;
        };
        // Restart an instance whose pause is over before asking for its state.
        hosted.is_well(now, &mut self.news);
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
            // The old instance stays. If saving its state has killed it, it restarts without the state and
            // without a pause.
            hosted.recover(now, &mut self.news);
            told(Some(Succession { instance, inherited }));
            return key;
        }
        let keeps = instance.flow_state() == hosted.instance.flow_state() && same_version;
        let instance = hosted.replace(instance, &mut self.news);
        let key = self.introduce(key, keeps || instance.flow_state() == 0);
        told(Some(Succession { instance, inherited }));
        key
    }

    /// Starts a shadow instance that processes copies of the next `packets` packets, and compares the
    /// verdicts. Replaces an existing shadow instance.
    pub fn shadow(
        &mut self,
        id: InstanceId,
        instance: Box<dyn Instance>,
        packets: u64,
        pool: Pool,
        reported: Reported,
    ) {
        match self.instances.key(id).and_then(|key| self.instances.get_mut(key)) {
            Some(hosted) => hosted.shadow = Some(Box::new(Shadow::new(instance, packets, pool, reported))),
            None => reported(None),
        }
    }

    /// Ends the shadow run of an instance; its report covers the packets so far.
    pub fn end_shadow(&mut self, id: InstanceId) {
        if let Some(hosted) = self.instances.key(id).and_then(|key| self.instances.get_mut(key)) {
            hosted.shadow = None;
        }
    }

    /// Updates bindings and timers for a new instance; returns its key.
    fn introduce(&mut self, old: Key, keeps_states: bool) -> Key {
        let key = if keeps_states { old } else { self.instances.renew(old).unwrap_or(old) };
        let Some(hosted) = self.instances.get_mut(key) else { return old };
        let instance = &hosted.instance;
        let (hears, state) = (instance.hears_flow_ends(), instance.flow_state().min(u16::MAX.into()) as u16);
        self.keeps_states |= state > 0;
        if instance.has_timers() && !self.timed.contains(&key) {
            self.timed.push(key);
        }
        for binding in self.bindings.iter_mut().filter(|binding| binding.step == Some(Step::Instance(old))) {
            self.reclassify |= (binding.hears, binding.state) != (hears, state) || key != old;
            (binding.step, binding.hears, binding.state) = (Some(Step::Instance(key)), hears, state);
        }
        key
    }

    /// Whether a change may have altered the paths of known flows. Ask once after each change.
    pub fn take_reclassify(&mut self) -> bool {
        std::mem::take(&mut self.reclassify)
    }
}

/// Hands the state of an instance over. `inheritance` states whether the new instance may start without it.
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

/// Restarts an instance that may have taken over only a part of the state.
fn begin_anew(instance: &mut dyn Instance, problem: String) -> Result<Inherited, String> {
    match instance.restart() {
        Ok(()) => Ok(Inherited::Lost(problem)),
        Err(error) => Err(format!("{problem}; and the new instance can't restart: {error}")),
    }
}
