//! Stage receive: the link header. Which port a frame is for, and where its network header starts.

use millrace_packet::{DropReason, Packet};
use millrace_wire::EtherType;
use millrace_wire::ethernet::{self, Frame};
use millrace_wire::mac_addr::MacAddr;
use millrace_wire::vlan;

use crate::ports::{DeviceId, PortEntry, PortTable};
use crate::tags::Tags;
use crate::work::Fate;

/// What the link header says.
pub(crate) struct Link {
    /// Its EtherType, behind VLAN tags.
    pub ether_type: EtherType,
    /// What becomes of the frame as far as the link layer knows.
    pub fate: Fate,
}

impl Link {
    fn drop(reason: DropReason) -> Self {
        Self { ether_type: EtherType(0), fate: Fate::Drop(reason) }
    }
}

/// Reads the link header of a frame from `device`, notes its port and the place of the network header on it.
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

/// Counts a frame that no port can be told for at the device's untagged port, if it has one.
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

/// The tags of a frame, without those that carry a priority only (VLAN id 0).
pub(crate) fn tags_of(stack: &vlan::Stack) -> Tags {
    let tag = |tag: vlan::StackedTag| (tag.tag_protocol.0, tag.control.id());
    let mut tags = [stack.outer(), stack.inner()].into_iter().flatten().map(tag).filter(|(_, id)| *id != 0);
    Tags::of_frame(tags.next(), tags.next())
}

#[inline]
fn refusal(
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
