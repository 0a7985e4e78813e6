//! Staging of packets for a shared object: describes them in the router's memory. Packet bytes and flow
//! states are not copied.

use std::fmt;

use millrace_packet::Packet;
use millrace_plugin_abi::Packets;
use millrace_plugin_abi::Verdict;
use millrace_plugin_abi::binary::{MOST_PACKETS, RawCall, RawPacket, packet_flags};

use crate::Manifest;
use crate::runtime::exchange::{Call, Exchange};
use crate::runtime::raw_packet::{Written, describe, describe_connection, goes_on, transport_offset};

/// Descriptions of a call and its packets, as passed to the object.
pub(super) struct Area {
    call: RawCall,
    packets: [RawPacket; MOST_PACKETS],
    /// Maximum bytes of a window.
    window: usize,
    /// Bytes of state that the plugin keeps for each flow.
    state: usize,
}

impl fmt::Debug for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Area").field("call", &self.call).finish_non_exhaustive()
    }
}

impl Area {
    pub fn new(manifest: &Manifest) -> Self {
        Self {
            call: RawCall::default(),
            packets: [RawPacket::default(); MOST_PACKETS],
            window: manifest.window.into(),
            state: manifest.state.flow.into(),
        }
    }

    /// Returns the description of the staged call.
    pub fn call(&mut self) -> *mut RawCall {
        &raw mut self.call
    }

    /// Describes the next packets; returns `false` if no packets are left.
    #[inline]
    pub fn stage(&mut self, exchange: &mut Exchange, packets: &mut Packets<'_>) -> bool {
        let Call { settled, now, .. } = exchange.call;
        let count = packets.len().saturating_sub(settled).min(MOST_PACKETS);
        for index in 0..count {
            let place = settled + index;
            let (key, packet) = packets.get_mut(place);
            let mut described = describe(place, key, packet, packet.data().len().min(self.window));
            described.window = packet.data_mut().as_mut_ptr() as u64;
            if packets.are_copies() {
                described.flags |= packet_flags::COPY;
            }
            describe_connection(&mut described, packets.connection(place));
            self.stage_state(place, packets, &mut described);
            if let Some(slot) = self.packets.get_mut(index) {
                *slot = described;
            }
        }
        self.call = RawCall {
            size: size_of::<RawCall>() as u16,
            packet_size: size_of::<RawPacket>() as u16,
            count: count as u32,
            now: now.as_nanos(),
            packets: self.packets.as_mut_ptr() as u64,
        };
        exchange.hand_out(packets, count);
        count > 0
    }

    /// Writes the number of the packet's flow or connection and the address of its state into the description. All
    /// packets of the flow or connection get the same address.
    #[inline]
    fn stage_state(&self, place: usize, packets: &mut Packets<'_>, described: &mut RawPacket) {
        let flow = packets.flow_number(place);
        if self.state == 0 || flow == 0 {
            return;
        }
        described.flow = flow;
        if packets.is_first(place) {
            described.flags |= packet_flags::FIRST;
        }
        if let Some(state) = packets.state_mut(place) {
            described.state = state.as_mut_ptr() as u64;
        }
    }

    /// Collects the verdicts of the staged packets.
    #[inline]
    pub fn collect(&mut self, exchange: &mut Exchange, packets: &mut Packets<'_>) {
        let Call { settled, under_way, .. } = exchange.call;
        for (index, described) in self.packets.iter().enumerate().take(under_way) {
            let written = Written::of(described);
            let verdict = exchange.faults.judge(written);
            if verdict.is_ok_and(goes_on) {
                packets.get_mut(settled + index).1.tag = written.tag;
            }
            packets.set_verdict(settled + index, verdict.unwrap_or(Verdict::Fault));
        }
        exchange.call.settled += under_way;
        exchange.call.under_way = 0;
    }

    /// Updates the description of a packet after a host function changed the packet.
    pub fn show(&mut self, index: usize, packet: &mut Packet) {
        let Some(described) = self.packets.get_mut(index) else { return };
        let window = packet.data().len().min(self.window);
        described.flags &= !packet_flags::MORE;
        if packet.len() > window {
            described.flags |= packet_flags::MORE;
        }
        described.length = packet.len() as u32;
        described.window_length = window as u16;
        described.network = packet.network_offset() as u16;
        described.transport = transport_offset(packet);
        described.window = packet.data_mut().as_mut_ptr() as u64;
    }
}
