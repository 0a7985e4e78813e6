//! Settings of instances: validation against the plugin's schema, and resolution of names.

use std::convert::Infallible;
use std::sync::Arc;

use millrace_plugin_abi::{Plugin, PluginError, SharedMap};
use serde_json::{Map, Value};

use crate::PluginControlError;
use crate::declaration::settings_refusal::refusal;
use crate::declaration::settings_schema::compile;

/// Format of a setting that names a port: the plugin gets the port's number.
const PORT: &str = "port";
/// Format of a setting that names an instance: the plugin gets the instance's number.
const INSTANCE: &str = "instance";

/// Format of a setting that names a map as `INSTANCE/MAP`: the plugin gets the map's number.
const MAP: &str = "map";

/// Checked settings with numbers instead of names, and the maps that the settings name.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    pub settings: Map<String, Value>,
    /// Maps of other instances, numbered after the plugin's own maps.
    pub maps: Vec<Arc<SharedMap>>,
}

/// Resolves the names of ports, instances and maps in settings.
pub(crate) trait Numbers {
    /// Returns the number of a port by its name.
    fn port(&self, name: &str) -> Result<u16, PluginControlError>;

    /// Returns the number of an instance by its name.
    fn instance(&self, name: &str) -> Result<u16, PluginControlError>;

    /// Returns a map by its name `INSTANCE/MAP`.
    fn map(&self, name: &str) -> Result<Arc<SharedMap>, PluginControlError>;
}

/// Whether the schema has settings that name maps.
pub(crate) fn names_maps(schema: &Map<String, Value>) -> bool {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.is_some_and(|properties| {
        properties.values().any(|property| property.get("format").and_then(Value::as_str) == Some(MAP))
    })
}

/// Reference of a setting to another instance, or to a map of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reference<'a> {
    /// Key of the setting.
    pub setting: &'a str,
    /// Name of the instance.
    pub instance: String,
    /// Whether the setting names a map of the instance.
    pub is_map: bool,
}

/// Returns the references of settings to instances, also of those that only the plugin's host companion resolves.
pub(crate) fn references<'a>(plugin: &dyn Plugin, settings: &'a Map<String, Value>) -> Vec<Reference<'a>> {
    let companion = plugin.host_companion().and_then(Plugin::settings_schema);
    let mut found = Vec::new();
    for schema in [plugin.settings_schema(), companion].into_iter().flatten() {
        for (setting, value) in settings {
            let mut note = |format: &'static str, value: &mut Value| -> Result<(), Infallible> {
                let Some(name) = value.as_str() else { return Ok(()) };
                let (instance, is_map) = match (format, name.split_once('/')) {
                    (INSTANCE, _) => (name, false),
                    (MAP, Some((instance, _))) => (instance, true),
                    _ => return Ok(()),
                };
                found.push(Reference { setting, instance: instance.to_owned(), is_map });
                Ok(())
            };
            let Ok(()) = each_named(property(schema, setting), &mut value.clone(), &mut note);
        }
    }
    found
}

/// Returns the names of the instances that settings name.
pub fn instances_named(plugin: &dyn Plugin, settings: &Map<String, Value>) -> Vec<String> {
    references(plugin, settings).into_iter().map(|reference| reference.instance).collect()
}

/// Returns the problem of an unusable settings schema; `None` if the schema is usable.
pub(crate) fn schema_problem(schema: &Map<String, Value>) -> Option<String> {
    compile(schema).err().map(|problem| format!("its settings schema {problem}"))
}

/// Validates settings and replaces the names of ports, instances and maps by numbers.
///
/// # Errors
/// [`PluginError::Setting`] for the first setting that is unknown, has a wrong type or is out of range;
/// [`PluginControlError::SettingNames`] for a setting that names an unknown object.
pub(crate) fn prepare(
    plugin: &dyn Plugin,
    settings: &Map<String, Value>,
    numbers: &impl Numbers,
) -> Result<Prepared, PluginControlError> {
    let Some(schema) = plugin.settings_schema() else {
        return Ok(Prepared { settings: settings.clone(), maps: Vec::new() });
    };
    let refused = |setting: &str, problem| PluginControlError::SettingNames {
        plugin: plugin.name(),
        setting: setting.to_owned(),
        problem: Box::new(problem),
    };
    validate(plugin, schema, settings.clone())?;
    let (mut prepared, mut maps) = (settings.clone(), Vec::new());
    for (setting, value) in &mut prepared {
        let resolved = each_named(property(schema, setting), value, &mut |format, value| {
            let Some(name) = value.as_str() else { return Ok(()) };
            *value = match format {
                PORT => numbers.port(name)?,
                INSTANCE => numbers.instance(name)?,
                _ => {
                    maps.push(numbers.map(name)?);
                    (plugin.maps().len() + maps.len() - 1) as u16
                }
            }
            .into();
            Ok(())
        });
        resolved.map_err(|error| refused(setting, error))?;
    }
    Ok(Prepared { settings: prepared, maps })
}

