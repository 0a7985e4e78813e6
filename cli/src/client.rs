//! Client of the daemon: HTTP over its Unix socket, or over TLS to a remote router.

mod remote;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;

use crate::arguments::Connection;
use crate::output::{Failure, Progress, command_key, rows};
use remote::Remote;

/// Maximum time that a client waits for a starting daemon.
const PATIENCE: Duration = Duration::from_secs(2);

/// Maximum time to connect to a remote router.
const FAR_PATIENCE: Duration = Duration::from_secs(10);

/// Maximum time to wait for an answer. A router normally answers in milliseconds, also while it forwards.
/// Control waits 5 s for a worker that doesn't answer, and then reports this. Earlier requests, and each undo
/// step, may each take 5 s more.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);

/// Maximum time to wait for the answer to a slow request. A configuration or a list may be large. A plugin
/// may have to wait until other plugins are compiled. An upgrade may first run both versions in shadow mode.
const LONG_PATIENCE: Duration = Duration::from_secs(120);

/// Returns the maximum time for the answer to a request.
fn patience(path: &str, body: Option<&Value>) -> Duration {
    let long = path.starts_with("/configuration")
        || path.starts_with("/plugins")
        || body.is_some_and(Value::is_array);
    if long { LONG_PATIENCE } else { ANSWER_PATIENCE }
}

/// Converts a request body to JSON spelling: keys of settings have underscores in JSON, and hyphens in
/// commands and files.
///
/// # Errors
/// A key of a setting is already spelled as in JSON.
fn in_json(method: &Method, path: &str, body: &Value) -> Result<Value, Failure> {
    let Value::Object(keys) = body else { return Ok(body.clone()) };
    let of_settings = ["/router", "/control-plane", "/admission", "/ports/", "/schedulers/", "/queues/"]
        .iter()
        .any(|own| path.starts_with(own));
    if of_settings
        && *method != Method::DELETE
        && let Some(key) = keys.keys().find(|key| key.contains('_'))
    {
        let right = command_key(key);
        return Err(Failure::new(format!("no setting is named {key:?}: did you mean {right:?}?")));
    }
    Ok(keys.iter().map(|(key, value)| (key.replace('-', "_"), value.clone())).collect())
}

/// Returns the text of an API error (`detail`), with setting keys as in commands: hyphens for underscores.
fn detail(problem: &Value) -> Option<String> {
    let part = |part: &Value| match (&part["text"], &part["key"]) {
        (Value::String(text), _) => Some(text.clone()),
        (_, Value::String(key)) => Some(command_key(key)),
        _ => None,
    };
    let spelled = problem["parts"].as_array().and_then(|parts| parts.iter().map(part).collect());
    spelled.or_else(|| problem["detail"].as_str().map(str::to_owned))
}

/// Media type of most resources.
const JSON: &str = "application/json";

/// Interval between progress queries while a long request runs.
const LOOK: Duration = Duration::from_secs(1);

/// Address of a router's API.
#[derive(Debug)]
enum Place {
    Socket(PathBuf),
    Elsewhere(Box<Remote>),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => path.display().fmt(f),
            Self::Elsewhere(remote) => f.write_str(&remote.place()),
        }
    }
}

/// Byte stream to a router, over a Unix socket or TLS.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Client of one router's API.
#[derive(Debug)]
pub struct Client {
    place: Place,
    /// Maximum time to wait for a starting daemon.
    patience: Duration,
    /// Entity tag (`ETag`) for conditional changes: the router refuses a change if the resource has another
    /// tag. `None` for unconditional changes.
    if_match: Option<String>,
    runtime: tokio::runtime::Runtime,
}

