//! Creation of instances in the model.

use millrace_classify::CompiledExpression;
use millrace_plugin::{PluginChange, PluginControlError};
use millrace_plugin_abi::Runtime;
use serde_json::{Map, Value};

use crate::ControlError;
use crate::model::Model;
use crate::workers::crash::beginning;

impl Model {
    /// Creates an instance, in quarantine if there is a quarantine entry for its name and plugin.
    pub fn create_instance(
        &mut self,
        plugin: &str,
        name: &str,
        settings: Map<String, Value>,
    ) -> Result<Vec<PluginChange<CompiledExpression>>, ControlError> {
        Ok(self.create_instance_as(plugin, name, settings)?)
    }

    /// Works like [`create_instance`](Self::create_instance), but returns the unconverted error.
    pub(crate) fn create_instance_as(
        &mut self,
        plugin: &str,
        name: &str,
        settings: Map<String, Value>,
    ) -> Result<Vec<PluginChange<CompiledExpression>>, PluginControlError> {
        let Some(held) = self.repository.quarantine().find(name, plugin) else {
            let runtime =
                self.plugins.plugin_named(plugin).map_or(Runtime::BuiltIn, |plugin| plugin.runtime());
            let create = || self.plugins.create_instance(plugin, name, settings);
            let created =
                if runtime == Runtime::Trusted { beginning(name, plugin, create) } else { create() };
            return Ok(vec![created?.1]);
        };
        let why = held.why.clone();
        let (_, changes) = self.plugins.create_quarantined(plugin, name, settings, why.clone())?;
        let remedy = format!("to release the instance, run `millrace instance release {name}`");
        tracing::warn!(instance = name, plugin, "the instance is in quarantine: {why}; {remedy}");
        Ok(changes)
    }
}
