//! Resource `/placements`: configured and current levels of flows.

use axum::Json;
use axum::extract::State;
use axum::routing::{get, put};
use millrace_controller::NewPlacement;
use millrace_controller::Role::{Operator, Viewer};
use millrace_controller::view::{PlacementView, PlacementsView};

use crate::http::extract::Body;
use crate::http::problem::Problem;
use crate::operation::{Operation, Resource};
use crate::served::Served;

/// Returns the resource of placements.
pub(crate) fn resource() -> Resource {
    Resource::new("/placements")
        .on(
            Operation::get::<PlacementsView>(
                Viewer,
                "where flows are wanted, where all of them are, and why those at a worker are not in the driver",
            ),
            get(list),
        )
        .on(
            Operation::put::<PlacementView>(
                Operator,
                "says where flows are to be treated: xdp, worker, or auto, where that is left to the router",
            )
            .body::<NewPlacement>(),
            put(place),
        )
}

async fn list(State(served): State<Served>) -> Result<Json<PlacementsView>, Problem> {
    Ok(Json(served.control.placements().await?))
}

async fn place(
    State(served): State<Served>,
    Body(new): Body<NewPlacement>,
) -> Result<Json<PlacementView>, Problem> {
    Ok(Json(served.control.place(&new).await?))
}
