//! The form for the driver (`driver/form.c`), which counts by the same numbers in the same order.

use millrace_plugin_abi::DriverForm;

use crate::{SIZES, What};

/// The form: one word of settings; the total, two numbers for each protocol of each family, and the sizes.
pub(crate) const FORM: DriverForm = DriverForm {
    object: include_bytes!(concat!(env!("OUT_DIR"), "/form.o")),
    settings: 1,
    counters: 2 + 2 * 2 * 256 + SIZES.len(),
};

const BY_PROTOCOL: u64 = 1;
const BY_SIZE: u64 = 2;

/// What the form is to gather.
pub(crate) fn settings(what: What) -> [u64; 1] {
    [match what {
        What::Protocol => BY_PROTOCOL,
        What::Size => BY_SIZE,
        What::All => BY_PROTOCOL | BY_SIZE,
    }]
}
