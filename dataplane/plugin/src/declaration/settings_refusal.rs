//! Error texts for refused settings: the setting, the problem and the expected value.

use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind as Kind;
use millrace_units::{here, nearest};
use serde_json::{Map, Value};

/// Maximum number of characters of a given value or name in an error text.
const MOST_SHOWN: usize = 64;

/// Returns the name of the refused setting, and a description of the problem.
pub(crate) fn refusal(schema: &Map<String, Value>, error: &ValidationError<'_>) -> (String, String) {
    let place = error.instance_path().to_string();
    let setting = place.trim_start_matches('/').split('/').next().unwrap_or_default();
    match error.kind() {
        Kind::AdditionalProperties { unexpected } if setting.is_empty() => {
            let strange = unexpected.first().map(String::as_str).unwrap_or_default();
            (shortened(strange), format!("there is no such setting{}", known(schema, strange)))
        }
        Kind::Required { property } if setting.is_empty() => {
            let missing = property.as_str().unwrap_or_default();
            (missing.to_owned(), format!("it is missing; give {}", wanted(property_of(schema, missing))))
        }
        _ if setting.is_empty() => ("settings".to_owned(), error.to_string()),
        kind => {
            let property = property_of(schema, setting);
            // If the problem is inside the setting's value, no text but the validator's own describes it.
            let is_below = place.matches('/').count() > 1;
            let given = shortened(&error.instance().to_string());
            let problem = match kind {
                Kind::Type { .. } | Kind::Enum { .. } | Kind::Minimum { .. } | Kind::Maximum { .. }
                    if !is_below =>
                {
                    format!("{given} is not right; give {}", wanted(property))
                }
                _ => shortened_to(&error.to_string(), 4 * MOST_SHOWN),
            };
            (shortened(setting), problem)
        }
    }
}

fn property_of<'a>(schema: &'a Map<String, Value>, setting: &str) -> &'a Value {
    schema.get("properties").and_then(|properties| properties.get(setting)).unwrap_or(&Value::Null)
}

/// Suggests the nearest known setting, or lists all settings.
fn known(schema: &Map<String, Value>, strange: &str) -> String {
    let names =
        || schema.get("properties").and_then(Value::as_object).into_iter().flatten().map(|(name, _)| name);
    match nearest(strange, names().map(String::as_str)) {
        Some(near) => format!("; did you mean {near:?}?"),
        None => format!("; {}", here("setting", names().map(String::as_str))),
    }
}

/// Describes the values that a setting accepts.
fn wanted(property: &Value) -> String {
    match property.get("format").and_then(Value::as_str) {
        Some("port") => return "the name of a port".to_owned(),
        Some("instance") => return "the name of an instance".to_owned(),
        Some("map") => return "the map of an instance, as INSTANCE/MAP".to_owned(),
        _ => {}
    }
    if let Some(choices) = property.get("enum").and_then(Value::as_array) {
        let words =
            choices.iter().map(|choice| choice.as_str().map_or_else(|| choice.to_string(), str::to_owned));
        return one_of(&words.collect::<Vec<_>>());
    }
    let kinds: Vec<_> = match property.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).map(kind).collect(),
        one => one.and_then(Value::as_str).map(kind).into_iter().collect(),
    };
    let what = if kinds.is_empty() { "another value".to_owned() } else { one_of(&kinds) };
    let bound = |key: &str| property.get(key).and_then(Value::as_number).map(ToString::to_string);
    match (bound("minimum"), bound("maximum")) {
        (Some(least), Some(most)) => format!("{what} from {least} to {most}"),
        (Some(least), None) => format!("{what} of {least} or more"),
        (None, Some(most)) => format!("{what} of {most} or less"),
        (None, None) => what,
    }
}

/// Describes a JSON type in words.
fn kind(name: &str) -> String {
    match name {
        "integer" => "a whole number",
        "number" => "a number",
        "boolean" => "true or false",
        "string" => "a text",
        "array" => "a list",
        "object" => "an object",
        other => other,
    }
    .to_owned()
}

fn one_of(words: &[String]) -> String {
    match words {
        [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        words => words.join(", "),
    }
}

fn shortened(text: &str) -> String {
    shortened_to(text, MOST_SHOWN)
}

fn shortened_to(text: &str, most: usize) -> String {
    match text.char_indices().nth(most).and_then(|(end, _)| text.get(..end)) {
        Some(begin) => format!("{begin}…"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(settings: &Value) -> String {
        let schema = json!({"type": "object", "additionalProperties": false, "required": ["to"], "properties": {
            "to": {"type": "string", "format": "port"},
            "rate": {"type": "integer", "minimum": 1, "maximum": 9},
            "least": {"type": "number", "minimum": 0.5},
            "mode": {"enum": ["every", "random", 3]},
            "on": {"type": "boolean"},
            "ports": {"type": ["string", "integer"]},
            "list": {"type": "array", "items": {"type": "integer"}},
        }});
        let validator = jsonschema::validator_for(&schema).unwrap();
        let error = validator.validate(settings).unwrap_err();
        let (setting, problem) = refusal(schema.as_object().unwrap(), &error);
        format!("{setting}: {problem}")
    }

    #[test]
    fn each_mistake_is_reported_with_a_remedy() {
        for (settings, words) in [
            (json!({"to": "a", "rat": 1}), "rat: there is no such setting; did you mean \"rate\"?"),
            (
                json!({"to": "a", "colour": 1}),
                "colour: there is no such setting; settings here: least, list, mode, on, ports, rate, to",
            ),
            (json!({}), "to: it is missing; give the name of a port"),
            (json!({"to": 5}), "to: 5 is not right; give the name of a port"),
            (json!({"to": "a", "rate": 0}), "rate: 0 is not right; give a whole number from 1 to 9"),
            (json!({"to": "a", "rate": 10}), "rate: 10 is not right; give a whole number from 1 to 9"),
            (json!({"to": "a", "rate": "x"}), "rate: \"x\" is not right; give a whole number from 1 to 9"),
            (json!({"to": "a", "least": 0.1}), "least: 0.1 is not right; give a number of 0.5 or more"),
            (json!({"to": "a", "mode": "al"}), "mode: \"al\" is not right; give every, random or 3"),
            (json!({"to": "a", "on": 1}), "on: 1 is not right; give true or false"),
            (json!({"to": "a", "ports": true}), "ports: true is not right; give a text or a whole number"),
            (json!({"to": "a", "list": ["x"]}), "list: \"x\" is not of type \"integer\""),
        ] {
            assert_eq!(refused(&settings), words);
        }
    }

    #[test]
    fn long_values_are_cut() {
        let told = refused(&json!({"to": "a", "rate": "x".repeat(10_000)}));
        assert!(told.len() < 200 && told.contains('…'), "{told}");
        let told = refused(&json!({"to": "a", "y".repeat(10_000): 1}));
        assert!(told.len() < 200, "{told}");
    }
}
