//! Parsing of JSON requests; an error gives the position and the valid values.

use millrace_config::reading::{Document, Tree};
use millrace_units::Spelling;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::ControlError;

/// Parses a value. In an error about the value as a whole, `whole` names it.
pub(crate) fn read<T: DeserializeOwned>(whole: &str, value: Value) -> Result<T, ControlError> {
    Tree::from(value).read().map_err(|error| ControlError::invalid(error.message(Document::Request(whole))))
}

/// Works like [`read`], for settings with the keys of a configuration file.
pub(crate) fn read_settings<T: DeserializeOwned>(
    whole: &str,
    settings: Map<String, Value>,
) -> Result<T, ControlError> {
    let read = Tree::from(Value::Object(settings)).read_settings(Spelling::File);
    read.map_err(|error| ControlError::invalid(error.message(Document::Request(whole))))
}
