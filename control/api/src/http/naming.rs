//! Types whose JSON keys differ from the internal names. Settings have hyphens in configuration files and
//! underscores in JSON. The field `filter` of a filter has the JSON key `match`.
//!
//! `docs/decisions.md` explains why keys have underscores in JSON but hyphens in files and commands.

use std::borrow::Cow;

use millrace_controller::view::BindingView;
use millrace_units::Spelling;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::http::tag::Tagged;

/// Settings as JSON: with underscores in the keys, where configuration files have hyphens.
#[derive(Debug)]
pub(crate) struct Settings<T>(pub T);

/// View of a filter as JSON: a binding whose field `filter` has the key `match`.
#[derive(Debug)]
pub(crate) struct FilterView(pub BindingView);

fn json_key(key: &str) -> String {
    Spelling::Json.of(key)
}

fn match_of(key: &str) -> String {
    if key == "filter" { "match" } else { key }.to_owned()
}

/// Returns a JSON object with each key renamed by `name`.
fn renamed(value: Value, name: impl Fn(&str) -> String) -> Value {
    match value {
        Value::Object(keys) => keys.into_iter().map(|(key, value)| (name(&key), value)).collect(),
        other => other,
    }
}

/// Returns the schema of an object with each property renamed by `name`.
fn renamed_schema(schema: Schema, name: impl Fn(&str) -> String) -> Schema {
    let mut schema = schema.to_value();
    if let Some(properties) = schema.get_mut("properties") {
        *properties = renamed(properties.take(), &name);
    }
    for key in schema.get_mut("required").and_then(Value::as_array_mut).into_iter().flatten() {
        *key = name(key.as_str().unwrap_or_default()).into();
    }
    schema.try_into().unwrap_or_default()
}

impl<T: Serialize> Serialize for Settings<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        renamed(serde_json::to_value(&self.0).map_err(S::Error::custom)?, json_key).serialize(serializer)
    }
}

impl<T: JsonSchema> JsonSchema for Settings<T> {
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        format!("{} in JSON", T::schema_id()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        renamed_schema(T::json_schema(generator), json_key)
    }
}

impl<T: Tagged> Tagged for Settings<T> {
    fn settings(&self) -> Value {
        self.0.settings()
    }
}

impl Serialize for FilterView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        renamed(serde_json::to_value(&self.0).map_err(S::Error::custom)?, match_of).serialize(serializer)
    }
}

impl JsonSchema for FilterView {
    fn schema_name() -> Cow<'static, str> {
        "FilterView".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        renamed_schema(BindingView::json_schema(generator), match_of)
    }
}

impl Tagged for FilterView {
    fn settings(&self) -> Value {
        self.0.settings()
    }
}

#[cfg(test)]
mod tests {
    use millrace_config::reading::{Document, Tree};
    use millrace_controller::{RouterSettings, SchedulerNode};
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_have_underscores_in_json_and_nothing_else_is_taken() {
        let shown = json!(Settings(RouterSettings { icmp_rate: 7, ..RouterSettings::default() }));
        assert_eq!(shown["icmp_rate"], 7);
        assert!(shown.as_object().unwrap().keys().all(|key| !key.contains('-')), "{shown}");
        let read = |value: Value| Tree::from(value).read_settings::<SchedulerNode>(Spelling::Json);
        let node = read(json!({"name": "n", "kind": "fifo", "link_sharing": "1mbit"})).unwrap();
        assert!(node.link_sharing.is_some());
        let document = Document::Request("the request");
        let wrong = |value| read(value).unwrap_err().message(document).spelled(Spelling::Json);
        assert_eq!(
            wrong(json!({"name": "n", "kind": "fifo", "link-sharing": "1mbit"})),
            "\"link-sharing\" is no key of the request: did you mean \"link_sharing\"?"
        );
        assert_eq!(
            wrong(json!({"name": "n", "kind": "fifo", "link_sharin": "1mbit"})),
            "\"link_sharin\" is no key of the request: did you mean \"link_sharing\"?"
        );
        assert_eq!(
            wrong(json!({"name": "n", "kind": "fifo", "link_sharing": true})),
            "\"link_sharing\" is true: give a service curve such as \"1mbit\" or \"1mbit 10ms 64kbit\""
        );
        let message = wrong(json!({"name": "n", "kind": "fifo", "threshold": "x"}));
        assert!(message.starts_with("\"threshold\" can't be read: \"x\" is no size"), "{message}");
    }
}
