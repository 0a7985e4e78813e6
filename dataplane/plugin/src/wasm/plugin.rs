//! A WebAssembly plugin as a type of plugin, of which instances are created like of any other.

use millrace_plugin_abi::{Instance, Plugin, PluginError, Position};
use serde_json::{Map, Value};

use super::sandbox::interned;
use super::{InstanceSettings, Tier, WasmInstance, WasmPlugin};
use crate::settings::schema_problem;

/// Functions of the router that need more than the call: nobody stands behind them yet.
const MISSING: [&str; 1] = ["flow-backlog"];

/// A plugin that was loaded.
#[derive(Debug)]
pub struct LoadedPlugin {
    plugin: WasmPlugin,
    version: &'static str,
    summary: &'static str,
    messages: Vec<(&'static str, &'static str)>,
}

impl LoadedPlugin {
    /// The plugin of a module.
    ///
    /// # Errors
    /// What its manifest asks for and this router does not give.
    pub fn new(plugin: WasmPlugin) -> Result<Self, String> {
        let manifest = plugin.manifest();
        if let Some(missing) = MISSING.iter().find(|name| manifest.has_capability(name)) {
            return Err(format!("it wants the capability {missing:?}, which this router does not give yet"));
        }
        if let Some(problem) = manifest.settings.as_ref().and_then(schema_problem) {
            return Err(problem);
        }
        let (version, summary) = (interned(&manifest.version), interned(&manifest.summary));
        let messages =
            manifest.messages.iter().map(|(name, help)| (interned(name), interned(help))).collect();
        Ok(Self { plugin, version, summary, messages })
    }

    /// The plugin's code, by a handle through which better code can be given to it.
    pub fn code(&self) -> &WasmPlugin {
        &self.plugin
    }

    /// The tier of the code that an instance would begin with now.
    pub fn tier(&self) -> Tier {
        self.plugin.current().tier()
    }
}

impl Plugin for LoadedPlugin {
    fn name(&self) -> &'static str {
        self.plugin.name()
    }

    fn version(&self) -> &'static str {
        self.version
    }

    fn summary(&self) -> &'static str {
        self.summary
    }

    fn positions(&self) -> &[Position] {
        &self.plugin.manifest().positions
    }

    fn messages(&self) -> &[(&'static str, &'static str)] {
        &self.messages
    }

    fn settings_schema(&self) -> Option<&Map<String, Value>> {
        self.plugin.manifest().settings.as_ref()
    }

    fn state_version(&self) -> u32 {
        self.plugin.manifest().state_version
    }

    fn create(&self, settings: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError> {
        let settings = InstanceSettings { settings: settings.clone(), ..InstanceSettings::default() };
        let instance = WasmInstance::new(&self.plugin, settings);
        let refused = |fault: super::Fault| PluginError::setting(self.name(), fault.kind.name(), fault.text);
        Ok(Box::new(instance.map_err(refused)?))
    }
}
