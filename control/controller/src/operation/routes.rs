//! Operations on routes.

use crate::ControlError;
use crate::Page;
use crate::PageQuery;
use crate::Wrong;
use crate::configuration::lists::Numbered;
use crate::configuration::lists::try_removals;
use crate::configuration::lists::try_routes;
use crate::operation::Authorized;
use crate::operation::Effect;
use crate::operation::Operation;
use crate::request::NewRoute;
use crate::request::RouteQuery;
use crate::router::Inner;
use crate::router::Router;
use crate::routes::changes::parse_prefix;
use crate::routes::changes::parse_route;
use crate::routes::list::listed;
use crate::routes::list::parse_cursor;
use crate::show;
use crate::view::RouteView;
use ipnet::IpNet;
use millrace_config::Change;
use millrace_host::PrefixRange;
use schemars::JsonSchema;
use serde::Deserialize;
use std::net::IpAddr;

/// Adds a route. When the operation has succeeded, the next packet uses the route.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct AddRoute(
    /// Route to add.
    pub NewRoute,
);

impl Operation for AddRoute {
    type Answer = RouteView;
    const EFFECT: Effect = Effect::Forwarding;
    const TAKES_MEMORY: bool = true;

    /// # Errors
    /// Returns an error for a prefix with host bits, unknown ports, next hops in no subnet of a port, a
    /// prefix with a configured route, or a refusal by the kernel. Nothing has changed then.
    async fn carry_out(self, router: &Router, _: &Authorized<'_>) -> Result<RouteView, ControlError> {
        let route = parse_route(&self.0)?;
        let prefix = *route.to.value();
        router.change_route(Change::AddRoute(route)).await?;
        router.lock().route_views().added(prefix)
    }
}

/// Removes a configured route. When the operation has succeeded, no further packet uses the route.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveRoute {
    /// Destination prefix.
    pub to: String,
}

impl Operation for RemoveRoute {
    type Answer = RouteView;
    const EFFECT: Effect = Effect::Forwarding;

    /// # Errors
    /// Returns an error if there is no such route, or if it is not a configured route; the error then names
    /// its owner.
    async fn carry_out(self, router: &Router, _: &Authorized<'_>) -> Result<RouteView, ControlError> {
        let prefix = parse_prefix(&self.to)?;
        let (view, route) = {
            let inner = router.lock();
            let views = inner.route_views();
            let view = views.installed(prefix).or_else(|| views.of_prefix(prefix));
            let wanted = || Some(show::wanted_route(inner.model.routes.get(&prefix)?, &inner.model));
            let view = view.or_else(wanted);
            (view, views.ours(prefix)?)
        };
        router.change_route(Change::RemoveRoute(route)).await?;
        view.ok_or_else(|| ControlError::System("the route is removed, but its view is missing".into()))
    }
}

/// Returns the route that packets to an address take.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LookupRoute {
    /// Destination address of the packets.
    pub address: String,
}

impl Operation for LookupRoute {
    type Answer = RouteView;
    const EFFECT: Effect = Effect::Look;

    /// # Errors
    /// Returns an error for an invalid address, if there is no route, or if the data plane does not answer.
    async fn carry_out(self, router: &Router, _: &Authorized<'_>) -> Result<RouteView, ControlError> {
        let wrong = |_| ControlError::invalid(format!("{:?} is not an IP address", self.address));
        let address: IpAddr = self.address.parse().map_err(wrong)?;
        let mut guard = router.lock();
        let inner = &mut *guard;
        let (Some(mut route), Some((prefix, _))) =
            (inner.route_views().to_address(address), inner.routes.table.prefix_of(address))
        else {
            return Err(ControlError::not_found(format!("no route to {address}")));
        };
        let accounts = inner.routes.table.count(&[prefix], &mut inner.workers)?;
        route.queues = accounts.into_iter().flatten().next().as_ref().map(show::queues);
        Ok(route)
    }
}

/// Lists the mirrored kernel routes and the router's own routes: all of them, or those within a prefix.
#[derive(Clone, Debug, Default)]
pub struct ListRoutes(
    /// Selection of the routes.
    pub RouteQuery,
);

