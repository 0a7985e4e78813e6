//! Instances that are in quarantine from their creation on, for what they did before the router was started.

use std::fmt;
use std::hash::Hash;

use millrace_units::InstanceId;
use serde_json::{Map, Value};

use super::maps::Made;
use super::{Error, NamedInstance, PluginControlUnit, Successors};
use crate::PluginChange;
use crate::quarantined::Quarantined;
use crate::settings::prepare;

impl<S: Clone + Eq + Hash + fmt::Display, F: Clone> PluginControlUnit<S, F> {
    /// A new instance, bound to nothing, which is in quarantine, and why. It can be bound like any other, and its bindings say
    /// what becomes of packets. No code of its plugin runs.
    ///
    /// # Errors
    /// As [`create_instance`](Self::create_instance), as far as that is known without running it.
    pub fn create_quarantined(
        &mut self,
        plugin: &str,
        name: &str,
        settings: Map<String, Value>,
        why: String,
    ) -> Result<(InstanceId, Vec<PluginChange<F>>), Error> {
        let (id, mut named) = self.name_instance(plugin, name, settings)?;
        named.reads = prepare(&*named.plugin, &named.settings, self)?.maps;
        named.held = Some(why);
        let changes = self.add_instance(id, &named, self.workers - 1)?;
        self.instances.insert(id, named);
        Ok((id, changes))
    }

    /// Whether an instance is in quarantine from its creation on.
    pub fn is_held(&self, id: InstanceId) -> bool {
        self.instances.get(&id).is_some_and(|named| named.held.is_some())
    }

    /// An instance made anew from its settings for each of so many workers: what it takes to let it out of quarantine.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown), and what its plugin says against the settings.
    pub fn afresh(&self, instance: &str, workers: usize) -> Result<Successors, Error> {
        let id = self.instance(instance)?;
        let named = self.named(id, instance)?;
        self.succeeding(id, instance, &*named.plugin, &named.settings, named.maps.clone(), workers)
    }

    /// Notes that an instance is in quarantine no longer.
    pub fn note_release(&mut self, id: InstanceId) {
        if let Some(named) = self.instances.get_mut(&id) {
            named.held = None;
        }
    }

    /// The changes that bring an instance to the worker of that number.
    pub(super) fn add_instance(
        &self,
        id: InstanceId,
        named: &NamedInstance,
        worker: usize,
    ) -> Result<Vec<PluginChange<F>>, Error> {
        let added = PluginChange::AddInstance { id, instance: self.make_named(named, worker)?.instance };
        let held = named.held.clone().map(|why| PluginChange::Quarantine { id, why });
        Ok([Some(added), held].into_iter().flatten().collect())
    }

    /// What stands on a worker for an instance.
    pub(super) fn make_named(&self, named: &NamedInstance, worker: usize) -> Result<Made, Error> {
        match &named.held {
            None => self.make(&*named.plugin, &named.settings, &named.maps, worker),
            Some(why) => {
                let instance = Box::new(Quarantined { plugin: named.plugin.name(), why: why.clone() });
                Ok(Made { instance, reads: named.reads.clone() })
            }
        }
    }
}
