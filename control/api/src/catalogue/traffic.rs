//! Resources of forwarding: routes, filters, flows and lookups.

use axum::routing::{delete, get, post, put};
use millrace_controller::Role::{Operator, Viewer};
use millrace_controller::view::{FlowsView, GateCheckView, GateExplanationView, LookupView, RouteView};
use millrace_controller::{FlowQuery, NewFilter, NewRoute, PageQuery, RouteQuery};

use super::long_bodies;
use crate::effect::Effect;
use crate::http::naming::FilterView;
use crate::operation::{Operation, Resource};
use crate::resources::{self, placement};

/// Returns the resources of routes.
pub(super) fn routes() -> Vec<Resource> {
    vec![
        Resource::new("/routes")
            .on(
                Operation::get::<Vec<RouteView>>(
                    Viewer,
                    "routes of the kernel and of the router, with counters",
                )
                .arguments::<RouteQuery>()
                .paged(),
                get(resources::routes),
            )
            .on(
                Operation::create::<resources::RoutesAdded>(
                    Operator,
                    "adds a static route, or a list atomically",
                )
                .one_or_list::<NewRoute>(),
                post(resources::add_routes),
            )
            .on(
                Operation::put::<RouteView>(
                    Operator,
                    "adds a static route, or replaces the one of the same prefix",
                )
                .body::<NewRoute>(),
                put(resources::replace_route),
            )
            .on(
                Operation::delete::<resources::RoutesRemoved>(
                    Operator,
                    "removes a static route, or a list atomically",
                )
                .one_or_list::<resources::OldRoute>(),
                delete(resources::remove_routes),
            )
            .bodies(long_bodies()),
        Resource::new("/routes/lookup").on(
            Operation::get::<RouteView>(Viewer, "the route of ?address=").arguments::<resources::Address>(),
            get(resources::lookup_route),
        ),
    ]
}

/// Returns the resources of filters.
pub(super) fn filters() -> Vec<Resource> {
    vec![
        Resource::new("/filters")
            .on(
                Operation::get::<Vec<FilterView>>(Viewer, "filters and bindings")
                    .arguments::<PageQuery>()
                    .paged(),
                get(resources::filters),
            )
            .on(
                Operation::create::<resources::FiltersAdded>(Operator, "adds a filter, or a list atomically")
                    .one_or_list::<NewFilter>(),
                post(resources::add_filters),
            )
            .on(
                Operation::delete::<Vec<FilterView>>(Operator, "removes filters atomically")
                    .body::<resources::OldFilters>(),
                delete(resources::remove_filters),
            )
            .bodies(long_bodies()),
        Resource::new("/filters/check").on(
            Operation::get::<Vec<GateCheckView>>(
                Viewer,
                "at each gate, filters that never win, and ambiguous pairs",
            ),
            get(resources::check_filters),
        ),
        Resource::new("/filters/explain").on(
            Operation::get::<Vec<GateExplanationView>>(
                Viewer,
                "at each gate, which filter matches ?packet= and why",
            )
            .arguments::<resources::Packet>(),
            get(resources::explain_filters),
        ),
        Resource::new("/filters/{id}")
            .on(
                Operation::get::<FilterView>(Viewer, "a filter or binding").tagged(),
                get(resources::find_filter),
            )
            .on(
                Operation::delete::<Option<FilterView>>(Operator, "removes a filter or binding").tagged(),
                delete(resources::remove_filter),
            ),
    ]
}

/// Returns the resources of flows and of the lookup of a packet.
pub(super) fn flows() -> Vec<Resource> {
    vec![
        Resource::new("/flows")
            .on(
                Operation::get::<FlowsView>(Viewer, "flows that match a filter, in an order")
                    .arguments::<FlowQuery>(),
                get(resources::flows),
            )
            .on(
                Operation::delete::<resources::Flushed>(Operator, "flushes flows that match a filter")
                    .arguments::<resources::OldFlows>(),
                delete(resources::flush_flows),
            ),
        placement::resource(),
        Resource::new("/lookup").on(
            Operation::post::<LookupView>(Viewer, "shows how the router would forward a packet")
                .effect(Effect::Look)
                .body::<resources::Packet>(),
            post(resources::lookup),
        ),
    ]
}
