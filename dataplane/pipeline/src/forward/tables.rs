//! Tables of the forward stage.

use millrace_classify::ChangeLog;
use millrace_forward::{AdjacencyTable, FibReader, HoldLimits, HoldQueue, NeighbourTable};

use crate::forward::bare::Bare;
use crate::forward::changes::{NumberedRoutes, RouteChange};
use crate::forward::fib::Fib;
use crate::forward::own_addresses::OwnAddresses;

/// Maximum number of neighbours at all ports together.
const NEIGHBOURS: usize = 65_536;

/// Tables of the forward stage and of the fast path, and the packets held for neighbour resolution.
pub(crate) struct ForwardingTables {
    pub fib: Fib,
    /// Invalid source addresses: the router's own addresses, and broadcast addresses of its subnets.
    pub own_addresses: OwnAddresses,
    pub neighbours: NeighbourTable,
    /// Egress port, MTU and link header of plain flows, by adjacency number.
    pub adjacencies: AdjacencyTable,
    /// Adjacencies of routes, for the fast path without a flow table.
    pub bare: Bare,
    pub hold: HoldQueue,
}

impl ForwardingTables {
    /// Returns tables without neighbours. `prefixes` is the shared route table; `frames`, the size of the
    /// packet memory, limits the held packets.
    pub fn new(prefixes: FibReader, frames: u32, seed: u64) -> Self {
        Self {
            fib: Fib::new(prefixes),
            own_addresses: OwnAddresses::new(seed),
            neighbours: NeighbourTable::new(NEIGHBOURS, seed),
            adjacencies: AdjacencyTable::new(seed),
            bare: Bare::default(),
            hold: HoldQueue::new(HoldLimits::of_pool(frames), seed),
        }
    }

    /// Updates the set of invalid source addresses after changes of routes.
    pub fn change_own_addresses(&mut self, changes: &[RouteChange]) {
        for RouteChange { prefix, own } in changes {
            if *own {
                self.own_addresses.insert(prefix.addr());
            } else if prefix.prefix_len() == prefix.max_prefix_len() {
                self.own_addresses.remove(&prefix.addr());
            }
        }
    }

    /// Removes the routes of unused route numbers, and returns them. No flow uses these numbers, so
    /// adjacencies stay valid.
    pub fn forget_routes(&mut self, mut routes: NumberedRoutes) -> NumberedRoutes {
        for (index, route) in &mut routes {
            self.fib.exchange(*index, route);
            self.bare.forget(*index);
        }
        routes
    }

    /// Invalidates all adjacency numbers after a change that affects adjacencies. The next packet of each
    /// flow then takes the general path.
    pub fn forget_adjacencies(&mut self, changes: &mut ChangeLog) {
        if self.adjacencies.forget() {
            changes.everything_changed();
            self.bare.forget_all();
        }
    }
}
