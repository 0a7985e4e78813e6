//! Plugin whose code is a shared object or an executable that runs in processes.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use millrace_plugin_abi::process::Layout;

use super::seat::{Link, Seat};
use crate::Manifest;
use crate::declaration::declared::Declared;
use crate::runtime::native::{Form, ObjectError, elf, object};

/// Keeper of processes: starts, ends and replaces the processes of instances.
pub trait Keeper: Send + Sync {
    /// Prepares the seat of a new instance, and starts its first process.
    ///
    /// # Errors
    /// Describes why no process can be started.
    fn seat(&self, plugin: &ProcessPlugin) -> Result<Arc<Seat>, String>;
}

/// Plugin of a shared object or an executable whose instances run in processes of their own. Clones share the
/// code.
#[derive(Clone)]
pub struct ProcessPlugin(Arc<Code>);

struct Code {
    /// Sealed copy of the object or executable.
    object: File,
    form: Form,
    manifest: Manifest,
    declared: Declared,
    keeper: Arc<dyn Keeper>,
}

impl fmt::Debug for ProcessPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessPlugin").field("name", &self.0.declared.name).finish_non_exhaustive()
    }
}

impl ProcessPlugin {
    /// Checks an object or executable without running its code. `keeper` starts the processes of the
    /// instances, which load the object or execute the file.
    ///
    /// # Errors
    /// [`ObjectError`] for the first problem.
    pub fn new(bytes: &[u8], keeper: Arc<dyn Keeper>) -> Result<Self, ObjectError> {
        let manifest = elf::manifest(bytes)?;
        let declared = Declared::new(&manifest).map_err(ObjectError::NotGiven)?;
        let (object, form) = (object::sealed(bytes)?, elf::check(bytes)?);
        Ok(Self(Arc::new(Code { object, form, manifest, declared, keeper })))
    }

    /// Returns the manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.0.manifest
    }

    /// Returns the sealed file with the object or executable, which a process loads or executes.
    pub fn object(&self) -> BorrowedFd<'_> {
        self.0.object.as_fd()
    }

    /// Returns the form of the file.
    pub fn form(&self) -> Form {
        self.0.form
    }

    /// Creates the memory that a process of the plugin shares with a worker. Returns the worker's side of it,
    /// and its file, which the process needs.
    ///
    /// # Errors
    /// The kernel has no memory.
    pub fn link(&self) -> io::Result<(Link, OwnedFd)> {
        Link::new(&layout(self.manifest()))
    }

    pub(super) fn keeper(&self) -> &dyn Keeper {
        &*self.0.keeper
    }

    pub(super) fn declared(&self) -> &Declared {
        &self.0.declared
    }
}

/// Returns the layout of the shared memory for a plugin with this manifest.
pub(super) fn layout(manifest: &Manifest) -> Layout {
    Layout::new(manifest.window, manifest.state.flow, manifest.state.service)
}
