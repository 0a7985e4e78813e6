//! Loads a copy of a shared object and calls its exports.
//!
//! All unsafe code here assumes that the object really is a plugin of this interface version. The router
//! loads objects only if its configuration allows shared objects.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_void};
use std::fs::File;
use std::io::Write as _;
use std::mem::transmute_copy;
use std::os::fd::AsRawFd as _;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use millrace_plugin_abi::Packets;
use millrace_plugin_abi::binary::{ABI_VERSION, RawCall, RawFlowEnd, export};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::elf::{ATTACH, MANIFEST, ObjectError};
use super::staging::Area;
use super::table::{Granted, Host, during};
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
pub(in crate::runtime) struct Object {
    manifest: unsafe extern "C" fn() -> *const c_char,
    abi: unsafe extern "C" fn() -> u32,
    init: unsafe extern "C" fn(*const u8, usize) -> i32,
    packets: unsafe extern "C" fn(*mut RawCall),
    control: Option<unsafe extern "C" fn(*const u8, usize, *const u8, usize) -> i32>,
    periodic: Option<unsafe extern "C" fn(u64)>,
    flow_ended: Option<unsafe extern "C" fn(*const RawFlowEnd)>,
    save: Option<unsafe extern "C" fn() -> i32>,
    restore: Option<unsafe extern "C" fn(*const u8, usize, u32) -> i32>,
    message: Option<unsafe extern "C" fn(*const u8, usize)>,
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
        let library = Library::open(&sealed(bytes)?)?;
        let attach = library.required::<unsafe extern "C" fn(&'static Host)>(ATTACH)?;
        let object = Self {
            manifest: library.required(MANIFEST)?,
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
        // SAFETY: `attach` has the type of the interface; the table is static.
        unsafe { attach(host) };
        Ok(object)
    }

    /// Returns the plugin's manifest as JSON; `None` if the plugin returns a null pointer.
    fn manifest(&self) -> Option<Vec<u8>> {
        // SAFETY: the function has the type of the interface.
        let text = NonNull::new(unsafe { (self.manifest)() }.cast_mut())?;
        // SAFETY: by the interface, the text ends with a zero and stays in place.
        Some(unsafe { CStr::from_ptr(text.as_ptr()) }.to_bytes().to_vec())
    }

    /// Returns the interface version that the object was built for.
    fn abi(&self) -> u32 {
        // SAFETY: the function has the type of the interface.
        unsafe { (self.abi)() }
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

    /// Initializes the plugin with its settings.
    pub fn init(&self, settings: &[u8]) -> i32 {
        // SAFETY: the function has the type of the interface; pointer and length describe `settings`.
        unsafe { (self.init)(settings.as_ptr(), settings.len()) }
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

    /// Calls the packet handler of the plugin.
    ///
    /// # Safety
    /// The call, and the descriptions, windows and states that it points to, must be valid and writable until
    /// this function returns. Nobody else may use them meanwhile.
    pub unsafe fn packets(&self, call: *mut RawCall) {
        // SAFETY: the function has the type of the interface; the caller guarantees the rest.
        unsafe { (self.packets)(call) };
    }

    /// Sends a control message. Returns the result of the plugin's function; `None` if the plugin takes no
    /// messages.
    pub fn control(&self, name: &str, arguments: &[u8]) -> Option<i32> {
        let control = self.control?;
        // SAFETY: the function has the type of the interface; pointers and lengths describe `name` and
        // `arguments`.
        Some(unsafe { control(name.as_ptr(), name.len(), arguments.as_ptr(), arguments.len()) })
    }

    /// Calls the periodic handler of the plugin.
    pub fn periodic(&self, now: u64) {
        if let Some(periodic) = self.periodic {
            // SAFETY: the function has the type of the interface.
            unsafe { periodic(now) };
        }
    }

    /// Passes a message from the host companion to the plugin.
    pub fn message(&self, bytes: &[u8]) {
        if let Some(message) = self.message {
            // SAFETY: the function has the type of the interface; pointer and length describe `bytes`.
            unsafe { message(bytes.as_ptr(), bytes.len()) };
        }
    }

    /// Whether the plugin exports a handler for ends of flows.
    pub fn hears_flow_ends(&self) -> bool {
        self.flow_ended.is_some()
    }

    /// Notifies the plugin that a flow has ended, with the state that the plugin kept for the flow.
    pub fn flow_ended(&self, mut flow: RawFlowEnd, state: &mut [u64]) {
        let Some(flow_ended) = self.flow_ended else { return };
        flow.state = if state.is_empty() { 0 } else { state.as_mut_ptr() as u64 };
        // SAFETY: the function has the type of the interface; the state belongs to the caller alone and stays
        // in place until this returns.
        unsafe { flow_ended(&raw const flow) };
    }

    /// Whether the plugin can save its state.
    pub fn saves(&self) -> bool {
        self.save.is_some()
    }

    /// Requests the plugin's state. Returns the result of the plugin's function; `None` if the plugin can't
    /// save its state.
    pub fn save(&self) -> Option<i32> {
        // SAFETY: the function has the type of the interface.
        self.save.map(|save| unsafe { save() })
    }

    /// Restores a state that was saved under a version of the state format. Returns the result of the
    /// plugin's function; `None` if the plugin can't restore state.
    pub fn restore(&self, state: &[u8], version: u32) -> Option<i32> {
        // SAFETY: the function has the type of the interface; pointer and length describe `state`.
        self.restore.map(|restore| unsafe { restore(state.as_ptr(), state.len(), version) })
    }
}

/// Returns a memory file with these bytes, sealed against any change.
pub(in crate::runtime) fn sealed(bytes: &[u8]) -> Result<File, ObjectError> {
    let failed = |what: &str, error: &dyn std::fmt::Display| ObjectError::Load(format!("{what}: {error}"));
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let memory =
        memfd_create(c"millrace-plugin", flags).map_err(|error| failed("allocating memory", &error))?;
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
