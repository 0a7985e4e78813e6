//! FIB that one thread changes while other threads look up routes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use millrace_memory::MemoryError;

use super::routes::Routes;
use super::{Route, RouteIndex, net4, net6};
use crate::routes::retired::Epoch;
use crate::routes::shared_route_table::{FibFull, SharedTable, TableReader};

/// Result of inserting a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FibChange {
    /// Number of the new route.
    pub index: RouteIndex,
    /// Whether no prefix had the number before, so that workers may not know its route.
    pub is_new: bool,
    /// Route that was replaced; `None` if the prefix had none.
    pub old: Option<Route>,
}

/// Routes of both address families, held by the one thread that changes them.
///
/// Each worker has a [`FibReader`] and sees a change at once. Neither side waits for the other. A lookup
/// during a change finds, for each prefix, the old route or the new one.
///
/// # Numbers
///
/// A lookup returns a route number. Workers must know the route of a number **before** a prefix gets the
/// number. So the caller calls [`SharedFib::intern`], publishes a new number to all workers, waits until they
/// know it, and then calls [`SharedFib::store`]. ([`SharedFib::insert`] calls both, for callers without
/// workers.)
///
/// # Epochs
///
/// A worker may still use table nodes and route numbers that a change has removed. So they are reused only
/// after every worker has passed a quiescent point:
///
/// 1. [`SharedFib::close_epoch`] ends an epoch.
/// 2. *After* that, control sends each worker a command. The worker answers it between two batches. Then no
///    lookup is running, and the worker holds no number from before (in flow records, in held packets).
/// 3. When all workers have answered, control calls [`SharedFib::quiesced`] with that epoch. A worker that
///    starts later counts as one that has answered.
///
/// Without these steps everything works, but no memory is reused. Several epochs may be open. The end of an
/// epoch implies the end of all earlier ones.
#[derive(Debug)]
pub struct SharedFib {
    v4: SharedTable<u32>,
    v6: SharedTable<u128>,
    routes: Routes,
}

impl SharedFib {
    /// Creates a FIB without routes.
    ///
    /// # Errors
    /// [`MemoryError`] when there is no address space for the tables. The tables take memory only once they
    /// hold routes.
    pub fn new() -> Result<Self, MemoryError> {
        Ok(Self { v4: SharedTable::new()?, v6: SharedTable::new()?, routes: Routes::default() })
    }

    /// Returns a reader, which looks up routes for a worker.
    pub fn reader(&self) -> FibReader {
        FibReader { v4: self.v4.reader(), v6: self.v6.reader() }
    }

    /// Returns the shared number of a route, and whether no prefix ever had it. Workers must know a new
    /// number before it is stored. If no prefix gets the number, it is freed when all workers have passed the
    /// current epoch.
    pub fn intern(&mut self, route: Route) -> (RouteIndex, bool) {
        let (number, is_new) = self.routes.number(route);
        (RouteIndex(number), is_new)
    }

    /// Returns a route number below `limit` that only `prefix` has, and whether it is new. With its own
    /// number, packets to the prefix can be counted separately from packets to other prefixes with the same
    /// route. A prefix that already has its own number with this route keeps it. If no number below `limit`
    /// is free, returns the shared number of the route.
    pub fn intern_own(&mut self, prefix: IpNet, route: Route, limit: u32) -> (RouteIndex, bool) {
        let has = self.number_of(prefix);
        match self.routes.own_number(&route, has, limit) {
            Some((number, is_new)) => (RouteIndex(number), is_new),
            None => self.intern(route),
        }
    }

    /// Returns the own route number of exactly `prefix`; `None` if the prefix shares its number with other
    /// prefixes, or has no route.
    pub fn own_number(&self, prefix: IpNet) -> Option<RouteIndex> {
        self.number_of(prefix).filter(|number| self.routes.is_own(*number)).map(RouteIndex)
    }

