//! Requests and answers as HTTP has them: bodies, arguments, entity tags, problem details and streams.

pub(crate) mod body_budget;
pub(crate) mod extract;
pub(crate) mod naming;
pub(crate) mod problem;
pub(crate) mod streaming;
pub(crate) mod tag;

use axum::http::{HeaderValue, header};
use axum::response::Response;

/// Sets the `ETag` header of an answer.
fn put_tag(response: &mut Response, tag: &str) {
    if let Ok(tag) = HeaderValue::from_str(tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
}
