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
                Next::Finish => self.end_round(),
                Next::Note(is_wanted) if !has_begun => {
                    has_begun = true;
                    // Who is alone wakes nobody by it.
                    if !(is_alone || is_wanted || self.waits || self.ways.iter().any(Way::is_overloaded)) {
                        break;
                    }
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
            let own = ports.iter().filter(|(_, entry)| device_of(entry, devices).is_some());
            own.for_each(|(id, _)| self.cache.set_overloaded(id, false));
        }
    }

    /// Begins a round by what has been read.
    fn begin_round(&mut self, ports: &PortTable, devices: &mut Devices, now: Instant) {
        let Self { ways, cache, round, ports: can, waits, .. } = self;
        *waits = false;
        let receives = |port: PortId| can.get(port.index()).is_some_and(|can| can.receives);
        let read = ports.iter().filter(|(id, _)| receives(*id)).filter_map(|(id, entry)| {
            let device = device_of(entry, devices)?;
            // What was read and is kept is behind no mark.
            device.progress().filter(|progress| progress.kept == 0)?;
            let way = ways.get_mut(id.index())?;
            let read = way.look(id, device.as_ref(), cache.as_ref(), now);
            cache.set_overloaded(id, way.is_overloaded());
            Some((id, read))
        });
        round.begin(read, now);
    }

    /// All that was noted is done with.
    fn end_round(&mut self) {
        let Self { round, cache, .. } = self;
        round.finish().for_each(|(port, done)| cache.set_done(port, done));
    }

    /// The device of a port was opened, which has so many receive queues.
    fn begin_way(&mut self, port: PortId, queues: usize) {
        if let Some(way) = self.ways.get_mut(port.index()) {
            *way = Way::begin(port, queues, self.cache.as_ref());
        }
        self.round.forget();
    }
}

impl Router {
    /// The device of some ports was opened, which has so many receive queues.
    pub(crate) fn begin_ways(&mut self, device: DeviceId, queues: usize) {
        let Some(driver) = &mut self.driver else { return };
        let ports = self.ports.iter().filter(|(_, entry)| entry.settings.device == device);
        ports.for_each(|(id, _)| driver.begin_way(id, queues));
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

fn device_of<'a>(entry: &PortEntry, devices: &'a mut Devices) -> Option<&'a mut Box<dyn Port>> {
    devices.get_mut(usize::from(entry.settings.device.0))?.as_mut()
}

/// What waits to leave by a port; nothing where that is down: what waits there isn't sent, nor does anything plain go there.
fn outlet_of(entry: &PortEntry, devices: &mut Devices) -> Option<Outlet> {
    let progress = device_of(entry, devices).and_then(|device| device.progress()).unwrap_or_default();
    let waiting = entry.queue.len() as u64 + u64::from(progress.unsent);
    entry.settings.up.then_some(Outlet { left: progress.sent, waiting })
}
