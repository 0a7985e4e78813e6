//! eBPF variant of the plugin (`ebpf/form.c`): layout of its settings and counters.

use millrace_plugin_abi::EbpfVariant;

use crate::MOST_RANGES;
use crate::settings::{Protocols, Settings};

/// Description of the eBPF variant. Settings: a word for the protocols and one for each range. Counters:
/// packets, dropped packets, and drops by range.
pub(crate) const FORM: EbpfVariant = EbpfVariant {
    object: include_bytes!(concat!(env!("OUT_DIR"), "/form.o")),
    settings: 1 + MOST_RANGES,
    counters: RANGES + MOST_RANGES,
};

/// Index of the count of packets.
pub(crate) const PACKETS: usize = 0;
/// Index of the count of dropped packets.
pub(crate) const DROPPED: usize = 1;
/// Index of the drop count of the first range; the others follow.
pub(crate) const RANGES: usize = 2;

const TCP: u64 = 1;
const UDP: u64 = 2;
const IS_THERE: u64 = 1 << 32;

/// Returns the settings of the eBPF variant. `cut` is not among them, since packets with cut headers are
/// never offloaded.
pub(crate) fn settings(settings: &Settings) -> [u64; FORM.settings] {
    let mut words = [0; FORM.settings];
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
