//! What runs is kept: as a file whose comments stay, and as a revision that counts at the next start.

use std::sync::Arc;

use millrace_config::{Config, Role};
use millrace_store::{Draft, Revision, State, Store, StoreError, Who};
use millrace_telemetry::EventKind;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::apply::Apply;
use super::base::Base;
use crate::ControlError;
use crate::overrides::Overrides;
use crate::router::Router;
use crate::view::AppliedView;

/// A request to write the running configuration into a file.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Save {
    /// Its text as it is; without it, what was last applied or saved.
    pub text: Option<String>,
    /// Its name, for messages.
    #[serde(deserialize_with = "super::words::origin")]
    #[schemars(length(max = 4096))]
    pub origin: Option<String>,
    /// Also where the file has entries that were neither applied nor saved, and are lost then.
    pub force: bool,
}

/// What runs is to be a revision.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Keep {
    /// The text of a file that says what runs; without it, what was last applied or saved, with what has changed since.
    pub text: Option<String>,
    /// The file's name, for the history.
    #[serde(deserialize_with = "super::words::origin")]
    #[schemars(length(max = 4096))]
    pub origin: Option<String>,
    /// Why; `saved`, if nothing is said.
    #[serde(deserialize_with = "super::words::comment")]
    #[schemars(length(max = 1024))]
    pub comment: Option<String>,
}

/// Most entries of a file that are named when it would lose them.
const NAMED: usize = 10;

impl Router {
    /// What runs, written into the text of a file whose comments stay.
    ///
    /// # Errors
    /// A text that is no configuration; one with entries that were neither applied nor saved and would be lost, unless that is wanted;
    /// while a configuration is applied.
    pub async fn save_into(&self, order: Save) -> Result<String, ControlError> {
        // Half of a change is nothing that anybody wanted.
        self.lock().unless_applying()?;
        let (running, kept) = (self.running(), self.kept());
        let work = tokio::task::spawn_blocking(move || kept.saved(&running, order));
        work.await.map_err(|error| ControlError::system("write the configuration", error))?
    }

    /// Makes a revision of what runs: a router that starts from the last good one starts with it. What is the newest one already is that.
    ///
    /// # Errors
    /// A text that says something else than what runs; [`ControlError::NeedsAdmin`] for a role below `admin` and a text that permits
    /// the next start more; while a configuration is applied or waits to be confirmed; a disk that refuses.
    pub async fn keep(&self, order: Keep, who: Who, role: Role) -> Result<Revision, ControlError> {
        let _turn = self.begin_apply()?;
        let (running, kept, by) = (self.running(), self.kept(), who.clone());
        let order = Keep { comment: Some(order.comment.unwrap_or_else(|| "saved".to_owned())), ..order };
        let work = tokio::task::spawn_blocking(move || {
            if role < Role::Admin {
                kept.unless_privileged(&running, &order)?;
            }
            kept.keep(&running, order, by)
        });
        let (draft, revision) =
            work.await.map_err(|error| ControlError::system("write the revision", error))??;
        let (number, origin) = (revision.number, revision.origin.clone());
        self.lock().base = Base { draft, revision: Some(number) };
        let text = format!("{who} saved what runs as revision {number}: {origin}");
        let details = json!({"who": who, "revision": number, "origin": origin});
        self.events().note(EventKind::ConfigurationSaved, &origin, text, details);
        Ok(revision)
    }

    /// Makes a revision of a file that was applied and is what runs already, unless what was applied or saved last and the newest
    /// revision say the same: what single commands have made counts from then on.
    ///
    /// # Errors
    /// A disk that refuses.
    pub(super) async fn keep_applied(
        &self,
        running: Arc<Config>,
        order: &Apply,
        who: &Who,
    ) -> Result<AppliedView, ControlError> {
        let Apply { text, origin, comment, .. } = order.clone();
        let name = origin.clone().unwrap_or_else(|| "configuration".to_owned());
        let (kept, by) = (self.kept(), who.clone());
        let work = tokio::task::spawn_blocking(move || match kept.counts(&running)? {
            true => Ok(None),
            false => kept.keep(&running, Keep { text: Some(text), origin, comment }, by).map(Some),
        });
        let written = work.await.map_err(|error| ControlError::system("write the revision", error))?;
        let Some((draft, revision)) = written? else { return Ok(AppliedView::nothing(&name)) };
        let number = Some(revision.number);
        self.lock().base = Base { draft, revision: number };
        Ok(AppliedView { revision: number, runs: number, ..AppliedView::nothing(&name) })
    }

    fn kept(&self) -> Kept {
        let inner = self.lock();
        Kept { store: inner.store.clone(), base: inner.base.clone(), overrides: inner.overrides.clone() }
    }
}

/// What was applied and saved up to now.
struct Kept {
    store: Store,
    base: Base,
    overrides: Overrides,
}

