//! Base configuration: the configuration last applied or saved. Single commands may have changed the running
//! configuration since then.

use std::sync::Arc;

use millrace_config::Config;
use millrace_store::{Draft, State, Store, Who};

use super::commands;
use crate::ControlError;
use crate::overrides::Overrides;

/// Configuration last applied or saved, or used at the start.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    /// Text of the configuration, and its origin.
    pub draft: Draft,
    /// Number of the revision that holds the base; `None` if the base is the start configuration and no
    /// revision yet.
    pub revision: Option<u64>,
}

impl Base {
    /// Creates the base of a router that just started.
    pub fn started(draft: Draft) -> Self {
        Self { draft, revision: None }
    }

    /// Returns the configurations that must be on disk as revisions before another configuration becomes the
    /// base, the oldest first. The first is the start configuration, if no revision holds it. The second is
    /// the running configuration, if it differs from the newest revision.
    pub fn missing(
        &self,
        store: &Store,
        overrides: &Overrides,
        runs: &Arc<Config>,
    ) -> Result<Vec<Draft>, ControlError> {
        let newest = store.last_good()?;
        let newest = newest.map(|(_, text)| text);
        let known = self.revision.is_some() || newest.as_ref() == Some(&self.draft.text);
        let (mut missing, newest) = match newest.filter(|_| known) {
            Some(newest) => (Vec::new(), newest),
            None => (vec![self.draft.clone()], self.draft.text.clone()),
        };
        // A stored revision that this version can't parse counts as different.
        let difference = overrides.read(&newest, "the newest revision").map(|newest| newest.difference(runs));
        if difference.as_ref().is_ok_and(millrace_config::Difference::is_empty) {
            return Ok(missing);
        }
        let Draft { text, origin, .. } = &self.draft;
        missing.push(Draft {
            who: Who::router(),
            comment: Some("previous configuration".to_owned()),
            origin: origin.clone(),
            state: State::Good,
            changes: difference.map_or(0, |difference| commands(&difference.changes).len()),
            text: match self.written(overrides, runs, text, origin) {
                Ok(written) => written,
                Err(_) => runs.to_text()?,
            },
        });
        Ok(missing)
    }

    /// Returns `text` with the running configuration written into it. The command-line overrides of the start
    /// are left out.
    pub fn written(
        &self,
        overrides: &Overrides,
        runs: &Config,
        text: &str,
        origin: &str,
    ) -> Result<String, ControlError> {
        let said = Config::parse(&self.draft.text, &self.draft.origin)?.normalized();
        Ok(overrides.taken_out(runs.clone(), &said).save_into(text, origin)?)
    }

    /// Returns, as commands, the entries of `file` that were never applied or saved. Saving the running
    /// configuration into the file would delete these entries.
    pub fn lost(
        &self,
        overrides: &Overrides,
        runs: &Config,
        file: &str,
        origin: &str,
    ) -> Result<Vec<String>, ControlError> {
        if file.trim().is_empty() || file == self.draft.text {
            return Ok(Vec::new());
        }
        let (base, file) =
            (overrides.read(&self.draft.text, &self.draft.origin)?, overrides.read(file, origin)?);
        let told = |from: &Config| {
            let difference = from.difference(&file);
            let restart = difference.restart.iter().map(ToString::to_string);
            commands(&difference.changes).into_iter().chain(restart).collect::<Vec<String>>()
        };
        let by_hand = told(&base);
        Ok(told(runs).into_iter().filter(|one| by_hand.contains(one)).collect())
    }
}
