//! Host functions of the test router. Each thread records its own calls.

use core::cell::RefCell;
use std::collections::BTreeMap;
use std::string::String;
use std::vec::Vec;
use std::{slice, thread_local};

use millrace_plugin_abi::binary::{RawBacklog, map_answer};

use crate::host::{self, RawHost};
use crate::{Level, Refusal};

/// Recorded calls of host functions by a plugin.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Record {
    /// Log lines with their severity.
    pub log: Vec<(Level, String)>,
    /// Packets that the plugin created, from the network header on, with the number of their ingress port.
    pub made: Vec<(Vec<u8>, u16)>,
    /// Changes that the plugin requested, as JSON.
    pub requests: Vec<String>,
    /// Messages that the plugin sent to its other part: the host companion, or an instance.
    pub sent: Vec<Vec<u8>>,
    /// Requested calls of `periodic`: for each, the time from the request to the call, in nanoseconds.
    pub timers: Vec<u64>,
    /// Sums that the plugin added to its counters, by counter index.
    pub counters: BTreeMap<u32, u64>,
}

/// Shared map that a plugin writes or reads in a test.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TestMap {
    /// Bytes of each key.
    pub key: usize,
    /// Bytes of each value.
    pub value: usize,
    /// Maximum number of entries.
    pub entries: usize,
    /// Whether the plugin owns the map, and so may write it.
    pub writes: bool,
    /// Entries of the map.
    pub content: BTreeMap<Vec<u8>, Vec<u8>>,
}

#[derive(Default)]
struct Calls {
    record: Record,
    failure: Option<String>,
    reply: Option<Vec<u8>>,
    frames: Vec<(Vec<u8>, bool)>,
    backlog: RawBacklog,
    service: Option<core::ptr::NonNull<u64>>,
    maps: Vec<TestMap>,
}

thread_local! {
    static CALLS: RefCell<Calls> = RefCell::default();
}

fn with<T>(look: impl FnOnce(&mut Calls) -> T) -> T {
    CALLS.with_borrow_mut(look)
}

/// Attaches the table of these host functions to the SDK.
pub(super) fn attach() {
    static TABLE: RawHost = RawHost {
        size: size_of::<RawHost>() as u64,
        fail: Some(fail),
        reply: Some(reply),
        log: Some(log),
        packet_read: Some(packet_read),
        packet_write: Some(packet_write),
        packet_resize: Some(packet_resize),
        packet_make: Some(packet_make),
        flow_backlog: Some(flow_backlog),
        timer: Some(timer),
        request: Some(request),
        service_state: Some(service_state),
        map_get: Some(map_get),
        map_set: Some(map_set),
        map_remove: Some(map_remove),
        send: Some(send),
        count: Some(count),
    };
    host::raw::attach(&raw const TABLE);
}

/// Returns the plugin's reply after an exported function returned `code`; the refusal unless `code` is 0.
pub(super) fn answer(code: i32) -> Result<Vec<u8>, Refusal> {
    let (failure, reply) = with(|calls| (calls.failure.take(), calls.reply.take()));
    match code {
        0 => Ok(reply.unwrap_or_default()),
        _ => Err(Refusal(failure.unwrap_or_default())),
    }
}

/// Removes and returns the calls recorded so far.
pub(super) fn take() -> Record {
    with(|calls| core::mem::take(&mut calls.record))
}

/// Sets the backlog that all packets report from now on.
pub(super) fn set_backlog(backlog: RawBacklog) {
    with(|calls| calls.backlog = backlog);
}

/// Sets the service state for the next call of an instance.
pub(super) fn set_service(state: &mut [u64]) {
    let first = core::ptr::NonNull::new(state.as_mut_ptr()).filter(|_| !state.is_empty());
    with(|calls| calls.service = first);
}

extern "C" fn service_state() -> *mut u8 {
    with(|calls| calls.service.map_or(core::ptr::null_mut(), |first| first.as_ptr().cast()))
}

/// Sets the maps of this thread for a call, and returns the maps that were set before.
pub(super) fn lend_maps(maps: Vec<TestMap>) -> Vec<TestMap> {
    with(|calls| core::mem::replace(&mut calls.maps, maps))
}

extern "C" fn count(counter: u32, number: u64) {
    with(|calls| *calls.record.counters.entry(counter).or_default() += number);
}

extern "C" fn map_get(map: u32, key: *const u8, bytes: usize, to: *mut u8, room: usize) -> i32 {
    with(|calls| {
        let Some(map) = calls.maps.get(map as usize).filter(|map| (map.key, map.value) == (bytes, room))
        else {
            return map_answer::REFUSED;
        };
        let Some(value) = map.content.get(&copy(key, bytes)) else { return map_answer::ABSENT };
        // SAFETY: only `host` of this crate calls this function, with valid slices.
        unsafe { core::ptr::copy_nonoverlapping(value.as_ptr(), to, room) };
        map_answer::DONE
    })
}

