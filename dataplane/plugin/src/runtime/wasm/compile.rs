//! Compilation of a module to machine code: compilers and engine settings.

use std::fmt;
use std::str::FromStr;

use wasmtime::{Config, Engine, OptLevel, Strategy, WasmBacktraceDetails};

use super::inspect::ModuleError;

/// Bytes of stack for the calls of a plugin.
const STACK: usize = 256 << 10;
/// Bytes of stack for the calls of a plugin and for the host functions that they call.
const WHOLE_STACK: usize = STACK + (256 << 10);

/// Compiler of a plugin's code. By `Ord`, the greater tier is the better one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Tier {
    /// Winch: compiles in one pass, about ten times faster than Cranelift. The code runs more slowly.
    Baseline,
    /// Cranelift, an optimising compiler.
    Optimised,
}

impl Tier {
    /// Returns the name in lower case.
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
            .ok_or_else(|| format!("{text:?} is not a tier: give baseline or optimised"))
    }
}

/// Returns the engine configuration of a tier. Compiling and running processes must use the same
/// configuration.
pub(super) fn config(tier: Tier) -> Config {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .max_wasm_stack(STACK)
        .async_stack_size(WHOLE_STACK)
        .wasm_memory64(false)
        .wasm_multi_memory(false)
        .wasm_backtrace_details(WasmBacktraceDetails::Disable)
        // A backtrace of a trap would cost time of the worker.
        .wasm_backtrace_max_frames(None)
        // Only backtraces need the map from code to module bytes.
        .generate_address_map(false);
    match tier {
        Tier::Baseline => config.strategy(Strategy::Winch),
        Tier::Optimised => config.strategy(Strategy::Cranelift).cranelift_opt_level(OptLevel::Speed),
    };
    config
}

/// Compiles a module to an artifact for [`Sandbox::load`](super::Sandbox::load). No code of the module runs.
/// A module may take any time and memory to compile; therefore a router compiles in another process, which it
/// can end.
///
/// # Errors
/// [`ModuleError::Compile`] if the module is invalid, or if the compiler of the tier doesn't support it.
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
    fn tier_names_round_trip() {
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