    fn number_of(&self, prefix: IpNet) -> Option<u32> {
        match prefix {
            IpNet::V4(net) => self.v4.prefixes().get(net.network().to_bits(), net.prefix_len()),
            IpNet::V6(net) => self.v6.prefixes().get(net.network().to_bits(), net.prefix_len()),
        }
    }

    /// Sets the route to `prefix` by a number from [`SharedFib::intern`]; host bits of the prefix are
    /// ignored. Returns the replaced route.
    ///
    /// # Errors
    /// [`FibFull`]; in this case nothing has changed. Only a prefix of more than 24 bits can cause it.
    ///
    /// # Panics
    /// When no route has the number.
    pub fn store(&mut self, prefix: IpNet, index: RouteIndex) -> Result<Option<Route>, FibFull> {
        assert!(self.routes.is_given(index.0), "no route has number {}", index.0);
        let old = match prefix {
            IpNet::V4(net) => self.v4.insert(net.network().to_bits(), net.prefix_len(), index.0),
            IpNet::V6(net) => self.v6.insert(net.network().to_bits(), net.prefix_len(), index.0),
        }?;
        self.routes.acquire(index.0);
        Ok(old.map(|number| self.routes.release(number)))
    }

    /// Sets the route to `prefix`: [`SharedFib::intern`] and [`SharedFib::store`] in one.
    ///
    /// # Errors
    /// [`FibFull`]; in this case no prefix has changed.
    pub fn insert(&mut self, prefix: IpNet, route: Route) -> Result<FibChange, FibFull> {
        let (index, is_new) = self.intern(route);
        let old = self.store(prefix, index)?;
        Ok(FibChange { index, is_new, old })
    }

    /// Removes the route to exactly `prefix` and returns it; `None` if there was none.
    pub fn remove(&mut self, prefix: IpNet) -> Option<Route> {
        let number = match prefix {
            IpNet::V4(net) => self.v4.remove(net.network().to_bits(), net.prefix_len()),
            IpNet::V6(net) => self.v6.remove(net.network().to_bits(), net.prefix_len()),
        }?;
        Some(self.routes.release(number))
    }

    /// Ends the current epoch, and returns it for [`SharedFib::quiesced`].
    pub fn close_epoch(&mut self) -> Epoch {
        self.v4.close_epoch();
        self.v6.close_epoch();
        self.routes.close_epoch()
    }

    /// Frees nodes and numbers that were retired in `epoch` or before. All workers must have passed `epoch`.
    pub fn quiesced(&mut self, epoch: Epoch) {
        self.quiesced_but(epoch, |_| false);
    }

    /// Does the same as [`SharedFib::quiesced`], except for numbers for which `keeps` is true, because
    /// packets in queues carry them: these numbers are not freed. Returns the freed numbers, which may get
    /// other routes from now on.
    pub fn quiesced_but(&mut self, epoch: Epoch, keeps: impl Fn(RouteIndex) -> bool) -> Vec<RouteIndex> {
        self.v4.quiesced(epoch);
        self.v6.quiesced(epoch);
        let freed = self.routes.quiesced(epoch, |number| keeps(RouteIndex(number)));
        freed.into_iter().map(RouteIndex).collect()
    }

    /// Returns how many retired nodes and numbers wait for workers to pass an epoch. Each takes 64 bytes to a
    /// few hundred bytes.
    pub fn waiting(&self) -> usize {
        self.v4.waiting() + self.v6.waiting() + self.routes.waiting()
    }

    /// Returns the route to exactly `prefix`; `None` if there is none.
    pub fn get(&self, prefix: IpNet) -> Option<&Route> {
        self.number_of(prefix).map(|number| self.routes.route(number))
    }

    /// Returns the route of a number.
    ///
    /// # Panics
    /// When no route ever had the number.
    pub fn route(&self, index: RouteIndex) -> &Route {
        self.routes.route(index.0)
    }

