//! Resources of routes.

use millrace_controller::operation::{AddRoute, ListRoutes, LookupRoute, RemoveRoute, ReplaceRoute};
use millrace_controller::view::RouteView;
use millrace_controller::{NewRoute, RouteQuery};

use crate::endpoint::{Endpoint, Resource};
use crate::resources::routes::{self, RoutesAdded, RoutesRemoved};
use crate::resources::{ask, run};

/// Returns the resources of routes.
pub(super) fn routes() -> Vec<Resource> {
    vec![
        Resource::new("/routes")
            .on(
                Endpoint::get::<ListRoutes>("routes of the kernel and of the router, with counters")
                    .answers::<Vec<RouteView>>()
                    .arguments::<RouteQuery>()
                    .paged(),
                routes::routes,
            )
            .on(
                Endpoint::create::<AddRoute>("adds a static route, or a list atomically")
                    .answers::<RoutesAdded>()
                    .one_or_list::<NewRoute>(),
                routes::add_routes,
            )
            .on(
                Endpoint::put::<ReplaceRoute>(
                    "adds a static route, or replaces the static route of its prefix",
                )
                .body::<NewRoute>(),
                run::<ReplaceRoute>,
            )
            .on(
                Endpoint::delete::<RemoveRoute>("removes a static route, or a list atomically")
                    .answers::<RoutesRemoved>()
                    .one_or_list::<RemoveRoute>(),
                routes::remove_routes,
            ),
        Resource::new("/routes/lookup").on(
            Endpoint::get::<LookupRoute>("the route of ?address=").arguments::<LookupRoute>(),
            ask::<LookupRoute>,
        ),
    ]
}
