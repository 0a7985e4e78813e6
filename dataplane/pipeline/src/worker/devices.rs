//! Devices of a worker, and their counters.

use millrace_packet::DropReason;
use millrace_port::{Port, PortCounters};

use crate::ports::{DeviceId, PortTable};

/// Devices by number.
#[derive(Default)]
pub(super) struct Devices {
    /// Open devices; `None` for numbers without one.
    pub all: Vec<Option<Box<dyn Port>>>,
    /// Sum of the counters of closed devices.
    pub closed: PortCounters,
    /// Counter values of each open device at the last clear.
    cleared: Vec<(DeviceId, PortCounters)>,
}

impl Devices {
    /// Returns the open devices.
    pub fn iter(&self) -> impl Iterator<Item = &dyn Port> {
        self.all.iter().flatten().map(|device| &**device)
    }

    /// Returns an open device.
    pub fn get_mut(&mut self, id: DeviceId) -> Option<&mut Box<dyn Port>> {
        self.all.get_mut(usize::from(id.0))?.as_mut()
    }

    /// Returns whether a device is open.
    pub fn is_open(&self, id: DeviceId) -> bool {
        self.all.get(usize::from(id.0)).is_some_and(Option::is_some)
    }

    /// Whether frames wait in a receive queue of some device; `None` if none is known to wait, and some device can't tell.
    /// `others`: further devices of the worker.
    pub fn have_arrivals<'d>(&'d self, others: impl Iterator<Item = &'d dyn Port>) -> Option<bool> {
        let mut told = Some(false);
        for device in self.iter().chain(others) {
            match device.has_arrivals() {
                Some(true) => return Some(true),
                Some(false) => {}
                None => told = None,
            }
        }
        told
    }

    /// Returns whether some device doesn't tell when it needs the worker: it has no descriptor, or frames that its
    /// driver has not taken yet.
    pub fn have_silent(&mut self) -> bool {
        self.all.iter_mut().flatten().any(|device| {
            let is_mute = device.descriptor().is_none() && !device.is_finished();
            is_mute || device.progress().is_some_and(|progress| progress.unsent > 0)
        })
    }

    /// Adds a device, or replaces the one with the same id.
    pub fn add(&mut self, id: DeviceId, device: Box<dyn Port>) {
        let index = usize::from(id.0);
        if self.all.len() <= index {
            self.all.resize_with(index + 1, || None);
        }
        if let Some(place) = self.all.get_mut(index) {
            *place = Some(device);
        }
    }

    /// Closes a device. Returns whether it was open.
    pub fn close(&mut self, id: DeviceId) -> bool {
        let Some(mut device) = self.all.get_mut(usize::from(id.0)).and_then(Option::take) else {
            return false;
        };
        let mut last = since_cleared(&self.cleared, id, device.counters());
        // Packets held inside the device are lost with it.
        last.drops.add(DropReason::PortDown, last.held);
        last.held = 0;
        self.closed.add(&last);
        self.cleared.retain(|(own, _)| *own != id);
        true
    }

    /// Sets the MTU of each device. Also sets the MTU to which devices segment GSO packets: the least MTU of
    /// all ports.
    pub fn set_mtus(&mut self, ports: &PortTable) {
        let mtus: Vec<(DeviceId, u16)> = ports.mtus().collect();
        let least = mtus.iter().map(|(_, mtu)| *mtu).min().unwrap_or(u16::MAX);
        for (index, device) in self.all.iter_mut().enumerate() {
            // The device needs the largest MTU of its ports, because a sub-interface may have a smaller one.
            let own = mtus.iter().filter(|(id, _)| usize::from(id.0) == index).map(|(_, mtu)| *mtu).max();
            if let (Some(device), Some(mtu)) = (device, own) {
                device.set_mtu(mtu, least);
            }
        }
    }

    /// Returns what each open device has counted since the last clear.
    pub fn counters(&mut self) -> Vec<(DeviceId, PortCounters)> {
        let since = |id, now| (id, since_cleared(&self.cleared, id, now));
        now(&mut self.all).map(|(id, now)| since(id, now)).collect()
    }

    /// Clears the counters of open and closed devices. Returns the number of packets held inside the devices.
    pub fn clear_counters(&mut self) -> u64 {
        self.closed = PortCounters::default();
        self.cleared = now(&mut self.all).collect();
        self.cleared.iter().map(|(_, count)| count.held).sum()
    }
}

/// Returns the total counters of the open devices.
fn now(devices: &mut [Option<Box<dyn Port>>]) -> impl Iterator<Item = (DeviceId, PortCounters)> {
    let devices = devices.iter_mut().enumerate();
    devices.filter_map(|(index, device)| Some((DeviceId(index as u16), device.as_mut()?.counters())))
}

/// Returns what a device has counted since the last clear, given its total counters `now`. The number of held
/// packets is a current value, and stays as it is.
pub(super) fn since_cleared<K: PartialEq>(
    cleared: &[(K, PortCounters)],
    id: K,
    mut now: PortCounters,
) -> PortCounters {
    if let Some((_, before)) = cleared.iter().find(|(own, _)| *own == id) {
        now.subtract(before);
    }
    now
}
