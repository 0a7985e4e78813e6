//! Loading a copy of a shared object, and calling what it exports.
//!
//! All that is unsafe about it rests on one thing: the object is trusted to be what it says, a plugin of this version of the
//! interface. The router loads it only where its configuration says that shared objects may be.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_void};
use std::fs::File;
use std::io::Write as _;
use std::mem::transmute_copy;
use std::os::fd::AsRawFd as _;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use millrace_plugin_abi::Packets;
use millrace_plugin_abi::binary::{RawCall, RawFlowEnd, export};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::elf::{ATTACH, MANIFEST, ObjectError};
use super::staging::Area;
use super::table::{Granted, HOST, Host, during};
use crate::exchange::Shared;

/// Copies that nobody uses any longer.
static LEFTOVERS: AtomicU64 = AtomicU64::new(0);

/// Copies of shared objects that are still in memory, although their instances are gone: they are never taken out.
pub fn leftovers() -> u64 {
    LEFTOVERS.load(Ordering::Relaxed)
}

/// A copy of a shared object, which knows the functions of the router. Its code and variables stay for as long as the process.
#[derive(Debug)]
pub(super) struct Object {
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
    /// Loads a copy of an object that was checked, and hands it the functions of the router. Its constructors run.
    ///
    /// # Errors
    /// What the system refuses; functions that are missing.
    pub fn load(bytes: &[u8]) -> Result<Self, ObjectError> {
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
        // SAFETY: the type of the interface; the table stays.
        unsafe { attach(&HOST) };
        Ok(object)
    }

    /// Its manifest, JSON; `None` when it hands over nothing.
    pub fn manifest(&self) -> Option<Vec<u8>> {
        // SAFETY: the type of the interface.
        let text = NonNull::new(unsafe { (self.manifest)() }.cast_mut())?;
        // SAFETY: a text that ends with a zero, by the interface, and that stays.
        Some(unsafe { CStr::from_ptr(text.as_ptr()) }.to_bytes().to_vec())
    }

    /// The version of the interface that it was built for.
    pub fn abi(&self) -> u32 {
        // SAFETY: the type of the interface.
        unsafe { (self.abi)() }
    }

    /// Has it begin with settings.
    pub fn init(&self, settings: &[u8]) -> i32 {
        // SAFETY: the type of the interface; there are as many bytes.
        unsafe { (self.init)(settings.as_ptr(), settings.len()) }
    }

    /// Runs it on all packets of a started call.
    pub fn handle(&self, shared: &Shared, area: &mut Area, granted: Granted, packets: &mut Packets<'_>) {
        while shared.with(|exchange| area.stage(exchange, packets)) {
            let call = area.call();
            shared.lend(packets, || {
                // SAFETY: `area` has just been staged: windows and states are parts of packets and blocks of flows that `packets`
                // lends exclusively, and nobody takes them away during the call: functions of the router change a packet
                // without moving its bytes. Descriptions are the area's, which `during` holds exclusively.
                during(shared, area, granted, || unsafe { self.packets(call) });
            });
            shared.with(|exchange| area.collect(exchange, packets));
        }
    }

    /// Has it handle packets.
    ///
    /// # Safety
    /// The call, and the descriptions, windows and states that it leads to, stand where they say until this returns, may be
    /// written, and nobody else uses them meanwhile.
    unsafe fn packets(&self, call: *mut RawCall) {
        // SAFETY: the type of the interface; the rest is the caller's promise.
        unsafe { (self.packets)(call) };
    }

    /// Sends a control message; `None` when it takes none.
    pub fn control(&self, name: &str, arguments: &[u8]) -> Option<i32> {
        let control = self.control?;
        // SAFETY: the type of the interface; there are as many bytes.
        Some(unsafe { control(name.as_ptr(), name.len(), arguments.as_ptr(), arguments.len()) })
    }

    /// Has it do what it does from time to time.
    pub fn periodic(&self, now: u64) {
        if let Some(periodic) = self.periodic {
            // SAFETY: the type of the interface.
            unsafe { periodic(now) };
        }
    }

    /// Hands it a message of its other half.
    pub fn message(&self, bytes: &[u8]) {
        if let Some(message) = self.message {
            // SAFETY: the type of the interface; there are as many bytes.
            unsafe { message(bytes.as_ptr(), bytes.len()) };
        }
    }

    /// Whether it wants to know of flows that end.
    pub fn hears_flow_ends(&self) -> bool {
        self.flow_ended.is_some()
    }

