//! Replacement of instances and plugins: other version, settings or name.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use millrace_plugin_abi::{Instance, Message, Plugin, SharedMap};
use millrace_units::InstanceId;
use serde_json::{Map, Value};

use super::bindings::stands_at;
use super::{Error, NamedInstance, PluginControlUnit, check_name, in_use, understood};
use crate::Action;
use crate::declaration::settings::prepare;

/// Instances that replace an instance, such as those of another plugin version.
pub struct Successors {
    /// Id of the replaced instance.
    pub id: InstanceId,
    /// Name of the replaced instance.
    pub name: String,
    /// New instances, one for each worker.
    pub instances: Vec<Box<dyn Instance>>,
    /// Maps that the new instances write and read, to be recorded after the replacement.
    pub maps: HeldMaps,
}

/// Id of an instance, with the instance of its host companion if its plugin has one.
pub type HostCompanion = (InstanceId, Option<Box<dyn Instance>>);

/// Maps that an instance writes, and maps of other instances that it reads.
#[derive(Clone, Debug, Default)]
pub struct HeldMaps {
    own: Vec<Arc<SharedMap>>,
    reads: Vec<Arc<SharedMap>>,
}

impl<S: Clone + Eq + Hash + fmt::Display, F: Clone> PluginControlUnit<S, F> {
    /// Creates the successors of all instances of a plugin for its upgrade to `plugin`: one new instance per
    /// worker. Skips instances in quarantine since their creation.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown) if no plugin has this name. [`Position`](Error::Position) if the new
    /// version doesn't support a gate where an instance is bound. An error of the plugin about the settings.
    pub fn successors(&self, plugin: &dyn Plugin, workers: usize) -> Result<Vec<Successors>, Error> {
        self.plugin(plugin.name())?;
        let mut successors = Vec::new();
        let concerned = |named: &NamedInstance| named.plugin.name() == plugin.name() && named.held.is_none();
        for (id, named) in self.instances.iter().filter(|(_, named)| concerned(named)) {
            let here = self.bindings.values().filter(|bound| bound.action == Action::Instance(*id));
            for gate in here.filter_map(|bound| self.gates.iter().find(|gate| gate.id == bound.gate)) {
                stands_at(gate, plugin.positions(), || {
                    format!("plugin {} {}", plugin.name(), plugin.version())
                })?;
            }
            let own = self.maps_under(named, plugin)?;
            successors.push(self.succeeding(*id, &named.name, plugin, &named.settings, own, workers)?);
        }
        Ok(successors)
    }

    /// Creates the successors of an instance, one for each of `workers` workers.
    pub(super) fn succeeding(
        &self,
        id: InstanceId,
        name: &str,
        plugin: &dyn Plugin,
        settings: &Map<String, Value>,
        own: Vec<Arc<SharedMap>>,
        workers: usize,
    ) -> Result<Successors, Error> {
        let (mut instances, mut reads) = (Vec::new(), Vec::new());
        for worker in 0..workers {
            let made = self.make(plugin, settings, &own, worker)?;
            instances.push(made.instance);
            reads = made.reads;
        }
        Ok(Successors { id, name: name.to_owned(), instances, maps: HeldMaps { own, reads } })
    }

    /// Creates an instance of a plugin's host companion from settings as written; `None` if the plugin has no
    /// host companion.
    ///
    /// # Errors
    /// Error of the host companion about the settings.
    pub fn host_companion(
        &self,
        plugin: &dyn Plugin,
        settings: &Map<String, Value>,
    ) -> Result<Option<Box<dyn Instance>>, Error> {
        let Some(slow) = plugin.host_companion() else { return Ok(None) };
        Ok(Some(self.make(slow, settings, &[], 0)?.instance))
    }

    /// Creates the host companions of all instances of the plugin. Skips instances in quarantine since their
    /// creation.
    ///
    /// # Errors
    /// Error of the host companion about the settings.
    pub fn host_companions(&self, plugin: &dyn Plugin) -> Result<Vec<HostCompanion>, Error> {
        let concerned = |named: &NamedInstance| named.plugin.name() == plugin.name() && named.held.is_none();
        let named = self.instances.iter().filter(|(_, named)| concerned(named));
        named.map(|(id, named)| Ok((*id, self.host_companion(plugin, &named.settings)?))).collect()
    }

    /// Creates the host companion of an existing instance, also of one in quarantine.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown), or an error of the host companion about the settings.
    pub fn host_companion_of(&self, instance: &str) -> Result<Option<Box<dyn Instance>>, Error> {
        let named = self.named(self.instance(instance)?, instance)?;
        self.host_companion(&*named.plugin, &named.settings)
    }

