//! Table of the router's functions that shared objects call.
//!
//! All objects get the same table. A function finds the calling instance by the current thread, and refuses
//! calls from other threads or outside of a plugin call.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ptr::{self, NonNull};

use millrace_packet::Packet;
use millrace_plugin_abi::MOST_MAP_VALUE;
use millrace_plugin_abi::binary::{HOST_FUNCTIONS, RawBacklog, map_answer};
use millrace_process::{Host, MapFunctions, PacketFunctions};

use super::staging::Area;
use crate::Manifest;
use crate::declaration::maps::Key;
use crate::runtime::exchange::{Exchange, Shared};
use crate::runtime::raw_packet;

/// Maximum number of packet bytes that are copied at a time.
const PIECE: usize = 512;

/// Function table of all objects.
pub(super) static HOST: Host = Host {
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

/// Set of the host functions that a plugin may call. Bit N stands for the function at index N of
/// [`HOST_FUNCTIONS`].
#[derive(Clone, Copy, Debug)]
pub(in crate::runtime) struct Granted(u32);

impl Granted {
    /// Returns the functions that every plugin may call, and those whose capability the manifest requests.
    pub fn by(manifest: &Manifest) -> Self {
        let granted = |capability: Option<&str>| capability.is_none_or(|name| manifest.has_capability(name));
        let bits = HOST_FUNCTIONS.iter().enumerate();
        Self(bits.fold(0, |bits, (place, (_, capability))| bits | u32::from(granted(*capability)) << place))
    }

    pub(in crate::runtime) fn has(self, function: &str) -> bool {
        let place = HOST_FUNCTIONS.iter().position(|(name, _)| *name == function);
        place.is_some_and(|place| self.0 >> place & 1 != 0)
    }
}

/// Instance whose call runs on this thread, with the functions that it may call.
#[derive(Clone, Copy)]
struct Current {
    shared: NonNull<Shared>,
    area: NonNull<Area>,
    granted: Granted,
}

thread_local! {
    static CURRENT: Cell<Option<Current>> = const { Cell::new(None) };
}

/// Guard that restores the value that `CURRENT` had before a call.
struct Earlier(Option<Current>);

impl Drop for Earlier {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// Makes the router's functions act for an instance while `call` runs: sets `CURRENT` during that time. The
/// caller must not borrow the exchange meanwhile.
pub(super) fn during<R>(shared: &Shared, area: &mut Area, granted: Granted, call: impl FnOnce() -> R) -> R {
    let current = Current { shared: NonNull::from(shared), area: NonNull::from(area), granted };
    let _earlier = Earlier(CURRENT.replace(Some(current)));
    call()
}

impl Current {
    fn with<R>(self, look: impl FnOnce(&mut Exchange) -> R) -> R {
        // SAFETY: `during` borrows the pointees until the call is over, and `CURRENT` holds the pointers only
        // that long.
        unsafe { self.shared.as_ref() }.with(look)
    }

    /// Calls `look` with packet `number`, then updates the packet's description. Returns `None` if the plugin
    /// doesn't handle that packet now.
    fn with_packet<R>(self, number: u32, look: impl FnOnce(&mut Packet) -> R) -> Option<R> {
        self.with(|exchange| {
            let index = exchange.call.place(number)?;
            exchange.with_packets(|_, packets| {
                if number as usize >= packets.len() {
                    return None;
                }
                let (_, packet) = packets.get_mut(number as usize);
                let result = look(packet);
                // SAFETY: as in `with`; the plugin waits for this function, and this is the only reference.
                unsafe { &mut *self.area.as_ptr() }.show(index, packet);
                Some(result)
            })?
        })
    }
}

/// Calls `act` with the instance whose call runs, if the plugin may call the host function `function`. If it
/// may not, records a fault of the instance and returns `refusal`. Also returns `refusal` if no call runs.
fn acting<R>(function: &'static str, refusal: R, act: impl FnOnce(Current) -> R) -> R {
    match CURRENT.get() {
        Some(current) if current.granted.has(function) => act(current),
        Some(current) => {
            current.with(|exchange| exchange.faults.refuse(function));
            refusal
        }
        None => refusal,
    }
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

extern "C" fn fail(text: *const u8, bytes: usize) {
    // SAFETY: the plugin guarantees `bytes` readable bytes during the call. The same holds for all functions
    // below.
    let text = unsafe { slice(text, bytes) };
    acting("fail", (), |current| current.with(|exchange| exchange.answer.fail(text)));
}

extern "C" fn reply(bytes: *const u8, length: usize) {
    // SAFETY: as in `fail`.
    let reply = unsafe { slice(bytes, length) };
    acting("reply", (), |current| current.with(|exchange| exchange.answer.reply(reply)));
}

extern "C" fn log(level: u32, text: *const u8, bytes: usize) {
    // SAFETY: as in `fail`.
    let line = unsafe { slice(text, bytes) };
    acting("log", (), |current| current.with(|exchange| exchange.log(level, line)));
}

extern "C" fn packet_read(number: u32, offset: u32, to: *mut u8, bytes: usize) -> u32 {
    acting("packet_read", 0, |current| {
        let (mut piece, mut done) = ([0; PIECE], 0);
        while !to.is_null() && done < bytes {
            let wanted = (bytes - done).min(PIECE);
            let from = offset as usize + done;
            let Some(room) = piece.get_mut(..wanted) else { break };
            let read = current.with_packet(number, |packet| packet.read(from, room));
            let read = read.unwrap_or(0);
            // SAFETY: the plugin guarantees `bytes` writable bytes there; no reference to them exists, even
            // if they belong to a packet.
            unsafe { ptr::copy_nonoverlapping(piece.as_ptr(), to.add(done), read) };
            done += read;
            if read < wanted {
                break;
            }
        }
        done as u32
    })
}

extern "C" fn packet_write(number: u32, offset: u32, from: *const u8, bytes: usize) -> u32 {
    acting("packet_write", 0, |current| {
        let (mut piece, mut done) = ([0; PIECE], 0);
        while !from.is_null() && done < bytes {
            let wanted = (bytes - done).min(PIECE);
            // SAFETY: as in `packet_read`.
            unsafe { ptr::copy_nonoverlapping(from.add(done), piece.as_mut_ptr(), wanted) };
            let (Some(to), Some(bytes)) = (offset.checked_add(done as u32), piece.get(..wanted)) else {
                break;
            };
            let written = current.with_packet(number, |packet| raw_packet::write(packet, to, bytes));
            let written = written.unwrap_or(0) as usize;
            done += written;
            if written < wanted {
                break;
            }
        }
        done as u32
    })
}

extern "C" fn packet_resize(number: u32, bytes: i32) -> i32 {
    acting("packet_resize", 1, |current| {
        let done = current.with_packet(number, |packet| raw_packet::resize(packet, bytes));
        i32::from(done != Some(true))
    })
}

extern "C" fn packet_make(bytes: *const u8, length: usize, port: u32) -> i32 {
    // SAFETY: as in `fail`.
    let content = unsafe { slice(bytes, length) };
    acting("packet_make", 1, |current| i32::from(!current.with(|exchange| exchange.make(content, port))))
}

extern "C" fn flow_backlog(number: u32, to: *mut u8, bytes: usize) -> u32 {
    acting("flow_backlog", 0, |current| {
        let Some(backlog) = current.with(|exchange| exchange.backlog(number)) else { return 0 };
        let room = if to.is_null() { 0 } else { bytes.min(size_of::<RawBacklog>()) };
        // SAFETY: the plugin guarantees `bytes` writable bytes there, which need not be aligned.
        unsafe { ptr::copy_nonoverlapping((&raw const backlog).cast(), to, room) };
        room as u32
    })
}

extern "C" fn timer(nanoseconds: u64) {
    acting("timer", (), |current| current.with(|exchange| exchange.set_timer(nanoseconds)));
}

extern "C" fn count(counter: u32, number: u64) {
    acting("count", (), |current| current.with(|exchange| exchange.count(counter, number)));
}

extern "C" fn request(json: *const u8, bytes: usize) -> i32 {
    // SAFETY: as in `fail`.
    let json = unsafe { slice(json, bytes) };
    acting("request", 1, |current| i32::from(!current.with(|exchange| exchange.outbox.request(json))))
}

extern "C" fn service_state() -> *mut u8 {
    let address = |current: Current| current.with(|exchange| exchange.service.address());
    acting("service_state", ptr::null_mut(), address)
}

extern "C" fn map_get(map: u32, key: *const u8, bytes: usize, to: *mut u8, room: usize) -> i32 {
    acting("map_get", map_answer::REFUSED, |current| {
        let mut value = [0; MOST_MAP_VALUE as usize];
        let Some(value) = value.get_mut(..room).filter(|_| !to.is_null()) else { return map_answer::REFUSED };
        // SAFETY: as in `fail`.
        let key = Key::of(unsafe { slice(key, bytes) });
        let answer = current.with(|exchange| exchange.maps.get(map, key, value));
        if answer == map_answer::DONE {
            // SAFETY: the plugin guarantees `room` writable bytes there; no reference to them exists.
            unsafe { ptr::copy_nonoverlapping(value.as_ptr(), to, room) };
        }
        answer
    })
}

extern "C" fn map_set(map: u32, key: *const u8, bytes: usize, from: *const u8, length: usize) -> i32 {
    // SAFETY: as in `fail`.
    let (key, value) = unsafe { (Key::of(slice(key, bytes)), slice(from, length)) };
    acting("map_set", map_answer::REFUSED, |current| {
        current.with(|exchange| exchange.maps.set(map, key, value))
    })
}

extern "C" fn map_remove(map: u32, key: *const u8, bytes: usize) -> i32 {
    // SAFETY: as in `fail`.
    let key = Key::of(unsafe { slice(key, bytes) });
    acting("map_remove", map_answer::REFUSED, |current| {
        current.with(|exchange| exchange.maps.remove(map, key))
    })
}

extern "C" fn send(bytes: *const u8, length: usize) -> i32 {
    // SAFETY: as in `fail`.
    let message = unsafe { slice(bytes, length) };
    acting("send", 1, |current| i32::from(!current.with(|exchange| exchange.outbox.send(message))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outside_of_a_call_everything_is_refused() {
        let text = b"text";
        (HOST.fail)(text.as_ptr(), text.len());
        (HOST.timer)(1);
        let mut bytes = [0; 4];
        assert_eq!((HOST.packet.read)(0, 0, bytes.as_mut_ptr(), bytes.len()), 0);
        assert_eq!((HOST.packet.resize)(0, 4), 1);
        assert_eq!((HOST.packet.make)(text.as_ptr(), text.len(), 0), 1);
        assert_eq!((HOST.request)(text.as_ptr(), text.len()), 1);
    }
}
