//! Functions shared by the wasm and native runtimes: they read declarations from the manifest, check settings
//! and convert messages.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use millrace_packet::FRONT;
use millrace_plugin_abi::{Message, PluginError};
use serde_json::{Map, Value};

use crate::Manifest;
use crate::declaration::settings::{names_maps, schema_problem};
use crate::fault::{Fault, FaultKind};

/// Declarations of a plugin as static strings, which [`Plugin`](millrace_plugin_abi::Plugin) requires.
#[derive(Debug)]
pub(crate) struct Declared {
    pub name: &'static str,
    pub version: &'static str,
    pub summary: &'static str,
    pub messages: Vec<(&'static str, &'static str)>,
    pub counters: Vec<&'static str>,
}

impl Declared {
    /// Reads the declarations from a manifest.
    ///
    /// # Errors
    /// Describes a requirement of the manifest that this router doesn't meet.
    pub fn new(manifest: &Manifest) -> Result<Self, String> {
        if let Some(problem) = manifest.settings.as_ref().and_then(schema_problem) {
            return Err(problem);
        }
        if manifest.settings.as_ref().is_some_and(names_maps) && !manifest.has_capability("map-read") {
            return Err(
                "it has a setting of format \"map\", but lacks the capability \"map-read\"".to_owned()
            );
        }
        let (version, summary) = (interned(&manifest.version), interned(&manifest.summary));
        let messages =
            manifest.messages.iter().map(|(name, help)| (interned(name), interned(help))).collect();
        let counters = manifest.counters.iter().map(|name| interned(name)).collect();
        Ok(Self { name: interned(&manifest.name), version, summary, messages, counters })
    }
}

/// Returns a static copy of `name`, for error values. Each name is stored once, even if its plugin is loaded
/// several times.
pub(crate) fn interned(name: &str) -> &'static str {
    static NAMES: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let names = names.get_or_insert_default();
    if let Some(known) = names.get(name) {
        return known;
    }
    let name: &'static str = String::leak(name.to_owned());
    names.insert(name);
    name
}

/// Rejects any setting if the plugin takes none.
pub(crate) fn check(manifest: &Manifest, settings: &Map<String, Value>) -> Result<(), Fault> {
    match settings.keys().next() {
        Some(key) if manifest.settings.is_none() => {
            Err(Fault::new(FaultKind::Init, format!("unknown setting {key:?}: the plugin takes no settings")))
        }
        _ => Ok(()),
    }
}

/// Serializes the settings of a new instance as JSON.
pub(crate) fn settings_json(manifest: &Manifest, settings: &Map<String, Value>) -> Result<Vec<u8>, Fault> {
    check(manifest, settings)?;
    serde_json::to_vec(settings)
        .map_err(|error| Fault::new(FaultKind::Init, format!("its settings are not valid JSON: {error}")))
}

/// Serializes the arguments of a message as JSON.
///
/// # Errors
/// [`PluginError::UnknownMessage`] if the manifest lacks the message.
pub(crate) fn arguments(
    name: &'static str,
    manifest: &Manifest,
    message: &Message,
) -> Result<Vec<u8>, PluginError> {
    let known = &manifest.messages;
    if !known.contains_key(&message.name) {
        let known: Vec<_> = known.keys().map(String::as_str).collect();
        let (message, known) = (message.name.clone(), known.join(", "));
        return Err(PluginError::UnknownMessage { plugin: name, message, known });
    }
    let arguments = serde_json::to_vec(&message.arguments);
    arguments.map_err(|error| {
        PluginError::setting(name, &message.name, format!("its arguments are not valid JSON: {error}"))
    })
}

/// Parses the plugin's reply to a control message. An empty reply is `null`.
pub(crate) fn parse_reply(reply: &[u8]) -> Result<Value, String> {
    match reply {
        [] => Ok(Value::Null),
        json => serde_json::from_slice(json)
            .map_err(|error| format!("the plugin's reply is not valid JSON: {error}")),
    }
}

/// Whether the manifest requests a capability to change packets.
pub(crate) fn writes_packets(manifest: &Manifest) -> bool {
    ["packet-write", "packet-resize"].iter().any(|capability| manifest.has_capability(capability))
}

/// Whether the plugin reads or writes more bytes of a packet in place than those that every packet has in its
/// first frame.
pub(crate) fn needs_linear_packets(manifest: &Manifest) -> bool {
    writes_packets(manifest) || usize::from(manifest.window) > FRONT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_once() {
        assert!(std::ptr::eq(interned("a-name"), interned("a-name")));
    }

    #[test]
    fn an_answer_is_json_or_nothing() {
        assert_eq!(parse_reply(b""), Ok(Value::Null));
        assert_eq!(parse_reply(b"[1]"), Ok(serde_json::json!([1])));
        assert!(parse_reply(b"one").is_err());
    }
}
