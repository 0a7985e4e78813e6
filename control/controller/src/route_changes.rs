//! Routes that are added and removed while the router runs, and what route an address has.
//!
//! The rules are those of configured routes: what leads by a kernel device is given to the kernel, and comes back by the
//! mirror; the others are the worker's alone.

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

/// How long the mirror may take to hear of what we told the kernel; it takes a millisecond.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);
/// The kernel's main table.
const MAIN: u32 = 254;

impl Router {
    /// Adds a route. When this returns, the next packet takes it.
    ///
    /// # Errors
    /// Host bits, unknown ports, next hops that no port reaches, a prefix that has a route of ours, or what the kernel
    /// refuses; nothing has changed then.
    pub async fn add_route(&self, new: &NewRoute) -> Result<RouteView, ControlError> {
        let route = parse_route(new)?;
        let prefix = *route.to.value();
        self.change_route(Change::AddRoute(route)).await?;
        self.route_to_prefix(prefix)
    }

    /// The route to exactly that prefix, which was just added.
    pub(crate) fn route_to_prefix(&self, prefix: IpNet) -> Result<RouteView, ControlError> {
        let inner = self.lock();
        let view = inner.route_view(prefix).or_else(|| inner.given(prefix));
        let view = view.map(|view| inner.with_missing(prefix, view));
        view.ok_or_else(|| ControlError::System("the new route is not there".into()))
    }

    /// Removes a route of ours. When this returns, no further packet takes it.
    ///
    /// # Errors
    /// No such route; it is another's, who is named.
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

    /// The route that packets to an address take.
    ///
    /// # Errors
    /// No address; no route; when the data plane does not answer.
    pub fn lookup_route(&self, address: &str) -> Result<RouteView, ControlError> {
        let wrong = |_| ControlError::Invalid(format!("{address:?} is no address"));
        let address: IpAddr = address.parse().map_err(wrong)?;
        let mut guard = self.lock();
        let inner = &mut *guard;
        let (Some(mut route), Some((prefix, _))) =
            (inner.route_to(address), inner.route_table.prefix_of(address))
        else {
            return Err(ControlError::NotFound(format!("no route to {address}")));
        };
        let accounts = inner.route_table.count(&[prefix], &mut inner.workers)?;
        route.queues = accounts.into_iter().flatten().next().as_ref().map(show::queues);
        Ok(route)
    }
}

impl Inner {
    /// Gives the kernel a route.
    pub fn install(&mut self, route: &millrace_config::Route) -> Result<(), ControlError> {
        let route = own_route(route, self)?;
        let in_the_way = self.mirrored(route.prefix);
        let Some(actions) = &mut self.actions else {
            return Err(ControlError::System("there is no kernel to give the route to".into()));
        };
        actions.install_route(&route).map_err(|error| {
            let owner =
                in_the_way.map(|other| format!("; it has one of protocol {}", protocol(other.protocol)));
            ControlError::Conflict(format!("the kernel refuses: {error}{}", owner.unwrap_or_default()))
        })?;
        self.wanted.given(route.prefix, Instant::now());
        self.installed.insert(route.prefix, route);
        Ok(())
    }

    /// The route of ours to exactly that prefix.
    ///
    /// # Errors
    /// There is none; it is another's, who is named.
    pub fn ours(&self, prefix: IpNet) -> Result<millrace_config::Route, ControlError> {
        self.model.routes.get(&prefix).cloned().ok_or_else(|| self.not_ours(prefix))
    }

    /// Why the route to `prefix` can't be removed.
    fn not_ours(&self, prefix: IpNet) -> ControlError {
        if self.model.own_routes.get(&prefix).is_some() {
            return ControlError::Conflict(format!(
                "the route to {prefix} follows from a port's address, and goes with it"
            ));
        }
        match self.mirrored(prefix) {
            Some(route) => ControlError::Conflict(format!(
                "the route to {prefix} is not ours: the kernel has it by protocol {}; `ip route` removes it",
                protocol(route.protocol)
            )),
            None => ControlError::NotFound(format!("there is no route of ours to {prefix}")),
        }
    }

    /// What the kernel has for exactly that prefix.
    pub fn mirrored(&self, prefix: IpNet) -> Option<HostRoute> {
        self.mirror.as_ref()?.state().effective(prefix)
    }

    /// Whether the kernel has a route of ours to exactly that prefix.
    pub fn kernel_has(&self, prefix: IpNet) -> bool {
        let mirror = self.mirror.as_ref();
        mirror.is_some_and(|mirror| mirror.state().has_route_of(prefix, PROTOCOL_MILLRACE))
    }

    /// The route to exactly that prefix.
    fn route_view(&self, prefix: IpNet) -> Option<RouteView> {
        match self.model.own_routes.get(&prefix) {
            Some(route) => Some(show::route(&prefix, route, None, &self.model)),
            None => kernel_view(&self.mirrored(prefix)?, &self.by_device(), &self.model),
        }
    }

    /// The same, with why the kernel doesn't have it.
    pub fn with_missing(&self, prefix: IpNet, view: RouteView) -> RouteView {
        RouteView { missing: self.wanted.why(&prefix).map(str::to_owned), ..view }
    }

    /// The route that we have given to the kernel.
    fn given(&self, prefix: IpNet) -> Option<RouteView> {
        let OwnRoute { kind, metric, ref next_hops, .. } = *self.installed.get(&prefix)?;
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
        kernel_view(&route, &self.by_device(), &self.model)
    }

    /// The route that packets to an address take.
    pub fn route_to(&self, address: IpAddr) -> Option<RouteView> {
        let (prefix, route) = self.route_table.prefix_of(address)?;
        let kernel = match self.model.own_routes.get(&prefix) {
            Some(_) => None,
            None => self.mirrored(prefix).map(|mirrored| mirrored.protocol),
        };
        Some(show::route(&prefix, route, kernel, &self.model))
    }
}

/// A route of the kernel, if the router has a part in it.
pub(crate) fn kernel_view(route: &HostRoute, ports: &PortsByDevice, model: &Model) -> Option<RouteView> {
    let target = from_kernel(route, ports)?;
    Some(show::route(&route.prefix, &target, Some(route.protocol), model))
}

/// The kernel's word for who made a route (rtnetlink(7); iproute2's `rt_protos`).
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
