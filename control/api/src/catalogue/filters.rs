//! Resources of filters.

use axum::routing::{delete, get, post};
use millrace_controller::operation::{AddFilter, CheckFilters, ExplainFilters, ListBindings, RemoveFilters};
use millrace_controller::{NewFilter, PageQuery};

use super::long_bodies;
use crate::endpoint::{Endpoint, Resource};
use crate::http::naming::FilterView;
use crate::resources;
use crate::resources::filters::{FiltersAdded, OldFilters};
use crate::resources::show;

/// Returns the resources of filters.
pub(super) fn filters() -> Vec<Resource> {
    vec![
        Resource::new("/filters")
            .on(
                Endpoint::get::<ListBindings>("filters and bindings")
                    .answers::<Vec<FilterView>>()
                    .arguments::<PageQuery>()
                    .paged(),
                get(resources::filters::filters),
            )
            .on(
                Endpoint::create::<AddFilter>("adds a filter, or a list atomically")
                    .answers::<FiltersAdded>()
                    .one_or_list::<NewFilter>(),
                post(resources::filters::add_filters),
            )
            .on(
                Endpoint::delete::<RemoveFilters>("removes filters atomically")
                    .answers::<Vec<FilterView>>()
                    .body::<OldFilters>(),
                delete(resources::filters::remove_filters),
            )
            .bodies(long_bodies()),
        Resource::new("/filters/check").on(
            Endpoint::get::<CheckFilters>("at each gate, filters that never win, and ambiguous pairs"),
            show::<CheckFilters>(),
        ),
        Resource::new("/filters/explain").on(
            Endpoint::get::<ExplainFilters>("at each gate, which filter matches ?packet= and why")
                .arguments::<ExplainFilters>(),
            get(resources::filters::explain_filters),
        ),
        Resource::new("/filters/{id}")
            .on(
                Endpoint::get::<ListBindings>("a filter or binding").answers::<FilterView>().tagged(),
                get(resources::filters::find_filter),
            )
            .on(
                Endpoint::delete::<RemoveFilters>("removes a filter or binding")
                    .answers::<Option<FilterView>>()
                    .tagged(),
                delete(resources::filters::remove_filter),
            ),
    ]
}
