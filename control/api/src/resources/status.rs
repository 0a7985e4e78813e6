//! Status of the daemon and of its API.

use axum::Json;
use millrace_controller::operation::GetStatus;
use millrace_controller::view::StatusView;
use schemars::JsonSchema;
use serde::Serialize;

use super::Answer;
use crate::served::{InterfaceView, Session};

/// Status of the daemon and of its API.
#[derive(Serialize, JsonSchema)]
pub(crate) struct StatusAnswer {
    #[serde(flatten)]
    status: StatusView,
    /// Status of the API.
    interface: InterfaceView,
}

/// Returns the status of the daemon and of its API.
pub(crate) async fn status(session: Session) -> Answer<StatusAnswer> {
    let interface = session.served.interface.view();
    Ok(Json(StatusAnswer { status: session.execute(GetStatus).await?, interface }))
}
