//! Errors as problem details (RFC 9457).

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use millrace_config::{ConfigError, Place};
use millrace_controller::{ControlError, Role};
use millrace_units::{Message, Piece, Spelling};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::put_tag;

/// Error answer, sent as problem details.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub status: StatusCode,
    pub detail: Message,
    /// Number of invalid entries of a list, or of errors in a configuration.
    wrong: usize,
    /// First errors, up to 100.
    errors: Vec<WrongEntry>,
    /// Current state and its tag, if the request expected another state.
    current: Option<Box<(String, Value)>>,
    /// Seconds after which a retry makes sense.
    retry: Option<u64>,
    /// Role that the operation needs.
    needs: Option<Role>,
    /// Authentication challenge (RFC 9110, 11.6.1).
    challenge: Option<String>,
    /// Whether the server closes the connection after the answer, as it does for refused callers.
    closes: bool,
}

/// Invalid entry of a list, or error in a configuration.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
struct WrongEntry {
    /// Number of the list entry, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    entry: Option<usize>,
    /// Origin of the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    /// Line in the configuration, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    /// Column in the configuration, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<usize>,
    /// Problem and remedy.
    detail: String,
}

/// Reason why a request failed (RFC 9457).
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub(crate) struct ProblemBody {
    /// Always `about:blank`: the status tells the kind of problem.
    r#type: &'static str,
    /// Name of the HTTP status.
    title: &'static str,
    /// HTTP status.
    status: u16,
    /// Problem, its place and the remedy, as one sentence for people.
    detail: String,
    /// Parts of `detail`, if `detail` names settings. From them, a client can build the text with its own
    /// spelling of the settings' keys.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts: Vec<DetailPart>,
    /// Number of invalid entries of a list, or of errors in a configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    wrong: Option<usize>,
    /// First of the errors that `wrong` counts, up to 100.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<WrongEntry>,
    /// Current state, if the request expected another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    current: Option<Value>,
    /// Role that the operation needs, if the caller lacks it.
    #[serde(skip_serializing_if = "Option::is_none")]
    needs: Option<Role>,
}

/// Part of a detail: text, or the key of a setting.
#[derive(Debug, Default, Serialize, JsonSchema)]
struct DetailPart {
    /// Text.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// Key of a setting, as in JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

impl DetailPart {
    /// Returns the parts of a message that names settings; none for a message without settings.
    fn of(message: &Message) -> Vec<Self> {
        let part = |piece: &Piece| match piece {
            Piece::Text(text) => Self { text: Some(text.clone()), ..Self::default() },
            Piece::Key(key) => Self { key: Some(Spelling::Json.of(key)), ..Self::default() },
        };
        let parts: Vec<Self> = message.pieces().iter().map(part).collect();
        if parts.iter().any(|part| part.key.is_some()) { parts } else { Vec::new() }
    }
}

/// Returns the HTTP status of an error. The error of a list has the status of its first faulty entry.
fn status(error: &ControlError) -> StatusCode {
    match error {
        ControlError::Invalid(_) | ControlError::Config(_) => StatusCode::BAD_REQUEST,
        ControlError::NotFound(_) => StatusCode::NOT_FOUND,
        ControlError::Conflict(_) => StatusCode::CONFLICT,
        ControlError::Forbidden(..) => StatusCode::FORBIDDEN,
        ControlError::Changed(_) => StatusCode::PRECONDITION_FAILED,
        ControlError::System(_) | ControlError::Silent(_) => StatusCode::INTERNAL_SERVER_ERROR,
        ControlError::NoRoom(_) => StatusCode::INSUFFICIENT_STORAGE,
        ControlError::List(list) => {
            list.errors.first().map_or(StatusCode::BAD_REQUEST, |(_, error)| status(error))
        }
    }
}

impl WrongEntry {
    fn of(error: &ConfigError) -> Self {
        let ConfigError { place: Place { origin, line, column }, problem } = error;
        let (line, column) = (*line > 0).then_some((*line, *column)).unzip();
        // Errors in a file spell keys as the file does, with hyphens.
        let detail = problem.spelled(Spelling::File);
        Self { entry: None, file: Some(origin.clone()), line, column, detail }
    }
}

impl Problem {
    pub fn new(status: StatusCode, detail: impl Into<Message>) -> Self {
        let (errors, current, retry, needs, challenge, closes) = Default::default();
        Self { status, detail: detail.into(), wrong: 0, errors, current, retry, needs, challenge, closes }
    }

    /// Adds the current state and its tag, if the request expected another state.
    pub fn with_current(self, tag: String, current: Value) -> Self {
        Self { current: Some(Box::new((tag, current))), ..self }
    }

    /// Adds the seconds after which a retry makes sense.
    pub fn with_retry(self, seconds: u64) -> Self {
        Self { retry: Some(seconds), ..self }
    }

    /// Adds an authentication challenge.
    pub fn with_challenge(self, challenge: String) -> Self {
        Self { challenge: Some(challenge), ..self }
    }

    /// Lets the connection end with this answer.
    pub fn closing(self) -> Self {
        Self { closes: true, ..self }
    }

    pub fn bad_request(detail: impl Into<Message>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }
}

impl From<ControlError> for Problem {
    fn from(error: ControlError) -> Self {
        let mut problem = Self::new(status(&error), error.message());
        match error {
            ControlError::List(list) => {
                problem.wrong = list.wrong;
                let entry = |(entry, error): (usize, ControlError)| {
                    let entry = Some(entry);
                    let detail = error.message().spelled(Spelling::Json);
                    WrongEntry { entry, detail, ..WrongEntry::default() }
                };
                problem.errors = list.errors.into_iter().map(entry).collect();
            }
            ControlError::Config(wrong) => {
                problem.wrong = wrong.wrong();
                problem.errors = wrong.errors().iter().map(WrongEntry::of).collect();
            }
            ControlError::Forbidden(needed, _) => problem.needs = Some(needed),
            _ => {}
        }
        problem
    }
}

/// Detail text of a problem, passed to the audit log with the response.
#[derive(Clone, Debug)]
pub(crate) struct Detail(pub String);

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let detail = Detail(self.detail.spelled(Spelling::Json));
        let (tag, current) = self.current.map(|current| *current).unzip();
        let body = ProblemBody {
            // `about:blank` is the type of a problem that the HTTP status describes (RFC 9457, 4.2.1).
            r#type: "about:blank",
            title: self.status.canonical_reason().unwrap_or("Error"),
            status: self.status.as_u16(),
            detail: detail.0.clone(),
            parts: DetailPart::of(&self.detail),
            wrong: Some(self.wrong).filter(|wrong| *wrong > 0),
            errors: self.errors,
            current,
            needs: self.needs,
        };
        let mut response = (self.status, axum::Json(body)).into_response();
        let kind = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        if let Some(tag) = tag {
            put_tag(&mut response, &tag);
        }
        if let Some(seconds) = self.retry {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        if self.closes || [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&self.status) {
            // The connection of a refused caller ends with the answer.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(challenge) = self.challenge.and_then(|challenge| challenge.try_into().ok()) {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        response.extensions_mut().insert(detail);
        response
    }
}
