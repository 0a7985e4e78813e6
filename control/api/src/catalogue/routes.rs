//! Resources of routes.

use axum::routing::{delete, get, post, put};
use millrace_controller::operation::{AddRoute, ListRoutes, LookupRoute, RemoveRoute, ReplaceRoute};
use millrace_controller::view::RouteView;
use millrace_controller::{NewRoute, RouteQuery};

use super::long_bodies;
use crate::endpoint::{Endpoint, Resource};
use crate::resources::routes::{self, RoutesAdded, RoutesRemoved};
use crate::resources::run;

/// Returns the resources of routes.
pub(super) fn routes() -> Vec<Resource> {
    vec![
        Resource::new("/routes")
            .on(
                Endpoint::get::<ListRoutes>("routes of the kernel and of the router, with counters")
                    .answers::<Vec<RouteView>>()
                    .arguments::<RouteQuery>()
                    .paged(),
                get(routes::routes),
            )
            .on(
                Endpoint::create::<AddRoute>("adds a static route, or a list atomically")
                    .answers::<RoutesAdded>()
                    .one_or_list::<NewRoute>(),
                post(routes::add_routes),
            )
            .on(
                Endpoint::put::<ReplaceRoute>(
                    "adds a static route, or replaces the static route of its prefix",
                )
                .body::<NewRoute>(),
                put(run::<ReplaceRoute>),
            )
            .on(
                Endpoint::delete::<RemoveRoute>("removes a static route, or a list atomically")
                    .answers::<RoutesRemoved>()
                    .one_or_list::<RemoveRoute>(),
                delete(routes::remove_routes),
            )
            .bodies(long_bodies()),
        Resource::new("/routes/lookup").on(
            Endpoint::get::<LookupRoute>("the route of ?address=").arguments::<LookupRoute>(),
            get(routes::lookup_route),
        ),
    ]
}
