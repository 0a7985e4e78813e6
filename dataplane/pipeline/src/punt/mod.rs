//! Punting to the kernel: frames wait here until the end of the iteration. Each frame has the link header
//! with which a device would have received it.

pub(crate) mod control_plane;
pub(crate) mod host_path;
pub(crate) mod own_stack;

use millrace_forward::NeighbourKey;
use millrace_packet::{DropReason, Packet, Pool};
use millrace_plugin::{PaidStages, WorkerPlugins};
use millrace_units::{Instant, PortId};
use millrace_wire::{EtherType, ethernet, vlan};

use crate::gate_tables::WorkerTable;
use crate::handover::{Errand, Handover, Note};
use crate::observe::Observation;
use crate::parse::tags::tags_of;
use crate::ports::{DeviceId, PortSettings, PortTable, Stack, link_header};
use crate::punt::control_plane::ControlPlane;
use crate::punt::own_stack::{Context, Outcome, Outgoing, OwnStack};

/// State of the punt stage.
pub(crate) struct Punt {
    pub own: OwnStack,
    /// Frames that the own stack sends.
    pub frames: Vec<Outgoing>,
    pub control_plane: ControlPlane,
    /// Packets that wait to be punted to the kernel.
    pub for_kernel: Vec<Packet>,
}

impl Punt {
    /// Returns the state of a router without ports. `seed` keys the hashes of the own stack's resolver.
    pub fn new(seed: u64) -> Self {
        Self {
            own: OwnStack::new(seed),
            frames: Vec::new(),
            control_plane: ControlPlane::default(),
            for_kernel: Vec::new(),
        }
    }

    /// Returns the number of frames and packets that wait here.
    pub fn held(&self) -> usize {
        self.frames.len() + self.for_kernel.len()
    }

    /// Queues a packet for the kernel. If the packet's link header doesn't match its port and IP version, it
    /// gets a new one: a plugin may have made the packet or changed its header. Without this check, the
    /// kernel could get a frame that no filter has seen in that form.
    ///
    /// # Errors
    /// Returns the packet with a drop reason if it can't get a link header.
    pub fn queue(&mut self, mut packet: Packet, ports: &PortTable) -> Result<(), (Packet, DropReason)> {
        let Some(entry) = ports.get(packet.port) else { return Err((packet, DropReason::PortDown)) };
        if !is_frame_of(&entry.settings, &packet) {
            let ether_type = match packet.network().first().map(|first| first >> 4) {
                Some(4) => EtherType::IPV4,
                Some(6) => EtherType::IPV6,
                _ => return Err((packet, DropReason::PluginFailed)),
            };
            if !link_header(&entry.settings, entry.settings.mac, ether_type).apply(&mut packet) {
                return Err((packet, DropReason::PluginFailed));
            }
        }
        self.for_kernel.push(packet);
        Ok(())
    }
}

/// State of the punt stage, which delivers packets to the own stack and to the kernel.
pub(crate) struct PuntStage<'a> {
    pub pool: &'a Pool,
    pub ports: &'a mut PortTable,
    pub plugins: &'a WorkerPlugins<WorkerTable>,
    /// Rings to other workers; `None` with a single worker.
    pub handover: Option<&'a mut Handover>,
    pub observation: &'a mut Observation,
    /// Packets of the own stack that still have to pass the stages, as router-made packets.
    pub made: &'a mut Vec<Packet>,
    pub punt: &'a mut Punt,
}

