//! Registry of the plugins.

use std::sync::Arc;

use millrace_plugin_abi::{Plugin, Runtime};

use super::checks::check_features;
use super::description::{PluginDescription, PluginStatement, describe, state};
use super::{Error, MOST_INSTANCES};

/// Registered plugins, in the order of registration.
#[derive(Clone, Default)]
pub struct PluginRegistry {
    plugins: Vec<Registered>,
    next_number: usize,
}

#[derive(Clone)]
struct Registered {
    plugin: Arc<dyn Plugin>,
    number: u16,
    /// Whether the plugin is built in. It counts as built in even after a plugin file has replaced it.
    is_built_in: bool,
}

impl PluginRegistry {
    /// Checks that no plugin has this name.
    pub fn check_new(&self, name: &str) -> Result<(), Error> {
        match self.registered(name) {
            Ok(_) => Err(Error::Taken { kind: "plugin", name: name.to_owned() }),
            Err(_) => Ok(()),
        }
    }

    /// Whether a plugin is built in. It counts as built in even after a plugin file has replaced it.
    pub fn is_built_in(&self, name: &str) -> Result<bool, Error> {
        Ok(self.registered(name)?.is_built_in)
    }

    /// Returns the descriptions of all plugins, in the order of registration.
    pub fn describe(&self) -> Vec<PluginDescription> {
        self.plugins.iter().map(|registered| describe(&*registered.plugin, registered.number)).collect()
    }

    /// Returns the complete declaration of a plugin.
    pub fn state(&self, name: &str) -> Result<PluginStatement, Error> {
        let registered = self.registered(name)?;
        Ok(state(&*registered.plugin, registered.number))
    }

    pub(super) fn len(&self) -> usize {
        self.plugins.len()
    }

    /// Registers a plugin.
    pub(super) fn add(&mut self, plugin: Arc<dyn Plugin>) -> Result<(), Error> {
        self.check_new(plugin.name())?;
        check_features(&*plugin)?;
        let number = u16::try_from(self.next_number)
            .map_err(|_| Error::Full { kind: "plugin", limit: MOST_INSTANCES })?;
        self.next_number += 1;
        let is_built_in = plugin.runtime() == Runtime::BuiltIn;
        self.plugins.push(Registered { plugin, number, is_built_in });
        Ok(())
    }

    /// Removes a plugin.
    pub(super) fn remove(&mut self, name: &str) {
        self.plugins.retain(|registered| registered.plugin.name() != name);
    }

    /// Replaces the plugin of the same name, and returns the replaced plugin.
    pub(super) fn replace(&mut self, plugin: Arc<dyn Plugin>) -> Result<Arc<dyn Plugin>, Error> {
        let name = plugin.name();
        match self.plugins.iter_mut().find(|registered| registered.plugin.name() == name) {
            Some(registered) => Ok(std::mem::replace(&mut registered.plugin, plugin)),
            None => Err(self.unknown(name)),
        }
    }

    /// Returns the plugin with this name.
    pub(super) fn get(&self, name: &str) -> Result<&Arc<dyn Plugin>, Error> {
        Ok(&self.registered(name)?.plugin)
    }

    fn registered(&self, name: &str) -> Result<&Registered, Error> {
        let found = self.plugins.iter().find(|registered| registered.plugin.name() == name);
        found.ok_or_else(|| self.unknown(name))
    }

    fn unknown(&self, name: &str) -> Error {
        Error::unknown("plugin", name, self.plugins.iter().map(|registered| registered.plugin.name()))
    }
}
