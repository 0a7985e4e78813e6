//! Compares a configuration with the running configuration, and applies a configuration atomically.

use std::sync::Arc;

use millrace_config::{Change, Config, Difference, Instance, Principal, Role, Submission};
use millrace_repository::Memory;
use millrace_store::{Draft, Revision, State, Who};
use millrace_telemetry::EventKind;
use millrace_units::Message;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::task::JoinHandle;

use super::removals::users_first;
use super::{Failed, Transaction, except_for};
use crate::admission::allowances::{self as permitted, Requester};
use crate::background::blocking;
use crate::configuration::confirm::wait_for_confirmation;
use crate::events::Events;
use crate::model::Model;
use crate::model::running::put_in_creation_order;
use crate::plugins::load::Admitted;
use crate::router::Router;
use crate::settings::{Base, Waiting, commands};
use crate::view::{AppliedView, ConfirmTime, DifferenceView};
use crate::{ControlError, admission};

/// Applies a configuration atomically.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Apply {
    /// Text of the configuration.
    pub text: String,
    /// Name of the file, for messages and for the history.
    #[serde(default, deserialize_with = "super::words::origin")]
    #[schemars(length(max = 4096))]
    pub origin: Option<String>,
    /// Reason for the change.
    #[serde(default, deserialize_with = "super::words::comment")]
    #[schemars(length(max = 1024))]
    pub comment: Option<String>,
    /// Time until an unconfirmed configuration is rolled back: `60s`, `10m`.
    #[serde(default)]
    pub confirm: Option<ConfirmTime>,
    /// Number of the revision that must be running without later changes; otherwise nothing is applied.
    #[serde(default)]
    pub if_revision: Option<u64>,
    /// Expected text of the running configuration, as returned by
    /// [`GetConfiguration`](crate::operation::GetConfiguration). If the text differs, nothing is applied.
    #[serde(skip)]
    pub only_if: Option<String>,
}

impl Apply {
    /// Applies the configuration. Logs the result, and notes an event.
    ///
    /// # Errors
    /// Returns the problems of the text, the settings that need a restart, or the failed change and the
    /// reason.
    pub(crate) async fn apply(&self, router: &Router, by: &Requester) -> Result<AppliedView, ControlError> {
        let result = self.apply_at_once(router, by).await;
        report(router.events(), self, &by.who, &result);
        result
    }

    async fn apply_at_once(&self, router: &Router, by: &Requester) -> Result<AppliedView, ControlError> {
        let origin = self.origin.as_deref().unwrap_or("configuration");
        let candidate = router.candidate(&self.text, origin).await?;
        Transaction::begin(router).await?.apply(candidate, self, by).await
    }

    /// Returns the request with the owners of principals and instances in its text, as the candidate has them.
    fn with_owners(&self, candidate: &Config) -> Result<Self, ControlError> {
        let origin = self.origin.as_deref().unwrap_or("configuration");
        let text = with_owners(self.text.clone(), origin, candidate)?;
        Ok(Self { text, ..self.clone() })
    }
}

/// Returns a text with the owners of principals and instances that another configuration has.
pub(crate) fn with_owners(text: String, origin: &str, owners: &Config) -> Result<String, ControlError> {
    let mut file = Config::parse(&text, origin)?;
    match file.keep_owners(owners).is_empty() {
        true => Ok(text),
        false => Ok(file.save_into(&text, origin)?),
    }
}

impl Router {
    /// Returns the changes that a configuration text would make, as commands.
    pub(crate) async fn difference(&self, text: &str, origin: &str) -> Result<DifferenceView, ControlError> {
        let mut candidate = self.candidate(text, origin).await?;
        let inner = self.lock();
        inner.settings.unless_applying()?;
        let running = inner.model.running(&inner.tables);
        candidate.keep_owners(&running);
        let difference = running.difference(&candidate);
        Ok(DifferenceView {
            origin: origin.to_owned(),
            changes: commands(&users_first(&inner.model, difference.changes)),
            restart: difference.restart.iter().map(ToString::to_string).collect(),
        })
    }

