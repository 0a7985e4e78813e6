//! Quiescence: the state in which a flow cache entry may be used.
//!
//! *Order.* Once an entry is used, the XDP program forwards the packets of its flow without the worker.
//! Earlier packets of the flow may still be in a receive ring, at another worker, in a queue or in a transmit
//! ring. The new packets would overtake them. So an entry is used only when the workers are done with all
//! earlier packets of the flow.
//!
//! *Upcall numbers.* The XDP program numbers the upcalls of each port, and notes beside an entry the number
//! of the flow's last upcall. The owner of the port publishes the number up to which the workers are done
//! with all upcalls ([`WorkerFlowCache::set_done`]). The XDP program uses the entry once the published number
//! has reached that of the flow's last upcall. A flow without upcalls since then needs no further check.
//!
//! *Grace periods.* The workers are done with upcalls after a grace period, as in RCU. Each worker records
//! the number of upcalls that it has read (`in_flight`). All workers treat these packets (`grace_period`),
//! and the packets leave the queues and transmit rings of their ports (`backlog`). The owner of a port then
//! publishes the least number that was recorded for the port's receive queues.
//!
//! *Cost.* A grace period starts only when a worker has requested one ([`Quiescence::request`]), so idle
//! workers sleep. Only the backlog at its start has to leave, so full queues and rings delay a grace period
//! but don't prevent it. While a grace period is stalled, the receive queues don't count as overloaded:
//! dropped packets would bring no entry closer to its use.

mod backlog;
mod grace_period;
mod in_flight;

use millrace_port::Port;
use millrace_units::{Instant, PortId};

use self::backlog::{Backlog, BacklogMark};
use self::grace_period::{Action, GracePeriod};
use self::in_flight::{InFlight, QueueRead};
use super::cache::{OffloadPort, WorkerFlowCache};
use crate::handover::Handover;
use crate::ports::{PortEntry, PortTable};

/// Devices of a worker by number; `None` for numbers without an open device.
pub(super) type DeviceSlots = [Option<Box<dyn Port>>];

/// Parts of a worker that its [`Quiescence`] reads and changes.
pub(super) struct WorkerState<'a> {
    pub cache: &'a mut dyn WorkerFlowCache,
    /// Offload capabilities of the ports, by port number.
    pub capabilities: &'a [OffloadPort],
    pub ports: &'a PortTable,
    pub devices: &'a mut DeviceSlots,
    /// Rings to other workers; `None` with a single worker.
    pub handover: Option<&'a mut Handover>,
}

impl WorkerState<'_> {
    /// Returns the offload capabilities of a port.
    fn capabilities(&self, port: PortId) -> OffloadPort {
        self.capabilities.get(port.index()).copied().unwrap_or_default()
    }
}

/// A worker's part in the quiescence of upcalls.
#[derive(Debug, Default)]
pub(super) struct Quiescence {
    /// Upcalls in flight, by port number.
    in_flight: Vec<InFlight>,
    grace_period: GracePeriod,
    mark: BacklogMark,
    /// Whether an entry of this worker waits for a grace period.
    is_requested: bool,
}

impl Quiescence {
    /// Requests a grace period. To be called when an entry has begun or was renewed, or its flow had an
    /// upcall.
    pub fn request(&mut self) {
        self.is_requested = true;
    }

    /// Returns whether the current grace period is stalled: a device takes no packets, or a worker does not
    /// run.
    pub fn is_stalled(&self, now: Instant) -> bool {
        self.grace_period.is_stalled(now)
    }

    /// Makes room for port numbers up to `port`.
    pub fn add_port(&mut self, port: PortId) {
        if self.in_flight.len() <= port.index() {
            self.in_flight.resize_with(port.index() + 1, InFlight::default);
        }
    }

    /// Restarts the counts of a port whose device was opened.
    pub fn open(&mut self, port: PortId, device: &dyn Port, cache: &dyn WorkerFlowCache) {
        if let Some(in_flight) = self.in_flight.get_mut(port.index()) {
            *in_flight = InFlight::open(port, device, cache);
        }
        self.grace_period.discard_mark();
    }

    /// Ends the overload of a port whose device is closed.
    pub fn close(&self, port: PortId, cache: &dyn WorkerFlowCache) {
        let queues = self.in_flight.get(port.index()).into_iter().flat_map(InFlight::queues);
        queues.for_each(|queue| cache.set_overloaded((port, queue), false));
    }

