//! The flow cache: plain flows that the driver forwards by itself (bpf/flow_cache.h).
//!
//! Control has the [`FlowCache`]: it names the devices that packets may be sent to, and reads what was sent. Each worker
//! has a [`FlowCacheWriter`]: it puts its flows there and says, in one store, that what it put there before some change
//! is not to be used any more.

#[cfg(test)]
mod chains_test;
mod directory;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod dry_runs;
mod forms;
#[cfg(test)]
mod forms_test;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod forward_twin;
mod layout;
mod policers;
mod table;
#[cfg(test)]
mod tests;
mod treatments;
mod writer;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use aya::Ebpf;
use aya::maps::xdp::XdpMapError;
use aya::maps::{DevMap, Map, MapError, PerCpuArray};

pub(crate) use directory::Directory;
pub use forms::{FormMemory, FormObject, LoadedForm};
pub(crate) use layout::Sent;
use layout::{FORMS, PORTS, Table, WORKERS};
pub use layout::{KEY_BYTES, RX_QUEUES};
pub(crate) use layout::{Place, Table as FlowPlaces};
pub use policers::PolicerPlace;
use policers::Policers;
pub use writer::{FlowCacheWriter, FlowSlot};

use crate::bpf_syscall::delete_key;
use crate::object::{map_mut, missing};
use crate::{OffloadError, object};

/// Frames that left by a port, forwarded in the driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DriverSent {
    /// Frames.
    pub packets: u64,
    /// Their bytes, from the Ethernet header on, without what they are padded by.
    pub bytes: u64,
}

/// The maps that the programs of all ports share. They end with the last program, and this.
#[derive(Debug)]
pub struct FlowCache {
    directory: Directory,
    /// For its maps; its programs are not loaded.
    object: Ebpf,
    capacity: u32,
    table: Table,
    workers: u16,
    policers: Arc<Policers>,
    /// Which places of forms are taken.
    forms: [bool; FORMS],
}

impl FlowCache {
    /// A cache for `capacity` flows, of `workers` workers together: up to 64, each of which has its part.
    ///
    /// # Errors
    /// [`OffloadError`] without the privileges, or the memory: some 110 bytes a flow, and 3 MiB.
    pub fn new(capacity: u32, workers: usize) -> Result<Self, OffloadError> {
        let workers = u16::try_from(workers.clamp(1, WORKERS)).unwrap_or(1);
        let capacity = capacity.max(u32::from(workers));
        let directory = Directory::new()?;
        let table = Table::new(capacity);
        let mut object = object::level0_in(&directory.path(), (capacity, table.buckets()))?;
        let policers = Policers::new(&mut object)?;
        Ok(Self { directory, object, capacity, table, workers, policers, forms: [false; FORMS] })
    }

    /// Flows that there is room for.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// How many entries the maps have of flows, and of buckets.
    pub(crate) fn sizes(&self) -> (u32, u32) {
        (self.capacity, self.table.buckets())
    }

    /// How the programs of a port are told of the cache.
    pub(crate) fn place(table: Table, port: u16, cached: bool) -> Place {
        Place { port, cached: cached.into(), table }
    }

    /// Where flows lie.
    pub(crate) fn table(&self) -> Table {
        self.table
    }

    /// Where programs find the maps.
    pub(crate) fn directory(&self) -> &Directory {
        &self.directory
    }

    /// What the worker of that number fills its part by. There must be one at a time.
    ///
    /// # Errors
    /// [`OffloadError::Map`] when the kernel maps no memory.
    pub fn writer(&mut self, worker: usize) -> Result<FlowCacheWriter, OffloadError> {
        let worker = u16::try_from(worker).unwrap_or(u16::MAX).min(self.workers - 1);
        let policers = Arc::clone(&self.policers);
        FlowCacheWriter::new(&mut self.object, (self.capacity, self.table), policers, (worker, self.workers))
    }

    /// Whether a port of that number has a place in the cache.
    pub fn knows(port: u16) -> bool {
        usize::from(port) < PORTS
    }

    /// Says by which device, of the calling thread's namespace, packets for a port are sent; `None` for none. `long`:
    /// whether the device takes frames of several buffers. Ports from number 256 on have no place, which is no error.
    ///
    /// # Errors
    /// [`OffloadError::Map`] when the device is gone, or can't be sent to.
    pub fn set_device(&mut self, port: u16, ifindex: Option<u32>, long: bool) -> Result<(), OffloadError> {
        if usize::from(port) >= PORTS {
            return Ok(());
        }
        let port = u32::from(port);
        for map in ["devices", "devices_sg"] {
            let Some(ifindex) = ifindex.filter(|_| long || map == "devices") else {
                // The kernel itself removes a device that goes.
                let _ = delete_key(&descriptor(&mut self.object, map)?, &port);
                continue;
            };
            let devices = DevMap::try_from(map_mut(&mut self.object, map)?);
            let set = devices.map_err(XdpMapError::from).and_then(|mut map| map.set(port, ifindex, None, 0));
            set.map_err(|error| OffloadError::Map { map, detail: object::chain(&error) })?;
        }
        Ok(())
    }

    /// What was sent by a port since the cache was made.
    ///
    /// # Errors
    /// [`OffloadError::Map`].
    pub fn sent(&self, port: u16) -> Result<DriverSent, OffloadError> {
        if usize::from(port) >= PORTS {
            return Ok(DriverSent::default());
        }
        let failed = |error: MapError| OffloadError::Map { map: "sent", detail: object::chain(&error) };
        let map = self.object.map("sent").ok_or_else(|| missing("sent"))?;
        let map = PerCpuArray::<_, Sent>::try_from(map).map_err(failed)?;
        let each = map.get(&port.into(), 0).map_err(failed)?;
        Ok(each.iter().fold(DriverSent::default(), |sum, sent| DriverSent {
            packets: sum.packets + sent.packets,
            bytes: sum.bytes + sent.bytes,
        }))
    }
}

/// A descriptor of a map.
fn descriptor(object: &mut Ebpf, map: &'static str) -> Result<OwnedFd, OffloadError> {
    let Map::DevMap(data) = map_mut(object, map)? else { return Err(missing(map)) };
    let fd = data.fd().as_fd().try_clone_to_owned();
    fd.map_err(|error| OffloadError::Map { map, detail: error.to_string() })
}