impl Kept {
    fn saved(&self, running: &Config, order: Save) -> Result<String, ControlError> {
        let Save { text, origin, force } = order;
        let Some(text) = text else {
            let Draft { text, origin, .. } = &self.base.draft;
            return self.base.written(&self.overrides, running, text, origin);
        };
        let origin = origin.unwrap_or_else(|| "configuration".to_owned());
        let lost = match force {
            true => Vec::new(),
            false => self.base.lost(&self.overrides, running, &text, &origin)?,
        };
        if !lost.is_empty() && !self.was_kept(&text)? {
            return Err(would_lose(&origin, &lost));
        }
        self.base.written(&self.overrides, running, &text, &origin)
    }

    /// Whether what runs is what was applied or saved last, and the newest revision that counts, if there is one.
    fn counts(&self, running: &Config) -> Result<bool, ControlError> {
        let newest = self.store.last_good().map_err(system)?;
        // What can't be read any more is not what runs.
        let is_same = |text: &str| {
            self.overrides.read(text, "revision").is_ok_and(|config| config.difference(running).is_empty())
        };
        Ok(is_same(&self.base.draft.text) && newest.is_none_or(|(_, text)| is_same(&text)))
    }

    /// Whether a text is that of a revision: nothing of it is lost.
    fn was_kept(&self, text: &str) -> Result<bool, ControlError> {
        for Revision { number, .. } in self.store.revisions().map_err(system)?.into_iter().rev() {
            if self.store.revision(number).map_err(system)?.1 == text {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Refuses a text that permits the next start more than what runs: what is said beside configurations hides `[api]`, state paths
    /// and `on-death` of the text now, and a plugin that is loaded already needs no `allow-downgrade`.
    fn unless_privileged(&self, running: &Config, order: &Keep) -> Result<(), ControlError> {
        let Some(text) = &order.text else { return Ok(()) };
        let origin = order.origin.as_deref().unwrap_or("configuration");
        let submitted = Config::parse(text, origin)?.normalized();
        let said = Config::parse(&self.base.draft.text, &self.base.draft.origin)?.normalized();
        let mut plain = self.overrides.taken_out(running.clone(), &said);
        if submitted.router.on_death == said.router.on_death {
            plain.router.on_death = said.router.on_death;
        }
        let refused = |what: &str| {
            let problem = format!("{origin} differs from what runs: {what}: storing it needs the role admin");
            Err(ControlError::NeedsAdmin(problem))
        };
        if let Some(plugin) = submitted.plugin.iter().find(|plugin| !plain.plugin.contains(plugin)) {
            return refused(&format!("allow-downgrade of plugin {}", plugin.file.display()));
        }
        match plain.difference(&submitted).restart.first() {
            None => Ok(()),
            Some(first) => refused(first),
        }
    }

    fn keep(self, running: &Config, order: Keep, who: Who) -> Result<(Draft, Revision), ControlError> {
        let Self { store, base, overrides } = self;
        let origin = order.origin.unwrap_or_else(|| base.draft.origin.clone());
        let text = match order.text {
            Some(text) if overrides.read(&text, &origin)?.difference(running).is_empty() => text,
            Some(_) => {
                return Err(ControlError::Conflict(format!(
                    "{origin} is not what runs, and no revision: `millrace save` writes what runs, `millrace apply` makes it run"
                )));
            }
            None => base.written(&overrides, running, &base.draft.text, &base.draft.origin)?,
        };
        let changes = overrides.read(&base.draft.text, &base.draft.origin)?.difference(running).changes;
        let changes = super::commands(&changes).len();
        let draft = Draft { who, comment: order.comment, origin, state: State::Good, changes, text };
        let newest = store.last_good().map_err(system)?;
        if let Some((revision, _)) = newest.as_ref().filter(|(_, text)| *text == draft.text) {
            return Ok((draft, revision.clone()));
        }
        let known = base.revision.is_some()
            || base.draft.text == draft.text
            || newest.is_some_and(|(_, text)| text == base.draft.text);
        let drafts = if known { vec![draft.clone()] } else { vec![base.draft, draft.clone()] };
        let added = store
            .add(&drafts, base.revision)
            .map_err(|error| ControlError::system("remember the revision", error))?;
        let revision = added.ok_or_else(|| ControlError::System("no revision was written".into()))?;
        Ok((draft, revision))
    }
}

fn would_lose(origin: &str, lost: &[String]) -> ControlError {
    let named = lost.iter().take(NAMED).map(|one| format!("`{one}`")).collect::<Vec<_>>().join("; ");
    let more = match lost.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    ControlError::Conflict(format!(
        "{origin} says what was neither applied nor saved, and would lose it: {named}{more}; apply it first, save to another file, or \
         say --force (`force` of the request)"
    ))
}

fn system(error: StoreError) -> ControlError {
    ControlError::refused(error)
}
