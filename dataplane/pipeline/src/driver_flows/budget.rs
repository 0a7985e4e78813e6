//! The static budget of the driver's level (*VERA*, sections 3.3.3 and 3.3.5): how many instructions a program may spend on a packet.
//!
//! A driver receives at the rate of its link only if no packet takes longer than the next one needs to come, so what it does is bounded
//! beforehand: each step has a price, the longest way through the program that it adds, and a flow goes down only if its steps together
//! fit. A test of the room `offload` holds the prices against the programs as they are compiled.

use millrace_plugin::{DriverForm, DriverStep};

/// Instructions that a program may spend on a packet, beside completing checksums that a sender left to its card, and a
/// second look into the flow cache.
pub const BUDGET: u32 = 1_310;
/// Instructions of the longest way of a packet that is forwarded, or dropped: IPv6, TCP, the flow not where it is looked for first. Those
/// of functions of the kernel that it calls are not among them.
pub const FORWARD: u32 = 1_070;
/// Instructions that a token bucket takes.
pub const POLICE: u32 = 100;
/// Instructions that asking the form of a plugin takes, beside those of the form.
pub const ASK: u32 = 20;
/// Instructions that the form of a plugin may take.
pub const MOST_OF_FORM: u32 = BUDGET - FORWARD - ASK;

/// Instructions that a flow with these steps takes for each packet, at most. Steps that only count are told later, and cost nothing there.
pub fn cost(form: &DriverForm) -> u32 {
    FORWARD + form.steps().map(price).sum::<u32>()
}

fn price(step: DriverStep) -> u32 {
    match step {
        DriverStep::Police => POLICE,
        DriverStep::Ask(form) => ASK + form,
        DriverStep::Count | DriverStep::Drop => 0,
    }
}

const _: () = assert!(FORWARD + POLICE <= BUDGET);
