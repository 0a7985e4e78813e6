//! Resource `/control-plane`: control-plane policing by class.

use axum::Json;
use axum::extract::State;
use axum::routing::{get, patch};
use millrace_controller::Role::{Admin, Viewer};
use millrace_controller::view::ControlPlaneView;
use serde_json::{Map, Value};

use crate::effect::Effect;
use crate::http::extract::Body;
use crate::http::naming::{Settings, refused};
use crate::http::problem::Problem;
use crate::operation::{Operation, Resource};
use crate::served::Served;

/// Returns the resource.
pub(crate) fn resource() -> Resource {
    Resource::new("/control-plane")
        .on(
            Operation::get::<ControlPlaneView>(
                Viewer,
                "how much of what is for the router itself gets there, by class, and what was dropped",
            ),
            get(show),
        )
        .on(
            Operation::patch::<ControlPlaneView>(
                Admin,
                "changes how much gets there, as the table control-plane of a configuration says it; null is the default again",
            )
            .effect(Effect::Protection)
            .body::<Settings<Map<String, Value>>>(),
            patch(change),
        )
}

async fn show(State(served): State<Served>) -> Result<Json<ControlPlaneView>, Problem> {
    Ok(Json(served.control.control_plane()?))
}

async fn change(
    State(served): State<Served>,
    Body(Settings(changes)): Body<Settings<Map<String, Value>>>,
) -> Result<Json<ControlPlaneView>, Problem> {
    Ok(Json(served.control.set_control_plane(&changes).await.map_err(refused(&changes))?))
}
