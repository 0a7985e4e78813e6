//! Placeholder of an instance in quarantine. The placeholder runs no code of the plugin and receives no
//! packets.

use millrace_plugin_abi::{Instance, Instant, Message, Packets, PluginError, Progress, Reply};

/// Placeholder of an instance that has been in quarantine since its creation.
#[derive(Debug)]
pub(crate) struct Quarantined {
    /// Name of the instance's plugin.
    pub plugin: &'static str,
    /// Reason for the quarantine.
    pub why: String,
}

impl Quarantined {
    fn refusal(&self, what: &str) -> PluginError {
        PluginError::setting(self.plugin, what, format!("the instance is in quarantine: {}", self.why))
    }
}

impl Instance for Quarantined {
    fn process(&mut self, _packets: &mut Packets<'_>, _now: Instant) -> Progress {
        Progress::Done
    }

    fn writes_packets(&self) -> bool {
        false
    }

    fn restart(&mut self) -> Result<(), PluginError> {
        Err(self.refusal("restart"))
    }

    fn control(&mut self, message: &Message) -> Reply {
        Err(self.refusal(&message.name))
    }
}
