//! Glue: functions that the module exports call these functions, which call the [`Plugin`]. A panic never
//! leaves these functions.

use alloc::alloc::{alloc, dealloc};
use core::alloc::Layout;
use core::cell::UnsafeCell;
use core::{ptr, slice};

use millrace_plugin_abi::binary::{RawCall, RawFlowEnd, RawPacket};

use crate::{Declared, FlowEnd, Packets, Plugin, Refusal, host};

/// Storage for the only instance in a module. It is empty before `init` and after a panic.
pub struct Slot<P>(UnsafeCell<Option<P>>);

// SAFETY: the router never calls from two threads at once, and never begins a call during another call
// (`docs/plugin-abi.md`). Calls may come from different threads one after another, which is allowed because
// the plugin is `Send`.
unsafe impl<P: Send> Sync for Slot<P> {}

impl<P> Slot<P> {
    /// Creates an empty slot.
    #[must_use]
    pub const fn new() -> Self {
        Self(UnsafeCell::new(None))
    }

    /// # Safety
    /// The caller must hold no other reference returned by this function.
    #[allow(clippy::mut_from_ref, reason = "the interface says that there is one caller at a time")]
    unsafe fn get(&self) -> &mut Option<P> {
        // SAFETY: the caller guarantees it.
        unsafe { &mut *self.0.get() }
    }
}

impl<P> Default for Slot<P> {
    fn default() -> Self {
        Self::new()
    }
}

/// # Safety
/// `length` bytes must be readable at the address for `'a`. With a length of 0 the address is not read.
unsafe fn bytes<'a>((address, length): (*const u8, usize)) -> &'a [u8] {
    if length == 0 || address.is_null() {
        return &[];
    }
    // SAFETY: the caller guarantees it.
    unsafe { slice::from_raw_parts(address, length) }
}

/// Runs a function of the plugin. In WebAssembly, a panic is a trap, so no guard is needed.
#[cfg(target_family = "wasm")]
fn guarded<T>(run: impl FnOnce() -> Result<T, Refusal>) -> Result<T, Refusal> {
    run()
}

/// Runs a function of the plugin. Converts a panic into a refusal with the panic's text.
#[cfg(not(target_family = "wasm"))]
fn guarded<T>(run: impl FnOnce() -> Result<T, Refusal>) -> Result<T, Refusal> {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    // A panic may leave data half-changed. Nothing uses this data again, because `with` leaves the slot
    // empty.
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<alloc::string::String>().map(|text| &**text));
        Err(Refusal(["the plugin panicked: ", text.unwrap_or("")].concat()))
    })
}

/// Runs `run` with the plugin. A panic discards the plugin.
fn with<P: Plugin, T>(
    slot: &mut Option<P>,
    run: impl FnOnce(&mut P) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let Some(mut plugin) = slot.take() else {
        return Err("the plugin has not started, or has panicked; create a new instance".into());
    };
    let (plugin, result) = guarded(move || {
        let result = run(&mut plugin);
        Ok((plugin, result))
    })?;
    *slot = Some(plugin);
    result
}

/// Returns 0 for success. For a refusal, reports its text to the router and returns 1.
fn answer(result: Result<(), Refusal>) -> i32 {
    match result {
        Ok(()) => 0,
        Err(Refusal(text)) => {
            host::fail(&text);
            1
        }
    }
}

/// Returns the layout of a block of `bytes` bytes, aligned to 8 bytes.
fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes.max(1), 8).ok()
}

#[must_use]
pub fn reserve(bytes: usize) -> *mut u8 {
    let Some(layout) = layout(bytes) else { return ptr::null_mut() };
    // SAFETY: the layout is not empty.
    unsafe { alloc(layout) }
}

/// # Safety
/// [`reserve`] must have returned `address` for the same number of bytes. The memory must not be used
/// afterwards.
pub unsafe fn release(address: *mut u8, bytes: usize) {
    if let Some(layout) = layout(bytes)
        && !address.is_null()
    {
        // SAFETY: the caller guarantees it.
        unsafe { dealloc(address, layout) }
    }
}

#[cfg(not(target_family = "wasm"))]
pub fn attach(table: *const core::ffi::c_void) {
    host::raw::attach(table.cast());
}

