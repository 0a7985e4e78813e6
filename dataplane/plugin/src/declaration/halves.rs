//! Plugin with a host companion: instances at the workers, and the companion at the host level.

use std::sync::Arc;

use millrace_plugin_abi::{Features, Instance, MapShape, Message, Plugin, PluginError, Position, Runtime};
use serde_json::{Map, Value};

use crate::Manifest;

/// Plugin with its host companion. [`Plugin`] methods are forwarded to the plugin at the workers.
pub struct Halves {
    fast: Arc<dyn Plugin>,
    slow: Arc<dyn Plugin>,
}

impl std::fmt::Debug for Halves {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Halves").field("fast", &self.fast.name()).field("slow", &self.slow.name()).finish()
    }
}

impl Halves {
    /// Joins a plugin and its host companion.
    pub fn new(fast: Arc<dyn Plugin>, slow: Arc<dyn Plugin>) -> Self {
        Self { fast, slow }
    }

    /// Returns the reason that a module can't be a host companion; `None` if it can.
    pub fn problem(slow: &Manifest) -> Option<String> {
        if slow.host_companion.is_some() {
            return Some("it has a host companion itself".to_owned());
        }
        slow.features.check_on_host_level().err().map(|error| error.to_string())
    }
}

impl Plugin for Halves {
    fn name(&self) -> &'static str {
        self.fast.name()
    }

    fn runtime(&self) -> Runtime {
        self.fast.runtime()
    }

    fn version(&self) -> &'static str {
        self.fast.version()
    }

    fn summary(&self) -> &'static str {
        self.fast.summary()
    }

    fn positions(&self) -> &[Position] {
        self.fast.positions()
    }

    fn messages(&self) -> &[(&'static str, &'static str)] {
        self.fast.messages()
    }

    fn settings_schema(&self) -> Option<&Map<String, Value>> {
        self.fast.settings_schema()
    }

    fn features(&self) -> Features {
        self.fast.features()
    }

    fn capabilities(&self) -> &[&'static str] {
        self.fast.capabilities()
    }

    fn counters(&self) -> &[&'static str] {
        self.fast.counters()
    }

    fn maps(&self) -> &[MapShape] {
        self.fast.maps()
    }

    fn host_companion(&self) -> Option<&dyn Plugin> {
        Some(&*self.slow)
    }

    fn create(&self, settings: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError> {
        self.fast.create(settings)
    }

    fn state_version(&self) -> u32 {
        self.fast.state_version()
    }

    fn merge(&self, message: &Message, replies: Vec<Value>) -> Value {
        self.fast.merge(message, replies)
    }
}
