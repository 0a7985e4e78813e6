//! Operations on routes.

use std::net::IpAddr;

use ipnet::IpNet;
use millrace_host::PrefixRange;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::configuration::lists::{Numbered, try_removals, try_routes};
use crate::operation::Operation;
use crate::operation::kinds::{Change, Changing, Query, Reading};
use crate::request::{NewRoute, RouteQuery};
use crate::router::Inner;
use crate::routes::changes::{parse_prefix, parse_route};
use crate::routes::list::listed;
use crate::view::RouteView;
use crate::{ControlError, Page, PageQuery, Wrong, show};

/// Adds a route. When the operation has succeeded, the route applies to the next packet.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct AddRoute(
    /// Route to add.
    pub NewRoute,
);

impl Operation for AddRoute {
    type Answer = RouteView;
    type Kind = Change;

    /// # Errors
    /// Returns an error for a prefix with host bits, unknown ports, next hops in no subnet of a port, a
    /// prefix with a configured route, or a refusal by the kernel. Nothing has changed then.
    async fn carry_out(self, router: &Changing) -> Result<RouteView, ControlError> {
        let route = parse_route(&self.0)?;
        let prefix = *route.to.value();
        let plan = move |_: &mut Inner| Ok((vec![millrace_config::Change::AddRoute(route)], ()));
        router.change(plan, move |inner, ()| inner.seen().route_views().added(prefix)).await
    }
}

/// Removes a configured route. When the operation has succeeded, the route applies to no further packet.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveRoute {
    /// Destination prefix.
    pub to: String,
}

impl Operation for RemoveRoute {
    type Answer = RouteView;
    type Kind = Change;
    const TAKES_MEMORY: bool = false;

    /// # Errors
    /// Returns an error if there is no route to the prefix. Also returns an error if the route is not a
    /// configured one; this error names the owner of the route.
    async fn carry_out(self, router: &Changing) -> Result<RouteView, ControlError> {
        let prefix = parse_prefix(&self.to)?;
        let plan = move |inner: &mut Inner| {
            let seen = inner.seen();
            let views = seen.route_views();
            let route = views.ours(prefix)?;
            let view = views.installed(prefix).or_else(|| views.of_prefix(prefix));
            let view = view.unwrap_or_else(|| show::wanted_route(&route, seen.model));
            Ok((vec![millrace_config::Change::RemoveRoute(route)], view))
        };
        router.change(plan, |_, view| Ok(view)).await
    }
}

/// Returns the route for packets to an address.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LookupRoute {
    /// Destination address of the packets.
    pub address: String,
}

impl Operation for LookupRoute {
    type Answer = RouteView;
    type Kind = Query;

    /// # Errors
    /// Returns an error for an invalid address, if there is no route, or if the data plane does not answer.
    async fn carry_out(self, router: &Reading) -> Result<RouteView, ControlError> {
        let wrong = |_| ControlError::invalid(format!("{:?} is not an IP address", self.address));
        let address: IpAddr = self.address.parse().map_err(wrong)?;
        let mut guard = router.lock();
        let inner = guard.seen();
        let (Some(mut route), Some((prefix, _))) =
            (inner.route_views().to_address(address), inner.routes.table.prefix_of(address))
        else {
            return Err(ControlError::not_found(format!("no route to {address}")));
        };
        let accounts = inner.routes.table.count(&[prefix], inner.workers)?;
        route.queues = accounts.into_iter().flatten().next().as_ref().map(show::queues);
        Ok(route)
    }
}

/// Lists the kernel's routes and the router's own routes: all of them, or the routes within a prefix.
#[derive(Clone, Debug, Default)]
pub struct ListRoutes(
    /// Selection of the routes.
    pub RouteQuery,
);

impl Operation for ListRoutes {
    type Answer = Page<RouteView>;
    type Kind = Query;

    /// # Errors
    /// Returns an error for an invalid prefix, limit or cursor, or if the data plane does not answer.
    async fn carry_out(self, router: &Reading) -> Result<Page<RouteView>, ControlError> {
        let RouteQuery { within, limit, cursor } = self.0;
        let within = within.as_deref().map(parse_prefix).transpose()?;
        let query = PageQuery { limit, cursor };
        let range = PrefixRange { after: query.after()?, within };
        let mut guard = router.lock();
        let inner = guard.seen();
        let mut page = listed(&inner.route_views(), range, &query)?;
        let prefixes: Vec<IpNet> = page.rows.iter().map(|(prefix, _)| *prefix).collect();
        let accounts = inner.routes.table.count(&prefixes, inner.workers)?;
        for ((_, view), account) in page.rows.iter_mut().zip(accounts) {
            view.queues = account.as_ref().map(show::queues);
        }
        Ok(page.map(|(_, view)| view))
    }
}

/// Adds routes: all of them, or none. When the operation is done, the routes apply to the next packet.
/// Dropping the operation's future doesn't stop the work.
#[derive(Clone, Debug)]
pub struct AddRoutes(pub Vec<NewRoute>);

impl Operation for AddRoutes {
    type Answer = usize;
    type Kind = Change;

    /// Returns the number of added routes.
    ///
    /// # Errors
    /// Returns [`ControlError::List`] with the faulty entries, for the reasons of
    /// [`AddRoute`](crate::operation::AddRoute).
    async fn carry_out(self, router: &Changing) -> Result<usize, ControlError> {
        let try_all = |inner: &mut Inner, routes: Numbered<millrace_config::Route>, wrong: &mut Wrong| {
            try_routes(&inner.model, &inner.routes, routes, wrong)
        };
        router.make_list(self.0, |new| parse_route(&new), try_all, |_, changes| changes.len()).await
    }
}

/// Removes the configured routes to prefixes: all of them, or none. When the operation is done, the routes
/// apply to no further packet.
#[derive(Clone, Debug)]
pub struct RemoveRoutes(pub Vec<String>);

impl Operation for RemoveRoutes {
    type Answer = usize;
    type Kind = Change;
    const TAKES_MEMORY: bool = false;

    /// Returns the number of removed routes.
    ///
    /// # Errors
    /// Returns [`ControlError::List`] with the faulty entries, for the reasons of
    /// [`RemoveRoute`](crate::operation::RemoveRoute).
    async fn carry_out(self, router: &Changing) -> Result<usize, ControlError> {
        let try_all = |inner: &mut Inner, prefixes: Numbered<IpNet>, wrong: &mut Wrong| {
            try_removals(&inner.seen().route_views(), prefixes, wrong)
        };
        router.make_list(self.0, |to| parse_prefix(&to), try_all, |_, changes| changes.len()).await
    }
}

/// Adds a route, or replaces the configured route to the same prefix. The prefix has a route at every moment
/// of the replacement.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct ReplaceRoute(
    /// Route to add.
    pub NewRoute,
);

impl Operation for ReplaceRoute {
    type Answer = RouteView;
    type Kind = Change;

    /// # Errors
    /// Returns the errors of [`AddRoute`](crate::operation::AddRoute), except for an existing configured
    /// route. Nothing has changed then.
    async fn carry_out(self, router: &Changing) -> Result<RouteView, ControlError> {
        let to = parse_route(&self.0)?;
        let prefix: IpNet = *to.to.value();
        let plan = move |inner: &mut Inner| {
            let change = match inner.model.routes.get(&prefix).cloned() {
                Some(from) => millrace_config::Change::SetRoute { from, to },
                None => millrace_config::Change::AddRoute(to),
            };
            Ok((vec![change], ()))
        };
        router.change(plan, move |inner, ()| inner.seen().route_views().added(prefix)).await
    }
}
