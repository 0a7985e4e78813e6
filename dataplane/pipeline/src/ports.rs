//! The router's ports as the pipeline sees them: which device a port sends by, its addresses, queue and counters.

use std::collections::VecDeque;
use std::net::IpAddr;

use ipnet::IpNet;
use millrace_packet::{BATCH_SIZE, ClassCounts, DropCounts, DropReason, Family, Packet};
use millrace_units::{Instant, PortId};
use millrace_wire::mac_addr::MacAddr;

use crate::accounts::Ledger;
use crate::port_scheduler::{PortScheduler, QueueDrops};
use crate::tags::Tags;

/// Who answers ARP, neighbour discovery and packets to the port's own addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stack {
    /// The Linux kernel, which has the device under this index.
    Kernel {
        /// The kernel's index of the device.
        ifindex: u32,
    },
    /// The router itself.
    Own,
}

/// A device of the worker: what packets are really received from and sent by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeviceId(pub u16);

/// What control says of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortSettings {
    /// Its name, unique in the router.
    pub name: String,
    /// The device it sends by. Sub-interfaces share their parent's.
    pub device: DeviceId,
    /// VLAN tags of its frames; none for the device's untagged traffic.
    pub tags: Tags,
    /// Who answers for the port's own addresses.
    pub stack: Stack,
    /// Its MAC address.
    pub mac: MacAddr,
    /// Largest network-layer packet in bytes.
    pub mtu: u16,
    /// Whether it carries traffic.
    pub up: bool,
    /// Whether IPv4 packets that come in here may be forwarded. True for ports without a kernel device.
    pub forwards4: bool,
    /// Whether IPv6 packets that come in here may be forwarded. True for ports without a kernel device.
    pub forwards6: bool,
    /// Whether a packet's source must be reached by the port.
    pub reverse_path: ReversePath,
    /// Packets that the worker takes from the device in a round, at most, 1 to 256: where it can't take all that comes, its
    /// devices are served in these proportions. Of the ports of one device the largest counts.
    pub input_weight: u16,
    /// Its addresses with the prefix of their subnet.
    pub addresses: Vec<IpNet>,
}

/// Which sources a port's packets may have (RFC 3704).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReversePath {
    /// Any.
    #[default]
    Off,
    /// Those to which a route leads by the same port (RFC 3704, 2.2 and 2.3: of several next hops, any).
    Strict,
    /// Those to which any route leads (2.4; a default route is one).
    Loose,
}

/// Counters of a port.
#[derive(Clone, Debug, Default)]
pub struct PortCount {
    /// Frames received from the device for this port.
    pub rx_packets: u64,
    /// Bytes of these frames.
    pub rx_bytes: u64,
    /// Frames given to the device.
    pub tx_packets: u64,
    /// Bytes of these frames.
    pub tx_bytes: u64,
    /// Frames handed to the host: the kernel, or the router's own stack.
    pub to_host: u64,
    /// Of those for the router's own stack, what got through and what did not, by class.
    pub classes: ClassCounts,
    /// Packets dropped, at the port they came in by.
    pub drops: DropCounts,
}

/// A port with its state.
#[derive(Debug)]
pub struct PortEntry {
    /// What control said of it.
    pub settings: PortSettings,
    /// What happened at it.
    pub count: PortCount,
    /// Packets that go to the device next, first in first out.
    pub queue: VecDeque<Packet>,
    /// Bytes of these packets.
    pub queue_bytes: u64,
    /// So many of them, the first ones, are counted as waiting.
    pub noted: usize,
    /// Whether the worker has the port's device, and with it what waits at the port.
    pub is_here: bool,
    /// What packets wait in before, and who chooses among them; without it, all go at once.
    pub scheduler: Option<Box<PortScheduler>>,
    /// So many packets may be in the queue when others pass the scheduler by: what the device has room for in this turn.
    room: usize,
}

