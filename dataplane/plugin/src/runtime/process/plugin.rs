//! Plugin whose code is a shared object that runs in processes: creates instances from it.

use std::fmt;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use millrace_plugin_abi::Instance;
use serde_json::{Map, Value};

use super::instance::ProcessInstance;
use super::seat::Keeper;
use crate::Manifest;
use crate::declaration::declared::Declared;
use crate::fault::Fault;
use crate::runtime::file::impl_plugin;
use crate::runtime::native::{ObjectError, elf, object};

/// Shared-object plugin whose instances run in processes of their own. Clones share the code.
#[derive(Clone)]
pub struct ProcessPlugin(Arc<Code>);

struct Code {
    /// Sealed copy of the object.
    object: File,
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
    /// Checks an object without running its code. `keeper` starts the processes of the instances, which load
    /// the object.
    ///
    /// # Errors
    /// [`ObjectError`] for the first problem.
    pub fn new(bytes: &[u8], keeper: Arc<dyn Keeper>) -> Result<Self, ObjectError> {
        let manifest = elf::manifest(bytes)?;
        let declared = Declared::new(&manifest).map_err(ObjectError::NotGiven)?;
        Ok(Self(Arc::new(Code { object: object::sealed(bytes)?, manifest, declared, keeper })))
    }

    /// Returns the manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.0.manifest
    }

    /// Returns the sealed file with the object, which a process loads.
    pub fn object(&self) -> BorrowedFd<'_> {
        self.0.object.as_fd()
    }

    pub(super) fn keeper(&self) -> &dyn Keeper {
        &*self.0.keeper
    }

    pub(super) fn declared(&self) -> &Declared {
        &self.0.declared
    }

    fn instance(&self, settings: &Map<String, Value>) -> Result<Box<dyn Instance>, Fault> {
        Ok(Box::new(ProcessInstance::new(self, settings)?))
    }
}

impl_plugin!(ProcessPlugin, |_| Runtime::Process);
