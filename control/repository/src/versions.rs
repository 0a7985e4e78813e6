//! Highest loaded versions of plugins. The router doesn't load older versions again, even after a restart.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::notebook::{Notebook, NotebookError};
use crate::{KeyId, Version};

const FILE: &str = "plugin-versions.json";

/// Highest loaded version of a plugin, among the versions signed by one key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Highest {
    plugin: String,
    key: KeyId,
    version: Version,
}

/// Highest loaded versions, by plugin and signing key.
#[derive(Clone, Debug)]
pub(crate) struct Versions(Notebook<Highest>);

impl Versions {
    /// Opens the versions in a directory. Without a directory, the versions are lost when the router ends.
    pub fn open(directory: Option<&Path>) -> Self {
        Self(Notebook::open(directory, FILE))
    }

    /// Returns why the version file could not be read; `None` if it was readable.
    pub fn damage(&self) -> Option<&str> {
        self.0.damage()
    }

    /// Returns the highest loaded version of a plugin. Only versions signed by a key for which `keys` returns
    /// true count.
    pub fn highest(&self, plugin: &str, keys: impl Fn(KeyId) -> bool) -> Option<Version> {
        let of_plugin = self.0.entries().iter().filter(|entry| entry.plugin == plugin && keys(entry.key));
        of_plugin.map(|entry| entry.version).max()
    }

    /// Returns the highest loaded version of a plugin signed by this key.
    pub fn of(&self, plugin: &str, key: KeyId) -> Option<Version> {
        self.highest(plugin, |other| other == key)
    }

    /// Sets the highest version of a plugin signed by `key`; `None` removes it.
    pub fn set(&mut self, plugin: &str, key: KeyId, version: Option<Version>) -> Result<(), NotebookError> {
        self.0.change(|all| {
            all.retain(|entry| entry.plugin != plugin || entry.key != key);
            all.extend(version.map(|version| Highest { plugin: plugin.to_owned(), key, version }));
        })
    }

    /// Raises the highest version to `version`. A higher version, recorded by another router, stays.
    pub fn raise(&mut self, plugin: &str, key: KeyId, version: Version) -> Result<(), NotebookError> {
        self.0.change(|all| match all.iter_mut().find(|entry| entry.plugin == plugin && entry.key == key) {
            Some(entry) => entry.version = entry.version.max(version),
            None => all.push(Highest { plugin: plugin.to_owned(), key, version }),
        })
    }
}
