//! Creation of instances in the model.

use millrace_plugin::PluginControlError;
use millrace_plugin_abi::Runtime;
use serde_json::{Map, Value};

use crate::model::{Model, PluginChange};
use crate::workers::crash::beginning;

impl Model {
    /// Creates an instance. If there is a quarantine entry for this name and plugin, the instance starts in
    /// quarantine.
    pub fn create_instance(
        &mut self,
        plugin: &str,
        name: &str,
        settings: Map<String, Value>,
    ) -> Result<Vec<PluginChange>, PluginControlError> {
        let Some(held) = self.repository.quarantine().find(name, plugin) else {
            let runtime =
                self.plugins.plugin_named(plugin).map_or(Runtime::BuiltIn, |plugin| plugin.runtime());
            let create = || self.plugins.create_instance(plugin, name, settings);
            let created =
                if runtime == Runtime::Trusted { beginning(name, plugin, create) } else { create() };
            return Ok(created?.1);
        };
        let why = held.why.clone();
        let (_, changes) = self.plugins.create_quarantined(plugin, name, settings, why.clone())?;
        let remedy = format!("to release the instance, run `millrace instance release {name}`");
        tracing::warn!(instance = name, plugin, "the instance is in quarantine: {why}; {remedy}");
        Ok(changes)
    }
}
