//! Helpers by which built-in plugins read settings, messages and saved state.
//!
//! The router has validated settings against the plugin's schema, if it has one. It doesn't validate the
//! arguments of messages.

use std::ops::RangeInclusive;

use millrace_units::{InstanceId, PortId};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::{Message, PluginError, merged};

/// Reader of an instance's settings or a message's arguments.
#[derive(Clone, Copy, Debug)]
pub struct SettingsReader<'a> {
    plugin: &'static str,
    given: &'a Map<String, Value>,
}

impl<'a> SettingsReader<'a> {
    /// Creates a reader of the settings or arguments in `given`. `plugin` names the plugin in errors.
    pub fn new(plugin: &'static str, given: &'a Map<String, Value>) -> Self {
        Self { plugin, given }
    }

    /// Checks the arguments of a message that changes settings: at least one must be given, and only names in
    /// `known` are allowed.
    ///
    /// # Errors
    /// [`PluginError::Setting`] for an unknown argument, or if none is given.
    pub fn check_changes(&self, known: &[&str]) -> Result<(), PluginError> {
        PluginError::unless_known(self.plugin, self.given, known)?;
        if self.given.is_empty() {
            let problem = format!("nothing to set; give {}", one_of(known));
            return Err(PluginError::setting(self.plugin, "set", problem));
        }
        Ok(())
    }

    /// Returns an integer setting; `None` if it is not given.
    ///
    /// # Errors
    /// [`PluginError::Setting`] if the value is no integer in `range`.
    pub fn number(&self, setting: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, PluginError> {
        let (least, most) = (range.start(), range.end());
        let problem = |value: &Value| format!("{value} is not a whole number from {least} to {most}");
        self.read(setting, |value| value.as_u64().filter(|number| range.contains(number)), problem)
    }

    /// Reads a setting that must be one of the names in `names`. Returns the value paired with the given
    /// name; `None` if the setting is not given.
    ///
    /// # Errors
    /// [`PluginError::Setting`] if the value is none of the names.
    pub fn choice<T: Copy>(&self, setting: &str, names: &[(&str, T)]) -> Result<Option<T>, PluginError> {
        let known: Vec<_> = names.iter().map(|(name, _)| *name).collect();
        let problem = |value: &Value| format!("{value} is not an allowed value; give {}", one_of(&known));
        let find = |value: &Value| names.iter().find(|(name, _)| value.as_str() == Some(name));
        self.read(setting, |value| find(value).map(|(_, choice)| *choice), problem)
    }

    /// Returns a port setting; `None` if it is not given. Its `format` in the schema is `port`, so it arrives
    /// as a number.
    ///
    /// # Errors
    /// [`PluginError::Setting`] for any other value.
    pub fn port(&self, setting: &str) -> Result<Option<PortId>, PluginError> {
        let problem = |value: &Value| format!("{value} is not a port; give a port name, as in {setting}=wan");
        self.read(setting, |value| value.as_u64()?.try_into().ok().map(PortId), problem)
    }

    /// Returns an instance setting; `None` if it is not given. Its `format` in the schema is `instance`, so
    /// it arrives as a number.
    ///
    /// # Errors
    /// [`PluginError::Setting`] for any other value.
    pub fn instance(&self, setting: &str) -> Result<Option<InstanceId>, PluginError> {
        let problem = |value: &Value| {
            format!("{value} is not an instance; give an instance name, as in {setting}=NAME")
        };
        self.read(setting, |value| value.as_u64()?.try_into().ok().map(InstanceId), problem)
    }

    fn read<T>(
        &self,
        setting: &str,
        read: impl FnOnce(&Value) -> Option<T>,
        problem: impl FnOnce(&Value) -> String,
    ) -> Result<Option<T>, PluginError> {
        let Some(value) = self.given.get(setting) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| PluginError::setting(self.plugin, setting, problem(value)))
    }
}

