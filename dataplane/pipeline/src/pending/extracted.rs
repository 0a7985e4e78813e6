//! Packets taken out of the queues in which they waited for the processor.

use std::cmp::Reverse;

use millrace_plugin::Waiting;
use millrace_units::Instant;

/// Packet taken out of its queue.
#[derive(Debug)]
pub(crate) struct Extracted {
    /// Place of its stage in the order of stages.
    pub order: u32,
    /// When the packet began to wait at the stage.
    pub arrival: Instant,
    pub waiting: Waiting,
}

impl Extracted {
    /// Returns the turn of the packet: in a flow, packets of late stages come first.
    pub fn turn(&self) -> (Reverse<u32>, Instant) {
        (Reverse(self.order), self.arrival)
    }
}
