//! Saves the running configuration: into the text of a file, with the file's comments kept, or as a revision
//! for the next start.

use std::sync::Arc;

use millrace_config::{Config, Role};
use millrace_store::{Draft, Revision, State, Store, Who};
use schemars::JsonSchema;
use serde::Deserialize;

use super::Transaction;
use super::apply::{Apply, with_owners};
use crate::ControlError;
use crate::background::blocking;
use crate::overrides::Overrides;
use crate::router::Router;
use crate::settings::{Base, commands};
use crate::view::AppliedView;

/// Request body that writes the running configuration into the text of a file. The comments of the file are
/// kept.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Save {
    /// Text of the file; without it, the base configuration is used.
    pub text: Option<String>,
    /// Name of the file, for messages.
    #[serde(deserialize_with = "super::words::origin")]
    #[schemars(length(max = 4096))]
    pub origin: Option<String>,
    /// Whether to write even if entries of the file that were never applied or saved get lost.
    pub force: bool,
}

/// Request body that stores the running configuration as a revision for the next start. If the newest good
/// revision has the same text, no new one is stored.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Keep {
    /// Text of a file that describes exactly the running configuration. Without it, the base configuration is
    /// stored, with the later changes written into it.
    pub text: Option<String>,
    /// Name of the file, for the history.
    #[serde(deserialize_with = "super::words::origin")]
    #[schemars(length(max = 4096))]
    pub origin: Option<String>,
    /// Reason for the save; `saved` by default.
    #[serde(deserialize_with = "super::words::comment")]
    #[schemars(length(max = 1024))]
    pub comment: Option<String>,
}

/// Maximum number of lost entries named in an error.
const NAMED: usize = 10;

impl Transaction {
    /// Stores the text of an apply request as a revision, for a request that made no change. Does nothing if
    /// the base and the newest good revision already equal the running configuration.
    ///
    /// # Errors
    /// Returns an error if the revision can't be written.
    pub(super) async fn keep_applied(
        &self,
        running: Arc<Config>,
        order: &Apply,
        who: &Who,
    ) -> Result<AppliedView, ControlError> {
        let Apply { text, origin, comment, .. } = order.clone();
        let name = origin.clone().unwrap_or_else(|| "configuration".to_owned());
        let (kept, by) = (Kept::of(&self.0), who.clone());
        let keep = move || match kept.counts(&running)? {
            true => Ok(None),
            false => kept.keep(&running, Keep { text: Some(text), origin, comment }, by).map(Some),
        };
        let written = blocking("write the revision", keep).await?;
        let Some((draft, revision)) = written else { return Ok(AppliedView::nothing(&name)) };
        let number = Some(revision.number);
        self.0.lock().settings.base = Base { draft, revision: number };
        Ok(AppliedView { revision: number, runs: number, ..AppliedView::nothing(&name) })
    }
}

/// Stored revisions, base and overrides: the sources for saving the running configuration.
pub(crate) struct Kept {
    store: Store,
    base: Base,
    overrides: Overrides,
}

impl Kept {
    pub(crate) fn of(router: &Router) -> Self {
        let settings = &router.lock().settings;
        Self {
            store: settings.store.clone(),
            base: settings.base.clone(),
            overrides: settings.overrides.clone(),
        }
    }

