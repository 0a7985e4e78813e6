//! eBPF variants of plugins. For each instance whose plugin has an eBPF variant, control loads the variant,
//! and the kernel verifies it. The XDP program calls the variant unless a placement pins the instance to the
//! workers.

use std::sync::Arc;
use std::time::Duration;

use millrace_config::ServiceLevel;
use millrace_offload::{FlowCache, LoadedVariant, VariantMaps, VariantObject};
use millrace_pipeline::{EBPF_VARIANT_LIMIT, Level, OffloadCommand};
use millrace_plugin_abi::{EbpfVariant, VariantMemory};
use millrace_units::InstanceId;

use crate::model::Model;
use crate::model::permits::excluded_for;
use crate::model::placements::PlacedService;

/// Loaded eBPF variant of an instance: one program for each worker, because each worker has its own copy of
/// the instance.
pub(super) struct InstanceVariant {
    /// Loaded programs in the order of workers, or the reason why loading failed.
    pub loaded: Result<Vec<LoadedVariant>, String>,
    pub terms: Terms,
}

/// Terms of the use of a variant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Terms {
    /// Whether the XDP program may call the variant.
    pub is_asked: bool,
    /// Whether a service was admitted at the offload: its packets cost no principal a share of the workers.
    pub is_admitted: bool,
}

impl Terms {
    /// Returns the terms for an instance.
    pub fn of(model: &Model, instance: &str) -> Self {
        let at_offload = |placed: &PlacedService| placed.level == ServiceLevel::Offload;
        let is_admitted = model.placements.service(instance).is_some_and(at_offload);
        Self { is_asked: why_not_asked(model, instance).is_none(), is_admitted }
    }
}

impl InstanceVariant {
    /// Returns one command for each worker: it gives the worker its loaded variant, or no variant if loading
    /// failed.
    pub fn told(&self, id: InstanceId, workers: usize) -> Vec<OffloadCommand> {
        let variant = |loaded: &LoadedVariant| millrace_plugin::LoadedVariant {
            place: loaded.place(),
            instructions: loaded.instructions(),
            time: if self.terms.is_admitted { Duration::ZERO } else { loaded.time() },
            memory: Arc::new(Memory(loaded.memory().clone())),
            is_asked: self.terms.is_asked,
        };
        let loaded = |worker| self.loaded.as_ref().ok().and_then(|loaded| loaded.get(worker));
        (0..workers).map(|worker| OffloadCommand::SetVariant(id, loaded(worker).map(variant))).collect()
    }
}

/// Loads an eBPF variant once for each worker: all copies or none.
pub(super) fn load(
    cache: &mut FlowCache,
    variant: &EbpfVariant,
    workers: usize,
) -> Result<Vec<LoadedVariant>, String> {
    let mut loaded = Vec::new();
    for _ in 0..workers {
        match cache.load_variant(object(variant)) {
            Ok(one) => loaded.push(one),
            Err(error) => {
                loaded.into_iter().for_each(|one| cache.unload_variant(one));
                return Err(error.to_string());
            }
        }
    }
    Ok(loaded)
}

/// Settings and counters of an eBPF variant, as the instance accesses them.
#[derive(Debug)]
struct Memory(Arc<VariantMaps>);

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

fn object(variant: &EbpfVariant) -> VariantObject<'_> {
    VariantObject {
        object: variant.object,
        settings: variant.settings,
        counters: variant.counters,
        most_instructions: EBPF_VARIANT_LIMIT,
    }
}

/// Returns the reason why the XDP program must not call the variant of an instance; `None` if it may. An allowance of
/// the owner counts where neither a placement nor a service decides.
pub(super) fn why_not_asked(model: &Model, instance: &str) -> Option<String> {
    match model.placements.level_of(instance) {
        Some(Level::Worker) => Some("a placement pins it to the worker".to_owned()),
        Some(Level::Offload) => None,
        None => excluded_for(model, instance, ServiceLevel::Offload)
            .map(|why| format!("level {}: {why}", ServiceLevel::Offload.name())),
    }
}

#[cfg(test)]
mod tests {
    use millrace_config::Config;

    use super::*;

    #[test]
    fn instance_without_a_service_stays_at_the_workers_if_the_allowance_of_its_owner_excludes_the_offload() {
        let why = |keys: &str, place: &str| {
            let text = format!(
                "[[port]]\nname = \"lan\"\ndevice = \"lan0\"\n[[instance]]\nplugin = \"statistics\"\nname = \"a\"\n\
                 owner = \"alice\"\n[[admission.allowance]]\nname = \"students\"\n{keys}\n{place}"
            );
            why_not_asked(&Model::planned(&Config::parse(&text, "f").unwrap()).unwrap(), "a")
        };
        let excluded = why("user = [\"alice\"]\nlevel = [\"worker\"]", "");
        assert_eq!(excluded.as_deref(), Some("level offload: allowance \"students\" of alice excludes it"));
        assert_eq!(why("user = [\"alice\"]\nlevel = [\"worker\", \"offload\"]", ""), None);
        assert_eq!(why("user = [\"bob\"]\nlevel = [\"worker\"]", ""), None);
        let pinned = why(
            "user = [\"bob\"]\nlevel = [\"worker\"]",
            "[[place]]\nflow = \"instance a\"\nlevel = \"worker\"\n",
        );
        assert_eq!(pinned.as_deref(), Some("a placement pins it to the worker"));
    }
}
