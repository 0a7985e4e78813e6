//! Flow offload: gives the flow cache to the workers, and tracks the offload capabilities of each port's
//! device.

use std::sync::atomic::AtomicU64;

use millrace_offload::{FlowCache, FlowCacheWriter, FlowSlot, KEY_BYTES, PolicerPlace};
use millrace_packet::{DriverFlow, DriverTotals, Family, FlowKey};
use millrace_pipeline::{DriverCache, DriverPort, OffloadCommand};
use millrace_plugin::{Policer, SharedBucket};
use millrace_units::PortId;

use crate::ControlError;
use crate::model::Model;
use crate::router::Inner;

/// Part of the flow cache that belongs to a worker.
struct WorkerCache {
    writer: FlowCacheWriter,
    /// Slots of the writer, by their numbers.
    slots: Vec<Option<FlowSlot>>,
}

impl WorkerCache {
    fn slot(&self, number: u32) -> Option<FlowSlot> {
        *self.slots.get(number as usize)?
    }
}

/// Token bucket in the flow cache.
#[derive(Debug)]
struct Bucket(PolicerPlace);

impl SharedBucket for Bucket {
    #[inline]
    fn word(&self) -> &AtomicU64 {
        self.0.paid()
    }

    fn place(&self) -> u16 {
        self.0.number()
    }
}

/// Returns a flow key as the XDP program's `struct flow_key`.
fn bytes(key: &FlowKey) -> [u8; KEY_BYTES] {
    let mut bytes = [0; KEY_BYTES];
    bytes[..16].copy_from_slice(key.source_bytes());
    bytes[16..32].copy_from_slice(key.destination_bytes());
    bytes[32..34].copy_from_slice(&key.source_port.to_ne_bytes());
    bytes[34..36].copy_from_slice(&key.destination_port.to_ne_bytes());
    bytes[36] = key.protocol;
    bytes[37] = match key.family() {
        Family::V4 => 4,
        Family::V6 => 6,
    };
    bytes[38..].copy_from_slice(&key.port.0.to_ne_bytes());
    bytes
}

impl DriverCache for WorkerCache {
    fn room(&self) -> usize {
        self.writer.room()
    }

    fn publish(&mut self, generation: u64) {
        self.writer.publish(generation);
    }

    fn police(&mut self, policer: &Policer) -> Option<u16> {
        if policer.place().is_none() {
            let price = policer.price();
            policer.share(Box::new(Bucket(self.writer.police(price.token(), price.depth())?)));
        }
        policer.place()
    }

    fn insert(&mut self, key: &FlowKey, flow: &DriverFlow) -> Option<u32> {
        let slot = self.writer.insert(&bytes(key), flow)?;
        if self.slots.len() <= slot.index() {
            self.slots.resize(slot.index() + 1, None);
        }
        self.slots[slot.index()] = Some(slot);
        Some(slot.index() as u32)
    }

    fn begin(&mut self, slot: u32, port: PortId, generation: u64) {
        if let Some(slot) = self.slot(slot) {
            self.writer.begin(slot, port.0, generation);
        }
    }

    fn renew(&mut self, slot: u32, flow: &DriverFlow, generation: u64) {
        if let Some(slot) = self.slot(slot) {
            self.writer.renew(slot, flow, generation);
        }
    }

    fn remove(&mut self, key: &FlowKey, slot: u32) -> DriverTotals {
        let Some(slot) = self.slots.get_mut(slot as usize).and_then(Option::take) else {
            return DriverTotals::default();
        };
        self.writer.remove(&bytes(key), slot)
    }

    fn totals(&self, slot: u32) -> DriverTotals {
        self.slot(slot).map(|slot| self.writer.totals(slot)).unwrap_or_default()
    }

    fn up(&self, port: PortId) -> u64 {
        self.writer.up(port.0)
    }

    fn up_by(&self, port: PortId, queue: usize) -> u64 {
        self.writer.up_by(port.0, queue)
    }

    fn note_read(&self, (port, queue): (PortId, usize), epoch: u64, read: u64) {
        self.writer.note_read((port.0, queue), epoch, read);
    }

    fn noted_read(&self, (port, queue): (PortId, usize), epoch: u64) -> u64 {
        self.writer.noted_read((port.0, queue), epoch)
    }

    fn set_done(&mut self, port: PortId, done: u64) {
        self.writer.set_done(port.0, done);
    }

    fn set_overloaded(&self, (port, queue): (PortId, usize), overloaded: bool) {
        self.writer.set_overloaded((port.0, queue), overloaded);
    }

    fn is_overloaded(&self, port: PortId) -> bool {
        self.writer.is_overloaded(port.0)
    }
}

