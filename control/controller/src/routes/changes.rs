//! Routes added and removed while the router runs, and the lookup of an address's route.
//!
//! The rules are those of configured routes. A route through a kernel device goes to the kernel, and the
//! mirror brings it back; other routes belong to the workers alone.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use millrace_config::Change;
use millrace_host::{HostRoute, OwnRoute, PROTOCOL_MILLRACE};

use crate::ControlError;
use crate::model::Model;
use crate::request::NewRoute;
use crate::router::{Inner, Router};
use crate::routes::{PortsByDevice, from_kernel};
use crate::show;
use crate::start::own_route;
use crate::view::RouteView;

/// Longest wait until the mirror reports a route that the kernel was given; the usual time is a millisecond.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);
/// Number of the kernel's main table.
const MAIN: u32 = 254;

impl Router {
    /// Adds a route. On return, the next packet takes it.
    ///
    /// # Errors
    /// Host bits, unknown ports, next hops that no port reaches, a prefix with a configured route, or a
    /// refusal of the kernel; nothing has changed then.
    pub async fn add_route(&self, new: &NewRoute) -> Result<RouteView, ControlError> {
        let route = parse_route(new)?;
        let prefix = *route.to.value();
        self.change_route(Change::AddRoute(route)).await?;
        self.route_to_prefix(prefix)
    }

    /// Returns the route just added to exactly this prefix.
    pub(crate) fn route_to_prefix(&self, prefix: IpNet) -> Result<RouteView, ControlError> {
        let inner = self.lock();
        let view = inner.route_view(prefix).or_else(|| inner.given(prefix));
        let view = view.map(|view| inner.with_missing(prefix, view));
        view.ok_or_else(|| ControlError::System("the new route is not there".into()))
    }

    /// Removes a configured route. On return, no further packet takes it.
    ///
    /// # Errors
    /// No such route; a route of another owner, which the error names.
    pub async fn remove_route(&self, to: &str) -> Result<RouteView, ControlError> {
        let prefix = parse_prefix(to)?;
        let (view, route) = {
            let inner = self.lock();
            let view = inner.given(prefix).or_else(|| inner.route_view(prefix));
            let wanted = || Some(show::wanted_route(inner.model.routes.get(&prefix)?, &inner.model));
            let view = view.or_else(wanted);
            (view, inner.ours(prefix)?)
        };
        self.change_route(Change::RemoveRoute(route)).await?;
        view.ok_or_else(|| ControlError::System("the route was not there".into()))
    }

    /// Returns the route that packets to an address take.
    ///
    /// # Errors
    /// No address; no route; when the data plane does not answer.
    pub fn lookup_route(&self, address: &str) -> Result<RouteView, ControlError> {
        let wrong = |_| ControlError::Invalid(format!("{address:?} is no address"));
        let address: IpAddr = address.parse().map_err(wrong)?;
        let mut guard = self.lock();
        let inner = &mut *guard;
        let (Some(mut route), Some((prefix, _))) =
            (inner.route_to(address), inner.routes.table.prefix_of(address))
        else {
            return Err(ControlError::NotFound(format!("no route to {address}")));
        };
        let accounts = inner.routes.table.count(&[prefix], &mut inner.workers)?;
        route.queues = accounts.into_iter().flatten().next().as_ref().map(show::queues);
        Ok(route)
    }
}

impl Inner {
    /// Installs a route in the kernel.
    pub fn install(&mut self, route: &millrace_config::Route) -> Result<(), ControlError> {
        let route = own_route(route, self)?;
        let in_the_way = self.kernel.route_to(route.prefix);
        let Some(actions) = &mut self.kernel.actions else {
            return Err(ControlError::System("there is no kernel to give the route to".into()));
        };
        actions.install_route(&route).map_err(|error| {
            let owner =
                in_the_way.map(|other| format!("; it has one of protocol {}", protocol(other.protocol)));
            ControlError::Conflict(format!("the kernel refuses: {error}{}", owner.unwrap_or_default()))
        })?;
        self.routes.wanted.given(route.prefix, Instant::now());
        self.routes.installed.insert(route.prefix, route);
        Ok(())
    }

    /// Returns the configured route to exactly this prefix.
    ///
    /// # Errors
    /// No such route; a route of another owner, which the error names.
    pub fn ours(&self, prefix: IpNet) -> Result<millrace_config::Route, ControlError> {
        self.model.routes.get(&prefix).cloned().ok_or_else(|| self.not_ours(prefix))
    }

