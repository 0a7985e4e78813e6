//! Kinds of plugin faults.

use std::fmt;

use millrace_units::count;

/// Kind of a plugin fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// The plugin executed the instruction `unreachable`. Compilers translate `abort` and panics into it.
    Unreachable,
    /// The plugin divided by zero.
    Divide,
    /// The plugin accessed an address outside its memory, or gave such an address to the router.
    OutOfBounds,
    /// The plugin's calls were nested too deep.
    StackOverflow,
    /// A division or a conversion to an integer overflowed.
    IntegerOverflow,
    /// The plugin called a function through a table, with an invalid index or a wrong type.
    IndirectCall,
    /// Any other trap of WebAssembly code.
    OtherTrap,
    /// The plugin returned an invalid verdict. The plugin continues to run.
    WrongVerdict,
    /// The plugin refused to start, or the router failed to set it up.
    Init,
    /// A call took longer than its time limit.
    Overrun,
    /// The process of the plugin neither answered a call nor used its processor time.
    NoAnswer,
    /// The plugin called a host function whose capability its manifest doesn't request. The plugin continues
    /// to run.
    NotGranted,
    /// The plugin left a packet with truncated or inconsistent headers, which later stages can't forward. The
    /// plugin continues to run.
    MalformedPacket,
    /// The plugin created a packet with an unknown ingress port. The plugin continues to run.
    UnknownPort,
    /// The process of the plugin has ended.
    Crash,
    /// The process of the plugin broke the rules of the exchange with the worker.
    WrongAnswer,
}

impl FaultKind {
    /// Returns the name of the kind in counters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Divide => "divide",
            Self::OutOfBounds => "out_of_bounds",
            Self::StackOverflow => "stack_overflow",
            Self::IntegerOverflow => "integer_overflow",
            Self::IndirectCall => "indirect_call",
            Self::OtherTrap => "other_trap",
            Self::WrongVerdict => "wrong_verdict",
            Self::Init => "init",
            Self::Overrun => "overrun",
            Self::NoAnswer => "no_answer",
            Self::NotGranted => "not_granted",
            Self::MalformedPacket => "malformed_packet",
            Self::UnknownPort => "unknown_port",
            Self::Crash => "crash",
            Self::WrongAnswer => "wrong_answer",
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Fault of a plugin's instance: its kind and description.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{kind}: {text}")]
pub struct Fault {
    /// Kind of the fault.
    pub kind: FaultKind,
    /// Description of the fault, with its location.
    pub text: String,
}

impl Fault {
    pub(crate) fn new(kind: FaultKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }
}

/// Describes an overrun for users: time taken by the call, and likely cause.
pub(crate) fn overrun(packets: usize, slices: u32, slice: std::time::Duration) -> String {
    let spent = slice.as_micros().saturating_mul(slices.into());
    let cause =
        if packets > 8 { "too much work for each packet, or a loop" } else { "a loop, or a long search" };
    format!(
        "a call for {} took more than its budget of {spent} us ({} of {} us): {cause}",
        count(packets, "packet"),
        count(slices, "slice"),
        slice.as_micros()
    )
}
