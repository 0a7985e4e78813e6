//! Resources of the router itself: its status, ports, neighbours and settings.

use millrace_controller::operation::{
    AddNeighbour, GetHardware, GetSettings, GetStatus, GetSummary, ListNeighbours, ListPorts,
    RemoveNeighbour, SetPort, SetSettings,
};
use millrace_controller::view::PortView;
use millrace_controller::{NewNeighbour, OldNeighbour, PageQuery, RouterSettings};
use serde_json::{Map, Value};

use super::{description, list};
use crate::endpoint::{Endpoint, Resource};
use crate::http::naming::Settings;
use crate::resources::status::{StatusAnswer, status};
use crate::resources::{admission, control_plane, create, ports, run, settings, show};
use crate::served::ListView;
use crate::served::paging::pages;

/// Returns the resources of the router, its ports and their neighbours.
pub(super) fn router() -> Vec<Resource> {
    let mut resources = vec![
        Resource::new("/").on(Endpoint::own::<ListView>("resources and their methods"), list),
        Resource::new("/openapi.json")
            .on(Endpoint::own::<Map<String, Value>>("the API description, in OpenAPI 3.1"), description),
        Resource::new("/status")
            .on(Endpoint::get::<GetStatus>("router status").answers::<StatusAnswer>(), status),
        Resource::new("/summary").on(Endpoint::get::<GetSummary>("packet totals"), show::<GetSummary>),
        Resource::new("/ports")
            .on(Endpoint::get::<ListPorts>("ports with counters and rates"), show::<ListPorts>),
        Resource::new("/ports/{name}")
            .on(Endpoint::get::<ListPorts>("a port").answers::<PortView>(), ports::find_port)
            .on(
                Endpoint::patch::<SetPort>("changes settings of a port; null restores the default")
                    .body::<Settings<Map<String, Value>>>(),
                ports::set_port,
            ),
        Resource::new("/hardware").on(
            Endpoint::get::<GetHardware>(
                "processors, ports and the switches between them, with their capabilities",
            ),
            show::<GetHardware>,
        ),
        neighbours(),
        Resource::new("/router")
            .on(
                Endpoint::get::<GetSettings>("router-wide settings")
                    .answers::<Settings<RouterSettings>>()
                    .tagged(),
                settings::settings,
            )
            .on(
                Endpoint::patch::<SetSettings>("changes router-wide settings; null restores the default")
                    .answers::<Settings<RouterSettings>>()
                    .body::<Settings<Map<String, Value>>>()
                    .tagged()
                    .tried(),
                settings::set_settings,
            ),
        control_plane::resource(),
    ];
    resources.extend(admission::resources());
    resources
}

/// Returns the resource of the ports' neighbours.
fn neighbours() -> Resource {
    Resource::new("/neighbours")
        .on(
            Endpoint::get::<ListNeighbours>("neighbours of the ports").arguments::<PageQuery>().paged(),
            pages::<ListNeighbours>(|one| format!("{} {}", one.port, one.address)),
        )
        .on(
            Endpoint::create::<AddNeighbour>("adds a static neighbour").body::<NewNeighbour>(),
            create::<AddNeighbour>,
        )
        .on(
            Endpoint::delete::<RemoveNeighbour>("removes a static neighbour").body::<OldNeighbour>(),
            run::<RemoveNeighbour>,
        )
}
