//! The engines that plugins run in.
#![allow(unsafe_code)]

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use wasmtime::{Engine, Error, Linker, Module};

use super::code::{Code, WasmPlugin};
use super::compile::{Tier, config, not_compiled};
use super::host::link;
use super::inspect::{Inspected, ModuleError, inspect};
use super::instance::DEFAULT_MEMORY;
use super::ticker::Ticker;
use crate::Manifest;

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

    /// Checks and compiles a module, to optimised code, in this process: for modules that are trusted not to take long.
    ///
    /// # Errors
    /// [`ModuleError`] when it is no plugin for this router.
    pub fn compile(&self, wasm: &[u8]) -> Result<WasmPlugin, ModuleError> {
        let inspected = inspect(wasm)?;
        let module = Module::from_binary(&self.0.optimised, wasm).map_err(not_compiled)?;
        let code = linked(&inspected.manifest, &module, Tier::Optimised)?;
        Ok(self.plugin(inspected, code))
    }

    /// Checks a module, and takes what [`compile`](super::compile()) made of it.
    ///
    /// # Errors
    /// [`ModuleError`] when it is no plugin for this router, [`ModuleError::Compile`] when the artifact is of another tier, of
    /// another version of the engine or of another processor: compile it again then.
    ///
    /// # Safety
    /// `artifact` must be, unchanged, what [`compile`](super::compile()) or [`WasmPlugin::artifact`] returned for these bytes of
    /// `wasm` and this tier: it is run as machine code.
    pub unsafe fn load(&self, wasm: &[u8], artifact: &[u8], tier: Tier) -> Result<WasmPlugin, ModuleError> {
        // SAFETY: what the caller promises.
        unsafe { self.load_inspected(inspect(wasm)?, artifact, tier) }
    }

    /// The same, for a module that was [inspected](super::inspect()) already.
    ///
    /// # Errors
    /// As of [`load`](Self::load).
    ///
    /// # Safety
    /// As of [`load`](Self::load), for the bytes that were inspected.
    pub unsafe fn load_inspected(
        &self,
        inspected: Inspected,
        artifact: &[u8],
        tier: Tier,
    ) -> Result<WasmPlugin, ModuleError> {
        // SAFETY: what the caller promises.
        let code = unsafe { self.link(&inspected.manifest, artifact, tier) }?;
        Ok(self.plugin(inspected, code))
    }

    /// Code from an artifact.
    ///
    /// # Safety
    /// As of [`load`](Self::load).
    pub(super) unsafe fn link(
        &self,
        manifest: &Manifest,
        artifact: &[u8],
        tier: Tier,
    ) -> Result<Code, ModuleError> {
        let engine = self.engine(tier).map_err(not_compiled)?;
        // SAFETY: what the caller promises.
        let module = unsafe { Module::deserialize(engine, artifact) }.map_err(not_compiled)?;
        linked(manifest, &module, tier)
    }

    fn plugin(&self, inspected: Inspected, code: Code) -> WasmPlugin {
        let name = crate::declared::interned(&inspected.manifest.name);
        WasmPlugin::new(self.clone(), name, inspected, code)
    }

    fn engine(&self, tier: Tier) -> wasmtime::Result<&Engine> {
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

fn linked(manifest: &Manifest, module: &Module, tier: Tier) -> Result<Code, ModuleError> {
    let mut linker = Linker::new(module.engine());
    link(&mut linker, manifest).map_err(not_compiled)?;
    let linked = linker.instantiate_pre(module).map_err(not_compiled)?;
    Ok(Code { tier, linked })
}

#[cfg(test)]
mod tests {
    use super::super::compile::compile;
    use super::super::test_modules::module;
    use super::*;

    #[test]
    fn an_artifact_stands_for_its_module() {
        let sandbox = Sandbox::new(SandboxSettings::default()).unwrap();
        let wasm = module("");
        let artifact = sandbox.compile(&wasm).unwrap().artifact().unwrap();
        // SAFETY: it was made of the same bytes just now.
        let loaded = unsafe { sandbox.load(&wasm, &artifact, Tier::Optimised) }.unwrap();
        assert_eq!((loaded.name(), loaded.manifest().window), ("test", 128));
        // SAFETY: what is no artifact at all is told by its header.
        let foreign = unsafe { sandbox.load(&wasm, b"no artifact", Tier::Optimised) };
        assert!(matches!(foreign, Err(ModuleError::Compile(_))));
    }

    #[test]
    fn code_that_is_not_valid_is_refused() {
        let sandbox = Sandbox::new(SandboxSettings::default()).unwrap();
        let wrong = module("(func (result i32) i64.const 1)");
        assert!(matches!(sandbox.compile(&wrong), Err(ModuleError::Compile(_))));
    }

    #[test]
    fn an_artifact_is_of_one_tier() {
        let sandbox = Sandbox::new(SandboxSettings::default()).unwrap();
        let wasm = module("");
        let artifact = compile(&wasm, Tier::Baseline).unwrap();
        // SAFETY: it was made of the same bytes just now.
        let loaded = unsafe { sandbox.load(&wasm, &artifact, Tier::Baseline) }.unwrap();
        assert_eq!(loaded.tier(), Tier::Baseline);
        // SAFETY: what is of the other compiler is told by its header.
        let other = unsafe { sandbox.load(&wasm, &artifact, Tier::Optimised) };
        assert!(matches!(other, Err(ModuleError::Compile(_))));
    }

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
