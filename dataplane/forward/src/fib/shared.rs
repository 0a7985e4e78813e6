//! Routes that one thread changes while others look them up.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use millrace_memory::MemoryError;

use super::routes::Routes;
use super::{Route, RouteIndex, net4, net6};
use crate::retired::Epoch;
use crate::shared_route_table::{FibFull, SharedTable, TableReader};

/// What an insertion changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FibChange {
    /// The number of the new route.
    pub index: RouteIndex,
    /// Whether no prefix had the number before, so that workers may not know what it means.
    pub is_new: bool,
    /// The route that was replaced.
    pub old: Option<Route>,
}

/// Routes of both families: the side of the one thread that changes them.
///
/// Workers have a [`FibReader`] each, and see a change as soon as it is made, without waiting and without being waited
/// for: a lookup that meets a change finds, for each prefix, the old route or the new one.
///
/// # Numbers
///
/// A lookup gives the number of a route. What it means workers have to be told **before** a prefix gets it:
/// [`SharedFib::intern`], then tell all workers when the number is new, wait until they know it, then
/// [`SharedFib::store`]. ([`SharedFib::insert`] does both, for those who have no workers to tell.)
///
/// # Epochs
///
/// Nodes of the tables and numbers of routes that went out of use may still be in a worker's hands, so they aren't used
/// again before its side is heard:
///
/// 1. [`SharedFib::close_epoch`] ends an epoch.
/// 2. Each worker is told something, *after* that, and answers when it takes this up: between two batches, so that no
///    lookup is under way, and when it keeps no number from before (in records of flows, in packets that wait).
/// 3. [`SharedFib::quiesced`] with that epoch, once all workers have answered. A worker that begins later counts as one
///    that has answered.
///
/// Without these steps everything works but memory is never used again. Several epochs may be open; that one is over
/// says that those before it are.
#[derive(Debug)]
pub struct SharedFib {
    v4: SharedTable<u32>,
    v6: SharedTable<u128>,
    routes: Routes,
}

impl SharedFib {
    /// Without routes.
    ///
    /// # Errors
    /// [`MemoryError`] when there is no address space for the tables. Memory is taken only when routes come.
    pub fn new() -> Result<Self, MemoryError> {
        Ok(Self { v4: SharedTable::new()?, v6: SharedTable::new()?, routes: Routes::default() })
    }

    /// A worker's side.
    pub fn reader(&self) -> FibReader {
        FibReader { v4: self.v4.reader(), v6: self.v6.reader() }
    }

    /// The number of a route, and whether no prefix ever had it: then workers must know it before it is stored. A
    /// number that no prefix gets is lost when the epoch is over.
    pub fn intern(&mut self, route: Route) -> (RouteIndex, bool) {
        let (number, is_new) = self.routes.number(route);
        (RouteIndex(number), is_new)
    }

    /// The same for a route whose number is to be that of `prefix` alone, and below `limit`: so what is sent by it can be told
    /// from what is sent by the same route to other prefixes. A prefix that has the route under a number of its own keeps it.
    /// When no number is left the route gets a common one.
    pub fn intern_own(&mut self, prefix: IpNet, route: Route, limit: u32) -> (RouteIndex, bool) {
        let has = self.number_of(prefix);
        match self.routes.own_number(&route, has, limit) {
            Some((number, is_new)) => (RouteIndex(number), is_new),
            None => self.intern(route),
        }
    }

    /// The number of the route to exactly `prefix`, if that is the prefix's own.
    pub fn own_number(&self, prefix: IpNet) -> Option<RouteIndex> {
        self.number_of(prefix).filter(|number| self.routes.is_own(*number)).map(RouteIndex)
    }

    fn number_of(&self, prefix: IpNet) -> Option<u32> {
        match prefix {
            IpNet::V4(net) => self.v4.prefixes().get(net.network().to_bits(), net.prefix_len()),
            IpNet::V6(net) => self.v6.prefixes().get(net.network().to_bits(), net.prefix_len()),
        }
    }

    /// Sets the route to `prefix`, whose host bits don't count, by a number from [`SharedFib::intern`]. Returns the one
    /// that it replaces.
    ///
    /// # Errors
    /// [`FibFull`]; then nothing has changed. It can come only with a prefix of more than 24 bits.
    ///
    /// # Panics
    /// When the number is that of no route.
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
    /// [`FibFull`]; then no prefix has changed.
    pub fn insert(&mut self, prefix: IpNet, route: Route) -> Result<FibChange, FibFull> {
        let (index, is_new) = self.intern(route);
        let old = self.store(prefix, index)?;
        Ok(FibChange { index, is_new, old })
    }

    /// Removes the route to exactly `prefix` and returns it.
    pub fn remove(&mut self, prefix: IpNet) -> Option<Route> {
        let number = match prefix {
            IpNet::V4(net) => self.v4.remove(net.network().to_bits(), net.prefix_len()),
            IpNet::V6(net) => self.v6.remove(net.network().to_bits(), net.prefix_len()),
        }?;
        Some(self.routes.release(number))
    }

