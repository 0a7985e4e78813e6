//! FIB of a worker. A table that control writes and all workers read maps prefixes to route numbers. Each
//! worker has its own table of routes by number, set by commands.

use std::net::IpAddr;

use millrace_forward::{FibReader, Route};
use millrace_units::NextHopIndex;

use crate::route_number::ROUTES;

/// Routes by destination, and by number.
#[derive(Debug)]
pub struct Fib {
    pub(crate) prefixes: FibReader,
    routes: Vec<Route>,
}

impl Fib {
    /// Returns a FIB that looks up destinations in `prefixes`.
    pub fn new(prefixes: FibReader) -> Self {
        let mut routes = Vec::new();
        // If the reservation fails, the vector grows on demand.
        let _ = routes.try_reserve_exact(ROUTES as usize);
        Self { prefixes, routes }
    }

    /// Sets the route of a number, and puts the previous route into `route`. Control sets the route before it
    /// assigns the number to a prefix. Returns whether the previous route forwarded packets and differs from
    /// the new one.
    pub fn exchange(&mut self, index: NextHopIndex, route: &mut Route) -> bool {
        if self.routes.len() <= index.index() {
            self.routes.resize(index.index() + 1, Route::Blackhole);
        }
        let Some(old) = self.routes.get_mut(index.index()) else { return false };
        let is_other = matches!(old, Route::Forward(_)) && old != route;
        std::mem::swap(old, route);
        is_other
    }

    /// Returns the number of the route with the longest prefix that matches `destination`.
    #[inline]
    pub fn lookup(&self, destination: IpAddr) -> Option<NextHopIndex> {
        self.prefixes.lookup(destination)
    }

    /// Returns the route of a number; a blackhole for an unknown number.
    #[inline]
    pub fn route(&self, index: NextHopIndex) -> &Route {
        self.routes.get(index.index()).unwrap_or(&Route::Blackhole)
    }
}
