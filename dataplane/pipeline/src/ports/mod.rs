//! Ports of the router: device, addresses, queue and counters of each.

mod core_time;
pub(crate) mod host_output;
pub(crate) mod scheduler;

use std::collections::VecDeque;
use std::net::IpAddr;

use ipnet::IpNet;
use millrace_forward::LinkHeader;
use millrace_packet::{BATCH_SIZE, ClassCounts, DropCounts, DropReason, Family, Packet};
use millrace_schedule::ScheduleError;
use millrace_units::{Instant, PortId, QueueId};
use millrace_wire::EtherType;
use millrace_wire::mac_addr::MacAddr;
use millrace_wire::vlan::{Control, StackedTag};

pub use core_time::PortCoreTime;

use crate::accounts::Ledger;
use crate::parse::tags::Tags;
use crate::ports::scheduler::{FlowQueueReport, NodesPage, PortScheduler, QueueDrops};

/// Stack that answers ARP, neighbour discovery and packets to the port's own addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stack {
    /// The Linux kernel.
    Kernel {
        /// Index of the device in the kernel.
        ifindex: u32,
    },
    /// The router itself.
    Own,
}

/// Number of a device in the router.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeviceId(pub u16);

/// Settings of a port, from control.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortSettings {
    /// Name, unique in the router.
    pub name: String,
    /// Device of the port. Sub-interfaces share the device of their parent.
    pub device: DeviceId,
    /// VLAN tags of the port's frames; none for the device's untagged traffic.
    pub tags: Tags,
    /// Stack that answers for the port's own addresses.
    pub stack: Stack,
    /// MAC address.
    pub mac: MacAddr,
    /// Largest network-layer packet in bytes.
    pub mtu: u16,
    /// Whether the port is up.
    pub up: bool,
    /// Whether IPv4 packets received here may be forwarded. Always true for ports without a kernel stack.
    pub forwards4: bool,
    /// Whether IPv6 packets received here may be forwarded. Always true for ports without a kernel stack.
    pub forwards6: bool,
    /// Reverse path check of received packets.
    pub reverse_path: ReversePath,
    /// Maximum number of packets received from the device per iteration, 1 to 256. An overloaded worker
    /// divides its time among its devices in proportion to these values. Among the ports of one device, the
    /// largest value applies.
    pub input_weight: u16,
    /// Weight of the device's output inside core, 1 to 256. Among the ports of one device, the largest value
    /// applies.
    pub output_weight: u16,
    /// Addresses, each with the prefix length of its subnet.
    pub addresses: Vec<IpNet>,
}

/// Mode of the reverse path check: valid sources of received packets (RFC 3704).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReversePath {
    /// Every source is valid.
    #[default]
    Off,
    /// Sources whose route has the ingress port as egress, by at least one of its next hops (RFC 3704, 2.2
    /// and 2.3).
    Strict,
    /// Sources with any route, a default route included (RFC 3704, 2.4).
    Loose,
}

/// Counters of a port.
#[derive(Clone, Debug, Default)]
pub struct PortCount {
    /// Frames received from the device for this port.
    pub rx_packets: u64,
    /// Bytes of the received frames.
    pub rx_bytes: u64,
    /// Frames given to the device.
    pub tx_packets: u64,
    /// Bytes of the frames given to the device.
    pub tx_bytes: u64,
    /// Frames given to the host, which is the kernel or the router's own stack.
    pub to_host: u64,
    /// Packets for the router's own stack, accepted and policed, by control-plane class.
    pub classes: ClassCounts,
    /// Packets dropped, counted at their ingress port.
    pub drops: DropCounts,
    /// Processor time of core for the port and its sub-interfaces. Counted while principals exist.
    pub core: PortCoreTime,
}

/// Port with its state.
#[derive(Debug)]
pub struct PortEntry {
    /// Settings from control.
    pub settings: PortSettings,
    /// Counters of the port.
    pub count: PortCount,
    /// Packets that the device gets next, first in first out.
    pub queue: VecDeque<Packet>,
    /// Number of bytes in the queue.
    pub queue_bytes: u64,
    /// Number of packets at the head of the queue that their accounts already count as waiting.
    pub noted: usize,
    /// Whether this worker owns the port's device, and so its queues.
    pub is_here: bool,
    /// Scheduler in front of the queue; without one, packets enter the queue directly.
    pub scheduler: Option<Box<PortScheduler>>,
    /// Length of the queue up to which packets may bypass an empty scheduler: the room of the device in this
    /// iteration, in packets.
    room: usize,
}

/// Maximum number of packets in the queue of a port without a scheduler.
pub const QUEUE_LIMIT: usize = 2048;

