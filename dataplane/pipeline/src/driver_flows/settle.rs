//! Flows go down when all of their packets that went up are done with.

use millrace_port::Port;
use millrace_units::{Instant, PortId};

use super::mark::Outlet;
use super::round::Next;
use super::way::Way;
use super::{DriverFlows, INSERTS_PER_TURN};
use crate::handover::Handover;
use crate::ports::{DeviceId, PortEntry, PortTable};
use crate::router::Router;

/// The devices of a worker, by their numbers.
type Devices = [Option<Box<dyn Port>>];

impl DriverFlows {
    /// Goes on in the round of all workers, as far as it goes. `others`: the ways to other workers, if there are any.
    fn settle(
        &mut self,
        ports: &PortTable,
        devices: &mut Devices,
        mut others: Option<&mut Handover>,
        now: Instant,
    ) {
        let is_alone = others.is_none();
        let mut has_begun = false;
        loop {
            match self.round.next(others.as_deref_mut()) {
                Next::Finish => self.end_round(ports, others.as_deref()),
                Next::Note(is_wanted) if !has_begun => {
                    has_begun = true;
                    // Who is alone wakes nobody by it.
                    if !(is_alone || is_wanted || self.waits || self.ways.iter().any(Way::is_overloaded)) {
                        break;
                    }
                    // Who else began it may have noted before it read what an entry here waits for.
                    self.waits &= is_wanted;
                    self.begin_round(ports, devices, now);
                }
                Next::Mark => {
                    let waits = |(id, entry)| Some((id, outlet_of(entry, devices)?));
                    self.mark.set(ports.iter().filter_map(waits));
                    self.round.marked();
                }
                Next::Leave if self.mark.is_passed(|port| outlet_of(ports.get(port)?, devices)) => {
                    self.round.left();
                }
                Next::Note(_) | Next::Leave | Next::Wait => break,
            }
        }
        if self.round.is_stuck(now) {
            // As long as nothing leaves, no flow that would lose packets is any nearer to going down.
            for (id, way) in ports.iter().filter_map(|(id, _)| Some((id, self.ways.get(id.index())?))) {
                way.queues().for_each(|queue| self.cache.set_overloaded((id, queue), false));
            }
        }
    }

    /// Begins a round by what has been read.
    fn begin_round(&mut self, ports: &PortTable, devices: &mut Devices, now: Instant) {
        let Self { ways, cache, round, ports: can, .. } = self;
        for (id, entry) in ports.iter() {
            let can = can.get(id.index()).copied().unwrap_or_default();
            let Some(device) = device_of(entry, devices).filter(|_| can.receives) else { continue };
            // What was read and is kept is behind no mark.
            let is_known = device.progress().is_some_and(|progress| progress.kept == 0);
            let Some(way) = ways.get_mut(id.index()).filter(|_| is_known) else { continue };
            let is_only = can.receive_queues.count_ones() == 1;
            for (queue, read, overloaded) in way.look(id, device.as_ref(), cache.as_ref(), is_only, now) {
                cache.note_read((id, queue), round.number(), read);
                cache.set_overloaded((id, queue), overloaded);
            }
        }
        round.begin(now);
    }

    /// What all workers noted is done with: at each port what has been read of all of its queues.
    fn end_round(&mut self, ports: &PortTable, others: Option<&Handover>) {
        let Self { round, cache, ports: can, .. } = self;
        let number = round.finish();
        for (id, entry) in ports.iter() {
            let can = can.get(id.index()).copied().unwrap_or_default();
            let is_own = others.is_none_or(|others| others.owns(entry.settings.device));
            if !(can.receives && is_own) {
                continue;
            }
            if let Some(done) =
                places(can.receive_queues).map(|queue| cache.noted_read((id, queue), number)).min()
            {
                cache.set_done(id, done);
            }
        }
    }

    /// The device of a port is closed: nothing goes up by its queues.
    fn end_way(&mut self, port: PortId) {
        let Self { ways, cache, .. } = self;
        let queues = ways.get(port.index()).into_iter().flat_map(Way::queues);
        queues.for_each(|queue| cache.set_overloaded((port, queue), false));
    }

    /// The device of a port was opened.
    fn begin_way(&mut self, port: PortId, device: &dyn Port) {
        if let Some(way) = self.ways.get_mut(port.index()) {
            *way = Way::begin(port, device, self.cache.as_ref());
        }
        self.round.forget_mark();
    }
}

impl Router {
    /// The device of some ports was opened.
    pub(crate) fn begin_ways(&mut self, id: DeviceId, device: &dyn Port) {
        let Some(driver) = &mut self.driver else { return };
        let ports = self.ports.iter().filter(|(_, entry)| entry.settings.device == id);
        ports.for_each(|(id, _)| driver.begin_way(id, device));
    }

    /// The device of some ports is closed.
    pub(crate) fn end_ways(&mut self, id: DeviceId) {
        let Some(driver) = &mut self.driver else { return };
        let ports = self.ports.iter().filter(|(_, entry)| entry.settings.device == id);
        ports.for_each(|(port, _)| driver.end_way(port));
    }

    /// Lets flows go down whose packets are all dealt with. `devices`: the worker's, by their numbers.
    pub(crate) fn settle_driver(&mut self, devices: &mut Devices, now: Instant) {
        self.tell_driver();
        self.carry_over();
        let Self { driver: Some(driver), ports, handover, .. } = self else { return };
        driver.inserts = INSERTS_PER_TURN;
        driver.begin(now);
        driver.settle(ports, devices, handover.as_deref_mut(), now);
    }
}

/// The places of the bits that are set.
fn places(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = bits.trailing_zeros() as usize;
        bits &= bits.checked_sub(1)?;
        Some(place)
    })
}

fn device_of<'a>(entry: &PortEntry, devices: &'a mut Devices) -> Option<&'a mut Box<dyn Port>> {
    devices.get_mut(usize::from(entry.settings.device.0))?.as_mut()
}

/// What waits to leave by a port; nothing where that is down: what waits there isn't sent, nor does anything plain go there.
fn outlet_of(entry: &PortEntry, devices: &mut Devices) -> Option<Outlet> {
    let progress = device_of(entry, devices).and_then(|device| device.progress()).unwrap_or_default();
    let waiting = entry.queue.len() as u64 + u64::from(progress.unsent);
    entry.settings.up.then_some(Outlet { left: progress.sent, waiting })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bit_that_is_set_has_its_place() {
        assert_eq!(places(0).count(), 0);
        assert_eq!(places(1 << 63 | 0b1011).collect::<Vec<_>>(), [0, 1, 3, 63]);
        assert_eq!(places(u64::MAX).count(), 64);
    }
}
