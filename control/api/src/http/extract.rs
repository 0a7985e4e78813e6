//! Extractors of request parts. Invalid input gives a [`Problem`].

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body as AnyBody, Bytes, HttpBody as _, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body_util::LengthLimitError;
use millrace_config::reading::{Document, ReadError, Tree};
use millrace_controller::{Call, ControlError, Wrong};
use millrace_units::Spelling;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::http::body_budget::Share;
use crate::http::naming::Settings;
use crate::http::problem::Problem;

/// Maximum length of a body with a single object, in bytes.
const SHORT_BODY: usize = 1 << 20;
/// Maximum length of a body with a configuration or a list, in bytes.
pub(crate) const LONG_BODY: usize = 64 << 20;

/// Time limit for the arrival of a body.
const BODY_PATIENCE: Duration = Duration::from_secs(10);

/// Extractor of the JSON object in a request's body.
pub(crate) struct Body<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let bytes = present(bytes(request, SHORT_BODY).await?)?;
        Ok(object(&bytes).map(Self)?)
    }
}

/// Extractor of the settings in a request's body, a JSON object.
impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Settings<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let bytes = present(bytes(request, SHORT_BODY).await?)?;
        Ok(answered(table(&bytes)?.read_settings(Spelling::Json)).map(Self)?)
    }
}

/// Extractor of an optional JSON object in a request's body.
pub(crate) struct MaybeBody<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for MaybeBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let bytes = bytes(request, SHORT_BODY).await?;
        let value = if bytes.is_empty() { T::default() } else { object(&bytes)? };
        Ok(Self(value))
    }
}

/// Extractor of a JSON object with a whole configuration or a list of numbers, in a request's body.
pub(crate) struct LongBody<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send + 'static> FromRequest<S> for LongBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let bytes = present(bytes(request, LONG_BODY).await?)?;
        on_blocking_thread(move || Ok(long_object(&bytes).map(Self)?)).await
    }
}

/// Runs `read` on a blocking thread, since parsing a long body takes long.
async fn on_blocking_thread<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let read = tokio::task::spawn_blocking(read).await;
    read.map_err(|error| ControlError::system("read the request", error))?
}

/// Returns the declared content type of a body if it is not JSON.
fn is_no_json(request: &Request) -> Option<String> {
    let kind = request.headers().get(header::CONTENT_TYPE)?;
    let text = kind.to_str().unwrap_or_default();
    let name = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_json = name == "application/json" || (name.starts_with("application/") && name.ends_with("+json"));
    (!is_json).then(|| text.to_owned())
}

/// Refuses an empty body.
fn present(bytes: Bytes) -> Result<Bytes, Problem> {
    match bytes.is_empty() {
        true => Err(Problem::bad_request("the request has no body: send a JSON object")),
        false => Ok(bytes),
    }
}

/// Check whether there is memory to parse a body, whose length may not have been declared.
#[derive(Clone)]
pub(crate) struct Room(Arc<dyn Fn(usize) -> Result<(), Problem> + Send + Sync>);

impl Room {
    /// Makes a check from a function of the number of bytes.
    pub fn new(check: impl Fn(usize) -> Result<(), Problem> + Send + Sync + 'static) -> Self {
        Self(Arc::new(check))
    }
}

/// Returns a request's body of up to `most` bytes. Refuses a body with a greater declared length before it
/// arrives.
async fn bytes(request: Request, most: usize) -> Result<Bytes, Problem> {
    if let Some(kind) = is_no_json(&request) {
        let detail = format!("Content-Type {kind:?} is not supported: send application/json");
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
    }
    let (parts, body) = request.into_parts();
    if body.size_hint().lower() > most as u64 {
        return Err(too_long("operation", most));
    }
    let bytes = tokio::time::timeout(BODY_PATIENCE, to_bytes(body, most)).await.map_err(|_| late())?;
    let bytes = bytes.map_err(|error| {
        let refused = parts.extensions.get::<Arc<Share>>().and_then(|share| share.problem());
        refused.unwrap_or_else(|| match error.into_inner().downcast::<LengthLimitError>() {
            Ok(_) => too_long("operation", most),
            Err(error) => Problem::bad_request(format!("the request body can't be read: {error}")),
        })
    })?;
    if let Some(room) = parts.extensions.get::<Room>() {
        (room.0)(bytes.len())?;
    }
    if let Some(call) = parts.extensions.get::<Call>() {
        call.set_body(&bytes);
    }
    Ok(bytes)
}

/// Returns the problem of a body that exceeds the limit of an operation or of a single object.
fn too_long(of: &str, limit: usize) -> Problem {
    let detail = format!("the request body is too long: the limit of this {of} is {limit} bytes");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
}

/// Query arguments of an operation without arguments.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// Refuses query arguments of an operation that has none, because their sender expects an effect.
pub(crate) async fn refuse_arguments(request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    match Arguments::<Nothing>::from_request_parts(&mut parts, &()).await {
        Ok(_) => next.run(Request::from_parts(parts, body)).await,
        Err(problem) => problem.into_response(),
    }
}

fn late() -> Problem {
    Problem::new(
        StatusCode::REQUEST_TIMEOUT,
        "the request body did not arrive within 10 s: send the request again",
    )
}

