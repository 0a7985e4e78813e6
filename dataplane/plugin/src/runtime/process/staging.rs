//! Staging of packets for a process: copies descriptions, windows and flow states into shared memory, and
//! verdicts, windows and flow states back.
//!
//! The process may write to the shared memory at any time. So the router reads each word once, and checks the
//! copy. Lengths and places come from the packets, never from the shared memory.

use std::sync::atomic::{AtomicU64, Ordering};

use millrace_packet::Packet;
use millrace_plugin_abi::binary::{MOST_PACKETS, MOST_WINDOW, packet_flags};
use millrace_plugin_abi::process::{ADDRESS, DESCRIPTION, Layout, load, store};
use millrace_plugin_abi::{Packets, Verdict};

use crate::MOST_FLOW_STATE;
use crate::runtime::exchange::{Call, Exchange};
use crate::runtime::raw_packet::{Written, describe, describe_connection, goes_on, transport_offset};
use crate::runtime::wasm::layout::words as words_of;

/// Words of a description with fields that the plugin writes.
const TAG: usize = 3;
const VERDICT: usize = 6;
const UNTIL: usize = 7;

/// Shared memory with its layout, and whether the plugin may write packets.
#[derive(Clone, Copy)]
pub(super) struct Stage<'w> {
    pub words: &'w [AtomicU64],
    pub layout: Layout,
    pub writes: bool,
}