    /// Returns the error that explains why the route to `prefix` can't be removed.
    fn not_ours(&self, prefix: IpNet) -> ControlError {
        if self.model.own_routes.get(&prefix).is_some() {
            return ControlError::Conflict(format!(
                "the route to {prefix} follows from a port's address, and goes with it"
            ));
        }
        match self.kernel.route_to(prefix) {
            Some(route) => ControlError::Conflict(format!(
                "the route to {prefix} is not ours: the kernel has it by protocol {}; `ip route` removes it",
                protocol(route.protocol)
            )),
            None => ControlError::NotFound(format!("there is no route of ours to {prefix}")),
        }
    }

    /// Returns the view of the route to exactly this prefix.
    fn route_view(&self, prefix: IpNet) -> Option<RouteView> {
        match self.model.own_routes.get(&prefix) {
            Some(route) => Some(show::route(&prefix, route, None, &self.model)),
            None => kernel_view(&self.kernel.route_to(prefix)?, &self.devices.by_index(), &self.model),
        }
    }

    /// Adds to a view the reason why the kernel lacks the route.
    pub fn with_missing(&self, prefix: IpNet, view: RouteView) -> RouteView {
        RouteView { missing: self.routes.wanted.why(&prefix).map(str::to_owned), ..view }
    }

    /// Returns the view of a route that was installed in the kernel.
    fn given(&self, prefix: IpNet) -> Option<RouteView> {
        let OwnRoute { kind, metric, ref next_hops, .. } = *self.routes.installed.get(&prefix)?;
        let route = HostRoute {
            prefix,
            kind,
            table: MAIN,
            protocol: PROTOCOL_MILLRACE,
            metric,
            scope: 0,
            next_hops: next_hops.clone(),
            mtu_metric: None,
        };
        kernel_view(&route, &self.devices.by_index(), &self.model)
    }

    /// Returns the view of the route that packets to an address take.
    pub fn route_to(&self, address: IpAddr) -> Option<RouteView> {
        let (prefix, route) = self.routes.table.prefix_of(address)?;
        let kernel = match self.model.own_routes.get(&prefix) {
            Some(_) => None,
            None => self.kernel.route_to(prefix).map(|mirrored| mirrored.protocol),
        };
        Some(show::route(&prefix, route, kernel, &self.model))
    }
}

/// Returns the view of a kernel route, if the router uses the route.
pub(crate) fn kernel_view(route: &HostRoute, ports: &PortsByDevice, model: &Model) -> Option<RouteView> {
    let target = from_kernel(route, ports)?;
    Some(show::route(&route.prefix, &target, Some(route.protocol), model))
}

/// Returns the kernel's name for the origin of a route (rtnetlink(7); iproute2's `rt_protos`).
pub(crate) fn protocol(number: u8) -> String {
    let name = match number {
        PROTOCOL_MILLRACE => "millrace",
        1 => "redirect",
        2 => "kernel",
        3 => "boot",
        4 => "static",
        9 => "ra",
        11 => "zebra",
        12 => "bird",
        16 => "dhcp",
        42 => "babel",
        186 => "bgp",
        187 => "isis",
        188 => "ospf",
        189 => "rip",
        192 => "eigrp",
        other => return other.to_string(),
    };
    name.to_owned()
}

pub(crate) fn parse_prefix(text: &str) -> Result<IpNet, ControlError> {
    let wrong =
        |_| ControlError::Invalid(format!("{text:?} is no prefix: write ADDRESS/LENGTH, as in 10.9.0.0/16"));
    let prefix: IpNet = text.parse().map_err(wrong)?;
    if prefix.trunc() != prefix {
        return Err(ControlError::Invalid(format!(
            "{text:?} has host bits: the prefix is {}",
            prefix.trunc()
        )));
    }
    Ok(prefix)
}

pub(crate) fn parse_route(new: &NewRoute) -> Result<millrace_config::Route, ControlError> {
    parse_prefix(&new.to)?;
    let route = millrace_config::Route {
        to: new
            .to
            .parse()
            .map_err(|error: ipnet::AddrParseError| ControlError::Invalid(error.to_string()))?,
        via: new.via.clone(),
        port: new.port.as_deref().map(Into::into),
        kind: new.kind,
    };
    route.check().map_err(ControlError::Invalid)?;
    Ok(route)
}
