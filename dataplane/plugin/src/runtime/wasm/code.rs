//! Compiled code of a plugin. Code of a better tier can replace it at run time.
#![allow(unsafe_code)]

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wasmtime::{Engine, InstancePre, Linker, Module};

use super::compile::{Tier, not_compiled};
use super::host::{Data, link};
use super::inspect::{Inspected, ModuleError, inspect};
use super::sandbox::Sandbox;
use crate::Manifest;

/// Handle on the compiled and linked code of a plugin. Clones share the code, and any thread may create
/// instances from it.
///
/// A handle refers to the best code at the time of its creation; [`current`](Self::current) returns a handle
/// to the best code now. Instances call `current` when they start or restart.
#[derive(Clone)]
pub struct WasmPlugin {
    loaded: Arc<Loaded>,
    code: Arc<Code>,
}

/// Data shared by all handles of a plugin.
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
        // A panic leaves no incomplete value, because the code is replaced as a whole.
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

    /// Returns the plugin's name from its manifest.
    pub fn name(&self) -> &'static str {
        self.loaded.name
    }

    /// Returns the manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.loaded.inspected.manifest
    }

    /// Returns the maximum bytes that the engine allocates for an instance besides memory and table entries.
    pub(super) fn instance_bytes(&self) -> usize {
        self.loaded.inspected.instance_bytes
    }

    /// Returns the tier of this handle's code.
    pub fn tier(&self) -> Tier {
        self.code.tier
    }

    /// Returns a handle to the best code of the plugin.
    #[must_use]
    pub fn current(&self) -> Self {
        Self { loaded: Arc::clone(&self.loaded), code: Arc::clone(&self.loaded.best()) }
    }

    /// Gives the plugin code of a better tier. Instances that start or restart from now on use this code;
    /// running instances keep theirs. Discards code that isn't of a better tier.
    ///
    /// # Errors
    /// [`ModuleError::Compile`] if the artifact is for another version of the engine or another processor;
    /// the plugin keeps its code.
    ///
    /// # Safety
    /// That of [`Sandbox::load`]: the artifact runs as machine code.
    pub unsafe fn upgrade(&self, artifact: &[u8], tier: Tier) -> Result<(), ModuleError> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { self.loaded.sandbox.link(self.manifest(), artifact, tier) }?;
        let mut best = self.loaded.best();
        if code.tier > best.tier {
            *best = Arc::new(code);
        }
        Ok(())
    }

    /// Returns the compiled code, for [`Sandbox::load`]. Store it where no other user can write: it runs as
    /// machine code.
    pub fn artifact(&self) -> Result<Vec<u8>, ModuleError> {
        self.code.linked.module().serialize().map_err(not_compiled)
    }

    pub(super) fn sandbox(&self) -> &Sandbox {
        &self.loaded.sandbox
    }

    /// Returns the engine that runs this handle's code.
    pub(super) fn engine(&self) -> &Engine {
        self.code.linked.module().engine()
    }

    pub(super) fn linked(&self) -> &InstancePre<Data> {
        &self.code.linked
    }
}

impl Sandbox {
    /// Checks a module and compiles it to optimised code in this process. Use this only for modules that are
    /// known to compile fast.
    pub fn compile(&self, wasm: &[u8]) -> Result<WasmPlugin, ModuleError> {
        let inspected = inspect(wasm)?;
        let module = Module::from_binary(self.engine(Tier::Optimised).map_err(not_compiled)?, wasm)
            .map_err(not_compiled)?;
        let code = linked(&inspected.manifest, &module, Tier::Optimised)?;
        Ok(self.plugin(inspected, code))
    }

