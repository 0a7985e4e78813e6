//! Why control could not do what it was asked.

use std::fmt;

/// Why a request was refused. The text is one sentence for people: what is wrong, where, what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The request makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// Something that the request names does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The request contradicts what is there.
    #[error("{0}")]
    Conflict(String),
    /// The system refused.
    #[error("{0}")]
    System(String),
}

impl ControlError {
    /// The system refused to do `what`.
    pub fn system(what: &str, error: impl fmt::Display) -> Self {
        Self::System(format!("can't {what}: {error}"))
    }

    /// Nothing of kind `noun` has the name `name`; `known` are those that exist.
    pub fn unknown<'a>(noun: &str, name: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        let known: Vec<&str> = known.into_iter().collect();
        let hint = match (millrace_config::nearest(name, known.iter().copied()), known.is_empty()) {
            (Some(near), _) => format!("did you mean {near:?}?"),
            (None, true) => "there is none".to_owned(),
            (None, false) => format!("there are: {}", known.join(", ")),
        };
        Self::NotFound(format!("no {noun} is named {name:?}: {hint}"))
    }
}

impl From<millrace_config::ConfigError> for ControlError {
    fn from(error: millrace_config::ConfigError) -> Self {
        Self::Invalid(error.to_string())
    }
}

impl From<millrace_plugin::PluginControlError> for ControlError {
    fn from(error: millrace_plugin::PluginControlError) -> Self {
        use millrace_plugin::PluginControlError as Error;
        let text = error.to_string();
        match error {
            Error::Unknown { .. } => Self::NotFound(text),
            Error::Taken { .. } => Self::Conflict(text),
            _ => Self::Invalid(text),
        }
    }
}
