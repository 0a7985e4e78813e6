//! Highest versions of plugins: older versions are not loaded again, even after a restart of the router.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::notebook::{Notebook, NotebookError};
use crate::{KeyId, Version};

const FILE: &str = "plugin-versions.json";

/// Highest version of a plugin signed by one key that was loaded.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Highest {
    plugin: String,
    key: KeyId,
    version: Version,
}

/// Highest loaded versions, by plugin and key.
#[derive(Clone, Debug)]
pub(crate) struct Versions(Notebook<Highest>);

impl Versions {
    /// Opens the versions in a directory; without a directory, they hold only the versions of this run.
    pub fn open(directory: Option<&Path>) -> Self {
        Self(Notebook::open(directory, FILE))
    }

    /// Returns why the file could not be read.
    pub fn damage(&self) -> Option<&str> {
        self.0.damage()
    }

    /// Returns the highest loaded version of a plugin among the keys for which `keys` is true.
    pub fn highest(&self, plugin: &str, keys: impl Fn(KeyId) -> bool) -> Option<Version> {
        let of_plugin = self.0.entries().iter().filter(|entry| entry.plugin == plugin && keys(entry.key));
        of_plugin.map(|entry| entry.version).max()
    }

    /// Returns the highest version of a plugin with this key's signature.
    pub fn of(&self, plugin: &str, key: KeyId) -> Option<Version> {
        self.highest(plugin, |other| other == key)
    }

    /// Sets the highest version of a plugin with a key's signature; `None` removes it.
    pub fn set(&mut self, plugin: &str, key: KeyId, version: Option<Version>) -> Result<(), NotebookError> {
        self.0.change(|all| {
            all.retain(|entry| entry.plugin != plugin || entry.key != key);
            all.extend(version.map(|version| Highest { plugin: plugin.to_owned(), key, version }));
        })
    }

    /// Raises the highest version to `version`. A higher version recorded by another router stays.
    pub fn raise(&mut self, plugin: &str, key: KeyId, version: Version) -> Result<(), NotebookError> {
        self.0.change(|all| match all.iter_mut().find(|entry| entry.plugin == plugin && entry.key == key) {
            Some(entry) => entry.version = entry.version.max(version),
            None => all.push(Highest { plugin: plugin.to_owned(), key, version }),
        })
    }
}
