//! Directory of a group in one hierarchy.

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::controller::{Controller, Version};
use crate::directory::clear;
use crate::error::GroupError;

/// Directory of a group in one hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Branch {
    /// Version of the hierarchy.
    pub version: Version,
    /// Usable controllers of the hierarchy.
    pub controllers: Vec<Controller>,
    /// Directory of the group.
    pub path: PathBuf,
    /// Group to which the members go when the group is removed.
    pub home: PathBuf,
}

impl Branch {
    /// Returns the path of a file of the group.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Whether the hierarchy has the controller.
    pub fn has(&self, controller: Controller) -> bool {
        self.controllers.contains(&controller)
    }

    /// Whether the hierarchy limits or measures a resource.
    pub fn has_limits(&self) -> bool {
        self.controllers.iter().any(|controller| *controller != Controller::Packets)
    }

    /// Returns the branch of a child group.
    pub fn child(&self, path: &Path) -> Self {
        Self { path: self.path.join(path), ..self.clone() }
    }

    /// Removes the group in this hierarchy, and moves its members home.
    ///
    /// # Errors
    /// The group still has members at the deadline.
    pub fn remove(&self, deadline: Instant) -> Result<(), GroupError> {
        clear(self.version, &self.path, &self.home, deadline)
    }
}