    /// Refuses a text whose `[plugins]`, `[[plugin]]` or `[api]` differs from the running configuration.
    pub(crate) async fn unless_privileged(&self, text: &str, origin: &str) -> Result<(), ControlError> {
        let (running, overrides) = (self.running(), self.lock().settings.overrides.clone());
        let (text, origin) = (text.to_owned(), origin.to_owned());
        let compare = move || {
            let submitted = overrides.read(&text, &origin)?;
            let differing = [
                ("[plugins]", submitted.plugins != running.plugins),
                ("[[plugin]]", submitted.plugin != running.plugin),
                ("[api]", submitted.api != running.api),
            ];
            match differing.iter().find(|(_, differs)| *differs) {
                None => Ok(()),
                Some((table, _)) => Err(ControlError::Forbidden(
                    Role::Admin,
                    format!(
                        "{table} of {origin} differs from the running configuration: comparing it needs the role admin"
                    ),
                )),
            }
        };
        blocking("read the configuration", compare).await
    }

    /// Returns the running configuration in normal form.
    pub(crate) fn running(&self) -> Config {
        // Normalization takes long, so it runs after the lock is released.
        let written = {
            let inner = self.lock();
            inner.model.as_written(&inner.tables)
        };
        written.normalized()
    }

    /// Returns the running configuration in normal form.
    ///
    /// # Errors
    /// Returns an error while a configuration or a list is being applied. At that time, only some of the
    /// changes are in force.
    pub(crate) fn whole_running(&self) -> Result<Config, ControlError> {
        let written = {
            let inner = self.lock();
            inner.settings.unless_in_between()?;
            inner.model.as_written(&inner.tables)
        };
        Ok(written.normalized())
    }

    /// Parses and checks a configuration on a blocking thread. Its instances come in the order of their creation.
    pub(super) async fn candidate(&self, text: &str, origin: &str) -> Result<Config, ControlError> {
        let (text, origin) = (text.to_owned(), origin.to_owned());
        let (loader, overrides) = {
            let inner = self.lock();
            // Planning follows the plugin policy of the running configuration, and runs no code of shared
            // objects.
            (
                inner.plugins.loader.planning_change(Admitted::of(&inner.model)),
                inner.settings.overrides.clone(),
            )
        };
        let check = move || {
            let further = |rest: &Config| {
                let mut rest = rest.clone();
                overrides.put_into(&mut rest);
                Model::wrong_with_rest(&rest, &loader)
            };
            let mut config = Config::parse_further(&text, &origin, further)?;
            overrides.put_into(&mut config);
            admission::check(&config)?;
            let planned = Model::remembering(&config, Memory::open(None), &loader)?;
            put_in_creation_order(&planned, &mut config.instance);
            Ok(config.normalized())
        };
        blocking("check the configuration", check).await
    }
}

