//! Instances in quarantine since their creation, for faults before the router's start.

use std::fmt;
use std::hash::Hash;

use millrace_units::InstanceId;
use serde_json::{Map, Value};

use super::maps::Made;
use super::{Error, NamedInstance, PluginControlUnit, Successors};
use crate::PluginChange;
use crate::declaration::settings::prepare;
use crate::runtime::quarantined::Quarantined;

impl<S: Clone + Eq + Hash + fmt::Display, F: Clone> PluginControlUnit<S, F> {
    /// Creates an instance in quarantine, without bindings, for the reason `why`. The instance can be bound,
    /// and the limits of its bindings decide the treatment of packets. No code of the plugin runs.
    ///
    /// # Errors
    /// As [`create_instance`](Self::create_instance), as far as the checks need no code of the plugin.
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

    /// Whether an instance is in quarantine since its creation.
    pub fn is_held(&self, id: InstanceId) -> bool {
        self.instances.get(&id).is_some_and(|named| named.held.is_some())
    }

    /// Creates the successors that replace an instance in quarantine: one for each of `workers` workers, from
    /// its settings.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown), or an error of the plugin about the settings.
    pub fn afresh(&self, instance: &str, workers: usize) -> Result<Successors, Error> {
        let id = self.instance(instance)?;
        let named = self.named(id, instance)?;
        self.succeeding(id, instance, &*named.plugin, &named.settings, named.maps.clone(), workers)
    }

    /// Records the release of an instance from quarantine.
    pub fn note_release(&mut self, id: InstanceId) {
        if let Some(named) = self.instances.get_mut(&id) {
            named.held = None;
        }
    }

    /// Returns the changes that add an instance to the worker with this number.
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

    /// Creates the worker-side instance, or a placeholder for an instance in quarantine.
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
