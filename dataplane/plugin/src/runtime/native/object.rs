//! Loads a copy of a shared object and calls its exports.
//!
//! All unsafe code here assumes that the object really is a plugin of this interface version. The router
//! loads objects only if its configuration allows shared objects.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_void};
use std::fs::File;
use std::io::Write as _;
use std::mem::transmute_copy;
use std::ops::Deref;
use std::os::fd::AsRawFd as _;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use millrace_plugin_abi::Packets;
use millrace_plugin_abi::binary::{ABI_VERSION, export};
use millrace_process::{Exports, Host};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::elf::{ATTACH, MANIFEST, ObjectError};
use super::staging::Area;
use super::table::{Granted, during};
use crate::runtime::exchange::Shared;

/// Number of copies whose instance has ended.
static LEFTOVERS: AtomicU64 = AtomicU64::new(0);

/// Returns the number of loaded copies of shared objects whose instances have ended. Copies are never
/// unloaded.
pub fn leftovers() -> u64 {
    LEFTOVERS.load(Ordering::Relaxed)
}

/// Loaded copy of a shared object, attached to the router's functions. Its code and variables stay until the
/// process ends.
#[derive(Debug)]
pub(in crate::runtime) struct Object(Exports);

impl Deref for Object {
    type Target = Exports;

    fn deref(&self) -> &Exports {
        &self.0
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        LEFTOVERS.fetch_add(1, Ordering::Relaxed);
    }
}

impl Object {
    /// Loads a copy of a checked object, and passes it `host`, the table of the router's functions. The object's
    /// constructors run.
    pub fn load(bytes: &[u8], host: &'static Host) -> Result<Self, ObjectError> {
        let object = Self::load_file(&sealed(bytes)?)?;
        object.attach(host);
        Ok(object)
    }

    /// Loads the checked object in a sealed memory file. The object's constructors run, and none of its functions. The
    /// object needs the table of the router's functions before its first call (`attach`).
    pub fn load_file(file: &File) -> Result<Self, ObjectError> {
        let library = Library::open(file)?;
        let exports = Exports {
            manifest: library.required(MANIFEST)?,
            attach: library.required(ATTACH)?,
            abi: library.required(export::ABI)?,
            init: library.required(export::INIT)?,
            packets: library.required(export::PACKETS)?,
            control: library.function(export::CONTROL),
            periodic: library.function(export::PERIODIC),
            flow_ended: library.function(export::FLOW_ENDED),
            save: library.function(export::SAVE),
            restore: library.function(export::RESTORE),
            message: library.function(export::MESSAGE),
        };
        Ok(Self(exports))
    }

    /// Checks the interface version and the manifest of the loaded code. `stated` is the manifest in the
    /// object's file.
    pub fn check(&self, stated: &[u8]) -> Result<(), ObjectError> {
        let abi = self.abi();
        if abi != ABI_VERSION {
            return Err(ObjectError::WrongAbi(abi));
        }
        match self.manifest().as_deref() == Some(stated) {
            true => Ok(()),
            false => Err(ObjectError::OtherManifest),
        }
    }

    /// Calls the plugin with all packets of a call that has begun.
    pub(in crate::runtime::native) fn handle(
        &self,
        shared: &Shared,
        area: &mut Area,
        granted: Granted,
        packets: &mut Packets<'_>,
    ) {
        while shared.with(|exchange| area.stage(exchange, packets)) {
            let call = area.call();
            shared.lend(packets, || {
                // SAFETY: `area` has just been staged, and `during` holds it exclusively. `packets` lends the
                // bytes of windows and states exclusively; nothing moves these bytes during the call, since
                // the router's functions change packets in place.
                during(shared, area, granted, || unsafe { self.packets(call) });
            });
            shared.with(|exchange| area.collect(exchange, packets));
        }
    }
}

