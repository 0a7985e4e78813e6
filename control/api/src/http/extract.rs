//! Extractors of request parts. Invalid input gives a [`Problem`].

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body as AnyBody, Bytes, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use millrace_config::reading::{Document, ReadError, Tree};
use millrace_controller::{Call, ControlError, Wrong};
use millrace_units::Spelling;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::http::body_budget::Share;
use crate::http::naming::Settings;
use crate::http::problem::Problem;

/// Maximum length of a body with a configuration or a list, in bytes.
pub(crate) const LONG_BODY: usize = 64 << 20;

/// Time limit for the arrival of a body.
const BODY_PATIENCE: Duration = Duration::from_secs(10);

/// Extractor of the JSON object in a request's body.
pub(crate) struct Body<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let bytes = body(request, state).await?;
        Ok(object(&bytes).map(Self)?)
    }
}

/// Extractor of the settings in a request's body, a JSON object.
impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Settings<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let bytes = body(request, state).await?;
        Ok(answered(table(&bytes)?.read_settings(Spelling::Json)).map(Self)?)
    }
}

/// Extractor of an optional JSON object in a request's body.
pub(crate) struct MaybeBody<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for MaybeBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let bytes = bytes(request, state).await?;
        let value = if bytes.is_empty() { T::default() } else { object(&bytes)? };
        Ok(Self(value))
    }
}

/// Returns the content type of a body if it is declared and is not JSON.
fn is_no_json(request: &Request) -> Option<String> {
    let kind = request.headers().get(header::CONTENT_TYPE)?;
    let text = kind.to_str().unwrap_or_default();
    let name = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_json = name == "application/json" || (name.starts_with("application/") && name.ends_with("+json"));
    (!is_json).then(|| text.to_owned())
}

/// Maximum length of a body, in bytes; 0 by default.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Longest(pub usize);

impl Longest {
    fn of(request: &Request) -> Self {
        request.extensions().get().copied().unwrap_or(Self(0))
    }

    /// Refuses a body whose declared length exceeds the maximum, before it arrives.
    fn check(self, request: &Request) -> Result<(), Problem> {
        let length = request.headers().get(header::CONTENT_LENGTH).and_then(|text| text.to_str().ok());
        let too_long =
            length.and_then(|text| text.parse::<u64>().ok()).is_some_and(|length| length > self.0 as u64);
        if too_long { Err(self.problem()) } else { Ok(()) }
    }

    fn problem(self) -> Problem {
        let detail = format!("the request body is too long: the limit of this operation is {} bytes", self.0);
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
    }
}

/// Returns the bytes of a request's body, which must not be empty.
async fn body<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, Problem> {
    match bytes(request, state).await? {
        bytes if bytes.is_empty() => Err(Problem::bad_request("the request has no body: send a JSON object")),
        bytes => Ok(bytes),
    }
}

/// Returns the bytes of a request's body.
async fn bytes<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, Problem> {
    if let Some(kind) = is_no_json(&request) {
        let detail = format!("Content-Type {kind:?} is not supported: send application/json");
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
    }
    let longest = Longest::of(&request);
    longest.check(&request)?;
    let call = request.extensions().get::<Call>().cloned();
    let share = request.extensions().get::<Arc<Share>>().cloned();
    let bytes = tokio::time::timeout(BODY_PATIENCE, Bytes::from_request(request, state)).await;
    let bytes = bytes.map_err(|_| late())?.map_err(|rejection| {
        let refused = share.and_then(|share| share.problem());
        refused.unwrap_or_else(|| match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => longest.problem(),
            status => Problem::new(status, rejection.body_text()),
        })
    })?;
    if let Some(call) = call {
        call.set_body(&bytes);
    }
    Ok(bytes)
}

/// Arguments of an operation that has none.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// Refuses query arguments at an operation that has none, because the client expects them to have an effect.
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

/// Refuses a body at an operation that has none, because the client expects it to have an effect.
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

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let bytes = body(request, state).await?;
        // Parsing a long list takes long, so it runs on a blocking thread.
        let read = tokio::task::spawn_blocking(move || Self::read(&bytes)).await;
        Ok(read.map_err(|error| ControlError::system("read the request", error))??)
    }
}

impl<T: DeserializeOwned> OneOrList<T> {
    fn read(bytes: &[u8]) -> Result<Self, ControlError> {
        if bytes.trim_ascii_start().first() != Some(&b'[') {
            return object(bytes).map(Self::One);
        }
        let entries = json(bytes)?.into_list().unwrap_or_default();
        let (count, mut wrong) = (entries.len(), Wrong::default());
        let read = |(number, entry): (usize, Tree)| {
            let read = if entry.is_table() { read(entry) } else { Err(no_object()) };
            wrong.unless(number, read)
        };
        let entries = entries.into_iter().enumerate().filter_map(read).collect();
        wrong.refuse(count).map(|()| Self::List(entries))
    }
}

/// Parses the object in `bytes`.
fn object<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ControlError> {
    read(table(bytes)?)
}

/// Parses the object in `bytes`, without reading a type from it.
fn table(bytes: &[u8]) -> Result<Tree, ControlError> {
    let json = json(bytes)?;
    if json.is_table() { Ok(json) } else { Err(no_object()) }
}

/// Parses JSON. A syntax error names its line and column.
fn json(bytes: &[u8]) -> Result<Tree, ControlError> {
    serde_json::from_slice(bytes)
        .map_err(|error| ControlError::invalid(format!("the request can't be read: {error}")))
}

/// Reads a type from JSON or arguments. An error names the path of the faulty value.
fn read<T: DeserializeOwned>(tree: Tree) -> Result<T, ControlError> {
    answered(tree.read())
}

fn answered<T>(read: Result<T, ReadError>) -> Result<T, ControlError> {
    read.map_err(|error| ControlError::invalid(error.message(Document::Request("the request"))))
}

fn no_object() -> ControlError {
    ControlError::invalid("no JSON object: send {\"key\": value}")
}

/// Extractor of the name in a request's path.
pub(crate) struct Name(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let name = Path::from_request_parts(parts, state).await;
        name.map(|Path(name)| Self(name))
            .map_err(|rejection| Problem::new(rejection.status(), rejection.body_text()))
    }
}

/// Extractor of the two names in a request's path.
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
