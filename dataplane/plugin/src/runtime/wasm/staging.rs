//! Staging of packets: copies them into a plugin's memory and back.
//!
//! A plugin reserves memory for calls once, at its start. There the router describes up to 64 packets at a
//! time, and copies the window of each packet. After the call, the router reads the verdicts. If the plugin
//! may write packets, the router also copies the windows back.

use millrace_packet::Packet;
use millrace_plugin_abi::binary::{MOST_PACKETS, RawCall, packet_flags};
use millrace_plugin_abi::{Instant, Packets, Verdict};
use wasmtime::Trap;

use super::layout::{
    CALL, FLOW_END, PACKET, call_bytes, flow_end_bytes, passes, put_connection, put_flow, put_packet,
    put_shape, tag,
};
use crate::Manifest;
use crate::runtime::exchange::{Call, EndedFlow, Exchange};
use crate::runtime::raw_packet::{Written, describe, goes_on};

/// Next step of a plugin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Call with packets: the address of its description in plugin memory, and the number of packets.
    Packets(u32, u32),
    /// End of a flow: the address of its description in plugin memory.
    FlowEnded(u32),
    /// Periodic call at this time.
    Periodic(Instant),
    /// Request other than to process packets.
    Job,
}

/// Bytes of a cache line. The data of each packet begins at a cache line, so no store crosses two of them.
const LINE: usize = 64;

/// Area in a plugin's memory for calls. It holds, in this order: 64 descriptions, 64 windows, 64 flow states,
/// the call, and the end of a flow with its state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Area {
    address: u32,
    window: usize,
    /// Distance between two windows, in bytes.
    stride: usize,
    state: usize,
    /// Bytes of the whole area.
    bytes: usize,
    /// Whether the router writes windows back to the packets.
    writes: bool,
}

impl Area {
    /// Lays out an area at or behind the address `reserved`. The manifest gives the sizes of windows and flow
    /// states.
    fn new(reserved: u32, manifest: &Manifest) -> Self {
        let (window, state) = (usize::from(manifest.window), manifest.state.flow.into());
        let address = reserved.next_multiple_of(LINE as u32);
        let stride = window.next_multiple_of(if window < LINE { 8 } else { LINE });
        let writes = manifest.has_capability("packet-write");
        let mut area = Self { address, window, stride, state, bytes: 0, writes };
        area.bytes = area.end_state() + state;
        area
    }

    /// Returns the number of bytes that the plugin must reserve.
    pub fn bytes(manifest: &Manifest) -> usize {
        Self::new(0, manifest).bytes + LINE - 8
    }

    /// Returns the area at the address `reserved`. Returns `None` if the address is not aligned to 8 bytes,
    /// or if the area exceeds the plugin's memory of `memory` bytes.
    pub fn reserved(reserved: u32, manifest: &Manifest, memory: usize) -> Option<Self> {
        let is_there = reserved != 0
            && reserved.is_multiple_of(8)
            && reserved as usize + Self::bytes(manifest) <= memory.min(u32::MAX as usize);
        is_there.then(|| Self::new(reserved, manifest))
    }

    fn packet(index: usize) -> usize {
        index * PACKET
    }

    fn window(&self, index: usize) -> usize {
        Self::packet(MOST_PACKETS) + index * self.stride
    }

    fn state(&self, index: usize) -> usize {
        self.window(MOST_PACKETS) + index * self.state.next_multiple_of(8)
    }

    fn call(&self) -> usize {
        self.state(MOST_PACKETS)
    }

    fn flow_end(&self) -> usize {
        self.call() + CALL
    }

    fn end_state(&self) -> usize {
        self.flow_end() + FLOW_END
    }

    fn address(&self, offset: usize) -> u64 {
        u64::from(self.address) + offset as u64
    }

    /// Returns the bytes of the area. They stay valid after the reservation, because memory doesn't shrink.
    #[inline]
    fn of<'m>(&self, memory: &'m mut [u8]) -> Result<&'m mut [u8], Trap> {
        let region = memory.get_mut(self.address as usize..).and_then(|rest| rest.get_mut(..self.bytes));
        region.ok_or(Trap::MemoryOutOfBounds)
    }
}

/// Parts of the area: the descriptions of the packets, and everything behind them, which begins with the
/// windows.
type Staged<'m> = (&'m mut [[u8; PACKET]], &'m mut [u8]);

/// Splits the area into the descriptions of the packets, and everything behind them, which begins with the
/// windows.
fn parts(region: &mut [u8]) -> Option<Staged<'_>> {
    let (descriptions, rest) = region.split_at_mut_checked(Area::packet(MOST_PACKETS))?;
    Some((descriptions.as_chunks_mut().0, rest))
}

