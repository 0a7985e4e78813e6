//! Share of the kernel: packets that the XDP programs of ports treated.

use super::Inner;
use crate::show::KernelShare;
use millrace_offload::DriverSent;
use millrace_packet::ClassCounts;
use millrace_units::PortId;

impl Inner {
    /// Returns the counters of a port's XDP program since it was loaded.
    pub fn share_now(&self, port: PortId) -> KernelShare {
        let Some(device) = self.devices.kernel.get(&port) else {
            return KernelShare { sent: self.driver_sent(port), ..KernelShare::default() };
        };
        let counters = device.programs.counters().unwrap_or_default();
        KernelShare {
            seen: counters.seen,
            seen_bytes: counters.seen_bytes,
            passed: counters.passed(),
            dropped: counters.fallback_dropped + counters.undeliverable + counters.made_way,
            forwarded: counters.forwarded,
            filtered: counters.filtered,
            policed: counters.policed,
            formed: counters.formed,
            classes: ClassCounts { passed: counters.entered, dropped: counters.refused },
            sent: self.driver_sent(port),
        }
    }

    /// Returns the counters of a port's XDP programs since the counters were cleared.
    pub fn share(&self, port: PortId) -> KernelShare {
        let now = self.share_now(port);
        let gone = self.counters.share_gone.get(&port).copied().unwrap_or_default();
        let offset = self.counters.share_offset.get(&port).copied().unwrap_or_default();
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

    /// Returns the packets and bytes that the offload has sent by a port.
    pub(super) fn driver_sent(&self, port: PortId) -> DriverSent {
        let sent = self.offload.flow_cache.as_ref().ok().map(|cache| cache.sent(port.0));
        sent.and_then(Result::ok).unwrap_or_default()
    }
}