/// Most packets that wait at a port.
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

    /// Packets that wait at the port.
    pub fn held(&self) -> usize {
        self.queue.len() + self.scheduler.as_ref().map_or(0, |scheduler| scheduler.held())
    }

    /// Puts a packet where it waits to be sent.
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
                // As from a scheduler, where what is dropped has waited.
                ledger.waits(&packet);
                drops.push((packet, DropReason::QueueFull));
            }
            _ => {
                self.queue_bytes += packet.len() as u64;
                self.queue.push_back(packet);
            }
        }
    }

    /// Whether so many packets may be put into the port's queue: they wait nowhere else, and find room there, or they pass a
    /// scheduler by in which nothing waits, because the device takes them at once.
    #[inline]
    pub(crate) fn has_room_for(&self, packets: usize) -> bool {
        let after = self.queue.len() + packets;
        match &self.scheduler {
            None => self.is_here && after <= QUEUE_LIMIT,
            Some(scheduler) => self.is_here && after <= self.room && scheduler.is_passable(),
        }
    }

    /// Puts packets into the port's queue, for which it [has room](Self::has_room_for).
    #[inline]
    pub(crate) fn queue_all(&mut self, packets: impl Iterator<Item = Packet>) {
        let before = self.queue.len();
        self.queue.extend(packets);
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.pass(self.queue.range(before..));
        }
    }

    /// Puts packets where they wait to be sent, in order.
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

    /// Takes what its scheduler sends now, a batch at most.
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

    /// Whether packets of the family that come in here may be forwarded.
    #[inline]
    pub fn forwards(&self, family: Family) -> bool {
        match family {
            Family::V4 => self.settings.forwards4,
            Family::V6 => self.settings.forwards6,
        }
    }

    /// Whether the kernel answers for the port.
    #[inline]
    pub fn is_kernel(&self) -> bool {
        matches!(self.settings.stack, Stack::Kernel { .. })
    }

    /// The subnet of the port that `peer` is in.
    pub fn subnet_of(&self, peer: IpAddr) -> Option<IpNet> {
        self.settings.addresses.iter().find(|net| net.contains(&peer)).map(IpNet::trunc)
    }

    /// The address that the port shows to `peer`: one of its family in the same subnet, else its first.
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

/// All ports by id.
#[derive(Debug, Default)]
pub struct PortTable {
    entries: Vec<Option<PortEntry>>,
    by_device: Vec<Vec<(Tags, PortId)>>,
    /// Packets that are taken from each device in a round.
    weights: Vec<u16>,
    /// Drops of packets that belong to no port: the router's own, and frames whose tags no port has.
    pub unassigned: DropCounts,
}

