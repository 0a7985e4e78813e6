//! Errors as problem details (RFC 9457).

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use millrace_controller::ControlError;
use serde::Serialize;

/// An answer that says why there is no other.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub status: StatusCode,
    pub detail: String,
    /// How many entries of a list are wrong.
    wrong: usize,
    /// The first of them.
    errors: Vec<Entry>,
}

/// An entry of a list that is wrong.
#[derive(Clone, Debug, Serialize)]
struct Entry {
    /// Its number, from 0.
    entry: usize,
    /// What is wrong.
    detail: String,
}

#[derive(Serialize)]
struct Body<'a> {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    wrong: Option<usize>,
    #[serde(skip_serializing_if = "<[Entry]>::is_empty")]
    errors: &'a [Entry],
}

/// The status that says what kind of error it is; of a list's, the first entry's.
fn status(error: &ControlError) -> StatusCode {
    match error {
        ControlError::Invalid(_) | ControlError::Config(_) => StatusCode::BAD_REQUEST,
        ControlError::NotFound(_) => StatusCode::NOT_FOUND,
        ControlError::Conflict(_) => StatusCode::CONFLICT,
        ControlError::System(_) => StatusCode::INTERNAL_SERVER_ERROR,
        ControlError::List(list) => {
            list.errors.first().map_or(StatusCode::BAD_REQUEST, |(_, error)| status(error))
        }
    }
}

impl Problem {
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), wrong: 0, errors: Vec::new() }
    }

    pub fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }
}

impl From<ControlError> for Problem {
    fn from(error: ControlError) -> Self {
        let mut problem = Self::new(status(&error), error.to_string());
        if let ControlError::List(list) = error {
            problem.wrong = list.wrong;
            let entry = |(entry, error): (usize, ControlError)| Entry { entry, detail: error.to_string() };
            problem.errors = list.errors.into_iter().map(entry).collect();
        }
        problem
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = Body {
            // RFC 9457, 4.2.1: no more is known than the status says.
            r#type: "about:blank",
            title: self.status.canonical_reason().unwrap_or("Error"),
            status: self.status.as_u16(),
            detail: &self.detail,
            wrong: Some(self.wrong).filter(|wrong| *wrong > 0),
            errors: &self.errors,
        };
        let mut response = (self.status, axum::Json(body)).into_response();
        let kind = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }
}
