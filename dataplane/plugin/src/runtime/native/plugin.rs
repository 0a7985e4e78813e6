//! Plugin whose code is a shared object: creates instances from it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::elf::{MAGIC, ObjectError, check, manifest_bytes};
use super::object::Object;
use super::table::HOST;
use crate::Manifest;
use crate::declaration::declared::Declared;

/// Whether the bytes begin with the magic number of an ELF file.
pub fn is_object(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// Shared-object plugin. Clones share the code.
#[derive(Clone)]
pub struct NativePlugin(Arc<Code>);

struct Code {
    bytes: Vec<u8>,
    manifest: Manifest,
    declared: Declared,
    /// Copy of the object that was loaded for the check; the first instance takes it.
    spare: Mutex<Option<Object>>,
}

impl fmt::Debug for NativePlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NativePlugin").field("name", &self.0.declared.name).finish_non_exhaustive()
    }
}

impl NativePlugin {
    /// Loads an object and runs its constructors. The caller must trust the object, and must have checked its
    /// [`manifest`](super::manifest).
    ///
    /// # Errors
    /// [`ObjectError`] for the first problem. Interface version and manifest of the code are checked last,
    /// after the constructors have run.
    pub fn new(bytes: &[u8]) -> Result<Self, ObjectError> {
        let stated = manifest_bytes(bytes)?;
        if check(bytes)?.is_executable() {
            return Err(ObjectError::Executable);
        }
        let manifest = Manifest::parse(stated)?;
        let declared = Declared::new(&manifest).map_err(ObjectError::NotGiven)?;
        let object = Object::load(bytes, &HOST)?;
        object.check(stated)?;
        let (bytes, spare) = (bytes.to_vec(), Mutex::new(Some(object)));
        Ok(Self(Arc::new(Code { bytes, manifest, declared, spare })))
    }

    /// Returns the manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.0.manifest
    }

    /// Returns the declarations of the manifest.
    pub(super) fn declared(&self) -> &Declared {
        &self.0.declared
    }

    /// Returns a loaded copy of the object for a new instance.
    pub(super) fn copy(&self) -> Result<Object, ObjectError> {
        let spare = self.0.spare.lock().unwrap_or_else(PoisonError::into_inner).take();
        spare.map_or_else(|| Object::load(&self.0.bytes, &HOST), Ok)
    }
}
