//! Registry of the instances.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_plugin_abi::{Instance, Message, Plugin, SharedMap};
use millrace_units::InstanceId;
use serde_json::{Map, Value};

use super::checks::{check_name, free, in_use, understood};
use super::creation::{HeldMaps, NamedInstance, Successors, make};
use super::creation_order::{CreationOrder, InstanceNames, cycle_error};
use super::{Error, MOST_INSTANCES};
use crate::PluginChange;
use crate::declaration::settings::{Numbers, prepare, references};

/// Id of an instance, and its host companion; the companion is `None` if the plugin has none.
pub type HostCompanion = (InstanceId, Option<Box<dyn Instance>>);

/// Instances of a router by id: names, plugins, settings and maps.
#[derive(Clone)]
pub struct InstanceRegistry {
    instances: BTreeMap<InstanceId, NamedInstance>,
    /// Numbers of the ports that settings may name.
    ports: BTreeMap<String, u16>,
    /// Number of workers.
    workers: usize,
}

impl Default for InstanceRegistry {
    fn default() -> Self {
        Self { instances: BTreeMap::new(), ports: BTreeMap::new(), workers: 1 }
    }
}

impl InstanceRegistry {
    /// Sets the number of workers. Call this before any instance exists: maps have one copy for each worker.
    pub fn set_workers(&mut self, workers: usize) {
        self.workers = workers.max(1);
    }

    /// Sets the ports that settings may name.
    pub fn set_ports(&mut self, ports: BTreeMap<String, u16>) {
        self.ports = ports;
    }

    /// Creates the instances that [`PluginChange::again`] needs to copy `changes` for worker `worker`: one
    /// for each `AddInstance` and `AddContext` in `changes`.
    pub fn further<G>(
        &self,
        changes: &[PluginChange<G>],
        worker: usize,
    ) -> Result<Vec<Box<dyn Instance>>, Error> {
        let added = changes.iter().filter_map(|change| match change {
            PluginChange::AddInstance { id, .. } | PluginChange::AddContext { id, .. } => self.get(*id),
            _ => None,
        });
        added.map(|named| Ok(named.make(worker, self)?.instance)).collect()
    }

    /// Merges the replies to a message, one from each context at each worker, into one answer.
    pub fn merge_replies(&self, id: InstanceId, message: &Message, replies: Vec<Value>) -> Value {
        match self.get(id) {
            Some(named) => named.plugin.merge(message, replies),
            None => Value::Null,
        }
    }

    /// Checks that the instance's plugin has a control message. Returns the id of the instance.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown), or [`Plugin`](Error::Plugin) with
    /// [`UnknownMessage`](millrace_plugin_abi::PluginError::UnknownMessage).
    pub fn address(&self, instance: &str, message: &Message) -> Result<InstanceId, Error> {
        let (id, named) = self.named(instance)?;
        understood(&*named.plugin, message)?;
        Ok(id)
    }

    /// Checks that the instance's host companion has a control message. Returns the id of the instance.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown), [`NoHostCompanion`](Error::NoHostCompanion), or [`Plugin`](Error::Plugin)
    /// with [`UnknownMessage`](millrace_plugin_abi::PluginError::UnknownMessage).
    pub fn address_host_companion(&self, instance: &str, message: &Message) -> Result<InstanceId, Error> {
        let (id, named) = self.named(instance)?;
        let companion = named.plugin.host_companion();
        understood(companion.ok_or_else(|| Error::NoHostCompanion { name: instance.to_owned() })?, message)?;
        Ok(id)
    }

    /// Returns the ids and names of all instances, except those in quarantine since their creation.
    pub fn running(&self) -> impl Iterator<Item = (InstanceId, &str)> {
        let running = self.iter().filter(|(_, named)| named.held.is_none());
        running.map(|(id, named)| (id, named.name.as_str()))
    }

    /// Returns the settings of an instance as written; `None` for an unknown id.
    pub fn settings_of(&self, id: InstanceId) -> Option<&Map<String, Value>> {
        self.get(id).map(|named| &named.settings)
    }

