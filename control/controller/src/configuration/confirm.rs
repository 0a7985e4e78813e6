//! Confirmation of configurations, and automatic rollback of configurations that are not confirmed in time.

use std::sync::Arc;
use std::time::Duration;

use millrace_store::{State, Who};
use millrace_telemetry::EventKind;
use serde_json::json;

use super::removals::users_first;
use super::{Transaction, except_for};
use crate::ControlError;
use crate::background::blocking;
use crate::router::{Inner, Router};
use crate::settings::{Waiting, commands};

/// Pause before the second rollback attempt. Each further pause is twice as long, up to `LONGEST_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Interval between two checks whether another transaction has ended.
const LOOK: Duration = Duration::from_millis(20);

/// Records that a revision waits for confirmation. Starts a task that rolls the revision back if its time
/// ends without confirmation.
pub(super) fn wait_for_confirmation(router: &Router, waiting: Waiting) {
    let (until, revision) = (waiting.until, waiting.revision);
    router.lock().settings.waiting = Some(waiting);
    let unconfirmed = Unconfirmed { router: router.clone(), revision };
    tokio::spawn(async move {
        tokio::time::sleep_until(until).await;
        unconfirmed.roll_back().await;
    });
}

/// Revision that was not confirmed in time.
struct Unconfirmed {
    router: Router,
    revision: u64,
}

