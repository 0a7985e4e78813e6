//! Slow answers, made by a few blocking threads, while control continues with other requests.

use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use millrace_controller::{Principal, Router};

use crate::http::problem::Problem;
use crate::limits::shares::Slots;
use crate::served::Served;

/// Maximum number of slow answers in progress.
const ALL: usize = 2;
/// Expected maximum number of callers that wait for slow answers.
const ASKING: usize = 1024;
/// Maximum time that a request waits for a slot.
const PATIENCE: Duration = Duration::from_secs(5);

/// Slots for slow answers: one for each user or token. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct LongAnswers(Slots);

impl Default for LongAnswers {
    fn default() -> Self {
        Self(Slots::new(ALL, (1, ASKING), PATIENCE))
    }
}

impl LongAnswers {
    /// Waits for a slot for the caller `who`, then runs `work` on a blocking thread.
    ///
    /// # Errors
    /// Returns 503 if no slot becomes free in time, and 500 if `work` panics.
    async fn make<T: Send + 'static>(
        &self,
        who: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let slot = self.0.enter(who).await.map_err(|_| {
            let detail = format!(
                "the router makes at most {ALL} long answers at a time, and one for {who}; no slot became \
                 free within {} s: wait for answers before you send more requests",
                self.0.patience.as_secs()
            );
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).with_retry(1)
        })?;
        // Hold the slot until the work is done, even if the client disconnects.
        let work = tokio::task::spawn_blocking(move || {
            let done = work();
            drop(slot);
            done
        });
        let failed = |error| {
            Problem::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("internal error: can't make the answer: {error}"),
            )
        };
        work.await.map_err(failed)
    }
}

/// Makes a slow answer as soon as the caller gets a slot. Returns the answer, or the problem.
pub(crate) async fn long<T: IntoResponse>(
    served: &Served,
    principal: &Principal,
    work: impl FnOnce(&Router) -> Result<T, Problem> + Send + 'static,
) -> Response {
    let control = served.control.clone();
    let made = served.long.make(&principal.who.name, move || work(&control).into_response()).await;
    made.unwrap_or_else(IntoResponse::into_response)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn long_requests_of_one_caller_wait_for_each_other_only() {
        let mut answers = LongAnswers::default();
        answers.0.patience = Duration::from_millis(50);
        let (release, held) = mpsc::channel::<()>();
        let first = {
            let answers = answers.clone();
            tokio::spawn(async move { answers.make("games", move || held.recv().is_ok()).await })
        };
        while answers.0.free() == ALL {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let refused = answers.make("games", || ()).await.unwrap_err();
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(refused.detail.to_string().contains("one for games"), "{}", refused.detail);
        assert_eq!(answers.make("root", || 7).await.unwrap(), 7);
        release.send(()).unwrap();
        assert!(first.await.unwrap().unwrap());
        assert!(answers.make("games", || ()).await.is_ok());
    }
}
