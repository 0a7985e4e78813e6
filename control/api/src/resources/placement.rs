//! Resource `/placements`: configured and current levels of flows.

use millrace_controller::NewPlacement;
use millrace_controller::operation::{ListPlacements, PlaceFlows};

use super::{run, show};
use crate::endpoint::{Endpoint, Resource};

/// Returns the resource of placements.
pub(crate) fn resource() -> Resource {
    Resource::new("/placements")
        .on(
            Endpoint::get::<ListPlacements>(
                "placements, the number of flows at each level, and the reasons for flows at a worker",
            ),
            show::<ListPlacements>,
        )
        .on(
            Endpoint::put::<PlaceFlows>(
                "places flows at the level offload or worker; auto removes the placement",
            )
            .body::<NewPlacement>(),
            run::<PlaceFlows>,
        )
}