    pub(crate) fn saved(&self, running: &Config, order: Save) -> Result<String, ControlError> {
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

    /// Whether nothing is left to save: the running configuration equals the base, and also the newest good
    /// revision if there is one.
    fn counts(&self, running: &Config) -> Result<bool, ControlError> {
        let newest = self.store.last_good()?;
        // A stored revision that this version can't parse counts as different.
        let is_same = |text: &str| {
            self.overrides.read(text, "revision").is_ok_and(|config| config.difference(running).is_empty())
        };
        Ok(is_same(&self.base.draft.text) && newest.is_none_or(|(_, text)| is_same(&text)))
    }

    /// Whether a stored revision has exactly this text.
    fn was_kept(&self, text: &str) -> Result<bool, ControlError> {
        for Revision { number, .. } in self.store.revisions()?.into_iter().rev() {
            if self.store.revision(number)?.1 == text {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Refuses a text that permits more at the next start than the running configuration. The comparison is
    /// made without the command-line overrides, which may hide the text's `[api]`, state paths and
    /// `on-death`. An added `allow-downgrade` is refused too, because a plugin that is loaded already doesn't
    /// need it. So is another `runtime`.
    pub(crate) fn unless_privileged(&self, running: &Config, order: &Keep) -> Result<(), ControlError> {
        let Some(text) = &order.text else { return Ok(()) };
        let origin = order.origin.as_deref().unwrap_or("configuration");
        let submitted = Config::parse(text, origin)?.normalized();
        let said = Config::parse(&self.base.draft.text, &self.base.draft.origin)?.normalized();
        let mut plain = self.overrides.taken_out(running.clone(), &said);
        if submitted.router.on_death == said.router.on_death {
            plain.router.on_death = said.router.on_death;
        }
        let refused = |what: &str| {
            let problem = format!(
                "{origin} differs from the running configuration ({what}): storing it needs the role admin"
            );
            Err(ControlError::Forbidden(Role::Admin, problem))
        };
        if let Some(plugin) = submitted.plugin.iter().find(|plugin| !plain.plugin.contains(plugin)) {
            let mut known = plain.plugin.iter().filter(|known| known.file == plugin.file);
            let has_runtime = known.any(|known| known.runtime == plugin.runtime);
            let key = if has_runtime { "allow-downgrade" } else { "runtime" };
            return refused(&format!("{key} of plugin {}", plugin.file.display()));
        }
        match plain.difference(&submitted).restart.first() {
            None => Ok(()),
            Some(first) => refused(&first.to_string()),
        }
    }

    /// Stores the running configuration for a role below `admin`. The base keeps its origin, because `save`
    /// without a file writes there, possibly as root. Another origin is recorded after the user's name.
    pub(crate) fn keep_for_others(
        self,
        running: &Config,
        order: Keep,
        who: Who,
    ) -> Result<(Draft, Revision), ControlError> {
        let file = self.base.draft.origin.clone();
        let origin = order.origin.filter(|origin| *origin != file).map(|origin| format!("{who}:{origin}"));
        let (draft, revision) = self.keep(running, Keep { origin, ..order }, who)?;
        Ok((Draft { origin: file, ..draft }, revision))
    }

    pub(crate) fn keep(
        self,
        running: &Config,
        order: Keep,
        who: Who,
    ) -> Result<(Draft, Revision), ControlError> {
        let Self { store, base, overrides } = self;
        let origin = order.origin.unwrap_or_else(|| base.draft.origin.clone());
        let text = match order.text {
            Some(text) if overrides.read(&text, &origin)?.difference(running).is_empty() => {
                with_owners(text, &origin, running)?
            }
            Some(_) => {
                return Err(ControlError::conflict(format!(
                    "{origin} differs from the running configuration, so it can't be stored as a revision: `millrace save` \
                     stores the running configuration, `millrace apply` applies the file"
                )));
            }
            None => base.written(&overrides, running, &base.draft.text, &base.draft.origin)?,
        };
        let changes = overrides.read(&base.draft.text, &base.draft.origin)?.difference(running).changes;
        let changes = commands(&changes).len();
        let draft = Draft { who, comment: order.comment, origin, state: State::Good, changes, text };
        let newest = store.last_good()?;
        if let Some((revision, _)) = newest.as_ref().filter(|(_, text)| *text == draft.text) {
            return Ok((draft, revision.clone()));
        }
        let known = base.revision.is_some()
            || base.draft.text == draft.text
            || newest.is_some_and(|(_, text)| text == base.draft.text);
        let drafts = if known { vec![draft.clone()] } else { vec![base.draft, draft.clone()] };
        let added = store
            .add(&drafts, base.revision)
            .map_err(|error| ControlError::system("store the revision", error))?;
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
    ControlError::conflict(format!(
        "{origin} has entries that were neither applied nor saved, and saving would delete them: {named}{more}; apply the file first, \
         save to another file, or use --force (`force` in the request)"
    ))
}