    /// Tells it that a flow has ended, with the state that was kept for it.
    pub fn flow_ended(&self, mut flow: RawFlowEnd, state: &mut [u64]) {
        let Some(flow_ended) = self.flow_ended else { return };
        flow.state = if state.is_empty() { 0 } else { state.as_mut_ptr() as u64 };
        // SAFETY: the type of the interface; the state is the caller's alone, and stands there until this returns.
        unsafe { flow_ended(&raw const flow) };
    }

    /// Whether it can hand over what it knows.
    pub fn saves(&self) -> bool {
        self.save.is_some()
    }

    /// Has it hand over what it knows; `None` when it can't.
    pub fn save(&self) -> Option<i32> {
        // SAFETY: the type of the interface.
        self.save.map(|save| unsafe { save() })
    }

    /// Has it take over what was saved under a version; `None` when it can't.
    pub fn restore(&self, state: &[u8], version: u32) -> Option<i32> {
        // SAFETY: the type of the interface; there are as many bytes.
        self.restore.map(|restore| unsafe { restore(state.as_ptr(), state.len(), version) })
    }
}

/// A file in memory with these bytes, that nobody can change any more.
fn sealed(bytes: &[u8]) -> Result<File, ObjectError> {
    let failed = |what: &str, error: &dyn std::fmt::Display| ObjectError::Load(format!("{what}: {error}"));
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let memory = memfd_create(c"millrace-plugin", flags).map_err(|error| failed("memory for it", &error))?;
    let mut file = File::from(memory);
    file.write_all(bytes).map_err(|error| failed("memory for it", &error))?;
    let seals =
        SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_SEAL;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).map_err(|error| failed("sealing it", &error))?;
    Ok(file)
}

/// A path to an open file that was never used before. The loader takes a path that it knows for the object that it loaded
/// under it, even when another file stands there by now, and numbers of files are used again; so the path spells a number
/// that is not, in doubled slashes (0) and dots (1).
fn path_to(file: &File) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let digits = (0..u64::BITS - number.leading_zeros()).map(|bit| match number >> bit & 1 {
        0 => "/",
        _ => "/.",
    });
    format!("/proc/self/fd{}/{}", digits.collect::<String>(), file.as_raw_fd())
}

/// What the loader calls an object. It is not closed.
struct Library(NonNull<c_void>);

impl Library {
    fn open(file: &File) -> Result<Self, ObjectError> {
        let path = CString::new(path_to(file)).map_err(|error| ObjectError::Load(error.to_string()))?;
        // SAFETY: the path is a text that ends with a zero. Constructors of the object run, which is trusted.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        NonNull::new(handle).map(Self).ok_or_else(|| ObjectError::Load(last_error(&path)))
    }

    /// The function of a name; `None` where there is none. `F` is its type by the interface.
    fn function<F: Copy>(&self, name: &str) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let name = CString::new(name).ok()?;
        // SAFETY: the handle is open, and the name ends with a zero.
        let address = NonNull::new(unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) })?;
        // SAFETY: a function of this name has the type of the interface; a pointer to it is as large as one to data.
        Some(unsafe { transmute_copy(&address) })
    }

    fn required<F: Copy>(&self, name: &'static str) -> Result<F, ObjectError> {
        self.function(name).ok_or(ObjectError::MissingExport(name))
    }
}

/// Why the loader refused the object at a path, without the path, which says nothing to anybody.
fn last_error(path: &CStr) -> String {
    // SAFETY: the text is the thread's own until it calls the loader again.
    let text = NonNull::new(unsafe { libc::dlerror() });
    // SAFETY: as above; it ends with a zero.
    let text = text.map(|text| unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned());
    let text = text.unwrap_or_else(|| "the system gives no reason".to_owned());
    text.replace(&format!("{}: ", path.to_string_lossy()), "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_is_used_twice_and_each_leads_to_the_file() {
        let file = sealed(b"some bytes").unwrap();
        let paths: std::collections::HashSet<_> = (0..300).map(|_| path_to(&file)).collect();
        assert_eq!(paths.len(), 300);
        assert!(paths.iter().all(|path| std::fs::read(path).unwrap() == b"some bytes"));
    }

    #[test]
    fn what_is_sealed_is_changed_by_nobody() {
        let mut file = sealed(b"some bytes").unwrap();
        assert!(file.write_all(b"more").is_err());
        assert!(file.set_len(4).is_err());
    }

    #[test]
    fn what_the_system_does_not_load_is_refused_with_its_reason() {
        let error = Object::load(b"no object").unwrap_err().to_string();
        assert!(
            error.starts_with("the shared object can't be loaded: ") && !error.contains("/proc"),
            "{error}"
        );
    }
}
