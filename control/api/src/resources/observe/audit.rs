//! Middleware of the audit log, which records changes and reads of packets.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::{Extension, Query, Request, State};
use axum::http::Uri;
use axum::middleware::Next;
use axum::response::Response;
use millrace_controller::{Call, Effect, Principal};
use serde_json::{Value, json};

use crate::http::problem::Detail;
use crate::served::Served;

/// Maximum time that an answer waits for the disk to take its audit line.
const PATIENCE: Duration = Duration::from_secs(1);

/// Carries out a request as a call of its principal. Writes the call's audit line before the answer.
pub(crate) async fn note(
    State(served): State<Served>,
    Extension(principal): Extension<Principal>,
    mut request: Request,
    next: Next,
) -> Response {
    let effect = served.documents.effect(request.method(), request.uri().path());
    let (operation, arguments) = match effect == Effect::Packets {
        true => (format!("{} {}", request.method(), request.uri().path()), arguments(request.uri())),
        false => (format!("{} {}", request.method(), request.uri()), None),
    };
    let call = Call::new(&served.control, principal, operation, effect);
    if let Some(arguments) = arguments {
        call.set_content(arguments);
    }
    request.extensions_mut().insert(call.clone());
    let response = next.run(request).await;
    let why = response.extensions().get::<Detail>().map(|Detail(text)| text.clone());
    let Some(written) = call.close(Some(response.status().as_u16()), why) else { return response };
    // The answer normally waits for the audit line. A slow disk delays it for [`PATIENCE`] at most.
    if tokio::time::timeout(PATIENCE, written.done()).await.is_err() {
        tracing::warn!(
            "the disk is too slow for the audit log: an answer was sent before its line was written"
        );
    }
    response
}

/// Returns the query arguments of a request as an object; `None` if there are none, or they are invalid.
fn arguments(uri: &Uri) -> Option<Value> {
    let Query(arguments) = Query::<BTreeMap<String, String>>::try_from_uri(uri).ok()?;
    (!arguments.is_empty()).then(|| json!(arguments))
}
