//! Test plugin of debug builds. It panics when it gets a packet.

use millrace_plugin_abi::{
    Instance, Instant, Message, Packets, Plugin, PluginError, Position, Progress, Reply,
};
use serde_json::{Map, Value, json};

#[derive(Debug)]
pub(crate) struct PanicPlugin;

impl Plugin for PanicPlugin {
    fn name(&self) -> &'static str {
        "panic"
    }

    fn version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }

    fn summary(&self) -> &'static str {
        "Panics when a packet comes."
    }

    fn positions(&self) -> &'static [Position] {
        &Position::ALL
    }

    fn messages(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    fn create(&self, _settings: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError> {
        Ok(Box::new(Panics))
    }
}

struct Panics;

impl Instance for Panics {
    fn process(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        panic!("plugin panic got {}", millrace_units::count(packets.len(), "packet"));
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(json!({}))
    }
}
