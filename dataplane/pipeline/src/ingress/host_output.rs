//! Host output: packets that the kernel sends out of a port with a scheduler. The router intercepts them, and
//! puts them into the port's queues like other packets.

use std::os::fd::RawFd;

use millrace_packet::{BATCH_SIZE, Packet, Pool};
use millrace_plugin::EMPTY_PATH;
use millrace_plugin_abi::Position;
use millrace_port::{Port, PortCounters};
use millrace_units::{Instant, PortId};
use millrace_wire::EtherType;
use millrace_wire::ethernet::{self, Frame};
use millrace_wire::vlan;

use crate::parse::ROUTER;
use crate::router::Router;
use crate::work::{Fate, Work};
use crate::worker::since_cleared;

/// Filters that host output passes before the queues of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HostFilters {
    /// Filters at gates of position `queue`, which choose the queue.
    #[default]
    Queue,
    /// Filters at all gates. No filter changes the egress port.
    All,
}

/// Settings of host output at a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostSettings {
    /// Filters that the packets pass.
    pub filters: HostFilters,
    /// Maximum number of packets taken per iteration, 1 to 256, as `input-weight` of ports.
    pub weight: u16,
}

/// Host output of a port, and the device from which the worker reads it.
pub(crate) struct HostOutput {
    port: PortId,
    settings: HostSettings,
    device: Box<dyn Port>,
}

/// Host output of all ports of a worker.
#[derive(Default)]
pub(crate) struct HostOutputs {
    all: Vec<HostOutput>,
    /// Counters of the devices when the counters were cleared.
    cleared: Vec<(PortId, PortCounters)>,
}

impl HostOutputs {
    /// Starts to read the host output of `port` from `device`.
    pub fn add(&mut self, port: PortId, settings: HostSettings, device: Box<dyn Port>) {
        self.all.push(HostOutput { port, settings, device });
    }

    /// Changes the settings of a port's host output.
    pub fn set(&mut self, port: PortId, settings: HostSettings) {
        self.all.iter_mut().filter(|own| own.port == port).for_each(|own| own.settings = settings);
    }

    /// Takes the remaining packets of a port's host output, and closes the device. Returns the counters of
    /// the device.
    pub fn remove(
        &mut self,
        port: PortId,
        router: &mut Router,
        work: &mut Work,
        now: Instant,
    ) -> PortCounters {
        let mut counted = PortCounters::default();
        while let Some(index) = self.all.iter().position(|own| own.port == port) {
            let mut gone = self.all.swap_remove(index);
            gone.settings.weight = BATCH_SIZE as u16;
            while gone.receive(router, work, now) > 0 {}
            counted.add(&since_cleared(&self.cleared, port, gone.device.counters()));
        }
        self.cleared.retain(|(own, _)| *own != port);
        counted
    }

    /// Takes a batch of each port's host output. Returns the number of packets.
    pub fn receive(&mut self, router: &mut Router, work: &mut Work, now: Instant) -> usize {
        self.all.iter_mut().map(|own| own.receive(router, work, now)).sum()
    }

    /// Returns the descriptors that become readable when the kernel sends packets.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.all.iter().filter_map(|own| own.device.descriptor())
    }

    /// Returns the counters since they were cleared.
    pub fn counters(&mut self) -> Vec<(PortId, PortCounters)> {
        let cleared = &self.cleared;
        let count =
            |own: &mut HostOutput| (own.port, since_cleared(cleared, own.port, own.device.counters()));
        self.all.iter_mut().map(count).collect()
    }

    /// Clears the counters.
    pub fn clear_counters(&mut self) {
        self.cleared = self.all.iter_mut().map(|own| (own.port, own.device.counters())).collect();
    }
}

impl HostOutput {
    fn receive(&mut self, router: &mut Router, work: &mut Work, now: Instant) -> usize {
        work.packets.set_limit(self.settings.weight.into());
        self.device.receive(router.pool(), now, &mut work.packets);
        work.packets.set_limit(BATCH_SIZE);
        let received = work.packets.len();
        if received > 0 {
            router.take_host_output(self.port, self.settings.filters, work, now);
        }
        received
    }
}

impl Router {
    fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Puts a batch of frames that the kernel sends by `port` into the port's queues. Afterwards `work` holds
    /// no packets. Frames that can't be parsed go to the default queue.
    pub(crate) fn take_host_output(
        &mut self,
        port: PortId,
        filters: HostFilters,
        work: &mut Work,
        now: Instant,
    ) {
        self.observation.totals.received =
            self.observation.totals.received.wrapping_add(work.packets.len() as u64);
        self.observation.totals.from_host += work.packets.len() as u64;
        work.begin();
        for index in 0..work.packets.len() {
            let packet = work.packets.at_mut(index);
            (packet.port, packet.out_port, packet.is_framed) = (ROUTER, port, true);
            match ether_type(packet) {
                Some(ether_type) => self.read(work, index, ether_type, now),
                None => work.fates[index] = Fate::Queue,
            }
            if !work.fates[index].is_open() {
                work.fates[index] = Fate::Queue;
            }
        }
        self.classify(work, now);
        let from = match filters {
            HostFilters::Queue => {
                // Bindings of skipped gates are not accounted.
                for index in 0..work.packets.len() {
                    let path = work.paths[index];
                    if path != EMPTY_PATH {
                        work.paths[index] = self.gates.plugins_mut().part_at(path, Position::Queue);
                    }
                }
                Position::Queue
            }
            HostFilters::All => Position::Early,
        };
        self.travel_from(work, from, 0, now);
        self.follow_up(now);
        self.keep_flows(now, false);
    }
}

/// Sets the network offset of a frame, and returns its EtherType; `None` if its headers can't be read.
fn ether_type(packet: &mut Packet) -> Option<EtherType> {
    let frame = Frame::new_checked(packet.data()).ok()?;
    let stack = vlan::Stack::parse(frame.ether_type(), frame.payload()).ok()?;
    packet.set_network(ethernet::HEADER_LEN + stack.len);
    Some(stack.ether_type)
}
