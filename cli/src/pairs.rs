//! Arguments of the form `KEY=VALUE`.

use serde_json::{Map, Value};

use crate::arguments::{Cycles, Service, ServiceLevel, WorkerNumber};
use crate::output::Failure;

/// Setting inside a reservation: name of the principal that reserves the amount.
const SAME_AS: &str = "same-as";

/// Parses `KEY=VALUE` arguments into an object. A value that is valid JSON becomes that JSON; any other value
/// becomes a string.
pub fn pairs(arguments: &[String]) -> Result<Map<String, Value>, Failure> {
    let mut object = Map::new();
    for argument in arguments {
        let Some((key, text)) = argument.split_once('=') else {
            return Err(Failure::usage(format!("{argument:?} is not of the form KEY=VALUE")));
        };
        if key.trim().is_empty() {
            return Err(Failure::usage(format!(
                "{argument:?} has no key: write KEY=VALUE, without blanks around the ="
            )));
        }
        let value = serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()));
        if object.insert(key.to_owned(), value).is_some() {
            return Err(Failure::usage(format!("{key} is given twice")));
        }
    }
    Ok(object)
}

/// Parses changes of settings; an empty value becomes `null`, which removes the setting.
pub fn changes(arguments: &[String]) -> Result<Map<String, Value>, Failure> {
    let mut settings = pairs(arguments)?;
    for value in settings.values_mut().filter(|value| value.as_str() == Some("")) {
        *value = Value::Null;
    }
    Ok(settings)
}

/// Returns the settings without those that restore a default.
pub fn without_defaults(mut settings: Map<String, Value>) -> Map<String, Value> {
    settings.retain(|_, value| !value.is_null());
    settings
}

impl Service {
    /// Returns the given keys of the service; `null` restores a default.
    pub fn changes(&self) -> Map<String, Value> {
        let Self { level, worker, rate, size, packet, byte } = self;
        let mut changes = Map::new();
        let mut put = |key: &str, value: Value| drop(changes.insert(key.to_owned(), value));
        if let Some(level) = level {
            put(
                "level",
                match level {
                    ServiceLevel::Offload => "offload".into(),
                    ServiceLevel::Worker => "worker".into(),
                    ServiceLevel::Host => "host".into(),
                    ServiceLevel::Auto => Value::Null,
                },
            );
        }
        match worker {
            None => {}
            Some(WorkerNumber::Auto) => put("worker", Value::Null),
            Some(WorkerNumber::Number(number)) => put("worker", (*number).into()),
        }
        if let Some(rate) = rate {
            put("rate", (*rate).into());
        }
        if let Some(size) = size {
            put("size", size.as_str().into());
        }
        for (key, cycles) in [("packet", packet), ("byte", byte)] {
            match cycles {
                None => {}
                Some(Cycles::Default) => put(key, Value::Null),
                Some(Cycles::Number(number)) => put(key, (*number).into()),
            }
        }
        changes
    }
}

/// Returns settings in which each key of the form `OUTER.INNER` is inside the setting `OUTER`.
pub fn nested(settings: Map<String, Value>) -> Result<Map<String, Value>, Failure> {
    let mut nested = Map::new();
    settings.into_iter().try_for_each(|(key, value)| nest(&mut nested, &key, value))?;
    Ok(nested)
}

/// Inserts a setting. `same-as` is inside the setting before it, whose name may contain dots, such as a port.
fn nest(nested: &mut Map<String, Value>, key: &str, value: Value) -> Result<(), Failure> {
    let twice = |key: &str| Err(Failure::usage(format!("{key} is given both whole and in parts")));
    let (outer, inner) = match key.split_once('.') {
        Some(parts) => parts,
        None => return nested.insert(key.to_owned(), value).map_or(Ok(()), |_| twice(key)),
    };
    let parts = nested.entry(outer).or_insert_with(|| Value::Object(Map::new()));
    let Value::Object(parts) = parts else { return twice(outer) };
    match inner.rsplit_once('.') {
        Some((inner, SAME_AS)) => {
            let other = Value::Object(Map::from_iter([(SAME_AS.to_owned(), value)]));
            parts.insert(inner.to_owned(), other).map_or(Ok(()), |_| twice(&format!("{outer}.{inner}")))
        }
        _ => parts.insert(inner.to_owned(), value).map_or(Ok(()), |_| twice(key)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn valid_json_arguments_become_json() {
        let object = pairs(&["n=5".into(), "ports=80,443".into(), "on=true".into()]).unwrap();
        assert_eq!(Value::Object(object), json!({"n": 5, "ports": "80,443", "on": true}));
        assert_eq!(pairs(&["n".into()]).unwrap_err().code, 2);
        assert!(pairs(&["n=1".into(), "n=2".into()]).is_err());
        let nameless = pairs(&["=5".into()]).unwrap_err();
        assert_eq!(nameless.code, 2);
        assert!(nameless.message.starts_with("\"=5\" has no key"), "{}", nameless.message);
    }

    #[test]
    fn dotted_keys_are_inner_settings() {
        let settings = |text: &[&str]| {
            let text: Vec<String> = text.iter().map(|text| (*text).to_owned()).collect();
            changes(&text).and_then(nested).map(Value::Object).ok()
        };
        assert_eq!(
            settings(&["link.wan=10mbit", "link.lan=", "memory=8MiB", "cpu.same-as=a"]),
            Some(json!({"link": {"wan": "10mbit", "lan": null}, "memory": "8MiB", "cpu": {"same-as": "a"}}))
        );
        assert_eq!(
            settings(&["link.eth0.7.same-as=a", "link.eth0.8=1mbit"]),
            Some(json!({"link": {"eth0.7": {"same-as": "a"}, "eth0.8": "1mbit"}}))
        );
        assert_eq!(settings(&["link.wan=1mbit", "link.wan.same-as=a"]), None);
        assert_eq!(settings(&["cpu=5%", "cpu.same-as=a"]), None);
        assert_eq!(settings(&["cpu.same-as=a", "cpu=5%"]), None);
    }
}
