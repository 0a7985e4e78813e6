//! Receive stage: reads the link header, and determines the ingress port and the offset of the network
//! header.

use millrace_packet::{BATCH_SIZE, DropReason, Packet};
use millrace_units::Instant;
use millrace_wire::ethernet::{self, Frame};
use millrace_wire::mac_addr::MacAddr;
use millrace_wire::{EtherType, vlan};

use crate::ingress::Ingress;
use crate::ingress::plain::read_plain;
use crate::parse::tags::{Tags, tags_of};
use crate::ports::{DeviceId, PortEntry, PortTable};
use crate::work::{Fate, Work};

/// Result of the receive stage for a frame.
pub(crate) struct Link {
    /// EtherType after the VLAN tags.
    pub ether_type: EtherType,
    /// Fate of the frame after the checks of the link layer.
    pub fate: Fate,
}

impl Link {
    fn drop(reason: DropReason) -> Self {
        Self { ether_type: EtherType(0), fate: Fate::Drop(reason) }
    }
}

impl Ingress<'_> {
    /// Receives and parses a batch of frames from `device`.
    #[inline(always)]
    pub fn receive(&mut self, device: DeviceId, work: &mut Work, now: Instant) {
        let mut others = std::mem::take(&mut work.left);
        others.clear();
        if self.observation.is_tapped() {
            // While a capture runs, all packets take the general path, which captures observe.
            others.extend(0..work.packets.len().min(BATCH_SIZE) as u16);
        } else {
            let table = (&self.classifier.flows, self.classifier.remembers());
            read_plain(self.ports, device, work, table, &mut others);
        }
        for index in others.iter().map(|index| usize::from(*index)) {
            let link = receive(self.ports, device, work.packets.at_mut(index));
            work.fates[index] = link.fate;
            if link.fate.is_open() {
                self.read(work, index, link.ether_type, now);
            } else if link.fate == Fate::Drop(DropReason::EtherType) {
                self.observation.count_ether_type(link.ether_type);
            }
        }
        work.left = others;
    }
}

/// Reads the link header of a frame from `device`, and sets the packet's ingress port and network offset.
pub(crate) fn receive(ports: &mut PortTable, device: DeviceId, packet: &mut Packet) -> Link {
    let length = packet.len();
    let Ok(frame) = Frame::new_checked(packet.data()) else {
        return unassigned(ports, device, packet, length);
    };
    let (source, destination) = (frame.source(), frame.destination());
    let Ok(stack) = vlan::Stack::parse(frame.ether_type(), frame.payload()) else {
        return unassigned(ports, device, packet, length);
    };
    let network = ethernet::HEADER_LEN + stack.len;
    let Some(port) = ports.by_tags(device, tags_of(&stack)) else {
        count_arrival(ports, device, packet, length);
        return Link::drop(DropReason::VlanUnknown);
    };
    packet.port = port;
    packet.set_network(network);
    let Some(entry) = ports.get_mut(port) else { return Link::drop(DropReason::VlanUnknown) };
    entry.count.rx_packets += 1;
    entry.count.rx_bytes += length as u64;
    let fate = match refusal(entry, source, destination, stack.ether_type, length - network) {
        Some(reason) => Fate::Drop(reason),
        None if stack.ether_type == EtherType::ARP => local_fate(entry),
        None => Fate::Forward,
    };
    Link { ether_type: stack.ether_type, fate }
}

fn unassigned(ports: &mut PortTable, device: DeviceId, packet: &mut Packet, length: usize) -> Link {
    count_arrival(ports, device, packet, length);
    Link::drop(DropReason::LinkShort)
}

/// Counts a frame whose port is unknown. It is counted at the device's untagged port, if there is one.
fn count_arrival(ports: &mut PortTable, device: DeviceId, packet: &mut Packet, length: usize) {
    let Some(port) = ports.by_tags(device, Tags::NONE) else { return };
    packet.port = port;
    if let Some(entry) = ports.get_mut(port) {
        entry.count.rx_packets += 1;
        entry.count.rx_bytes += length as u64;
    }
}

fn local_fate(entry: &PortEntry) -> Fate {
    if entry.is_kernel() { Fate::Host } else { Fate::Own }
}

/// Returns the drop reason of a frame that a port does not accept. `network_length`: length from the network
/// header on, in bytes.
#[inline]
pub(crate) fn refusal(
    entry: &PortEntry,
    source: MacAddr,
    destination: MacAddr,
    ether_type: EtherType,
    network_length: usize,
) -> Option<DropReason> {
    if !entry.settings.up {
        return Some(DropReason::PortDown);
    }
    if source.is_multicast() || source.is_zero() {
        return Some(DropReason::LinkSource);
    }
    if !destination.is_multicast() && destination != entry.settings.mac {
        return Some(DropReason::LinkNotOurs);
    }
    if !matches!(ether_type, EtherType::IPV4 | EtherType::IPV6 | EtherType::ARP) {
        return Some(DropReason::EtherType);
    }
    (network_length > entry.settings.mtu.into()).then_some(DropReason::LinkOversize)
}
