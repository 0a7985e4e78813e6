//! Status of the daemon and of its interface.

use axum::Json;
use axum::extract::State;
use millrace_controller::view::StatusView;
use schemars::JsonSchema;
use serde::Serialize;

use crate::http::problem::Problem;
use crate::served::InterfaceView;
use crate::served::Served;

/// Status of the daemon and of its interface.
#[derive(Serialize, JsonSchema)]
pub(crate) struct StatusAnswer {
    #[serde(flatten)]
    status: StatusView,
    /// Status of the interface.
    interface: InterfaceView,
}

pub(crate) async fn status(State(served): State<Served>) -> Result<Json<StatusAnswer>, Problem> {
    let interface = served.interface.view();
    Ok(Json(StatusAnswer { status: served.control.status()?, interface }))
}