impl Operation for ListRoutes {
    type Answer = Page<RouteView>;
    const EFFECT: Effect = Effect::Look;

    /// # Errors
    /// Returns an error for an invalid prefix, limit or cursor, or if the data plane does not answer.
    async fn carry_out(self, router: &Router, _: &Authorized<'_>) -> Result<Page<RouteView>, ControlError> {
        let RouteQuery { within, limit, cursor } = self.0;
        let within = within.as_deref().map(parse_prefix).transpose()?;
        let after = cursor.as_deref().map(parse_cursor).transpose()?;
        let range = PrefixRange { after, within };
        let query = PageQuery { limit, cursor };
        let mut guard = router.lock();
        let inner = &mut *guard;
        let mut page = listed(&inner.route_views(), range, &query)?;
        let prefixes: Vec<IpNet> = page.rows.iter().map(|(prefix, _)| *prefix).collect();
        let accounts = inner.routes.table.count(&prefixes, &mut inner.workers)?;
        for ((_, view), account) in page.rows.iter_mut().zip(accounts) {
            view.queues = account.as_ref().map(show::queues);
        }
        Ok(page.map(|(_, view)| view))
    }
}

/// Adds routes: all of them, or none. When the operation is done, the next packet uses them. Dropping its
/// future doesn't stop the work.
#[derive(Clone, Debug)]
pub struct AddRoutes(pub Vec<NewRoute>);

impl Operation for AddRoutes {
    type Answer = usize;
    const EFFECT: Effect = Effect::Forwarding;
    const TAKES_MEMORY: bool = true;

    /// Returns the number of added routes.
    ///
    /// # Errors
    /// Returns [`ControlError::List`] with the faulty entries, for the reasons of
    /// [`AddRoute`](crate::operation::AddRoute).
    async fn carry_out(self, router: &Router, _: &Authorized<'_>) -> Result<usize, ControlError> {
        let try_all = |inner: &mut Inner, routes: Numbered<millrace_config::Route>, wrong: &mut Wrong| {
            try_routes(&inner.model, &inner.routes, routes, wrong)
        };
        router.make_list(self.0, |new| parse_route(&new), try_all, |_, changes| changes.len()).await
    }
}

/// Removes the configured routes to prefixes: all of them, or none. When the operation is done, no further
/// packet uses them.
#[derive(Clone, Debug)]
pub struct RemoveRoutes(pub Vec<String>);

impl Operation for RemoveRoutes {
    type Answer = usize;
    const EFFECT: Effect = Effect::Forwarding;

    /// Returns the number of removed routes.
    ///
    /// # Errors
    /// Returns [`ControlError::List`] with the faulty entries, for the reasons of
    /// [`RemoveRoute`](crate::operation::RemoveRoute).
    async fn carry_out(self, router: &Router, _: &Authorized<'_>) -> Result<usize, ControlError> {
        let try_all = |inner: &mut Inner, prefixes: Numbered<IpNet>, wrong: &mut Wrong| {
            try_removals(&inner.route_views(), prefixes, wrong)
        };
        router.make_list(self.0, |to| parse_prefix(&to), try_all, |_, changes| changes.len()).await
    }
}

/// Adds a route, or replaces the configured route to the same prefix, without a moment in which the prefix
/// has no route.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct ReplaceRoute(
    /// Route to add.
    pub NewRoute,
);

impl Operation for ReplaceRoute {
    type Answer = RouteView;
    const EFFECT: Effect = Effect::Forwarding;
    const TAKES_MEMORY: bool = true;

    /// # Errors
    /// Returns the errors of [`AddRoute`](crate::operation::AddRoute), except for an existing configured
    /// route. Nothing has changed then.
    async fn carry_out(self, router: &Router, _: &Authorized<'_>) -> Result<RouteView, ControlError> {
        let to = parse_route(&self.0)?;
        let prefix: IpNet = *to.to.value();
        router
            .change(move |inner| {
                let change = match inner.model.routes.get(&prefix).cloned() {
                    Some(from) => Change::SetRoute { from, to },
                    None => Change::AddRoute(to),
                };
                Ok((vec![change], ()))
            })
            .await?;
        router.lock().route_views().added(prefix)
    }
}
