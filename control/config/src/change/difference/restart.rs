//! Differences that only a restart removes, and their texts.

use std::fmt;

use millrace_units::Message;
use serde_json::{Map, Value};

/// Difference between the running configuration and a submitted one that only a restart removes.
#[derive(Clone, Debug, PartialEq)]
pub enum Restart {
    /// Setting whose submitted value differs from the running one.
    Set {
        /// Owner of the setting.
        owner: Owner,
        /// Key of the setting.
        key: String,
        /// Running value; `None` if the setting is not set.
        runs: Option<Value>,
        /// Submitted value; `None` if the setting is not set.
        submitted: Option<Value>,
    },
    /// Submitted port that is not running, by name.
    AddPort(String),
    /// Running port that is missing in the submitted configuration, by name.
    RemovePort(String),
}

/// Table, port or plugin that has a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Table of the configuration, by name.
    Table(&'static str),
    /// Port of this name.
    Port(String),
    /// Plugin with this file.
    Plugin(String),
}

/// Form in which a configuration was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submission {
    /// As a file.
    File,
    /// As settings in a request.
    Request,
}

impl Restart {
    /// Creates the difference of a key. `runs` holds the running settings, and `submitted` the submitted
    /// settings that differ.
    pub(super) fn set(
        owner: Owner,
        key: &str,
        runs: &Map<String, Value>,
        submitted: &Map<String, Value>,
    ) -> Self {
        let value =
            |settings: &Map<String, Value>| settings.get(key).filter(|value| !value.is_null()).cloned();
        Self::Set { owner, key: key.to_owned(), runs: value(runs), submitted: value(submitted) }
    }

    /// Returns the text of the difference.
    pub fn message(&self, submission: Submission) -> Message {
        let (place, verb) = match submission {
            Submission::File => ("the file", "says"),
            Submission::Request => ("the request", "sets"),
        };
        let value = |value: &Option<Value>| value.as_ref().map_or("nothing".to_owned(), Value::to_string);
        match self {
            Self::Set { owner, key, runs, submitted } => {
                let owner = match owner {
                    Owner::Table(table) => Message::from(format!("{table}.")),
                    Owner::Port(name) => format!("port {name:?}: ").into(),
                    Owner::Plugin(file) => format!("plugin {file:?}: ").into(),
                };
                // Keys of a file keep the spelling of the file, also in JSON.
                let setting = match submission {
                    Submission::File => owner.text(key),
                    Submission::Request => owner.key(key),
                };
                let (runs, submitted) = (value(runs), value(submitted));
                setting.text(format!(": {runs} runs, and {place} {verb} {submitted}"))
            }
            Self::AddPort(name) => format!("port {name:?}: it is in {place}, but does not run").into(),
            Self::RemovePort(name) => format!("port {name:?}: it runs, but is not in {place}").into(),
        }
    }
}

/// Writes the difference in the words for a submitted file.
impl fmt::Display for Restart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.message(Submission::File).fmt(f)
    }
}