extern "C" fn map_set(map: u32, key: *const u8, bytes: usize, from: *const u8, length: usize) -> i32 {
    let (key, value) = (copy(key, bytes), copy(from, length));
    with(|calls| {
        let fits = |map: &&mut TestMap| (map.key, map.value, map.writes) == (bytes, length, true);
        let Some(map) = calls.maps.get_mut(map as usize).filter(fits) else { return map_answer::REFUSED };
        if map.content.len() == map.entries && !map.content.contains_key(&key) {
            return map_answer::FULL;
        }
        map.content.insert(key, value);
        map_answer::DONE
    })
}

extern "C" fn map_remove(map: u32, key: *const u8, bytes: usize) -> i32 {
    let key = copy(key, bytes);
    with(|calls| {
        let fits = |map: &&mut TestMap| (map.key, map.writes) == (bytes, true);
        let Some(map) = calls.maps.get_mut(map as usize).filter(fits) else { return map_answer::REFUSED };
        map.content.remove(&key).map_or(map_answer::ABSENT, |_| map_answer::DONE)
    })
}

/// Stores the frames of a call, so that the recorded host functions can access them.
pub(super) fn hold(frames: Vec<Vec<u8>>) {
    with(|calls| calls.frames = frames.into_iter().map(|frame| (frame, false)).collect());
}

/// Removes and returns the frames after a call, each with a flag: whether the plugin has resized it.
pub(super) fn release() -> Vec<(Vec<u8>, bool)> {
    with(|calls| core::mem::take(&mut calls.frames))
}

fn copy(address: *const u8, length: usize) -> Vec<u8> {
    if length == 0 {
        return Vec::new();
    }
    // SAFETY: only `host` of this crate calls this function, with valid slices.
    unsafe { slice::from_raw_parts(address, length) }.to_vec()
}

fn text(address: *const u8, length: usize) -> String {
    host::text(&copy(address, length))
}

extern "C" fn fail(address: *const u8, length: usize) {
    with(|calls| calls.failure = Some(text(address, length)));
}

extern "C" fn reply(address: *const u8, length: usize) {
    with(|calls| calls.reply = Some(copy(address, length)));
}

extern "C" fn log(level: u32, address: *const u8, length: usize) {
    let level = match level {
        0 => Level::Error,
        1 => Level::Warning,
        2 => Level::Information,
        _ => Level::Debug,
    };
    with(|calls| calls.record.log.push((level, text(address, length))));
}

extern "C" fn packet_read(packet: u32, offset: u32, to: *mut u8, bytes: usize) -> u32 {
    with(|calls| {
        let Some((frame, _)) = calls.frames.get(packet as usize) else { return 0 };
        let from = frame.get(offset as usize..).unwrap_or_default();
        let from = &from[..from.len().min(bytes)];
        if !from.is_empty() {
            // SAFETY: only `host` of this crate calls this function, with valid slices.
            let to = unsafe { slice::from_raw_parts_mut(to, bytes) };
            to[..from.len()].copy_from_slice(from);
        }
        from.len() as u32
    })
}

extern "C" fn packet_write(packet: u32, offset: u32, from: *const u8, bytes: usize) -> u32 {
    let from = copy(from, bytes);
    with(|calls| {
        let Some((frame, _)) = calls.frames.get_mut(packet as usize) else { return 0 };
        let to = frame.get_mut(offset as usize..).unwrap_or_default();
        let length = to.len().min(from.len());
        to[..length].copy_from_slice(&from[..length]);
        length as u32
    })
}

extern "C" fn packet_resize(packet: u32, bytes: i32) -> i32 {
    with(|calls| {
        let Some((frame, resized)) = calls.frames.get_mut(packet as usize) else { return 1 };
        let count = bytes.unsigned_abs() as usize;
        match bytes {
            0.. => drop(frame.splice(..0, core::iter::repeat_n(0, count))),
            _ if count > frame.len() => return 1,
            _ => drop(frame.drain(..count)),
        }
        *resized = true;
        0
    })
}

extern "C" fn packet_make(bytes: *const u8, length: usize, port: u32) -> i32 {
    with(|calls| calls.record.made.push((copy(bytes, length), port as u16)));
    0
}

extern "C" fn flow_backlog(packet: u32, to: *mut RawBacklog, bytes: usize) -> u32 {
    with(|calls| {
        if calls.frames.get(packet as usize).is_none() || bytes < size_of::<RawBacklog>() {
            return 0;
        }
        // SAFETY: only `host` of this crate calls this function, with room for one structure.
        unsafe { *to = calls.backlog };
        size_of::<RawBacklog>() as u32
    })
}

extern "C" fn timer(nanoseconds: u64) {
    with(|calls| calls.record.timers.push(nanoseconds));
}

extern "C" fn send(bytes: *const u8, length: usize) -> i32 {
    with(|calls| calls.record.sent.push(copy(bytes, length)));
    0
}

extern "C" fn request(json: *const u8, bytes: usize) -> i32 {
    with(|calls| calls.record.requests.push(text(json, bytes)));
    0
}
