//! Parses JSON requests. An error states the position and the valid values.

use millrace_config::reading::{Document, Tree};
use millrace_units::Spelling;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::ControlError;

/// Parses a value. `whole` is the noun for the value in an error that concerns the value as a whole.
pub(crate) fn read<T: DeserializeOwned>(whole: &str, value: Value) -> Result<T, ControlError> {
    Tree::from(value).read().map_err(|error| ControlError::invalid(error.message(Document::Request(whole))))
}

/// Works like [`read`], for settings whose keys are spelled as in a configuration file.
pub(crate) fn read_settings<T: DeserializeOwned>(
    whole: &str,
    settings: Map<String, Value>,
) -> Result<T, ControlError> {
    let read = Tree::from(Value::Object(settings)).read_settings(Spelling::File);
    read.map_err(|error| ControlError::invalid(error.message(Document::Request(whole))))
}
