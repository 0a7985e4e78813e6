//! eBPF variants of plugins. Each instance whose plugin has one gets it loaded and verified; the XDP program
//! calls it unless the instance is placed at the workers.

use std::sync::Arc;

use millrace_offload::{FlowCache, FormMemory, FormObject, LoadedForm};
use millrace_pipeline::{Level, MOST_OF_FORM, OffloadCommand};
use millrace_plugin_abi::{EbpfVariant, VariantMemory};
use millrace_units::InstanceId;

use crate::model::Model;

/// eBPF variant of an instance. It is loaded once for each worker, because each worker has its own copy of
/// the instance.
pub(super) struct InstanceForm {
    /// Loaded programs in the order of workers, or the reason why loading failed.
    pub loaded: Result<Vec<LoadedForm>, String>,
    /// Whether the XDP program may call the variant.
    pub is_asked: bool,
}

impl InstanceForm {
    /// Returns a command for each worker that sets its loaded variant.
    pub fn told(&self, id: InstanceId, workers: usize) -> Vec<OffloadCommand> {
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
pub(super) fn load(
    cache: &mut FlowCache,
    form: &EbpfVariant,
    workers: usize,
) -> Result<Vec<LoadedForm>, String> {
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

impl VariantMemory for Memory {
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

fn object(form: &EbpfVariant) -> FormObject<'_> {
    FormObject {
        object: form.object,
        settings: form.settings,
        counters: form.counters,
        most_instructions: MOST_OF_FORM,
    }
}

/// Whether the placements allow the XDP program to call the variant of an instance.
pub(super) fn may_be_asked(model: &Model, instance: &str) -> bool {
    model.placed_instance(instance) != Some(Level::Worker)
}
