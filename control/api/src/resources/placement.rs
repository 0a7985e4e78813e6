//! Resource `/placements`: configured and current levels of flows.

use axum::routing::put;
use millrace_controller::NewPlacement;
use millrace_controller::operation::{ListPlacements, PlaceFlows};

use super::{run, show};
use crate::endpoint::{Endpoint, Resource};

/// Returns the resource of placements.
pub(crate) fn resource() -> Resource {
    Resource::new("/placements")
        .on(
            Endpoint::get::<ListPlacements>(
                "where flows are wanted, where all of them are, and why those at a worker are not in the driver",
            ),
            show::<ListPlacements>(),
        )
        .on(
            Endpoint::put::<PlaceFlows>(
                "says where flows are to be treated: xdp, worker, or auto, where that is left to the router",
            )
            .body::<NewPlacement>(),
            put(run::<PlaceFlows>),
        )
}
