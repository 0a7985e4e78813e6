//! Configurations that go back by themselves unless they are confirmed in time.

use std::sync::Arc;
use std::time::Duration;

use millrace_config::Config;
use millrace_store::{State, Who};
use millrace_telemetry::EventKind;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

use super::base::Base;
use crate::ControlError;
use crate::router::Router;

/// What runs and waits to be confirmed, and what runs again if it isn't.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// Its revision.
    pub revision: u64,
    until: Instant,
    before: Arc<Config>,
    base: Base,
}

/// A revision that waits to be confirmed.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Pending {
    /// Its number.
    pub revision: u64,
    /// Seconds that are left.
    pub seconds: u64,
}

impl Waiting {
    /// `before` ran before revision `revision`, and came from `base`.
    pub fn new(revision: u64, patience: Duration, before: Arc<Config>, base: Base) -> Self {
        Self { revision, until: Instant::now() + patience, before, base }
    }

    /// What is left of the time.
    pub fn pending(&self) -> Pending {
        let left = self.until.saturating_duration_since(Instant::now());
        Pending { revision: self.revision, seconds: left.as_secs_f64().ceil() as u64 }
    }
}

impl Router {
    /// Has what runs go back when its time is over.
    pub(super) fn wait_for_confirmation(&self, waiting: Waiting) {
        let (until, revision) = (waiting.until, waiting.revision);
        self.lock().waiting = Some(waiting);
        let router = self.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep_until(until).await;
                if !router.waits_for(revision) {
                    return;
                }
                tracing::warn!(revision, "was not confirmed in time: going back");
                let result = router.withdraw().await;
                let operation = format!("going back from revision {revision}, which was not confirmed");
                let runs = router.lock().base.revision.filter(|_| result.is_ok());
                let done = result.as_ref().map(|_| runs);
                router.note_own(Who::router(), &operation, None, done);
                match result {
                    Ok(_) => return,
                    Err(error) => tracing::error!(revision, "could not go back, and tries again: {error}"),
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
    }

    fn waits_for(&self, revision: u64) -> bool {
        self.lock().waiting.as_ref().is_some_and(|waiting| waiting.revision == revision)
    }

    /// Confirms what waits for it: it stays. Returns its revision.
    ///
    /// # Errors
    /// When nothing waits; when it could not be written that it counts, which leaves it waiting.
    pub async fn confirm(&self) -> Result<u64, ControlError> {
        let (store, revision) = {
            let inner = self.lock();
            let waiting = inner.waiting.as_ref().ok_or_else(nothing_waits)?;
            (inner.store.clone(), waiting.revision)
        };
        let work = tokio::task::spawn_blocking(move || store.settle(revision, State::Good));
        let settled = work.await.map_err(|error| ControlError::system("write the confirmation", error))?;
        settled.map_err(|error| ControlError::system("write that the revision is confirmed", error))?;
        let mut inner = self.lock();
        if inner.waiting.take().is_none() {
            return Err(ControlError::Conflict(format!("revision {revision} had just gone back")));
        }
        inner.base.draft.state = State::Good;
        let (subject, text) = (format!("revision {revision}"), format!("revision {revision} is confirmed"));
        inner.events.note(EventKind::ConfigurationConfirmed, &subject, text, json!({"revision": revision}));
        Ok(revision)
    }

    /// Goes back to what ran before what waits to be confirmed. Returns its revision and the changes.
    ///
    /// # Errors
    /// When nothing waits; what could not be changed back: it goes on waiting.
    pub(super) async fn withdraw(&self) -> Result<(u64, Vec<String>), ControlError> {
        let _turn = self.begin_turn()?;
        let (revision, before) = {
            let inner = self.lock();
            let waiting = inner.waiting.as_ref().ok_or_else(nothing_waits)?;
            (waiting.revision, Arc::clone(&waiting.before))
        };
        let changes = self.transition(&self.running(), &before).await?;
        let store = {
            let mut inner = self.lock();
            if let Some(waiting) = inner.waiting.take() {
                inner.base = waiting.base;
            }
            inner.store.clone()
        };
        let work = tokio::task::spawn_blocking(move || store.settle(revision, State::Withdrawn));
        if let Ok(Err(error)) = work.await {
            // It doesn't count either way: what waits is no good revision.
            tracing::error!(revision, "can't write that it is withdrawn: {error}");
        }
        let text = format!("revision {revision} is withdrawn: what ran before runs again");
        let details = json!({"revision": revision, "changes": changes.len()});
        self.events().note(
            EventKind::ConfigurationRolledBack,
            &format!("revision {revision}"),
            text,
            details,
        );
        Ok((revision, super::apply::commands(&changes)))
    }
}

fn nothing_waits() -> ControlError {
    ControlError::Conflict("nothing waits to be confirmed".into())
}
