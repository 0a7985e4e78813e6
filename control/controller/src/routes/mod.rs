//! Conversion of kernel and configured routes to routes of the forwarding table.

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

/// Routes of the router beside its model.
pub(crate) struct Routes {
    pub table: RouteTable,
    /// Routes installed in the kernel, by prefix.
    installed: BTreeMap<IpNet, OwnRoute>,
    /// Configured routes that the kernel should have but lacks.
    pub wanted: WantedRoutes,
    /// Prefixes of own routes that a worker may not have, because it did not answer.
    pub untold: BTreeSet<IpNet>,
}

impl Routes {
    /// Creates the routes of a router with an empty forwarding table.
    pub fn new(table: RouteTable) -> Self {
        let (installed, untold) = (BTreeMap::new(), BTreeSet::new());
        Self { table, installed, wanted: WantedRoutes::default(), untold }
    }

    /// Takes the routes installed in the kernel, for their removal.
    pub fn take_installed(&mut self) -> impl Iterator<Item = OwnRoute> + use<> {
        std::mem::take(&mut self.installed).into_values()
    }

    /// Adds to the view of a route the reason why the kernel lacks the route, if it does.
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

/// Converts a kernel route to a route of the forwarding table; `None` for multicast.
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

/// Returns a forward route if each next hop is behind a port of the router. Otherwise the kernel handles the
/// packets.
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
