//! Memory shortage. Refuses requests that allocate memory. Still accepts requests that free memory or read
//! the status.

use axum::body::HttpBody as _;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use millrace_controller::Router;

use crate::http::extract::Room;
use crate::http::problem::Problem;

/// Paths that can still be read during a shortage, since their answers are small.
const SPARED: [&str; 3] = ["/status", "/summary", "/events"];
/// Assumed length of a body whose length is not declared, in bytes. [`Room`] asks about a longer one when it has arrived.
const UNSAID: u64 = 1 << 20;
/// Length up to which a body may free memory without a check, in bytes.
const SHORT: usize = 64 << 10;
/// Seconds until a retry makes sense, since the router checks memory once a second.
const AGAIN: u64 = 2;

/// Returns the check of memory for a body that has arrived.
fn room_of(router: Router) -> Room {
    Room::new(move |bytes| match bytes > SHORT {
        true => router.room_for(bytes).map_err(|error| Problem::from(error).with_retry(AGAIN)),
        false => Ok(()),
    })
}

/// Carries out a request if there is enough memory for it. Otherwise answers 503 to reads, and 507 to
/// changes.
pub(crate) async fn look(State(router): State<Router>, mut request: Request, next: Next) -> Response {
    request.extensions_mut().insert(room_of(router.clone()));
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

/// Whether a request accepts a stream of server-sent events.
fn is_stream(request: &Request) -> bool {
    let wanted = request.headers().get(axum::http::header::ACCEPT);
    wanted.and_then(|wanted| wanted.to_str().ok()).is_some_and(|wanted| wanted.contains("event-stream"))
}
