//! Adjacencies of routes, for the fast path without a flow table.

use std::net::{Ipv4Addr, Ipv6Addr};

use millrace_forward::NO_ADJACENCY;
use millrace_packet::Family;
use millrace_units::NextHopIndex;

use crate::forward::addresses::Addresses;
use crate::route_number::ROUTES;

/// Adjacency of each route number, and the destinations of the current batch.
#[derive(Debug)]
pub(crate) struct Bare {
    /// Adjacency numbers for IPv4 and for IPv6, by route number.
    pub adjacencies: Vec<[u32; 2]>,
    pub v4: Addresses<Ipv4Addr>,
    pub v6: Addresses<Ipv6Addr>,
}

impl Default for Bare {
    fn default() -> Self {
        Self {
            adjacencies: Vec::with_capacity(ROUTES as usize),
            v4: Addresses::new(Ipv4Addr::UNSPECIFIED),
            v6: Addresses::new(Ipv6Addr::UNSPECIFIED),
        }
    }
}

impl Bare {
    /// Discards the adjacencies of a route number that gets another route.
    pub fn forget(&mut self, route: NextHopIndex) {
        if let Some(numbers) = self.adjacencies.get_mut(route.index()) {
            *numbers = [NO_ADJACENCY; 2];
        }
    }

    /// Discards all adjacency numbers, after a change of all route numbers or adjacency numbers.
    pub fn forget_all(&mut self) {
        self.adjacencies.clear();
    }

    /// Records the adjacency number of a route for a family.
    pub fn note(&mut self, route: NextHopIndex, family: Family, number: u32) {
        if route.0 >= ROUTES {
            return;
        }
        if self.adjacencies.len() <= route.index() {
            self.adjacencies.resize(route.index() + 1, [NO_ADJACENCY; 2]);
        }
        self.adjacencies[route.index()][place(family)] = number;
    }
}

#[inline(always)]
pub(crate) fn place(family: Family) -> usize {
    usize::from(family == Family::V6)
}
