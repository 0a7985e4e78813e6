//! Flow cache: plain flows that the XDP program forwards (bpf/flow_cache.h).
//!
//! Control owns the [`FlowCache`]: it sets the output devices and reads the counters of sent frames. Each
//! worker has a [`FlowCacheWriter`], which inserts the worker's flows. With one store, the worker invalidates
//! all its entries that are older than a change.
//!
//! Programs and workers map the same memory and compute the same hashes. A bucket refers to its flows by
//! words, each with an entry number. Each entry is one cache line. Entries are stored in the order in which
//! their flows arrived, because packets of flows that arrived together often arrive together again. The
//! treatment of a flow (egress port, MTU, link header, token bucket, eBPF variant) is stored once for all
//! flows that share it. The version of an entry changes before and after every other change of the entry, so
//! a program never uses a half-changed entry. Programs don't use an entry of an old generation: the flow's
//! next packet is an upcall, and the flow's worker renews the entry.

#[cfg(test)]
mod chains_test;
mod directory;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod dry_runs;
mod ebpf_variants;
#[cfg(test)]
mod ebpf_variants_test;
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
pub use ebpf_variants::{LoadedVariant, VariantMaps, VariantObject};
pub(crate) use layout::Sent;
pub use layout::{KEY_BYTES, RX_QUEUES, VARIANTS};
use layout::{PORTS, Table, WORKERS};
pub(crate) use layout::{Place, Table as FlowPlaces};
pub use policers::PolicerPlace;
use policers::Policers;
pub use writer::{FlowCacheWriter, FlowSlot};

use crate::OffloadError;
use crate::bpf::object::{self, map_mut, missing};
use crate::bpf::syscall::delete_key;

/// Counters of the frames that the flow cache sent out of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OffloadSent {
    /// Number of frames.
    pub packets: u64,
    /// Number of bytes, from the Ethernet header on, without padding.
    pub bytes: u64,
}

/// Maps that the programs of all ports share. The maps end when the last program and the `FlowCache` end.
#[derive(Debug)]
pub struct FlowCache {
    directory: Directory,
    /// Owner of the maps. The programs in the object are not loaded.
    object: Ebpf,
    capacity: u32,
    table: Table,
    workers: u16,
    policers: Arc<Policers>,
    /// For each number of an eBPF variant, whether a loaded variant has it.
    variants: [bool; VARIANTS],
}

impl FlowCache {
    /// Creates a cache for `capacity` flows, shared by `workers` workers, up to 64. Each worker has its own
    /// part.
    ///
    /// # Errors
    /// [`OffloadError`] without the privileges or the memory: some 110 bytes per flow, and 3 MiB.
    pub fn new(capacity: u32, workers: usize) -> Result<Self, OffloadError> {
        let workers = u16::try_from(workers.clamp(1, WORKERS)).unwrap_or(1);
        let capacity = capacity.max(u32::from(workers));
        let directory = Directory::new()?;
        let table = Table::new(capacity);
        let mut object = object::level0_in(&directory.path(), (capacity, table.buckets()))?;
        let policers = Policers::new(&mut object)?;
        Ok(Self { directory, object, capacity, table, workers, policers, variants: [false; VARIANTS] })
    }

    /// Returns the number of flows that the cache has room for.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Returns the numbers of flow entries and of buckets in the maps.
    pub(crate) fn sizes(&self) -> (u32, u32) {
        (self.capacity, self.table.buckets())
    }

    /// Returns the configuration of a port's programs for the cache.
    pub(crate) fn place(table: Table, port: u16, cached: bool) -> Place {
        Place { port, cached: cached.into(), table }
    }

    /// Returns the parameters of the flow table.
    pub(crate) fn table(&self) -> Table {
        self.table
    }

    /// Returns the directory of the maps.
    pub(crate) fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Returns the writer for a worker's part of the cache. Each worker may have only one writer at a time.
    pub fn writer(&mut self, worker: usize) -> Result<FlowCacheWriter, OffloadError> {
        let worker = u16::try_from(worker).unwrap_or(u16::MAX).min(self.workers - 1);
        let policers = Arc::clone(&self.policers);
        FlowCacheWriter::new(&mut self.object, (self.capacity, self.table), policers, (worker, self.workers))
    }

    /// Returns whether the cache supports a port of that number.
    pub fn knows(port: u16) -> bool {
        usize::from(port) < PORTS
    }

    /// Sets the device that sends a port's packets; `None` for no device. The device is in the calling
    /// thread's namespace. `long`: the device accepts frames of several buffers. Ports from number 256 on are
    /// ignored.
    ///
    /// # Errors
    /// [`OffloadError::Map`] when the device is gone, or accepts no redirected frames.
    pub fn set_device(&mut self, port: u16, ifindex: Option<u32>, long: bool) -> Result<(), OffloadError> {
        if usize::from(port) >= PORTS {
            return Ok(());
        }
        let port = u32::from(port);
        for map in ["devices", "devices_sg"] {
            let Some(ifindex) = ifindex.filter(|_| long || map == "devices") else {
                // If the device is gone, the kernel has removed the entry already.
                let _ = delete_key(&descriptor(&mut self.object, map)?, &port);
                continue;
            };
            let devices = DevMap::try_from(map_mut(&mut self.object, map)?);
            let set = devices.map_err(XdpMapError::from).and_then(|mut map| map.set(port, ifindex, None, 0));
            set.map_err(|error| OffloadError::Map { map, detail: object::chain(&error) })?;
        }
        Ok(())
    }

    /// Returns the frames that the cache sent out of a port since the cache was created.
    pub fn sent(&self, port: u16) -> Result<OffloadSent, OffloadError> {
        if usize::from(port) >= PORTS {
            return Ok(OffloadSent::default());
        }
        let failed = |error: MapError| OffloadError::Map { map: "sent", detail: object::chain(&error) };
        let map = self.object.map("sent").ok_or_else(|| missing("sent"))?;
        let map = PerCpuArray::<_, Sent>::try_from(map).map_err(failed)?;
        let each = map.get(&port.into(), 0).map_err(failed)?;
        Ok(each.iter().fold(OffloadSent::default(), |sum, sent| OffloadSent {
            packets: sum.packets + sent.packets,
            bytes: sum.bytes + sent.bytes,
        }))
    }
}

/// Returns a descriptor of a map.
fn descriptor(object: &mut Ebpf, map: &'static str) -> Result<OwnedFd, OffloadError> {
    let Map::DevMap(data) = map_mut(object, map)? else { return Err(missing(map)) };
    let fd = data.fd().as_fd().try_clone_to_owned();
    fd.map_err(|error| OffloadError::Map { map, detail: error.to_string() })
}