    /// Checks that the instance's host companion has a control message. Returns the id of the instance.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown), [`NoHostCompanion`](Error::NoHostCompanion), or [`Plugin`](Error::Plugin)
    /// with [`UnknownMessage`](millrace_plugin_abi::PluginError::UnknownMessage).
    pub fn address_host_companion(&self, instance: &str, message: &Message) -> Result<InstanceId, Error> {
        let id = self.instance(instance)?;
        let slow = self.named(id, instance)?.plugin.host_companion();
        understood(slow.ok_or_else(|| Error::NoHostCompanion { name: instance.to_owned() })?, message)?;
        Ok(id)
    }

    /// Returns the names of all instances but those in quarantine since their creation.
    pub fn running(&self) -> impl Iterator<Item = (InstanceId, &str)> {
        let running = self.instances.iter().filter(|(_, named)| named.held.is_none());
        running.map(|(id, named)| (*id, named.name.as_str()))
    }

    /// Records the maps of an instance after its replacement by successors.
    pub fn note_maps(&mut self, id: InstanceId, maps: HeldMaps) {
        if let Some(named) = self.instances.get_mut(&id) {
            (named.maps, named.reads) = (maps.own, maps.reads);
        }
    }

    /// Creates the successors of an instance for a change of settings: one new instance per worker. Returns
    /// them with the new settings. `settings` holds the changes; `null` removes a setting. An instance in
    /// quarantine since its creation gets no successors: only its settings change.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown), or an error of the plugin about the settings.
    pub fn with_settings(
        &self,
        instance: &str,
        settings: &Map<String, Value>,
        workers: usize,
    ) -> Result<(Successors, Map<String, Value>), Error> {
        let id = self.instance(instance)?;
        let named = self.named(id, instance)?;
        let mut whole = named.settings.clone();
        for (setting, value) in settings {
            match value {
                Value::Null => drop(whole.remove(setting)),
                value => drop(whole.insert(setting.clone(), value.clone())),
            }
        }
        let reads = prepare(&*named.plugin, &whole, self)?.maps;
        let workers = if named.held.is_some() { 0 } else { workers };
        let own = named.maps.clone();
        let mut successors = self.succeeding(id, instance, &*named.plugin, &whole, own, workers)?;
        successors.maps.reads = reads;
        Ok((successors, whole))
    }

    /// Records the new settings of an instance.
    pub fn note_settings(&mut self, id: InstanceId, settings: Map<String, Value>) {
        if let Some(named) = self.instances.get_mut(&id) {
            named.settings = settings;
        }
    }

    /// Returns the plugin of an instance.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown).
    pub fn plugin_of(&self, instance: &str) -> Result<Arc<dyn Plugin>, Error> {
        let id = self.instance(instance)?;
        Ok(self.named(id, instance)?.plugin.clone())
    }

    /// Returns the record of an instance.
    pub(super) fn named(&self, id: InstanceId, name: &str) -> Result<&NamedInstance, Error> {
        self.instances.get(&id).ok_or_else(|| Error::unknown("instance", name, std::iter::empty()))
    }

    /// Renames an instance.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown), [`Taken`](Error::Taken) or [`Name`](Error::Name); [`InUse`](Error::InUse)
    /// while another instance reads its maps or names it in its settings.
    pub fn rename_instance(&mut self, name: &str, to: &str) -> Result<(), Error> {
        let id = self.instance(name)?;
        in_use("instance", name, &self.users(name)?)?;
        check_name("instance", to)?;
        if name != to && self.instance(to).is_ok() {
            return Err(Error::Taken { kind: "instance", name: to.to_owned() });
        }
        if let Some(named) = self.instances.get_mut(&id) {
            named.name = to.to_owned();
        }
        Ok(())
    }

    /// Replaces the plugin of the same name for all present and future instances. Returns the replaced
    /// plugin.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown).
    pub fn replace_plugin(&mut self, plugin: Arc<dyn Plugin>) -> Result<Arc<dyn Plugin>, Error> {
        let name = plugin.name();
        self.plugin(name)?;
        for named in self.instances.values_mut().filter(|named| named.plugin.name() == name) {
            named.plugin = plugin.clone();
        }
        let place = self.plugins.iter_mut().find(|registered| registered.plugin.name() == name);
        Ok(place.map_or(plugin.clone(), |place| std::mem::replace(&mut place.plugin, plugin)))
    }
}