    /// Checks a module and loads the artifact that [`compile`](super::compile()) made from it.
    ///
    /// # Errors
    /// [`ModuleError`] if the module is no plugin for this router. [`ModuleError::Compile`] if the artifact
    /// is of another tier, or for another version of the engine or another processor. In this case, compile
    /// the module again.
    ///
    /// # Safety
    /// `artifact` must be the unchanged result of [`compile`](super::compile()) or [`WasmPlugin::artifact`]
    /// for these bytes of `wasm` and this tier: it runs as machine code.
    pub unsafe fn load(&self, wasm: &[u8], artifact: &[u8], tier: Tier) -> Result<WasmPlugin, ModuleError> {
        // SAFETY: the caller guarantees it.
        unsafe { self.load_inspected(inspect(wasm)?, artifact, tier) }
    }

    /// Loads an artifact of a module that was already [inspected](super::inspect()).
    ///
    /// # Errors
    /// Those of [`load`](Self::load).
    ///
    /// # Safety
    /// That of [`load`](Self::load), for the inspected bytes.
    pub unsafe fn load_inspected(
        &self,
        inspected: Inspected,
        artifact: &[u8],
        tier: Tier,
    ) -> Result<WasmPlugin, ModuleError> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { self.link(&inspected.manifest, artifact, tier) }?;
        Ok(self.plugin(inspected, code))
    }

    /// Links the code of an artifact.
    ///
    /// # Safety
    /// That of [`load`](Self::load).
    unsafe fn link(&self, manifest: &Manifest, artifact: &[u8], tier: Tier) -> Result<Code, ModuleError> {
        let engine = self.engine(tier).map_err(not_compiled)?;
        // SAFETY: the caller guarantees it.
        let module = unsafe { Module::deserialize(engine, artifact) }.map_err(not_compiled)?;
        linked(manifest, &module, tier)
    }

    fn plugin(&self, inspected: Inspected, code: Code) -> WasmPlugin {
        let name = crate::declaration::declared::interned(&inspected.manifest.name);
        WasmPlugin::new(self.clone(), name, inspected, code)
    }
}

fn linked(manifest: &Manifest, module: &Module, tier: Tier) -> Result<Code, ModuleError> {
    let mut linker = Linker::new(module.engine());
    link(&mut linker, manifest).map_err(not_compiled)?;
    let linked = linker.instantiate_pre(module).map_err(not_compiled)?;
    Ok(Code { tier, linked })
}

/// Helpers for tests with code of a given tier.
#[cfg(test)]
pub(super) mod test_code {
    use super::super::compile::compile;
    use super::*;

    /// Returns a plugin with code of a tier.
    pub fn compiled(sandbox: &Sandbox, wasm: &[u8], tier: Tier) -> WasmPlugin {
        let artifact = compile(wasm, tier).unwrap();
        // SAFETY: the artifact was just made of the same bytes.
        unsafe { sandbox.load(wasm, &artifact, tier) }.unwrap()
    }

    /// Gives a plugin code of a tier, compiled from `wasm`.
    pub fn recompiled(plugin: &WasmPlugin, wasm: &[u8], tier: Tier) {
        let artifact = compile(wasm, tier).unwrap();
        // SAFETY: the caller passes the bytes from which the plugin was made.
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
    fn artifact_identifies_its_module() {
        let sandbox = Sandbox::new(SandboxSettings::default()).unwrap();
        let wasm = module("");
        let artifact = sandbox.compile(&wasm).unwrap().artifact().unwrap();
        // SAFETY: the artifact was just made of the same bytes.
        let loaded = unsafe { sandbox.load(&wasm, &artifact, Tier::Optimised) }.unwrap();
        assert_eq!((loaded.name(), loaded.manifest().window), ("test", 128));
        // SAFETY: the engine rejects bytes without an artifact header.
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
        // SAFETY: the artifact was just made of the same bytes.
        let loaded = unsafe { sandbox.load(&wasm, &artifact, Tier::Baseline) }.unwrap();
        assert_eq!(loaded.tier(), Tier::Baseline);
        // SAFETY: the engine rejects the header of an artifact of the other compiler.
        let other = unsafe { sandbox.load(&wasm, &artifact, Tier::Optimised) };
        assert!(matches!(other, Err(ModuleError::Compile(_))));
    }
}