/// Returns a memory file with these bytes, sealed against any change. The file may be executed, also if the
/// system by default refuses that for memory files (`vm.memfd_noexec`).
pub(in crate::runtime) fn sealed(bytes: &[u8]) -> Result<File, ObjectError> {
    let failed = |what: &str, error: &dyn std::fmt::Display| ObjectError::Load(format!("{what}: {error}"));
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let created = memfd_create(c"millrace-plugin", flags | MFdFlags::from_bits_retain(libc::MFD_EXEC));
    let memory = match created {
        // Kernels before 6.3 don't know the flag.
        Err(Errno::EINVAL) => memfd_create(c"millrace-plugin", flags),
        other => other,
    };
    let memory = memory.map_err(|error| failed("allocating memory", &error))?;
    let mut file = File::from(memory);
    file.write_all(bytes).map_err(|error| failed("allocating memory", &error))?;
    let seals =
        SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_SEAL;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).map_err(|error| failed("sealing its memory", &error))?;
    Ok(file)
}

/// Returns a path to an open file; each call returns another path.
///
/// The loader identifies a loaded object by its path, even if that path leads to another file by now. Since
/// the system reuses file descriptors, the path also encodes a unique number: each binary digit as `/` (0) or
/// `/.` (1).
fn path_to(file: &File) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let digits = (0..u64::BITS - number.leading_zeros()).map(|bit| match number >> bit & 1 {
        0 => "/",
        _ => "/.",
    });
    format!("/proc/self/fd{}/{}", digits.collect::<String>(), file.as_raw_fd())
}

/// Handle of a loaded object. The handle is never closed.
struct Library(NonNull<c_void>);

impl Library {
    fn open(file: &File) -> Result<Self, ObjectError> {
        let path = CString::new(path_to(file)).map_err(|error| ObjectError::Load(error.to_string()))?;
        // SAFETY: the path ends with a zero. The constructors of the object run; the object is trusted.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        NonNull::new(handle).map(Self).ok_or_else(|| ObjectError::Load(last_error(&path)))
    }

    /// Returns the exported function `name`; `None` if the object lacks it. `F` is the function's type by the
    /// interface.
    fn function<F: Copy>(&self, name: &str) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let name = CString::new(name).ok()?;
        // SAFETY: the handle is open, and the name ends with a zero.
        let address = NonNull::new(unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) })?;
        // SAFETY: a function of this name has the type of the interface; function and data pointers have the
        // same size.
        Some(unsafe { transmute_copy(&address) })
    }

    fn required<F: Copy>(&self, name: &'static str) -> Result<F, ObjectError> {
        self.function(name).ok_or(ObjectError::MissingExport(name))
    }
}

/// Returns the loader's error text, without the path of the memory file, which means nothing to users.
fn last_error(path: &CStr) -> String {
    // SAFETY: the text belongs to the thread until it calls the loader again.
    let text = NonNull::new(unsafe { libc::dlerror() });
    // SAFETY: as above; the text ends with a zero.
    let text = text.map(|text| unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned());
    let text = text.unwrap_or_else(|| "the dynamic loader gives no reason".to_owned());
    text.replace(&format!("{}: ", path.to_string_lossy()), "")
}

#[cfg(test)]
mod tests {
    use super::super::table::HOST;
    use super::*;

    #[test]
    fn no_path_is_used_twice_and_each_leads_to_the_file() {
        let file = sealed(b"some bytes").unwrap();
        let paths: std::collections::HashSet<_> = (0..300).map(|_| path_to(&file)).collect();
        assert_eq!(paths.len(), 300);
        assert!(paths.iter().all(|path| std::fs::read(path).unwrap() == b"some bytes"));
    }

    #[test]
    fn sealed_file_cannot_be_changed() {
        let mut file = sealed(b"some bytes").unwrap();
        assert!(file.write_all(b"more").is_err());
        assert!(file.set_len(4).is_err());
    }

    #[test]
    fn object_refused_by_the_loader_is_refused_with_its_reason() {
        let error = Object::load(b"no object", &HOST).unwrap_err().to_string();
        assert!(
            error.starts_with("the shared object can't be loaded: ") && !error.contains("/proc"),
            "{error}"
        );
    }
}
