//! Resource `/admission`: what the router may promise, and what it has promised.

use axum::Json;
use millrace_controller::operation::{GetAdmission, SetAdmission};
use millrace_controller::view::AdmissionView;
use serde_json::{Map, Value};

use super::{Answer, show};
use crate::endpoint::{Endpoint, Resource};
use crate::http::naming::Settings;
use crate::served::Session;

/// Returns the resource of admission.
pub(crate) fn resource() -> Resource {
    Resource::new("/admission")
        .on(
            Endpoint::get::<GetAdmission>("what may be promised of each component, and what is promised"),
            show::<GetAdmission>,
        )
        .on(
            Endpoint::patch::<SetAdmission>("changes how much may be promised; null restores the default")
                .body::<Settings<Map<String, Value>>>(),
            change,
        )
}

async fn change(session: Session, Settings(given): Settings<Map<String, Value>>) -> Answer<AdmissionView> {
    session.execute(SetAdmission { changes: given }).await.map(Json)
}
