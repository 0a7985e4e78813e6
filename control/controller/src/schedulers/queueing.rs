//! State of the schedulers beside their settings.

use millrace_pipeline::thread;
use millrace_telemetry::Rate;

use crate::schedulers::queues::FormerFlows;

/// Rates of scheduler nodes, and flows without settings.
pub(crate) struct Queueing {
    /// Rates of scheduler nodes, counted since each node was added.
    pub rates: Rate,
    /// Flows whose settings were removed.
    pub former_flows: FormerFlows,
}

impl Default for Queueing {
    fn default() -> Self {
        Self { rates: Rate::since(thread::now()), former_flows: FormerFlows::default() }
    }
}