/// Refuses a body of an operation that has none, because its sender expects an effect.
pub(crate) async fn refuse_body(request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    match tokio::time::timeout(BODY_PATIENCE, to_bytes(body, 0)).await {
        Ok(Ok(_)) => next.run(Request::from_parts(parts, AnyBody::empty())).await,
        Ok(Err(_)) => {
            let what = format!("{} {}", parts.method, parts.uri.path());
            Problem::bad_request(format!("{what} takes no body: send the request without one"))
                .into_response()
        }
        Err(_) => late().into_response(),
    }
}

/// Extractor of a JSON object, or a list of such objects, in a request's body.
pub(crate) enum OneOrList<T> {
    /// One object.
    One(T),
    /// List of any length.
    List(Vec<T>),
}

impl<S: Send + Sync, T: DeserializeOwned + Send + 'static> FromRequest<S> for OneOrList<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let bytes = present(bytes(request, LONG_BODY).await?)?;
        if bytes.trim_ascii_start().first() == Some(&b'[') {
            return on_blocking_thread(move || Ok(Self::list(&bytes)?)).await;
        }
        match bytes.len() > SHORT_BODY {
            true => Err(too_long("operation for a single object", SHORT_BODY)),
            false => Ok(object(&bytes).map(Self::One)?),
        }
    }
}

impl<T: DeserializeOwned> OneOrList<T> {
    fn list(bytes: &[u8]) -> Result<Self, ControlError> {
        let entries = from_json::<Tree>(bytes)?.into_list().unwrap_or_default();
        let (count, mut wrong) = (entries.len(), Wrong::default());
        let read = |(number, entry): (usize, Tree)| {
            let read = if entry.is_table() { read(entry) } else { Err(no_object()) };
            wrong.unless(number, read)
        };
        let entries = entries.into_iter().enumerate().filter_map(read).collect();
        wrong.refuse(count).map(|()| Self::List(entries))
    }
}

/// Parses the JSON object in `bytes` into a `T`.
fn object<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ControlError> {
    read(table(bytes)?)
}

/// Parses the JSON object in `bytes` into a tree of values.
fn table(bytes: &[u8]) -> Result<Tree, ControlError> {
    let json: Tree = from_json(bytes)?;
    if json.is_table() { Ok(json) } else { Err(no_object()) }
}

/// Parses the JSON object in a body that may be long. Parses an object longer than [`SHORT_BODY`] directly
/// into a `T`, without a tree of values, so that the first error ends the parsing before much memory is used.
fn long_object<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ControlError> {
    match bytes.len() > SHORT_BODY {
        true if bytes.trim_ascii_start().first() == Some(&b'{') => from_json(bytes),
        true => Err(no_object()),
        false => object(bytes),
    }
}

/// Parses JSON. A syntax error names its line and column.
fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ControlError> {
    serde_json::from_slice(bytes)
        .map_err(|error| ControlError::invalid(format!("the request can't be read: {error}")))
}

/// Converts a tree of JSON values or query arguments into a `T`. An error names the path of the faulty value.
fn read<T: DeserializeOwned>(tree: Tree) -> Result<T, ControlError> {
    answered(tree.read())
}

fn answered<T>(read: Result<T, ReadError>) -> Result<T, ControlError> {
    read.map_err(|error| ControlError::invalid(error.message(Document::Request("the request"))))
}

fn no_object() -> ControlError {
    ControlError::invalid("no JSON object: send {\"key\": value}")
}

/// Extractor of the names in a request's path: a text, a tuple, or a type with fields of these names.
pub(crate) struct InPath<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for InPath<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let names = Path::from_request_parts(parts, state).await;
        names
            .map(|Path(names)| Self(names))
            .map_err(|rejection| Problem::new(rejection.status(), rejection.body_text()))
    }
}

/// Extractor of the query arguments of a request.
pub(crate) struct Arguments<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Arguments<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let arguments = Query::<Vec<(String, String)>>::from_request_parts(parts, state).await;
        match arguments {
            Ok(Query(arguments)) => Ok(read(Tree::of_arguments(arguments)).map(Self)?),
            Err(rejection) => Err(Problem::bad_request(rejection.body_text())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Query {
        #[serde(default)]
        _limit: Option<u64>,
        #[serde(default)]
        _is_long: bool,
        _address: std::net::IpAddr,
    }

    #[test]
    fn errors_name_argument_value_and_valid_values() {
        for (arguments, message) in [
            (vec![("_limit", "x")], "\"_limit\" is the string \"x\": give a whole number, 0 or more"),
            (vec![("_limit", "-0")], "\"_limit\" is the string \"-0\": give a whole number, 0 or more"),
            (vec![("_is_long", "yes")], "\"_is_long\" is the string \"yes\": give true or false"),
            (vec![("_limit", "5")], "the request lacks the key \"_address\""),
            (
                vec![("_address", "10.0")],
                "\"_address\" is the string \"10.0\": give an IP address such as 10.0.0.1 or fd00::1",
            ),
            (vec![("_limi", "5")], "\"_limi\" is no key of the request: did you mean \"_limit\"?"),
            (vec![("_limit", "5"), ("_limit", "6")], "the request has the key \"_limit\" twice: remove one"),
        ] {
            let arguments = arguments.into_iter().map(|(key, text)| (key.to_owned(), text.to_owned()));
            let error = read::<Query>(Tree::of_arguments(arguments)).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
    }
}
