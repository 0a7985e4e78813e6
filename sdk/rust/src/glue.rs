//! Between the exports and a [`Plugin`]. A panic never leaves these functions.

use alloc::alloc::{alloc, dealloc};
use core::alloc::Layout;
use core::cell::UnsafeCell;
use core::{ptr, slice};

use millrace_plugin_abi::binary::{RawCall, RawFlowEnd, RawPacket};

use crate::{Declared, FlowEnd, Packets, Plugin, Refusal, host};

/// The plugin of a module: nothing before `init`, and after a panic.
pub struct Slot<P>(UnsafeCell<Option<P>>);

// SAFETY: nothing is called from two threads at once, and nothing while a call goes on (`docs/plugin-abi.md`). The plugin
// itself is `Send`, so the calls may come from one thread after another.
unsafe impl<P: Send> Sync for Slot<P> {}

impl<P> Slot<P> {
    /// An empty one.
    #[must_use]
    pub const fn new() -> Self {
        Self(UnsafeCell::new(None))
    }

    /// # Safety
    /// Nobody else has what it returns.
    #[allow(clippy::mut_from_ref, reason = "the interface says that there is one caller at a time")]
    unsafe fn get(&self) -> &mut Option<P> {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.0.get() }
    }
}

impl<P> Default for Slot<P> {
    fn default() -> Self {
        Self::new()
    }
}

/// # Safety
/// There are so many bytes at the address for `'a`; of none the address means nothing.
unsafe fn bytes<'a>((address, length): (*const u8, usize)) -> &'a [u8] {
    if length == 0 || address.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(address, length) }
}

/// Runs it; a panic is a refusal. In WebAssembly a panic ends the call by itself.
#[cfg(target_family = "wasm")]
fn guarded<T>(run: impl FnOnce() -> Result<T, Refusal>) -> Result<T, Refusal> {
    run()
}

/// Runs it; a panic is a refusal, with its text.
#[cfg(not(target_family = "wasm"))]
fn guarded<T>(run: impl FnOnce() -> Result<T, Refusal>) -> Result<T, Refusal> {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    // What it left half done is not used again: `with` empties the slot.
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<alloc::string::String>().map(|text| &**text));
        Err(Refusal(["it panicked: ", text.unwrap_or("")].concat()))
    })
}

/// Runs it with the plugin, which is given up when it panics.
fn with<P: Plugin, T>(
    slot: &mut Option<P>,
    run: impl FnOnce(&mut P) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let Some(mut plugin) = slot.take() else {
        return Err("it has not begun, or has panicked; make a new instance".into());
    };
    let (plugin, result) = guarded(move || {
        let result = run(&mut plugin);
        Ok((plugin, result))
    })?;
    *slot = Some(plugin);
    result
}

/// 0, or 1 with the reason told to the router.
fn answer(result: Result<(), Refusal>) -> i32 {
    match result {
        Ok(()) => 0,
        Err(Refusal(text)) => {
            host::fail(&text);
            1
        }
    }
}

/// Memory is aligned to 8 bytes.
fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes.max(1), 8).ok()
}

#[must_use]
pub fn reserve(bytes: usize) -> *mut u8 {
    let Some(layout) = layout(bytes) else { return ptr::null_mut() };
    // SAFETY: it is not empty.
    unsafe { alloc(layout) }
}

/// # Safety
/// The address is of [`reserve`] with as many bytes, and is not used any longer.
pub unsafe fn release(address: *mut u8, bytes: usize) {
    if let Some(layout) = layout(bytes)
        && !address.is_null()
    {
        // SAFETY: the caller's promise.
        unsafe { dealloc(address, layout) }
    }
}

#[cfg(not(target_family = "wasm"))]
pub fn attach(table: *const host::RawHost) {
    host::raw::attach(table);
}