impl Transaction {
    /// Applies `candidate`, the parsed configuration of the request `order`.
    ///
    /// # Errors
    /// Returns the errors of [`Apply`], except for problems of the text.
    pub(super) async fn apply(
        &self,
        candidate: Config,
        order: &Apply,
        by: &Requester,
    ) -> Result<AppliedView, ControlError> {
        let (who, origin) = (&by.who, order.origin.as_deref().unwrap_or("configuration"));
        let before = Arc::new(self.0.running());
        self.expect(order, &before).await?;
        let candidate = self.owned(&before, candidate, by)?;
        let order = &order.with_owners(&candidate)?;
        // The store is read in parallel with the changes.
        let missing = missing(&self.0, &before);
        let changes = self.transition(&before, &candidate).await?;
        if changes.is_empty() {
            return self.keep_applied(before, order, who).await;
        }
        let state = if order.confirm.is_some() { State::Waiting } else { State::Good };
        let draft = Draft {
            who: who.clone(),
            comment: order.comment.clone(),
            origin: origin.to_owned(),
            state,
            changes: commands(&changes).len(),
            text: order.text.clone(),
        };
        let Remembered { revision, before: ran } = match self.remember(draft.clone(), missing).await {
            Ok(remembered) => remembered,
            Err(error) => {
                let remains = except_for(&self.unmake(&changes).await);
                let whole =
                    |text| format!("can't store the revision: {text}; all changes are undone{remains}");
                return Err(match error {
                    ControlError::NoRoom(text) => ControlError::NoRoom(whole(text)),
                    error => ControlError::System(whole(error.to_string())),
                });
            }
        };
        let base = Base { draft, revision: Some(revision.number) };
        let earlier = std::mem::replace(&mut self.0.lock().settings.base, base);
        let earlier = Base { revision: ran.or(earlier.revision), ..earlier };
        if let Some(time) = order.confirm {
            wait_for_confirmation(&self.0, Waiting::new(revision.number, time.duration(), before, earlier));
        }
        Ok(AppliedView {
            revision: Some(revision.number),
            changes: commands(&changes),
            confirm: order.confirm,
            origin: origin.to_owned(),
            runs: Some(revision.number),
            shadowed: self.0.never_winning(|_| true).await,
        })
    }

    /// Checks that the configuration and the revision that a request expects are running.
    async fn expect(&self, order: &Apply, running: &Config) -> Result<(), ControlError> {
        if let Some(number) = order.if_revision {
            self.expect_revision(number).await?;
        }
        match &order.only_if {
            Some(expected) if running.to_text()? != *expected => Err(ControlError::Changed(
                "the running configuration differs from the expected one: nothing was changed".into(),
            )),
            _ => Ok(()),
        }
    }

    /// Returns the candidate with the owners of its principals and instances: those that run, and the user for new ones
    /// if an allowance concerns the user. Checks that the allowances of the user permit the changes.
    fn owned(&self, before: &Config, mut candidate: Config, by: &Requester) -> Result<Config, ControlError> {
        candidate.keep_owners(before);
        let Some(owner) = by.owner_of_instances(&before.admission) else { return Ok(candidate) };
        let is_new = |one: &&mut Principal| before.principal.iter().all(|other| other.name != one.name);
        for one in candidate.principal.iter_mut().filter(is_new).filter(|one| one.owner.is_none()) {
            one.owner = by.owner();
        }
        let is_new = |one: &&mut Instance| before.instance.iter().all(|other| other.name != one.name);
        let is_own = |one: &&mut Instance| one.owner.as_ref().is_none_or(|user| *user == owner.user);
        for one in candidate.instance.iter_mut().filter(is_new).filter(is_own) {
            (one.owner, one.owner_role) = (Some(owner.user.clone()), owner.role);
        }
        permitted::check(&self.0.lock().model, by, &before.difference(&candidate).changes)?;
        Ok(candidate)
    }

    /// Changes the running configuration from `from` to `to`. Returns the changes.
    pub(super) async fn transition(&self, from: &Config, to: &Config) -> Result<Vec<Change>, ControlError> {
        let changes = without_restart(from.difference(to), Submission::File)?;
        let changes = users_first(&self.0.lock().model, changes);
        self.make(&changes).await.map_err(|failed| refused(&changes, &failed))?;
        // A configuration with bindings or filters sets `on-death` explicitly, because bindings and filters
        // require this.
        if !(to.bind.is_empty() && to.filter.is_empty()) {
            self.0.lock().supervision.death.confirm();
        }
        Ok(changes)
    }

