//! A shared object as a type of plugin, of which instances are created like of any other.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use millrace_plugin_abi::binary::ABI_VERSION;

use super::elf::{MAGIC, ObjectError, manifest_bytes};
use super::object::Object;
use crate::Manifest;
use crate::declared::Declared;

/// Whether bytes begin like a shared object.
pub fn is_object(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// A plugin that is a shared object. Clones are the same one.
#[derive(Clone)]
pub struct NativePlugin(Arc<Code>);

struct Code {
    bytes: Vec<u8>,
    manifest: Manifest,
    declared: Declared,
    /// The copy that was asked for the manifest, until an instance takes it.
    spare: Mutex<Option<Object>>,
}

impl fmt::Debug for NativePlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NativePlugin").field("name", &self.0.declared.name).finish_non_exhaustive()
    }
}

impl NativePlugin {
    /// Loads an object. Its constructors run, so the caller has decided by [`manifest`](super::manifest) that the object is trusted.
    ///
    /// # Errors
    /// [`ObjectError`] for the first thing that is wrong. All but the version of the code is checked before anything of it runs.
    pub fn new(bytes: &[u8]) -> Result<Self, ObjectError> {
        let stated = manifest_bytes(bytes)?;
        let manifest = Manifest::parse(stated)?;
        let declared = Declared::new(&manifest).map_err(ObjectError::NotGiven)?;
        let object = Object::load(bytes)?;
        let abi = object.abi();
        if abi != ABI_VERSION {
            return Err(ObjectError::WrongAbi(abi));
        }
        if object.manifest().as_deref() != Some(stated) {
            return Err(ObjectError::OtherManifest);
        }
        let (bytes, spare) = (bytes.to_vec(), Mutex::new(Some(object)));
        Ok(Self(Arc::new(Code { bytes, manifest, declared, spare })))
    }

    /// Its manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.0.manifest
    }

    /// What its manifest declares.
    pub(super) fn declared(&self) -> &Declared {
        &self.0.declared
    }

    /// A copy of the object that nobody has used.
    ///
    /// # Errors
    /// What the system refuses.
    pub(super) fn copy(&self) -> Result<Object, ObjectError> {
        let spare = self.0.spare.lock().unwrap_or_else(PoisonError::into_inner).take();
        spare.map_or_else(|| Object::load(&self.0.bytes), Ok)
    }
}
