//! WebAssembly plugin as a plugin type, from which instances are created.

use millrace_plugin_abi::{Features, Instance, MapShape, Plugin, PluginError, Position, Runtime};
use serde_json::{Map, Value};

use super::{InstanceSettings, Tier, WasmInstance, WasmPlugin};
use crate::declaration::declared::Declared;

/// Loaded WebAssembly plugin.
#[derive(Debug)]
pub struct LoadedPlugin {
    plugin: WasmPlugin,
    declared: Declared,
    most_memory: usize,
}

impl LoadedPlugin {
    /// Creates the plugin of a module.
    ///
    /// # Errors
    /// Describes a requirement of the manifest that this router doesn't meet.
    pub fn new(plugin: WasmPlugin) -> Result<Self, String> {
        let declared = Declared::new(plugin.manifest())?;
        let most_memory = plugin.sandbox().memory();
        Ok(Self { plugin, declared, most_memory })
    }

    /// Returns the plugin with another memory limit for its instances, in bytes.
    #[must_use]
    pub fn with_memory(self, most_memory: usize) -> Self {
        Self { most_memory, ..self }
    }

    /// Returns a handle to the plugin's code, through which a better tier can be installed.
    pub fn code(&self) -> &WasmPlugin {
        &self.plugin
    }

    /// Returns the tier of the code that a new instance would use.
    pub fn tier(&self) -> Tier {
        self.plugin.current().tier()
    }
}

impl Plugin for LoadedPlugin {
    fn name(&self) -> &'static str {
        self.plugin.name()
    }

    fn runtime(&self) -> Runtime {
        Runtime::Contained
    }

    fn version(&self) -> &'static str {
        self.declared.version
    }

    fn summary(&self) -> &'static str {
        self.declared.summary
    }

    fn positions(&self) -> &[Position] {
        &self.plugin.manifest().positions
    }

    fn messages(&self) -> &[(&'static str, &'static str)] {
        &self.declared.messages
    }

    fn settings_schema(&self) -> Option<&Map<String, Value>> {
        self.plugin.manifest().settings.as_ref()
    }

    fn state_version(&self) -> u32 {
        self.plugin.manifest().state.version
    }

    fn features(&self) -> Features {
        self.plugin.manifest().features
    }

    fn capabilities(&self) -> &[&'static str] {
        &self.plugin.manifest().capabilities
    }

    fn counters(&self) -> &[&'static str] {
        &self.declared.counters
    }

    fn maps(&self) -> &[MapShape] {
        &self.plugin.manifest().maps
    }

    fn create(&self, settings: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError> {
        let settings = InstanceSettings { settings: settings.clone(), most_memory: self.most_memory };
        let instance = WasmInstance::new(&self.plugin, settings);
        let refused = |fault: super::Fault| PluginError::setting(self.name(), fault.kind.name(), fault.text);
        Ok(Box::new(instance.map_err(refused)?))
    }
}