    /// Returns the maps that an instance writes.
    pub fn maps(&self, instance: &str) -> Result<&[Arc<SharedMap>], Error> {
        Ok(&self.named(instance)?.1.maps)
    }

    /// Returns the map `map` that the instance `instance` writes.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown), or [`NoMaps`](Error::NoMaps) if the instance's plugin declares no maps.
    pub fn map_named(&self, instance: &str, map: &str) -> Result<Arc<SharedMap>, Error> {
        let maps = self.maps(instance)?;
        if maps.is_empty() {
            return Err(Error::NoMaps { name: instance.to_owned() });
        }
        let names = || maps.iter().map(|known| known.shape().name.as_str());
        let found = maps.iter().find(|known| known.shape().name == map);
        found.cloned().ok_or_else(|| Error::unknown("map", map, names()))
    }

    /// Creates the host companion of an instance from the instance's settings, as the user wrote them; `None`
    /// if the plugin has no host companion.
    pub fn host_companion(
        &self,
        plugin: &dyn Plugin,
        settings: &Map<String, Value>,
    ) -> Result<Option<Box<dyn Instance>>, Error> {
        let Some(companion) = plugin.host_companion() else { return Ok(None) };
        Ok(Some(make(companion, settings, &[], 0, self)?.instance))
    }

    /// Creates the host companions for all instances of the plugin, except those in quarantine since their
    /// creation.
    pub fn host_companions(&self, plugin: &dyn Plugin) -> Result<Vec<HostCompanion>, Error> {
        let running = self.running_of(plugin.name());
        running.map(|(id, named)| Ok((id, self.host_companion(plugin, &named.settings)?))).collect()
    }

    /// Creates the host companion of an existing instance, even if the instance is in quarantine.
    pub fn host_companion_of(&self, instance: &str) -> Result<Option<Box<dyn Instance>>, Error> {
        let (_, named) = self.named(instance)?;
        self.host_companion(&*named.plugin, &named.settings)
    }

    /// Creates the successors of an instance for a change of settings, one for each of `workers` workers.
    /// Returns them with the complete new settings.
    ///
    /// `settings` holds only the changes; `null` removes a setting. For an instance in quarantine since its
    /// creation, the list of successors is empty: only its settings change.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown), an error about the settings, or [`Cycle`](Error::Cycle) if the instance would name
    /// itself, also through other instances.
    pub fn with_settings(
        &self,
        instance: &str,
        settings: &Map<String, Value>,
        workers: usize,
    ) -> Result<(Successors, Map<String, Value>), Error> {
        let (id, named) = self.named(instance)?;
        let mut whole = named.settings.clone();
        for (setting, value) in settings {
            match value {
                Value::Null => drop(whole.remove(setting)),
                value => drop(whole.insert(setting.clone(), value.clone())),
            }
        }
        let reads = prepare(&*named.plugin, &whole, self)?.maps;
        self.refuse_cycle(instance, &*named.plugin, &whole)?;
        let workers = if named.held.is_some() { 0 } else { workers };
        let maps = HeldMaps { own: named.maps.clone(), reads };
        let mut successors = Successors::new(id, instance, maps);
        successors.create(&*named.plugin, &whole, (workers, named.plugin.contexts()), self)?;
        Ok((successors, whole))
    }

    /// Creates successors of an instance from its recorded settings, one for each of `workers` workers. They
    /// serve to replace an instance in quarantine.
    pub fn afresh(&self, instance: &str, workers: usize) -> Result<Successors, Error> {
        let (id, named) = self.named(instance)?;
        let maps = HeldMaps { own: named.maps.clone(), reads: Vec::new() };
        let mut successors = Successors::new(id, instance, maps);
        successors.create(&*named.plugin, &named.settings, (workers, named.plugin.contexts()), self)?;
        Ok(successors)
    }

    /// Records the maps of an instance after an upgrade.
    pub fn note_maps(&mut self, id: InstanceId, maps: HeldMaps) {
        if let Some(named) = self.instances.get_mut(&id) {
            (named.maps, named.reads) = (maps.own, maps.reads);
        }
    }

