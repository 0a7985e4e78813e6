//! Creation of instances from their records: as new instances or as successors.

use std::sync::Arc;

use millrace_plugin_abi::{Instance, Plugin, SharedMap};
use millrace_units::InstanceId;
use serde_json::{Map, Value};

use super::Error;
use crate::PluginChange;
use crate::declaration::settings::{Numbers, Prepared, prepare};
use crate::runtime::quarantined::Quarantined;

/// Record of an instance, as control knows it.
#[derive(Clone)]
pub(super) struct NamedInstance {
    pub name: String,
    pub plugin: Arc<dyn Plugin>,
    pub settings: Map<String, Value>,
    /// Reason for the quarantine of an instance that was created in quarantine, so that no code of its plugin
    /// has run. `None` for all other instances.
    pub held: Option<String>,
    /// Maps that the instance owns and writes.
    pub maps: Vec<Arc<SharedMap>>,
    /// Maps of other instances that this instance's settings name.
    pub reads: Vec<Arc<SharedMap>>,
}

impl NamedInstance {
    /// Creates a copy of the instance for a context at a worker, or a placeholder if it is in quarantine.
    pub fn make(&self, worker: usize, numbers: &impl Numbers) -> Result<Made, Error> {
        match &self.held {
            None => make(&*self.plugin, &self.settings, &self.maps, worker, numbers),
            Some(why) => {
                let instance = Box::new(Quarantined { plugin: self.plugin.name(), why: why.clone() });
                Ok(Made { instance, reads: self.reads.clone() })
            }
        }
    }

    /// Returns the changes that add the instance with its contexts to worker `worker`, and the maps of other
    /// instances that its settings name. An instance in quarantine has one context.
    pub fn add<F>(&self, id: InstanceId, worker: usize, numbers: &impl Numbers) -> Result<Added<F>, Error> {
        let Made { instance, reads } = self.make(worker, numbers)?;
        let mut changes = vec![PluginChange::AddInstance { id, instance }];
        if let Some(why) = self.held.clone() {
            changes.push(PluginChange::Quarantine { id, why });
            return Ok(Added { changes, reads });
        }
        for _ in 1..self.plugin.contexts() {
            changes.push(PluginChange::AddContext { id, instance: self.make(worker, numbers)?.instance });
        }
        Ok(Added { changes, reads })
    }
}

/// Changes that add an instance to a worker, with the maps of other instances that its settings name.
pub(super) struct Added<F> {
    pub changes: Vec<PluginChange<F>>,
    pub reads: Vec<Arc<SharedMap>>,
}

/// New copy of an instance, with the maps of other instances that the instance's settings name.
pub(super) struct Made {
    pub instance: Box<dyn Instance>,
    pub reads: Vec<Arc<SharedMap>>,
}

/// Creates a copy of an instance for a context at a worker. All contexts at a worker share its copies of maps,
/// because the worker carries out the access of one context at a time. `settings` are as the user wrote them, with names of ports,
/// instances and maps. `maps` are the maps that the instance writes.
pub(super) fn make(
    plugin: &dyn Plugin,
    settings: &Map<String, Value>,
    maps: &[Arc<SharedMap>],
    worker: usize,
    numbers: &impl Numbers,
) -> Result<Made, Error> {
    let Prepared { settings, maps: reads } = prepare(plugin, settings, numbers)?;
    let mut instance = plugin.create(&settings)?;
    let own = maps.iter().map(|map| map.handle(worker, true));
    let all: Vec<_> = own.chain(reads.iter().map(|map| map.handle(worker, false))).collect();
    if !all.is_empty() {
        instance.attach_maps(all);
    }
    Ok(Made { instance, reads })
}

/// Successors of an instance, such as instances of another plugin version: one for each worker.
pub struct Successors {
    /// Id of the instance to be replaced.
    pub id: InstanceId,
    /// Name of the instance to be replaced.
    pub name: String,
    /// Successors, by worker and context.
    pub instances: Vec<Vec<Box<dyn Instance>>>,
    /// Maps that the successors write and read. The caller records them after the upgrade.
    pub maps: HeldMaps,
}

/// Maps that an instance writes, and maps of other instances that it reads.
#[derive(Clone, Debug, Default)]
pub struct HeldMaps {
    pub(super) own: Vec<Arc<SharedMap>>,
    pub(super) reads: Vec<Arc<SharedMap>>,
}

impl Successors {
    /// Prepares the successors of an instance, with their maps but without instances yet.
    pub(super) fn new(id: InstanceId, name: &str, maps: HeldMaps) -> Self {
        Self { id, name: name.to_owned(), instances: Vec::new(), maps }
    }

    /// Creates the successor's copies for each of `workers` workers, each with `contexts` contexts.
    pub(super) fn create(
        &mut self,
        plugin: &dyn Plugin,
        settings: &Map<String, Value>,
        (workers, contexts): (usize, u8),
        numbers: &impl Numbers,
    ) -> Result<(), Error> {
        for worker in 0..workers {
            let mut copies = Vec::with_capacity(contexts.into());
            for _ in 0..contexts {
                let made = make(plugin, settings, &self.maps.own, worker, numbers)?;
                copies.push(made.instance);
                self.maps.reads = made.reads;
            }
            self.instances.push(copies);
        }
        Ok(())
    }
}