impl PortTable {
    /// Adds the port `id`, or changes its settings; counters and queue stay.
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
        let devices =
            self.iter().map(|(_, entry)| usize::from(entry.settings.device.0) + 1).max().unwrap_or(0);
        let (mut by_device, mut weights) = (vec![Vec::new(); devices], vec![0_u16; devices]);
        for (id, PortEntry { settings, .. }) in self.iter() {
            let device = usize::from(settings.device.0);
            if let (Some(ports), Some(weight)) = (by_device.get_mut(device), weights.get_mut(device)) {
                ports.push((settings.tags, id));
                *weight = settings.input_weight.max(*weight);
            }
        }
        (self.by_device, self.weights) = (by_device, weights);
    }

    /// Packets that are taken from a device in a round, at most.
    #[inline]
    pub fn input_weight(&self, device: DeviceId) -> usize {
        self.weights.get(usize::from(device.0)).map_or(BATCH_SIZE, |weight| usize::from(*weight))
    }

    /// The port that has frames of `device` with these tags.
    #[inline]
    pub fn by_tags(&self, device: DeviceId, tags: Tags) -> Option<PortId> {
        let ports = self.by_device.get(usize::from(device.0))?;
        ports.iter().find(|(own, _)| *own == tags).map(|(_, id)| *id)
    }

    /// The port `id`.
    #[inline]
    pub fn get(&self, id: PortId) -> Option<&PortEntry> {
        self.entries.get(id.index())?.as_ref()
    }

    /// The port `id`, to change it.
    #[inline]
    pub fn get_mut(&mut self, id: PortId) -> Option<&mut PortEntry> {
        self.entries.get_mut(id.index())?.as_mut()
    }

    /// All ports, by rising id.
    pub fn iter(&self) -> impl Iterator<Item = (PortId, &PortEntry)> {
        self.entries
            .iter()
            .enumerate()
            .filter_map(|(index, entry)| entry.as_ref().map(|entry| (PortId(index as u16), entry)))
    }

    /// Says of ports with a scheduler what their devices have room for in the turn to come, a batch at most; several ports of
    /// one device share it. None has any whose queue has not gone.
    pub fn note_room(&mut self, mut room: impl FnMut(DeviceId) -> usize) {
        let Self { entries, by_device, .. } = self;
        for entry in entries.iter_mut().flatten().filter(|entry| entry.scheduler.is_some()) {
            let device = entry.settings.device;
            let sharing = by_device.get(usize::from(device.0)).map_or(1, |ports| ports.len().max(1));
            let is_free = entry.is_here && entry.queue.is_empty();
            entry.room = if is_free { room(device).min(BATCH_SIZE) / sharing } else { 0 };
        }
    }

    /// All ports, to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (PortId, &mut PortEntry)> {
        self.entries
            .iter_mut()
            .enumerate()
            .filter_map(|(index, entry)| entry.as_mut().map(|entry| (PortId(index as u16), entry)))
    }

    /// Counts a drop at the port that the packet came in by.
    #[inline]
    pub fn count_drop(&mut self, port: PortId, reason: DropReason) {
        match self.get_mut(port) {
            Some(entry) => entry.count.drops.add(reason, 1),
            None => self.unassigned.add(reason, 1),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use millrace_plugin::WorkerPlugins;
    use millrace_schedule::{FlowQueuesSettings, NodeKind, Share};
    use millrace_units::{NextHopIndex, QueueId};

    use super::*;
    use crate::accounts::RouteAccounts;
    use crate::port_scheduler::ScheduleChange;

    /// A port with this device and these tags.
    pub(crate) fn settings(device: u16, tags: Tags) -> PortSettings {
        PortSettings {
            name: "p".into(),
            device: DeviceId(device),
            tags,
            stack: Stack::Own,
            mac: MacAddr::ZERO,
            mtu: 1500,
            up: true,
            forwards4: true,
            forwards6: true,
            reverse_path: ReversePath::Off,
            input_weight: 256,
            addresses: vec!["10.1.0.1/24".parse().unwrap(), "10.2.0.1/24".parse().unwrap()],
        }
    }

    #[test]
    fn frames_find_the_port_of_their_tags() {
        let mut table = PortTable::default();
        table.set(PortId(0), settings(0, Tags::NONE));
        table.set(PortId(4), settings(0, Tags::single(10)));
        assert_eq!(table.by_tags(DeviceId(0), Tags::single(10)), Some(PortId(4)));
        assert_eq!(table.by_tags(DeviceId(0), Tags::single(11)), None);
        table.set(PortId(4), settings(0, Tags::single(11)));
        assert_eq!(table.by_tags(DeviceId(0), Tags::single(10)), None);
        assert_eq!(table.by_tags(DeviceId(0), Tags::single(11)), Some(PortId(4)));
    }

    #[test]
    fn what_finds_the_queue_of_a_port_without_a_scheduler_full_is_dropped_and_counted() {
        let mut table = PortTable::default();
        table.set(PortId(0), settings(0, Tags::NONE));
        let entry = table.get_mut(PortId(0)).unwrap();
        let pool = millrace_packet::Pool::new(QUEUE_LIMIT as u32 + 8).unwrap();
        let mut drops = QueueDrops::new();
        let (mut routes, mut filters) = (RouteAccounts::default(), WorkerPlugins::new());
        let mut ledger = Ledger { routes: &mut routes, filters: &mut filters };
        for _ in 0..QUEUE_LIMIT + 3 {
            let packet = pool.packet_from(&[0; 60]).unwrap();
            entry.enqueue(packet, Instant::ZERO, &mut drops, &mut ledger);
        }
        assert_eq!((entry.held(), entry.queue_bytes), (QUEUE_LIMIT, 60 * QUEUE_LIMIT as u64));
        assert_eq!(drops.iter().map(|(_, why)| *why).collect::<Vec<_>>(), [DropReason::QueueFull; 3]);
    }

    /// A port whose scheduler has a queue for each flow.
    fn fair() -> PortTable {
        let mut table = PortTable::default();
        table.set(PortId(0), settings(0, Tags::NONE));
        let mut scheduler = PortScheduler::new(1024, 0).unwrap();
        let kind = NodeKind::FlowQueues(FlowQueuesSettings::default());
        let leaf = ScheduleChange::Add { node: QueueId(1), parent: None, share: Share::Only, kind };
        scheduler.change(&leaf, Instant::ZERO, &mut Vec::new()).unwrap();
        table.get_mut(PortId(0)).unwrap().scheduler = Some(Box::new(scheduler));
        table
    }

    /// Packets pass a scheduler by only as far as the device has room, and behind none that waits: of a flow they stay in order.
    #[test]
    fn what_a_device_takes_at_once_passes_an_empty_scheduler_by() {
        let pool = millrace_packet::Pool::new(1024).unwrap();
        let (mut routes, mut filters) = (RouteAccounts::default(), WorkerPlugins::new());
        let mut ledger = Ledger { routes: &mut routes, filters: &mut filters };
        let (mut table, mut drops, mut number) = (fair(), QueueDrops::new(), 0);
        let mut turn = |table: &mut PortTable, come: usize, room: usize, one_by_one: bool| {
            table.note_room(|_| room);
            let entry = table.get_mut(PortId(0)).unwrap();
            let packets: Vec<Packet> = (0..come)
                .map(|_| {
                    number += 1;
                    let mut packet = pool.packet_from(&[0; 60]).unwrap();
                    (packet.hash, packet.next_hop) = (number % 3, NextHopIndex(number));
                    packet
                })
                .collect();
            match one_by_one {
                true => packets
                    .into_iter()
                    .for_each(|packet| entry.enqueue(packet, Instant::ZERO, &mut drops, &mut ledger)),
                false => entry.enqueue_all(packets.into_iter(), Instant::ZERO, &mut drops, &mut ledger),
            }
            let passed = entry.queue.len();
            entry.release(Instant::ZERO, &mut drops, &mut ledger);
            let sent: Vec<(u32, u32)> = entry
                .queue
                .drain(..room.min(entry.queue.len()))
                .map(|packet| (packet.hash, packet.next_hop.0))
                .collect();
            (passed, sent)
        };
        for one_by_one in [false, true] {
            let passed = |turn: &(usize, Vec<(u32, u32)>)| turn.0;
            let full = turn(&mut table, 5, 5, one_by_one);
            assert_eq!((passed(&full), full.1.len()), (5, 5));
            // Of more than it has room for the first pass.
            let over = turn(&mut table, 20, 7, one_by_one);
            assert_eq!((passed(&over), over.1.len()), (7, 7));
            // Now some wait behind the scheduler, and before it.
            let mut sent = [full.1, over.1].concat();
            let wait = turn(&mut table, 3, 7, one_by_one);
            assert_eq!(passed(&wait), 13);
            sent.extend(wait.1);
            while table.get(PortId(0)).unwrap().held() > 0 {
                sent.extend(turn(&mut table, 0, 4, one_by_one).1);
            }
            for flow in 0..3 {
                assert!(sent.iter().filter(|(own, _)| *own == flow).is_sorted());
            }
            assert_eq!(passed(&turn(&mut table, 256, usize::MAX, one_by_one)), 256);
            assert_eq!(turn(&mut table, 0, usize::MAX, one_by_one).1.len(), 0);
        }
        let scheduler = table.get(PortId(0)).unwrap().scheduler.as_ref().unwrap();
        assert_eq!((scheduler.nodes()[0].sent_packets, scheduler.report().held), (2 * (28 + 256), 0));
        assert_eq!(ledger.routes.account(NextHopIndex(0)).waiting.packets, 0);
    }

    #[test]
    fn ports_of_one_device_share_its_room() {
        let mut table = fair();
        table.set(PortId(1), settings(0, Tags::single(9)));
        table.note_room(|_| 100);
        assert_eq!((table.get(PortId(0)).unwrap().room, table.get(PortId(1)).unwrap().room), (50, 0));
        table.get_mut(PortId(0)).unwrap().is_here = false;
        table.note_room(|_| 100);
        assert_eq!(table.get(PortId(0)).unwrap().room, 0);
    }

    #[test]
    fn a_port_shows_the_address_of_the_peers_subnet() {
        let mut table = PortTable::default();
        table.set(PortId(0), settings(0, Tags::NONE));
        let entry = table.get(PortId(0)).unwrap();
        assert_eq!(entry.address_towards("10.2.0.9".parse().unwrap()), Some("10.2.0.1".parse().unwrap()));
        assert_eq!(entry.address_towards("192.0.2.1".parse().unwrap()), Some("10.1.0.1".parse().unwrap()));
        assert_eq!(entry.address_towards("::1".parse().unwrap()), None);
    }
}
