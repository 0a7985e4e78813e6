//! Instances and plugins that get another version, other settings or another name, and go on.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use millrace_plugin_abi::{Instance, Message, Plugin, SharedMap};
use millrace_units::InstanceId;
use serde_json::{Map, Value};

use super::bindings::stands_at;
use super::{Error, NamedInstance, PluginControlUnit, check_name, in_use, understood};
use crate::Action;
use crate::settings::prepare;

/// Instances of another version of a plugin, made to take the place of one.
pub struct Successors {
    /// Whose place.
    pub id: InstanceId,
    /// Its name.
    pub name: String,
    /// One for each worker.
    pub instances: Vec<Box<dyn Instance>>,
    /// The maps that they write and read, to be noted when they have taken the place.
    pub maps: HeldMaps,
}

/// An instance, and the one of its host companion, if its plugin has one.
pub type HostCompanion = (InstanceId, Option<Box<dyn Instance>>);

/// The maps that an instance writes, and those of others that it reads.
#[derive(Clone, Debug, Default)]
pub struct HeldMaps {
    own: Vec<Arc<SharedMap>>,
    reads: Vec<Arc<SharedMap>>,
}

impl<S: Clone + Eq + Hash + fmt::Display, F: Clone> PluginControlUnit<S, F> {
    /// The instances of a plugin, with an instance of another version of it for each of so many workers: what it takes to
    /// put that in its place. Those that are in quarantine from their creation on stay there, and are left out.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown) where there is no plugin of its name, [`Position`](Error::Position) when it can't stand
    /// where instances are bound, and what it says against their settings.
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

    /// What takes the place of an instance at each of so many workers.
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

    /// An instance of the host companion of a plugin, with settings as they were written; `None` where it has none.
    ///
    /// # Errors
    /// What it says against the settings.
    pub fn host_companion(
        &self,
        plugin: &dyn Plugin,
        settings: &Map<String, Value>,
    ) -> Result<Option<Box<dyn Instance>>, Error> {
        let Some(slow) = plugin.host_companion() else { return Ok(None) };
        Ok(Some(self.make(slow, settings, &[], 0)?.instance))
    }

    /// The same for all instances of the plugin of that name that aren't in quarantine from their creation on.
    ///
    /// # Errors
    /// What it says against their settings.
    pub fn host_companions(&self, plugin: &dyn Plugin) -> Result<Vec<HostCompanion>, Error> {
        let concerned = |named: &NamedInstance| named.plugin.name() == plugin.name() && named.held.is_none();
        let named = self.instances.iter().filter(|(_, named)| concerned(named));
        named.map(|(id, named)| Ok((*id, self.host_companion(plugin, &named.settings)?))).collect()
    }

    /// The same for an instance there is, quarantine or not.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown), and what it says against the settings.
    pub fn host_companion_of(&self, instance: &str) -> Result<Option<Box<dyn Instance>>, Error> {
        let named = self.named(self.instance(instance)?, instance)?;
        self.host_companion(&*named.plugin, &named.settings)
    }

    /// The instance to whose host companion a control message goes, once that is known to have such a message.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown), [`NoHostCompanion`](Error::NoHostCompanion), or [`Plugin`](Error::Plugin) with
    /// [`UnknownMessage`](millrace_plugin_abi::PluginError::UnknownMessage).
    pub fn address_host_companion(&self, instance: &str, message: &Message) -> Result<InstanceId, Error> {
        let id = self.instance(instance)?;
        let slow = self.named(id, instance)?.plugin.host_companion();
        understood(slow.ok_or_else(|| Error::NoHostCompanion { name: instance.to_owned() })?, message)?;
        Ok(id)
    }

    /// The names of all instances that aren't in quarantine from their creation on.
    pub fn running(&self) -> impl Iterator<Item = (InstanceId, &str)> {
        let running = self.instances.iter().filter(|(_, named)| named.held.is_none());
        running.map(|(id, named)| (*id, named.name.as_str()))
    }

    /// Notes the maps of an instance whose successors have taken its place.
    pub fn note_maps(&mut self, id: InstanceId, maps: HeldMaps) {
        if let Some(named) = self.instances.get_mut(&id) {
            (named.maps, named.reads) = (maps.own, maps.reads);
        }
    }

    /// An instance with other settings for each of so many workers: what it takes to put them in the place of one.
    /// `settings` are those that change; `null` takes one away. Returns the settings that it will have. For one that is in
    /// quarantine from its creation on there is no instance: only its settings change.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown), and what its plugin says against the settings.
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

    /// Notes the settings that an instance has from now on.
    pub fn note_settings(&mut self, id: InstanceId, settings: Map<String, Value>) {
        if let Some(named) = self.instances.get_mut(&id) {
            named.settings = settings;
        }
    }

    /// The plugin of an instance.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown).
    pub fn plugin_of(&self, instance: &str) -> Result<Arc<dyn Plugin>, Error> {
        let id = self.instance(instance)?;
        Ok(self.named(id, instance)?.plugin.clone())
    }

    /// What is known of an instance.
    pub(super) fn named(&self, id: InstanceId, name: &str) -> Result<&NamedInstance, Error> {
        self.instances.get(&id).ok_or_else(|| Error::unknown("instance", name, std::iter::empty()))
    }

    /// Gives an instance another name.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown), [`Taken`](Error::Taken) or [`Name`](Error::Name); [`InUse`](Error::InUse) while settings of
    /// another instance name its maps.
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

    /// Has a plugin take the place of the one of its name, for instances there are and those to come. Returns the one that
    /// was there.
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
