//! Operations on the configuration and its revisions.

use millrace_config::Role;
use millrace_store::{Revision, Who};
use millrace_telemetry::EventKind;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::ControlError;
use crate::background::{blocking, detached};
use crate::configuration::Transaction;
use crate::configuration::apply::Apply;
use crate::configuration::confirm::confirm;
use crate::configuration::history::RollBack;
use crate::configuration::keep::{Keep, Kept, Save};
use crate::operation::kinds::{Acting, Action, Query, Reading};
use crate::operation::{Effect, Operation};
use crate::router::Router;
use crate::settings::{Base, Waiting};
use crate::view::{
    AppliedView, ConfigurationView, Confirmed, DifferenceView, RevisionTextView, RevisionView, Saved,
};

impl Operation for Apply {
    type Answer = AppliedView;
    type Kind = Action;
    const EFFECT: Effect = Effect::Configuration;
    const TAKES_MEMORY: bool = true;
    const NO_INVERSE: &'static str = "an earlier revision is applied by a rollback";

    fn revision(answer: &AppliedView) -> Option<u64> {
        answer.runs
    }

    /// Dropping the returned future doesn't stop the work.
    ///
    /// # Errors
    /// Returns the problems of the text, the settings that need a restart, or the failed change and the
    /// reason. The earlier configuration keeps running then.
    async fn carry_out(self, acting: &Acting) -> Result<AppliedView, ControlError> {
        let (router, by) = (acting.router().clone(), acting.caller().requester());
        detached("apply the configuration", async move { self.apply(&router, &by).await }).await
    }
}

/// Returns the changes that a configuration would make, as commands. Runs no code of shared objects. For a
/// role below `admin`, reads no file that the text names.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CompareConfiguration {
    /// Text of the configuration. Without it, compares the base: the configuration last applied or saved, or
    /// used at the start.
    pub text: Option<String>,
    /// Name of the file, for messages.
    #[serde(deserialize_with = "crate::words::origin")]
    #[schemars(length(max = 4096))]
    pub origin: Option<String>,
}

impl Operation for CompareConfiguration {
    type Answer = DifferenceView;
    type Kind = Query;
    const EFFECT: Effect = Effect::DryRun;

    /// # Errors
    /// Returns the problems of the text, [`ControlError::Forbidden`], or an error while another
    /// configuration is being applied.
    async fn carry_out(self, router: &Reading) -> Result<DifferenceView, ControlError> {
        let Some(text) = self.text else {
            let base = router.lock().settings.base.draft.clone();
            return router.difference(&base.text, &base.origin).await;
        };
        let origin = self.origin.as_deref().unwrap_or("configuration");
        if router.caller().least() < Role::Admin {
            router.unless_privileged(&text, origin).await?;
        }
        router.difference(&text, origin).await
    }
}

impl Operation for RollBack {
    type Answer = AppliedView;
    type Kind = Action;
    const EFFECT: Effect = Effect::Configuration;
    const TAKES_MEMORY: bool = true;
    const NO_INVERSE: &'static str = "an earlier revision is applied by another rollback";

    fn revision(answer: &AppliedView) -> Option<u64> {
        answer.runs
    }

    /// Dropping the returned future doesn't stop the work.
    ///
    /// # Errors
    /// Returns the errors of [`Apply`], or an error if the revision doesn't exist. Nothing has changed then,
    /// unless the error says that the waiting revision is rolled back.
    async fn carry_out(self, acting: &Acting) -> Result<AppliedView, ControlError> {
        let (router, by) = (acting.router().clone(), acting.caller().requester());
        detached("roll back", async move { self.roll_back(&router, &by).await }).await
    }
}

/// Returns the running configuration as text, and its origin.
#[derive(Clone, Copy, Debug, Default)]
pub struct GetConfiguration;

impl Operation for GetConfiguration {
    type Answer = ConfigurationView;
    type Kind = Query;

