//! Shared object whose code is not loaded. Its manifest is enough to check a configuration.

use millrace_plugin_abi::{Instance, Runtime};
use serde_json::{Map, Value};

use super::elf::{ObjectError, manifest};
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
    /// Describes a shared object for this runtime. No code of the object runs.
    pub fn new(bytes: &[u8], runtime: Runtime) -> Result<Self, ObjectError> {
        let manifest = manifest(bytes)?;
        let declared = Declared::new(&manifest).map_err(ObjectError::NotGiven)?;
        Ok(Self { manifest, declared, runtime })
    }

    /// Returns the manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
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
