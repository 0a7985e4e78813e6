//! Memory shortage: refuses requests that take memory, but not requests that free memory or read the status.

use axum::body::HttpBody as _;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use millrace_controller::Router;

use crate::http::problem::Problem;

/// Paths of small answers that stay available during a shortage.
const SPARED: [&str; 3] = ["/status", "/summary", "/events"];
/// Assumed length of a body whose length is not declared, in bytes.
const UNSAID: u64 = 1 << 20;
/// Seconds until a retry makes sense: memory is checked once a second.
const AGAIN: u64 = 2;

/// Carries out a request if there is enough memory for it; otherwise answers 503 or 507.
pub(crate) async fn look(State(router): State<Router>, request: Request, next: Next) -> Response {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let is_spared = reads && SPARED.contains(&request.uri().path()) && !is_stream(&request);
    if is_spared || *request.method() == Method::DELETE {
        return next.run(request).await;
    }
    let body = request.body().size_hint();
    let bytes = body.exact().unwrap_or_else(|| body.lower().max(UNSAID));
    match router.room_for(usize::try_from(bytes).unwrap_or(usize::MAX)) {
        Ok(()) => next.run(request).await,
        Err(error) => {
            let mut problem = Problem::from(error).with_retry(AGAIN);
            if reads {
                problem.status = StatusCode::SERVICE_UNAVAILABLE;
            }
            problem.into_response()
        }
    }
}

/// Whether a request asks for a stream.
fn is_stream(request: &Request) -> bool {
    let wanted = request.headers().get(axum::http::header::ACCEPT);
    wanted.and_then(|wanted| wanted.to_str().ok()).is_some_and(|wanted| wanted.contains("event-stream"))
}
