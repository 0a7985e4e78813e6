//! Packets for the router itself, which wait until the other packets of an iteration have been sent.

use millrace_units::{Cycles, Instant};

use crate::pending::control_work::GROUP;
use crate::router::Router;
use crate::tsc::cycles;

/// Cycles charged for a packet on processors without a time-stamp counter.
const NOMINAL: u64 = 1000;

/// Delivers the waiting packets to the own stack, in groups, and sends its answers. Stops if control has used more
/// than its share while others need the processor. `reading`: of the time-stamp counter, lately. Returns the latest
/// reading.
pub(crate) fn run_control(router: &mut Router, mut reading: Option<u64>, now: Instant) -> Option<u64> {
    let mut is_first = true;
    loop {
        let Some(waiting) = router.pending.for_processor.get_mut() else { return reading };
        let (wanted, quantum) = (waiting.scheduler.has_work(), waiting.scheduler.settings().quantum);
        let may_run = waiting.control.may_run(wanted, quantum);
        // A group of neighbour messages goes on in any case.
        let runs = may_run || is_first && waiting.control.has_neighbours();
        if waiting.control.len() == 0 || !runs {
            waiting.control.end_turn(now);
            return reading;
        }
        let mut packets = 0;
        while packets < GROUP
            && let Some(waiting) = router.pending.for_processor.get_mut()
            && let Some(packet) = waiting.control.pop(may_run)
        {
            packets += 1;
            router.disposal().deliver(packet, now);
        }
        is_first = false;
        router.follow_up(now);
        reading = charge_control(router, reading, packets);
    }
}

/// Charges the time since a reading of the counter to control, as work of the own stack. Without a counter, charges the
/// nominal cost of `packets`. Returns the new reading.
pub(crate) fn charge_control(router: &mut Router, before: Option<u64>, packets: usize) -> Option<u64> {
    let (used, reading) = time_since(before, packets);
    if let Some(waiting) = router.pending.for_processor.get_mut() {
        waiting.control.charge(used);
    }
    reading
}

/// Charges the time since a reading of the counter to control, for packets that went to the kernel.
pub(crate) fn charge_punts(router: &mut Router, before: Option<u64>, packets: usize) {
    let (used, _) = time_since(before, packets);
    if let Some(waiting) = router.pending.for_processor.get_mut() {
        waiting.control.charge_punts(used);
    }
}

fn time_since(before: Option<u64>, packets: usize) -> (Cycles, Option<u64>) {
    let reading = cycles();
    let used = match before.zip(reading) {
        Some((before, now)) => now.saturating_sub(before),
        None => NOMINAL * packets as u64,
    };
    (Cycles(used), reading)
}
