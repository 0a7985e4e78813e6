//! Static instruction budget of the XDP program (*VERA*, sections 3.3.3 and 3.3.5).
//!
//! A offload keeps up with the rate of its link only if it treats each packet before the next one arrives. So
//! the cost of a packet is bounded beforehand. Each step has a price: the number of instructions that it adds
//! to the longest path through the program. A flow is offloaded only if its steps together fit the budget. A
//! test of the crate `offload` checks the prices against the compiled programs.

use millrace_plugin::{OffloadForm, OffloadStep};

/// Maximum number of instructions that the XDP program spends on a packet. Not included: completion of a
/// partial checksum, and a second lookup in the flow cache.
pub const BUDGET: u32 = 1_310;
/// Number of instructions of the longest path of a forwarded or dropped packet: IPv6, TCP, and a flow that is
/// not in its first slot. Instructions of called kernel functions are not included.
pub const FORWARD: u32 = 1_070;
/// Number of instructions of a token bucket.
pub const POLICE: u32 = 100;
/// Number of instructions of a call to a plugin's eBPF variant, without the variant itself.
pub const ASK: u32 = 20;
/// Maximum number of instructions of a plugin's eBPF variant.
pub const MOST_OF_FORM: u32 = BUDGET - FORWARD - ASK;

/// Returns the maximum number of instructions per packet of a flow with these steps. Steps that only count
/// cost nothing, as the worker accounts for them later.
pub fn cost(form: &OffloadForm) -> u32 {
    FORWARD + form.steps().map(price).sum::<u32>()
}

fn price(step: OffloadStep) -> u32 {
    match step {
        OffloadStep::Police => POLICE,
        OffloadStep::Ask(form) => ASK + form,
        OffloadStep::Count | OffloadStep::Drop => 0,
    }
}

const _: () = assert!(FORWARD + POLICE <= BUDGET);
