//! The command `plugin inspect`: properties of a plugin's file, or of a plugin of the running router.

use std::path::Path;

use millrace_repository::{PublicKey, signature_state};
use millrace_workbench::{Module, inspect as look};
use serde_json::{Value, json};

use crate::client::{Client, segment};
use crate::output::{Failure, lines, plain, show, table};

/// Prints the properties of a plugin. `what` is a file if it exists or looks like a file name. Otherwise
/// `what` names a plugin of the running router, which `remote` connects to.
pub fn inspect(
    remote: impl Fn() -> Result<Client, Failure>,
    what: &Path,
    keys: &[String],
    json: bool,
) -> Result<(), Failure> {
    let value = match name(what) {
        Some(name) if !keys.is_empty() => {
            return Err(Failure::usage(format!(
                "--public-key needs a plugin file, and {name} is not a file: omit --public-key, or give a \
                 file"
            )));
        }
        Some(name) => of_router(&remote()?, name)?,
        None => of_file(what, keys)?,
    };
    show(&value, json, || for_people(value.clone()));
    Ok(())
}

/// Returns the name of a plugin; `None` for a file or a text that looks like a file name.
fn name(what: &Path) -> Option<&str> {
    let text = what.to_str()?;
    let endings = [".wasm", ".so", ".elf"];
    let is_written_like_a_file = text.contains('/') || endings.iter().any(|ending| text.ends_with(ending));
    (!is_written_like_a_file && !what.is_file()).then_some(text)
}

fn of_router(router: &Client, name: &str) -> Result<Value, Failure> {
    router.get(&format!("/plugins/{}", segment(name))).map_err(|failure| Failure {
        message: format!("{}, and no file {name} in the current directory", failure.message),
        ..failure
    })
}

fn of_file(file: &Path, keys: &[String]) -> Result<Value, Failure> {
    let keys = keys.iter().map(|key| key.parse()).collect::<Result<Vec<PublicKey>, _>>();
    let keys = keys.map_err(|error| Failure::usage(error.to_string()))?;
    let module = Module::read(file).map_err(Failure::new)?;
    let inspection = look(&module).map_err(Failure::new)?;
    let mut value = serde_json::to_value(inspection).map_err(Failure::new)?;
    value["signature"] = signature_state(file, module.bytes(), keys).to_string().into();
    Ok(value)
}

/// Formats the properties of a plugin as text, and omits empty properties. Scalars become lines; settings,
/// messages and maps become tables.
fn for_people(value: Value) -> String {
    let Value::Object(mut keys) = value else { return plain(&value) };
    let tables: Vec<_> = [
        ("settings", settings as fn(&Value) -> Vec<Value>, SETTINGS),
        ("messages", messages, MESSAGES),
        ("maps", maps, MAPS),
    ]
    .map(|(key, rows, columns)| (key, rows(&keys.remove(key).unwrap_or_default()), columns))
    .into();
    let name = keys.get("name").and_then(Value::as_str).map(str::to_owned);
    let companion = keys.remove("host_companion").unwrap_or_default();
    if let Value::String(file) = &companion {
        keys.insert("host_companion".to_owned(), file.clone().into());
    }
    let manual = keys.remove("manual").unwrap_or_default();
    keys.retain(|_, value| !is_nothing(value));
    let mut text = lines(&Value::Object(keys));
    for (key, rows, columns) in tables.into_iter().filter(|(_, rows, _)| !rows.is_empty()) {
        text += &format!("\n{key}:\n{}", table(&rows, columns));
    }
    if let (true, Some(name)) = (manual.is_string(), name) {
        text += &format!("\nmore: millrace plugin manual {name}\n");
    }
    if companion.is_object() {
        text += &format!("\nits host companion:\n{}", for_people(companion));
    }
    text
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        other => other.is_null(),
    }
}

const SETTINGS: &str = "setting | type | range | default | meaning=what";
const MESSAGES: &str = "message | meaning=what";
const MAPS: &str = "map=name | key bytes=key | value bytes=value | entries \
    | memory, each worker=memory";