    /// Advances the grace period of all workers as far as possible. At its end, publishes the upcalls that
    /// the workers are done with.
    pub fn advance(&mut self, worker: &mut WorkerState<'_>, now: Instant) {
        let is_single = worker.handover.is_none();
        let mut has_started = false;
        loop {
            match self.grace_period.next(worker.handover.as_deref_mut()) {
                Action::Complete => self.complete(worker),
                Action::Record { requested } if !has_started => {
                    has_started = true;
                    // A single worker starts grace periods unasked, because no other worker has to wake for
                    // them.
                    if !(is_single || requested || self.is_requested || self.is_overloaded()) {
                        break;
                    }
                    // A grace period that another worker started may not cover the last upcall of this
                    // worker's entry. So the request stays.
                    self.is_requested &= requested;
                    self.record(worker, now);
                }
                Action::MarkBacklog => {
                    let WorkerState { ports, devices, .. } = worker;
                    self.mark
                        .set(ports.iter().filter_map(|(id, entry)| Some((id, backlog(entry, devices)?))));
                    self.grace_period.backlog_marked();
                }
                Action::AwaitTransmit if self.has_transmitted(worker) => self.grace_period.backlog_left(),
                Action::Record { .. } | Action::AwaitTransmit | Action::AwaitPeers => break,
            }
        }
        if self.is_stalled(now) {
            worker.ports.iter().for_each(|(id, _)| self.close(id, worker.cache));
        }
    }

    fn is_overloaded(&self) -> bool {
        self.in_flight.iter().any(InFlight::is_overloaded)
    }

    /// Returns whether the backlog mark is passed.
    fn has_transmitted(&mut self, worker: &mut WorkerState<'_>) -> bool {
        let WorkerState { ports, devices, .. } = worker;
        self.mark.is_passed(|port| backlog(ports.get(port)?, devices))
    }

    /// Records the upcalls read, and starts a grace period.
    fn record(&mut self, worker: &mut WorkerState<'_>, now: Instant) {
        let epoch = self.grace_period.epoch();
        for (id, entry) in worker.ports.iter() {
            let capabilities = worker.capabilities(id);
            let Some(device) = device(entry, worker.devices).filter(|_| capabilities.receives) else {
                continue;
            };
            // A device may keep packets after the worker has read them. No backlog contains these packets, so
            // the upcalls of the port can't be recorded.
            let is_known = device.progress().is_some_and(|progress| progress.kept == 0);
            let Some(in_flight) = self.in_flight.get_mut(id.index()).filter(|_| is_known) else { continue };
            let is_only = capabilities.receive_queues.count_ones() == 1;
            let counts = in_flight.read(id, device.as_ref(), worker.cache, is_only, now);
            for QueueRead { queue, read, overloaded } in counts {
                worker.cache.note_read((id, queue), epoch, read);
                worker.cache.set_overloaded((id, queue), overloaded);
            }
        }
        self.grace_period.start(now);
    }

    /// Completes a grace period. For each port that this worker owns, publishes the least number of upcalls
    /// that was recorded for its receive queues.
    fn complete(&mut self, worker: &mut WorkerState<'_>) {
        let epoch = self.grace_period.complete();
        for (id, entry) in worker.ports.iter() {
            let capabilities = worker.capabilities(id);
            let is_own = worker.handover.as_ref().is_none_or(|others| others.owns(entry.settings.device));
            if !(capabilities.receives && is_own) {
                continue;
            }
            let recorded = set_bits(capabilities.receive_queues)
                .map(|queue| worker.cache.noted_read((id, queue), epoch));
            if let Some(done) = recorded.min() {
                worker.cache.set_done(id, done);
            }
        }
    }
}

/// Returns the positions of the bits that are set in `bits`.
fn set_bits(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = bits.trailing_zeros() as usize;
        bits &= bits.checked_sub(1)?;
        Some(place)
    })
}

fn device<'a>(entry: &PortEntry, devices: &'a mut DeviceSlots) -> Option<&'a mut Box<dyn Port>> {
    devices.get_mut(usize::from(entry.settings.device.0))?.as_mut()
}

/// Returns the backlog of a port; `None` if the port is down, because it sends no packets then.
fn backlog(entry: &PortEntry, devices: &mut DeviceSlots) -> Option<Backlog> {
    let progress = device(entry, devices).and_then(|device| device.progress()).unwrap_or_default();
    let waiting = entry.queue.len() as u64 + u64::from(progress.unsent);
    entry.settings.up.then_some(Backlog { sent: progress.sent, waiting })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_bits_yields_each_place() {
        assert_eq!(set_bits(0).count(), 0);
        assert_eq!(set_bits(1 << 63 | 0b1011).collect::<Vec<_>>(), [0, 1, 3, 63]);
        assert_eq!(set_bits(u64::MAX).count(), 64);
    }
}