impl PortEntry {
    fn new(settings: PortSettings) -> Self {
        Self {
            settings,
            count: PortCount::default(),
            queue: VecDeque::with_capacity(QUEUE_LIMIT),
            queue_bytes: 0,
            noted: 0,
            is_here: true,
            scheduler: None,
            room: 0,
        }
    }

    /// Returns the number of packets that wait at the port.
    pub fn held(&self) -> usize {
        self.queue.len() + self.scheduler.as_ref().map_or(0, |scheduler| scheduler.held())
    }

    /// Puts a packet into the scheduler or the queue.
    #[inline]
    pub(crate) fn enqueue(
        &mut self,
        packet: Packet,
        now: Instant,
        drops: &mut QueueDrops,
        ledger: &mut Ledger<'_>,
    ) {
        ledger.queued(&packet, packet.len());
        match &mut self.scheduler {
            Some(scheduler) if self.queue.len() < self.room && scheduler.is_passable() => {
                scheduler.pass(std::iter::once(&packet));
                self.queue_bytes += packet.len() as u64;
                self.queue.push_back(packet);
            }
            Some(scheduler) if scheduler.takes_packets() => {
                ledger.waits(&packet);
                scheduler.enqueue(packet, now, drops);
            }
            _ if self.queue.len() >= QUEUE_LIMIT => {
                // For each dropped packet, the ledger's count of waiting packets is reduced. So the packet
                // must count as waiting first.
                ledger.waits(&packet);
                drops.push((packet, DropReason::QueueFull));
            }
            _ => {
                self.queue_bytes += packet.len() as u64;
                self.queue.push_back(packet);
            }
        }
    }

    /// Returns whether `packets` packets can go directly into the port's queue. Without a scheduler, the
    /// queue must have room. With a scheduler, it must be empty, and the device must have room for the
    /// packets at once.
    #[inline]
    pub(crate) fn has_room_for(&self, packets: usize) -> bool {
        let after = self.queue.len() + packets;
        match &self.scheduler {
            None => self.is_here && after <= QUEUE_LIMIT,
            Some(scheduler) => self.is_here && after <= self.room && scheduler.is_passable(),
        }
    }

