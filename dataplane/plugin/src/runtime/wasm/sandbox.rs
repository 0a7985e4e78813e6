//! Engines that run WebAssembly plugins.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use nix::unistd::Pid;
use wasmtime::{Engine, Error};

use super::compile::{Tier, config, not_compiled};
use super::inspect::ModuleError;
use super::ticker::Ticker;

/// Default limit of an instance's memory and tables, in bytes.
pub const DEFAULT_MEMORY: usize = 4 << 20;

/// Error at the creation of a sandbox.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// Engine that doesn't support this machine.
    #[error("WebAssembly plugins can't run on this machine: {0}")]
    Engine(String),
    /// Clock thread that can't be started.
    #[error("can't start the clock thread of plugins: {0}")]
    Thread(#[source] std::io::Error),
}

/// Length of slices, and memory limit of instances.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SandboxSettings {
    /// Interval between two ticks of the clock, 50 µs by default. The clock ticks only while plugins run.
    pub tick: Duration,
    /// Number of clock ticks in a slice, 2 by default. A slice can start just before a tick. So with 2 ticks
    /// it lasts between 1 and 2 intervals.
    pub slice: u32,
    /// Number of consecutive short calls after which a function runs on the worker's stack, 1,024 by default;
    /// 0 for never. A call is short if it ends within its slice.
    pub short_calls: u32,
    /// Maximum bytes of an instance's memory and tables, 4 MiB by default.
    pub memory: usize,
}

impl Default for SandboxSettings {
    fn default() -> Self {
        Self { tick: Duration::from_micros(50), slice: 2, short_calls: 1024, memory: DEFAULT_MEMORY }
    }
}

/// Engines and clock for all WebAssembly plugins of a router. Clones of the sandbox share both.
#[derive(Clone)]
pub struct Sandbox(Arc<Inner>);

struct Inner {
    /// Engine for optimised code. Code of the two compilers can't share an engine.
    optimised: Engine,
    /// Engine for baseline code; `None` on processors other than x86-64, which Winch doesn't fully support.
    baseline: Option<Engine>,
    ticker: Ticker,
    slice: u64,
    short_calls: u32,
    memory: usize,
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandbox").field("slice", &self.0.slice).finish_non_exhaustive()
    }
}

impl Sandbox {
    /// Creates the engines, and starts the clock thread.
    pub fn new(settings: SandboxSettings) -> Result<Self, SandboxError> {
        let optimised = Engine::new(&config(Tier::Optimised))
            .map_err(|error| SandboxError::Engine(format!("{error:#}")))?;
        let baseline =
            if cfg!(target_arch = "x86_64") { Engine::new(&config(Tier::Baseline)).ok() } else { None };
        let engines = [Some(&optimised), baseline.as_ref()].into_iter().flatten();
        let engines = engines.cloned().collect();
        let ticker = Ticker::new(engines, settings.tick).map_err(SandboxError::Thread)?;
        let SandboxSettings { slice, short_calls, memory, .. } = settings;
        let slice = slice.max(1).into();
        Ok(Self(Arc::new(Inner { optimised, baseline, ticker, slice, short_calls, memory })))
    }

    /// Whether this machine can compile and run code of a tier.
    pub fn has(&self, tier: Tier) -> bool {
        self.engine(tier).is_ok()
    }

    /// Hashes everything that artifacts of a tier depend on besides their module: engine version, processor
    /// features and compiler settings. An artifact is valid in sandboxes with the same hash.
    ///
    /// # Errors
    /// [`ModuleError::Compile`] if this machine doesn't support the tier.
    pub fn hash_compatibility(&self, tier: Tier, hasher: &mut impl Hasher) -> Result<(), ModuleError> {
        let engine = self.engine(tier).map_err(not_compiled)?;
        tier.name().hash(hasher);
        engine.precompile_compatibility_hash().hash(hasher);
        Ok(())
    }

    pub(super) fn engine(&self, tier: Tier) -> wasmtime::Result<&Engine> {
        let engine = match tier {
            Tier::Optimised => Some(&self.0.optimised),
            Tier::Baseline => self.0.baseline.as_ref(),
        };
        engine.ok_or_else(|| Error::msg("there is no baseline compiler for this processor"))
    }

    /// Returns the number of the clock's thread, which wakes in each interval while plugins run.
    pub fn clock_thread(&self) -> Pid {
        self.0.ticker.number()
    }

    pub(super) fn ticker(&self) -> &Ticker {
        &self.0.ticker
    }

    /// Returns the maximum bytes of an instance's memory and tables.
    pub(super) fn memory(&self) -> usize {
        self.0.memory
    }

    /// Returns the number of consecutive short calls after which a function runs on the worker's stack; 0 for
    /// never.
    pub(super) fn short_calls(&self) -> u32 {
        self.0.short_calls
    }

    /// Returns the number of ticks in a slice.
    pub(super) fn slice(&self) -> u64 {
        self.0.slice
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compatibility_is_that_of_a_tier() {
        let hash = |sandbox: &Sandbox, tier| {
            let mut hasher = std::hash::DefaultHasher::new();
            sandbox.hash_compatibility(tier, &mut hasher).unwrap();
            hasher.finish()
        };
        let (one, other) = (
            Sandbox::new(SandboxSettings::default()).unwrap(),
            Sandbox::new(SandboxSettings::default()).unwrap(),
        );
        assert_eq!(hash(&one, Tier::Baseline), hash(&other, Tier::Baseline));
        assert_ne!(hash(&one, Tier::Baseline), hash(&one, Tier::Optimised));
    }
}
