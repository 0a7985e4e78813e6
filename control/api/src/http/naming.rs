//! JSON keys that differ from internal names: settings, whose keys have hyphens in configuration files, and
//! the flows of a filter.
//!
//! `docs/decisions.md` explains why keys have underscores in JSON but hyphens in files and commands.

use std::borrow::Cow;

use millrace_controller::ControlError;
use millrace_controller::view::BindingView;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{DeserializeOwned, Error as _};
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::http::problem::Problem;
use crate::http::tag::Tagged;

/// Settings with underscores in their JSON keys, instead of the hyphens in files.
#[derive(Debug)]
pub(crate) struct Settings<T>(pub T);

/// View of a filter: a binding whose flows have the key `match`.
#[derive(Debug)]
pub(crate) struct FilterView(pub BindingView);

/// Returns a function that converts errors about settings. Their text then has the keys of JSON, also for the
/// `given` settings.
pub(crate) fn refused(given: &Map<String, Value>) -> impl Fn(ControlError) -> Problem {
    |error| {
        let said =
            |text: String, key: &String| text.replace(&format!("{key:?}"), &format!("{:?}", told(key)));
        Problem::from(error).with_detail(|detail| given.keys().fold(millrace_config::in_json(&detail), said))
    }
}

fn told(key: &str) -> String {
    key.replace('-', "_")
}

fn match_of(key: &str) -> String {
    if key == "filter" { "match" } else { key }.to_owned()
}

/// Returns an object with its keys renamed by `name`.
fn renamed(value: Value, name: impl Fn(&str) -> String) -> Value {
    match value {
        Value::Object(keys) => keys.into_iter().map(|(key, value)| (name(&key), value)).collect(),
        other => other,
    }
}

/// Returns the schema of an object with its keys renamed by `name`.
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
        renamed(serde_json::to_value(&self.0).map_err(S::Error::custom)?, told).serialize(serializer)
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Settings<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let given = Map::deserialize(deserializer)?;
        if let Some(key) = given.keys().find(|key| key.contains('-')) {
            let right = told(key);
            return Err(D::Error::custom(format!("unknown field `{key}`, expected `{right}`")));
        }
        let inside = renamed(Value::Object(given), |key| key.replace('_', "-"));
        let read = serde_path_to_error::deserialize(inside).map_err(|error| {
            let (path, said) = (error.path().to_string(), error.inner().to_string());
            if said.starts_with("unknown field") || said.starts_with("missing field") {
                return said.replace('-', "_");
            }
            match path.as_str() {
                "." => said,
                path => crate::http::wording::explain(path, &said),
            }
        });
        read.map(Self).map_err(D::Error::custom)
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
        renamed_schema(T::json_schema(generator), told)
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
    use millrace_controller::{RouterSettings, SchedulerNode};
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_have_underscores_in_json_and_nothing_else_is_taken() {
        let told = json!(Settings(RouterSettings { icmp_rate: 7, ..RouterSettings::default() }));
        assert_eq!(told["icmp_rate"], 7);
        assert!(told.as_object().unwrap().keys().all(|key| !key.contains('-')), "{told}");
        let read = |value: Value| serde_json::from_value::<Settings<SchedulerNode>>(value);
        let node = read(json!({"name": "n", "kind": "fifo", "link_sharing": "1mbit"})).unwrap().0;
        assert!(node.link_sharing.is_some());
        let wrong = |value| read(value).unwrap_err().to_string();
        let said = wrong(json!({"name": "n", "kind": "fifo", "link-sharing": "1mbit"}));
        assert!(said.contains("unknown field `link-sharing`, expected `link_sharing`"), "{said}");
        let said = wrong(json!({"name": "n", "kind": "fifo", "link_sharin": "1mbit"}));
        assert!(said.contains("`link_sharin`") && said.contains("`link_sharing`"), "{said}");
        let said = wrong(json!({"name": "n", "kind": "fifo", "threshold": "x"}));
        assert!(said.contains("threshold"), "{said}");
    }
}