impl Unconfirmed {
    /// Rolls back an unconfirmed revision. After a failure, retries after growing pauses until the rollback
    /// succeeds.
    async fn roll_back(&self) {
        let revision = self.revision;
        let (mut said, mut pause) = (None, FIRST_PAUSE);
        while let Some(transaction) = self.transaction().await {
            tracing::warn!(revision, "the revision was not confirmed in time: rolling back");
            let result = transaction.withdraw().await;
            drop(transaction);
            let why = result.as_ref().err().map(ToString::to_string);
            if why.is_none() || why != said {
                let operation = format!("rollback of revision {revision}, which was not confirmed");
                let runs = self.router.lock().settings.base.revision.filter(|_| result.is_ok());
                self.router.note_own(Who::router(), &operation, result.as_ref().map(|_| runs));
            }
            let Some(why) = why else { return };
            tracing::error!(revision, "the rollback failed, next attempt in {} s: {why}", pause.as_secs());
            if said.is_none() {
                self.note_stuck(&why);
            }
            said = Some(why);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Notes an event for a rollback whose changes failed in part.
    fn note_stuck(&self, why: &str) {
        let subject = format!("revision {}", self.revision);
        let text = format!("{subject} was not confirmed, and its rollback failed: {why}");
        let details = json!({"who": Who::router(), "origin": subject, "why": why});
        self.router.events().note(EventKind::ConfigurationRefused, &subject, text, details);
    }

    /// Waits until no other transaction runs, and begins the transaction of the rollback. Returns `None` if
    /// the revision no longer waits for confirmation.
    async fn transaction(&self) -> Option<Transaction> {
        loop {
            // Only the holder of a transaction can confirm or withdraw the waiting revision.
            if let Ok(transaction) = Transaction::begin_despite_waiting(&self.router) {
                return self.waits().then_some(transaction);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    fn waits(&self) -> bool {
        let inner = self.router.lock();
        inner.settings.waiting.as_ref().is_some_and(|waiting| waiting.revision == self.revision)
    }
}

/// Confirms the waiting revision, and returns its number. Refuses if `meant` names another revision than the
/// waiting one.
pub(crate) async fn confirm(router: &Router, meant: Option<u64>) -> Result<u64, ControlError> {
    let _transaction =
        Transaction::begin_despite_waiting(router).map_err(|busy| why_not_now(&router.lock(), busy))?;
    let (store, revision) = {
        let inner = router.lock();
        let waiting = inner.settings.waiting.as_ref().ok_or_else(nothing_waits)?;
        waiting.check_stays()?;
        (inner.settings.store.clone(), waiting.revision)
    };
    if let Some(other) = meant.filter(|meant| *meant != revision) {
        return Err(ControlError::conflict(format!(
            "revision {revision} waits to be confirmed, not revision {other}: nothing was confirmed"
        )));
    }
    let what = "store the confirmation";
    let settle =
        move || store.settle(revision, State::Good).map_err(|error| ControlError::system(what, error));
    blocking(what, settle).await?;
    let mut inner = router.lock();
    inner.settings.waiting = None;
    inner.settings.base.draft.state = State::Good;
    let (subject, text) = (format!("revision {revision}"), format!("revision {revision} is confirmed"));
    inner.observation.events.note(
        EventKind::ConfigurationConfirmed,
        &subject,
        text,
        json!({"revision": revision}),
    );
    Ok(revision)
}

/// Returns the reason why a confirmation fails while another transaction runs. Either no revision waits, or
/// the revision can no longer be confirmed, or the reason is the error `busy`.
fn why_not_now(inner: &Inner, busy: ControlError) -> ControlError {
    match &inner.settings.waiting {
        None => nothing_waits(),
        Some(waiting) => waiting.check_stays().err().unwrap_or(busy),
    }
}

impl Transaction {
    /// Rolls back the waiting revision. Returns the revision's number, and the changes made as commands.
    ///
    /// # Errors
    /// Returns an error if no revision waits. Returns the failed changes if the rollback failed in part; the
    /// revision still waits then.
    pub(super) async fn withdraw(&self) -> Result<(u64, Vec<String>), ControlError> {
        let (revision, before) = {
            let mut inner = self.0.lock();
            let waiting = inner.settings.waiting.as_mut().ok_or_else(nothing_waits)?;
            waiting.goes_back = true;
            (waiting.revision, Arc::clone(&waiting.before))
        };
        let changes = self.0.running().difference(&before).changes;
        let changes = users_first(&self.0.lock().model, changes);
        let remains = self.make_what_can_be(changes.clone()).await;
        if !remains.is_empty() {
            return Err(ControlError::System(format!(
                "revision {revision} is rolled back{}",
                except_for(&remains)
            )));
        }
        let store = {
            let mut inner = self.0.lock();
            if let Some(waiting) = inner.settings.waiting.take() {
                inner.settings.base = waiting.base;
            }
            inner.settings.store.clone()
        };
        let settle = move || Ok(store.settle(revision, State::Withdrawn)?);
        if let Err(error) = blocking("store the rollback", settle).await {
            // Logging suffices: the stored revision keeps the state *waiting*, so it never counts as good.
            tracing::error!(revision, "can't store that the revision is rolled back: {error}");
        }
        let text = format!("revision {revision} is rolled back: the previous configuration runs again");
        let commands = commands(&changes);
        let details = json!({"revision": revision, "changes": commands.len()});
        self.0.events().note(
            EventKind::ConfigurationRolledBack,
            &format!("revision {revision}"),
            text,
            details,
        );
        Ok((revision, commands))
    }
}

fn nothing_waits() -> ControlError {
    ControlError::conflict("there is no unconfirmed revision")
}

#[cfg(test)]
mod tests {
    use millrace_config::{Config, Instance};
    use millrace_telemetry::EventQuery;

    use super::*;
    use crate::operation::{Confirm, GetConfiguration, Principal};
    use crate::{Apply, RollBack, StartOptions, start};

    const BASE: &str = r#"
[plugins]
state = "none"
cache = "none"
[[port]]
name = "lan"
kind = "memory"
address = ["10.1.0.1/24"]
[[filter]]
match = "dport 25"
action = "drop"
"#;

    #[tokio::test]
    async fn failed_reversal_stops_no_other_reversal_and_is_reported_once() {
        let config = Config::parse(BASE, "base.toml").unwrap();
        let router = start(config, StartOptions::default()).await.unwrap();
        let admin = Principal::router();
        let text = BASE.replace("25", "26");
        let order = Apply { text, confirm: Some("1s".parse().unwrap()), ..Apply::default() };
        router.execute(&admin, order).await.unwrap();
        // The earlier configuration had an instance whose plugin is gone.
        let gone = Instance {
            plugin: "gone".into(),
            name: "g".into(),
            settings: Default::default(),
            service: None,
            owner: None,
            owner_role: None,
        };
        if let Some(waiting) = &mut router.lock().settings.waiting {
            Arc::make_mut(&mut waiting.before).instance.push(gone);
        }
        // Rollback attempts happen at 1 s, 2 s and 4 s.
        tokio::time::sleep(Duration::from_millis(4500)).await;
        let running = router.execute(&admin, GetConfiguration).await.unwrap();
        assert!(running.text.contains("dport 25") && running.pending.is_some(), "{}", running.text);
        // Between two rollback attempts, a confirmation is refused too.
        let refused = router.execute(&admin, Confirm::default()).await.unwrap_err();
        assert!(
            matches!(&refused, ControlError::Conflict(text) if text.to_string().contains("is being rolled back")),
            "{refused}"
        );
        let told = router.audit().last(100).unwrap();
        let told: Vec<_> = told.iter().filter(|entry| entry.operation.contains("not confirmed")).collect();
        assert!(told.len() == 1 && told[0].why.as_ref().unwrap().contains("gone"), "{told:?}");
        let events = router.events().page(&EventQuery::default()).events;
        let stuck = events.iter().filter(|event| event.kind == EventKind::ConfigurationRefused);
        assert_eq!(stuck.map(|event| event.count).sum::<u64>(), 1);
        // Without the impossible instance, the rollback succeeds.
        if let Some(waiting) = &mut router.lock().settings.waiting {
            Arc::make_mut(&mut waiting.before).instance.clear();
        }
        router.execute(&admin, RollBack::default()).await.unwrap();
        assert!(router.execute(&admin, GetConfiguration).await.unwrap().pending.is_none());
        router.shutdown().await.unwrap();
    }
}