fn maps(maps: &Value) -> Vec<Value> {
    maps.as_array().cloned().unwrap_or_default()
}

fn messages(messages: &Value) -> Vec<Value> {
    let messages = messages.as_object().into_iter().flatten();
    messages.map(|(name, help)| json!({"message": name, "what": help})).collect()
}

/// Returns a table row for each setting in a JSON Schema.
fn settings(schema: &Value) -> Vec<Value> {
    let is_needed =
        |name: &str| schema["required"].as_array().is_some_and(|needed| needed.iter().any(|one| one == name));
    let properties = schema["properties"].as_object().into_iter().flatten();
    let row = |(name, property): (&String, &Value)| {
        let default = match &property["default"] {
            Value::Null if is_needed(name) => "must be given".to_owned(),
            Value::Number(number) => number.to_string(),
            default => plain(default),
        };
        let what = property["description"].as_str().unwrap_or_default();
        json!({
            "setting": name,
            "type": kind(property),
            "range": range(property),
            "default": default,
            "what": what,
        })
    };
    properties.map(row).collect()
}

/// Returns the type of a setting: a port, an instance, a map, or a type of JSON.
fn kind(property: &Value) -> String {
    match (property["format"].as_str(), &property["type"]) {
        (Some(named @ ("port" | "instance" | "map")), _) => format!("{named}, by name"),
        (_, Value::Array(kinds)) => kinds.iter().map(plain).collect::<Vec<_>>().join(" or "),
        (_, Value::String(kind)) => kind.clone(),
        _ if property["enum"].is_array() => "one of".to_owned(),
        _ => String::new(),
    }
}

/// Returns the range of a setting: its choices, or its bounds.
fn range(property: &Value) -> String {
    if let Some(choices) = property["enum"].as_array() {
        return choices.iter().map(plain).collect::<Vec<_>>().join(", ");
    }
    let bound = |key: &str| property[key].as_number().map(ToString::to_string);
    let between = |least: &str, most: &str, of: &str| match (bound(least), bound(most)) {
        (Some(least), Some(most)) => Some(format!("{least} to {most}{of}")),
        (Some(least), None) => Some(format!("at least {least}{of}")),
        (None, Some(most)) => Some(format!("at most {most}{of}")),
        (None, None) => None,
    };
    between("minimum", "maximum", "")
        .or_else(|| between("minLength", "maxLength", " characters"))
        .or_else(|| between("minItems", "maxItems", " items"))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_values_are_not_shown() {
        let value = json!({"a": null, "b": [], "settings": null, "messages": {"read": "counts"}, "n": 0});
        assert_eq!(for_people(value), "n  0\n\nmessages:\nmessage  meaning\nread     counts\n");
    }

    #[test]
    fn settings_are_listed_with_type_range_default_and_meaning() {
        let schema = json!({"required": ["to"], "properties": {
            "to": {"type": "string", "format": "port", "description": "where to"},
            "rate": {"type": "integer", "minimum": 1, "maximum": 9, "default": 3},
            "mode": {"enum": ["a", "b"], "default": "a"},
            "list": {"type": ["string", "integer"], "maxLength": 5},
        }});
        let told = table(&settings(&schema), SETTINGS);
        let lines: Vec<Vec<&str>> = told
            .lines()
            .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
            .collect();
        assert_eq!(lines[0], ["setting", "type", "range", "default", "meaning"]);
        assert_eq!(lines[1], ["list", "string or integer", "at most 5 characters", "-", "-"]);
        assert_eq!(lines[2], ["mode", "one of", "a, b", "a", "-"]);
        assert_eq!(lines[3], ["rate", "integer", "1 to 9", "3", "-"]);
        assert_eq!(lines[4], ["to", "port, by name", "-", "must be given", "where to"]);
    }

    #[test]
    fn names_are_distinguished_from_files() {
        assert_eq!(name(Path::new("statistics")), Some("statistics"));
        assert_eq!(name(Path::new("./statistics")), None);
        assert_eq!(name(Path::new("first.wasm")), None);
        assert_eq!(name(Path::new("Cargo.toml")), None);
    }
}
