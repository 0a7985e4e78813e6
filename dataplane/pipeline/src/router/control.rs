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
    loop {
        let Some(waiting) = &mut router.pending.for_processor else { return reading };
        let (wanted, quantum) = (waiting.scheduler.has_work(), waiting.scheduler.settings().quantum);
        if waiting.control.len() == 0 || !waiting.control.may_run(wanted, quantum) {
            waiting.control.end_turn(now);
            return reading;
        }
        let mut packets = 0;
        while packets < GROUP
            && let Some(waiting) = &mut router.pending.for_processor
            && let Some(packet) = waiting.control.pop()
        {
            packets += 1;
            router.disposal().deliver(packet, now);
        }
        router.follow_up(now);
        reading = charge_control(router, reading, packets);
    }
}

/// Charges the time since a reading of the counter to control. Without a counter, charges the nominal cost of
/// `packets`. Returns the new reading.
pub(crate) fn charge_control(router: &mut Router, before: Option<u64>, packets: usize) -> Option<u64> {
    let reading = cycles();
    let used = match before.zip(reading) {
        Some((before, now)) => now.saturating_sub(before),
        None => NOMINAL * packets as u64,
    };
    if let Some(waiting) = &mut router.pending.for_processor {
        waiting.control.charge(Cycles(used));
    }
    reading
}
