//! Plugin with a host companion: its instances run at the workers, the companion at the host level.

use std::sync::Arc;

use millrace_plugin_abi::{
    DeclaredCycles, DeclaredNeeds, Features, Instance, MapShape, Message, Plugin, PluginError, Position,
    Runtime,
};
use serde_json::{Map, Value};

use crate::Manifest;

/// Plugin with its host companion. The methods of [`Plugin`] concern the part that runs at the workers.
pub struct WithCompanion {
    plugin: Arc<dyn Plugin>,
    companion: Arc<dyn Plugin>,
}

impl std::fmt::Debug for WithCompanion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WithCompanion")
            .field("plugin", &self.plugin.name())
            .field("companion", &self.companion.name())
            .finish()
    }
}

impl WithCompanion {
    /// Joins a plugin and its host companion.
    pub fn new(plugin: Arc<dyn Plugin>, companion: Arc<dyn Plugin>) -> Self {
        Self { plugin, companion }
    }

    /// Returns the reason that a module with the manifest `companion` can't be a host companion; `None` if it
    /// can.
    pub fn problem(companion: &Manifest) -> Option<String> {
        if companion.host_companion.is_some() {
            return Some("it has a host companion itself".to_owned());
        }
        if companion.calls.contexts != 1 {
            return Some(format!(
                "it has {} contexts, which only instances at workers have: remove the key contexts from its manifest",
                companion.calls.contexts
            ));
        }
        companion.features.check_on_host_level().err().map(|error| error.to_string())
    }
}

impl Plugin for WithCompanion {
    fn name(&self) -> &'static str {
        self.plugin.name()
    }

    fn runtime(&self) -> Runtime {
        self.plugin.runtime()
    }

    fn version(&self) -> &'static str {
        self.plugin.version()
    }

    fn summary(&self) -> &'static str {
        self.plugin.summary()
    }

    fn positions(&self) -> &[Position] {
        self.plugin.positions()
    }

    fn messages(&self) -> &[(&'static str, &'static str)] {
        self.plugin.messages()
    }

    fn settings_schema(&self) -> Option<&Map<String, Value>> {
        self.plugin.settings_schema()
    }

    fn features(&self) -> Features {
        self.plugin.features()
    }

    fn capabilities(&self) -> &[&'static str] {
        self.plugin.capabilities()
    }

    fn counters(&self) -> &[&'static str] {
        self.plugin.counters()
    }

    fn contexts(&self) -> u8 {
        self.plugin.contexts()
    }

    fn maps(&self) -> &[MapShape] {
        self.plugin.maps()
    }

    fn declared_cycles(&self, kind: &str) -> Option<DeclaredCycles> {
        self.plugin.declared_cycles(kind)
    }

    fn declared_needs(&self) -> DeclaredNeeds {
        self.plugin.declared_needs()
    }

    fn host_companion(&self) -> Option<&dyn Plugin> {
        Some(&*self.companion)
    }

    fn create(&self, settings: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError> {
        self.plugin.create(settings)
    }

    fn state_version(&self) -> u32 {
        self.plugin.state_version()
    }

    fn merge(&self, message: &Message, replies: Vec<Value>) -> Value {
        self.plugin.merge(message, replies)
    }
}
