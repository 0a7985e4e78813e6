//! History of configurations, and rollback to a revision.

use millrace_config::{Config, Submission};
use millrace_store::{Revision, Who};
use schemars::JsonSchema;
use serde::Deserialize;

use super::Transaction;
use super::apply::{Apply, report, without_restart};
use crate::ControlError;
use crate::admission::allowances::Requester;
use crate::background::blocking;
use crate::router::Router;
use crate::settings::Base;
use crate::view::{AppliedView, ConfirmTime, RevisionView};

/// Request body that applies an earlier revision again. The result is a new revision.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RollBack {
    /// Number of the revision to apply again. If the number is missing, the waiting revision is withdrawn. If
    /// no revision waits either, the newest good revision that differs from the running configuration is
    /// applied.
    pub revision: Option<u64>,
    /// Reason for the rollback.
    #[serde(deserialize_with = "super::words::comment")]
    #[schemars(length(max = 1024))]
    pub comment: Option<String>,
    /// Time until an unconfirmed configuration is rolled back: `60s`, `10m`.
    pub confirm: Option<ConfirmTime>,
    /// Number of the revision that must be running without later changes; otherwise nothing is changed.
    pub if_revision: Option<u64>,
}

impl Router {
    /// Returns all stored revisions, the newest first.
    ///
    /// # Errors
    /// Returns an error if the revisions can't be read.
    pub(crate) fn revisions(&self) -> Result<Vec<RevisionView>, ControlError> {
        let (store, waiting, base) = {
            let inner = self.lock();
            let waiting = inner.settings.waiting.as_ref().map(|waiting| waiting.revision);
            (inner.settings.store.clone(), waiting, inner.settings.base.clone())
        };
        let last = store.last_good()?;
        let last = last.filter(|(_, text)| *text == base.draft.text).map(|(revision, _)| revision.number);
        let runs = waiting.or(base.revision).or(last);
        let revisions = store.revisions()?.into_iter().rev();
        Ok(revisions.map(|one| RevisionView { runs: Some(one.number) == runs, revision: one }).collect())
    }
}

impl RollBack {
    /// Withdraws the waiting revision, if there is one, and applies the target revision.
    ///
    /// # Errors
    /// Returns the errors of [`Apply`], or an error if the target revision doesn't exist.
    pub(crate) async fn roll_back(
        self,
        router: &Router,
        by: &Requester,
    ) -> Result<AppliedView, ControlError> {
        let who = &by.who;
        let transaction = Transaction::begin_despite_waiting(router)?;
        if let Some(number) = self.if_revision {
            transaction.expect_revision(number).await?;
        }
        let waits = router.lock().settings.waiting.is_some();
        // An invalid target is reported before the waiting revision is withdrawn.
        let target = match self.revision {
            Some(number) => Some(target(router, number).await?),
            None if waits => None,
            None => Some(target(router, newest_other(router).await?).await?),
        };
        let withdrawn = match waits {
            true => Some(transaction.withdraw().await?),
            false => None,
        };
        if let Some((revision, _)) = &withdrawn {
            tracing::info!(%who, revision, "the revision was rolled back before its confirmation");
        }
        let Some((mut apply, candidate)) = target else {
            let Base { draft, revision: runs } = router.lock().settings.base.clone();
            let changes = withdrawn.map(|(_, changes)| changes).unwrap_or_default();
            return Ok(AppliedView { changes, runs, ..AppliedView::nothing(&draft.origin) });
        };
        apply.comment = self.comment;
        apply.confirm = self.confirm;
        let result = transaction.apply(candidate, &apply, by).await;
        report(router.events(), &apply, who, &result);
        match (result, withdrawn) {
            (Err(error), Some((revision, _))) => Err(only_withdrawn(router, revision, who, error)),
            (result, _) => result,
        }
    }
}

/// Returns the apply request and the parsed configuration of a revision.
async fn target(router: &Router, number: u64) -> Result<(Apply, Config), ControlError> {
    let store = router.lock().settings.store.clone();
    let read = move || Ok(store.own_revision(number)?);
    let (_, text) = blocking("read the revision", read).await?;
    let origin = format!("revision {number}");
    let candidate = router.candidate(&text, &origin).await?;
    without_restart(router.running().difference(&candidate), Submission::File)?;
    Ok((Apply { text, origin: Some(origin), ..Apply::default() }, candidate))
}

/// Records in the audit log that the waiting revision was withdrawn, but the target not applied. Returns
/// `error` with this fact added.
fn only_withdrawn(router: &Router, revision: u64, who: &Who, error: ControlError) -> ControlError {
    let runs = router.lock().settings.base.revision;
    router.note_own(who.clone(), &format!("rollback of revision {revision}"), Ok(runs));
    error.of(&format!(
        "revision {revision} is rolled back, and the configuration before it runs; \
         the next step of the rollback failed"
    ))
}

/// Returns the newest good revision that differs from the running configuration.
async fn newest_other(router: &Router) -> Result<u64, ControlError> {
    let running = router.running();
    let (store, overrides) = {
        let inner = router.lock();
        (inner.settings.store.clone(), inner.settings.overrides.clone())
    };
    let find = move || {
        for Revision { number, .. } in store.good()? {
            let (_, text) = store.revision(number)?;
            // A stored revision that this version can't parse is no target.
            let Ok(other) = overrides.read(&text, "revision") else { continue };
            if !running.difference(&other).is_empty() {
                return Ok(Some(number));
            }
        }
        Ok(None)
    };
    blocking("read the revisions", find).await?.ok_or_else(|| {
        ControlError::not_found(
            "no good revision differs from the running configuration: `millrace history` lists all \
             revisions",
        )
    })
}
