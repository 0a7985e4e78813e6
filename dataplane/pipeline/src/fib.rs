//! The forwarding information base as a worker sees it: prefixes from the table that control writes and all workers
//! read, and what the numbers of routes mean from commands.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use millrace_forward::{FibReader, Route};
use millrace_units::NextHopIndex;

use crate::accounts::ROUTES;

/// Routes by destination and by number.
#[derive(Debug)]
pub struct Fib {
    prefixes: FibReader,
    routes: Vec<Route>,
}

impl Fib {
    /// What control stores is found from now on.
    pub fn new(prefixes: FibReader) -> Self {
        let mut routes = Vec::new();
        // What there is no memory for now is asked for when it is needed.
        let _ = routes.try_reserve_exact(ROUTES as usize);
        Self { prefixes, routes }
    }

    /// Says what a number means, and returns what it meant in `route`. Control does so before a prefix gets the number. Returns
    /// whether packets were forwarded under the number, in another way.
    pub fn exchange(&mut self, index: NextHopIndex, route: &mut Route) -> bool {
        if self.routes.len() <= index.index() {
            self.routes.resize(index.index() + 1, Route::Blackhole);
        }
        let Some(old) = self.routes.get_mut(index.index()) else { return false };
        let is_other = matches!(old, Route::Forward(_)) && old != route;
        std::mem::swap(old, route);
        is_other
    }

    /// The number of the route with the longest prefix of `destination`.
    #[inline]
    pub fn lookup(&self, destination: IpAddr) -> Option<NextHopIndex> {
        self.prefixes.lookup(destination)
    }

    /// The same for many destinations of IPv4, which is quicker. Both slices are of one length.
    pub fn lookup4_batch(&self, destinations: &[Ipv4Addr], numbers: &mut [Option<NextHopIndex>]) {
        self.prefixes.lookup4_batch(destinations, numbers);
    }

    /// The same for many destinations of IPv6, which is quicker. Both slices are of one length.
    pub fn lookup6_batch(&self, destinations: &[Ipv6Addr], numbers: &mut [Option<NextHopIndex>]) {
        self.prefixes.lookup6_batch(destinations, numbers);
    }

    /// The route of that number; a number that was never told drops what it gets.
    #[inline]
    pub fn route(&self, index: NextHopIndex) -> &Route {
        self.routes.get(index.index()).unwrap_or(&Route::Blackhole)
    }
}
