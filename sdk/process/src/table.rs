//! Table of the host functions for a plugin in a process. The functions call the worker through the rings.

use std::cell::RefCell;
use std::ptr;

use millrace_plugin_abi::binary::{MOST_MAP_KEY, MOST_MAP_VALUE, RawBacklog, map_answer};
use millrace_plugin_abi::process::{MOST_BYTES, MOST_READ, answer};

use crate::channel::Channel;
use crate::{Host, MapFunctions, PacketFunctions};

/// Maximum bytes of a line or an error text that reach the worker.
const MOST_TEXT: usize = 1024;
/// Maximum bytes that are written to a packet at a time.
const MOST_WRITE: usize = 4096;

thread_local! {
    /// Channel to the worker. Only the thread that calls the plugin has it.
    static CHANNEL: RefCell<Option<Channel>> = const { RefCell::new(None) };
}

/// Sets the channel to the worker for this thread.
pub(crate) fn connect(channel: Channel) {
    CHANNEL.set(Some(channel));
}

/// Calls `act` with the channel of this thread; returns `None` on other threads.
pub(crate) fn with_channel<R>(act: impl FnOnce(&mut Channel) -> R) -> Option<R> {
    CHANNEL.with(|channel| channel.try_borrow_mut().ok()?.as_mut().map(act))
}

/// Function table of all plugins in processes.
pub static HOST: Host = Host {
    size: size_of::<Host>() as u64,
    fail,
    reply,
    log,
    packet: PacketFunctions {
        read: packet_read,
        write: packet_write,
        resize: packet_resize,
        make: packet_make,
    },
    flow_backlog,
    timer,
    request,
    service_state,
    map: MapFunctions { get: map_get, set: map_set, remove: map_remove },
    send,
    count,
};

/// Calls a host function without a result.
fn post(kind: u32, first: u64, second: u64, bytes: &[u8]) {
    // If the exchange is broken, the process ends after the plugin's call.
    let _ = with_channel(|channel| channel.answer(kind, first, second, bytes));
}

/// Calls a host function with a result. Returns `refusal` outside of a call.
fn call(kind: u32, (first, second): (u64, u64), bytes: &[u8], to: &mut [u8], refusal: i32) -> i32 {
    with_channel(|channel| channel.call(kind, first, second, bytes, to)).flatten().unwrap_or(refusal)
}

/// # Safety
/// `bytes` bytes must be readable at the address. No code may write to them while the slice is in use.
unsafe fn slice<'a>(address: *const u8, bytes: usize) -> &'a [u8] {
    if bytes == 0 || address.is_null() {
        return &[];
    }
    // SAFETY: the caller guarantees it.
    unsafe { std::slice::from_raw_parts(address, bytes) }
}

fn pair(low: u32, high: usize) -> u64 {
    u64::from(low) | (high as u64) << 32
}

extern "C" fn fail(text: *const u8, bytes: usize) {
    // SAFETY: the plugin guarantees `bytes` readable bytes during the call. The same holds for all functions
    // below.
    post(answer::FAIL, 0, 0, unsafe { slice(text, bytes.min(MOST_TEXT)) });
}

extern "C" fn reply(bytes: *const u8, length: usize) {
    if length > MOST_BYTES {
        let text = format!("the reply has {length} bytes, above the limit of {MOST_BYTES}");
        return post(answer::FAIL, 0, 0, text.as_bytes());
    }
    // SAFETY: as in `fail`.
    post(answer::REPLY, 0, 0, unsafe { slice(bytes, length) });
}

extern "C" fn log(level: u32, text: *const u8, bytes: usize) {
    // SAFETY: as in `fail`.
    post(answer::LOG, level.into(), 0, unsafe { slice(text, bytes.min(MOST_TEXT)) });
}

extern "C" fn packet_read(number: u32, offset: u32, to: *mut u8, bytes: usize) -> u32 {
    let (mut piece, mut done) = ([0; MOST_READ], 0);
    while !to.is_null() && done < bytes {
        let wanted = (bytes - done).min(MOST_READ);
        let Some(from) = offset.checked_add(done as u32) else { break };
        let asked = (number.into(), pair(from, wanted));
        let read = call(answer::PACKET_READ, asked, &[], &mut piece, 0).clamp(0, wanted as i32) as usize;
        // SAFETY: the plugin guarantees `bytes` writable bytes there; no reference to them exists.
        unsafe { ptr::copy_nonoverlapping(piece.as_ptr(), to.add(done), read) };
        done += read;
        if read < wanted {
            break;
        }
    }
    done as u32
}

