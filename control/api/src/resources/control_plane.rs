//! Resource `/control-plane`: control-plane policing by class.

use axum::Json;
use millrace_controller::operation::{GetControlPlane, SetControlPlane};
use millrace_controller::view::ControlPlaneView;
use serde_json::{Map, Value};

use super::{Answer, show};
use crate::endpoint::{Endpoint, Resource};
use crate::http::naming::Settings;
use crate::served::Session;

/// Returns the resource of control-plane policing.
pub(crate) fn resource() -> Resource {
    Resource::new("/control-plane")
        .on(
            Endpoint::get::<GetControlPlane>("control-plane policing: rates and counters by class"),
            show::<GetControlPlane>,
        )
        .on(
            Endpoint::patch::<SetControlPlane>(
                "changes rates of control-plane policing; null restores the default",
            )
            .body::<Settings<Map<String, Value>>>(),
            change,
        )
}

async fn change(session: Session, Settings(given): Settings<Map<String, Value>>) -> Answer<ControlPlaneView> {
    session.execute(SetControlPlane { changes: given }).await.map(Json)
}
