//! Views of single routes, made from all parts of the router that hold routes.

use std::net::IpAddr;

use ipnet::IpNet;
use millrace_host::{HostRoute, OwnRoute, PROTOCOL_MILLRACE};

use crate::ControlError;
use crate::kernel::Kernel;
use crate::model::Model;
use crate::ports::devices::Devices;
use crate::routes::Routes;
use crate::routes::changes::kernel_view;
use crate::show;
use crate::view::RouteView;

/// Number of the kernel's main table.
const MAIN: u32 = 254;

/// Parts of the router that hold routes.
pub(crate) struct RouteViews<'a> {
    pub model: &'a Model,
    pub routes: &'a Routes,
    pub kernel: &'a Kernel,
    pub devices: &'a Devices,
}

impl RouteViews<'_> {
    /// Returns the configured route to exactly this prefix.
    ///
    /// # Errors
    /// Returns an error if there is no route to the prefix. Also returns an error if the route is not a
    /// configured one; this error names the owner of the route.
    pub fn ours(&self, prefix: IpNet) -> Result<millrace_config::Route, ControlError> {
        self.model.routes.get(&prefix).cloned().ok_or_else(|| self.not_ours(prefix))
    }

    /// Returns the error that explains why no configured route to `prefix` can be removed.
    fn not_ours(&self, prefix: IpNet) -> ControlError {
        if self.model.own_routes.get(&prefix).is_some() {
            return ControlError::conflict(format!(
                "the route to {prefix} belongs to a port's address: remove the address to remove the route"
            ));
        }
        match self.kernel.route_to(prefix) {
            Some(route) => ControlError::conflict(format!(
                "the route to {prefix} is not configured here, but a kernel route of protocol {}: remove it with `ip route`",
                show::protocol(route.protocol)
            )),
            None => ControlError::not_found(format!("no configured route to {prefix}")),
        }
    }

    /// Returns the view of the route to exactly this prefix: a route that only the workers hold, or else the
    /// kernel's route.
    pub fn of_prefix(&self, prefix: IpNet) -> Option<RouteView> {
        match self.model.own_routes.get(&prefix) {
            Some(route) => Some(show::route(&prefix, route, None, self.model)),
            None => kernel_view(&self.kernel.route_to(prefix)?, &self.devices.by_index(), self.model),
        }
    }

    /// Returns the view of the route to exactly this prefix, which was just added.
    pub fn added(&self, prefix: IpNet) -> Result<RouteView, ControlError> {
        let view = self.of_prefix(prefix).or_else(|| self.installed(prefix));
        let view = view.map(|view| self.routes.with_missing(prefix, view));
        view.ok_or_else(|| ControlError::System("the new route was removed in the meantime".into()))
    }

    /// Returns the view of a configured route, in the form installed in the kernel.
    pub fn installed(&self, prefix: IpNet) -> Option<RouteView> {
        let OwnRoute { kind, metric, ref next_hops, .. } = *self.routes.installed.get(&prefix)?;
        let route = HostRoute {
            prefix,
            kind,
            table: MAIN,
            protocol: PROTOCOL_MILLRACE,
            metric,
            next_hops: next_hops.clone(),
            mtu_metric: None,
        };
        kernel_view(&route, &self.devices.by_index(), self.model)
    }

    /// Returns the view of the route for packets to an address.
    pub fn to_address(&self, address: IpAddr) -> Option<RouteView> {
        let (prefix, route) = self.routes.table.prefix_of(address)?;
        let kernel = match self.model.own_routes.get(&prefix) {
            Some(_) => None,
            None => self.kernel.route_to(prefix).map(|mirrored| mirrored.protocol),
        };
        Some(show::route(&prefix, route, kernel, self.model))
    }
}