extern "C" fn packet_write(number: u32, offset: u32, from: *const u8, bytes: usize) -> u32 {
    let mut done = 0;
    while !from.is_null() && done < bytes {
        let wanted = (bytes - done).min(MOST_WRITE);
        let Some(to) = offset.checked_add(done as u32) else { break };
        // SAFETY: as in `fail`.
        let piece = unsafe { slice(from.add(done), wanted) };
        let asked = (number.into(), to.into());
        let written = call(answer::PACKET_WRITE, asked, piece, &mut [], 0).clamp(0, wanted as i32) as usize;
        done += written;
        if written < wanted {
            break;
        }
    }
    done as u32
}

extern "C" fn packet_resize(number: u32, bytes: i32) -> i32 {
    call(answer::PACKET_RESIZE, (number.into(), u64::from(bytes as u32)), &[], &mut [], 1)
}

extern "C" fn packet_make(bytes: *const u8, length: usize, port: u32) -> i32 {
    if length > MOST_BYTES {
        return 1;
    }
    // SAFETY: as in `fail`.
    call(answer::PACKET_MAKE, (port.into(), 0), unsafe { slice(bytes, length) }, &mut [], 1)
}

extern "C" fn flow_backlog(number: u32, to: *mut u8, bytes: usize) -> u32 {
    let mut backlog = [0; size_of::<RawBacklog>()];
    let written = call(answer::FLOW_BACKLOG, (number.into(), 0), &[], &mut backlog, 0);
    let room = if to.is_null() || written <= 0 { 0 } else { bytes.min(backlog.len()) };
    // SAFETY: the plugin guarantees `bytes` writable bytes there.
    unsafe { ptr::copy_nonoverlapping(backlog.as_ptr(), to, room) };
    room as u32
}

extern "C" fn timer(nanoseconds: u64) {
    post(answer::TIMER, nanoseconds, 0, &[]);
}

extern "C" fn count(counter: u32, number: u64) {
    post(answer::COUNT, counter.into(), number, &[]);
}

extern "C" fn request(json: *const u8, bytes: usize) -> i32 {
    if bytes > MOST_BYTES {
        return 1;
    }
    // SAFETY: as in `fail`.
    call(answer::REQUEST, (0, 0), unsafe { slice(json, bytes) }, &mut [], 1)
}

extern "C" fn service_state() -> *mut u8 {
    let address = with_channel(|channel| channel.service()).unwrap_or(0);
    ptr::with_exposed_provenance_mut(address as usize)
}

extern "C" fn map_get(map: u32, key: *const u8, bytes: usize, to: *mut u8, room: usize) -> i32 {
    if to.is_null() || room > MOST_MAP_VALUE.into() || bytes > MOST_MAP_KEY.into() {
        return map_answer::REFUSED;
    }
    let mut value = [0; MOST_MAP_VALUE as usize];
    // SAFETY: as in `fail`.
    let key = unsafe { slice(key, bytes) };
    let found = call(answer::MAP_GET, (map.into(), room as u64), key, &mut value, map_answer::REFUSED);
    if found == map_answer::DONE {
        // SAFETY: the plugin guarantees `room` writable bytes there; no reference to them exists.
        unsafe { ptr::copy_nonoverlapping(value.as_ptr(), to, room) };
    }
    found
}

extern "C" fn map_set(map: u32, key: *const u8, bytes: usize, from: *const u8, length: usize) -> i32 {
    if bytes > MOST_MAP_KEY.into() || length > MOST_MAP_VALUE.into() {
        return map_answer::REFUSED;
    }
    // SAFETY: as in `fail`.
    let (key, value) = unsafe { (slice(key, bytes), slice(from, length)) };
    let (asked, both) = ((map.into(), key.len() as u64), [key, value].concat());
    call(answer::MAP_SET, asked, &both, &mut [], map_answer::REFUSED)
}

extern "C" fn map_remove(map: u32, key: *const u8, bytes: usize) -> i32 {
    if bytes > MOST_MAP_KEY.into() {
        return map_answer::REFUSED;
    }
    // SAFETY: as in `fail`.
    let key = unsafe { slice(key, bytes) };
    call(answer::MAP_REMOVE, (map.into(), 0), key, &mut [], map_answer::REFUSED)
}

extern "C" fn send(bytes: *const u8, length: usize) -> i32 {
    if length > MOST_BYTES {
        return 1;
    }
    // SAFETY: as in `fail`.
    call(answer::SEND, (0, 0), unsafe { slice(bytes, length) }, &mut [], 1)
}
