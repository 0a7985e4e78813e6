//! eBPF variants of plugins: loaded and verified for each instance whose plugin has one, and called by the
//! XDP program unless the instance is pinned to the workers.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_offload::{FlowCache, FormMemory, FormObject, LoadedForm};
use millrace_pipeline::{Level, MOST_OF_FORM, OffloadCommand};
use millrace_plugin_abi::{DriverForm, DriverMemory, Plugin};
use millrace_units::InstanceId;

use crate::ControlError;
use crate::router::Inner;

/// eBPF variants, by instance.
pub(crate) type Forms = BTreeMap<InstanceId, InstanceForm>;

/// eBPF variant of an instance, loaded once for each worker, as each worker has its own instance.
pub(crate) struct InstanceForm {
    /// Loaded programs by worker, or the reason why loading failed.
    pub loaded: Result<Vec<LoadedForm>, String>,
    /// Whether the workers may let the XDP program call the variant.
    is_asked: bool,
}

impl InstanceForm {
    /// Returns the command that gives each worker its loaded variant.
    fn told(&self, id: InstanceId, workers: usize) -> Vec<OffloadCommand> {
        let form = |loaded: &LoadedForm| millrace_plugin::LoadedForm {
            place: loaded.place(),
            instructions: loaded.instructions(),
            memory: Arc::new(Memory(loaded.memory().clone())),
            is_asked: self.is_asked,
        };
        let loaded = |worker| self.loaded.as_ref().ok().and_then(|loaded| loaded.get(worker));
        (0..workers).map(|worker| OffloadCommand::SetForm(id, loaded(worker).map(form))).collect()
    }
}

/// Loads an eBPF variant for each of this number of workers, or for none of them.
fn load(cache: &mut FlowCache, form: &DriverForm, workers: usize) -> Result<Vec<LoadedForm>, String> {
    let mut loaded = Vec::new();
    for _ in 0..workers {
        match cache.load_form(object(form)) {
            Ok(one) => loaded.push(one),
            Err(error) => {
                loaded.into_iter().for_each(|one| cache.unload_form(one));
                return Err(error.to_string());
            }
        }
    }
    Ok(loaded)
}

/// Memory of an eBPF variant, as the instance uses it.
#[derive(Debug)]
struct Memory(Arc<FormMemory>);

impl DriverMemory for Memory {
    fn id(&self) -> u64 {
        self.0.id()
    }

    fn configure(&self, settings: &[u64]) {
        self.0.configure(settings);
    }

    fn counted(&self, word: usize) -> u64 {
        self.0.counted(word)
    }
}

fn object(form: &DriverForm) -> FormObject<'_> {
    FormObject {
        object: form.object,
        settings: form.settings,
        counters: form.counters,
        most_instructions: MOST_OF_FORM,
    }
}

impl Inner {
    /// Loads the eBPF variants of all existing instances.
    pub fn begin_forms(&mut self) -> Result<(), ControlError> {
        let all: Vec<_> = self.model.plugins.instance_names().map(|(id, ..)| id).collect();
        all.into_iter().try_for_each(|id| self.begin_form(id))
    }

    /// Loads the eBPF variant of an instance, if its plugin has one and there is a flow cache. A failure to
    /// load is logged and is no error: packets of the instance stay at the worker.
    pub fn begin_form(&mut self, id: InstanceId) -> Result<(), ControlError> {
        let name = self.model.plugins.instance_name(id).to_owned();
        let Some(form) = self.model.plugins.plugin_of(&name)?.driver_form() else { return Ok(()) };
        let Ok(cache) = &mut self.offload.flow_cache else { return Ok(()) };
        let workers = self.workers.len();
        let loaded = load(cache, &form, workers);
        if let Err(problem) = &loaded {
            tracing::warn!(instance = name, "its packets stay at the worker: {problem}");
        }
        let form = InstanceForm { loaded, is_asked: self.may_be_asked(&name) };
        let told = form.told(id, workers);
        self.offload.forms.insert(id, form);
        self.workers.tell_each(told)
    }

    /// Unloads the eBPF variant of an instance, if there is one. Its counts are kept.
    pub fn end_form(&mut self, id: InstanceId) -> Result<(), ControlError> {
        let Some(form) = self.offload.forms.remove(&id) else { return Ok(()) };
        self.workers.tell(|| OffloadCommand::SetForm(id, None))?;
        // After the barrier no flow cache entry in use names the variant.
        self.barrier()?;
        if let (Ok(loaded), Ok(cache)) = (form.loaded, &mut self.offload.flow_cache) {
            loaded.into_iter().for_each(|one| cache.unload_form(one));
        }
        Ok(())
    }

    /// Unloads the eBPF variants of a plugin's instances if the new version has another variant. Returns
    /// these instances.
    pub fn end_other_forms(
        &mut self,
        old: &dyn Plugin,
        new: &dyn Plugin,
    ) -> Result<Vec<InstanceId>, ControlError> {
        if old.driver_form() == new.driver_form() {
            return Ok(Vec::new());
        }
        let own = self.model.plugins.instance_names().filter(|(.., plugin)| *plugin == old.name());
        let ids: Vec<_> = own.map(|(id, ..)| id).collect();
        ids.iter().try_for_each(|id| self.end_form(*id))?;
        Ok(ids)
    }

    /// Tells the workers which eBPF variants may be called, where that has changed.
    pub fn tell_forms(&mut self) -> Result<(), ControlError> {
        let ids: Vec<_> = self.offload.forms.keys().copied().collect();
        for id in ids {
            let is_asked = self.may_be_asked(self.model.plugins.instance_name(id));
            let Some(form) = self.offload.forms.get_mut(&id).filter(|form| form.is_asked != is_asked) else {
                continue;
            };
            form.is_asked = is_asked;
            let told = form.told(id, self.workers.len());
            self.workers.tell_each(told)?;
        }
        Ok(())
    }

    fn may_be_asked(&self, instance: &str) -> bool {
        self.model.placed_instance(instance) != Some(Level::Worker)
    }

    /// Returns the reason why packets of an instance stay at the workers; `None` if they may be offloaded.
    pub fn stays_up(&self, id: InstanceId) -> Option<String> {
        let name = self.model.plugins.instance_name(id);
        if self.model.plugins.plugin_of(name).ok()?.driver_form().is_none() {
            return Some("its plugin has no form for the driver".to_owned());
        }
        if let Err(why) = &self.offload.flow_cache {
            return Some(format!("there is no flow cache: {why}"));
        }
        match self.offload.forms.get(&id) {
            Some(InstanceForm { loaded: Err(problem), .. }) => Some(problem.clone()),
            Some(InstanceForm { is_asked: false, .. }) => Some("it was placed there".to_owned()),
            Some(_) => None,
            None => Some("its form for the driver is not loaded".to_owned()),
        }
    }
}
