//! What goes wrong in a plugin: kinds of faults, and how often each was met.

use std::fmt;

use millrace_units::count;

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// It ran into `unreachable`: what `abort` and a panic compile to.
    Unreachable,
    /// It divided by zero.
    Divide,
    /// It read or wrote outside of its memory, or had the router do so.
    OutOfBounds,
    /// Its calls were nested too deep.
    StackOverflow,
    /// A division or a conversion to an integer overflowed.
    IntegerOverflow,
    /// It called a function by a number that names none, or one of another type.
    IndirectCall,
    /// Something else that ends it.
    OtherTrap,
    /// It gave a verdict that makes no sense. It goes on living.
    WrongVerdict,
    /// It refused to begin, or could not be set up.
    Init,
    /// It took longer than it may.
    Overrun,
    /// It called a function of the router whose capability its manifest doesn't name. It goes on living.
    NotGranted,
    /// It left a packet that the stages behind can't forward: its headers are cut, or contradict it. It goes on living.
    MalformedPacket,
    /// It made a packet that came in by no port of the router. It goes on living.
    UnknownPort,
}

impl FaultKind {
    /// Every kind.
    pub const ALL: [Self; 13] = [
        Self::Unreachable,
        Self::Divide,
        Self::OutOfBounds,
        Self::StackOverflow,
        Self::IntegerOverflow,
        Self::IndirectCall,
        Self::OtherTrap,
        Self::WrongVerdict,
        Self::Init,
        Self::Overrun,
        Self::NotGranted,
        Self::MalformedPacket,
        Self::UnknownPort,
    ];

    /// Its name in counters.
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
            Self::NotGranted => "not_granted",
            Self::MalformedPacket => "malformed_packet",
            Self::UnknownPort => "unknown_port",
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What ended an instance.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{kind}: {text}")]
pub struct Fault {
    /// Its kind.
    pub kind: FaultKind,
    /// What happened, and where.
    pub text: String,
}

impl Fault {
    pub(crate) fn new(kind: FaultKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }
}

/// How many faults of each kind there were. Those of all lives of an instance count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultCounts([u64; FaultKind::ALL.len()]);

impl FaultCounts {
    pub(crate) fn count(&mut self, kind: FaultKind) {
        if let Some(count) = self.0.get_mut(kind as usize) {
            *count = count.saturating_add(1);
        }
    }

    /// How many there were of a kind.
    pub fn of(&self, kind: FaultKind) -> u64 {
        self.0.get(kind as usize).copied().unwrap_or_default()
    }

    /// How many there were in all.
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

/// Describes a call that used up its budget, in microseconds, with the likely cause.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_counted_apart() {
        let mut counts = FaultCounts::default();
        for (index, kind) in FaultKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
            (0..=index).for_each(|_| counts.count(kind));
        }
        assert!(
            FaultKind::ALL.into_iter().enumerate().all(|(index, kind)| counts.of(kind) == index as u64 + 1)
        );
        let kinds = FaultKind::ALL.len() as u64;
        assert_eq!(counts.total(), kinds * (kinds + 1) / 2);
    }
}