/// # Safety
/// One call at a time; there are as many bytes as said. The same for all that follow.
pub unsafe fn init<P: Plugin>(slot: &Slot<P>, settings: *const u8, length: usize) -> i32 {
    // SAFETY: the caller's promise.
    let (slot, settings) = unsafe { (slot.get(), bytes((settings, length))) };
    answer(guarded(|| P::init(settings)).map(|plugin| *slot = Some(plugin)))
}

/// # Safety
/// As [`init`]; the call, its packets, their windows and states stand where they say, for this call alone.
pub unsafe fn packets<P: Declared>(slot: &Slot<P>, call: *const RawCall) {
    // SAFETY: the caller's promise.
    let (slot, call) = unsafe { (slot.get(), &*call) };
    let result = with(slot, |plugin| {
        // SAFETY: the caller's promise.
        plugin.packets(&mut unsafe { Packets::new(call, P::FLOW_STATE) }, call.now);
        Ok(())
    });
    if answer(result) != 0 {
        // SAFETY: the caller's promise; the packets that the plugin had are gone.
        unsafe { fault(call) };
    }
}

/// A verdict that there isn't, for all packets: they get what the binding says for faults.
///
/// # Safety
/// As [`packets`].
unsafe fn fault(call: &RawCall) {
    if usize::from(call.packet_size) < size_of::<RawPacket>() {
        return;
    }
    let first = call.packets as usize as *mut u8;
    for index in 0..call.count as usize {
        // SAFETY: the caller's promise.
        unsafe { (*first.add(index * usize::from(call.packet_size)).cast::<RawPacket>()).verdict = u8::MAX };
    }
}

/// # Safety
/// As [`init`].
pub unsafe fn control<P: Plugin>(
    slot: &Slot<P>,
    name: (*const u8, usize),
    arguments: (*const u8, usize),
) -> i32 {
    // SAFETY: the caller's promise.
    let (slot, name, arguments) = unsafe { (slot.get(), bytes(name), bytes(arguments)) };
    let name = host::text(name);
    answer(with(slot, |plugin| plugin.control(&name, arguments)).map(|text| host::reply(text.as_bytes())))
}

/// # Safety
/// As [`init`].
pub unsafe fn periodic<P: Plugin>(slot: &Slot<P>, now: u64) {
    // SAFETY: the caller's promise.
    let slot = unsafe { slot.get() };
    answer(with(slot, |plugin| {
        plugin.periodic(now);
        Ok(())
    }));
}

/// # Safety
/// As [`init`].
pub unsafe fn message<P: Plugin>(slot: &Slot<P>, message: (*const u8, usize)) {
    // SAFETY: the caller's promise.
    let (slot, message) = unsafe { (slot.get(), bytes(message)) };
    answer(with(slot, |plugin| {
        plugin.message(message);
        Ok(())
    }));
}

/// # Safety
/// As [`init`]; the flow and its state stand where they say.
pub unsafe fn flow_ended<P: Declared>(slot: &Slot<P>, flow: *const RawFlowEnd) {
    // SAFETY: the caller's promise.
    let (slot, raw) = unsafe { (slot.get(), &*flow) };
    // SAFETY: the caller's promise; the state has as many bytes as the manifest says.
    let state = unsafe { bytes((raw.state as usize as *const u8, P::FLOW_STATE.into())) };
    answer(with(slot, |plugin| {
        plugin.flow_ended(&FlowEnd { raw, state });
        Ok(())
    }));
}

/// # Safety
/// As [`init`].
pub unsafe fn save<P: Plugin>(slot: &Slot<P>) -> i32 {
    // SAFETY: the caller's promise.
    let slot = unsafe { slot.get() };
    answer(with(slot, Plugin::save).map(|state| host::reply(&state)))
}

/// # Safety
/// As [`init`].
pub unsafe fn restore<P: Plugin>(slot: &Slot<P>, state: (*const u8, usize), version: u32) -> i32 {
    // SAFETY: the caller's promise.
    let (slot, state) = unsafe { (slot.get(), bytes(state)) };
    answer(with(slot, |plugin| plugin.restore(state, version)))
}