impl Client {
    /// Creates a client of the router that `connection` selects.
    ///
    /// # Errors
    /// The server, token or certificate can't be used, or the system refuses resources.
    pub fn new(connection: &Connection) -> Result<Self, Failure> {
        let place = match &connection.server {
            Some(url) => Place::Elsewhere(Box::new(Remote::new(url, connection)?)),
            None => Place::Socket(connection.socket.clone()),
        };
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::new)?;
        Ok(Self { place, patience: PATIENCE, if_match: connection.if_match.clone(), runtime })
    }

    /// Creates a client that does not wait for a starting daemon.
    ///
    /// # Errors
    /// As for [`Client::new`].
    pub fn hasty(connection: &Connection) -> Result<Self, Failure> {
        Ok(Self { patience: Duration::ZERO, ..Self::new(connection)? })
    }

    /// Whether the router runs on another machine (`--server`), whose files this process can't open.
    pub fn is_elsewhere(&self) -> bool {
        matches!(self.place, Place::Elsewhere(_))
    }

    /// Reads a resource, as JSON.
    ///
    /// # Errors
    /// The resource can't be read. The failure has the router's own error text.
    pub fn get(&self, path: &str) -> Result<Value, Failure> {
        self.send(Method::GET, path, None)
    }

    /// Returns the entity tag (`ETag`) of a resource, in quotation marks; `None` if the resource has none.
    ///
    /// # Errors
    /// The resource can't be read. The failure has the router's own error text.
    pub fn tag(&self, path: &str) -> Result<Option<String>, Failure> {
        self.runtime.block_on(async {
            let response = self.request(Method::GET, path, None, JSON).await?;
            let tag = response.headers().get("etag").and_then(|tag| tag.to_str().ok());
            Ok(tag.map(str::to_owned))
        })
    }

    /// Sends `body` to a resource. Returns the answer, or `null` if the answer is empty.
    ///
    /// # Errors
    /// The router refuses the request. The failure has the router's own error text.
    pub fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, Failure> {
        self.runtime.block_on(self.exchange(method, path, body))
    }

    /// Sends a request that may take long. Every second, prints the number of changes made so far on standard
    /// error.
    ///
    /// # Errors
    /// The router refuses the request. The failure has the router's own error text.
    pub fn send_and_watch(&self, method: Method, path: &str, body: &Value) -> Result<Value, Failure> {
        self.runtime.block_on(async {
            let mut answer = std::pin::pin!(self.exchange(method, path, Some(body)));
            let mut progress = Progress::default();
            loop {
                if let Ok(answer) = tokio::time::timeout(LOOK, answer.as_mut()).await {
                    progress.end();
                    return answer;
                }
                // Progress is optional: only the answer matters.
                if let Ok(status) = self.exchange(Method::GET, "/status", None).await {
                    progress.show(&status["applying"]);
                }
            }
        })
    }

    async fn exchange(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, Failure> {
        let response = self.request(method, path, body, JSON).await?;
        let bytes = response.into_body().collect().await.map_err(|error| self.broken(&error))?.to_bytes();
        if bytes.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&bytes)
            .map_err(|error| Failure::new(format!("the router's answer is not valid JSON: {error}")))
    }

    /// Reads an endless resource in the media type `accept`. Calls `take` with each received chunk until
    /// `take` returns false, the stream ends, or the user presses Ctrl-C.
    ///
    /// # Errors
    /// The resource can't be read. The failure has the router's own error text.
    pub fn stream(
        &self,
        path: &str,
        accept: &str,
        mut take: impl FnMut(&[u8]) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        self.runtime.block_on(async {
            let mut body = self.request(Method::GET, path, None, accept).await?.into_body();
            let mut interrupt = std::pin::pin!(tokio::signal::ctrl_c());
            loop {
                let frame = tokio::select! {
                    frame = body.frame() => frame,
                    _ = &mut interrupt => return Ok(()),
                };
                let Some(frame) = frame else { return Ok(()) };
                let frame = frame.map_err(|error| self.broken(&error))?;
                if let Some(bytes) = frame.data_ref()
                    && !take(bytes)?
                {
                    return Ok(());
                }
            }
        })
    }

    async fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        accept: &str,
    ) -> Result<Response<Incoming>, Failure> {
        let stream = self.connect().await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.broken(&error))?;
        tokio::spawn(connection);
        let body = body.map(|body| in_json(&method, path, body)).transpose()?;
        let bytes = body.as_ref().map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
        let condition = self.if_match.as_ref().filter(|_| method != Method::GET);
        let mut request = Request::builder().method(method).uri(path);
        if let Some(tag) = condition {
            request = request.header("if-match", tag);
        }
        if let Place::Elsewhere(remote) = &self.place {
            request = request.header("authorization", remote.authorization());
        }
        let request = request
            .header("host", "millrace")
            .header("accept", accept)
            .header("content-type", JSON)
            .body(Full::new(bytes))
            .map_err(Failure::new)?;
        let patience = patience(path, body.as_ref());
        let answer = tokio::time::timeout(patience, sender.send_request(request)).await;
        let response = answer.map_err(|_| self.silent(patience))?.map_err(|error| self.broken(&error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let bytes = response.into_body().collect().await.map_err(|error| self.broken(&error))?.to_bytes();
        let problem: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        let detail =
            detail(&problem).unwrap_or_else(|| format!("the router answered {status} without a description"));
        let errors = rows(&problem["errors"]).to_vec();
        let wrong = problem["wrong"].as_u64().unwrap_or_default() as usize;
        Err(Failure { wrong, errors, ..Failure::new(detail) })
    }

    async fn connect(&self) -> Result<Box<dyn Stream>, Failure> {
        let deadline = tokio::time::Instant::now() + self.patience;
        let socket = match &self.place {
            Place::Socket(socket) => socket,
            Place::Elsewhere(remote) => {
                let connected = tokio::time::timeout(FAR_PATIENCE, remote.connect()).await;
                let connected = connected.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
                return match connected {
                    Ok(stream) => Ok(Box::new(stream)),
                    Err(error) => Err(self.unreachable(&error)),
                };
            }
        };
        loop {
            match UnixStream::connect(socket).await {
                Ok(stream) => return Ok(Box::new(stream)),
                Err(error) if tokio::time::Instant::now() >= deadline => return Err(self.unreachable(&error)),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    fn unreachable(&self, error: &std::io::Error) -> Failure {
        let place = &self.place;
        let hint = match error.kind() {
            _ if matches!(place, Place::Elsewhere(_)) => match error.kind() {
                std::io::ErrorKind::InvalidData => {
                    "check that this is the right router, and give its certificate with --ca or --fingerprint"
                }
                _ => {
                    "check that the router runs with `listen` in [api] or --listen, and that the network \
                     reaches it"
                }
            },
            std::io::ErrorKind::PermissionDenied => "run as root, or add your group to `groups` in [api]",
            _ => "check that `millrace run` runs with this --socket",
        };
        Failure::new(format!("can't reach the router at {place} ({error}): {hint}"))
    }

    fn silent(&self, patience: Duration) -> Failure {
        let (place, seconds) = (&self.place, patience.as_secs());
        Failure::new(format!(
            "the router at {place} did not answer for {seconds} s: check that its process is not stopped"
        ))
    }

    fn broken(&self, error: &hyper::Error) -> Failure {
        Failure::new(format!("the connection to {} failed: {error}", self.place))
    }
}

/// Percent-encodes a name for use as one segment of a URL path.
pub fn segment(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    name.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_have_underscores_in_requests_and_hyphens_in_commands() {
        let sent =
            |path, body: Value| in_json(&Method::PATCH, path, &body).map_err(|failure| failure.message);
        assert_eq!(sent("/router", json!({"icmp-rate": 3})), Ok(json!({"icmp_rate": 3})));
        let refused = "no setting is named \"icmp_rate\": did you mean \"icmp-rate\"?";
        assert_eq!(sent("/router", json!({"icmp_rate": 3})), Err(refused.to_owned()));
        // Settings of plugins keep the plugin's spelling.
        let own = json!({"settings": {"one-in": 2, "one_in": 3}});
        assert_eq!(sent("/instances/i", own.clone()), Ok(own));
    }

    #[test]
    fn details_name_settings_as_in_commands() {
        let parts = json!([{"text": "router."}, {"key": "icmp_dscp"}, {"text": " = 64 in my_port"}]);
        let problem = json!({"detail": "router.icmp_dscp = 64 in my_port", "parts": parts});
        assert_eq!(detail(&problem).unwrap(), "router.icmp-dscp = 64 in my_port");
        assert_eq!(detail(&json!({"detail": "a_b"})).unwrap(), "a_b");
        assert_eq!(detail(&json!({})), None);
    }

    #[test]
    fn names_are_escaped_in_paths() {
        assert_eq!(segment("a/b c"), "a%2Fb%20c");
    }
}
