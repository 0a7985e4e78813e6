//! Resources of filters.

use millrace_controller::operation::{AddFilter, CheckFilters, ExplainFilters, ListBindings, RemoveFilters};
use millrace_controller::{NewFilter, PageQuery};

use crate::endpoint::{Endpoint, Resource};
use crate::http::naming::FilterView;
use crate::resources;
use crate::resources::filters::{FiltersAdded, OldFilters};
use crate::resources::{ask, show};

/// Returns the resources of filters.
pub(super) fn filters() -> Vec<Resource> {
    vec![
        Resource::new("/filters")
            .on(
                Endpoint::get::<ListBindings>("filters and bindings")
                    .answers::<Vec<FilterView>>()
                    .arguments::<PageQuery>()
                    .paged(),
                resources::filters::filters,
            )
            .on(
                Endpoint::create::<AddFilter>("adds a filter, or a list atomically")
                    .answers::<FiltersAdded>()
                    .one_or_list::<NewFilter>(),
                resources::filters::add_filters,
            )
            .on(
                Endpoint::delete::<RemoveFilters>("removes filters atomically")
                    .answers::<Vec<FilterView>>()
                    .body::<OldFilters>(),
                resources::filters::remove_filters,
            ),
        Resource::new("/filters/check").on(
            Endpoint::get::<CheckFilters>("at each gate, filters that never win, and ambiguous pairs"),
            show::<CheckFilters>,
        ),
        Resource::new("/filters/explain").on(
            Endpoint::get::<ExplainFilters>("at each gate, which filter matches ?packet= and why")
                .arguments::<ExplainFilters>(),
            ask::<ExplainFilters>,
        ),
        Resource::new("/filters/{id}")
            .on(
                Endpoint::get::<ListBindings>("a filter or binding").answers::<FilterView>().tagged(),
                resources::filters::find_filter,
            )
            .on(
                Endpoint::delete::<RemoveFilters>("removes a filter or binding")
                    .answers::<Option<FilterView>>()
                    .tagged(),
                resources::filters::remove_filter,
            ),
    ]
}