/// # Safety
/// Only one call may run at a time, and each address must be readable for the given length.
pub unsafe fn init<P: Plugin>(slot: &Slot<P>, settings: *const u8, length: usize) -> i32 {
    // SAFETY: the caller guarantees it.
    let (slot, settings) = unsafe { (slot.get(), bytes((settings, length))) };
    answer(guarded(|| P::init(settings)).map(|plugin| *slot = Some(plugin)))
}

/// # Safety
/// Conditions of [`init`]. The call, its packets, their windows and their flow states must be valid, and only
/// this call may use them.
pub unsafe fn packets<P: Declared>(slot: &Slot<P>, call: *const RawCall) {
    // SAFETY: the caller guarantees it.
    let (slot, call) = unsafe { (slot.get(), &*call) };
    let result = with(slot, |plugin| {
        // SAFETY: the caller guarantees it.
        plugin.packets(&mut unsafe { Packets::new(call, P::FLOW_STATE) }, call.now);
        Ok(())
    });
    if answer(result) != 0 {
        // SAFETY: the caller guarantees it; the plugin's packets are dropped.
        unsafe { fault(call) };
    }
}

/// Sets an invalid verdict for all packets, so the router treats the call as a fault.
///
/// # Safety
/// Conditions of [`packets`].
unsafe fn fault(call: &RawCall) {
    if usize::from(call.packet_size) < size_of::<RawPacket>() {
        return;
    }
    let first = call.packets as usize as *mut u8;
    for index in 0..call.count as usize {
        // SAFETY: the caller guarantees it.
        unsafe { (*first.add(index * usize::from(call.packet_size)).cast::<RawPacket>()).verdict = u8::MAX };
    }
}

/// # Safety
/// Conditions of [`init`].
pub unsafe fn control<P: Plugin>(
    slot: &Slot<P>,
    name: (*const u8, usize),
    arguments: (*const u8, usize),
) -> i32 {
    // SAFETY: the caller guarantees it.
    let (slot, name, arguments) = unsafe { (slot.get(), bytes(name), bytes(arguments)) };
    let name = host::text(name);
    answer(with(slot, |plugin| plugin.control(&name, arguments)).map(|text| host::reply(text.as_bytes())))
}

/// # Safety
/// Conditions of [`init`].
pub unsafe fn periodic<P: Plugin>(slot: &Slot<P>, now: u64) {
    // SAFETY: the caller guarantees it.
    let slot = unsafe { slot.get() };
    answer(with(slot, |plugin| {
        plugin.periodic(now);
        Ok(())
    }));
}

/// # Safety
/// Conditions of [`init`].
pub unsafe fn message<P: Plugin>(slot: &Slot<P>, message: (*const u8, usize)) {
    // SAFETY: the caller guarantees it.
    let (slot, message) = unsafe { (slot.get(), bytes(message)) };
    answer(with(slot, |plugin| {
        plugin.message(message);
        Ok(())
    }));
}

/// # Safety
/// Conditions of [`init`]. The flow and its state must be valid.
pub unsafe fn flow_ended<P: Declared>(slot: &Slot<P>, flow: *const RawFlowEnd) {
    // SAFETY: the caller guarantees it.
    let (slot, raw) = unsafe { (slot.get(), &*flow) };
    // SAFETY: the caller guarantees it; the state has the size of the manifest.
    let state = unsafe { bytes((raw.state as usize as *const u8, P::FLOW_STATE.into())) };
    answer(with(slot, |plugin| {
        plugin.flow_ended(&FlowEnd { raw, state });
        Ok(())
    }));
}

/// # Safety
/// Conditions of [`init`].
pub unsafe fn save<P: Plugin>(slot: &Slot<P>) -> i32 {
    // SAFETY: the caller guarantees it.
    let slot = unsafe { slot.get() };
    answer(with(slot, Plugin::save).map(|state| host::reply(&state)))
}

/// # Safety
/// Conditions of [`init`].
pub unsafe fn restore<P: Plugin>(slot: &Slot<P>, state: (*const u8, usize), version: u32) -> i32 {
    // SAFETY: the caller guarantees it.
    let (slot, state) = unsafe { (slot.get(), bytes(state)) };
    answer(with(slot, |plugin| plugin.restore(state, version)))
}
