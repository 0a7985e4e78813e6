//! Resource `/control-plane`: control-plane policing by class.

use axum::Json;
use axum::routing::patch;
use millrace_controller::operation::{GetControlPlane, SetControlPlane};
use millrace_controller::view::ControlPlaneView;
use serde_json::{Map, Value};

use super::{Answer, show};
use crate::endpoint::{Endpoint, Resource};
use crate::http::naming::Settings;
use crate::served::Session;

/// Returns the resource.
pub(crate) fn resource() -> Resource {
    Resource::new("/control-plane")
        .on(
            Endpoint::get::<GetControlPlane>(
                "how much of what is for the router itself gets there, by class, and what was dropped",
            ),
            show::<GetControlPlane>(),
        )
        .on(
            Endpoint::patch::<SetControlPlane>(
                "changes how much gets there, as the table control-plane of a configuration says it; null is the default again",
            )
            .body::<Settings<Map<String, Value>>>(),
            patch(change),
        )
}

async fn change(session: Session, Settings(given): Settings<Map<String, Value>>) -> Answer<ControlPlaneView> {
    session.execute(SetControlPlane { changes: given }).await.map(Json)
}