fn one_of(names: &[&str]) -> String {
    match names {
        [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        names => names.join(", "),
    }
}

/// Returns the name that `names` lists for `choice`; empty if there is none.
pub fn name_of<T: PartialEq>(choice: &T, names: &[(&'static str, T)]) -> &'static str {
    names.iter().find(|(_, known)| known == choice).map_or("", |(name, _)| name)
}

/// Returns the JSON Schema of settings with these `properties` and no others. The settings in `required` are
/// mandatory.
pub fn settings_of(properties: Value, required: &[&str]) -> Map<String, Value> {
    let schema = json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    schema.as_object().cloned().unwrap_or_default()
}

impl Message {
    /// Rejects a message that is not in `known`, and arguments of a message that is not in `with_arguments`.
    ///
    /// # Errors
    /// [`PluginError::UnknownMessage`] or [`PluginError::Setting`].
    pub fn check(
        &self,
        plugin: &'static str,
        known: &[(&'static str, &'static str)],
        with_arguments: &[&str],
    ) -> Result<(), PluginError> {
        if !known.iter().any(|(name, _)| *name == self.name) {
            return Err(PluginError::unknown_message(plugin, &self.name, known));
        }
        if with_arguments.contains(&self.name.as_str()) {
            return Ok(());
        }
        match self.arguments.keys().next() {
            None => Ok(()),
            Some(strange) => {
                let problem = format!("message {:?} takes no arguments", self.name);
                Err(PluginError::setting(plugin, strange, problem))
            }
        }
    }
}

/// Merges the answers of several workers by [`merged`]. Values under the keys in `same` are equal at all
/// workers, so they are taken from the first answer.
pub fn merged_but(replies: Vec<Value>, same: &[&str]) -> Value {
    let first = replies.first().cloned();
    let mut sum = replies.into_iter().reduce(merged).unwrap_or(Value::Null);
    if let (Value::Object(sum), Some(Value::Object(mut first))) = (&mut sum, first) {
        sum.extend(same.iter().filter_map(|key| first.remove_entry(*key)));
    }
    sum
}

/// Parses state that an instance saved as JSON. `own` is the state version of this plugin.
///
/// # Errors
/// [`PluginError::Refused`] for state of another version or format.
pub fn restored<T: DeserializeOwned>(state: &[u8], version: u32, own: u32) -> Result<T, PluginError> {
    if version != own {
        let text = format!("can't restore state of version {version}: the plugin has state version {own}");
        return Err(PluginError::Refused(text));
    }
    serde_json::from_slice(state)
        .map_err(|error| PluginError::Refused(format!("can't restore state of version {own}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap_or_default()
    }

    const NAMES: [(&str, u8); 3] = [("a", 1), ("b", 2), ("c", 3)];

    #[test]
    fn settings_are_read_or_refused() {
        let given = object(json!({ "n": 5, "c": "b", "p": 3 }));
        let reader = SettingsReader::new("p", &given);
        assert_eq!(reader.number("n", 1..=5), Ok(Some(5)));
        assert_eq!(reader.number("m", 1..=5), Ok(None));
        assert_eq!(reader.choice("c", &NAMES), Ok(Some(2)));
        assert_eq!(reader.port("p"), Ok(Some(PortId(3))));
        let wrong = |result: Result<(), PluginError>| result.map_err(|error| error.to_string()).unwrap_err();
        let problem = wrong(reader.number("n", 0..=4).map(drop));
        assert_eq!(problem, "plugin p: n: 5 is not a whole number from 0 to 4");
        assert_eq!(
            wrong(reader.choice("n", &NAMES).map(drop)),
            "plugin p: n: 5 is not an allowed value; give a, b or c"
        );
        let problem = "plugin p: c: \"b\" is not a port; give a port name, as in c=wan";
        assert_eq!(wrong(reader.port("c").map(drop)), problem);
        assert_eq!(reader.check_changes(&["n", "c", "p"]), Ok(()));
        assert!(wrong(reader.check_changes(&["n", "p"])).contains("there is no such setting; give n, p"));
        let nothing = Map::new();
        let nothing = SettingsReader::new("p", &nothing);
        assert_eq!(wrong(nothing.check_changes(&["n"])), "plugin p: set: nothing to set; give n");
        assert_eq!((name_of(&3, &NAMES), name_of(&4, &NAMES)), ("c", ""));
    }

    #[test]
    fn messages_have_their_arguments() {
        let known = [("read", "counts"), ("set", "n=1")];
        let check = |name: &str, arguments: Value| {
            let message = Message { name: name.to_owned(), arguments: object(arguments) };
            message.check("p", &known, &["set"])
        };
        assert_eq!(check("read", json!({})), Ok(()));
        assert_eq!(check("set", json!({ "n": 1 })), Ok(()));
        assert!(matches!(check("read", json!({ "n": 1 })), Err(PluginError::Setting { .. })));
        assert!(matches!(check("reset", json!({ "n": 1 })), Err(PluginError::UnknownMessage { .. })));
    }

    #[test]
    fn values_equal_at_all_workers_are_not_added() {
        let replies = vec![json!({ "packets": 1, "rate": 5 }), json!({ "packets": 2, "rate": 5 })];
        assert_eq!(merged_but(replies, &["rate", "port"]), json!({ "packets": 3, "rate": 5 }));
        assert_eq!(merged_but(Vec::new(), &["rate"]), Value::Null);
    }

    #[test]
    fn only_state_of_the_own_version_and_form_is_restored() {
        assert_eq!(restored(b"[1, 2]", 3, 3), Ok([1, 2]));
        let refused = |state, version| restored::<[u64; 2]>(state, version, 3).unwrap_err().to_string();
        let text = "can't restore state of version 2: the plugin has state version 3";
        assert_eq!(refused(&b"[1, 2]"[..], 2), text);
        for state in [&b"[1, 2, 3]"[..], b"[1", b""] {
            assert!(refused(state, 3).starts_with("can't restore state of version 3: "));
        }
    }

    #[test]
    fn numbers_add_up_and_settings_stay() {
        let first = json!({ "packets": { "udp": 2 }, "what": "all", "on": true, "ports": [80, 443],
            "ranges": [{ "ports": "80", "dropped": 1 }], "rate": 0.5 });
        let second = json!({ "packets": { "tcp": 3, "udp": 1 }, "what": "all", "on": true, "ports": [80, 443],
            "ranges": [{ "ports": "80", "dropped": 4 }], "rate": 1 });
        let sum = json!({ "packets": { "udp": 3, "tcp": 3 }, "what": "all", "on": true, "ports": [80, 443],
            "ranges": [{ "ports": "80", "dropped": 5 }], "rate": 1.5 });
        assert_eq!(merged(first, second), sum);
    }
}
