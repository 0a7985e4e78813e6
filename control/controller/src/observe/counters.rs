//! Values of counters at the moment when they were cleared, and rates of counters.

use std::collections::HashMap;

use millrace_offload::DriverSent;
use millrace_pipeline::thread;
use millrace_telemetry::Rate;
use millrace_units::PortId;

use crate::show::KernelShare;

/// Offsets and rates of the router's counters.
pub(crate) struct Counters {
    /// Rates of counters since they were read last.
    pub rates: Rate,
    /// Counters of the ports' XDP programs when the counters were cleared.
    share_offset: HashMap<PortId, KernelShare>,
    /// Counters since then of the XDP programs of devices that are gone.
    share_gone: HashMap<PortId, KernelShare>,
    /// Transmit drops of the ports' devices when the counters were cleared, or when the device was taken.
    device_drops_before: HashMap<PortId, u64>,
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
    /// Returns the counters of a port's XDP programs since the counters were cleared, from the counters `now`
    /// of its program.
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
            formed: gone.formed + now.formed.saturating_sub(offset.formed),
            classes,
            sent: DriverSent {
                packets: gone.sent.packets + now.sent.packets.saturating_sub(offset.sent.packets),
                bytes: gone.sent.bytes + now.sent.bytes.saturating_sub(offset.sent.bytes),
            },
        }
    }

    /// Notes that the device of a port is gone. `now` are the counters of its program.
    pub fn device_gone(&mut self, port: PortId, now: &KernelShare) {
        self.share_gone.insert(port, self.share(port, now));
        // The count of packets sent by the driver continues, so its current value becomes the offset.
        self.share_offset.insert(port, KernelShare { sent: now.sent, ..KernelShare::default() });
    }

    /// Forgets the transmit drops of a port's device: the next device of its name counts from zero.
    pub fn forget_device_drops(&mut self, port: PortId) {
        self.device_drops_before.remove(&port);
    }

    /// Clears the counters: `shares` are the counters of the ports' programs, and `drops` those of their
    /// devices.
    pub fn clear(&mut self, shares: HashMap<PortId, KernelShare>, drops: HashMap<PortId, u64>) {
        self.share_offset = shares;
        self.share_gone.clear();
        self.device_drops_before = drops;
        self.rates = Rate::since(thread::now());
    }

    /// Notes the transmit drops of the ports' devices at the start.
    pub fn begin_device_drops(&mut self, drops: HashMap<PortId, u64>) {
        self.device_drops_before = drops;
    }

    /// Returns the packets that the devices of ports dropped on transmit since the counters were cleared, from
    /// the drops `now`.
    pub fn device_drops(&self, now: HashMap<PortId, u64>) -> HashMap<PortId, u64> {
        let since = |(port, count): (PortId, u64)| {
            let before = self.device_drops_before.get(&port).copied().unwrap_or_default();
            (port, count.saturating_sub(before))
        };
        now.into_iter().map(since).collect()
    }
}
