//! Instances that may not come back by themselves: a call of theirs did not return, or crashed, and the router ended for it.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::notebook::{Notebook, NotebookError};

const FILE: &str = "quarantine.json";

/// An instance in quarantine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Held {
    /// Its name.
    pub instance: String,
    /// Its plugin. An instance of this name of another plugin is another one.
    pub plugin: String,
    /// When it happened, in seconds since 1970.
    pub since: u64,
    /// What happened, in a sentence.
    pub why: String,
}

/// The instances in quarantine, which outlive the router.
#[derive(Clone, Debug)]
pub struct Quarantine(Notebook<Held>);

impl Quarantine {
    /// Those of a directory; without one, those that this router puts there itself.
    pub fn open(directory: Option<&Path>) -> Self {
        Self(Notebook::open(directory, FILE))
    }

    /// All of them.
    pub fn all(&self) -> &[Held] {
        self.0.entries()
    }

    /// Why what stands on the disk could not be read.
    pub fn damage(&self) -> Option<&str> {
        self.0.damage()
    }

    /// Whether the next start knows of them.
    pub fn is_kept(&self) -> bool {
        self.0.is_kept()
    }

    /// Why an instance is in quarantine, if it is.
    pub fn find(&self, instance: &str, plugin: &str) -> Option<&Held> {
        self.all().iter().find(|held| held.instance == instance && held.plugin == plugin)
    }

    /// Puts an instance there.
    ///
    /// # Errors
    /// When that is not on the disk.
    pub fn put(&mut self, held: Held) -> Result<(), NotebookError> {
        self.0.change(|all| {
            all.retain(|other| other.instance != held.instance);
            all.push(held);
        })
    }

    /// Lets an instance out; whether there was one of this name.
    ///
    /// # Errors
    /// When that is not on the disk.
    pub fn release(&mut self, instance: &str) -> Result<bool, NotebookError> {
        if !self.all().iter().any(|held| held.instance == instance) {
            return Ok(false);
        }
        self.0.change(|all| all.retain(|held| held.instance != instance))?;
        Ok(true)
    }

    /// Notes that an instance has another name.
    ///
    /// # Errors
    /// When that is not on the disk.
    pub fn rename(&mut self, instance: &str, to: &str) -> Result<(), NotebookError> {
        if !self.all().iter().any(|held| held.instance == instance) {
            return Ok(());
        }
        self.0.change(|all| {
            all.iter_mut()
                .filter(|held| held.instance == instance)
                .for_each(|held| to.clone_into(&mut held.instance));
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
    fn the_next_start_knows_who_is_in_quarantine_until_it_is_let_out() {
        let folder = Folder::new("quarantine");
        let open = || Quarantine::open(Some(&folder.0));
        open().put(held("a")).unwrap();
        open().put(held("b")).unwrap();
        open().put(held("a")).unwrap();
        let mut now = open();
        assert_eq!(now.all(), [held("b"), held("a")]);
        assert_eq!(now.find("a", "p"), Some(&held("a")));
        assert_eq!(now.find("a", "another"), None);
        now.rename("a", "c").unwrap();
        assert!(open().find("c", "p").is_some() && open().find("a", "p").is_none());
        assert!(now.release("c").unwrap());
        assert!(!now.release("c").unwrap());
        assert_eq!(open().all(), [held("b")]);
    }
}
