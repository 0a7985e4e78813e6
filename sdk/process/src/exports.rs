//! Functions of a plugin by which the router calls it.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use millrace_plugin_abi::binary::{RawCall, RawFlowEnd};

use crate::Host;

/// Functions that a plugin exports, of a shared object or in an executable. `docs/plugin-abi.md` describes them.
///
/// The methods assume that the functions keep the rules of that interface, which whoever makes the value
/// guarantees.
#[derive(Clone, Copy, Debug)]
pub struct Exports {
    /// `millrace_manifest`.
    pub manifest: unsafe extern "C" fn() -> *const u8,
    /// `millrace_attach`.
    pub attach: unsafe extern "C" fn(*const c_void),
    /// `millrace_abi`.
    pub abi: unsafe extern "C" fn() -> u32,
    /// `millrace_init`.
    pub init: unsafe extern "C" fn(*const u8, usize) -> i32,
    /// `millrace_packets`.
    pub packets: unsafe extern "C" fn(*const RawCall),
    /// `millrace_control`.
    pub control: Option<unsafe extern "C" fn(*const u8, usize, *const u8, usize) -> i32>,
    /// `millrace_periodic`.
    pub periodic: Option<unsafe extern "C" fn(u64)>,
    /// `millrace_flow_ended`.
    pub flow_ended: Option<unsafe extern "C" fn(*const RawFlowEnd)>,
    /// `millrace_save`.
    pub save: Option<unsafe extern "C" fn() -> i32>,
    /// `millrace_restore`.
    pub restore: Option<unsafe extern "C" fn(*const u8, usize, u32) -> i32>,
    /// `millrace_message`.
    pub message: Option<unsafe extern "C" fn(*const u8, usize)>,
}

impl Exports {
    /// Returns the exports of a plugin that has only the mandatory functions.
    #[must_use]
    pub const fn new(
        manifest: unsafe extern "C" fn() -> *const u8,
        attach: unsafe extern "C" fn(*const c_void),
        abi: unsafe extern "C" fn() -> u32,
        init: unsafe extern "C" fn(*const u8, usize) -> i32,
        packets: unsafe extern "C" fn(*const RawCall),
    ) -> Self {
        let (control, periodic, flow_ended, save, restore, message) = (None, None, None, None, None, None);
        Self { manifest, attach, abi, init, packets, control, periodic, flow_ended, save, restore, message }
    }

    /// Passes the plugin the table of the router's functions.
    pub fn attach(&self, host: &'static Host) {
        // SAFETY: `attach` has the type of the interface; the table is static.
        unsafe { (self.attach)((&raw const *host).cast()) };
    }

    /// Returns the plugin's manifest as JSON; `None` if the plugin returns a null pointer.
    #[must_use]
    pub fn manifest(&self) -> Option<Vec<u8>> {
        // SAFETY: the function has the type of the interface.
        let text = NonNull::new(unsafe { (self.manifest)() }.cast_mut())?;
        // SAFETY: by the interface, the text ends with a zero and stays in place.
        Some(unsafe { CStr::from_ptr(text.as_ptr().cast()) }.to_bytes().to_vec())
    }

    /// Returns the interface version that the plugin was built for.
    #[must_use]
    pub fn abi(&self) -> u32 {
        // SAFETY: the function has the type of the interface.
        unsafe { (self.abi)() }
    }

    /// Initializes the plugin with its settings. Returns the number that the plugin returns.
    #[must_use]
    pub fn init(&self, settings: &[u8]) -> i32 {
        // SAFETY: the function has the type of the interface; pointer and length describe `settings`.
        unsafe { (self.init)(settings.as_ptr(), settings.len()) }
    }

    /// Calls the packet handler of the plugin.
    ///
    /// # Safety
    /// The call, and the descriptions, windows and states that it points to, must be valid and writable until
    /// this function returns. Nobody else may use them meanwhile.
    pub unsafe fn packets(&self, call: *const RawCall) {
        // SAFETY: the function has the type of the interface; the caller guarantees the rest.
        unsafe { (self.packets)(call) };
    }

    /// Sends a control message. Returns the result of the plugin's function; `None` if the plugin takes no
    /// messages.
    #[must_use]
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
    #[must_use]
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
    #[must_use]
    pub fn saves(&self) -> bool {
        self.save.is_some()
    }

    /// Requests the plugin's state. Returns the result of the plugin's function; `None` if the plugin can't
    /// save its state.
    #[must_use]
    pub fn save(&self) -> Option<i32> {
        // SAFETY: the function has the type of the interface.
        self.save.map(|save| unsafe { save() })
    }

    /// Restores a state that was saved under a version of the state format. Returns the result of the
    /// plugin's function; `None` if the plugin can't restore state.
    #[must_use]
    pub fn restore(&self, state: &[u8], version: u32) -> Option<i32> {
        // SAFETY: the function has the type of the interface; pointer and length describe `state`.
        self.restore.map(|restore| unsafe { restore(state.as_ptr(), state.len(), version) })
    }
}
