//! Shared-object plugin known only by its manifest: serves to check configurations without loading any code.

use millrace_plugin_abi::{Features, Instance, MapShape, Plugin, PluginError, Position, Runtime};
use serde_json::{Map, Value};

use super::elf::{ObjectError, manifest};
use crate::Manifest;
use crate::declaration::declared::{Declared, check};
use crate::runtime::quarantined::Quarantined;

/// Plugin without code, described by its manifest only. Its instances handle no packets.
#[derive(Debug)]
pub struct DescribedPlugin {
    manifest: Manifest,
    declared: Declared,
}

impl DescribedPlugin {
    /// Describes a shared object. No code of the object runs.
    ///
    /// # Errors
    /// [`ObjectError`] for the first problem of the object or its manifest.
    pub fn new(bytes: &[u8]) -> Result<Self, ObjectError> {
        let manifest = manifest(bytes)?;
        let declared = Declared::new(&manifest).map_err(ObjectError::NotGiven)?;
        Ok(Self { manifest, declared })
    }

    /// Returns the manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }
}

impl Plugin for DescribedPlugin {
    fn name(&self) -> &'static str {
        self.declared.name
    }

    fn runtime(&self) -> Runtime {
        Runtime::Trusted
    }

    fn version(&self) -> &'static str {
        self.declared.version
    }

    fn summary(&self) -> &'static str {
        self.declared.summary
    }

    fn positions(&self) -> &[Position] {
        &self.manifest.positions
    }

    fn messages(&self) -> &[(&'static str, &'static str)] {
        &self.declared.messages
    }

    fn settings_schema(&self) -> Option<&Map<String, Value>> {
        self.manifest.settings.as_ref()
    }

    fn state_version(&self) -> u32 {
        self.manifest.state.version
    }

    fn features(&self) -> Features {
        self.manifest.features
    }

    fn capabilities(&self) -> &[&'static str] {
        &self.manifest.capabilities
    }

    fn counters(&self) -> &[&'static str] {
        &self.declared.counters
    }

    fn maps(&self) -> &[MapShape] {
        &self.manifest.maps
    }

    fn create(&self, settings: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError> {
        let refused =
            |fault: crate::fault::Fault| PluginError::setting(self.name(), fault.kind.name(), fault.text);
        check(&self.manifest, settings).map_err(refused)?;
        Ok(Box::new(Quarantined {
            plugin: self.name(),
            why: "plugin code does not run in a dry run".to_owned(),
        }))
    }
}
