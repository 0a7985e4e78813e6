//! eBPF variant of the plugin (`ebpf/variant.c`): layout of its settings and counters.

use millrace_plugin_abi::EbpfVariant;

use crate::MOST_RANGES;
use crate::settings::{Protocols, Settings};

/// Description of the eBPF variant. Settings: a word for the protocols, then a word for each range. Counters:
/// packets, dropped packets, and dropped packets for each range.
pub(crate) const VARIANT: EbpfVariant = EbpfVariant {
    object: include_bytes!(concat!(env!("OUT_DIR"), "/variant.o")),
    settings: 1 + MOST_RANGES,
    counters: RANGES + MOST_RANGES,
};

/// Index of the counter of packets.
pub(crate) const PACKETS: usize = 0;
/// Index of the counter of dropped packets.
pub(crate) const DROPPED: usize = 1;
/// Index of the drop counter of the first range. The counters of the other ranges follow.
pub(crate) const RANGES: usize = 2;

const TCP: u64 = 1;
const UDP: u64 = 2;
const IS_THERE: u64 = 1 << 32;

/// Returns the settings for the eBPF variant. `cut` is not among them, because packets with cut headers are
/// never offloaded.
pub(crate) fn settings(settings: &Settings) -> [u64; VARIANT.settings] {
    let mut words = [0; VARIANT.settings];
    let [protocols, places @ ..] = &mut words;
    *protocols = match settings.protocols {
        Protocols::Tcp => TCP,
        Protocols::Udp => UDP,
        Protocols::Any => TCP | UDP,
    };
    for (word, range) in places.iter_mut().zip(settings.ranges.iter()) {
        *word = IS_THERE | u64::from(range.last) << 16 | u64::from(range.first);
    }
    words
}
