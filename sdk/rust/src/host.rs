//! The router's functions. Each names the capability that the manifest must list; without it a WebAssembly module is not
//! linked, and in a shared object the function does nothing, which counts as a fault.

use alloc::string::String;

use millrace_plugin_abi::binary::RawBacklog;

/// How important a line of the log is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Level {
    /// Something failed.
    Error = 0,
    /// Something may be wrong.
    Warning = 1,
    /// Something happened.
    Information = 2,
    /// For who looks for a fault.
    Debug = 3,
}

/// A line of the daemon's log; at most 10 a second get through. Capability `log`. [`log!`](crate::log) formats.
pub fn log(level: Level, text: &str) {
    raw::log(level as u32, text.as_ptr(), text.len());
}

/// Writes a line to the daemon's log: `log!(Warning, "{count} are too many")`. Capability `log`. Formatting costs about
/// 10 KB of a module.
#[macro_export]
macro_rules! log {
    ($level:ident, $($text:tt)+) => {
        $crate::host::log($crate::Level::$level, &$crate::__format!($($text)+))
    };
}

/// Calls [`Plugin::periodic`](crate::Plugin::periodic) once, so many nanoseconds from now. Capability `timer`.
pub fn timer(nanoseconds: u64) {
    raw::timer(nanoseconds);
}

/// Adds to one of the manifest's `counters`, by its place there. `millrace show instances` has their sums over all workers.
pub fn count(counter: u32, number: u64) {
    raw::count(counter, number);
}

/// Asks for a change of filters, routes, queues or instances, as JSON; control makes it later. Returns whether it was
/// accepted. Capability `request`, or that of its kind alone, as `request-routes`.
#[must_use]
pub fn request(json: &str) -> bool {
    raw::request(json.as_ptr(), json.len()) == 0
}

/// A message of up to 16 KiB to the other half of the plugin. Returns whether it was taken; it may still be lost on its way, where
/// too many wait. Capability `message`.
#[must_use]
pub fn send(message: &[u8]) -> bool {
    raw::send(message.as_ptr(), message.len()) == 0
}

/// A packet of the plugin's own, from the network header on, forwarded as if it came in by the port. Returns whether there
/// was packet memory. Capability `packet-make`.
#[must_use]
pub fn packet_make(bytes: &[u8], port: u16) -> bool {
    raw::packet_make(bytes.as_ptr(), bytes.len(), port.into()) == 0
}

pub(crate) fn packet_read(packet: u16, offset: u32, to: &mut [u8]) -> usize {
    (raw::packet_read(packet.into(), offset, to.as_mut_ptr(), to.len()) as usize).min(to.len())
}

pub(crate) fn packet_write(packet: u16, offset: u32, from: &[u8]) -> usize {
    (raw::packet_write(packet.into(), offset, from.as_ptr(), from.len()) as usize).min(from.len())
}

pub(crate) fn packet_resize(packet: u16, bytes: i32) -> bool {
    raw::packet_resize(packet.into(), bytes) == 0
}

pub(crate) fn flow_backlog(packet: u16) -> Option<RawBacklog> {
    let mut backlog = RawBacklog::default();
    let written = raw::flow_backlog(packet.into(), &raw mut backlog, size_of::<RawBacklog>());
    (written > 0).then_some(backlog)
}

/// Where the state that is common to all flows stands, with as many bytes as the manifest says; null where it says nothing.
pub(crate) fn service_state() -> *mut u8 {
    raw::service_state()
}

pub(crate) fn map_get(map: u32, key: &[u8], value: &mut [u8]) -> i32 {
    raw::map_get(map, key.as_ptr(), key.len(), value.as_mut_ptr(), value.len())
}

pub(crate) fn map_set(map: u32, key: &[u8], value: &[u8]) -> i32 {
    raw::map_set(map, key.as_ptr(), key.len(), value.as_ptr(), value.len())
}

pub(crate) fn map_remove(map: u32, key: &[u8]) -> i32 {
    raw::map_remove(map, key.as_ptr(), key.len())
}

pub(crate) fn fail(text: &str) {
    raw::fail(text.as_ptr(), text.len());
}

pub(crate) fn reply(bytes: &[u8]) {
    raw::reply(bytes.as_ptr(), bytes.len());
}

/// The text of bytes that the router hands over, which is UTF-8; what isn't is replaced.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The functions as a WebAssembly module imports them.
#[cfg(target_family = "wasm")]
mod raw {
    #[link(wasm_import_module = "millrace")]
    unsafe extern "C" {
        pub safe fn fail(text: *const u8, bytes: usize);
        pub safe fn reply(bytes: *const u8, length: usize);
        pub safe fn log(level: u32, text: *const u8, bytes: usize);
        pub safe fn packet_read(packet: u32, offset: u32, to: *mut u8, bytes: usize) -> u32;
        pub safe fn packet_write(packet: u32, offset: u32, from: *const u8, bytes: usize) -> u32;
        pub safe fn packet_resize(packet: u32, bytes: i32) -> i32;
        pub safe fn packet_make(bytes: *const u8, length: usize, port: u32) -> i32;
        pub safe fn flow_backlog(packet: u32, to: *mut super::RawBacklog, bytes: usize) -> u32;
        pub safe fn timer(nanoseconds: u64);
        pub safe fn service_state() -> *mut u8;
        pub safe fn map_get(map: u32, key: *const u8, bytes: usize, to: *mut u8, room: usize) -> i32;
        pub safe fn map_set(map: u32, key: *const u8, bytes: usize, from: *const u8, length: usize) -> i32;
        pub safe fn map_remove(map: u32, key: *const u8, bytes: usize) -> i32;
        pub safe fn send(bytes: *const u8, length: usize) -> i32;
        pub safe fn request(json: *const u8, bytes: usize) -> i32;
        pub safe fn count(counter: u32, number: u64);
    }
}

