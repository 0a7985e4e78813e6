//! Host output: packets that the kernel sends out of a port with a scheduler. The kernel's packets are
//! redirected to a device of the worker, which puts them into the port's queues like other packets.

use std::os::fd::RawFd;

use millrace_packet::BATCH_SIZE;
use millrace_port::{Port, PortCounters};
use millrace_units::{Instant, PortId};

use crate::ports::host_output::HostSettings;
use crate::router::Router;
use crate::work::Work;
use crate::worker::devices::since_cleared;

/// Host output of a port, and the device from which the worker reads it.
pub(super) struct HostOutput {
    port: PortId,
    settings: HostSettings,
    device: Box<dyn Port>,
}

/// Host output of all ports of a worker.
#[derive(Default)]
pub(super) struct HostOutputs {
    all: Vec<HostOutput>,
    /// Counter values of each device at the last clear.
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

    /// Returns the devices.
    pub fn devices(&self) -> impl Iterator<Item = &dyn Port> {
        self.all.iter().map(|own| &*own.device)
    }

    /// Returns the descriptors that become readable when the kernel sends packets.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.all.iter().filter_map(|own| own.device.descriptor())
    }

    /// Returns what each device has counted since the last clear.
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
        self.device.receive(&router.pool, now, &mut work.packets);
        work.packets.set_limit(BATCH_SIZE);
        let received = work.packets.len();
        if received > 0 {
            router.take_host_output(self.port, self.settings, work, now);
        }
        received
    }
}
