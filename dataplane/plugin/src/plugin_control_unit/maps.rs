//! Maps of instances: created with their instance and kept while a reader exists.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use millrace_plugin_abi::{Instance, Plugin, SharedMap};
use serde_json::{Map, Value};

use super::{Error, NamedInstance, PluginControlUnit, in_use};
use crate::declaration::settings::{Prepared, prepare};

/// New instance, with the maps of other instances that its settings name.
pub(super) struct Made {
    pub instance: Box<dyn Instance>,
    pub reads: Vec<Arc<SharedMap>>,
}

impl<S: Clone + Eq + Hash + fmt::Display, F: Clone> PluginControlUnit<S, F> {
    /// Sets the number of workers. Call this before any instance exists: each worker writes its own copy of
    /// the maps.
    pub fn set_workers(&mut self, workers: usize) {
        self.workers = workers.max(1);
    }

    /// Creates an instance of a plugin for a worker, from settings as written and with its own `maps`.
    pub(super) fn make(
        &self,
        plugin: &dyn Plugin,
        settings: &Map<String, Value>,
        maps: &[Arc<SharedMap>],
        worker: usize,
    ) -> Result<Made, Error> {
        let Prepared { settings, maps: reads } = prepare(plugin, settings, self)?;
        let mut instance = plugin.create(&settings)?;
        let own = maps.iter().map(|map| map.handle(worker, true));
        let all: Vec<_> = own.chain(reads.iter().map(|map| map.handle(worker, false))).collect();
        if !all.is_empty() {
            instance.attach_maps(all);
        }
        Ok(Made { instance, reads })
    }

    /// Creates empty maps for an instance of a plugin.
    pub(super) fn new_maps(&self, plugin: &dyn Plugin) -> Vec<Arc<SharedMap>> {
        plugin.maps().iter().map(|shape| SharedMap::new(shape.clone(), self.workers)).collect()
    }

    /// Returns the maps of an instance after an upgrade of its plugin. Maps that both versions declare with
    /// the same shape stay.
    ///
    /// # Errors
    /// [`InUse`](Error::InUse) if another instance reads a map that the new version lacks.
    pub(super) fn maps_under(
        &self,
        named: &NamedInstance,
        plugin: &dyn Plugin,
    ) -> Result<Vec<Arc<SharedMap>>, Error> {
        for map in named.maps.iter().filter(|map| !plugin.maps().contains(map.shape())) {
            in_use("map", &map.shape().name, &self.readers(&named.name, std::slice::from_ref(map)))?;
        }
        let kept = |shape| named.maps.iter().find(|map| map.shape() == shape).cloned();
        let maps = plugin.maps().iter();
        Ok(maps
            .map(|shape| kept(shape).unwrap_or_else(|| SharedMap::new(shape.clone(), self.workers)))
            .collect())
    }

    /// Returns the other instances that read any of the owner's maps.
    pub(super) fn readers(&self, owner: &str, maps: &[Arc<SharedMap>]) -> Vec<String> {
        let reads = |named: &&NamedInstance| {
            named.name != owner
                && named.reads.iter().any(|read| maps.iter().any(|map| Arc::ptr_eq(read, map)))
        };
        let readers = self.instances.values().filter(reads);
        readers.map(|named| format!("instance {:?}, which reads its maps", named.name)).collect()
    }

    /// Returns the maps of an instance.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown).
    pub fn maps(&self, instance: &str) -> Result<&[Arc<SharedMap>], Error> {
        let id = self.instance(instance)?;
        Ok(self.instances.get(&id).map_or(&[], |named| &named.maps))
    }

    /// Returns a map of an instance by name.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown), or [`NoMaps`](Error::NoMaps) if the plugin declares none.
    pub fn map_named(&self, instance: &str, map: &str) -> Result<Arc<SharedMap>, Error> {
        let maps = self.maps(instance)?;
        if maps.is_empty() {
            return Err(Error::NoMaps { name: instance.to_owned() });
        }
        let names = || maps.iter().map(|known| known.shape().name.as_str());
        let found = maps.iter().find(|known| known.shape().name == map);
        found.cloned().ok_or_else(|| Error::unknown("map", map, names()))
    }
}
