//! Resources of the router itself: its status, ports, neighbours and settings.

use axum::routing::{delete, get, patch, post};
use millrace_controller::Role::{Admin, Operator, Viewer};
use millrace_controller::view::{HardwareView, NeighbourView, PortView, SummaryView};
use millrace_controller::{NewNeighbour, OldNeighbour, PageQuery, Router, RouterSettings};
use serde_json::{Map, Value};

use super::{description, list};
use crate::effect::Effect;
use crate::http::naming::Settings;
use crate::operation::{Operation, Resource};
use crate::resources::read;
use crate::resources::status::StatusAnswer;
use crate::resources::{self, control_plane, status};
use crate::served::ListView;
use crate::served::paging::pages;

/// Returns the resources of the router, its ports and their neighbours.
pub(super) fn router() -> Vec<Resource> {
    vec![
        Resource::new("/").on(Operation::get::<ListView>(Viewer, "resources and their methods"), get(list)),
        Resource::new("/openapi.json").on(
            Operation::get::<Map<String, Value>>(Viewer, "the API description, in OpenAPI 3.1"),
            get(description),
        ),
        Resource::new("/status")
            .on(Operation::get::<StatusAnswer>(Viewer, "router status"), get(status::status)),
        Resource::new("/summary")
            .on(Operation::get::<SummaryView>(Viewer, "packet totals"), read(Router::summary)),
        Resource::new("/ports").on(
            Operation::get::<Vec<PortView>>(Viewer, "ports with counters and rates"),
            read(Router::ports),
        ),
        Resource::new("/ports/{name}")
            .on(Operation::get::<PortView>(Viewer, "a port"), get(resources::find_port))
            .on(
                Operation::patch::<PortView>(
                    Operator,
                    "changes settings of a port; null restores the default",
                )
                .body::<Settings<Map<String, Value>>>(),
                patch(resources::set_port),
            ),
        Resource::new("/hardware").on(
            Operation::get::<HardwareView>(
                Viewer,
                "processors, ports and the switches between them, with their capabilities",
            ),
            get(resources::hardware),
        ),
        neighbours(),
        Resource::new("/router")
            .on(
                Operation::get::<Settings<RouterSettings>>(Viewer, "router-wide settings").tagged(),
                get(resources::settings),
            )
            .on(
                Operation::patch::<Settings<RouterSettings>>(
                    Admin,
                    "changes router-wide settings; null restores the default",
                )
                .effect(Effect::Protection)
                .body::<Settings<Map<String, Value>>>()
                .tagged(),
                patch(resources::set_settings),
            ),
        control_plane::resource(),
    ]
}

/// Returns the resource of the ports' neighbours.
fn neighbours() -> Resource {
    Resource::new("/neighbours")
        .on(
            Operation::get::<Vec<NeighbourView>>(Viewer, "neighbours of the ports")
                .arguments::<PageQuery>()
                .paged(),
            pages(Router::neighbours, |one| format!("{} {}", one.port, one.address)),
        )
        .on(
            Operation::create::<NeighbourView>(Operator, "adds a static neighbour").body::<NewNeighbour>(),
            post(resources::add_neighbour),
        )
        .on(
            Operation::delete::<NeighbourView>(Operator, "removes a static neighbour").body::<OldNeighbour>(),
            delete(resources::remove_neighbour),
        )
}
