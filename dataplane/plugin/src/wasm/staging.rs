//! Packets on their way into a plugin's memory and back.
//!
//! A plugin gives memory for a call once, when it begins. Up to 64 packets at a time are described there, with the window of
//! each; when the plugin has handled them, verdicts are read and windows that changed are written to the packets.

use millrace_packet::Packet;
use millrace_plugin_abi::binary::{MOST_PACKETS, RawCall, RawPacket, export, packet_flags};
use millrace_plugin_abi::{Packets, Verdict};
use wasmtime::Trap;

use super::layout::{CALL, FLOW_END, PACKET, call_bytes, flow_end_bytes, packet_bytes};
use crate::exchange::{Call, EndedFlow, Exchange};
use crate::raw_packet::{Written, describe, goes_on, transport_offset};

/// What the driver (`driver.wat`) is told to do, by the numbers that it knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub(super) enum Step {
    /// To wait.
    Wait = 0,
    /// To handle the call at an address.
    Packets = 1,
    /// To hear of the flow at an address.
    FlowEnded = 2,
    /// To call `millrace_periodic` at a time.
    Periodic = 3,
    /// To return: there is a job for the caller.
    Leave = 4,
}

impl Step {
    /// The function of the plugin that is called.
    pub const fn place(self) -> &'static str {
        match self {
            Self::Wait | Self::Leave => "a call",
            Self::Packets => export::PACKETS,
            Self::FlowEnded => export::FLOW_ENDED,
            Self::Periodic => export::PERIODIC,
        }
    }
}

/// Where calls stand in a plugin's memory. There are, in this order: the call, 64 descriptions, 64 windows, 64 times the
/// state of a flow, a flow's end with its state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Area {
    address: u32,
    window: usize,
    state: usize,
}

impl Area {
    /// At `address`, with windows and states of flows of so many bytes.
    pub fn new(address: u32, window: u16, state: u16) -> Self {
        Self { address, window: window.into(), state: state.into() }
    }

    /// Bytes that are needed.
    pub fn bytes(window: u16, state: u16) -> usize {
        Self::new(0, window, state).end()
    }

    fn stride(&self) -> usize {
        self.window.next_multiple_of(8)
    }

    fn packet(index: usize) -> usize {
        CALL + index * PACKET
    }

    fn window(&self, index: usize) -> usize {
        Self::packet(MOST_PACKETS) + index * self.stride()
    }

    fn state(&self, index: usize) -> usize {
        self.window(MOST_PACKETS) + index * self.state.next_multiple_of(8)
    }

    fn flow_end(&self) -> usize {
        self.state(MOST_PACKETS)
    }

    fn end_state(&self) -> usize {
        self.flow_end() + FLOW_END
    }

    fn end(&self) -> usize {
        self.end_state() + self.state
    }

    fn address(&self, offset: usize) -> u64 {
        u64::from(self.address) + offset as u64
    }

    /// The area in memory. It was there when it was reserved, and memory doesn't shrink.
    fn of<'m>(&self, memory: &'m mut [u8]) -> Result<&'m mut [u8], Trap> {
        let start = self.address as usize;
        memory.get_mut(start..start + self.end()).ok_or(Trap::MemoryOutOfBounds)
    }

    /// Whether all of it lies in a memory of so many bytes, at an address that the structures may have.
    pub fn fits(&self, memory: usize) -> bool {
        self.address != 0 && self.address.is_multiple_of(8) && self.address(self.end()) <= memory as u64
    }
}

impl Exchange {
    /// Takes what the plugin has done, and says what it is to do next, with an address or a time.
    ///
    /// # Errors
    /// [`Trap::MemoryOutOfBounds`] when the area isn't in memory.
    #[inline]
    pub(super) fn next(&mut self, memory: &mut [u8], area: &Area) -> Result<(Step, u64), Trap> {
        self.idle = false;
        let region = area.of(memory)?;
        if self.call.under_way > 0 {
            self.collect(region, area);
        }
        if let Some(EndedFlow { mut raw, state }) = self.pop_end() {
            let at = area.flow_end();
            if area.state > 0 && state.len() == area.state {
                raw.state = area.address(area.end_state());
                region[area.end_state()..][..area.state].copy_from_slice(&state);
            }
            region[at..at + FLOW_END].copy_from_slice(&flow_end_bytes(&raw));
            return Ok((Step::FlowEnded, area.address(at)));
        }
        if self.call.active {
            self.stage(region, area);
            if self.call.under_way > 0 {
                return Ok((Step::Packets, area.address(0)));
            }
            self.call.active = false;
        }
        if let Some(now) = self.periodic.take() {
            return Ok((Step::Periodic, now.as_nanos()));
        }
        if self.job.is_some() {
            return Ok((Step::Leave, 0));
        }
        self.idle = true;
        Ok((Step::Wait, 0))
    }

