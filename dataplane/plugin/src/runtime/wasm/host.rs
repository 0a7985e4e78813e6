//! Host functions that plugins call, and the data in the store of an instance.
//!
//! An address outside the plugin's memory is a fault, as if the plugin itself had accessed that address.

use millrace_plugin_abi::binary::IMPORTS;
use wasmtime::{Caller, Linker, Memory, ResourceLimiter, Result, Trap};

use super::layout::{BACKLOG, backlog_bytes};
use super::staging::Area;
use crate::Manifest;
use crate::declaration::maps::Key;
use crate::runtime::exchange::{Exchange, Shared};
use crate::runtime::raw_packet;

/// Bytes of a table entry: a pointer.
const ENTRY: usize = size_of::<usize>();

/// Data in the store of an instance.
pub(super) struct Data {
    pub shared: Shared,
    /// Memory of the plugin; `None` until the module is instantiated.
    pub memory: Option<Memory>,
    /// Area for calls in that memory; `None` until the plugin has reserved it.
    pub area: Option<Area>,
    /// Address of the plugin's service state; 0 without service state.
    pub service: u32,
    /// Whether the plugin runs on the worker's stack, where it can't be suspended.
    pub on_worker: bool,
    /// Number of slices after whose end the current call still ran; 0 for a call that ends within its first
    /// slice. If the call runs on the worker's stack, each tick after the first slice counts like a slice.
    pub late: u32,
    /// Whether the current call was cut, because it ran too long on the worker's stack.
    pub is_cut: bool,
    /// Whether the current call had an effect outside the plugin's memory, such as a written packet. Only of use
    /// for a call on the worker's stack.
    pub has_effect: bool,
    /// Maximum bytes of memory, tables and other data of an instance.
    pub most_memory: usize,
    /// Bytes in use that count towards `most_memory`.
    pub bytes: usize,
}

impl Data {
    /// Whether memory or a table may grow by `bytes`. If so, counts the bytes as used.
    fn grows(&mut self, bytes: Option<usize>) -> bool {
        let total = bytes.and_then(|bytes| self.bytes.checked_add(bytes));
        let Some(total) = total.filter(|total| *total <= self.most_memory) else { return false };
        let more = (total - self.bytes) as u64;
        let is_first = self.memory.is_none();
        if !self.shared.with(|exchange| exchange.memory.grow(more, is_first)) {
            return false;
        }
        self.bytes = total;
        true
    }
}

impl ResourceLimiter for Data {
    fn memory_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> Result<bool> {
        Ok(self.grows(desired.checked_sub(current)))
    }

    fn table_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> Result<bool> {
        Ok(self.grows(desired.checked_sub(current).and_then(|entries| entries.checked_mul(ENTRY))))
    }

    fn memories(&self) -> usize {
        1
    }
}

/// Returns the calling plugin's memory and the store's data.
fn parts<'a>(caller: &'a mut Caller<'_, Data>) -> Result<(&'a mut [u8], &'a mut Data)> {
    let Some(memory) = caller.data().memory else {
        wasmtime::bail!(
            "the plugin called the router before its initialization: a `start` function can't call functions \
             of `millrace`"
        );
    };
    Ok(memory.data_and_store_mut(caller))
}

/// Returns the same as [`parts`], for a function with an effect outside the plugin's memory.
fn parts_for_effect<'a>(caller: &'a mut Caller<'_, Data>) -> Result<(&'a mut [u8], &'a mut Data)> {
    caller.data_mut().has_effect = true;
    parts(caller)
}

fn slice(memory: &[u8], address: u32, bytes: u32) -> Result<&[u8], Trap> {
    let start = address as usize;
    memory.get(start..start + bytes as usize).ok_or(Trap::MemoryOutOfBounds)
}

fn slice_mut(memory: &mut [u8], address: u32, bytes: u32) -> Result<&mut [u8], Trap> {
    let start = address as usize;
    memory.get_mut(start..start + bytes as usize).ok_or(Trap::MemoryOutOfBounds)
}

/// Links those host functions whose capabilities the manifest requests.
pub(super) fn link(linker: &mut Linker<Data>, manifest: &Manifest) -> Result<()> {
    linker.func_wrap(IMPORTS, "fail", fail)?;
    linker.func_wrap(IMPORTS, "reply", reply)?;
    linker.func_wrap(IMPORTS, "service_state", service_state)?;
    linker.func_wrap(IMPORTS, "count", count)?;
    for capability in &manifest.capabilities {
        match *capability {
            "log" => linker.func_wrap(IMPORTS, "log", log)?,
            "packet-read" => linker.func_wrap(IMPORTS, "packet_read", packet_read)?,
            "packet-write" => linker.func_wrap(IMPORTS, "packet_write", packet_write)?,
            "packet-resize" => linker.func_wrap(IMPORTS, "packet_resize", packet_resize)?,
            "packet-make" => linker.func_wrap(IMPORTS, "packet_make", packet_make)?,
            "flow-backlog" => linker.func_wrap(IMPORTS, "flow_backlog", flow_backlog)?,
            "timer" => linker.func_wrap(IMPORTS, "timer", timer)?,
            "map-read" => linker.func_wrap(IMPORTS, "map_get", map_get)?,
            "map-write" => {
                linker.func_wrap(IMPORTS, "map_set", map_set)?.func_wrap(IMPORTS, "map_remove", map_remove)?
            }
            "message" => linker.func_wrap(IMPORTS, "send", send)?,
            _ => linker,
        };
    }
    if manifest.has_capability("request") {
        linker.func_wrap(IMPORTS, "request", request)?;
    }
    Ok(())
}

