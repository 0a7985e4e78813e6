//! From a module to machine code: by which compiler, and under which rules.

use std::fmt;
use std::str::FromStr;

use wasmtime::{Config, Engine, OptLevel, Strategy, WasmBacktraceDetails};

use super::inspect::ModuleError;

/// Bytes of stack that a plugin's calls may fill.
const STACK: usize = 256 << 10;
/// Bytes of stack for those and the router's functions that they call.
const WHOLE_STACK: usize = STACK + (256 << 10);

/// Which compiler made a plugin's code. The later one is the better one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Tier {
    /// Winch: it compiles in one pass, about ten times faster than the other one, to slower code.
    Baseline,
    /// Cranelift, which optimises.
    Optimised,
}

impl Tier {
    /// Its name, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Optimised => "optimised",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Tier {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Baseline, Self::Optimised]
            .into_iter()
            .find(|tier| tier.name() == text)
            .ok_or_else(|| format!("{text:?} is no tier; tiers here: baseline, optimised"))
    }
}

/// How code of a tier is made and run. Both ends must agree on it, whichever process they are in.
pub(super) fn config(tier: Tier) -> Config {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .max_wasm_stack(STACK)
        .async_stack_size(WHOLE_STACK)
        .wasm_memory64(false)
        .wasm_multi_memory(false)
        .wasm_backtrace_details(WasmBacktraceDetails::Disable)
        // A backtrace of a trap is paid for by the worker.
        .wasm_backtrace_max_frames(None)
        // What belongs to which byte of the module is for backtraces.
        .generate_address_map(false);
    match tier {
        Tier::Baseline => config.strategy(Strategy::Winch),
        Tier::Optimised => config.strategy(Strategy::Cranelift).cranelift_opt_level(OptLevel::Speed),
    };
    config
}

/// Compiles a module to what [`Sandbox::load`](super::Sandbox::load) takes. Nothing of it is run. How long it takes and how
/// much memory is up to the module: a router has it done by a process that can be ended.
///
/// # Errors
/// [`ModuleError::Compile`] when the module is not valid, or the tier's compiler can't compile it.
pub fn compile(wasm: &[u8], tier: Tier) -> Result<Vec<u8>, ModuleError> {
    let engine = Engine::new(&config(tier)).map_err(not_compiled)?;
    engine.precompile_module(wasm).map_err(not_compiled)
}

pub(super) fn not_compiled(error: wasmtime::Error) -> ModuleError {
    ModuleError::Compile(format!("{error:#}"))
}

#[cfg(test)]
mod tests {
    use super::super::test_modules::module;
    use super::*;

    #[test]
    fn a_tier_is_named_as_it_is_read() {
        for tier in [Tier::Baseline, Tier::Optimised] {
            assert_eq!(tier.name().parse(), Ok(tier));
        }
        assert!("fast".parse::<Tier>().is_err());
        assert!(Tier::Baseline < Tier::Optimised);
    }

    #[test]
    fn code_that_is_not_valid_is_refused_by_both() {
        let wrong = module("(func (result i32) i64.const 1)");
        for tier in [Tier::Baseline, Tier::Optimised] {
            assert!(matches!(compile(&wrong, tier), Err(ModuleError::Compile(_))));
        }
    }
}
