//! Packets that instances have made. The worker sends them on, some of one principal at a time.

use millrace_plugin::{Paid, Payers};
use millrace_units::{Cycles, Instant};

use crate::gates::Gates;
use crate::pending::from_plugins::Maker;
use crate::router::Router;
use crate::router::slices::core_cycles;

/// Router, with the packets that its instances have made.
pub(crate) struct MadePackets<'a> {
    router: &'a mut Router,
}

impl<'a> MadePackets<'a> {
    pub fn of(router: &'a mut Router) -> Self {
        Self { router }
    }

    /// Sends packets on, as many as an iteration may take. The makers take turns. The principal that paid for the calls
    /// is charged for the time, as for calls in line. While it is held back, its packets wait.
    pub fn send(&mut self, now: Instant) {
        while let Some(maker) = self.next_maker() {
            let begun = core_cycles(&self.router.gates);
            self.router.gate_run().take_made(maker);
            self.router.follow_up(now);
            if let (Some(payer), Some(begun), Some(end)) = (maker, begun, core_cycles(&self.router.gates)) {
                let used = Cycles(end.saturating_sub(begun));
                Payers::of(self.router.gates.plugins_mut()).charge_made(payer, used);
            }
        }
    }

    fn next_maker(&mut self) -> Option<Maker> {
        let Router { gates, pending, .. } = &mut *self.router;
        let gates = &*gates;
        pending.from_plugins.next_turn(|maker| may_go(gates, maker))
    }
}

/// Returns the time at which packets that instances have made can go on; `None` if none waits.
pub(super) fn next_made(router: &Router, now: Instant) -> Option<Instant> {
    router.pending.from_plugins.next_event(|maker| may_go(&router.gates, maker), now)
}

/// Whether packets that instances have made for a principal may go on.
fn may_go(gates: &Gates, maker: Maker) -> bool {
    maker.is_none_or(|payer| !Paid::of(gates.plugins()).holds_back(payer))
}
