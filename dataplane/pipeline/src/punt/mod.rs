//! Punting to the kernel: frames wait here until the end of the iteration. Each has the link header with
//! which its device would have received it.

pub(crate) mod control_plane;
pub(crate) mod host_path;
pub(crate) mod own_stack;

use millrace_packet::{DropReason, Packet};
use millrace_units::PortId;
use millrace_wire::{EtherType, ethernet, vlan};

use crate::parse::tags::tags_of;
use crate::ports::{PortSettings, PortTable, Stack, link_header};
use crate::punt::control_plane::ControlPlane;
use crate::punt::own_stack::{Outgoing, OwnStack};
use crate::router::Router;

/// State of the punt stage.
pub(crate) struct Punt {
    pub own: OwnStack,
    /// Frames of the own stack.
    pub frames: Vec<Outgoing>,
    pub control_plane: ControlPlane,
    /// Packets to be punted to the kernel.
    pub for_kernel: Vec<Packet>,
}

impl Punt {
    /// Returns the state of a router without ports. `seed` keys the hashes of the own stack.
    pub fn new(seed: u64) -> Self {
        Self {
            own: OwnStack::new(seed),
            frames: Vec::new(),
            control_plane: ControlPlane::default(),
            for_kernel: Vec::new(),
        }
    }

    /// Returns the number of packets that wait here.
    pub fn held(&self) -> usize {
        self.frames.len() + self.for_kernel.len()
    }
}

impl PortTable {
    fn hand_back_group(
        &self,
        port: PortId,
        group: &[Packet],
        hand_back: &mut impl FnMut(u32, &[&[u8]]) -> usize,
    ) -> u64 {
        let Some(Stack::Kernel { ifindex }) = self.get(port).map(|entry| entry.settings.stack) else {
            return 0;
        };
        let whole = |packet: &Packet| match packet.is_linear() {
            true => None,
            false => Some(packet.to_vec()),
        };
        let copies: Vec<Option<Vec<u8>>> = group.iter().map(whole).collect();
        let frames: Vec<&[u8]> = group
            .iter()
            .zip(&copies)
            .map(|(packet, copy)| copy.as_deref().unwrap_or(packet.data()))
            .collect();
        hand_back(ifindex, &frames) as u64
    }
}

impl Router {
    /// Queues a packet for the kernel. A packet without a link header of its port and family gets one: a
    /// plugin may have made the packet or changed its link header. Otherwise the kernel could get a frame
    /// that no filter has checked.
    pub(crate) fn punt(&mut self, mut packet: Packet) {
        let Some(entry) = self.ports.get(packet.port) else {
            return self.drop_packet(packet, DropReason::PortDown);
        };
        if !is_frame_of(&entry.settings, &packet) {
            let ether_type = match packet.network().first().map(|first| first >> 4) {
                Some(4) => EtherType::IPV4,
                Some(6) => EtherType::IPV6,
                _ => return self.drop_packet(packet, DropReason::PluginFailed),
            };
            if !link_header(&entry.settings, entry.settings.mac, ether_type).apply(&mut packet) {
                return self.drop_packet(packet, DropReason::PluginFailed);
            }
        }
        self.punt.for_kernel.push(packet);
    }

    /// Calls `hand_back` with the frames for the kernel, port by port. `hand_back` returns the number of
    /// accepted frames, which are the first ones.
    pub(crate) fn for_the_kernel(&mut self, mut hand_back: impl FnMut(u32, &[&[u8]]) -> usize) {
        if self.handover.is_some() {
            self.hand_over_hosts();
        }
        if self.punt.for_kernel.is_empty() {
            return;
        }
        let packets = std::mem::take(&mut self.punt.for_kernel);
        for group in packets.chunk_by(|a, b| a.port == b.port) {
            let Some(port) = group.first().map(|packet| packet.port) else { continue };
            let taken = self.ports.hand_back_group(port, group, &mut hand_back);
            self.observation.totals.to_host += taken;
            self.observation.totals.dropped += group.len() as u64 - taken;
            for packet in group.iter().skip(taken as usize) {
                self.observation.drop_log.note(packet, DropReason::HostRefused, self.gates.plugins());
            }
            if self.observation.trace.is_some() {
                self.observation.trace_handed_back(group, taken as usize);
            }
            if let Some(entry) = self.ports.get_mut(port) {
                entry.count.to_host += taken;
                entry.count.drops.add(DropReason::HostRefused, group.len() as u64 - taken);
            }
        }
        drop(packets);
    }
}

/// Returns whether the port would receive the packet's link header, and the EtherType matches the network
/// header.
fn is_frame_of(port: &PortSettings, packet: &Packet) -> bool {
    let Ok(frame) = ethernet::Frame::new_checked(packet.data()) else { return false };
    let Ok(stack) = vlan::Stack::parse(frame.ether_type(), frame.payload()) else { return false };
    let expected = match packet.network().first().map(|first| first >> 4) {
        Some(4) => EtherType::IPV4,
        Some(6) => EtherType::IPV6,
        // The hardware type of an ARP message begins with zeros.
        _ => EtherType::ARP,
    };
    let is_ours = frame.destination().is_multicast() || frame.destination() == port.mac;
    packet.network_offset() == ethernet::HEADER_LEN + stack.len
        && stack.ether_type == expected
        && is_ours
        && tags_of(&stack) == port.tags
}

#[cfg(test)]
mod tests;
