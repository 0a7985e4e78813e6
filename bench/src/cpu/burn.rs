//! Built-in plugin that uses a fixed number of cycles for each packet.

use millrace_plugin_abi::{Instance, Message, Packets, Plugin, PluginError, Position, Progress, Reply};
use millrace_units::Instant;
use millrace_workbench::cycles;
use serde_json::{Map, Value};

/// Usual name of the plugin, and of its instances.
pub(crate) const BURN: &str = "burn";

/// Plugin whose instances use this number of cycles for each packet. Its packets pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Burn {
    pub name: &'static str,
    pub cycles: u64,
}

impl Plugin for Burn {
    fn name(&self) -> &'static str {
        self.name
    }

    fn version(&self) -> &'static str {
        "1.0.0"
    }

    fn summary(&self) -> &'static str {
        "Uses cycles for each packet."
    }

    fn positions(&self) -> &[Position] {
        &Position::ALL
    }

    fn messages(&self) -> &[(&'static str, &'static str)] {
        &[]
    }

    fn create(&self, _settings: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError> {
        Ok(Box::new(*self))
    }
}

impl Instance for Burn {
    fn process(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        // A packet without a verdict passes.
        let (start, most) = (cycles(), self.cycles * packets.len() as u64);
        while start.zip(cycles()).is_some_and(|(start, now)| now - start < most) {
            std::hint::spin_loop();
        }
        Progress::Done
    }

    fn control(&mut self, message: &Message) -> Reply {
        Err(PluginError::unknown_message(self.name, &message.name, &[]))
    }
}