/// Validates the settings of a plugin that runs without a router. There, settings give ports, instances and
/// maps by number, since they have no names.
///
/// # Errors
/// [`PluginError::Setting`] for the first setting that is unknown, has a wrong type, is out of range, or is a
/// name.
pub fn without_router(
    plugin: &dyn Plugin,
    settings: &Map<String, Value>,
) -> Result<Map<String, Value>, PluginError> {
    let Some(schema) = plugin.settings_schema() else { return Ok(settings.clone()) };
    let mut written = settings.clone();
    for (setting, value) in &mut written {
        let converted = each_named(property(schema, setting), value, &mut |format, value| {
            if value.is_u64() {
                *value = value.to_string().into();
            } else if value.is_string() {
                return Err(format!(
                    "{format} names need a running router: give a number instead of {value}"
                ));
            }
            Ok(())
        });
        converted.map_err(|problem| PluginError::setting(plugin.name(), setting, problem))?;
    }
    validate(plugin, schema, written)?;
    Ok(settings.clone())
}

/// Validates settings against the plugin's schema.
fn validate(
    plugin: &dyn Plugin,
    schema: &Map<String, Value>,
    settings: Map<String, Value>,
) -> Result<(), PluginError> {
    let refused = |setting: &str, problem: String| PluginError::setting(plugin.name(), setting, problem);
    let validator = compile(schema)
        .map_err(|problem| refused("settings", format!("the plugin's settings schema {problem}")))?;
    validator.validate(&Value::Object(settings)).map_err(|error| {
        let (setting, problem) = refusal(schema, &error);
        refused(&setting, problem)
    })
}

/// Returns the schema of a setting.
fn property<'a>(schema: &'a Map<String, Value>, setting: &str) -> Option<&'a Value> {
    schema.get("properties")?.get(setting)
}

