//! Processor time of core by port.

use std::ops::AddAssign;

use millrace_units::Cycles;

/// Processor time of core for a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortCoreTime {
    /// Time for received packets, with [`forwarding`](Self::forwarding).
    pub received: Cycles,
    /// Time for received packets from the classify stage on. Counted while core is divided by function.
    pub forwarding: Cycles,
    /// Time for sending. Counted while core is divided by function.
    pub output: Cycles,
}

impl AddAssign for PortCoreTime {
    fn add_assign(&mut self, other: Self) {
        let sum = |one: &mut Cycles, other: Cycles| one.0 = one.0.wrapping_add(other.0);
        // 64 bits of cycles last for a century.
        sum(&mut self.received, other.received);
        sum(&mut self.forwarding, other.forwarding);
        sum(&mut self.output, other.output);
    }
}
