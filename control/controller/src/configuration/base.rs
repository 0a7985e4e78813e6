//! What was applied or saved last: what runs, but for what single commands have changed since.

use std::sync::Arc;

use millrace_config::Config;
use millrace_store::{Draft, State, Store, Who};

use super::commands;
use crate::ControlError;
use crate::overrides::Overrides;

/// What was applied or saved last, or what the router was started with.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    /// Its text, and where that came from.
    pub draft: Draft,
    /// The revision that it is; `None` where it was only started with.
    pub revision: Option<u64>,
}

impl Base {
    /// What a router is started with.
    pub fn started(draft: Draft) -> Self {
        Self { draft, revision: None }
    }

    /// What has to be on the disk before something else counts, the oldest first: what the router was started with, and what runs
    /// where single commands have made that differ from the newest revision.
    ///
    /// # Errors
    /// Revisions that can't be read.
    pub fn missing(
        &self,
        store: &Store,
        overrides: &Overrides,
        runs: &Arc<Config>,
    ) -> Result<Vec<Draft>, ControlError> {
        let newest = store.last_good().map_err(ControlError::refused)?;
        let newest = newest.map(|(_, text)| text);
        let known = self.revision.is_some() || newest.as_ref() == Some(&self.draft.text);
        let (mut missing, newest) = match newest.filter(|_| known) {
            Some(newest) => (Vec::new(), newest),
            None => (vec![self.draft.clone()], self.draft.text.clone()),
        };
        // One that can't be read any more is not what runs.
        let difference = overrides.read(&newest, "the newest revision").map(|newest| newest.difference(runs));
        if difference.as_ref().is_ok_and(millrace_config::Difference::is_empty) {
            return Ok(missing);
        }
        let Draft { text, origin, .. } = &self.draft;
        missing.push(Draft {
            who: Who::router(),
            comment: Some("what ran before".to_owned()),
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

    /// What runs, written into a text; not what is only said beside configurations.
    ///
    /// # Errors
    /// A text that is no configuration.
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

    /// What a file has that was neither applied nor saved, and would lose when what runs is saved into it: in the words of the commands.
    ///
    /// # Errors
    /// A file that is no configuration.
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
            [commands(&difference.changes), difference.restart].concat()
        };
        let by_hand = told(&base);
        Ok(told(runs).into_iter().filter(|one| by_hand.contains(one)).collect())
    }
}