    /// Puts packets into the port's queue. The queue must [have room](Self::has_room_for) for the packets.
    #[inline]
    pub(crate) fn queue_all(&mut self, packets: impl Iterator<Item = Packet>) {
        let before = self.queue.len();
        self.queue.extend(packets);
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.pass(self.queue.range(before..));
        }
    }

    /// Puts packets into the scheduler or the queue, in order.
    #[inline]
    pub(crate) fn enqueue_all(
        &mut self,
        packets: impl ExactSizeIterator<Item = Packet>,
        now: Instant,
        drops: &mut QueueDrops,
        ledger: &mut Ledger<'_>,
    ) {
        if !self.has_room_for(packets.len()) {
            return packets.for_each(|packet| self.enqueue(packet, now, drops, ledger));
        }
        let before = self.queue.len();
        self.queue_all(packets);
        self.queue_bytes += ledger.all_queued(self.queue.range(before..));
    }

    /// Moves the packets that the scheduler sends now into the queue, until the queue holds a batch.
    #[inline]
    pub(crate) fn release(&mut self, now: Instant, drops: &mut QueueDrops, ledger: &mut Ledger<'_>) {
        let Some(scheduler) = &mut self.scheduler else { return };
        let (queue, bytes) = (&mut self.queue, &mut self.queue_bytes);
        scheduler.release(BATCH_SIZE.saturating_sub(queue.len()), now, drops, |packet| {
            *bytes += packet.len() as u64;
            ledger.goes_on(&packet);
            queue.push_back(packet);
        });
    }

    /// Returns whether the port may forward received packets of a family.
    #[inline]
    pub fn forwards(&self, family: Family) -> bool {
        match family {
            Family::V4 => self.settings.forwards4,
            Family::V6 => self.settings.forwards6,
        }
    }

    /// Returns whether the kernel answers for the port.
    #[inline]
    pub fn is_kernel(&self) -> bool {
        matches!(self.settings.stack, Stack::Kernel { .. })
    }

    /// Returns the subnet of the port that contains `peer`.
    pub fn subnet_of(&self, peer: IpAddr) -> Option<IpNet> {
        self.settings.addresses.iter().find(|net| net.contains(&peer)).map(IpNet::trunc)
    }

    /// Returns the port's source address towards `peer`, of the same family. Prefers an address in the peer's
    /// subnet, then the first address that is not link-local, then the first.
    pub fn address_towards(&self, peer: IpAddr) -> Option<IpAddr> {
        let own = || self.settings.addresses.iter().filter(|net| net.addr().is_ipv4() == peer.is_ipv4());
        let routable = |net: &&IpNet| !is_link_local(net.addr());
        own()
            .find(|net| net.contains(&peer))
            .or_else(|| own().find(routable))
            .or_else(|| own().next())
            .map(IpNet::addr)
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// Device of ports.
#[derive(Clone, Copy, Debug, Default)]
struct Device {
    /// Maximum number of packets received per iteration.
    input_weight: u16,
    /// Weight of its output inside core.
    output_weight: u16,
    /// Processor time of core that the device's first port does not count yet.
    core: PortCoreTime,
}

/// Ports by id.
#[derive(Debug, Default)]
pub struct PortTable {
    entries: Vec<Option<PortEntry>>,
    by_device: Vec<Vec<(Tags, PortId)>>,
    devices: Vec<Device>,
    /// Drops of packets without an ingress port: router-made packets, and frames whose VLAN tags belong to no
    /// port.
    pub unassigned: DropCounts,
}

impl PortTable {
    /// Adds port `id`, or changes its settings. An existing port keeps its counters and queue.
    pub fn set(&mut self, id: PortId, settings: PortSettings) {
        if self.entries.len() <= id.index() {
            self.entries.resize_with(id.index() + 1, || None);
        }
        match self.entries.get_mut(id.index()) {
            Some(Some(entry)) => entry.settings = settings,
            Some(vacant) => *vacant = Some(PortEntry::new(settings)),
            None => {}
        }
        self.index_devices();
    }

    fn index_devices(&mut self) {
        self.settle_core();
        let devices =
            self.iter().map(|(_, entry)| usize::from(entry.settings.device.0) + 1).max().unwrap_or(0);
        let (mut by_device, mut devices) = (vec![Vec::new(); devices], vec![Device::default(); devices]);
        for (id, PortEntry { settings, .. }) in self.iter() {
            let device = usize::from(settings.device.0);
            if let (Some(ports), Some(device)) = (by_device.get_mut(device), devices.get_mut(device)) {
                ports.push((settings.tags, id));
                device.input_weight = settings.input_weight.max(device.input_weight);
                device.output_weight = settings.output_weight.max(device.output_weight);
            }
        }
        (self.by_device, self.devices) = (by_device, devices);
    }

    /// Returns the maximum number of packets received from a device per iteration.
    #[inline]
    pub fn input_weight(&self, device: DeviceId) -> usize {
        self.devices.get(usize::from(device.0)).map_or(BATCH_SIZE, |device| usize::from(device.input_weight))
    }

    /// Returns the weight of a device's output inside core.
    pub fn output_weight(&self, device: DeviceId) -> u16 {
        self.devices.get(usize::from(device.0)).map_or(1, |device| device.output_weight)
    }

    /// Counts processor time of core for a device.
    #[inline]
    pub fn count_core(&mut self, device: DeviceId, time: PortCoreTime) {
        if let Some(device) = self.devices.get_mut(usize::from(device.0)) {
            device.core += time;
        }
    }

    /// Counts the time of core at the first port of each device. The counters of a port are complete then.
    fn settle_core(&mut self) {
        let Self { entries, by_device, devices, .. } = self;
        for (ports, device) in by_device.iter().zip(devices) {
            let first = ports.first().and_then(|(_, id)| entries.get_mut(id.index())?.as_mut());
            if let Some(entry) = first {
                entry.count.core += std::mem::take(&mut device.core);
            }
        }
    }

    /// Returns the counters of all ports, by rising id.
    pub fn counts(&self) -> Vec<(PortId, PortCount)> {
        let core_of = |id, settings: &PortSettings| {
            let device = usize::from(settings.device.0);
            let is_first = self.by_device.get(device)?.first()?.1 == id;
            self.devices.get(device).filter(|_| is_first).map(|device| device.core)
        };
        let counts = self.iter().map(|(id, PortEntry { settings, count, .. })| {
            let mut core = count.core;
            core += core_of(id, settings).unwrap_or_default();
            (id, PortCount { core, ..count.clone() })
        });
        counts.collect()
    }

    /// Sets the counters of all ports to zero.
    pub fn clear_counts(&mut self) {
        self.settle_core();
        self.iter_mut().for_each(|(_, entry)| entry.count = PortCount::default());
    }

    /// Returns the port for frames of `device` with these tags.
    #[inline]
    pub fn by_tags(&self, device: DeviceId, tags: Tags) -> Option<PortId> {
        let ports = self.by_device.get(usize::from(device.0))?;
        ports.iter().find(|(own, _)| *own == tags).map(|(_, id)| *id)
    }

    /// Returns port `id`.
    #[inline]
    pub fn get(&self, id: PortId) -> Option<&PortEntry> {
        self.entries.get(id.index())?.as_ref()
    }

    /// Returns port `id`, mutable.
    #[inline]
    pub fn get_mut(&mut self, id: PortId) -> Option<&mut PortEntry> {
        self.entries.get_mut(id.index())?.as_mut()
    }

    /// Returns all ports, by rising id.
    pub fn iter(&self) -> impl Iterator<Item = (PortId, &PortEntry)> {
        self.entries
            .iter()
            .enumerate()
            .filter_map(|(index, entry)| entry.as_ref().map(|entry| (PortId(index as u16), entry)))
    }

    /// Sets the room of each port with a scheduler to the room of its device in the next iteration, at most a
    /// batch. Ports of one device share its room equally. A port whose queue is not empty gets no room.
    pub fn note_room(&mut self, mut room: impl FnMut(DeviceId) -> usize) {
        let Self { entries, by_device, .. } = self;
        for entry in entries.iter_mut().flatten().filter(|entry| entry.scheduler.is_some()) {
            let device = entry.settings.device;
            let sharing = by_device.get(usize::from(device.0)).map_or(1, |ports| ports.len().max(1));
            let is_free = entry.is_here && entry.queue.is_empty();
            entry.room = if is_free { room(device).min(BATCH_SIZE) / sharing } else { 0 };
        }
    }

    /// Returns all ports, mutable.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (PortId, &mut PortEntry)> {
        self.entries
            .iter_mut()
            .enumerate()
            .filter_map(|(index, entry)| entry.as_mut().map(|entry| (PortId(index as u16), entry)))
    }

    /// Counts a drop at the ingress port of the packet.
    #[inline]
    pub fn count_drop(&mut self, port: PortId, reason: DropReason) {
        match self.get_mut(port) {
            Some(entry) => entry.count.drops.add(reason, 1),
            None => self.unassigned.add(reason, 1),
        }
    }

    /// Returns a bounded number of a leaf's flow queues, from index `first` on; empty if the port has no
    /// scheduler at this worker.
    pub fn flow_queues(
        &self,
        port: PortId,
        leaf: QueueId,
        first: usize,
    ) -> Result<Vec<FlowQueueReport>, ScheduleError> {
        let scheduler = self.get(port).and_then(|entry| entry.scheduler.as_ref());
        scheduler.map_or(Ok(Vec::new()), |own| own.flow_queues(leaf, first))
    }

    /// Returns whether the queue of some port holds packets. Such packets wait only for room at the port's
    /// device.
    pub fn is_sending(&self) -> bool {
        self.iter().any(|(_, entry)| !entry.queue.is_empty())
    }

    /// Returns a bounded number of a scheduler's nodes, from number `first` on; empty if the port has no
    /// scheduler at this worker.
    pub fn nodes(&self, port: PortId, first: u32, now: Instant) -> NodesPage {
        let scheduler = self.get(port).and_then(|entry| entry.scheduler.as_ref());
        let (nodes, next) = scheduler.map(|own| own.nodes_from(first)).unwrap_or_default();
        NodesPage { at: now, nodes, next }
    }

    /// Returns the leaf that packets for a queue of a port enter; `None` if the port has no scheduler at this
    /// worker.
    pub fn leaf(&self, port: PortId, queue: QueueId) -> Option<QueueId> {
        let scheduler = self.get(port)?.scheduler.as_ref()?;
        scheduler.takes_packets().then(|| scheduler.leaf_for(queue))
    }

    /// Returns the device and the MTU of every port.
    pub fn mtus(&self) -> impl Iterator<Item = (DeviceId, u16)> {
        self.iter().map(|(_, entry)| (entry.settings.device, entry.settings.mtu))
    }
}

/// Returns the link header of packets that leave by a port to a MAC address.
pub(crate) fn link_header(port: &PortSettings, destination: MacAddr, ether_type: EtherType) -> LinkHeader {
    let tag = |(protocol, id)| StackedTag { tag_protocol: EtherType(protocol), control: Control::new(id) };
    let mut tags = port.tags.iter().map(tag);
    match (tags.next(), tags.next()) {
        (Some(outer), Some(inner)) => LinkHeader::new(port.mac, destination, &[outer, inner], ether_type),
        (Some(outer), None) => LinkHeader::new(port.mac, destination, &[outer], ether_type),
        (None, _) => LinkHeader::new(port.mac, destination, &[], ether_type),
    }
}

#[cfg(test)]
pub(crate) mod tests;
