//! What was applied before, and how to get back to it.

use millrace_store::{Revision, StoreError, Who};
use schemars::JsonSchema;
use serde::Deserialize;

use super::apply::Apply;
use super::base::Base;
use crate::ControlError;
use crate::router::Router;
use crate::view::{AppliedView, ConfigurationView, RevisionTextView, RevisionView};

/// What is said when one goes back to a revision.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RollBack {
    /// Why.
    #[serde(deserialize_with = "super::words::comment")]
    #[schemars(length(max = 1024))]
    pub comment: Option<String>,
    /// Seconds after which what ran before runs again, unless it is confirmed by then.
    pub confirm: Option<u64>,
    /// The revision that has to run, and nothing beside it: where something else does, nothing is changed.
    pub if_revision: Option<u64>,
}

impl Router {
    /// What runs, as a file, and where it came from.
    ///
    /// # Errors
    /// None that is known.
    pub fn configuration(&self) -> Result<ConfigurationView, ControlError> {
        let running = self.running();
        let inner = self.lock();
        Ok(ConfigurationView {
            text: running.to_text()?,
            origin: inner.base.draft.origin.clone(),
            store: inner.store.path().map(|path| path.display().to_string()),
            pending: inner.waiting.as_ref().map(super::Waiting::pending),
        })
    }

    /// All revisions that are kept, the newest first.
    ///
    /// # Errors
    /// When they can't be read.
    pub fn revisions(&self) -> Result<Vec<RevisionView>, ControlError> {
        let (store, waiting, base) = {
            let inner = self.lock();
            let waiting = inner.waiting.as_ref().map(|waiting| waiting.revision);
            (inner.store.clone(), waiting, inner.base.clone())
        };
        let failed = |error: StoreError| ControlError::refused(error);
        let last = store.last_good().map_err(failed)?;
        let last = last.filter(|(_, text)| *text == base.draft.text).map(|(revision, _)| revision.number);
        let runs = waiting.or(base.revision).or(last);
        let revisions = store.revisions().map_err(failed)?.into_iter().rev();
        Ok(revisions.map(|one| RevisionView { runs: Some(one.number) == runs, revision: one }).collect())
    }

    /// A revision with its text.
    ///
    /// # Errors
    /// No such revision; when it can't be read.
    pub fn revision(&self, number: u64) -> Result<RevisionTextView, ControlError> {
        let store = self.lock().store.clone();
        let (revision, text) = store.revision(number).map_err(|error| match error {
            StoreError::Unknown { .. } => ControlError::NotFound(error.to_string()),
            other => ControlError::System(other.to_string()),
        })?;
        Ok(RevisionTextView { revision, text })
    }

    /// Applies a revision again, as a new one; without a number, the newest one that counts and is not what runs.
    ///
    /// # Errors
    /// No such revision, and those of [`apply`](Self::apply).
    pub async fn roll_back(
        &self,
        number: Option<u64>,
        order: &RollBack,
        who: Who,
    ) -> Result<AppliedView, ControlError> {
        if let Some(number) = order.if_revision {
            self.expect_revision(number).await?;
        }
        let waits = self.lock().waiting.as_ref().map(|waiting| waiting.revision);
        if let Some(revision) = waits {
            let router = self.clone();
            let work = tokio::spawn(async move { router.withdraw().await });
            let withdrawn = work.await.map_err(|error| ControlError::system("go back", error))?;
            let (_, changes) = withdrawn?;
            tracing::info!(%who, revision, "went back before it was confirmed");
            if number.is_none() {
                let Base { draft, revision: runs } = self.lock().base.clone();
                return Ok(AppliedView {
                    revision: None,
                    changes,
                    confirm: None,
                    origin: draft.origin,
                    runs,
                });
            }
        }
        let number = match number {
            Some(number) => number,
            None => self.newest_other().await?,
        };
        let RevisionTextView { text, .. } = self.revision(number)?;
        let order = Apply {
            text,
            origin: Some(format!("revision {number}")),
            comment: order.comment.clone(),
            confirm: order.confirm,
            // Where something was withdrawn before, that is what ran.
            if_revision: order.if_revision.filter(|_| waits.is_none()),
            only_if: None,
        };
        self.apply(order, who).await
    }

    /// The newest revision that counts and is not what runs.
    async fn newest_other(&self) -> Result<u64, ControlError> {
        let running = self.running();
        let (store, overrides) = {
            let inner = self.lock();
            (inner.store.clone(), inner.overrides.clone())
        };
        let work = tokio::task::spawn_blocking(move || {
            for Revision { number, .. } in store.good()? {
                let (_, text) = store.revision(number)?;
                // What can't be read any more can't be returned to.
                let Ok(other) = overrides.read(&text, "revision") else { continue };
                if !running.difference(&other).is_empty() {
                    return Ok(Some(number));
                }
            }
            Ok(None)
        });
        let found = work.await.map_err(|error| ControlError::system("read the revisions", error))?;
        let found = found.map_err(|error: StoreError| ControlError::refused(error))?;
        found.ok_or_else(|| {
            ControlError::NotFound("there is no revision but what runs: `millrace history`".into())
        })
    }
}
