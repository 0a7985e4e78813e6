//! Two spellings of configuration keys: hyphens in files and commands, underscores in JSON.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use serde_json::Value;

use crate::Config;

/// Returns all keys that have hyphens in the file.
fn keys() -> &'static BTreeSet<String> {
    static KEYS: OnceLock<BTreeSet<String>> = OnceLock::new();
    KEYS.get_or_init(|| {
        let mut keys = BTreeSet::new();
        collect(&Config::schema(), &mut keys);
        keys
    })
}

fn collect(schema: &Value, keys: &mut BTreeSet<String>) {
    match schema {
        Value::Object(own) => {
            let properties = own.get("properties").and_then(Value::as_object);
            let names = properties.into_iter().flatten().map(|(name, _)| name);
            keys.extend(names.filter(|name| name.contains('-')).cloned());
            own.values().for_each(|value| collect(value, keys));
        }
        Value::Array(entries) => entries.iter().for_each(|value| collect(value, keys)),
        _ => {}
    }
}

/// Returns a text with its keys in the spelling of JSON.
pub fn in_json(text: &str) -> String {
    respelt(text, |word| keys().contains(word).then(|| word.replace('-', "_")))
}

/// Returns a text with its keys in the spelling of files and commands.
pub fn in_file(text: &str) -> String {
    respelt(text, |word| Some(word.replace('_', "-")).filter(|word| keys().contains(word)))
}

/// Replaces each word for which `other` returns another spelling.
fn respelt(text: &str, other: impl Fn(&str) -> Option<String>) -> String {
    let is_of_word = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    let (mut told, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(begin) = rest.find(is_of_word) {
        let length = rest[begin..].find(|letter| !is_of_word(letter)).unwrap_or(rest.len() - begin);
        let word = &rest[begin..begin + length];
        told += &rest[..begin];
        told += &other(word).unwrap_or_else(|| word.to_owned());
        rest = &rest[begin + length..];
    }
    told + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_respelt_and_nothing_else() {
        let file = "\"icmp-rate\" of port \"my_port-1\": tail-drop, input-weight";
        let json = "\"icmp_rate\" of port \"my_port-1\": tail-drop, input_weight";
        assert_eq!((in_json(file), in_file(json)), (json.to_owned(), file.to_owned()));
    }
}