impl Exchange {
    /// Collects the results of the latest step, and returns the next step. `None` if no work is left; the
    /// plugin is then idle.
    ///
    /// # Errors
    /// [`Trap::MemoryOutOfBounds`] if the area isn't in `memory`.
    #[inline]
    pub(super) fn next(&mut self, memory: &mut [u8], area: &Area) -> Result<Option<Step>, Trap> {
        let region = area.of(memory)?;
        if self.call.under_way > 0 {
            let collected = self.with_packets(|exchange, packets| exchange.collect(packets, region, area));
            self.call.active = collected == Some(true);
        }
        if let Some(ended) = self.ends.pop() {
            return Ok(Some(Step::FlowEnded(show_end(ended, region, area))));
        }
        if self.call.active {
            let staged = self.with_packets(|exchange, packets| exchange.stage(packets, region, area));
            self.call.active = staged == Some(true);
            if self.call.active {
                let call = area.address + area.call() as u32;
                return Ok(Some(Step::Packets(call, self.call.under_way as u32)));
            }
        }
        if let Some(now) = self.timers.pending.take() {
            return Ok(Some(Step::Periodic(now)));
        }
        self.idle = self.jobs.pending.is_none();
        Ok((!self.idle).then_some(Step::Job))
    }

    /// Describes the next packets to the plugin. Returns `false` if no packets are left.
    #[inline(never)]
    fn stage(&mut self, packets: &mut Packets<'_>, region: &mut [u8], area: &Area) -> bool {
        let Call { settled, now, .. } = self.call;
        let count = packets.len().saturating_sub(settled).min(MOST_PACKETS);
        let copies = if packets.are_copies() { packet_flags::COPY } else { 0 };
        let Some((descriptions, mut windows)) = parts(region) else { return false };
        let (mut place, mut address) = (settled, area.address(area.window(0)));
        packets.look_at(settled..settled + count, descriptions.iter_mut(), |key, packet, description| {
            let (window, rest) = std::mem::take(&mut windows).split_at_mut_checked(area.stride)?;
            let data = packet.data();
            let shown = data.len().min(area.window);
            copy(window.get_mut(..shown)?, data.get(..shown)?);
            let mut described = describe(place, key, packet, shown);
            described.window = address;
            described.flags |= copies;
            put_packet(&described, description);
            (place, address, windows) = (place + 1, address + area.stride as u64, rest);
            None
        });
        if packets.has_connections() {
            (0..count).for_each(|index| {
                if let Some(description) = Area::description(region, index) {
                    put_connection(description, packets.connection(settled + index));
                }
            });
        }
        if area.state > 0 {
            (0..count).for_each(|index| self.stage_state(index, settled + index, packets, region, area));
        }
        let call = RawCall {
            size: CALL as u16,
            packet_size: PACKET as u16,
            count: count as u32,
            now: now.as_nanos(),
            packets: area.address(Area::packet(0)),
        };
        put(region, area.call(), &call_bytes(&call));
        self.hand_out(packets, count);
        count > 0
    }

    /// Copies the state of a packet's flow into the area. Packets of the same flow in a call share one copy.
    fn stage_state(
        &mut self,
        index: usize,
        place: usize,
        packets: &mut Packets<'_>,
        region: &mut [u8],
        area: &Area,
    ) {
        let flow = packets.flow_number(place);
        if let Some(noted) = self.flows.get_mut(index) {
            *noted = flow;
        }
        if flow == 0 {
            return;
        }
        let first = self.flows.iter().take(index).position(|other| *other == flow).unwrap_or(index);
        let at = area.state(first);
        if let Some(description) = Area::description(region, index) {
            put_flow(description, flow, area.address(at), packets.is_first(place));
        }
        if first == index
            && let Some(state) = packets.state_mut(place)
        {
            put(region, at, state);
        }
    }

    /// Copies the flow's state back from the area. Only the flow's first packet in the call does so.
    fn collect_state(
        &self,
        index: usize,
        place: usize,
        packets: &mut Packets<'_>,
        region: &[u8],
        area: &Area,
    ) {
        let flow = self.flows.get(index).copied().unwrap_or_default();
        // If the flow has ended during a suspension, its state block is released, and the packet's flow
        // number is 0.
        if flow != 0
            && packets.flow_number(place) == flow
            && !self.flows.iter().take(index).any(|other| *other == flow)
            && let Some(state) = packets.state_mut(place)
            && let Some(kept) = region.get(area.state(index)..).and_then(|rest| rest.get(..state.len()))
        {
            state.copy_from_slice(kept);
        }
    }

    /// Collects verdicts and windows of the staged packets. Returns whether more packets are left.
    #[inline(never)]
    fn collect(&mut self, packets: &mut Packets<'_>, region: &mut [u8], area: &Area) -> bool {
        let Call { settled, under_way, .. } = self.call;
        let count = under_way.min(packets.len().saturating_sub(settled));
        if area.state > 0 {
            (0..count).for_each(|index| self.collect_state(index, settled + index, packets, region, area));
        }
        let Some((descriptions, windows)) = parts(region) else { return false };
        let mut windows = &*windows;
        packets.look_at(settled..settled + count, descriptions.iter(), |_, packet, description| {
            let (window, rest) = windows.split_at_checked(area.stride)?;
            windows = rest;
            // `None` keeps the packet's verdict, which is `Pass` at this point.
            let verdict = (!passes(description)).then(|| self.collect_verdict(description));
            if verdict.is_none_or(goes_on) {
                packet.tag = tag(description);
                area.write_window(packet, window);
            }
            verdict
        });
        self.call.settled += under_way;
        self.call.under_way = 0;
        self.call.settled < packets.len()
    }

