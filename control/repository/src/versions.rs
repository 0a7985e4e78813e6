//! How far the versions of plugins have come: what is older is not loaded again, also after a restart of the router.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::notebook::{Notebook, NotebookError};
use crate::{KeyId, Version};

const FILE: &str = "plugin-versions.json";

/// The highest version of a plugin that was loaded with a key's signature.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Highest {
    plugin: String,
    key: KeyId,
    version: Version,
}

/// The highest versions that were loaded, by plugin and key.
#[derive(Clone, Debug)]
pub(crate) struct Versions(Notebook<Highest>);

impl Versions {
    /// Those of a directory; without one, those that this router has loaded itself.
    pub fn open(directory: Option<&Path>) -> Self {
        Self(Notebook::open(directory, FILE))
    }

    /// Why it isn't known what was loaded before.
    pub fn damage(&self) -> Option<&str> {
        self.0.damage()
    }

    /// The highest version of a plugin that one of these keys has signed.
    pub fn highest(&self, plugin: &str, keys: impl Fn(KeyId) -> bool) -> Option<Version> {
        let of_plugin = self.0.entries().iter().filter(|entry| entry.plugin == plugin && keys(entry.key));
        of_plugin.map(|entry| entry.version).max()
    }

    /// The highest version of a plugin with this key's signature.
    pub fn of(&self, plugin: &str, key: KeyId) -> Option<Version> {
        self.highest(plugin, |other| other == key)
    }

    /// Sets the highest version of a plugin with a key's signature; `None` when there was none.
    ///
    /// # Errors
    /// When it is not on the disk.
    pub fn set(&mut self, plugin: &str, key: KeyId, version: Option<Version>) -> Result<(), NotebookError> {
        self.0.change(|all| {
            all.retain(|entry| entry.plugin != plugin || entry.key != key);
            all.extend(version.map(|version| Highest { plugin: plugin.to_owned(), key, version }));
        })
    }

    /// Notes that a version was loaded. A lower one than another router has noted changes nothing.
    ///
    /// # Errors
    /// When it is not on the disk.
    pub fn raise(&mut self, plugin: &str, key: KeyId, version: Version) -> Result<(), NotebookError> {
        self.0.change(|all| match all.iter_mut().find(|entry| entry.plugin == plugin && entry.key == key) {
            Some(entry) => entry.version = entry.version.max(version),
            None => all.push(Highest { plugin: plugin.to_owned(), key, version }),
        })
    }
}
