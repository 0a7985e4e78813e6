//! Converts kernel routes and configured routes to routes of the FIB.

pub(crate) mod changes;
pub(crate) mod configured;
pub(crate) mod list;
pub(crate) mod views;
pub(crate) mod wanted;

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use millrace_forward::{NextHop, NextHops, Route};
use millrace_host::{HostRoute, OwnRoute, RouteKind};

use crate::ControlError;
use crate::ports::devices::PortsByDevice;
use crate::routes::wanted::WantedRoutes;
use crate::view::RouteView;
use crate::workers::route_table::RouteTable;

/// State of routes outside the model: the FIB, and the routes in the kernel.
pub(crate) struct Routes {
    pub table: RouteTable,
    /// Routes installed in the kernel, by prefix.
    installed: BTreeMap<IpNet, OwnRoute>,
    /// Configured routes that the kernel should have but lacks.
    pub wanted: WantedRoutes,
    /// Prefixes whose route may be missing at a worker that did not answer. These are routes that only the
    /// workers hold.
    pub untold: BTreeSet<IpNet>,
}

impl Routes {
    /// Creates the state of a router with an empty FIB.
    pub fn new(table: RouteTable) -> Self {
        let (installed, untold) = (BTreeMap::new(), BTreeSet::new());
        Self { table, installed, wanted: WantedRoutes::default(), untold }
    }

    /// Takes out the routes that are installed in the kernel, so that the caller can remove them.
    pub fn take_installed(&mut self) -> impl Iterator<Item = OwnRoute> + use<> {
        std::mem::take(&mut self.installed).into_values()
    }

    /// Completes the view of a route: if the kernel lacks the route, adds the reason.
    pub fn with_missing(&self, prefix: IpNet, view: RouteView) -> RouteView {
        RouteView { missing: self.wanted.why(&prefix).map(str::to_owned), ..view }
    }

    /// Returns the error for adding a route to a prefix that already has a configured route.
    pub fn there_is_one(&self, prefix: IpNet) -> ControlError {
        match self.wanted.why(&prefix) {
            Some(why) => ControlError::conflict(format!(
                "a configured route to {prefix} exists already, and the router keeps trying to install it \
                 ({why}): remove it first, or use `route replace`"
            )),
            None => ControlError::there_is_one(prefix),
        }
    }
}

/// Converts a kernel route to a route of the FIB; `None` for multicast.
pub(crate) fn from_kernel(route: &HostRoute, ports: &PortsByDevice) -> Option<Route> {
    match route.kind {
        RouteKind::Unicast => Some(unicast(route, ports)),
        RouteKind::Local | RouteKind::Anycast => Some(Route::Local),
        RouteKind::Broadcast => Some(Route::Broadcast),
        RouteKind::Blackhole => Some(Route::Blackhole),
        RouteKind::Unreachable => Some(Route::Unreachable),
        RouteKind::Prohibit => Some(Route::Prohibit),
        RouteKind::Multicast => None,
        RouteKind::Throw | RouteKind::Other => Some(Route::Kernel),
    }
}

/// Returns a forward route if each next hop is reached through a port of the router. Otherwise returns a
/// route by which the kernel handles the packets.
fn unicast(route: &HostRoute, ports: &PortsByDevice) -> Route {
    let hops: Option<Vec<NextHop>> = route
        .next_hops
        .iter()
        .map(|hop| {
            let port = ports.get(&hop.ifindex).filter(|_| !hop.encap)?;
            let weight = u16::try_from(hop.weight).unwrap_or(u16::MAX);
            Some(NextHop { port: *port, gateway: hop.gateway, weight })
        })
        .collect();
    hops.and_then(|hops| NextHops::new(&hops).ok()).map_or(Route::Kernel, Route::Forward)
}