impl PuntStage<'_> {
    /// Delivers a packet to the own stack. Counts it unless the stack refuses or drops it.
    pub fn deliver(&mut self, packet: &Packet, now: Instant) -> Outcome {
        let mut outcome = Outcome::Delivered;
        self.with_own(now, |own, context| outcome = own.handle(packet, context));
        if let Outcome::Delivered = outcome {
            self.observation.totals.to_host += 1;
            if let Some(entry) = self.ports.get_mut(packet.port) {
                entry.count.to_host += 1;
            }
        }
        outcome
    }

    /// Calls the own stack through `call`, and counts the packets and frames that it makes.
    pub fn with_own(&mut self, now: Instant, call: impl FnOnce(&mut OwnStack, &mut Context<'_>)) {
        let before = self.punt.frames.len() + self.made.len();
        let (pool, ports, frames, packets) =
            (self.pool, &*self.ports, &mut self.punt.frames, &mut *self.made);
        call(&mut self.punt.own, &mut Context { pool, ports, now, frames, packets });
        self.observation.totals.created.own += (self.punt.frames.len() + self.made.len() - before) as u64;
    }

    /// Announces the addresses of the ports of a device that was just opened.
    pub fn announce_addresses(&mut self, device: DeviceId, now: Instant) {
        let is_own = |settings: &PortSettings| {
            settings.device == device && settings.up && !matches!(settings.stack, Stack::Kernel { .. })
        };
        let own = self.ports.iter().filter(|(_, entry)| is_own(&entry.settings));
        let address = |(port, address)| NeighbourKey { port, address };
        let addresses =
            own.flat_map(|(id, entry)| entry.settings.addresses.iter().map(move |net| (id, net.addr())));
        for key in addresses.map(address).collect::<Vec<_>>() {
            self.with_own(now, |own, context| own.announce(key, context));
        }
    }

    /// Calls `hand_back` with the frames for the kernel, port by port. `hand_back` returns the number n of
    /// accepted frames; the first n frames then count as accepted.
    pub fn hand_back(&mut self, mut hand_back: impl FnMut(u32, &[&[u8]]) -> usize) {
        if self.handover.is_some() {
            self.hand_over();
        }
        if self.punt.for_kernel.is_empty() {
            return;
        }
        let packets = std::mem::take(&mut self.punt.for_kernel);
        for group in packets.chunk_by(|a, b| a.port == b.port) {
            let Some(port) = group.first().map(|packet| packet.port) else { continue };
            let taken = hand_back_group(self.ports, (port, group), &mut hand_back);
            self.observation.totals.to_host += taken;
            self.observation.totals.dropped += group.len() as u64 - taken;
            for packet in group.iter().skip(taken as usize) {
                self.observation.drop_log.note(packet, DropReason::HostRefused, self.plugins);
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

    /// Hands packets for the kernel over to the workers that own their ingress devices.
    fn hand_over(&mut self) {
        let packets = std::mem::take(&mut self.punt.for_kernel);
        for packet in packets {
            let device = self.ports.get(packet.port).map(|entry| entry.settings.device);
            match (device, &mut self.handover) {
                (Some(device), Some(handover)) if !handover.owns(device) => {
                    let mark = packet.trace;
                    // Bindings that name nobody leave their packets in the class of the kernel, beside routing protocols.
                    let payer = PaidStages::of(self.plugins).named_payer_of_account(packet.counts_for);
                    let note = Note { payer, ..Note::of(Errand::Host) };
                    match handover.put_to_device(device, packet, note) {
                        Ok(()) => {
                            self.observation.totals.handed += 1;
                            if mark != 0 {
                                self.observation.trace_handed_over(mark);
                            }
                        }
                        Err(packet) => self.observation.drop_packet(
                            packet,
                            DropReason::HandoverFull,
                            self.ports,
                            self.plugins,
                        ),
                    }
                }
                _ => self.punt.for_kernel.push(packet),
            }
        }
    }
}

/// Calls `hand_back` with the frames of one port. Returns the number of accepted frames.
fn hand_back_group(
    ports: &PortTable,
    (port, group): (PortId, &[Packet]),
    hand_back: &mut impl FnMut(u32, &[&[u8]]) -> usize,
) -> u64 {
    let Some(Stack::Kernel { ifindex }) = ports.get(port).map(|entry| entry.settings.stack) else {
        return 0;
    };
    let whole = |packet: &Packet| match packet.is_linear() {
        true => None,
        false => Some(packet.to_vec()),
    };
    let copies: Vec<Option<Vec<u8>>> = group.iter().map(whole).collect();
    let frames: Vec<&[u8]> =
        group.iter().zip(&copies).map(|(packet, copy)| copy.as_deref().unwrap_or(packet.data())).collect();
    hand_back(ifindex, &frames) as u64
}
/// Returns whether the packet's link header is addressed to the port, has its tags, and has the EtherType of
/// the network header.
fn is_frame_of(port: &PortSettings, packet: &Packet) -> bool {
    let Ok(frame) = ethernet::Frame::new_checked(packet.data()) else { return false };
    let Ok(stack) = vlan::Stack::parse(frame.ether_type(), frame.payload()) else { return false };
    let expected = match packet.network().first().map(|first| first >> 4) {
        Some(4) => EtherType::IPV4,
        Some(6) => EtherType::IPV6,
        // The first octet of an ARP message is 0, so it looks like IP version 0.
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
