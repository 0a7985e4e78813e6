//! The engine that plugins run in, and plugins that were compiled for it.
#![allow(unsafe_code)]

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use wasmtime::{Config, Engine, InstancePre, Linker, Module, OptLevel, WasmBacktraceDetails};

use super::host::{Data, link};
use super::inspect::{ModuleError, inspect};
use super::ticker::Ticker;
use crate::Manifest;

/// What stands between the router and a plugin's functions; its text is `driver.wat`.
const DRIVER: &[u8] = include_bytes!("driver.wasm");

/// Bytes of stack that a plugin's calls may fill.
const STACK: usize = 256 << 10;
/// Bytes of stack for those and the router's functions that they call.
const WHOLE_STACK: usize = STACK + (256 << 10);

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
}

impl Default for SandboxSettings {
    fn default() -> Self {
        Self { tick: Duration::from_micros(50), slice: 2 }
    }
}

/// Where plugins run, all of a router's. Clones are the same one.
#[derive(Clone)]
pub struct Sandbox(Arc<Inner>);

struct Inner {
    engine: Engine,
    driver: Module,
    ticker: Ticker,
    slice: u64,
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandbox").field("slice", &self.0.slice).finish_non_exhaustive()
    }
}

fn config() -> Config {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .max_wasm_stack(STACK)
        .async_stack_size(WHOLE_STACK)
        .cranelift_opt_level(OptLevel::Speed)
        .wasm_memory64(false)
        .wasm_multi_memory(false)
        .wasm_backtrace_details(WasmBacktraceDetails::Disable)
        // A backtrace of a trap is paid for by the worker.
        .wasm_backtrace_max_frames(None);
    config
}

impl Sandbox {
    /// An engine, and the thread that keeps its clock.
    ///
    /// # Errors
    /// [`SandboxError`] when the machine or its limits don't allow it.
    pub fn new(settings: SandboxSettings) -> Result<Self, SandboxError> {
        let no_engine = |error: wasmtime::Error| SandboxError::Engine(format!("{error:#}"));
        let engine = Engine::new(&config()).map_err(no_engine)?;
        let driver = Module::new(&engine, DRIVER).map_err(no_engine)?;
        let ticker = Ticker::new(&engine, settings.tick).map_err(SandboxError::Thread)?;
        Ok(Self(Arc::new(Inner { engine, driver, ticker, slice: settings.slice.max(1).into() })))
    }

    /// Checks and compiles a module: not for a thread that others wait for.
    ///
    /// # Errors
    /// [`ModuleError`] when it is no plugin for this router.
    pub fn compile(&self, wasm: &[u8]) -> Result<WasmPlugin, ModuleError> {
        let manifest = inspect(wasm)?;
        let module = Module::from_binary(&self.0.engine, wasm).map_err(not_compiled)?;
        self.plugin(manifest, module)
    }

    /// Checks a module, and takes what [`WasmPlugin::artifact`] returned for it instead of compiling it.
    ///
    /// # Errors
    /// [`ModuleError`] when it is no plugin for this router, [`ModuleError::Compile`] when the artifact is of another version
    /// of the engine or of another processor: compile it again then.
    ///
    /// # Safety
    /// `artifact` must be, unchanged, what [`WasmPlugin::artifact`] returned for these bytes of `wasm`: it is run as machine
    /// code.
    pub unsafe fn load(&self, wasm: &[u8], artifact: &[u8]) -> Result<WasmPlugin, ModuleError> {
        let manifest = inspect(wasm)?;
        // SAFETY: the caller has checked the artifact's integrity.
        let module = unsafe { Module::deserialize(&self.0.engine, artifact) }.map_err(not_compiled)?;
        self.plugin(manifest, module)
    }

    fn plugin(&self, manifest: Manifest, module: Module) -> Result<WasmPlugin, ModuleError> {
        let mut linker = Linker::new(&self.0.engine);
        link(&mut linker, &manifest).map_err(not_compiled)?;
        let linked = linker.instantiate_pre(&module).map_err(not_compiled)?;
        let name = interned(&manifest.name);
        Ok(WasmPlugin(Arc::new(Code { sandbox: self.clone(), name, manifest, linked })))
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.0.engine
    }

    pub(super) fn driver(&self) -> &Module {
        &self.0.driver
    }

    pub(super) fn ticker(&self) -> &Ticker {
        &self.0.ticker
    }

    /// Ticks in a slice.
    pub(super) fn slice(&self) -> u64 {
        self.0.slice
    }
}

fn not_compiled(error: wasmtime::Error) -> ModuleError {
    ModuleError::Compile(format!("{error:#}"))
}

/// A plugin's code, compiled and linked. Clones are the same one; any thread may make instances of it.
#[derive(Clone)]
pub struct WasmPlugin(Arc<Code>);

struct Code {
    sandbox: Sandbox,
    name: &'static str,
    manifest: Manifest,
    linked: InstancePre<Data>,
}

impl fmt::Debug for WasmPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WasmPlugin").field("name", &self.0.name).finish_non_exhaustive()
    }
}

impl WasmPlugin {
    /// Its name, as its manifest has it.
    pub fn name(&self) -> &'static str {
        self.0.name
    }

    /// Its manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.0.manifest
    }

    /// The compiled code, to be kept where nobody else writes, for [`Sandbox::load`].
    ///
    /// # Errors
    /// [`ModuleError::Compile`] when it can't be written down.
    pub fn artifact(&self) -> Result<Vec<u8>, ModuleError> {
        self.0.linked.module().serialize().map_err(not_compiled)
    }

    pub(super) fn sandbox(&self) -> &Sandbox {
        &self.0.sandbox
    }

    pub(super) fn linked(&self) -> &InstancePre<Data> {
        &self.0.linked
    }
}

/// The same text for as long as the process lives. Errors of plugins carry such names; each name is kept once, however
/// often a plugin is loaded.
pub(super) fn interned(name: &str) -> &'static str {
    static NAMES: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let names = names.get_or_insert_default();
    if let Some(known) = names.get(name) {
        return known;
    }
    let name: &'static str = String::leak(name.to_owned());
    names.insert(name);
    name
}

#[cfg(test)]
mod tests {
    use super::super::test_modules::module;
    use super::*;

    #[test]
    fn the_drivers_bytes_are_its_text() {
        assert_eq!(wat::parse_str(include_str!("driver.wat")).unwrap(), DRIVER);
    }

    #[test]
    fn an_artifact_stands_for_its_module() {
        let sandbox = Sandbox::new(SandboxSettings::default()).unwrap();
        let wasm = module("");
        let artifact = sandbox.compile(&wasm).unwrap().artifact().unwrap();
        // SAFETY: it was made of the same bytes just now.
        let loaded = unsafe { sandbox.load(&wasm, &artifact) }.unwrap();
        assert_eq!((loaded.name(), loaded.manifest().window), ("test", 128));
        // SAFETY: what is no artifact at all is told by its header.
        let foreign = unsafe { sandbox.load(&wasm, b"no artifact") };
        assert!(matches!(foreign, Err(ModuleError::Compile(_))));
    }

    #[test]
    fn code_that_is_not_valid_is_refused() {
        let sandbox = Sandbox::new(SandboxSettings::default()).unwrap();
        let wrong = module("(func (result i32) i64.const 1)");
        assert!(matches!(sandbox.compile(&wrong), Err(ModuleError::Compile(_))));
    }

    #[test]
    fn names_are_kept_once() {
        assert!(std::ptr::eq(interned("a-name"), interned("a-name")));
    }
}
