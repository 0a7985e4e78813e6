//! Operations on the configuration and its revisions.

use crate::ControlError;
use crate::configuration::Transaction;
use crate::configuration::apply::Apply;
use crate::configuration::confirm::confirm;
use crate::configuration::history::RollBack;
use crate::configuration::history::of_store;
use crate::configuration::keep::Save;
use crate::configuration::keep::{Keep, Kept};
use crate::operation::Authorized;
use crate::operation::Effect;
use crate::operation::Operation;
use crate::router::Router;
use crate::settings::Base;
use crate::settings::Waiting;
use crate::view::AppliedView;
use crate::view::ConfigurationView;
use crate::view::DifferenceView;
use crate::view::RevisionTextView;
use crate::view::RevisionView;
use millrace_config::Role;
use millrace_store::Revision;
use millrace_telemetry::EventKind;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

impl Operation for Apply {
    type Answer = AppliedView;
    const EFFECT: Effect = Effect::Configuration;
    const TAKES_MEMORY: bool = true;

    fn revision(answer: &AppliedView) -> Option<u64> {
        answer.runs
    }

    /// Dropping the returned future doesn't stop the work.
    ///
    /// # Errors
    /// Returns the problems of the text, the changes that need a restart, or the failed step and its reason.
    /// The earlier configuration runs then.
    async fn carry_out(self, router: &Router, caller: &Authorized<'_>) -> Result<AppliedView, ControlError> {
        let (router, who) = (router.clone(), caller.who.clone());
        let work = tokio::spawn(async move { self.apply(&router, &who).await });
        work.await.map_err(|error| ControlError::system("apply the configuration", error))?
    }
}

/// Returns the changes that a configuration would make, as commands. No code of shared objects runs. For a
/// role below `admin`, no file that the text names is read.
#[derive(Clone, Debug)]
pub struct CompareConfiguration {
    /// Text of the configuration.
    pub text: String,
    /// Name of the file, for messages.
    pub origin: String,
}

impl Operation for CompareConfiguration {
    type Answer = DifferenceView;
    const EFFECT: Effect = Effect::DryRun;

    /// # Errors
    /// Returns the problems of the text, [`ControlError::Forbidden`], or an error while another
    /// configuration is being applied.
    async fn carry_out(
        self,
        router: &Router,
        caller: &Authorized<'_>,
    ) -> Result<DifferenceView, ControlError> {
        let Self { text, origin } = self;
        if caller.least() < Role::Admin {
            router.unless_privileged(&text, &origin).await?;
        }
        router.difference(&text, &origin).await
    }
}

/// Returns the changes from the running configuration to the base: last applied or saved, or used at the
/// start.
#[derive(Clone, Copy, Debug, Default)]
pub struct CompareWithBase;

impl Operation for CompareWithBase {
    type Answer = DifferenceView;
    const EFFECT: Effect = Effect::DryRun;

    /// # Errors
    /// Returns an error if the base can no longer be read, or while another configuration is being applied.
    async fn carry_out(self, router: &Router, _: &Authorized<'_>) -> Result<DifferenceView, ControlError> {
        let base = router.lock().settings.base.draft.clone();
        router.difference(&base.text, &base.origin).await
    }
}

impl Operation for RollBack {
    type Answer = AppliedView;
    const EFFECT: Effect = Effect::Configuration;
    const TAKES_MEMORY: bool = true;

    fn revision(answer: &AppliedView) -> Option<u64> {
        answer.runs
    }

    /// Dropping the returned future doesn't stop the work.
    ///
    /// # Errors
    /// Returns an error if the revision doesn't exist, and the errors of [`Apply`]. Nothing has changed then,
    /// unless the text says that the waiting revision is rolled back.
    async fn carry_out(self, router: &Router, caller: &Authorized<'_>) -> Result<AppliedView, ControlError> {
        let (router, who) = (router.clone(), caller.who.clone());
        let work = tokio::spawn(async move { self.roll_back(&router, &who).await });
        work.await.map_err(|error| ControlError::system("roll back", error))?
    }
}

/// Returns the running configuration as text, and its origin.
#[derive(Clone, Copy, Debug, Default)]
pub struct GetConfiguration;

impl Operation for GetConfiguration {
    type Answer = ConfigurationView;
    const EFFECT: Effect = Effect::Look;

