//! Control channel. It carries requests from the client threads to control, and answers back. Only control
//! has privileges.
//!
//! The head of a request and a complete answer cross the channel in one message. Request bodies and streaming
//! answers cross in chunks. All handlers run at control.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::Request;
use axum::http::{Extensions, StatusCode};
use axum::response::{IntoResponse as _, Response};
use futures_util::FutureExt as _;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use millrace_controller::{AuditEntry, EventKind, Events};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use crate::entrance::users::Known;
use crate::http::problem::Problem;
use crate::limits::remote_limit::RemoteLimit;
use millrace_controller::Principal;

/// Maximum number of messages waiting in the channel.
const WAITING: usize = 64;

/// Message from a client thread to control.
#[derive(Debug)]
pub(crate) enum Message {
    /// Request to carry out, and the sender that takes its answer.
    Carry(Box<Request>, oneshot::Sender<Response>),
    /// Refusal to record in the audit log.
    Note(Box<AuditEntry>),
    /// Query for the name and role of a user id.
    Find(u32, oneshot::Sender<Known>),
}

/// Sending end of the channel, used by the client threads.
#[derive(Clone, Debug)]
pub(crate) struct ControlChannel {
    control: mpsc::Sender<Message>,
    /// Limit on the number of remote requests at control; `None` in the sender of local requests.
    limit: Option<RemoteLimit>,
}

impl ControlChannel {
    /// Returns sender and receiver of a new channel.
    pub fn new() -> (Self, mpsc::Receiver<Message>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Self { control: sender, limit: None }, receiver)
    }

    /// Returns a sender for remote requests, which limits the number of remote requests at control.
    pub fn for_remote(&self) -> Self {
        Self { limit: Some(RemoteLimit::default()), ..self.clone() }
    }

    /// Sends a request of a principal to control, and waits for the answer.
    pub async fn carry(&self, request: Request, principal: Principal) -> Response {
        let _place = match &self.limit {
            None => None,
            Some(limit) => match limit.enter(&principal.who.name).await {
                Ok(place) => Some(place),
                Err(problem) => return problem.into_response(),
            },
        };
        let (mut parts, body) = request.into_parts();
        // Drop all other extensions of the client thread: control gets only the principal.
        parts.extensions = Extensions::new();
        parts.extensions.insert(principal);
        let plain = Request::from_parts(parts, body);
        let (reply, answer) = oneshot::channel();
        // If control has ended, `answer` below reports the error.
        let _ = self.control.send(Message::Carry(Box::new(plain), reply)).await;
        answer.await.unwrap_or_else(|_| ending().into_response())
    }

    /// Asks control to record a refusal in the audit log.
    pub async fn note(&self, entry: AuditEntry) {
        let _ = self.control.send(Message::Note(Box::new(entry))).await;
    }

    /// Asks control for the name and role of a user.
    ///
    /// # Errors
    /// Returns an error if the router is shutting down.
    pub async fn find(&self, uid: u32) -> Result<Known, Problem> {
        let (reply, answer) = oneshot::channel();
        let _ = self.control.send(Message::Find(uid, reply)).await;
        answer.await.map_err(|_| ending())
    }
}

fn ending() -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the router is shutting down")
}

/// Carries out a request at control, unless its client disconnects. If the handler panics, the answer is 500,
/// an event is noted, and other requests continue.
pub(crate) async fn carry_out(
    resources: TowerToHyperService<axum::Router>,
    events: Events,
    request: Request,
    mut reply: oneshot::Sender<Response>,
) {
    let operation = format!("{} {}", request.method(), request.uri().path());
    let answered = tokio::select! {
        answered = AssertUnwindSafe(resources.call(request)).catch_unwind() => answered,
        () = reply.closed() => return,
    };
    let response = match answered {
        Ok(Ok(response)) => response,
        Ok(Err(never)) => match never {},
        Err(panic) => panicked(&operation, &*panic, &events).into_response(),
    };
    // A disconnected client needs no answer.
    let _ = reply.send(piecemeal(response));
}