    /// Records the new settings of an instance.
    pub fn note_settings(&mut self, id: InstanceId, settings: Map<String, Value>) {
        if let Some(named) = self.instances.get_mut(&id) {
            named.settings = settings;
        }
    }

    /// Records the release of an instance from quarantine.
    pub fn note_release(&mut self, id: InstanceId) {
        if let Some(named) = self.instances.get_mut(&id) {
            named.held = None;
        }
    }

    /// Renames an instance.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown), [`Taken`](Error::Taken) or [`Name`](Error::Name); [`InUse`](Error::InUse)
    /// while another instance reads its maps or names it in its settings.
    pub fn rename(&mut self, name: &str, to: &str) -> Result<(), Error> {
        let id = self.check_unused(name, &[])?;
        check_name("instance", to)?;
        if name != to && self.named(to).is_ok() {
            return Err(Error::Taken { kind: "instance", name: to.to_owned() });
        }
        if let Some(named) = self.instances.get_mut(&id) {
            named.name = to.to_owned();
        }
        Ok(())
    }

    /// Returns a free id, and a record for a new instance. Doesn't add the record: the caller does so with
    /// [`insert`](Self::insert).
    pub(super) fn prepare(
        &self,
        plugin: Arc<dyn Plugin>,
        name: &str,
        settings: Map<String, Value>,
    ) -> Result<(InstanceId, NamedInstance), Error> {
        check_name("instance", name)?;
        if self.named(name).is_ok() {
            return Err(Error::Taken { kind: "instance", name: name.to_owned() });
        }
        let taken = self.instances.keys().map(|id| id.0.into());
        let id = InstanceId(free(taken, MOST_INSTANCES, "instance")? as u16);
        let maps = plugin.maps().iter().map(|shape| SharedMap::new(shape.clone(), self.workers)).collect();
        let name = name.to_owned();
        Ok((id, NamedInstance { name, plugin, settings, held: None, maps, reads: Vec::new() }))
    }

    /// Records an instance.
    pub(super) fn insert(&mut self, id: InstanceId, named: NamedInstance) {
        self.instances.insert(id, named);
    }

    /// Returns the id of an instance that can be freed once the instances in `leaving` no longer refer to it.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown), or [`InUse`](Error::InUse) while another instance reads its maps or names
    /// it in its settings.
    pub fn check_unused(&self, name: &str, leaving: &[&str]) -> Result<InstanceId, Error> {
        let (id, _) = self.named(name)?;
        in_use("instance", name, &self.users(name, leaving))?;
        Ok(id)
    }

    /// Removes an instance, and returns its id. Fails if another instance refers to it.
    pub(super) fn remove(&mut self, name: &str) -> Result<InstanceId, Error> {
        let id = self.check_unused(name, &[])?;
        self.instances.remove(&id);
        Ok(id)
    }

    /// Replaces a plugin by `plugin`, which has the same name, in the records of all its instances.
    pub(super) fn replace_plugin(&mut self, plugin: &Arc<dyn Plugin>) {
        for named in self.instances.values_mut().filter(|named| named.plugin.name() == plugin.name()) {
            named.plugin = plugin.clone();
        }
    }

    /// Returns the number of the last worker.
    pub(super) fn last_worker(&self) -> usize {
        self.workers - 1
    }

    /// Returns an instance by id.
    pub(super) fn get(&self, id: InstanceId) -> Option<&NamedInstance> {
        self.instances.get(&id)
    }

    /// Returns the instance with this name.
    pub(super) fn named(&self, name: &str) -> Result<(InstanceId, &NamedInstance), Error> {
        let found = self.iter().find(|(_, named)| named.name == name);
        let names = || self.instances.values().map(|named| named.name.as_str());
        found.ok_or_else(|| Error::unknown("instance", name, names()))
    }

