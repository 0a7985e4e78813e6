//! Resource `/admission`: what the router may promise, and what it has promised.

use axum::Json;
use millrace_controller::operation::{ExplainService, GetAdmission, SetAdmission};
use millrace_controller::view::AdmissionView;
use serde_json::{Map, Value};

use super::{Answer, run, show};
use crate::endpoint::{Endpoint, Resource};
use crate::http::naming::Settings;
use crate::served::Session;

/// Returns the resources of admission.
pub(crate) fn resources() -> [Resource; 2] {
    let admission = Resource::new("/admission")
        .on(
            Endpoint::get::<GetAdmission>("what may be promised of each component, and what is promised"),
            show::<GetAdmission>,
        )
        .on(
            Endpoint::patch::<SetAdmission>("changes how much may be promised; null restores the default")
                .body::<Settings<Map<String, Value>>>(),
            change,
        );
    let explain =
        Endpoint::post::<ExplainService>("shows at which level a service would go, and what would be left");
    [
        admission,
        Resource::new("/admission/explain").on(explain.body::<ExplainService>(), run::<ExplainService>),
    ]
}

async fn change(session: Session, Settings(given): Settings<Map<String, Value>>) -> Answer<AdmissionView> {
    session.execute(SetAdmission { changes: given }).await.map(Json)
}