/// Records an event about a handler that panicked, and returns the answer for its client.
fn panicked(operation: &str, panic: &(dyn Any + Send), events: &Events) -> Problem {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let message = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    tracing::error!(operation, "the handler of a request panicked: {message}");
    let details = json!({"operation": operation, "message": message});
    let text = format!("the handler of {operation} panicked: {message}");
    events.note(EventKind::HandlerPanicked, operation, text, details);
    Problem::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        format!("internal error: the handler of {operation} panicked"),
    )
}

/// Returns the answer with its body read chunk by chunk through a channel, if the body is a stream.
fn piecemeal(response: Response) -> Response {
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    let (parts, mut body) = response.into_parts();
    let (sender, mut receiver) = mpsc::channel::<Result<Frame<Bytes>, axum::Error>>(1);
    tokio::spawn(async move {
        loop {
            let frame = tokio::select! {
                frame = body.frame() => frame,
                () = sender.closed() => return,
            };
            let Some(frame) = frame else { return };
            if sender.send(frame).await.is_err() {
                return;
            }
        }
    });
    let pieces = futures_util::stream::poll_fn(move |context| receiver.poll_recv(context));
    Response::from_parts(parts, Body::new(StreamBody::new(pieces)))
}

#[cfg(test)]
mod tests {
    use millrace_controller::Role;

    use super::*;

    /// Sends a request with a token.
    fn ask(channel: &ControlChannel, token: &str) -> tokio::task::JoinHandle<Response> {
        let (channel, from) = (channel.clone(), [10, 0, 0, 1].into());
        let principal = Principal::token(token, Role::Viewer, from);
        tokio::spawn(async move { channel.carry(Request::new(Body::empty()), principal).await })
    }

    #[tokio::test]
    async fn a_handler_that_panics_is_a_500_and_an_event() {
        let panics = axum::routing::post(async || -> StatusCode { panic!("as asked for") });
        let resources = TowerToHyperService::new(axum::Router::new().route("/lookup", panics));
        let events = Events::default();
        for _ in 0..2 {
            let (reply, answer) = oneshot::channel();
            let request = Request::post("/lookup").body(Body::empty()).unwrap();
            carry_out(resources.clone(), events.clone(), request, reply).await;
            let (head, body) = answer.await.unwrap().into_parts();
            let text = body.collect().await.unwrap().to_bytes();
            assert_eq!(head.status, StatusCode::INTERNAL_SERVER_ERROR);
            assert!(String::from_utf8_lossy(&text).contains("POST /lookup panicked"), "{text:?}");
        }
        let page = events.page(&Default::default());
        let event = page.events.iter().find(|event| event.kind.name() == "handler-panicked").unwrap();
        assert_eq!(event.subject, "POST /lookup");
    }

    #[tokio::test]
    async fn slow_requests_of_a_token_delay_no_other_token() {
        let (channel, mut asked) = ControlChannel::new();
        let channel = channel.for_remote();
        let flood: Vec<_> = (0..200).map(|_| ask(&channel, "slow")).collect();
        let others: Vec<_> = (0..20).map(|_| ask(&channel, "quick")).collect();
        let control = tokio::spawn(async move {
            let mut slow = Vec::new();
            while let Some(Message::Carry(request, reply)) = asked.recv().await {
                match &*request.extensions().get::<Principal>().unwrap().who.name {
                    // Requests of the token "slow" get no answer.
                    "token slow" => slow.push(reply),
                    _ => reply.send(StatusCode::OK.into_response()).unwrap(),
                }
            }
        });
        for other in others {
            assert_eq!(other.await.unwrap().status(), StatusCode::OK);
        }
        let mut refused = flood.into_iter().filter(|one| one.is_finished());
        assert!(refused.next().is_none(), "they wait a while");
        control.abort();
    }
}
