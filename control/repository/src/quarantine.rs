//! Quarantine: instances that the router does not start by itself. A call of each such instance hung or
//! crashed, and so ended the router.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::notebook::{Notebook, NotebookError};

const FILE: &str = "quarantine.json";

/// Quarantine entry of an instance.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Held {
    /// Name of the instance.
    pub instance: String,
    /// Name of its plugin. Instances of different plugins with the same name have separate entries.
    pub plugin: String,
    /// Time of the hang or crash, in seconds since 1970.
    pub since: u64,
    /// Reason, in a sentence.
    pub why: String,
}

impl Held {
    /// Whether the entry is for this instance of this plugin.
    fn is(&self, instance: &str, plugin: &str) -> bool {
        self.instance == instance && self.plugin == plugin
    }
}

/// Instances in quarantine, stored in a file.
#[derive(Clone, Debug)]
pub struct Quarantine(Notebook<Held>);

impl Quarantine {
    /// Opens the quarantine in a directory. Without a directory, the entries are lost when the router ends.
    pub fn open(directory: Option<&Path>) -> Self {
        Self(Notebook::open(directory, FILE))
    }

    /// Returns all entries.
    pub fn all(&self) -> &[Held] {
        self.0.entries()
    }

    /// Returns why the quarantine file could not be read; `None` if it was readable.
    pub fn damage(&self) -> Option<&str> {
        self.0.damage()
    }

    /// Whether the entries survive the end of the router.
    pub fn is_kept(&self) -> bool {
        self.0.is_kept()
    }

    /// Returns the entry of an instance in quarantine.
    pub fn find(&self, instance: &str, plugin: &str) -> Option<&Held> {
        self.all().iter().find(|held| held.is(instance, plugin))
    }

    /// Returns the entries of all instances with this name, one for each plugin.
    pub fn named<'a>(&'a self, instance: &'a str) -> impl Iterator<Item = &'a Held> {
        self.all().iter().filter(move |held| held.instance == instance)
    }

    /// Returns the entries of a plugin, one for each instance.
    pub fn of_plugin<'a>(&'a self, plugin: &'a str) -> impl Iterator<Item = &'a Held> {
        self.all().iter().filter(move |held| held.plugin == plugin)
    }

    /// Puts an instance into quarantine.
    pub fn put(&mut self, held: Held) -> Result<(), NotebookError> {
        self.0.change(|all| {
            all.retain(|other| !other.is(&held.instance, &held.plugin));
            all.push(held);
        })
    }

    /// Releases an instance of a plugin; returns whether it was in quarantine.
    pub fn release(&mut self, instance: &str, plugin: &str) -> Result<bool, NotebookError> {
        if self.find(instance, plugin).is_none() {
            return Ok(false);
        }
        self.0.change(|all| all.retain(|held| !held.is(instance, plugin)))?;
        Ok(true)
    }

    /// Renames an instance of a plugin. An earlier entry with the new name and plugin is replaced.
    pub fn rename(&mut self, instance: &str, plugin: &str, to: &str) -> Result<(), NotebookError> {
        let Some(held) = self.find(instance, plugin).cloned() else { return Ok(()) };
        self.0.change(|all| {
            all.retain(|other| !other.is(instance, plugin) && !other.is(to, plugin));
            all.push(Held { instance: to.to_owned(), ..held });
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_folder::Folder;

    fn held(instance: &str) -> Held {
        Held {
            instance: instance.into(),
            plugin: "p".into(),
            since: 1_700_000_000,
            why: "it did not return".into(),
        }
    }

    #[test]
    fn quarantine_survives_a_restart_until_release() {
        let folder = Folder::new("quarantine");
        let open = || Quarantine::open(Some(&folder.0));
        open().put(held("a")).unwrap();
        open().put(held("b")).unwrap();
        open().put(held("a")).unwrap();
        let mut now = open();
        assert_eq!(now.all(), [held("b"), held("a")]);
        assert_eq!(now.find("a", "p"), Some(&held("a")));
        assert_eq!(now.find("a", "another"), None);
        now.rename("a", "p", "c").unwrap();
        assert!(open().find("c", "p").is_some() && open().find("a", "p").is_none());
        assert!(now.release("c", "p").unwrap());
        assert!(!now.release("c", "p").unwrap());
        assert_eq!(open().all(), [held("b")]);
    }

    #[test]
    fn instances_of_one_name_and_two_plugins_have_an_entry_each() {
        let mut quarantine = Quarantine::open(None);
        let other = Held { plugin: "q".into(), ..held("a") };
        quarantine.put(held("a")).unwrap();
        quarantine.put(other.clone()).unwrap();
        assert_eq!(quarantine.named("a").count(), 2);
        assert_eq!(quarantine.of_plugin("p").collect::<Vec<_>>(), [&held("a")]);
        quarantine.rename("a", "q", "b").unwrap();
        assert_eq!(quarantine.find("a", "p"), Some(&held("a")));
        assert!(!quarantine.release("b", "p").unwrap());
        assert!(quarantine.release("b", "q").unwrap());
        // Renaming replaces an entry with the new name.
        quarantine.put(held("c")).unwrap();
        quarantine.rename("c", "p", "a").unwrap();
        assert_eq!(quarantine.all(), [held("a")]);
    }
}
