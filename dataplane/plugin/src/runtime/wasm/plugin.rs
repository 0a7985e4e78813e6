//! Plugin whose code is a WebAssembly module: creates instances from it.

use millrace_plugin_abi::Instance;
use serde_json::{Map, Value};

use super::{Fault, InstanceSettings, Tier, WasmInstance, WasmPlugin};
use crate::Manifest;
use crate::declaration::declared::Declared;
use crate::runtime::file::impl_plugin;

/// Plugin with its WebAssembly code.
#[derive(Debug)]
pub struct LoadedPlugin {
    plugin: WasmPlugin,
    declared: Declared,
    most_memory: usize,
}

impl LoadedPlugin {
    /// Creates the plugin from the compiled code of a module.
    pub fn new(plugin: WasmPlugin) -> Result<Self, String> {
        let declared = Declared::new(plugin.manifest())?;
        let most_memory = plugin.sandbox().memory();
        Ok(Self { plugin, declared, most_memory })
    }

    /// Returns the plugin with `most_memory` as memory limit of its instances, in bytes.
    #[must_use]
    pub fn with_memory(self, most_memory: usize) -> Self {
        Self { most_memory, ..self }
    }

    /// Returns a handle on the plugin's code. Use it to install code of a better tier.
    pub fn code(&self) -> &WasmPlugin {
        &self.plugin
    }

    /// Returns the tier of the code that new instances use.
    pub fn tier(&self) -> Tier {
        self.plugin.current().tier()
    }

    fn manifest(&self) -> &Manifest {
        self.plugin.manifest()
    }

    fn declared(&self) -> &Declared {
        &self.declared
    }

    fn instance(&self, settings: &Map<String, Value>) -> Result<Box<dyn Instance>, Fault> {
        let settings = InstanceSettings { settings: settings.clone(), most_memory: self.most_memory };
        Ok(Box::new(WasmInstance::new(&self.plugin, settings)?))
    }
}

impl_plugin!(LoadedPlugin, |_| Runtime::Contained);