    /// Ends an epoch, and returns it for [`SharedFib::quiesced`].
    pub fn close_epoch(&mut self) -> Epoch {
        self.v4.close_epoch();
        self.v6.close_epoch();
        self.routes.close_epoch()
    }

    /// All workers have gone on from `epoch`: what went out of use in it or before may be used again.
    pub fn quiesced(&mut self, epoch: Epoch) {
        self.quiesced_but(epoch, |_| false);
    }

    /// The same, but for numbers of routes that somebody `keeps`: packets that wait in queues bear them. Returns the numbers
    /// that may mean other routes from now on.
    pub fn quiesced_but(&mut self, epoch: Epoch, keeps: impl Fn(RouteIndex) -> bool) -> Vec<RouteIndex> {
        self.v4.quiesced(epoch);
        self.v6.quiesced(epoch);
        let freed = self.routes.quiesced(epoch, |number| keeps(RouteIndex(number)));
        freed.into_iter().map(RouteIndex).collect()
    }

    /// How many things are out of use and can't be used again before an epoch is over. Each takes 64 bytes or a few
    /// hundred.
    pub fn waiting(&self) -> usize {
        self.v4.waiting() + self.v6.waiting() + self.routes.waiting()
    }

    /// The route to exactly `prefix`.
    pub fn get(&self, prefix: IpNet) -> Option<&Route> {
        self.number_of(prefix).map(|number| self.routes.route(number))
    }

    /// The route of that number.
    ///
    /// # Panics
    /// When there never was a route of that number.
    pub fn route(&self, index: RouteIndex) -> &Route {
        self.routes.route(index.0)
    }

    /// The longest prefix of `destination` that has a route, and the route: for explanations.
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

    /// All routes: IPv4 first, by address, then shorter prefixes first.
    pub fn iter(&self) -> impl Iterator<Item = (IpNet, &Route)> {
        let v4 = self.v4.prefixes().iter().map(|(bits, length, number)| (net4(bits, length), number));
        let v6 = self.v6.prefixes().iter().map(|(bits, length, number)| (net6(bits, length), number));
        v4.chain(v6).map(|(prefix, number)| (prefix, self.routes.route(number)))
    }

    /// How many prefixes have a route.
    pub fn len(&self) -> usize {
        self.v4.prefixes().len() + self.v6.prefixes().len()
    }

    /// Whether there is no route.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many different routes there are; those that went in an epoch that isn't over still count.
    pub fn distinct(&self) -> usize {
        self.routes.len()
    }

    /// Bytes of the tables that readers look at, IPv4's and IPv6's, and of those that only the writer has. Upper bounds:
    /// parts that were never written to take no memory.
    pub fn memory(&self) -> FibMemory {
        FibMemory {
            v4: self.v4.memory(),
            v6: self.v6.memory(),
            prefixes: self.v4.writer_memory() + self.v6.writer_memory(),
        }
    }
}

/// Bytes that routes take at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FibMemory {
    /// What readers look at for IPv4.
    pub v4: usize,
    /// What readers look at for IPv6.
    pub v6: usize,
    /// The prefixes as their writer keeps them.
    pub prefixes: usize,
}

/// Routes as a worker sees them: by their numbers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct FibReader {
    v4: TableReader<4>,
    v6: TableReader<16>,
}

impl FibReader {
    /// The number of the route with the longest prefix of `destination`.
    #[inline]
    pub fn lookup4(&self, destination: Ipv4Addr) -> Option<RouteIndex> {
        self.v4.lookup(destination.octets()).map(RouteIndex)
    }

    /// The number of the route with the longest prefix of `destination`.
    #[inline]
    pub fn lookup6(&self, destination: Ipv6Addr) -> Option<RouteIndex> {
        self.v6.lookup(destination.octets()).map(RouteIndex)
    }

    /// The number of the route with the longest prefix of `destination`.
    #[inline]
    pub fn lookup(&self, destination: IpAddr) -> Option<RouteIndex> {
        match destination {
            IpAddr::V4(address) => self.lookup4(address),
            IpAddr::V6(address) => self.lookup6(address),
        }
    }

    /// The same for many addresses at once, which is quicker: memory is fetched for 64 at a time.
    ///
    /// # Panics
    /// When `destinations` and `indices` are not of one length.
    #[inline]
    pub fn lookup4_batch(&self, destinations: &[Ipv4Addr], indices: &mut [Option<RouteIndex>]) {
        self.v4.lookup_batch(destinations, |a| a.octets(), indices, |number| number.map(RouteIndex));
    }

    /// The same for many addresses at once, which is quicker: memory is fetched for 64 at a time.
    ///
    /// # Panics
    /// When `destinations` and `indices` are not of one length.
    #[inline]
    pub fn lookup6_batch(&self, destinations: &[Ipv6Addr], indices: &mut [Option<RouteIndex>]) {
        self.v6.lookup_batch(destinations, |a| a.octets(), indices, |number| number.map(RouteIndex));
    }
}
