//! Tests of error messages at every operation and for every key. Each message has the product's own words,
//! and names the key.

use schemars::SchemaGenerator;

use super::every_operation::{CHANGES, OTHERS, ask};
use super::*;
use crate::endpoint::{Content, Describe, Endpoint};

/// Words that occur only in messages of parser libraries.
const NOT_OURS: &[&str] = &[
    "missing field",
    "unknown field",
    "unknown variant",
    "duplicate field",
    "invalid type",
    "invalid value",
    "invalid length",
    "invalid digit",
    "did not match any variant",
    "provided string",
    "expected struct",
    "expected one of",
    "target type",
    "invalid IP address syntax",
];

/// Words with which an error message introduces its remedy.
const RIGHT: &[&str] = &[
    " right",
    "lacks the key",
    "did you mean",
    "here: ",
    "no keys here",
    "it takes",
    "it has a",
    "write ",
    "give ",
];

fn schema(describe: Describe) -> Value {
    describe(&mut SchemaGenerator::default()).to_value()
}

/// Returns a value of a type other than the given value's.
fn wrong(value: &Value) -> Value {
    match value {
        Value::Number(_) | Value::Bool(_) => json!("many"),
        Value::String(_) | Value::Null => json!({"of": "another kind"}),
        Value::Array(_) | Value::Object(_) => json!(true),
    }
}

fn is_required(schema: &Value, key: &str) -> bool {
    schema["required"].as_array().is_some_and(|all| all.iter().any(|one| one == key))
}

/// Returns bodies with an error in one key, each with that key.
fn wrong_bodies(body: &Value, schema: &Value) -> Vec<(String, Value)> {
    let Some(keys) = body.as_object() else { return Vec::new() };
    let mut all = Vec::new();
    for (key, value) in keys {
        let (mut without, mut other) = (keys.clone(), keys.clone());
        without.remove(key);
        other.insert(key.clone(), wrong(value));
        if is_required(schema, key) {
            all.push((key.clone(), Value::Object(without)));
        }
        all.push((key.clone(), Value::Object(other)));
    }
    let mut more = keys.clone();
    more.insert("nonsens".to_owned(), json!(1));
    all.push(("nonsens".to_owned(), Value::Object(more)));
    all
}

/// Returns query arguments with an error in one key, each with that key.
fn wrong_arguments(schema: &Value) -> Vec<(String, String)> {
    let none = serde_json::Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&none);
    let is_text = |property: &Value| {
        let kind = property["type"].to_string();
        kind.contains("string") || (property["type"].is_null() && property["$ref"].is_null())
    };
    let mut all = vec![("nonsens".to_owned(), "nonsens=1".to_owned())];
    for (key, property) in properties {
        if is_required(schema, key) {
            all.push((key.clone(), String::new()));
        }
        if !is_text(property) {
            all.push((key.clone(), format!("{key}=x")));
        }
    }
    all
}

/// Returns what is wrong with the answer to a request with an error in `key`; `None` for a good answer.
fn problem(key: &str, (status, answer): &(StatusCode, Value)) -> Option<String> {
    let detail = answer["detail"].as_str().unwrap_or_default();
    let why = if *status != StatusCode::BAD_REQUEST {
        "it is no bad request"
    } else if NOT_OURS.iter().any(|words| detail.contains(words)) {
        "the words are another's"
    } else if !detail.contains(key) {
        "the key is not named"
    } else if !RIGHT.iter().any(|words| detail.contains(words)) {
        "what would be right?"
    } else {
        return None;
    };
    Some(format!("{why}: {status} {detail}"))
}

#[tokio::test]
async fn body_errors_name_the_key_in_the_projects_wording() {
    let (server, mut problems) = (Server::start().await, Vec::new());
    for resource in catalogue() {
        for Endpoint { method, body, .. } in resource.endpoints {
            let Some(Content::One(describe) | Content::OneOrList(describe)) = body else { continue };
            let (name, schema) = (format!("{method} {}", resource.path), schema(describe));
            let all = CHANGES.iter().chain(OTHERS);
            let (_, path, example) =
                all.clone().find(|(operation, ..)| *operation == name).expect("an example");
            let example: Value = serde_json::from_str(example).unwrap();
            for (key, body) in wrong_bodies(&example, &schema) {
                let body = body.to_string();
                let answer = ask(&server, &(&name, path, &body)).await;
                problems.extend(problem(&key, &answer).map(|problem| format!("{name} {body}: {problem}")));
            }
        }
    }
    server.end().await;
    assert!(problems.is_empty(), "{problems:#?}");
}

#[tokio::test]
async fn argument_errors_name_the_key_in_the_projects_wording() {
    let (server, mut problems) = (Server::start().await, Vec::new());
    for resource in catalogue() {
        for Endpoint { method, arguments, .. } in resource.endpoints {
            // An operation without arguments has no argument schema.
            let schema = arguments.map_or(Value::Null, schema);
            if method != "GET" && arguments.is_none() {
                continue;
            }
            let path = resource.path.replace("{name}", "x").replace("{id}", "0");
            for (key, arguments) in wrong_arguments(&schema) {
                let asked = format!("{path}?{arguments}");
                let answer = server.ask(method, &asked, "").await;
                problems.extend(problem(&key, &answer).map(|problem| format!("{method} {asked}: {problem}")));
            }
        }
    }
    server.end().await;
    assert!(problems.is_empty(), "{problems:#?}");
}
