//! The place of an instance that is not let in: what stands there has no code of its plugin, and is never given packets.

use millrace_plugin_abi::{Instance, Instant, Message, Packets, PluginError, Progress, Reply};

/// Stands where an instance would that is in quarantine from the beginning.
#[derive(Debug)]
pub(crate) struct Quarantined {
    /// The name of its plugin.
    pub plugin: &'static str,
    /// Why it is there.
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
