//! A plugin's code, which better code can take the place of.
#![allow(unsafe_code)]

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wasmtime::{Engine, InstancePre};

use super::compile::{Tier, not_compiled};
use super::host::Data;
use super::inspect::{Inspected, ModuleError};
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
