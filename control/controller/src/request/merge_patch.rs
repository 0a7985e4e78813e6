//! Changes of settings by JSON merge patch (RFC 7396), for flat JSON objects.

use millrace_units::{Message, nearest, plural};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::ControlError;
use crate::request::reading::read_settings;

/// Returns `before` with `changes` applied; a value `null` removes its setting.
pub(crate) fn patched<T: Serialize + DeserializeOwned>(
    before: &T,
    changes: &Map<String, Value>,
) -> Result<T, ControlError> {
    let mut object = object(before)?;
    for (key, change) in changes {
        match change {
            Value::Null => object.remove(key),
            change => object.insert(key.clone(), change.clone()),
        };
    }
    read_settings("the result", object)
}

/// Works like [`patched`], but refuses settings that `before` does not have. The error lists the known
/// settings; `what` is the noun for a setting in the error.
pub(crate) fn patched_known<T: Serialize + DeserializeOwned>(
    what: &str,
    before: &T,
    changes: &Map<String, Value>,
) -> Result<T, ControlError> {
    let known = object(before)?;
    all_known(what, changes, known.keys().map(String::as_str))?;
    patched(before, changes)
}

/// Refuses changes of settings that aren't in `known`. The error lists the known settings; `what` is the noun
/// for a setting in the error.
pub(crate) fn all_known<'a>(
    what: &str,
    changes: &Map<String, Value>,
    known: impl Iterator<Item = &'a str> + Clone,
) -> Result<(), ControlError> {
    match changes.keys().find(|key| known.clone().all(|known| known != key.as_str())) {
        Some(unknown) => Err(ControlError::invalid(unknown_setting(what, unknown, known))),
        None => Ok(()),
    }
}

/// Returns the text for an unknown setting. It names the setting with the most similar name, or all known
/// settings.
fn unknown_setting<'a>(what: &str, unknown: &str, known: impl Iterator<Item = &'a str> + Clone) -> Message {
    let message = Message::from(format!("no {what} is named ")).quoted_key(unknown);
    match nearest(unknown, known.clone()) {
        Some(near) => message.text(": did you mean ").quoted_key(near).text("?"),
        None => {
            let keys = Message::join(known.map(|key| Message::default().key(key)), ", ");
            message.text(format!("; {} here: ", plural(what))).append(keys)
        }
    }
}

fn object<T: Serialize>(settings: &T) -> Result<Map<String, Value>, ControlError> {
    match serde_json::to_value(settings).map_err(|error| ControlError::invalid(error.to_string()))? {
        Value::Object(object) => Ok(object),
        _ => Ok(Map::new()),
    }
}
