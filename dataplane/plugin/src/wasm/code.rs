//! A plugin's code, which better code can take the place of.
#![allow(unsafe_code)]

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wasmtime::{Engine, InstancePre, Linker, Module};

use super::compile::{Tier, not_compiled};
use super::host::{Data, link};
use super::inspect::{Inspected, ModuleError, inspect};
use super::sandbox::Sandbox;
use crate::Manifest;

/// A plugin's code, compiled and linked. Clones are the same one; any thread may make instances of it.
///
/// A handle names the code that was the best when it was taken; [`current`](Self::current) takes the best there is now.
/// Instances do so when they begin, also when they begin anew.
#[derive(Clone)]
pub struct WasmPlugin {
    loaded: Arc<Loaded>,
    code: Arc<Code>,
}

/// What all handles of a plugin share.
struct Loaded {
    sandbox: Sandbox,
    name: &'static str,
    inspected: Inspected,
    best: Mutex<Arc<Code>>,
}

/// Code of one tier.
pub(super) struct Code {
    pub tier: Tier,
    pub linked: InstancePre<Data>,
}

impl Loaded {
    fn best(&self) -> MutexGuard<'_, Arc<Code>> {
        // It is replaced as a whole or not at all.
        self.best.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for WasmPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WasmPlugin")
            .field("name", &self.loaded.name)
            .field("tier", &self.code.tier)
            .finish_non_exhaustive()
    }
}

impl WasmPlugin {
    pub(super) fn new(sandbox: Sandbox, name: &'static str, inspected: Inspected, code: Code) -> Self {
        let code = Arc::new(code);
        let best = Mutex::new(Arc::clone(&code));
        Self { loaded: Arc::new(Loaded { sandbox, name, inspected, best }), code }
    }

    /// Its name, as its manifest has it.
    pub fn name(&self) -> &'static str {
        self.loaded.name
    }

    /// Its manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.loaded.inspected.manifest
    }

    /// Bytes that each instance takes beside memory and entries of tables, at most.
    pub(super) fn instance_bytes(&self) -> usize {
        self.loaded.inspected.instance_bytes
    }

    /// The tier of the code that this handle names.
    pub fn tier(&self) -> Tier {
        self.code.tier
    }

    /// The plugin with the best code there is now.
    #[must_use]
    pub fn current(&self) -> Self {
        Self { loaded: Arc::clone(&self.loaded), code: Arc::clone(&self.loaded.best()) }
    }

    /// Gives the plugin code of a better tier, for instances that begin or are restarted from now on. Those that run go on
    /// with the code they have. Code that isn't better than what is there is let go.
    ///
    /// # Errors
    /// [`ModuleError::Compile`] when the artifact is of another version of the engine or of another processor; the plugin
    /// keeps its code then.
    ///
    /// # Safety
    /// As of [`Sandbox::load`]: the artifact is run as machine code.
    pub unsafe fn upgrade(&self, artifact: &[u8], tier: Tier) -> Result<(), ModuleError> {
        // SAFETY: what the caller promises.
        let code = unsafe { self.loaded.sandbox.link(self.manifest(), artifact, tier) }?;
        let mut best = self.loaded.best();
        if code.tier > best.tier {
            *best = Arc::new(code);
        }
        Ok(())
    }

    /// The compiled code, to be kept where nobody else writes, for [`Sandbox::load`].
    ///
    /// # Errors
    /// [`ModuleError::Compile`] when it can't be written down.
    pub fn artifact(&self) -> Result<Vec<u8>, ModuleError> {
        self.code.linked.module().serialize().map_err(not_compiled)
    }

    pub(super) fn sandbox(&self) -> &Sandbox {
        &self.loaded.sandbox
    }

    /// The engine that runs this handle's code.
    pub(super) fn engine(&self) -> &Engine {
        self.code.linked.module().engine()
    }

    pub(super) fn linked(&self) -> &InstancePre<Data> {
        &self.code.linked
    }
}

impl Sandbox {
    /// Checks and compiles a module, to optimised code, in this process: for modules that are trusted not to take long.
    ///
    /// # Errors
    /// [`ModuleError`] when it is no plugin for this router.
    pub fn compile(&self, wasm: &[u8]) -> Result<WasmPlugin, ModuleError> {
        let inspected = inspect(wasm)?;
        let module = Module::from_binary(self.engine(Tier::Optimised).map_err(not_compiled)?, wasm)
            .map_err(not_compiled)?;
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
    unsafe fn link(&self, manifest: &Manifest, artifact: &[u8], tier: Tier) -> Result<Code, ModuleError> {
        let engine = self.engine(tier).map_err(not_compiled)?;
        // SAFETY: what the caller promises.
        let module = unsafe { Module::deserialize(engine, artifact) }.map_err(not_compiled)?;
        linked(manifest, &module, tier)
    }

    fn plugin(&self, inspected: Inspected, code: Code) -> WasmPlugin {
        let name = crate::declared::interned(&inspected.manifest.name);
        WasmPlugin::new(self.clone(), name, inspected, code)
    }
}

fn linked(manifest: &Manifest, module: &Module, tier: Tier) -> Result<Code, ModuleError> {
    let mut linker = Linker::new(module.engine());
    link(&mut linker, manifest).map_err(not_compiled)?;
    let linked = linker.instantiate_pre(module).map_err(not_compiled)?;
    Ok(Code { tier, linked })
}

/// Code of a tier, for tests.
#[cfg(test)]
pub(super) mod test_code {
    use super::super::compile::compile;
    use super::*;

    /// A plugin with code of a tier.
    pub fn compiled(sandbox: &Sandbox, wasm: &[u8], tier: Tier) -> WasmPlugin {
        let artifact = compile(wasm, tier).unwrap();
        // SAFETY: it was made of the same bytes just now.
        unsafe { sandbox.load(wasm, &artifact, tier) }.unwrap()
    }

    /// Gives a plugin code of a tier.
    pub fn recompiled(plugin: &WasmPlugin, wasm: &[u8], tier: Tier) {
        let artifact = compile(wasm, tier).unwrap();
        // SAFETY: the caller has the bytes that the plugin was made of.
        unsafe { plugin.upgrade(&artifact, tier) }.unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::super::compile::compile;
    use super::super::sandbox::SandboxSettings;
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
}
