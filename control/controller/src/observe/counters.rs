//! Counters since they were last cleared, and rates computed from counters.

use std::collections::HashMap;

use millrace_offload::OffloadSent;
use millrace_pipeline::thread;
use millrace_telemetry::Rate;
use millrace_units::PortId;

use crate::show::KernelShare;

/// Offsets and rates of the router's counters. An offset is the value of a counter at the last clearing,
/// which is subtracted from later values.
pub(crate) struct Counters {
    /// Rates, computed from the last two readings of the counters.
    pub rates: Rate,
    /// Counters of each port's XDP program at the time of the last clearing.
    share_offset: HashMap<PortId, KernelShare>,
    /// For each port, the counters of its earlier XDP programs since the last clearing. The devices of these
    /// programs are gone.
    share_gone: HashMap<PortId, KernelShare>,
    /// Transmit drops of each port's device at the last clearing of the counters, or at the start of the
    /// router if the counters were never cleared.
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

impl Counters {
    /// Returns the counters of all XDP programs that a port has had since the last clearing. `now` are the
    /// counters of its current program.
    pub fn share(&self, port: PortId, now: &KernelShare) -> KernelShare {
        let gone = self.share_gone.get(&port).copied().unwrap_or_default();
        let offset = self.share_offset.get(&port).copied().unwrap_or_default();
        let mut classes = gone.classes;
        classes.add(&now.classes.since(&offset.classes));
        KernelShare {
            seen: gone.seen + now.seen.saturating_sub(offset.seen),
            seen_bytes: gone.seen_bytes + now.seen_bytes.saturating_sub(offset.seen_bytes),
            passed: gone.passed + now.passed.saturating_sub(offset.passed),
            dropped: gone.dropped + now.dropped.saturating_sub(offset.dropped),
            forwarded: gone.forwarded + now.forwarded.saturating_sub(offset.forwarded),
            filtered: gone.filtered + now.filtered.saturating_sub(offset.filtered),
            policed: gone.policed + now.policed.saturating_sub(offset.policed),
            variant_dropped: gone.variant_dropped
                + now.variant_dropped.saturating_sub(offset.variant_dropped),
            classes,
            sent: OffloadSent {
                packets: gone.sent.packets + now.sent.packets.saturating_sub(offset.sent.packets),
                bytes: gone.sent.bytes + now.sent.bytes.saturating_sub(offset.sent.bytes),
            },
        }
    }

    /// Keeps the last counters of a port's XDP program, because its device is gone.
    pub fn device_gone(&mut self, port: PortId, now: &KernelShare) {
        self.share_gone.insert(port, self.share(port, now));
        // Offloaded packets are counted by port, so this count continues with the next program. Its current
        // value is the new offset.
        self.share_offset.insert(port, KernelShare { sent: now.sent, ..KernelShare::default() });
    }

    /// Clears the counters. `shares` are the current counters of the ports' XDP programs, and `drops` the
    /// transmit drops of the ports' devices.
    pub fn clear(&mut self, shares: HashMap<PortId, KernelShare>, drops: HashMap<PortId, u64>) {
        self.share_offset = shares;
        self.share_gone.clear();
        self.device_drops_before = drops;
        self.rates = Rate::since(thread::now());
    }

    /// Returns the transmit drops of the ports' devices since the last clearing. `now` holds the drops since
    /// each device was created.
    pub fn device_drops(&self, now: HashMap<PortId, u64>) -> HashMap<PortId, u64> {
        let since = |(port, count): (PortId, u64)| {
            let before = self.device_drops_before.get(&port).copied().unwrap_or_default();
            (port, count.saturating_sub(before))
        };
        now.into_iter().map(since).collect()
    }
}
