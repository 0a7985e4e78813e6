//! Forms of plugins for the driver: one is loaded for each instance whose plugin has one, verified by the kernel, and asked unless the
//! instance is placed at the workers.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_offload::{FlowCache, FormMemory, FormObject, LoadedForm};
use millrace_pipeline::{Level, MOST_OF_FORM, OffloadCommand};
use millrace_plugin_abi::{DriverForm, DriverMemory, Plugin};
use millrace_units::InstanceId;

use crate::ControlError;
use crate::router::Inner;

/// Forms by the instances that have one.
pub(crate) type Forms = BTreeMap<InstanceId, InstanceForm>;

/// The form of an instance, for each worker one: each has an instance of its own.
pub(crate) struct InstanceForm {
    /// Loaded, or why it can't be.
    pub loaded: Result<Vec<LoadedForm>, String>,
    /// Whether the workers were told that it may be asked.
    is_asked: bool,
}

impl InstanceForm {
    /// What the workers are told, each its own.
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

/// Loads a form for each of so many workers, or for none.
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

/// The memory of a form as an instance uses it.
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
    /// Loads the forms of all instances there are.
    pub fn begin_forms(&mut self) -> Result<(), ControlError> {
        let all: Vec<_> = self.model.plugins.instance_names().map(|(id, ..)| id).collect();
        all.into_iter().try_for_each(|id| self.begin_form(id))
    }

    /// Loads the form of an instance, if its plugin has one and there is a flow cache. One that can't be loaded is no error: packets for
    /// the instance stay at the worker, and it is said why.
    pub fn begin_form(&mut self, id: InstanceId) -> Result<(), ControlError> {
        let name = self.model.plugins.instance_name(id).to_owned();
        let Some(form) = self.model.plugins.plugin_of(&name)?.driver_form() else { return Ok(()) };
        let Ok(cache) = &mut self.flow_cache else { return Ok(()) };
        let workers = self.workers.len();
        let loaded = load(cache, &form, workers);
        if let Err(problem) = &loaded {
            tracing::warn!(instance = name, "its packets stay at the worker: {problem}");
        }
        let form = InstanceForm { loaded, is_asked: self.may_be_asked(&name) };
        let told = form.told(id, workers);
        self.forms.insert(id, form);
        self.workers.tell_each(told)
    }

    /// Lets go of the form of an instance, or of one that was there. What it counted stays counted.
    pub fn end_form(&mut self, id: InstanceId) -> Result<(), ControlError> {
        let Some(form) = self.forms.remove(&id) else { return Ok(()) };
        self.workers.tell(|| OffloadCommand::SetForm(id, None))?;
        // When this is answered, no entry names it that is in use.
        self.barrier()?;
        if let (Ok(loaded), Ok(cache)) = (form.loaded, &mut self.flow_cache) {
            loaded.into_iter().for_each(|one| cache.unload_form(one));
        }
        Ok(())
    }

    /// Instances of a plugin whose form is another one in a new version; those forms are let go of.
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

    /// Tells the workers which forms may be asked, where that has changed.
    pub fn tell_forms(&mut self) -> Result<(), ControlError> {
        let ids: Vec<_> = self.forms.keys().copied().collect();
        for id in ids {
            let is_asked = self.may_be_asked(self.model.plugins.instance_name(id));
            let Some(form) = self.forms.get_mut(&id).filter(|form| form.is_asked != is_asked) else {
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

    /// Why packets for an instance are at the workers; `None` where they may be in the driver.
    pub fn stays_up(&self, id: InstanceId) -> Option<String> {
        let name = self.model.plugins.instance_name(id);
        if self.model.plugins.plugin_of(name).ok()?.driver_form().is_none() {
            return Some("its plugin has no form for the driver".to_owned());
        }
        if let Err(why) = &self.flow_cache {
            return Some(format!("there is no flow cache: {why}"));
        }
        match self.forms.get(&id) {
            Some(InstanceForm { loaded: Err(problem), .. }) => Some(problem.clone()),
            Some(InstanceForm { is_asked: false, .. }) => Some("it was placed there".to_owned()),
            Some(_) => None,
            None => Some("its form for the driver is not loaded".to_owned()),
        }
    }
}
