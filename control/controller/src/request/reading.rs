//! Parsing of JSON requests; an error gives the position and the valid values.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::ControlError;

/// Parses a value. In an error about the value as a whole, `whole` names it.
///
/// # Errors
/// The error in the value, as [`ControlError::Invalid`].
pub(crate) fn read<T: DeserializeOwned>(whole: &str, value: Value) -> Result<T, ControlError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let (path, said) = (error.path().to_string(), error.inner().to_string());
        ControlError::Invalid(millrace_config::explain(whole, "key of it", &path, &said))
    })
}