/// Calls `each` for the values in a setting that name a port, an instance or a map: for the setting itself, for elements of
/// its lists (`items`), and for values of its objects (`properties`, `additionalProperties`).
fn each_named<E>(
    schema: Option<&Value>,
    value: &mut Value,
    each: &mut impl FnMut(&'static str, &mut Value) -> Result<(), E>,
) -> Result<(), E> {
    let Some(schema) = schema else { return Ok(()) };
    let format = schema.get("format").and_then(Value::as_str);
    if let Some(format) = [PORT, INSTANCE, MAP].into_iter().find(|known| format == Some(known)) {
        return each(format, value);
    }
    match value {
        Value::Array(values) => {
            values.iter_mut().try_for_each(|value| each_named(schema.get("items"), value, each))
        }
        Value::Object(values) => values.iter_mut().try_for_each(|(key, value)| {
            let own = schema.get("properties").and_then(|properties| properties.get(key));
            each_named(own.or_else(|| schema.get("additionalProperties")), value, each)
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use millrace_plugin_abi::{Instance, Position};
    use serde_json::json;

    use super::*;

    /// Resolver that knows two ports and no instances.
    struct TwoPorts;

    impl Numbers for TwoPorts {
        fn port(&self, name: &str) -> Result<u16, PluginControlError> {
            let names = ["lan", "wan"];
            let place = names.iter().position(|known| *known == name);
            let unknown = || PluginControlError::unknown("port", name, names.into_iter());
            place.map(|place| place as u16).ok_or_else(unknown)
        }

        fn instance(&self, name: &str) -> Result<u16, PluginControlError> {
            Err(PluginControlError::unknown("instance", name, std::iter::empty()))
        }

        fn map(&self, name: &str) -> Result<Arc<SharedMap>, PluginControlError> {
            Err(PluginControlError::unknown("map", name, std::iter::empty()))
        }
    }

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

    /// Returns a plugin with settings of every format.
    fn plugin() -> Described {
        let schema = json!({"type": "object", "additionalProperties": false, "properties": {
            "rate": {"type": "integer", "minimum": 1},
            "to": {"type": "string", "format": "port"},
            "next": {"type": "string", "format": "instance"},
            "rest": {"type": "array", "items": {"type": "string", "format": "instance"}},
            "list": {"type": "string", "format": "map"},
            "zones": {
                "type": "object",
                "additionalProperties": {"type": "array", "items": {"type": "string", "format": "port"}},
            },
        }});
        Described(schema.as_object().cloned().unwrap())
    }

    fn prepared(settings: Value) -> Result<Value, String> {
        let settings = settings.as_object().cloned().unwrap();
        prepare(&plugin(), &settings, &TwoPorts)
            .map(|prepared| Value::Object(prepared.settings))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn names_become_numbers() {
        assert_eq!(prepared(json!({"rate": 3, "to": "wan"})), Ok(json!({"rate": 3, "to": 1})));
        let refused = prepared(json!({"to": "dmz"})).unwrap_err();
        assert_eq!(refused, "plugin described: to: no port \"dmz\"; ports here: lan, wan");
        let refused = prepared(json!({"to": "wn"})).unwrap_err();
        assert_eq!(refused, "plugin described: to: no port \"wn\": did you mean \"wan\"?");
        let refused = prepared(json!({"next": "x"})).unwrap_err();
        assert_eq!(refused, "plugin described: next: no instance \"x\"; no instances here");
    }

    #[test]
    fn names_in_lists_and_objects_become_numbers() {
        let zones = prepared(json!({"zones": {"inside": ["lan", "wan"], "none": []}}));
        assert_eq!(zones, Ok(json!({"zones": {"inside": [0, 1], "none": []}})));
        let refused = prepared(json!({"zones": {"inside": ["lan", "dmz"]}})).unwrap_err();
        assert_eq!(refused, "plugin described: zones: no port \"dmz\"; ports here: lan, wan");
        assert!(prepared(json!({"zones": {"inside": [7]}})).is_err(), "a number is no name");
    }

    #[test]
    fn references_to_instances_are_found_in_lists_and_map_names() {
        let found = |settings: Value| instances_named(&plugin(), settings.as_object().unwrap());
        let settings = json!({"list": "w/seen", "next": "x", "rest": ["y", "z"], "to": "lan"});
        assert_eq!(found(settings), ["w", "x", "y", "z"]);
        assert!(found(json!({"rate": 3, "zones": {"inside": ["lan"]}, "list": "w", "next": 7})).is_empty());
    }

    #[test]
    fn settings_outside_the_schema_are_refused() {
        let refused = prepared(json!({"rate": 0})).unwrap_err();
        assert_eq!(refused, "plugin described: rate: 0 is not right; give a whole number of 1 or more");
        let refused = prepared(json!({"rat": 1})).unwrap_err();
        assert_eq!(refused, "plugin described: rat: there is no such setting; did you mean \"rate\"?");
        assert!(prepared(json!({"rate": "x"})).is_err());
    }

    #[test]
    fn without_a_router_names_are_numbers() {
        let schema = json!({"type": "object", "additionalProperties": false, "properties": {
            "rate": {"type": "integer", "minimum": 1}, "to": {"type": "string", "format": "port"},
        }});
        let plugin = Described(schema.as_object().cloned().unwrap());
        let alone = |settings: Value| {
            let settings = without_router(&plugin, settings.as_object().unwrap());
            settings.map(Value::Object).map_err(|error| error.to_string())
        };
        assert_eq!(alone(json!({"rate": 3, "to": 1})), Ok(json!({"rate": 3, "to": 1})));
        let refused =
            "plugin described: to: port names need a running router: give a number instead of \"wan\"";
        assert_eq!(alone(json!({"to": "wan"})), Err(refused.to_owned()));
        assert!(alone(json!({"to": true})).is_err());
        let refused = "plugin described: rate: 0 is not right; give a whole number of 1 or more";
        assert_eq!(alone(json!({"rate": 0})), Err(refused.to_owned()));
    }

    #[test]
    fn invalid_schema_is_reported() {
        let wrong = json!({"type": 7}).as_object().cloned().unwrap();
        assert!(schema_problem(&wrong).is_some());
        assert!(schema_problem(&Map::new()).is_none());
    }
}
