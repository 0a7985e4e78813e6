//! Conditional changes: they are made only if a given revision is running. So a caller never overwrites a
//! change that the caller doesn't know.

use millrace_store::{AuditEntry, AuditLog, Outcome};
use millrace_telemetry::utc;

use super::Transaction;
use crate::ControlError;
use crate::background::blocking;
use crate::router::Router;
use crate::view::RevisionView;

/// Maximum number of audit log lines searched for the author of a change.
const SEARCHED: usize = 1000;

impl Transaction {
    /// Refuses unless revision `number` is running without later changes.
    ///
    /// # Errors
    /// Returns [`ControlError::Changed`], which names the running revision and the author of the change.
    /// Returns another error if the revisions can't be read.
    pub(super) async fn expect_revision(&self, number: u64) -> Result<(), ControlError> {
        let router = self.0.clone();
        blocking("read the revisions", move || refuse_other_revision(&router, number)).await
    }
}

/// Refuses unless revision `number` is running without later changes.
fn refuse_other_revision(router: &Router, number: u64) -> Result<(), ControlError> {
    let revisions = router.revisions()?;
    let Some(RevisionView { revision, .. }) = revisions.into_iter().find(|one| one.runs) else {
        let origin = router.lock().settings.base.draft.origin.clone();
        return Err(changed(&format!(
            "the router runs its start configuration, {origin}, not revision {number}"
        )));
    };
    if revision.number != number {
        let comment = revision.comment.map(|comment| format!(" ({comment})")).unwrap_or_default();
        let (runs, time, who) = (revision.number, utc(revision.time), revision.who);
        return Err(changed(&format!(
            "revision {runs} is running, since {time} by {who}{comment}, not revision {number}"
        )));
    }
    let running = router.running();
    let (draft, overrides) = {
        let inner = router.lock();
        (inner.settings.base.draft.clone(), inner.settings.overrides.clone())
    };
    let difference = running.difference(&overrides.read(&draft.text, &draft.origin)?);
    if difference.is_empty() {
        return Ok(());
    }
    let last =
        last_change(&router.audit()).map(|last| format!(", the last one by {last}")).unwrap_or_default();
    Err(changed(&format!(
        "revision {number} is running, but single commands have changed the configuration since{last} (see `millrace diff`)"
    )))
}

/// Returns the author, time and operation of the last single change; `None` if the audit log has none.
fn last_change(audit: &AuditLog) -> Option<String> {
    let is_change = |entry: &&AuditEntry| {
        entry.outcome == Outcome::Done
            && !entry.operation.starts_with("GET ")
            && !entry.operation.contains("/configuration")
            && !entry.operation.contains("/tokens")
    };
    let entries = audit.last(SEARCHED).ok()?;
    let AuditEntry { who, operation, time, .. } = entries.iter().rev().find(is_change)?;
    Some(format!("{who} at {time} ({operation})"))
}

fn changed(what: &str) -> ControlError {
    ControlError::Changed(format!("{what}: this request changed nothing"))
}