    /// # Errors
    /// Returns an error while a configuration or a list is being applied.
    async fn carry_out(self, router: &Router, _: &Authorized<'_>) -> Result<ConfigurationView, ControlError> {
        let running = router.whole_running()?;
        let inner = router.lock();
        Ok(ConfigurationView {
            text: running.to_text()?,
            origin: inner.settings.base.draft.origin.clone(),
            store: inner.settings.store.path().map(|path| path.display().to_string()),
            pending: inner.settings.waiting.as_ref().map(Waiting::pending),
        })
    }
}

/// Lists all stored revisions, the newest first.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListRevisions;

impl Operation for ListRevisions {
    type Answer = Vec<RevisionView>;
    const EFFECT: Effect = Effect::Look;

    /// # Errors
    /// Returns an error if the revisions can't be read.
    async fn carry_out(self, router: &Router, _: &Authorized<'_>) -> Result<Vec<RevisionView>, ControlError> {
        router.revisions()
    }
}

/// Returns a revision with its text.
#[derive(Clone, Copy, Debug)]
pub struct GetRevision {
    /// Number of the revision.
    pub number: u64,
}

impl Operation for GetRevision {
    type Answer = RevisionTextView;
    const EFFECT: Effect = Effect::Look;

    /// # Errors
    /// Returns an error if the revision doesn't exist or can't be read.
    async fn carry_out(self, router: &Router, _: &Authorized<'_>) -> Result<RevisionTextView, ControlError> {
        let store = router.lock().settings.store.clone();
        let (revision, text) = store.revision(self.number).map_err(of_store)?;
        Ok(RevisionTextView { revision, text })
    }
}

/// Confirms the waiting revision, and returns its number.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Confirm {
    /// Revision that must be waiting; if another one waits, nothing is confirmed.
    pub revision: Option<u64>,
}

impl Operation for Confirm {
    type Answer = u64;
    const EFFECT: Effect = Effect::Configuration;

    fn revision(answer: &u64) -> Option<u64> {
        Some(*answer)
    }

    /// Dropping the returned future doesn't stop the work.
    ///
    /// # Errors
    /// Returns an error if no revision waits, if another one does, during a rollback, or if the confirmation
    /// can't be written. In the last case the revision still waits.
    async fn carry_out(self, router: &Router, _: &Authorized<'_>) -> Result<u64, ControlError> {
        let router = router.clone();
        let work = tokio::spawn(async move { confirm(&router, self.revision).await });
        work.await.map_err(|error| ControlError::system("confirm the revision", error))?
    }
}

impl Operation for Save {
    type Answer = String;
    const ROLE: Role = Role::Operator;
    const EFFECT: Effect = Effect::Look;

    /// # Errors
    /// Returns an error if the text is no configuration, or while a configuration is being applied. Without
    /// `force`, also refuses to lose entries of the file that were neither applied nor saved.
    async fn carry_out(self, router: &Router, _: &Authorized<'_>) -> Result<String, ControlError> {
        // A half-applied configuration is not saved.
        router.lock().settings.unless_applying()?;
        let (running, kept) = (router.running(), Kept::of(router));
        let work = tokio::task::spawn_blocking(move || kept.saved(&running, self));
        work.await.map_err(|error| ControlError::system("write the configuration", error))?
    }
}

impl Operation for Keep {
    type Answer = Revision;
    const EFFECT: Effect = Effect::Store;

    fn revision(answer: &Revision) -> Option<u64> {
        Some(answer.number)
    }

    /// # Errors
    /// Returns an error if the text differs from the running configuration, if the disk refuses, or while a
    /// configuration is being applied or waits for confirmation. Returns [`ControlError::Forbidden`] for a
    /// role below `admin` whose text permits more at the next start.
    async fn carry_out(self, router: &Router, caller: &Authorized<'_>) -> Result<Revision, ControlError> {
        let _transaction = Transaction::begin(router)?;
        let (running, kept) = (router.running(), Kept::of(router));
        let (who, by, role) = (&caller.who, caller.who.clone(), caller.least());
        let order = Self { comment: Some(self.comment.unwrap_or_else(|| "saved".to_owned())), ..self };
        let work = tokio::task::spawn_blocking(move || {
            if role < Role::Admin {
                kept.unless_privileged(&running, &order)?;
            }
            kept.keep(&running, order, by)
        });
        let (draft, revision) =
            work.await.map_err(|error| ControlError::system("write the revision", error))??;
        let (number, origin) = (revision.number, revision.origin.clone());
        router.lock().settings.base = Base { draft, revision: Some(number) };
        let text = format!("{who} saved the running configuration as revision {number}: {origin}");
        let details = json!({"who": who, "revision": number, "origin": origin});
        router.events().note(EventKind::ConfigurationSaved, &origin, text, details);
        Ok(revision)
    }
}