    /// # Errors
    /// Returns an error while a configuration or a list is being applied.
    async fn carry_out(self, router: &Reading) -> Result<ConfigurationView, ControlError> {
        // Many routes and filters take long.
        let text = router.whole_running()?.to_text()?;
        let inner = router.lock();
        Ok(ConfigurationView {
            text,
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
    type Kind = Query;

    /// # Errors
    /// Returns an error if the revisions can't be read.
    async fn carry_out(self, router: &Reading) -> Result<Vec<RevisionView>, ControlError> {
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
    type Kind = Query;

    /// # Errors
    /// Returns an error if the revision doesn't exist or can't be read.
    async fn carry_out(self, router: &Reading) -> Result<RevisionTextView, ControlError> {
        let store = router.lock().settings.store.clone();
        let (revision, text) = store.revision(self.number)?;
        Ok(RevisionTextView { revision, text })
    }
}

/// Confirms the waiting revision, and returns its number.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Confirm {
    /// Number of the revision that must be waiting. If another one waits, nothing is confirmed.
    pub revision: Option<u64>,
}

impl Operation for Confirm {
    type Answer = Confirmed;
    type Kind = Action;
    const EFFECT: Effect = Effect::Configuration;
    const NO_INVERSE: &'static str = "a confirmed revision stays in the history";

    fn revision(answer: &Confirmed) -> Option<u64> {
        Some(answer.revision)
    }

    /// Dropping the returned future doesn't stop the work.
    ///
    /// # Errors
    /// Returns an error if no revision waits, if the request names another revision than the waiting one,
    /// during a rollback, or if the confirmation can't be written. In the last case the revision still waits.
    async fn carry_out(self, acting: &Acting) -> Result<Confirmed, ControlError> {
        let router = acting.router().clone();
        let confirm = async move { confirm(&router, self.revision).await };
        detached("confirm the revision", confirm).await.map(|revision| Confirmed { revision })
    }
}

impl Operation for Save {
    type Answer = Saved;
    type Kind = Query;
    const ROLE: Role = Role::Operator;

    /// # Errors
    /// Returns an error if the text is no valid configuration, or while a configuration is being applied.
    /// Without `force`, also returns an error if entries of the file that were never applied or saved would
    /// get lost.
    async fn carry_out(self, router: &Reading) -> Result<Saved, ControlError> {
        // A half-applied configuration is not saved.
        router.lock().settings.unless_applying()?;
        let (running, kept) = router.kept();
        let save = move || kept.saved(&running, self).map(|text| Saved { text });
        blocking("write the configuration", save).await
    }
}

impl Operation for Keep {
    type Answer = Revision;
    type Kind = Action;
    const EFFECT: Effect = Effect::Store;
    const NO_INVERSE: &'static str = "a stored revision stays in the history";

    fn revision(answer: &Revision) -> Option<u64> {
        Some(answer.number)
    }

    /// # Errors
    /// Returns an error if the text differs from the running configuration, or if the revision can't be
    /// written. Also refuses while a configuration is being applied, or while a revision waits for
    /// confirmation. For a role below `admin`, returns [`ControlError::Forbidden`] if the text permits more
    /// at the next start than the running configuration.
    async fn carry_out(self, acting: &Acting) -> Result<Revision, ControlError> {
        let (router, who) = (acting.router().clone(), acting.caller().who.clone());
        let role = acting.caller().least();
        detached("store a revision", async move { self.store(&router, &who, role).await }).await
    }
}

impl Keep {
    /// Stores the revision in a transaction, which must not end before the revision is written.
    async fn store(self, router: &Router, who: &Who, role: Role) -> Result<Revision, ControlError> {
        let _transaction = Transaction::begin(router).await?;
        let (running, kept) = (router.running(), Kept::of(router));
        let by = who.clone();
        let order = Self { comment: Some(self.comment.unwrap_or_else(|| "saved".to_owned())), ..self };
        let keep = move || {
            if role < Role::Admin {
                kept.unless_privileged(&running, &order)?;
                return kept.keep_for_others(&running, order, by);
            }
            kept.keep(&running, order, by)
        };
        let (draft, revision) = blocking("write the revision", keep).await?;
        let (number, origin) = (revision.number, revision.origin.clone());
        router.lock().settings.base = Base { draft, revision: Some(number) };
        let text = format!("{who} saved the running configuration as revision {number}: {origin}");
        let details = json!({"who": who, "revision": number, "origin": origin});
        router.events().note(EventKind::ConfigurationSaved, &origin, text, details);
        Ok(revision)
    }
}