impl<'w> Stage<'w> {
    /// Returns `count` words from `at` on; fewer if the memory ends before.
    #[inline]
    fn at(&self, at: usize, count: usize) -> &'w [AtomicU64] {
        let rest = self.words.get(at..).unwrap_or_default();
        rest.get(..count).unwrap_or(rest)
    }

    #[inline]
    pub(super) fn description(&self, index: usize) -> &'w [AtomicU64] {
        self.at(self.layout.description(index), DESCRIPTION)
    }

    #[inline]
    fn window(&self, index: usize) -> &'w [AtomicU64] {
        self.at(self.layout.window(index), self.layout.window.div_ceil(8))
    }

    #[inline]
    fn flow_state(&self, index: usize) -> &'w [AtomicU64] {
        self.at(self.layout.state(index), self.layout.state.div_ceil(8))
    }

    /// Returns what the process adds to a place in the memory to get its address: the address of the memory. So the
    /// process needn't write to descriptions, which would take their cache lines away from the worker.
    #[inline]
    fn address(&self) -> u64 {
        self.words.get(ADDRESS).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Copies the next packets of the call into the memory. Returns their number.
    pub fn stage(&self, exchange: &mut Exchange, packets: &mut Packets<'_>) -> usize {
        let settled = exchange.call.settled;
        let count = packets.len().saturating_sub(settled).min(MOST_PACKETS);
        let copies = if packets.are_copies() { packet_flags::COPY } else { 0 };
        let address = self.address();
        for index in 0..count {
            let place = settled + index;
            let (key, packet) = packets.get_mut(place);
            let data = packet.data();
            let shown = data.get(..self.layout.window).unwrap_or(data);
            let mut described = describe(place, key, packet, shown.len());
            store(self.window(index), shown);
            described.window = address.wrapping_add((self.layout.window(index) * 8) as u64);
            described.flags |= copies;
            describe_connection(&mut described, packets.connection(place));
            if self.layout.state > 0 {
                self.stage_state(index, place, exchange, packets, &mut described);
            }
            for (word, value) in self.description(index).iter().zip(words_of(&described)) {
                word.store(value, Ordering::Relaxed);
            }
        }
        exchange.hand_out(packets, count);
        count
    }

    /// Copies the state of a packet's flow into the memory. Packets of the same flow in a call share one
    /// copy.
    fn stage_state(
        &self,
        index: usize,
        place: usize,
        exchange: &mut Exchange,
        packets: &mut Packets<'_>,
        described: &mut millrace_plugin_abi::binary::RawPacket,
    ) {
        let flow = packets.flow_number(place);
        if let Some(noted) = exchange.flows.get_mut(index) {
            *noted = flow;
        }
        if flow == 0 {
            return;
        }
        let first = exchange.flows.iter().take(index).position(|other| *other == flow).unwrap_or(index);
        described.flow = flow;
        described.state = self.address().wrapping_add((self.layout.state(first) * 8) as u64);
        if packets.is_first(place) {
            described.flags |= packet_flags::FIRST;
        }
        if first == index
            && let Some(state) = packets.state_mut(place)
        {
            store(self.flow_state(index), state);
        }
    }

    /// Takes over verdicts, windows and flow states of the staged packets. Returns whether packets without a
    /// verdict are left.
    pub fn collect(&self, exchange: &mut Exchange, packets: &mut Packets<'_>) -> bool {
        let Call { settled, under_way, .. } = exchange.call;
        let count = under_way.min(packets.len().saturating_sub(settled));
        for index in 0..count {
            let place = settled + index;
            if self.layout.state > 0 {
                self.collect_state(index, place, exchange, packets);
            }
            let written = written(self.description(index));
            let verdict = exchange.faults.judge(written).unwrap_or(Verdict::Fault);
            if goes_on(verdict) {
                let (_, packet) = packets.get_mut(place);
                packet.tag = written.tag;
                self.take_window(index, packet);
            }
            packets.set_verdict(place, verdict);
        }
        exchange.call.settled += under_way;
        exchange.call.under_way = 0;
        exchange.call.settled < packets.len()
    }

    /// Copies the flow's state back. Only the flow's first packet in the call does so.
    fn collect_state(&self, index: usize, place: usize, exchange: &Exchange, packets: &mut Packets<'_>) {
        let flow = exchange.flows.get(index).copied().unwrap_or_default();
        // If the flow has ended meanwhile, its state block is released, and the packet's flow number is 0.
        if flow != 0
            && packets.flow_number(place) == flow
            && !exchange.flows.iter().take(index).any(|other| *other == flow)
            && let Some(state) = packets.state_mut(place)
            && state.len() <= usize::from(MOST_FLOW_STATE)
        {
            load(self.flow_state(index), state);
        }
    }

    /// Copies a window back to its packet, if the plugin may write packets and has changed the window. The
    /// length follows from the packet.
    fn take_window(&self, index: usize, packet: &mut Packet) {
        if !self.writes {
            return;
        }
        let mut window = [0; MOST_WINDOW as usize];
        let length = packet.data().len().min(self.layout.window);
        let Some(window) = window.get_mut(..length) else { return };
        load(self.window(index), window);
        // Skip unchanged windows, the common case: a write would take cache lines from other packets.
        if packet.data().get(..length) != Some(&*window)
            && let Some(to) = packet.data_mut().get_mut(..length)
        {
            to.copy_from_slice(window);
        }
    }

    /// Calls `look` with packet `number`. Copies the packet's window back before the call, and shows the
    /// changed packet to the process afterwards. Returns `None` if the process doesn't handle that packet now.
    pub fn with_packet<R>(
        &self,
        exchange: &mut Exchange,
        number: u32,
        look: impl FnOnce(&mut Packet) -> R,
    ) -> Option<R> {
        let index = exchange.call.place(number)?;
        exchange.with_packets(|exchange, packets| {
            let place = exchange.call.settled + index;
            if place >= packets.len() {
                return None;
            }
            let (_, packet) = packets.get_mut(place);
            self.take_window(index, packet);
            let result = look(packet);
            self.show(index, packet);
            Some(result)
        })?
    }

    /// Copies the first bytes of a changed packet into its window, and updates its description.
    fn show(&self, index: usize, packet: &Packet) {
        let data = packet.data();
        let shown = data.get(..self.layout.window).unwrap_or(data);
        store(self.window(index), shown);
        let [first, _, third, ..] = self.description(index) else { return };
        let more = if packet.len() > shown.len() { packet_flags::MORE } else { 0 };
        let start = first.load(Ordering::Relaxed) as u32 & !(u32::from(packet_flags::MORE) << 16);
        let start = start | u32::from(more) << 16;
        first.store(u64::from(start) | (packet.len() as u64) << 32, Ordering::Relaxed);
        let ether_type = third.load(Ordering::Relaxed) >> 48 << 48;
        let offsets = shown.len() as u64
            | u64::from(packet.network_offset() as u16) << 16
            | u64::from(transport_offset(packet)) << 32;
        third.store(offsets | ether_type, Ordering::Relaxed);
    }
}

/// Reads the fields that the plugin may write from a description, each word once.
#[inline]
fn written(description: &[AtomicU64]) -> Written {
    let word = |at: usize| description.get(at).map_or(0, |word| word.load(Ordering::Relaxed));
    let verdict = word(VERDICT);
    Written {
        tag: (word(TAG) >> 16) as u8,
        verdict: verdict as u8,
        reason: (verdict >> 8) as u8,
        target: (verdict >> 16) as u16,
        until: word(UNTIL),
    }
}
