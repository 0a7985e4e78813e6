//! eBPF variant of the plugin (`ebpf/form.c`), which has the same counters in the same order.

use millrace_plugin_abi::EbpfVariant;

use crate::{SIZES, What};

/// Description of the eBPF variant. It has one word of settings. Its counters are the totals, two numbers per
/// protocol of each family, and the sizes.
pub(crate) const FORM: EbpfVariant = EbpfVariant {
    object: include_bytes!(concat!(env!("OUT_DIR"), "/form.o")),
    settings: 1,
    counters: 2 + 2 * 2 * 256 + SIZES.len(),
};

const BY_PROTOCOL: u64 = 1;
const BY_SIZE: u64 = 2;

/// Returns the settings of the eBPF variant: which counters to gather.
pub(crate) fn settings(what: What) -> [u64; 1] {
    [match what {
        What::Protocol => BY_PROTOCOL,
        What::Size => BY_SIZE,
        What::All => BY_PROTOCOL | BY_SIZE,
    }]
}
