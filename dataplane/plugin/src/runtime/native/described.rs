//! Shared object or executable whose code is not loaded. Its manifest is enough to check a configuration.

use millrace_plugin_abi::{Instance, Runtime};
use serde_json::{Map, Value};

use super::elf::{self, ObjectError, manifest};
use crate::Manifest;
use crate::declaration::declared::{Declared, check};
use crate::fault::Fault;
use crate::runtime::file::impl_plugin;
use crate::runtime::quarantined::Quarantined;

/// Plugin without code, described by its manifest only. Its instances handle no packets.
#[derive(Debug)]
pub struct DescribedPlugin {
    manifest: Manifest,
    declared: Declared,
    runtime: Runtime,
}

impl DescribedPlugin {
    /// Describes a shared object or executable for this runtime. No code of the file runs.
    pub fn new(bytes: &[u8], runtime: Runtime) -> Result<Self, ObjectError> {
        let manifest = manifest(bytes)?;
        let runtime = match (elf::check(bytes)?.is_executable(), runtime) {
            (true, Runtime::Trusted) => return Err(ObjectError::Executable),
            (true, _) => Runtime::Executable,
            (false, runtime) => runtime,
        };
        let declared = Declared::new(&manifest).map_err(ObjectError::NotGiven)?;
        Ok(Self { manifest, declared, runtime })
    }

    /// Returns the manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the runtime of the plugin's instances.
    pub fn runtime(&self) -> Runtime {
        self.runtime
    }

    fn declared(&self) -> &Declared {
        &self.declared
    }

    fn instance(&self, settings: &Map<String, Value>) -> Result<Box<dyn Instance>, Fault> {
        check(&self.manifest, settings)?;
        let why = "plugin code does not run in a dry run".to_owned();
        Ok(Box::new(Quarantined { plugin: self.declared.name, why }))
    }
}

impl_plugin!(DescribedPlugin, |plugin| plugin.runtime);
