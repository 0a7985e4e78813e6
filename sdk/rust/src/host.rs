//! Host functions: functions of the router that a plugin can call.
//!
//! Most functions need a capability, which the function's comment names and the plugin's manifest must
//! request. If a WebAssembly module lacks the capability, the router refuses to link the module. If a shared
//! object lacks it, the function does nothing, and the call is a fault.

use alloc::string::String;

use millrace_plugin_abi::binary::RawBacklog;

/// Severity of a log line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Level {
    /// Failure.
    Error = 0,
    /// Possible problem.
    Warning = 1,
    /// Normal event.
    Information = 2,
    /// Details for debugging.
    Debug = 3,
}

/// Writes a line to the daemon's log, up to 10 lines per second. Capability `log`. The macro
/// [`log!`](crate::log) also formats arguments.
pub fn log(level: Level, text: &str) {
    raw::log(level as u32, text.as_ptr(), text.len());
}

/// Formats a line and writes it to the daemon's log, as in `log!(Warning, "{count} are too many")`.
/// Capability `log`. Formatting adds about 10 KB to the module.
#[macro_export]
macro_rules! log {
    ($level:ident, $($text:tt)+) => {
        $crate::host::log($crate::Level::$level, &$crate::__format!($($text)+))
    };
}

/// Requests one call of [`Plugin::periodic`](crate::Plugin::periodic) after `nanoseconds` nanoseconds.
/// Capability `timer`.
pub fn timer(nanoseconds: u64) {
    raw::timer(nanoseconds);
}

/// Adds `number` to the counter at index `counter` of the manifest's `counters`. `millrace show instances`
/// shows the sum over all workers.
pub fn count(counter: u32, number: u64) {
    raw::count(counter, number);
}

/// Requests a change of filters, routes, queues or instances, as JSON. Returns whether the router accepted
/// the request; the change takes place later. Capability `request` for all kinds of change, or one such as
/// `request-routes` for a single kind.
#[must_use]
pub fn request(json: &str) -> bool {
    raw::request(json.as_ptr(), json.len()) == 0
}

/// Sends a message of up to 16 KiB: from an instance at a worker to the host companion, or from the host
/// companion to the instances. Returns whether the router accepted the message. An accepted message may still
/// be lost if too many messages wait. Capability `message`.
#[must_use]
pub fn send(message: &[u8]) -> bool {
    raw::send(message.as_ptr(), message.len()) == 0
}

/// Creates a packet. `bytes` begin with the network header. The router forwards the packet as if it had
/// arrived at `port`. Returns `false` if the router doesn't take the packet. Capability `packet-make`.
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

/// Returns the address of the service state; null if the manifest declares none (`service_state`).
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

/// Decodes UTF-8 from the router. Replaces invalid bytes by U+FFFD.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Functions that a WebAssembly module imports.
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

/// Function table that the router passes to a shared object. If the plugin lacks the capability for a
/// function, the function's entry is null, or the function does nothing.
#[cfg(not(target_family = "wasm"))]
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RawHost {
    /// Size of this structure in bytes.
    pub size: u64,
    /// Reports an error text. `docs/plugin-abi.md` describes this and all other functions.
    pub fail: Option<extern "C" fn(*const u8, usize)>,
    /// Reports the reply to a control message, or the saved state.
    pub reply: Option<extern "C" fn(*const u8, usize)>,
    /// Logs a line.
    pub log: Option<extern "C" fn(u32, *const u8, usize)>,
    /// Reads bytes of a packet.
    pub packet_read: Option<extern "C" fn(u32, u32, *mut u8, usize) -> u32>,
    /// Writes bytes to a packet.
    pub packet_write: Option<extern "C" fn(u32, u32, *const u8, usize) -> u32>,
    /// Adds or removes bytes at the front of a packet.
    pub packet_resize: Option<extern "C" fn(u32, i32) -> i32>,
    /// Creates a packet.
    pub packet_make: Option<extern "C" fn(*const u8, usize, u32) -> i32>,
    /// Reads the backlog of a packet.
    pub flow_backlog: Option<extern "C" fn(u32, *mut RawBacklog, usize) -> u32>,
    /// Requests a call of `periodic` after a time.
    pub timer: Option<extern "C" fn(u64)>,
    /// Requests a change of the configuration.
    pub request: Option<extern "C" fn(*const u8, usize) -> i32>,
    /// Returns the address of the service state.
    pub service_state: Option<extern "C" fn() -> *mut u8>,
    /// Reads the value of a key.
    pub map_get: Option<extern "C" fn(u32, *const u8, usize, *mut u8, usize) -> i32>,
    /// Sets the value of a key.
    pub map_set: Option<extern "C" fn(u32, *const u8, usize, *const u8, usize) -> i32>,
    /// Removes a key.
    pub map_remove: Option<extern "C" fn(u32, *const u8, usize) -> i32>,
    /// Sends a message to the other part of the plugin.
    pub send: Option<extern "C" fn(*const u8, usize) -> i32>,
    /// Adds to a counter.
    pub count: Option<extern "C" fn(u32, u64)>,
}

/// Functions for a shared object: they call the router's table. Without a table they do nothing.
#[cfg(not(target_family = "wasm"))]
pub(crate) mod raw {
    use core::ptr;
    use core::sync::atomic::{AtomicPtr, Ordering};

    use super::{RawBacklog, RawHost};

    static TABLE: AtomicPtr<RawHost> = AtomicPtr::new(ptr::null_mut());

    /// Stores the address of the router's table. The table stays valid as long as the plugin is loaded.
    pub fn attach(table: *const RawHost) {
        TABLE.store(table.cast_mut(), Ordering::Release);
    }

    /// Returns the table's entry at a byte offset. Returns `None` if there is no table, or if the table is
    /// that of an older router and lacks the entry.
    fn entry<F: Copy>(offset: usize) -> Option<F> {
        let table = TABLE.load(Ordering::Acquire);
        // SAFETY: `attach` received a table that stays valid and begins with its size.
        if table.is_null() || unsafe { (*table).size } < (offset + size_of::<F>()) as u64 {
            return None;
        }
        // SAFETY: the table covers the entry, and `functions` names the entry's type.
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
