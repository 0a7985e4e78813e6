//! What a request says, taken apart; what can't be read becomes a [`Problem`].

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use millrace_controller::{ControlError, Wrong};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::problem::Problem;

/// How long a body may take to arrive.
const BODY_PATIENCE: Duration = Duration::from_secs(10);

/// The JSON object in a request's body.
pub(crate) struct Body<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let bytes = body(request, state).await?;
        serde_json::from_slice(&bytes).map(Self).map_err(|error| unreadable(&error).into())
    }
}

/// The bytes of a request's body, of which there are some.
async fn body<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, Problem> {
    let bytes = tokio::time::timeout(BODY_PATIENCE, Bytes::from_request(request, state)).await;
    let bytes = bytes
        .map_err(|_| Problem::new(StatusCode::REQUEST_TIMEOUT, "the request's body did not arrive in time"))?
        .map_err(|rejection| Problem::new(rejection.status(), rejection.body_text()))?;
    if bytes.is_empty() {
        return Err(Problem::bad_request("the request has no body: send a JSON object"));
    }
    Ok(bytes)
}

/// The JSON object in a request's body, or a list of such.
pub(crate) enum OneOrList<T> {
    /// One.
    One(T),
    /// A list, of any length.
    List(Vec<T>),
}

impl<S: Send + Sync, T: DeserializeOwned + Send + 'static> FromRequest<S> for OneOrList<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let bytes = body(request, state).await?;
        // Lists may be long: others are not kept waiting.
        let read = tokio::task::spawn_blocking(move || Self::read(&bytes)).await;
        Ok(read.map_err(|error| ControlError::system("read the request", error))??)
    }
}

impl<T: DeserializeOwned> OneOrList<T> {
    fn read(bytes: &[u8]) -> Result<Self, ControlError> {
        if bytes.trim_ascii_start().first() != Some(&b'[') {
            return serde_json::from_slice(bytes).map(Self::One).map_err(|error| unreadable(&error));
        }
        let entries: Vec<Value> = serde_json::from_slice(bytes).map_err(|error| unreadable(&error))?;
        let (count, mut wrong) = (entries.len(), Wrong::default());
        let read = |(number, entry)| {
            wrong.unless(number, serde_json::from_value(entry).map_err(|error| unreadable(&error)))
        };
        let entries = entries.into_iter().enumerate().filter_map(read).collect();
        wrong.refuse(count).map(|()| Self::List(entries))
    }
}

fn unreadable(error: &serde_json::Error) -> ControlError {
    ControlError::Invalid(explain(&error.to_string()))
}

/// The name in a request's path.
pub(crate) struct Name(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let name = Path::from_request_parts(parts, state).await;
        name.map(|Path(name)| Self(name))
            .map_err(|rejection| Problem::new(rejection.status(), rejection.body_text()))
    }
}

/// The names in a request's path, of which there are two.
pub(crate) struct Names(pub [String; 2]);

impl<S: Send + Sync> FromRequestParts<S> for Names {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let names = Path::<(String, String)>::from_request_parts(parts, state).await;
        names
            .map(|Path((one, other))| Self([one, other]))
            .map_err(|rejection| Problem::new(rejection.status(), rejection.body_text()))
    }
}

/// The arguments behind the `?` of a request's path.
pub(crate) struct Arguments<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Arguments<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let arguments = Query::from_request_parts(parts, state).await;
        arguments
            .map(|Query(arguments)| Self(arguments))
            .map_err(|rejection| Problem::bad_request(explain(&rejection.body_text())))
    }
}

/// Serde's message for people: an unknown key names the nearest.
fn explain(message: &str) -> String {
    let Some((_, unknown)) = message.split_once("unknown field ") else {
        return format!("the request can't be read: {message}");
    };
    let mut quoted = unknown.split('`').skip(1).step_by(2);
    let wrong = quoted.next().unwrap_or_default();
    ControlError::unknown("key of this request", wrong, quoted).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_names_the_nearest() {
        let message =
            "unknown field `filtr`, expected one of `gate`, `filter`, `priority` at line 1 column 9";
        assert_eq!(explain(message), "no key of this request is named \"filtr\": did you mean \"filter\"?");
        assert!(explain("expected value at line 1 column 1").ends_with("line 1 column 1"));
    }
}