    /// Describes the next packets to the plugin.
    #[inline]
    fn stage(&mut self, region: &mut [u8], area: &Area) {
        self.with_packets(|exchange, packets| {
            let Call { settled, now, .. } = exchange.call;
            let count = packets.len().saturating_sub(settled).min(MOST_PACKETS);
            for index in 0..count {
                let (key, packet) = packets.get_mut(settled + index);
                let data = packet.data();
                let length = data.len().min(area.window);
                exchange.lengths[index] = length as u16;
                let at = area.window(index);
                region[at..at + length].copy_from_slice(&data[..length]);
                let mut described = describe(settled + index, key, packet, length);
                described.window = area.address(at);
                if packets.are_copies() {
                    described.flags |= packet_flags::COPY;
                }
                exchange.stage_state(index, settled + index, packets, &mut described, region, area);
                let at = Area::packet(index);
                region[at..at + PACKET].copy_from_slice(&packet_bytes(&described));
            }
            let call = RawCall {
                size: CALL as u16,
                packet_size: PACKET as u16,
                count: count as u32,
                now: now.as_nanos(),
                packets: area.address(Area::packet(0)),
            };
            region[..CALL].copy_from_slice(&call_bytes(&call));
            exchange.call.under_way = count;
        });
    }

    /// Puts the state of a packet's flow where the plugin finds it. Packets of a flow in one call share a place.
    #[inline]
    fn stage_state(
        &mut self,
        index: usize,
        place: usize,
        packets: &mut Packets<'_>,
        described: &mut RawPacket,
        region: &mut [u8],
        area: &Area,
    ) {
        if area.state == 0 {
            return;
        }
        let flow = packets.flow_number(place);
        self.flows[index] = flow;
        if flow == 0 {
            return;
        }
        described.flow = flow;
        if packets.is_first(place) {
            described.flags |= packet_flags::FIRST;
        }
        let first = self.flows[..index].iter().position(|other| *other == flow).unwrap_or(index);
        let at = area.state(first);
        described.state = area.address(at);
        if first == index
            && let Some(state) = packets.state_mut(place)
        {
            region[at..at + area.state].copy_from_slice(state);
        }
    }

    /// Takes the state of a packet's flow back, where it is the first packet of its flow in the call.
    #[inline]
    fn collect_state(
        &self,
        index: usize,
        place: usize,
        packets: &mut Packets<'_>,
        region: &[u8],
        area: &Area,
    ) {
        let flow = self.flows[index];
        // The flow may have ended, and its state be gone.
        if area.state > 0
            && flow != 0
            && packets.flow_number(place) == flow
            && !self.flows[..index].contains(&flow)
            && let Some(state) = packets.state_mut(place)
        {
            state.copy_from_slice(&region[area.state(index)..][..area.state]);
        }
    }

    /// Takes verdicts and windows of the packets that the plugin has.
    #[inline]
    fn collect(&mut self, region: &[u8], area: &Area) {
        self.with_packets(|exchange, packets| {
            let Call { settled, under_way, .. } = exchange.call;
            for index in 0..under_way.min(packets.len().saturating_sub(settled)) {
                let place = settled + index;
                exchange.collect_state(index, place, packets, region, area);
                let Some(written) = Written::read(&region[Area::packet(index)..]) else { continue };
                let verdict = exchange.judge(written);
                if verdict.is_ok_and(goes_on) {
                    let (_, packet) = packets.get_mut(place);
                    packet.tag = written.tag;
                    let window = &region[area.window(index)..][..exchange.lengths[index].into()];
                    write_window(packet, window);
                }
                packets.set_verdict(place, verdict.unwrap_or(Verdict::Fault));
            }
            exchange.call.settled += under_way;
            exchange.call.under_way = 0;
        });
    }

    /// Does something with the packet of a number, after what the plugin wrote into its window has been written to it:
    /// `look` gets the packet and how many bytes of it its window has. Afterwards the window shows the packet as it is then.
    /// `None` when the plugin doesn't have that packet.
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
            let length = usize::from(exchange.lengths[index]);
            write_window(packet, &area.of(memory)?[area.window(index)..][..length]);
            let result = look(packet, memory);
            exchange.lengths[index] = area.show(index, packet, area.of(memory)?);
            Ok(Some(result))
        });
        looked.unwrap_or(Ok(None))
    }
}

impl Area {
    /// Writes the beginning of a packet into its window again, and the offsets that may have changed into its
    /// description. Returns how many bytes the window has now.
    fn show(&self, index: usize, packet: &Packet, region: &mut [u8]) -> u16 {
        let data = packet.data();
        let length = data.len().min(self.window);
        let at = self.window(index);
        if region[at..at + length] != data[..length] {
            region[at..at + length].copy_from_slice(&data[..length]);
        }
        self.show_offsets(index, packet, length, region);
        length as u16
    }

    fn show_offsets(&self, index: usize, packet: &Packet, window: usize, region: &mut [u8]) {
        use std::mem::offset_of;
        let mut put = |offset: usize, bytes: &[u8]| {
            let at = Area::packet(index) + offset;
            region[at..at + bytes.len()].copy_from_slice(bytes);
        };
        let flags = if packet.len() > window { packet_flags::MORE } else { 0 };
        put(offset_of!(RawPacket, flags), &flags.to_le_bytes());
        put(offset_of!(RawPacket, length), &(packet.len() as u32).to_le_bytes());
        put(offset_of!(RawPacket, window_length), &(window as u16).to_le_bytes());
        put(offset_of!(RawPacket, network), &(packet.network_offset() as u16).to_le_bytes());
        put(offset_of!(RawPacket, transport), &transport_offset(packet).to_le_bytes());
    }
}

/// Writes a window to its packet, if it differs.
#[inline]
fn write_window(packet: &mut Packet, window: &[u8]) {
    let data = packet.data_mut();
    let length = window.len().min(data.len());
    if data[..length] != window[..length] {
        data[..length].copy_from_slice(&window[..length]);
    }
}
