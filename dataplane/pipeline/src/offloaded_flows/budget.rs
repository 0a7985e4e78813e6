//! Static instruction budget of the XDP program (*VERA*, sections 3.3.3 and 3.3.5).
//!
//! The offload keeps up with the rate of its link only if it treats each packet before the next one arrives.
//! So the cost of a packet is bounded beforehand. Each step of a treatment has a price: the number of
//! instructions that it adds to the longest path through the program. A flow is offloaded only if its steps
//! together fit the budget. A test of the crate `offload` checks the prices against the compiled programs.

use millrace_plugin::{OffloadStep, OffloadSteps};

/// Maximum number of instructions that the XDP program spends on a packet. Not included: completion of a
/// partial checksum, and a second lookup in the flow cache.
pub const BUDGET: u32 = 1_310;
/// Number of instructions of the longest path of a forwarded or dropped packet: IPv6, TCP, and a flow that is
/// not in the first slot that the lookup visits. Instructions of called kernel functions are not included.
pub const FORWARD: u32 = 1_070;
/// Number of instructions that a policer adds.
pub const TOKEN_BUCKET: u32 = 100;
/// Number of instructions that a call to a plugin's eBPF variant adds, without the variant itself.
pub const EBPF_VARIANT_CALL: u32 = 20;
/// Maximum number of instructions of a plugin's eBPF variant.
pub const EBPF_VARIANT_LIMIT: u32 = BUDGET - FORWARD - EBPF_VARIANT_CALL;

/// Returns the maximum number of instructions per packet of a flow whose path has these steps. Bindings that
/// only count packets cost nothing, because the worker counts the offloaded packets later.
pub fn cost(steps: &OffloadSteps) -> u32 {
    FORWARD + steps.in_order().map(price).sum::<u32>()
}

fn price(step: OffloadStep) -> u32 {
    match step {
        OffloadStep::Police => TOKEN_BUCKET,
        OffloadStep::Variant(instructions) => EBPF_VARIANT_CALL + instructions,
        OffloadStep::Count | OffloadStep::Drop => 0,
    }
}

const _: () = assert!(FORWARD + TOKEN_BUCKET <= BUDGET);
