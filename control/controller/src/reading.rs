//! What somebody asked for, read out of JSON; what is wrong with it is told with its place, and what would be right.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::ControlError;

/// What a value says; `whole` is what it is called where all of it is wrong.
///
/// # Errors
/// What is wrong with it, as [`ControlError::Invalid`].
pub(crate) fn read<T: DeserializeOwned>(whole: &str, value: Value) -> Result<T, ControlError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let (path, said) = (error.path().to_string(), error.inner().to_string());
        ControlError::Invalid(millrace_config::explain(whole, "key of it", &path, &said))
    })
}
