//! Routes added and removed while the router runs, and the lookup of an address's route.
//!
//! The same rules hold as for configured routes. A route through a kernel device is installed in the kernel, and
//! the mirror reports it back; the workers alone hold the others.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use millrace_config::Change;
use millrace_host::{HostNextHop, HostRoute, OwnRoute, PROTOCOL_MILLRACE, RouteKind};

use crate::ControlError;
use crate::model::Model;
use crate::ports::devices::Devices;
use crate::request::NewRoute;
use crate::router::Router;
use crate::routes::{PortsByDevice, from_kernel};
use crate::show;
use crate::view::RouteView;

/// Maximum time to wait until the mirror reports an installed route. Usually it takes a millisecond.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);

impl Router {
    /// Adds a route. When this returns, the next packet uses it.
    ///
    /// # Errors
    /// Returns an error for a prefix with host bits, unknown ports, next hops in no subnet of a port, a
    /// prefix with a configured route, or a refusal by the kernel. Nothing has changed then.
    pub async fn add_route(&self, new: &NewRoute) -> Result<RouteView, ControlError> {
        let route = parse_route(new)?;
        let prefix = *route.to.value();
        self.change_route(Change::AddRoute(route)).await?;
        self.route_to_prefix(prefix)
    }

    /// Returns the view of the route to exactly this prefix, which was just added.
    pub(crate) fn route_to_prefix(&self, prefix: IpNet) -> Result<RouteView, ControlError> {
        let inner = self.lock();
        let views = inner.route_views();
        let view = views.of_prefix(prefix).or_else(|| views.installed(prefix));
        let view = view.map(|view| inner.routes.with_missing(prefix, view));
        view.ok_or_else(|| ControlError::System("the new route is not there".into()))
    }

    /// Removes a configured route. When this returns, no further packet uses it.
    ///
    /// # Errors
    /// Returns an error if there is no such route, or if it is not a configured route; the error then names
    /// its owner.
    pub async fn remove_route(&self, to: &str) -> Result<RouteView, ControlError> {
        let prefix = parse_prefix(to)?;
        let (view, route) = {
            let inner = self.lock();
            let views = inner.route_views();
            let view = views.installed(prefix).or_else(|| views.of_prefix(prefix));
            let wanted = || Some(show::wanted_route(inner.model.routes.get(&prefix)?, &inner.model));
            let view = view.or_else(wanted);
            (view, views.ours(prefix)?)
        };
        self.change_route(Change::RemoveRoute(route)).await?;
        view.ok_or_else(|| ControlError::System("the route was not there".into()))
    }

    /// Returns the route that packets to an address take.
    ///
    /// # Errors
    /// Returns an error for an invalid address, if there is no route, or if the data plane does not answer.
    pub fn lookup_route(&self, address: &str) -> Result<RouteView, ControlError> {
        let wrong = |_| ControlError::Invalid(format!("{address:?} is no address"));
        let address: IpAddr = address.parse().map_err(wrong)?;
        let mut guard = self.lock();
        let inner = &mut *guard;
        let (Some(mut route), Some((prefix, _))) =
            (inner.route_views().to_address(address), inner.routes.table.prefix_of(address))
        else {
            return Err(ControlError::NotFound(format!("no route to {address}")));
        };
        let accounts = inner.routes.table.count(&[prefix], &mut inner.workers)?;
        route.queues = accounts.into_iter().flatten().next().as_ref().map(show::queues);
        Ok(route)
    }
}

/// Converts a configured route to the form in which it is installed in the kernel.
pub(super) fn own_route(
    route: &millrace_config::Route,
    model: &Model,
    devices: &Devices,
) -> Result<OwnRoute, ControlError> {
    let kind = match route.kind {
        millrace_config::RouteKind::Forward => RouteKind::Unicast,
        millrace_config::RouteKind::Blackhole => RouteKind::Blackhole,
        millrace_config::RouteKind::Unreachable => RouteKind::Unreachable,
        millrace_config::RouteKind::Prohibit => RouteKind::Prohibit,
    };
    let named = route.port.as_ref().and_then(|name| devices.kernel.get(&model.port(name).ok()?.id));
    let port_towards = |via: std::net::IpAddr| {
        let plans =
            model.ports.iter().filter(|plan| plan.settings.addresses.iter().any(|net| net.contains(&via)));
        plans.into_iter().find_map(|plan| devices.kernel.get(&plan.id)).map(|device| device.ifindex)
    };
    let hop = |gateway: Option<std::net::IpAddr>, ifindex: Option<u32>| {
        let ifindex = ifindex.ok_or_else(|| {
            let problem = match &route.port {
                Some(port) => format!("port {:?} has no device now", &**port),
                None => "its next hop is in no subnet of a port; say `port` as well".to_owned(),
            };
            ControlError::Invalid(format!("route {:?}: {problem}", route.to.written()))
        })?;
        let onlink = named.is_some() && gateway.is_some();
        Ok(HostNextHop { ifindex, gateway, weight: 1, onlink, dead: false, linkdown: false, encap: false })
    };
    let named_index = named.map(|device| device.ifindex);
    let next_hops = match (kind, route.via.as_slice()) {
        (RouteKind::Unicast, []) => vec![hop(None, named_index)?],
        (RouteKind::Unicast, via) => via
            .iter()
            .map(|via| hop(Some(*via), named_index.or_else(|| port_towards(*via))))
            .collect::<Result<_, ControlError>>()?,
        _ => Vec::new(),
    };
    Ok(OwnRoute { prefix: *route.to.value(), kind, metric: 0, next_hops })
}

/// Returns the view of a kernel route; `None` for a kind that the router doesn't use.
pub(crate) fn kernel_view(route: &HostRoute, ports: &PortsByDevice, model: &Model) -> Option<RouteView> {
    let target = from_kernel(route, ports)?;
    Some(show::route(&route.prefix, &target, Some(route.protocol), model))
}

/// Returns the kernel's name for the protocol of a route, or its number (rtnetlink(7); iproute2's
/// `rt_protos`).
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
