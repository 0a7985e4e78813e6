//! eBPF variants of plugins. Each instance whose plugin has one gets it loaded and verified; the XDP program
//! calls it unless the instance is placed at the workers.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_offload::{FlowCache, FormMemory, FormObject, LoadedForm};
use millrace_pipeline::{Level, MOST_OF_FORM, OffloadCommand};
use millrace_plugin_abi::{DriverForm, DriverMemory, Plugin};
use millrace_units::InstanceId;

use crate::ControlError;
use crate::model::{Model, Plugins};
use crate::workers::Workers;

/// Flow cache of the router, or the reason why there is none.
pub(crate) type Cache = Result<FlowCache, &'static str>;

/// eBPF variants, by instance.
#[derive(Default)]
pub(crate) struct Forms(BTreeMap<InstanceId, InstanceForm>);

/// eBPF variant of an instance. It is loaded once for each worker, because each worker has its own copy of
/// the instance.
struct InstanceForm {
    /// Loaded programs in the order of workers, or the reason why loading failed.
    loaded: Result<Vec<LoadedForm>, String>,
    /// Whether the XDP program may call the variant.
    is_asked: bool,
}

impl InstanceForm {
    /// Returns a command for each worker that sets its loaded variant.
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

/// Loads an eBPF variant once for each worker: all copies or none.
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

/// Settings and counters of an eBPF variant, as the instance accesses them.
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

impl Forms {
    /// Loads the eBPF variants of all existing instances.
    pub fn begin_all(
        &mut self,
        cache: &mut Cache,
        model: &Model,
        workers: &mut Workers,
    ) -> Result<(), ControlError> {
        model.plugins.instance_names().try_for_each(|(id, ..)| self.begin(id, cache, model, workers))
    }

    /// Loads the eBPF variant of an instance, if its plugin has one and there is a flow cache. If loading
    /// fails, only logs it: the packets of the instance stay at the workers.
    pub fn begin(
        &mut self,
        id: InstanceId,
        cache: &mut Cache,
        model: &Model,
        workers: &mut Workers,
    ) -> Result<(), ControlError> {
        let name = model.plugins.instance_name(id).to_owned();
        let Some(form) = model.plugins.plugin_of(&name)?.driver_form() else { return Ok(()) };
        let Ok(cache) = cache else { return Ok(()) };
        let loaded = load(cache, &form, workers.len());
        if let Err(problem) = &loaded {
            tracing::warn!(instance = name, "the instance's packets are not offloaded: {problem}");
        }
        let form = InstanceForm { loaded, is_asked: may_be_asked(model, &name) };
        let told = form.told(id, workers.len());
        self.0.insert(id, form);
        workers.tell_each(told)
    }

    /// Unloads the eBPF variant of an instance, if there is one. Its counts are kept.
    pub fn end(
        &mut self,
        id: InstanceId,
        cache: &mut Cache,
        workers: &mut Workers,
    ) -> Result<(), ControlError> {
        let Some(form) = self.0.remove(&id) else { return Ok(()) };
        workers.tell(|| OffloadCommand::SetForm(id, None))?;
        // After the barrier, no valid flow cache entry refers to the variant.
        workers.barrier()?;
        if let (Ok(loaded), Ok(cache)) = (form.loaded, cache) {
            loaded.into_iter().for_each(|one| cache.unload_form(one));
        }
        Ok(())
    }

    /// If the new version of a plugin has another eBPF variant, unloads the variants of all its instances and
    /// returns the instances.
    pub fn end_others(
        &mut self,
        (old, new): (&dyn Plugin, &dyn Plugin),
        cache: &mut Cache,
        model: &Model,
        workers: &mut Workers,
    ) -> Result<Vec<InstanceId>, ControlError> {
        if old.driver_form() == new.driver_form() {
            return Ok(Vec::new());
        }
        let own = model.plugins.instance_names().filter(|(.., plugin)| *plugin == old.name());
        let ids: Vec<_> = own.map(|(id, ..)| id).collect();
        ids.iter().try_for_each(|id| self.end(*id, cache, workers))?;
        Ok(ids)
    }

    /// Sends the workers the changes in which eBPF variants the XDP program may call.
    pub fn tell(&mut self, model: &Model, workers: &mut Workers) -> Result<(), ControlError> {
        for (id, form) in &mut self.0 {
            let is_asked = may_be_asked(model, model.plugins.instance_name(*id));
            if form.is_asked != is_asked {
                form.is_asked = is_asked;
                workers.tell_each(form.told(*id, workers.len()))?;
            }
        }
        Ok(())
    }

    /// Returns the reason why packets of an instance stay at the workers; `None` if they may be offloaded.
    pub fn stays_up(&self, id: InstanceId, cache: &Cache, plugins: &Plugins) -> Option<String> {
        let name = plugins.instance_name(id);
        if plugins.plugin_of(name).ok()?.driver_form().is_none() {
            return Some("its plugin has no eBPF variant".to_owned());
        }
        if let Err(why) = cache {
            return Some(format!("there is no flow cache: {why}"));
        }
        match self.0.get(&id) {
            Some(InstanceForm { loaded: Err(problem), .. }) => Some(problem.clone()),
            Some(InstanceForm { is_asked: false, .. }) => {
                Some("a placement pins it to the worker".to_owned())
            }
            Some(_) => None,
            None => Some("its eBPF variant is not loaded".to_owned()),
        }
    }
}

/// Whether the placements allow the XDP program to call the variant of an instance.
fn may_be_asked(model: &Model, instance: &str) -> bool {
    model.placed_instance(instance) != Some(Level::Worker)
}
