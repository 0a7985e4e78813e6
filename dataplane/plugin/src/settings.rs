//! Settings of instances against the schema of their plugin, and the names in them.

use std::collections::HashMap;

use millrace_plugin_abi::{Plugin, PluginError};
use serde_json::{Map, Value};

/// The format of a setting that names a port: the plugin gets its number.
const PORT: &str = "port";
/// The format of a setting that names an instance.
const INSTANCE: &str = "instance";

/// Names that settings may say in the place of numbers.
#[derive(Clone, Default, Debug)]
pub struct Names {
    /// Numbers of ports.
    pub ports: HashMap<String, u16>,
    /// Numbers of instances.
    pub instances: HashMap<String, u16>,
}

/// Why a schema can't be used; `None` when it can.
pub(crate) fn schema_problem(schema: &Map<String, Value>) -> Option<String> {
    let schema = Value::Object(schema.clone());
    jsonschema::validator_for(&schema).err().map(|error| format!("its schema of settings is none: {error}"))
}

/// Settings as the plugin gets them: those that its schema allows, with numbers for names of ports and instances.
///
/// # Errors
/// [`PluginError::Setting`] for the first that is unknown, of the wrong type or out of range, or names nothing.
pub(crate) fn prepare(
    plugin: &dyn Plugin,
    settings: &Map<String, Value>,
    names: &Names,
) -> Result<Map<String, Value>, PluginError> {
    let Some(schema) = plugin.settings_schema() else { return Ok(settings.clone()) };
    let refused = |setting: &str, problem: String| PluginError::setting(plugin.name(), setting, problem);
    let validator = jsonschema::validator_for(&Value::Object(schema.clone()))
        .map_err(|error| refused("settings", format!("the plugin's schema is none: {error}")))?;
    let whole = Value::Object(settings.clone());
    if let Err(error) = validator.validate(&whole) {
        let place = error.instance_path().to_string();
        let setting = place.trim_start_matches('/');
        let problem = format!("{error}{}", known(schema, setting));
        return Err(refused(if setting.is_empty() { "settings" } else { setting }, problem));
    }
    let mut prepared = settings.clone();
    for (setting, value) in &mut prepared {
        let (kind, numbers) = match format_of(schema, setting) {
            Some(PORT) => (PORT, &names.ports),
            Some(INSTANCE) => (INSTANCE, &names.instances),
            _ => continue,
        };
        let Some(name) = value.as_str() else { continue };
        let Some(number) = numbers.get(name) else {
            return Err(refused(setting, unknown(kind, name, numbers)));
        };
        *value = (*number).into();
    }
    Ok(prepared)
}

fn format_of<'a>(schema: &'a Map<String, Value>, setting: &str) -> Option<&'a str> {
    schema.get("properties")?.get(setting)?.get("format")?.as_str()
}

/// The settings that there are, where what is wrong is none of them.
fn known(schema: &Map<String, Value>, setting: &str) -> String {
    let properties = schema.get("properties").and_then(Value::as_object);
    match properties {
        Some(properties) if setting.is_empty() && !properties.is_empty() => {
            let names: Vec<_> = properties.keys().map(String::as_str).collect();
            format!("; there are {}", names.join(", "))
        }
        _ => String::new(),
    }
}

fn unknown(kind: &str, name: &str, numbers: &HashMap<String, u16>) -> String {
    let mut names: Vec<_> = numbers.keys().map(String::as_str).collect();
    names.sort_unstable();
    let there =
        if names.is_empty() { "there is none".to_owned() } else { format!("there are {}", names.join(", ")) };
    format!("there is no {kind} {name:?}; {there}")
}

#[cfg(test)]
mod tests {
    use millrace_plugin_abi::{Instance, Position};
    use serde_json::json;

    use super::*;

    struct Described(Map<String, Value>);

    impl Plugin for Described {
        fn name(&self) -> &'static str {
            "described"
        }

        fn version(&self) -> &'static str {
            "1.0.0"
        }

        fn summary(&self) -> &'static str {
            ""
        }

        fn positions(&self) -> &[Position] {
            &[]
        }

        fn messages(&self) -> &[(&'static str, &'static str)] {
            &[]
        }

        fn settings_schema(&self) -> Option<&Map<String, Value>> {
            Some(&self.0)
        }

        fn create(&self, _settings: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError> {
            Err(PluginError::setting("described", "create", "never"))
        }
    }

    fn prepared(settings: Value) -> Result<Value, String> {
        let schema = json!({"type": "object", "additionalProperties": false, "properties": {
            "rate": {"type": "integer", "minimum": 1},
            "to": {"type": "string", "format": "port"},
            "next": {"type": "string", "format": "instance"},
        }});
        let plugin = Described(schema.as_object().cloned().unwrap());
        let names =
            Names { ports: [("lan".to_owned(), 0), ("wan".to_owned(), 1)].into(), instances: HashMap::new() };
        let settings = settings.as_object().cloned().unwrap();
        prepare(&plugin, &settings, &names).map(Value::Object).map_err(|error| error.to_string())
    }

    #[test]
    fn names_become_numbers() {
        assert_eq!(prepared(json!({"rate": 3, "to": "wan"})), Ok(json!({"rate": 3, "to": 1})));
        let refused = prepared(json!({"to": "dmz"})).unwrap_err();
        assert_eq!(refused, "plugin described: to: there is no port \"dmz\"; there are lan, wan");
        let refused = prepared(json!({"next": "x"})).unwrap_err();
        assert_eq!(refused, "plugin described: next: there is no instance \"x\"; there is none");
    }

    #[test]
    fn what_the_schema_does_not_allow_is_refused() {
        let refused = prepared(json!({"rate": 0})).unwrap_err();
        assert_eq!(refused, "plugin described: rate: 0 is less than the minimum of 1");
        let refused = prepared(json!({"rat": 1})).unwrap_err();
        assert!(refused.starts_with("plugin described: settings: "), "{refused}");
        assert!(refused.ends_with("; there are next, rate, to"), "{refused}");
        assert!(prepared(json!({"rate": "x"})).is_err());
    }

    #[test]
    fn a_schema_that_is_none_is_told() {
        let wrong = json!({"type": 7}).as_object().cloned().unwrap();
        assert!(schema_problem(&wrong).is_some());
        assert!(schema_problem(&Map::new()).is_none());
    }
}
