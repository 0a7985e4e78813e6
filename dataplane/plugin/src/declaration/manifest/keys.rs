//! Keys of a manifest: reads their values.

use millrace_plugin_abi::binary::HOST_FUNCTIONS;
use millrace_plugin_abi::{Features, MapShape, NotOffered, Position, RequestKinds, StateScope};
use millrace_units::remedy;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{MOST_NAME, ManifestError};

/// Maximum number of missing features that an error lists.
const MOST_MISSING: usize = 8;

/// Every key that a manifest may have.
pub(super) const KEYS: [&str; 20] = [
    "abi",
    "features",
    "name",
    "version",
    "summary",
    "positions",
    "capabilities",
    "messages",
    "settings",
    "window",
    "state",
    "flow-state",
    "service-state",
    "maps",
    "counters",
    "host-companion",
    "state-version",
    "contexts",
    "period",
    "cost",
];

/// Returns the value of a key; `None` if the manifest lacks the key.
pub(super) fn optional<T: DeserializeOwned>(
    keys: &Map<String, Value>,
    key: &'static str,
) -> Result<Option<T>, ManifestError> {
    let Some(value) = keys.get(key) else { return Ok(None) };
    let wrong = |_: serde_json::Error| {
        let given = shortened(&value.to_string());
        ManifestError::Value { key, problem: format!("{given} is not right; give {}", wanted(key)) }
    };
    T::deserialize(value).map(Some).map_err(wrong)
}

/// Describes the value that a key requires, for error texts.
fn wanted(key: &str) -> &'static str {
    match key {
        "name" | "version" | "summary" | "host-companion" => "a text",
        "state" => "\"flow\" or \"connection\"",
        "features" | "positions" | "capabilities" | "counters" => "a list of names",
        "messages" => "an object of names, each with one line of help",
        "settings" => "a JSON Schema, which is an object",
        "maps" => "a list of {name, key, value, entries}",
        "contexts" => "a whole number from 1 to 16",
        _ => "a whole number",
    }
}

/// Returns the value of a mandatory key.
pub(super) fn needed<T: DeserializeOwned>(
    keys: &Map<String, Value>,
    key: &'static str,
) -> Result<T, ManifestError> {
    optional(keys, key)?.ok_or(ManifestError::Missing(key))
}

/// Returns the scope of the plugin's state.
pub(super) fn scope(keys: &Map<String, Value>) -> Result<StateScope, ManifestError> {
    let Some(name) = optional::<String>(keys, "state")? else { return Ok(StateScope::Flow) };
    let scope = StateScope::NAMED.iter().find(|(known, _)| *known == name);
    let problem = || format!("{:?} is not right; give {}", shortened(&name), wanted("state"));
    scope.map(|(_, scope)| *scope).ok_or_else(|| ManifestError::Value { key: "state", problem: problem() })
}

/// Rejects a manifest with an unknown key.
pub(super) fn check_known(keys: &Map<String, Value>) -> Result<(), ManifestError> {
    let Some(key) = keys.keys().find(|key| !KEYS.contains(&key.as_str())) else { return Ok(()) };
    Err(ManifestError::UnknownKey { key: shortened(key), remedy: remedy("key", key, KEYS) })
}

/// Returns the first [`MOST_NAME`] characters of a name from a plugin file, for error texts.
pub(super) fn shortened(name: &str) -> String {
    name.chars().take(MOST_NAME).collect()
}

/// Converts names of features into a set.
///
/// # Errors
/// [`ManifestError`] that lists each named feature that this router lacks, even if it doesn't know the name.
pub(super) fn features(names: &[String]) -> Result<Features, ManifestError> {
    let mut missing = Vec::new();
    let mut found = Features::NONE;
    for name in names {
        match Features::of_name(name) {
            Features::NONE => missing.push(format!("{:?}", shortened(name))),
            feature if found.and(feature) == found => {
                let problem = format!("{name} is listed twice");
                return Err(ManifestError::Value { key: "features", problem });
            }
            feature => found = found.and(feature),
        }
    }
    if missing.is_empty() {
        return Ok(found);
    }
    missing.truncate(MOST_MISSING);
    Err(NotOffered { missing, place: "at its workers", offered: Features::AT_WORKERS }.into())
}

/// Returns the positions with these names.
pub(super) fn positions(names: &[String]) -> Result<Vec<Position>, ManifestError> {
    let mut positions = Vec::new();
    for name in names {
        let wrong = |problem| ManifestError::Value { key: "positions", problem };
        let position = shortened(name).parse().map_err(wrong)?;
        if positions.contains(&position) {
            return Err(wrong(format!("{position} is listed twice")));
        }
        positions.push(position);
    }
    Ok(positions)
}

/// Returns the capabilities with these names.
pub(super) fn capabilities(names: &[String]) -> Result<Vec<&'static str>, ManifestError> {
    let of_kinds = RequestKinds::CAPABILITIES.iter().map(|(name, _)| *name);
    let known = || HOST_FUNCTIONS.iter().filter_map(|(_, capability)| *capability).chain(of_kinds.clone());
    let mut found = Vec::new();
    for name in names {
        let problem = match known().find(|known| known == name) {
            Some(capability) if !found.contains(&capability) => {
                found.push(capability);
                continue;
            }
            Some(capability) => format!("{capability} is listed twice"),
            None => {
                let remedy = remedy("capability", name, known());
                format!("there is no capability {:?}{remedy}", shortened(name))
            }
        };
        return Err(ManifestError::Value { key: "capabilities", problem });
    }
    Ok(found)
}

/// Returns the maps of a manifest.
pub(super) fn maps(keys: &Map<String, Value>) -> Result<Vec<MapShape>, ManifestError> {
    let written = optional::<Vec<WrittenMap>>(keys, "maps")?;
    Ok(written.into_iter().flatten().map(MapShape::from).collect())
}

/// Map as written in a manifest.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenMap {
    name: String,
    key: u16,
    value: u16,
    entries: u32,
}

impl From<WrittenMap> for MapShape {
    fn from(WrittenMap { name, key, value, entries }: WrittenMap) -> Self {
        Self { name, key, value, entries }
    }
}