/// Returns the reason why the configuration allows no flow cache; `None` if it allows one.
pub(crate) fn why_no_cache(has_kernel: bool, flows: u32) -> Option<&'static str> {
    match (has_kernel, flows) {
        (false, _) => Some("no port has a kernel device"),
        (true, 0) => Some("the configuration says driver-flows = 0"),
        (true, _) => None,
    }
}

/// Creates the flow cache of a router with kernel ports. Returns the reason if there is none.
pub(crate) fn make_cache(has_kernel: bool, flows: u32, workers: usize) -> Result<FlowCache, &'static str> {
    if let Some(why) = why_no_cache(has_kernel, flows) {
        return Err(why);
    }
    FlowCache::new(flows, workers).map_err(|error| {
        tracing::info!("no flow is forwarded in the driver: {error}");
        "the kernel made no flow cache: the log says why"
    })
}

impl Inner {
    /// Gives each worker its part of the flow cache.
    pub fn begin_driver_flows(&mut self) -> Result<(), ControlError> {
        let Ok(cache) = &mut self.offload.flow_cache else { return Ok(()) };
        let part = |worker| {
            let writer = cache.writer(worker);
            let writer = writer.map_err(|error| ControlError::system("map the flow cache", error))?;
            Ok(OffloadCommand::SetCache(Box::new(WorkerCache { writer, slots: Vec::new() })))
        };
        let parts = (0..self.workers.len()).map(part).collect::<Result<_, ControlError>>()?;
        self.workers.tell_each(parts)?;
        self.refresh_driver_ports()
    }

    /// Publishes changed offload capabilities of each port to the workers and the flow cache. The peer of a
    /// veth may start or stop accepting redirected frames at any time.
    pub fn refresh_driver_ports(&mut self) -> Result<(), ControlError> {
        for (port, device) in &mut self.devices.kernel {
            let (takes, takes_long) = device.programs.takes_redirects();
            let mtu =
                self.model.ports.iter().find(|plan| plan.id == *port).map_or(0, |plan| plan.settings.mtu);
            let takes = takes && device.fits_far_end(mtu);
            device.batches.set_takes_redirects(takes);
            let Ok(cache) = &mut self.offload.flow_cache else { continue };
            let looks_up = device.stays_up.is_none();
            let sends = looks_up && takes && device.queueing.is_none();
            let (receive_queues, queues) = (device.receive_queues(), has_queues(&self.model, *port));
            let can = DriverPort { receives: looks_up, sends, receive_queues, queues };
            if device.driver == Some(can) {
                continue;
            }
            // A device may vanish in the meantime. Its port can't send then, until the device is back.
            let set = cache.set_device(port.0, can.sends.then_some(device.ifindex), takes_long);
            let can = match set {
                Ok(()) => can,
                Err(error) => {
                    tracing::warn!("no flow leaves in the driver by port {}: {error}", port.0);
                    DriverPort { sends: false, ..can }
                }
            };
            self.workers.tell(|| OffloadCommand::SetPort(*port, can))?;
            // Stored after the workers know, so that a failed command is repeated the next time.
            device.driver = Some(can);
        }
        Ok(())
    }

    /// Tells the workers whether a scheduler is planned at a port. One worker runs the scheduler, but any
    /// worker may have offloaded flows that leave by the port. When this returns, no packet bypasses the
    /// scheduler.
    pub fn tell_driver_of_scheduler(&mut self, port: PortId) -> Result<(), ControlError> {
        let queues = has_queues(&self.model, port);
        let device = self.devices.kernel.get_mut(&port).and_then(|device| device.driver.as_mut());
        let Some(can) = device.filter(|can| can.queues != queues) else { return Ok(()) };
        can.queues = queues;
        let can = *can;
        self.workers.tell(|| OffloadCommand::SetPort(port, can))?;
        self.barrier()
    }

    /// Removes the vanished device of a port from the flow cache: no offloaded flow leaves by it.
    pub fn forget_driver_port(&mut self, port: PortId) -> Result<(), ControlError> {
        let Ok(cache) = &mut self.offload.flow_cache else { return Ok(()) };
        let unset = cache.set_device(port.0, None, false);
        unset.map_err(|error| ControlError::system("forget a port of the flow cache", error))?;
        self.workers.tell(|| OffloadCommand::SetPort(port, DriverPort::default()))
    }
}

/// Whether packets that leave by a port wait in a planned scheduler.
fn has_queues(model: &Model, port: PortId) -> bool {
    model.schedulers.of(port).is_some_and(|scheduler| !scheduler.node.is_empty())
}