fn fail(mut caller: Caller<'_, Data>, address: u32, bytes: u32) -> Result<()> {
    let (memory, data) = parts(&mut caller)?;
    let text = slice(memory, address, bytes)?;
    data.shared.with(|exchange| exchange.answer.fail(text));
    Ok(())
}

fn reply(mut caller: Caller<'_, Data>, address: u32, bytes: u32) -> Result<()> {
    let (memory, data) = parts(&mut caller)?;
    let reply = slice(memory, address, bytes)?;
    data.shared.with(|exchange| exchange.answer.reply(reply));
    Ok(())
}

fn log(mut caller: Caller<'_, Data>, level: u32, address: u32, bytes: u32) -> Result<()> {
    let (memory, data) = parts_for_effect(&mut caller)?;
    let line = slice(memory, address, bytes)?;
    data.shared.with(|exchange| exchange.log(level, line));
    Ok(())
}

/// Calls `look` with packet `number` and the plugin's memory; see [`Exchange::with_packet`].
fn with_packet<R>(
    caller: &mut Caller<'_, Data>,
    number: u32,
    look: impl FnOnce(&mut millrace_packet::Packet, &mut [u8]) -> R,
) -> Result<Option<R>> {
    let (memory, data) = parts(caller)?;
    let Some(area) = data.area else { return Ok(None) };
    let look = |exchange: &mut Exchange| exchange.with_packet(number, memory, &area, look);
    Ok(data.shared.with(look)?)
}

fn packet_read(mut caller: Caller<'_, Data>, number: u32, offset: u32, to: u32, bytes: u32) -> Result<u32> {
    let read = with_packet(&mut caller, number, |packet, memory| {
        let into = slice_mut(memory, to, bytes)?;
        Ok::<_, Trap>(packet.read(offset as usize, into) as u32)
    })?;
    Ok(read.transpose()?.unwrap_or(0))
}

fn packet_write(
    mut caller: Caller<'_, Data>,
    number: u32,
    offset: u32,
    from: u32,
    bytes: u32,
) -> Result<u32> {
    caller.data_mut().has_effect = true;
    let written = with_packet(&mut caller, number, |packet, memory| {
        Ok::<_, Trap>(raw_packet::write(packet, offset, slice(memory, from, bytes)?))
    })?;
    Ok(written.transpose()?.unwrap_or(0))
}

fn packet_resize(mut caller: Caller<'_, Data>, number: u32, bytes: i32) -> Result<u32> {
    caller.data_mut().has_effect = true;
    let done = with_packet(&mut caller, number, |packet, _| raw_packet::resize(packet, bytes))?;
    Ok(u32::from(done != Some(true)))
}

fn packet_make(mut caller: Caller<'_, Data>, address: u32, bytes: u32, port: u32) -> Result<u32> {
    let (memory, data) = parts_for_effect(&mut caller)?;
    let content = slice(memory, address, bytes)?;
    Ok(u32::from(!data.shared.with(|exchange| exchange.make(content, port))))
}

fn flow_backlog(mut caller: Caller<'_, Data>, number: u32, to: u32, bytes: u32) -> Result<u32> {
    let (memory, data) = parts(&mut caller)?;
    let Some(backlog) = data.shared.with(|exchange| exchange.backlog(number)) else { return Ok(0) };
    let room = bytes.min(BACKLOG as u32);
    let into = slice_mut(memory, to, room)?;
    into.iter_mut().zip(backlog_bytes(&backlog)).for_each(|(place, byte)| *place = byte);
    Ok(room)
}

fn timer(mut caller: Caller<'_, Data>, nanoseconds: u64) -> Result<()> {
    let (_, data) = parts(&mut caller)?;
    data.shared.with(|exchange| exchange.set_timer(nanoseconds));
    Ok(())
}

fn service_state(caller: Caller<'_, Data>) -> u32 {
    caller.data().service
}

fn map_get(mut caller: Caller<'_, Data>, map: u32, key: u32, bytes: u32, to: u32, room: u32) -> Result<i32> {
    let (memory, data) = parts(&mut caller)?;
    let key = Key::of(slice(memory, key, bytes)?);
    let value = slice_mut(memory, to, room)?;
    Ok(data.shared.with(|exchange| exchange.maps.get(map, key, value)))
}

fn map_set(
    mut caller: Caller<'_, Data>,
    map: u32,
    key: u32,
    bytes: u32,
    from: u32,
    length: u32,
) -> Result<i32> {
    let (memory, data) = parts_for_effect(&mut caller)?;
    let key = Key::of(slice(memory, key, bytes)?);
    let value = slice(memory, from, length)?;
    Ok(data.shared.with(|exchange| exchange.maps.set(map, key, value)))
}

fn map_remove(mut caller: Caller<'_, Data>, map: u32, key: u32, bytes: u32) -> Result<i32> {
    let (memory, data) = parts_for_effect(&mut caller)?;
    let key = Key::of(slice(memory, key, bytes)?);
    Ok(data.shared.with(|exchange| exchange.maps.remove(map, key)))
}

fn send(mut caller: Caller<'_, Data>, address: u32, bytes: u32) -> Result<u32> {
    let (memory, data) = parts_for_effect(&mut caller)?;
    let message = slice(memory, address, bytes)?;
    Ok(u32::from(!data.shared.with(|exchange| exchange.outbox.send(message))))
}

fn count(mut caller: Caller<'_, Data>, counter: u32, number: u64) {
    caller.data_mut().has_effect = true;
    caller.data().shared.with(|exchange| exchange.count(counter, number));
}

fn request(mut caller: Caller<'_, Data>, address: u32, bytes: u32) -> Result<u32> {
    let (memory, data) = parts_for_effect(&mut caller)?;
    let json = slice(memory, address, bytes)?;
    Ok(u32::from(!data.shared.with(|exchange| exchange.outbox.request(json))))
}
