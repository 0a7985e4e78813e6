//! The way from the threads that speak with clients to control, which alone has privileges, and back.
//!
//! Requests and answers go over whole; a request's body, and an answer that goes on, piece by piece. All that an answer is made of
//! runs at control.

use std::sync::Arc;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::Request;
use axum::http::{Extensions, StatusCode};
use axum::response::{IntoResponse as _, Response};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use millrace_controller::AuditEntry;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::principal::Principal;
use crate::problem::Problem;
use crate::users::Known;

/// Messages on their way.
const WAITING: usize = 64;

/// What control is asked for.
#[derive(Debug)]
pub(crate) enum Message {
    /// To carry out a request.
    Carry(Box<Request>, oneshot::Sender<Response>),
    /// To note what was refused.
    Note(Box<AuditEntry>),
    /// Who a user is.
    Find(u32, oneshot::Sender<Known>),
}

/// Requests from elsewhere that control has at one time: those at the own socket wait behind so few.
const FROM_ELSEWHERE: usize = 32;

/// The end of those that speak with clients.
#[derive(Clone, Debug)]
pub(crate) struct Hop {
    control: mpsc::Sender<Message>,
    places: Option<Arc<Semaphore>>,
}

impl Hop {
    /// Both ends.
    pub fn new() -> (Self, mpsc::Receiver<Message>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Self { control: sender, places: None }, receiver)
    }

    /// The same for those who ask from elsewhere.
    pub fn for_elsewhere(&self) -> Self {
        Self { places: Some(Arc::new(Semaphore::new(FROM_ELSEWHERE))), ..self.clone() }
    }

    /// Has a request carried out for somebody.
    pub async fn carry(&self, request: Request, principal: Principal) -> Response {
        let (mut parts, body) = request.into_parts();
        // Nothing else of this side goes over.
        parts.extensions = Extensions::new();
        parts.extensions.insert(principal);
        let plain = Request::from_parts(parts, body);
        let _place = match &self.places {
            Some(places) => places.acquire().await.ok(),
            None => None,
        };
        let (reply, answer) = oneshot::channel();
        // Where nobody listens any more the channel is closed, and so is the answer's.
        let _ = self.control.send(Message::Carry(Box::new(plain), reply)).await;
        answer.await.unwrap_or_else(|_| ending().into_response())
    }

    /// Has something noted.
    pub async fn note(&self, entry: AuditEntry) {
        let _ = self.control.send(Message::Note(Box::new(entry))).await;
    }

    /// Who a user is.
    ///
    /// # Errors
    /// When the router ends.
    pub async fn find(&self, uid: u32) -> Result<Known, Problem> {
        let (reply, answer) = oneshot::channel();
        let _ = self.control.send(Message::Find(uid, reply)).await;
        answer.await.map_err(|_| ending())
    }
}

fn ending() -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the router ends")
}

/// Carries out a request at control. When its client goes, it is given up.
pub(crate) async fn carry_out(
    resources: TowerToHyperService<axum::Router>,
    request: Request,
    mut reply: oneshot::Sender<Response>,
) {
    let answered = tokio::select! {
        answered = resources.call(request) => answered,
        () = reply.closed() => return,
    };
    let response = match answered {
        Ok(response) => response,
        Err(never) => match never {},
    };
    // Who has gone needs no answer.
    let _ = reply.send(piecemeal(response));
}

/// The same answer, of which what goes on is made at control, and taken over piece by piece.
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