    /// Returns all instances, in ascending order of ids.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (InstanceId, &NamedInstance)> {
        self.instances.iter().map(|(id, named)| (*id, named))
    }

    /// Returns the instances of a plugin, without those in quarantine since their creation.
    pub(super) fn running_of(&self, plugin: &str) -> impl Iterator<Item = (InstanceId, &NamedInstance)> {
        self.iter().filter(move |(_, named)| named.plugin.name() == plugin && named.held.is_none())
    }

    /// Returns the maps that an instance has after an upgrade to `plugin`. A map stays if both versions
    /// declare it with the same shape.
    ///
    /// # Errors
    /// [`InUse`](Error::InUse) if another instance reads a map that doesn't stay.
    pub(super) fn maps_under(
        &self,
        named: &NamedInstance,
        plugin: &dyn Plugin,
    ) -> Result<Vec<Arc<SharedMap>>, Error> {
        for map in named.maps.iter().filter(|map| !plugin.maps().contains(map.shape())) {
            let readers = self.readers(&named.name, map);
            in_use("map", &map.shape().name, &readers)?;
        }
        let kept = |shape| named.maps.iter().find(|map| map.shape() == shape).cloned();
        let maps = plugin.maps().iter();
        Ok(maps
            .map(|shape| kept(shape).unwrap_or_else(|| SharedMap::new(shape.clone(), self.workers)))
            .collect())
    }

    /// Returns the order in which the instances could be created: after those that their settings name, otherwise in
    /// ascending order of ids.
    pub fn creation_order(&self) -> CreationOrder<'_> {
        let mut names = InstanceNames::default();
        for named in self.instances.values() {
            names.add(&named.name, &*named.plugin, &named.settings);
        }
        names.order()
    }

    /// Refuses settings by which an instance would name itself, also through other instances.
    fn refuse_cycle(
        &self,
        instance: &str,
        plugin: &dyn Plugin,
        settings: &Map<String, Value>,
    ) -> Result<(), Error> {
        if references(plugin, settings).is_empty() {
            return Ok(());
        }
        let mut names = InstanceNames::default();
        for named in self.instances.values() {
            let settings = if named.name == instance { settings } else { &named.settings };
            names.add(&named.name, &*named.plugin, settings);
        }
        let cycles = names.order().cycles;
        let own = cycles.iter().find(|cycle| cycle.contains(&instance));
        own.map_or(Ok(()), |cycle| Err(cycle_error(cycle)))
    }

    /// Describes the instances that refer to an instance, without those in `leaving`: they read its maps, or name it in
    /// their settings.
    fn users(&self, name: &str, leaving: &[&str]) -> Vec<String> {
        let others = self.instances.values().filter(|named| named.name != name);
        let staying = others.filter(|named| !leaving.contains(&&*named.name));
        let use_of = |named: &NamedInstance| {
            let references = references(&*named.plugin, &named.settings);
            let reference = references.iter().find(|reference| reference.instance == name)?;
            Some(match (&named.name, reference.setting) {
                (user, _) if reference.is_map => format!("instance {user:?}, which reads its maps"),
                (user, setting) => format!("instance {user:?}, whose setting {setting:?} names it"),
            })
        };
        staying.filter_map(use_of).collect()
    }

    /// Describes the instances other than `owner` that read a map of the owner.
    fn readers(&self, owner: &str, map: &Arc<SharedMap>) -> Vec<String> {
        let reads = |named: &&NamedInstance| {
            named.name != owner && named.reads.iter().any(|read| Arc::ptr_eq(read, map))
        };
        let readers = self.instances.values().filter(reads);
        readers.map(|named| format!("instance {:?}, which reads its maps", named.name)).collect()
    }
}

impl Numbers for InstanceRegistry {
    fn port(&self, name: &str) -> Result<u16, Error> {
        let unknown = || Error::unknown("port", name, self.ports.keys().map(String::as_str));
        self.ports.get(name).copied().ok_or_else(unknown)
    }

    fn instance(&self, name: &str) -> Result<u16, Error> {
        self.named(name).map(|(id, _)| id.0)
    }

    fn map(&self, name: &str) -> Result<Arc<SharedMap>, Error> {
        match name.split_once('/') {
            Some((instance, map)) => self.map_named(instance, map),
            None => Err(Error::NoMapName { name: name.to_owned() }),
        }
    }
}
