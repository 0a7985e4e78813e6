//! Adds and removes routes while the router runs, and looks up the route of an address.
//!
//! The rules are the same as for routes in the configuration. A route through a kernel device is installed in
//! the kernel, and the mirror reports it back. All other routes are held only by the workers.

use std::time::Duration;

use ipnet::IpNet;
use millrace_host::{HostNextHop, HostRoute, OwnRoute, RouteKind};

use crate::ControlError;
use crate::model::{Model, in_no_subnet};
use crate::ports::devices::{Devices, PortsByDevice};
use crate::request::NewRoute;
use crate::routes::from_kernel;
use crate::show;
use crate::view::RouteView;

/// Maximum time to wait until the mirror reports an installed route. It usually takes a millisecond.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);

/// Converts a configured route to the form in which control installs it in the kernel.
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
        let ifindex = ifindex.ok_or_else(|| match &route.port {
            Some(port) => ControlError::invalid(format!(
                "route {:?}: port {:?} has no device now",
                route.to.written(),
                &**port
            )),
            None => in_no_subnet(route),
        })?;
        let onlink = named.is_some() && gateway.is_some();
        Ok(HostNextHop { ifindex, gateway, weight: 1, onlink, dead: false, encap: false })
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

/// Returns the view of a kernel route; `None` for a kind of route that the router doesn't use.
pub(crate) fn kernel_view(route: &HostRoute, ports: &PortsByDevice, model: &Model) -> Option<RouteView> {
    let target = from_kernel(route, ports)?;
    Some(show::route(&route.prefix, &target, Some(route.protocol), model))
}

pub(crate) fn parse_prefix(text: &str) -> Result<IpNet, ControlError> {
    let wrong =
        |_| ControlError::invalid(format!("{text:?} is no prefix: write ADDRESS/LENGTH, as in 10.9.0.0/16"));
    let prefix: IpNet = text.parse().map_err(wrong)?;
    if prefix.trunc() != prefix {
        return Err(ControlError::invalid(format!(
            "{text:?} has host bits: the prefix is {}",
            prefix.trunc()
        )));
    }
    Ok(prefix)
}

pub(crate) fn parse_route(new: &NewRoute) -> Result<millrace_config::Route, ControlError> {
    parse_prefix(&new.to)?;
    let route = millrace_config::Route {
        to: new.to.parse().map_err(|problem| ControlError::invalid(format!("{:?}: {problem}", new.to)))?,
        via: new.via.clone(),
        port: new.port.as_deref().map(Into::into),
        kind: new.kind,
    };
    route.check().map_err(ControlError::invalid)?;
    Ok(route)
}
