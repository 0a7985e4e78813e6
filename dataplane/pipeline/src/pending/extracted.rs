//! Packets that continue after a change of bindings: they waited for the processor, or an instance held them.

use std::cmp::Reverse;

use millrace_plugin::Waiting;
use millrace_units::Instant;

/// Packet that waits no longer at its stage.
#[derive(Debug)]
pub(crate) struct Extracted {
    /// Place of its stage in the order of stages.
    pub order: u32,
    /// When the packet began to wait at the stage.
    pub arrival: Instant,
    /// Whether an instance of the stage has held the packet.
    pub is_held: bool,
    pub waiting: Waiting,
}

impl Extracted {
    /// Returns a packet that has waited in the queue of a stage.
    pub fn queued(order: u32, arrival: Instant, waiting: Waiting) -> Self {
        Self { order, arrival, is_held: false, waiting }
    }

    /// Returns a packet that an instance of the stage at place `order` has held. It comes before those that wait there.
    pub fn held((order, waiting): (u32, Waiting)) -> Self {
        Self { order, arrival: Instant::ZERO, is_held: true, waiting }
    }

    /// Returns the turn of the packet: in a flow, packets of late stages come first.
    pub fn turn(&self) -> (Reverse<u32>, Instant) {
        (Reverse(self.order), self.arrival)
    }
}
