//! Values of counters at the moment when they were cleared, and rates of counters.

use std::collections::HashMap;

use millrace_pipeline::thread;
use millrace_telemetry::Rate;
use millrace_units::PortId;

use crate::show::KernelShare;

/// Offsets and rates of the router's counters.
pub(crate) struct Counters {
    /// Rates of counters since they were read last.
    pub rates: Rate,
    /// Counters of the ports' XDP programs when the counters were cleared.
    pub share_offset: HashMap<PortId, KernelShare>,
    /// Counters since then of the XDP programs of devices that are gone.
    pub share_gone: HashMap<PortId, KernelShare>,
    /// Transmit drops of the ports' devices when the counters were cleared, or when the device was taken.
    pub device_drops_before: HashMap<PortId, u64>,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            rates: Rate::since(thread::now()),
            share_offset: HashMap::new(),
            share_gone: HashMap::new(),
            device_drops_before: HashMap::new(),
        }
    }
}
