//! eBPF variant of the plugin (`ebpf/variant.c`), which has the same counters in the same order.

use millrace_plugin_abi::EbpfVariant;

use crate::{SIZES, What};

/// Description of the eBPF variant. Settings: one word. Counters: totals, packets and bytes for each protocol
/// of each family, and packets for each size class.
pub(crate) const VARIANT: EbpfVariant = EbpfVariant {
    object: include_bytes!(concat!(env!("OUT_DIR"), "/variant.o")),
    settings: 1,
    counters: 2 + 2 * 2 * 256 + SIZES.len(),
};

const BY_PROTOCOL: u64 = 1;
const BY_SIZE: u64 = 2;

/// Returns the settings for the eBPF variant: which counters to gather.
pub(crate) fn settings(what: What) -> [u64; 1] {
    [match what {
        What::Protocol => BY_PROTOCOL,
        What::Size => BY_SIZE,
        What::All => BY_PROTOCOL | BY_SIZE,
    }]
}
