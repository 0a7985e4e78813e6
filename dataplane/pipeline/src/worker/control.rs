//! Packets for the router itself at a worker: to the own stack, and to the kernel.

use millrace_units::Instant;

use crate::router::control::{charge_control, charge_punts, run_control};
use crate::tsc::cycles;
use crate::worker::Worker;

impl Worker {
    /// Runs the packets for the router itself after the other packets of an iteration have been sent. Control is
    /// charged, by one reading of the counter for each group.
    pub(super) fn run_control(&mut self, now: Instant) {
        let own = self.router.pending.for_processor.active().map(|waiting| waiting.control.len());
        if own.is_none_or(|own| own == 0 && self.router.punt.for_kernel.is_empty()) {
            return self.hand_back();
        }
        let mut reading = cycles();
        if own > Some(0) {
            reading = run_control(&mut self.router, reading, now);
            self.transmit_all(false, now);
            reading = charge_control(&mut self.router, reading, 0);
        }
        let punted = self.router.punt.for_kernel.len();
        if punted > 0 {
            self.hand_back();
            charge_punts(&mut self.router, reading, punted);
        }
    }

    /// Hands the waiting packets to the kernel.
    pub(super) fn hand_back(&mut self) {
        let host = &mut self.host;
        self.router.punt_stage().hand_back(|ifindex, frames| host.hand_back(ifindex, frames));
    }
}
