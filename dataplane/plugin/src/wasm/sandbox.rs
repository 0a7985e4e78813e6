//! The engines that plugins run in.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use wasmtime::{Engine, Error};

use super::compile::{Tier, config, not_compiled};
use super::inspect::ModuleError;
use super::ticker::Ticker;

/// Bytes of memory of an instance, unless it is said otherwise.
pub const DEFAULT_MEMORY: usize = 4 << 20;

/// Why there is no sandbox.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The machine is none that plugins can run on.
    #[error("WebAssembly plugins can't run on this machine: {0}")]
    Engine(String),
    /// There is no thread for its clock.
    #[error("no thread for the clock of plugins: {0}")]
    Thread(#[source] std::io::Error),
}

/// How long plugins run before they are stopped in the middle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SandboxSettings {
    /// Time between two ticks of the clock. 50 µs by default; it ticks only while plugins run.
    pub tick: Duration,
    /// Ticks in a slice. 2 by default: since the first comes too early, slices take 1 to 2 of them.
    pub slice: u32,
    /// How often in a row a function has to end within its slice before it is called without a stack of its own. 1,024 by
    /// default; 0 for never.
    pub short_calls: u32,
    /// Bytes of memory that an instance may have. 4 MiB by default.
    pub memory: usize,
}

impl Default for SandboxSettings {
    fn default() -> Self {
        Self { tick: Duration::from_micros(50), slice: 2, short_calls: 1024, memory: DEFAULT_MEMORY }
    }
}

/// Where plugins run, all of a router's. Clones are the same one.
#[derive(Clone)]
pub struct Sandbox(Arc<Inner>);

struct Inner {
    /// Code of each tier runs in an engine of its own: each compiler has conventions of its own.
    optimised: Engine,
    /// `None` on processors other than x86-64: for those Winch is still in development.
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
    /// Its engines, and the thread that keeps their clock.
    ///
    /// # Errors
    /// [`SandboxError`] when the machine or its limits don't allow it.
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

    /// Whether code of a tier can be made and run on this machine.
    pub fn has(&self, tier: Tier) -> bool {
        self.engine(tier).is_ok()
    }

    /// Hashes all that artifacts of a tier depend on but their module: the engine's version, the features of this processor,
    /// and how it was told to compile. Artifacts are for those sandboxes in which it is the same.
    ///
    /// # Errors
    /// [`ModuleError::Compile`] when there is no such tier on this machine.
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

    pub(super) fn ticker(&self) -> &Ticker {
        &self.0.ticker
    }

    /// Bytes of memory that an instance may have.
    pub(super) fn memory(&self) -> usize {
        self.0.memory
    }

    /// Calls after which a function is taken to be short; 0 for never.
    pub(super) fn short_calls(&self) -> u32 {
        self.0.short_calls
    }

    /// Ticks in a slice.
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
