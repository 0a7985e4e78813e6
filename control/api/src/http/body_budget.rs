//! Memory budget for all request bodies together.
//!
//! The first 64 KiB of each body are free, so short commands pass while other clients send long bodies. Each
//! further byte that arrives takes one byte of the budget, until the request is answered. When the budget is
//! used up, the router refuses further requests at once. If requests waited for budget instead, requests that
//! already hold a part of it could wait for each other forever.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Extension, Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use millrace_controller::Principal;

use crate::http::problem::Problem;

/// Total budget in bytes. It covers all bodies being received or processed, without their free bytes.
const ALL: usize = 128 << 20;
/// Maximum number of bytes of the budget that remote requests may take.
const ELSEWHERE: usize = 64 << 20;
/// Number of bytes at the start of each body that take nothing from the budget.
const FREE: usize = 64 << 10;

/// Memory budget for request bodies, with the number of bytes taken so far. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct BodyBudget(Arc<Taken>);

#[derive(Debug, Default)]
struct Taken {
    all: AtomicUsize,
    elsewhere: AtomicUsize,
}

/// Bytes that one request takes from the budget, until it is answered.
#[derive(Debug)]
pub(crate) struct Share {
    budget: BodyBudget,
    is_elsewhere: bool,
    arrived: AtomicUsize,
    taken: AtomicUsize,
    was_refused: AtomicBool,
}

/// Charges the body of a request to the budget, until the request is answered.
pub(crate) async fn count(
    State(budget): State<BodyBudget>,
    Extension(principal): Extension<Principal>,
    request: Request,
    next: Next,
) -> Response {
    let share = budget.share(principal.from.is_some());
    let (mut parts, body) = request.into_parts();
    parts.extensions.insert(share.clone());
    let body = Body::new(Counted { body, share: share.clone() });
    let response = next.run(Request::from_parts(parts, body)).await;
    drop(share);
    response
}

impl BodyBudget {
    fn share(&self, is_elsewhere: bool) -> Arc<Share> {
        let (arrived, taken, was_refused) = Default::default();
        Arc::new(Share { budget: self.clone(), is_elsewhere, arrived, taken, was_refused })
    }

    fn take(&self, bytes: usize, is_elsewhere: bool) -> bool {
        if !take(&self.0.all, bytes, ALL) {
            return false;
        }
        let is_taken = !is_elsewhere || take(&self.0.elsewhere, bytes, ELSEWHERE);
        if !is_taken {
            self.0.all.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_taken
    }
}

/// Adds `bytes` to `taken`, unless the sum would exceed `most`. Returns whether the bytes were added.
fn take(taken: &AtomicUsize, bytes: usize, most: usize) -> bool {
    let add = |taken: usize| taken.checked_add(bytes).filter(|sum| *sum <= most);
    taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
}

impl Share {
    /// Takes arriving bytes from the budget, except the body's free bytes. Returns false if the budget is
    /// used up.
    fn take(&self, bytes: usize) -> bool {
        let before = self.arrived.fetch_add(bytes, Ordering::Relaxed);
        let cost = (before + bytes).saturating_sub(FREE.max(before));
        if self.budget.take(cost, self.is_elsewhere) {
            self.taken.fetch_add(cost, Ordering::Relaxed);
            return true;
        }
        self.was_refused.store(true, Ordering::Relaxed);
        false
    }

    /// Returns the problem of a request whose body exceeded the budget; `None` within the budget.
    pub fn problem(&self) -> Option<Problem> {
        let detail = "other requests use up the memory budget for request bodies: try again in a second";
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).with_retry(1);
        self.was_refused.load(Ordering::Relaxed).then_some(problem)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let taken = *self.taken.get_mut();
        self.budget.0.all.fetch_sub(taken, Ordering::Relaxed);
        if self.is_elsewhere {
            self.budget.0.elsewhere.fetch_sub(taken, Ordering::Relaxed);
        }
    }
}

/// Body whose bytes are charged to the budget as they arrive.
struct Counted {
    body: Body,
    share: Arc<Share>,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let bytes = match &frame {
            Some(Ok(frame)) => frame.data_ref().map_or(0, Bytes::len),
            _ => 0,
        };
        if self.share.take(bytes) {
            return Poll::Ready(frame);
        }
        Poll::Ready(Some(Err(axum::Error::new("the memory budget for request bodies is used up"))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_bodies_share_a_budget_and_short_bodies_need_none() {
        let budget = BodyBudget::default();
        let (long, elsewhere) = (budget.share(false), budget.share(true));
        assert!(elsewhere.take(ELSEWHERE + FREE) && elsewhere.problem().is_none());
        assert!(!elsewhere.take(1), "those from elsewhere leave some to this machine");
        assert_eq!(elsewhere.problem().unwrap().status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(long.take(FREE) && long.take(ALL - ELSEWHERE));
        assert!(!long.take(1));
        let short = budget.share(true);
        assert!(short.take(FREE / 2) && short.take(FREE / 2), "short ones get through");
        assert!(!short.take(1));
        drop(elsewhere);
        assert!(budget.share(false).take(FREE + ELSEWHERE));
        drop(long);
        assert_eq!(budget.0.all.load(Ordering::Relaxed), 0);
        assert_eq!(budget.0.elsewhere.load(Ordering::Relaxed), 0);
    }
}