    /// Writes revisions to disk, all of them or none: first the earlier configurations that no revision holds
    /// yet, then the applied configuration.
    async fn remember(
        &self,
        draft: Draft,
        missing: JoinHandle<Result<Vec<Draft>, ControlError>>,
    ) -> Result<Remembered, ControlError> {
        let mut drafts =
            missing.await.map_err(|error| ControlError::system("write the revision", error))??;
        let earlier = drafts.len() as u64;
        drafts.push(draft);
        let (store, runs) = {
            let inner = self.0.lock();
            (inner.settings.store.clone(), inner.settings.base.revision)
        };
        let add = move || Ok(store.add(&drafts, runs)?);
        let added = blocking("write the revision", add).await?;
        let revision = added.ok_or_else(|| ControlError::System("no revision was written".into()))?;
        let before = (earlier > 0).then(|| revision.number - 1);
        Ok(Remembered { revision, before })
    }
}

/// Logs the result of applying a configuration, and notes an event.
pub(super) fn report(events: &Events, order: &Apply, who: &Who, result: &Result<AppliedView, ControlError>) {
    match result {
        Ok(view) => {
            tracing::info!(%who, changes = view.changes.len(), revision = view.revision, "configuration applied");
            note_applied(events, view, who);
        }
        Err(error) => {
            tracing::warn!(%who, "configuration not applied: {error:#}");
            note_refused(events, order.origin.as_deref().unwrap_or("configuration"), who, error);
        }
    }
}

fn note_applied(events: &Events, view: &AppliedView, who: &Who) {
    let AppliedView { revision: Some(revision), changes, confirm, origin, .. } = view else { return };
    let wait = confirm.map(|time| format!(", to be confirmed within {time}")).unwrap_or_default();
    let count = millrace_units::count(changes.len(), "change");
    let text = format!("{who} applied {origin} as revision {revision}: {count}{wait}");
    let details = json!({
        "who": who,
        "revision": revision,
        "origin": origin,
        "changes": changes.len(),
        "confirm": confirm,
    });
    events.note(EventKind::ConfigurationApplied, origin, text, details);
}

fn note_refused(events: &Events, origin: &str, who: &Who, error: &ControlError) {
    let text = format!("{who} could not apply {origin}: {error:#}");
    let details = json!({"who": who, "origin": origin, "why": error.to_string()});
    events.note(EventKind::ConfigurationRefused, origin, text, details);
}

/// Starts a task that reads the store. The task returns the configurations that must be on disk as revisions
/// before another configuration becomes the base.
fn missing(router: &Router, before: &Arc<Config>) -> JoinHandle<Result<Vec<Draft>, ControlError>> {
    let (store, base, overrides) = {
        let inner = router.lock();
        (inner.settings.store.clone(), inner.settings.base.clone(), inner.settings.overrides.clone())
    };
    let before = Arc::clone(before);
    tokio::task::spawn_blocking(move || base.missing(&store, &overrides, &before))
}

/// Result of writing an applied configuration to disk as a revision.
struct Remembered {
    revision: Revision,
    /// Number of the revision that stores the configuration before this change; `None` if it was on disk
    /// already.
    before: Option<u64>,
}

/// Returns the changes of a difference. Refuses a difference that needs a restart.
pub(super) fn without_restart(
    difference: Difference,
    submission: Submission,
) -> Result<Vec<Change>, ControlError> {
    if difference.restart.is_empty() {
        return Ok(difference.changes);
    }
    let problem = Message::from("only a restart can change these settings, so nothing was changed: ");
    Err(ControlError::conflict(problem.append(difference.restart_message(submission))))
}

/// Returns the error for a failed change. Its text says which changes were undone, and which could not be
/// undone.
fn refused(changes: &[Change], failed: &Failed) -> ControlError {
    let (step, all, error) = (failed.step, changes.len(), &failed.error);
    let remains = except_for(&failed.remains);
    let change = &changes[step];
    if failed.stands() {
        return ControlError::System(format!(
            "step {} of {all}, `{change}`: {error}; all changes are undone{remains}",
            step + 1
        ));
    }
    let undone = match failed.made {
        0 => "nothing was changed".to_owned(),
        1 => "the step before it is undone".to_owned(),
        steps => format!("the {steps} steps before it are undone"),
    };
    ControlError::conflict(format!("step {} of {all}, `{change}`: {error}; {undone}{remains}", step + 1))
}
