//! Where memory is short, what takes more of it is refused; what frees some, and what says how things are, is not.

use axum::body::HttpBody as _;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use millrace_controller::Router;

use crate::http::problem::Problem;

/// What is answered while memory is short: little, and what one looks at then.
const SPARED: [&str; 3] = ["/status", "/summary", "/events"];
/// For how many bytes a body counts that doesn't say how long it is.
const UNSAID: u64 = 1 << 20;
/// Seconds after which memory may be there again: it is looked at once a second.
const AGAIN: u64 = 2;

/// Carries out a request where there is memory for it.
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

/// Whether an answer is wanted that goes on.
fn is_stream(request: &Request) -> bool {
    let wanted = request.headers().get(axum::http::header::ACCEPT);
    wanted.and_then(|wanted| wanted.to_str().ok()).is_some_and(|wanted| wanted.contains("event-stream"))
}