    /// Converts a description into a verdict, unless the packet simply passes.
    #[cold]
    fn collect_verdict(&mut self, description: &[u8; PACKET]) -> Verdict {
        self.faults.judge(Written::read(description)).unwrap_or(Verdict::Fault)
    }

    /// Calls `look` with packet `number` and the plugin's memory. Copies the packet's window back into the
    /// packet before the call of `look`, and copies the window from the packet again afterwards. Returns
    /// `None` if the plugin doesn't handle that packet now.
    pub(super) fn with_packet<R>(
        &mut self,
        number: u32,
        memory: &mut [u8],
        area: &Area,
        look: impl FnOnce(&mut Packet, &mut [u8]) -> R,
    ) -> Result<Option<R>, Trap> {
        let Some(index) = self.call.place(number) else { return Ok(None) };
        let looked = self.with_packets(|exchange, packets| {
            let place = exchange.call.settled + index;
            if place >= packets.len() {
                return Ok(None);
            }
            let (_, packet) = packets.get_mut(place);
            let window = area.of(memory)?.get(area.window(index)..).ok_or(Trap::MemoryOutOfBounds)?;
            area.write_window(packet, window);
            let result = look(packet, memory);
            area.show(index, packet, area.of(memory)?);
            Ok(Some(result))
        });
        looked.unwrap_or(Ok(None))
    }
}

impl Area {
    /// Copies the first bytes of a packet into its window, and updates its description.
    fn show(&self, index: usize, packet: &Packet, region: &mut [u8]) {
        let data = packet.data();
        let length = data.len().min(self.window);
        let window = region.get_mut(self.window(index)..).and_then(|rest| rest.get_mut(..length));
        if let (Some(window), Some(data)) = (window, data.get(..length))
            && window != data
        {
            window.copy_from_slice(data);
        }
        if let Some(description) = Self::description(region, index) {
            put_shape(description, packet, length);
        }
    }

    /// Copies a window back to its packet, if the plugin may write packets.
    ///
    /// The length follows from the packet. This is right because each host function that changes the packet's
    /// length also updates the window.
    #[inline]
    fn write_window(&self, packet: &mut Packet, window: &[u8]) {
        if !self.writes {
            return;
        }
        let data = packet.data_mut();
        let length = data.len().min(self.window);
        // Skip windows of 128 bytes without a change, the common case. A write would take cache lines from
        // other packets of the batch.
        let is_other = length != 128 || data.first_chunk::<128>() != window.first_chunk();
        if is_other && let (Some(to), Some(from)) = (data.get_mut(..length), window.get(..length)) {
            copy(to, from);
        }
    }

    /// Returns the description of the packet at an index among the staged packets.
    fn description(region: &mut [u8], index: usize) -> Option<&mut [u8; PACKET]> {
        region.get_mut(Self::packet(index)..)?.first_chunk_mut()
    }
}

/// Writes bytes at an offset of the area. Writes nothing if they don't fit, which doesn't happen for offsets
/// of the layout.
#[inline]
fn put(region: &mut [u8], at: usize, bytes: &[u8]) {
    let place = region.get_mut(at..).and_then(|rest| rest.get_mut(..bytes.len()));
    debug_assert!(place.is_some(), "{} bytes at {at}", bytes.len());
    if let Some(place) = place {
        place.copy_from_slice(bytes);
    }
}

/// Writes the end of a flow into the area, and returns its address.
#[cold]
fn show_end(EndedFlow { mut raw, state }: EndedFlow, region: &mut [u8], area: &Area) -> u32 {
    let at = area.flow_end();
    if area.state > 0 && state.len() == area.state {
        raw.state = area.address(area.end_state());
        put(region, area.end_state(), &state);
    }
    put(region, at, &flow_end_bytes(&raw));
    area.address + at as u32
}

/// Copies `from` to `to`, which has the same length. Up to 128 bytes are copied inline, because every packet
/// needs this copy and a call of `memcpy` costs more.
#[inline]
fn copy(to: &mut [u8], from: &[u8]) {
    match from.len() {
        128 => ends::<128>(to, from),
        64..128 => ends::<64>(to, from),
        32..64 => ends::<32>(to, from),
        _ => to.copy_from_slice(from),
    }
}

/// Copies the first and the last `N` bytes. These are all bytes if the length is at most twice `N`.
#[inline]
fn ends<const N: usize>(to: &mut [u8], from: &[u8]) {
    if let (Some(to), Some(from)) = (to.first_chunk_mut::<N>(), from.first_chunk::<N>()) {
        *to = *from;
    }
    if from.len() > N
        && let (Some(to), Some(from)) = (to.last_chunk_mut::<N>(), from.last_chunk::<N>())
    {
        *to = *from;
    }
}
