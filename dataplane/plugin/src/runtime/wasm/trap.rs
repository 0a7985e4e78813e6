//! Conversion of the engine's traps into faults.

use wasmtime::Trap;

use crate::fault::{Fault, FaultKind};

impl FaultKind {
    fn of_trap(trap: Trap) -> Self {
        match trap {
            Trap::UnreachableCodeReached => Self::Unreachable,
            Trap::IntegerDivisionByZero => Self::Divide,
            Trap::MemoryOutOfBounds => Self::OutOfBounds,
            Trap::StackOverflow => Self::StackOverflow,
            Trap::Interrupt => Self::Overrun,
            Trap::IntegerOverflow | Trap::BadConversionToInteger => Self::IntegerOverflow,
            Trap::TableOutOfBounds | Trap::IndirectCallToNull | Trap::BadSignature => Self::IndirectCall,
            _ => Self::OtherTrap,
        }
    }
}

impl Fault {
    /// Converts an engine error into a fault. `place` names the plugin's function in which the error
    /// occurred. An error that is no trap becomes [`FaultKind::OtherTrap`].
    pub(super) fn of_error(error: &wasmtime::Error, place: &str) -> Self {
        let kind = match error.downcast_ref::<Trap>() {
            Some(trap) => FaultKind::of_trap(*trap),
            None => FaultKind::OtherTrap,
        };
        Self::new(kind, format!("in {place}: {}", error.root_cause()))
    }
}