/// The table of functions that a shared object is given. A function of a capability that it hasn't is null, or refuses.
#[cfg(not(target_family = "wasm"))]
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RawHost {
    /// Bytes of this structure.
    pub size: u64,
    /// As in `docs/plugin-abi.md`, like those that follow.
    pub fail: Option<extern "C" fn(*const u8, usize)>,
    /// The answer.
    pub reply: Option<extern "C" fn(*const u8, usize)>,
    /// A line of the log.
    pub log: Option<extern "C" fn(u32, *const u8, usize)>,
    /// Bytes of a packet.
    pub packet_read: Option<extern "C" fn(u32, u32, *mut u8, usize) -> u32>,
    /// Bytes to a packet.
    pub packet_write: Option<extern "C" fn(u32, u32, *const u8, usize) -> u32>,
    /// Room at the front.
    pub packet_resize: Option<extern "C" fn(u32, i32) -> i32>,
    /// A packet of the plugin's own.
    pub packet_make: Option<extern "C" fn(*const u8, usize, u32) -> i32>,
    /// What waits before a packet.
    pub flow_backlog: Option<extern "C" fn(u32, *mut RawBacklog, usize) -> u32>,
    /// When `periodic` is called.
    pub timer: Option<extern "C" fn(u64)>,
    /// A change that control makes.
    pub request: Option<extern "C" fn(*const u8, usize) -> i32>,
    /// Where the state that is common to all flows stands.
    pub service_state: Option<extern "C" fn() -> *mut u8>,
    /// The value of a key.
    pub map_get: Option<extern "C" fn(u32, *const u8, usize, *mut u8, usize) -> i32>,
    /// Sets the value of a key.
    pub map_set: Option<extern "C" fn(u32, *const u8, usize, *const u8, usize) -> i32>,
    /// Takes a key out.
    pub map_remove: Option<extern "C" fn(u32, *const u8, usize) -> i32>,
    /// A message to the other half.
    pub send: Option<extern "C" fn(*const u8, usize) -> i32>,
    /// Adds to a counter.
    pub count: Option<extern "C" fn(u32, u64)>,
}

/// The functions as a shared object has them: in a table, or not at all.
#[cfg(not(target_family = "wasm"))]
pub(crate) mod raw {
    use core::ptr;
    use core::sync::atomic::{AtomicPtr, Ordering};

    use super::{RawBacklog, RawHost};

    static TABLE: AtomicPtr<RawHost> = AtomicPtr::new(ptr::null_mut());

    /// Takes the table over, which stays for as long as the plugin is loaded.
    pub fn attach(table: *const RawHost) {
        TABLE.store(table.cast_mut(), Ordering::Release);
    }

    /// What stands in the table at an offset, unless the table has not come yet or is one of an older router, and ends before.
    fn entry<F: Copy>(offset: usize) -> Option<F> {
        let table = TABLE.load(Ordering::Acquire);
        // SAFETY: `attach` was given a table that stays and begins with its size.
        if table.is_null() || unsafe { (*table).size } < (offset + size_of::<F>()) as u64 {
            return None;
        }
        // SAFETY: so far the table goes, and `functions` names the type of what stands there.
        Some(unsafe { table.cast::<u8>().add(offset).cast::<F>().read() })
    }

    macro_rules! functions {
        ($($name:ident($($argument:ident: $kind:ty),*) $(-> $result:ty = $absent:expr)?;)*) => {$(
            pub fn $name($($argument: $kind),*) $(-> $result)? {
                let function: Option<Option<extern "C" fn($($kind),*) $(-> $result)?>> =
                    entry(core::mem::offset_of!(RawHost, $name));
                match function.flatten() {
                    Some(function) => function($($argument),*),
                    None => { $($absent)? }
                }
            }
        )*};
    }
    functions! {
        fail(text: *const u8, bytes: usize);
        reply(bytes: *const u8, length: usize);
        log(level: u32, text: *const u8, bytes: usize);
        packet_read(packet: u32, offset: u32, to: *mut u8, bytes: usize) -> u32 = 0;
        packet_write(packet: u32, offset: u32, from: *const u8, bytes: usize) -> u32 = 0;
        packet_resize(packet: u32, bytes: i32) -> i32 = 1;
        packet_make(bytes: *const u8, length: usize, port: u32) -> i32 = 1;
        flow_backlog(packet: u32, to: *mut RawBacklog, bytes: usize) -> u32 = 0;
        timer(nanoseconds: u64);
        request(json: *const u8, bytes: usize) -> i32 = 1;
        service_state() -> *mut u8 = ptr::null_mut();
        map_get(map: u32, key: *const u8, bytes: usize, to: *mut u8, room: usize) -> i32 = 3;
        map_set(map: u32, key: *const u8, bytes: usize, from: *const u8, length: usize) -> i32 = 3;
        map_remove(map: u32, key: *const u8, bytes: usize) -> i32 = 3;
        send(bytes: *const u8, length: usize) -> i32 = 1;
        count(counter: u32, number: u64);
    }
}