    /// Returns the longest prefix that matches `destination`, and its route. For reports; slower than a
    /// lookup.
    pub fn prefix_of(&self, destination: IpAddr) -> Option<(IpNet, &Route)> {
        let (prefix, number) = match destination {
            IpAddr::V4(address) => {
                let (bits, length, number) = self.v4.prefixes().lookup_prefix(address.to_bits())?;
                (net4(bits, length), number)
            }
            IpAddr::V6(address) => {
                let (bits, length, number) = self.v6.prefixes().lookup_prefix(address.to_bits())?;
                (net6(bits, length), number)
            }
        };
        Some((prefix, self.routes.route(number)))
    }

    /// Iterates over all routes: IPv4 first, by address, and for equal addresses shorter prefixes first.
    pub fn iter(&self) -> impl Iterator<Item = (IpNet, &Route)> {
        let v4 = self.v4.prefixes().iter().map(|(bits, length, number)| (net4(bits, length), number));
        let v6 = self.v6.prefixes().iter().map(|(bits, length, number)| (net6(bits, length), number));
        v4.chain(v6).map(|(prefix, number)| (prefix, self.routes.route(number)))
    }

    /// Returns the number of prefixes with a route.
    pub fn len(&self) -> usize {
        self.v4.prefixes().len() + self.v6.prefixes().len()
    }

    /// Returns whether there is no route.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of different routes, including retired routes.
    pub fn distinct(&self) -> usize {
        self.routes.len()
    }

    /// Returns the memory of the tables, in bytes. These are upper limits: parts that were never written take
    /// no memory.
    pub fn memory(&self) -> FibMemory {
        FibMemory {
            v4: self.v4.memory(),
            v6: self.v6.memory(),
            prefixes: self.v4.writer_memory() + self.v6.writer_memory(),
        }
    }
}

/// Maximum memory of the routes, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FibMemory {
    /// IPv4 table that readers search.
    pub v4: usize,
    /// IPv6 table that readers search.
    pub v6: usize,
    /// Prefix tables of the writer.
    pub prefixes: usize,
}

/// Reader of the FIB for a worker. A lookup returns a route number. Readers are cheap to clone.
#[derive(Clone, Debug)]
pub struct FibReader {
    v4: TableReader<4>,
    v6: TableReader<16>,
}

impl FibReader {
    /// Returns the route number of the longest prefix that matches `destination`; `None` without a route.
    #[inline]
    pub fn lookup4(&self, destination: Ipv4Addr) -> Option<RouteIndex> {
        self.v4.lookup(destination.octets()).map(RouteIndex)
    }

    /// Returns the route number of the longest prefix that matches `destination`; `None` without a route.
    #[inline]
    pub fn lookup6(&self, destination: Ipv6Addr) -> Option<RouteIndex> {
        self.v6.lookup(destination.octets()).map(RouteIndex)
    }

    /// Returns the route number of the longest prefix that matches `destination`; `None` without a route.
    #[inline]
    pub fn lookup(&self, destination: IpAddr) -> Option<RouteIndex> {
        match destination {
            IpAddr::V4(address) => self.lookup4(address),
            IpAddr::V6(address) => self.lookup6(address),
        }
    }

    /// Looks up many addresses together, which is faster, because memory for several addresses is prefetched.
    ///
    /// # Panics
    /// When `destinations` and `indices` differ in length.
    #[inline]
    pub fn lookup4_batch(&self, destinations: &[Ipv4Addr], indices: &mut [Option<RouteIndex>]) {
        self.v4.lookup_batch(destinations, |a| a.octets(), indices, |number| number.map(RouteIndex));
    }

    /// Looks up many addresses together, which is faster, because memory for several addresses is prefetched.
    ///
    /// # Panics
    /// When `destinations` and `indices` differ in length.
    #[inline]
    pub fn lookup6_batch(&self, destinations: &[Ipv6Addr], indices: &mut [Option<RouteIndex>]) {
        self.v6.lookup_batch(destinations, |a| a.octets(), indices, |number| number.map(RouteIndex));
    }
}
