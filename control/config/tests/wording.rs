//! Tests that the errors about every key have the router's own words, not those of the parser libraries.

use millrace_config::Config;
use serde_json::{Map, Value, json};

/// Phrases that only the parser libraries use.
const NOT_OURS: &[&str] = &[
    "missing field",
    "unknown field",
    "unknown variant",
    "duplicate field",
    "invalid type",
    "invalid value",
    "invalid length",
    "did not match any variant",
    "expected struct",
    "expected one of",
    "invalid IP address syntax",
];

/// Returns the schema to which a reference points. For a list, returns the schema of its entries.
fn resolved<'s>(root: &'s Value, schema: &'s Value) -> &'s Value {
    if let Some(pointer) = schema["$ref"].as_str() {
        return resolved(root, root.pointer(pointer.trim_start_matches('#')).unwrap());
    }
    let mut alternatives = schema["anyOf"].as_array().into_iter().flatten();
    match alternatives.find(|one| one["type"] != "null") {
        Some(one) => resolved(root, one),
        None => schema,
    }
}

/// Returns a TOML value whose type is wrong for the key, such as `{}` for a text or a number.
fn wrong(schema: &Value) -> &'static str {
    let kind = schema["type"].to_string();
    if kind.contains("object") || kind.contains("array") { "true" } else { "{ of = \"another kind\" }" }
}

/// Reads a file with a faulty `key`. Returns the problem with the error message; `None` if the message is
/// good.
fn problem(key: &str, text: &str) -> Option<String> {
    let message = match Config::parse(text, "f.toml") {
        Err(error) => error.to_string(),
        Ok(_) => return Some(format!("{text:?} is taken")),
    };
    let is_ours = !NOT_OURS.iter().any(|words| message.contains(words));
    (!is_ours || !message.contains(key)).then(|| format!("{text:?}: {message}"))
}

#[test]
fn every_wrong_missing_or_unknown_key_is_named_in_the_projects_wording() {
    let root = Config::schema();
    let none = Map::new();
    let mut problems = Vec::new();
    for (table, schema) in root["properties"].as_object().unwrap() {
        let is_list = schema["type"] == "array";
        let entry = resolved(&root, if is_list { &schema["items"] } else { schema });
        let head = if is_list { format!("[[{table}]]\n") } else { format!("[{table}]\n") };
        let keys = entry["properties"].as_object().unwrap_or(&none);
        assert!(!keys.is_empty(), "{table}: {entry}");
        let required: Vec<&str> =
            entry["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        // This file lacks the first required key, because the parser asks for required keys in order.
        if !required.is_empty() {
            problems.extend(problem(required[0], &head));
        }
        problems.extend(problem("nonsens", &format!("{head}nonsens = 1\n")));
        for (key, schema) in keys {
            let wrong = wrong(resolved(&root, schema));
            problems.extend(problem(key, &format!("{head}{key} = {wrong}\n")));
        }
    }
    assert!(problems.is_empty(), "{:#}", json!(problems));
}

/// Returns the keys that an error about an unknown key of this table lists.
fn keys_of(table: &str) -> Vec<String> {
    let error = Config::parse(&format!("{table}\n_0_ = 1\n"), "f").unwrap_err().to_string();
    let (_, keys) = error.split_once("keys here: ").unwrap_or_else(|| panic!("{table}: {error}"));
    let keys = keys.lines().next().unwrap_or_default();
    keys.split(", ").map(|key| key.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()).collect()
}

#[test]
fn a_typo_of_each_key_leads_to_the_key() {
    let tables = [
        "[router]",
        "[control-plane]",
        "[admission]",
        "[plugins]",
        "[api]",
        "[[port]]",
        "[[route]]",
        "[[filter]]",
        "[[gate]]",
        "[[instance]]",
        "[[bind]]",
        "[[place]]",
        "[[neighbour]]",
    ];
    for table in tables {
        let keys = keys_of(table);
        assert!(keys.len() > 1, "{table}: {keys:?}");
        for key in keys.iter().filter(|key| key.len() > 3) {
            let (head, tail) = key.split_at(key.len() / 2);
            let (last, first) = (&head[head.len() - 1..], &tail[..1]);
            let doubled = format!("{head}{last}{tail}");
            let swapped = format!("{}{first}{last}{}", &head[..head.len() - 1], &tail[1..]);
            let missing = format!("{head}{}", &tail[1..]);
            let underscored = key.replace('-', "_");
            for typo in [doubled, swapped, missing, underscored].iter().filter(|typo| !keys.contains(typo)) {
                let error =
                    Config::parse(&format!("{table}\n\"{typo}\" = 1\n"), "f").unwrap_err().to_string();
                assert!(error.contains(&format!("did you mean {key:?}?")), "{table} {typo}: {error}");
            }
        }
    }
}
