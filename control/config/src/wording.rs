//! Error messages about user input for people: the place, the present value, and the remedy.
//!
//! Serde reads files and requests, and its messages are for programmers. This module parses them and phrases
//! all errors alike.

use millrace_units::remedy;

/// Parsed error message of serde.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Complaint<'a> {
    /// Unknown key, and the known keys.
    UnknownKey(&'a str, Vec<&'a str>),
    /// Unknown value, and the known values.
    UnknownWord(&'a str, Vec<&'a str>),
    /// Missing key.
    Missing(&'a str),
    /// Duplicate key.
    Twice(&'a str),
    /// Present value, and expected value.
    Wrong(String, String),
    /// Message from the parser of a value, which already names the remedy.
    Told(&'a str),
}

/// Description of an unsigned integer.
const NATURAL: &str = "a whole number, 0 or more";

impl<'a> Complaint<'a> {
    fn of(said: &'a str) -> Self {
        // Skip any text before it.
        let said = said.rfind("unknown field ").map_or(said, |at| &said[at..]);
        if said.starts_with("unknown field ") {
            let (wrong, known) = quoted(said);
            return Self::UnknownKey(wrong, known);
        }
        if said.starts_with("unknown variant ") {
            let (wrong, known) = quoted(said);
            return Self::UnknownWord(wrong, known);
        }
        if said.starts_with("missing field ") {
            return Self::Missing(quoted(said).0);
        }
        if said.starts_with("duplicate field ") {
            return Self::Twice(quoted(said).0);
        }
        for kind in ["invalid type: ", "invalid value: ", "invalid length "] {
            let parts = said.strip_prefix(kind).and_then(|rest| rest.split_once(", expected "));
            if let Some((there, right)) = parts {
                return Self::Wrong(thing(there), wanted(right));
            }
        }
        let (there, right) = match said {
            "invalid digit found in string" | "cannot parse integer from empty string" => {
                ("no whole number", NATURAL)
            }
            "number too large to fit in target type" => ("too large", "a smaller number"),
            "number too small to fit in target type" => ("too small", "a larger number"),
            "provided string was not `true` or `false`" => ("neither true nor false", "true or false"),
            "invalid float literal" | "cannot parse float from empty string" => ("no number", "a number"),
            "invalid IP address syntax" => ("no IP address", "an IP address such as 10.0.0.1 or fd00::1"),
            _ if said.starts_with("data did not match any variant of untagged enum") => {
                ("of the wrong type", "a value of a type that the documentation lists")
            }
            _ => return Self::Told(said),
        };
        Self::Wrong(there.to_owned(), right.to_owned())
    }
}

/// Returns the first word in backquotes, and the other words in backquotes.
fn quoted(said: &str) -> (&str, Vec<&str>) {
    let mut quoted = said.split('`').skip(1).step_by(2);
    (quoted.next().unwrap_or_default(), quoted.collect())
}

/// Rephrases serde's message about the value at `path` of `whole` (such as *the request*), with the place,
/// the present value and the remedy. `noun` is the term for a key in `whole`.
///
/// A message that is already for people follows the place unchanged.
pub fn explain(whole: &str, noun: &str, path: &str, said: &str) -> String {
    let path = if matches!(path, "." | "?") { "" } else { path };
    let place = if path.is_empty() { whole.to_owned() } else { format!("{path:?}") };
    match Complaint::of(said) {
        Complaint::UnknownKey(wrong, known) => {
            format!("{wrong:?} is no {noun}{}", remedy("key", wrong, known))
        }
        Complaint::UnknownWord(wrong, known) => {
            format!("{place}: no value here is named {wrong:?}{}", remedy("value", wrong, known))
        }
        Complaint::Missing(key) => format!("{place} lacks the key {key:?}"),
        Complaint::Twice(key) => format!("{place} has the key {key:?} twice: remove one"),
        Complaint::Wrong(there, right) => format!("{place} is {there}: give {right}"),
        Complaint::Told(said) => format!("{place} can't be read: {said}"),
    }
}

/// Rephrases a message about a file, where line and column give the place; `None` if the message is already
/// for people.
pub(crate) fn explain_in_file(path: &str, said: &str) -> Option<String> {
    let place = if path.is_empty() { "the file".to_owned() } else { format!("{path:?}") };
    Some(match Complaint::of(said) {
        Complaint::UnknownKey(wrong, known) => {
            format!("unknown key {wrong:?}{}", remedy("key", wrong, known))
        }
        Complaint::UnknownWord(wrong, known) => {
            format!("{place}: unknown value {wrong:?}{}", remedy("value", wrong, known))
        }
        // A message that quotes the value needs no key.
        Complaint::Told(said) if path.is_empty() || said.starts_with('"') => return None,
        Complaint::Told(said) => format!("{place}: {said}"),
        _ => explain(&place, "key", path, said),
    })
}

/// Returns the present value in the terms of JSON and TOML.
fn thing(there: &str) -> String {
    let (kind, value) = there.split_once(' ').unwrap_or((there, ""));
    let value = value.trim_matches('`');
    match kind {
        "string" => format!("the string {value}"),
        "boolean" | "integer" => value.to_owned(),
        "floating" => value.trim_start_matches("point").trim().trim_matches('`').to_owned(),
        "sequence" => "a list".to_owned(),
        "map" => "an object".to_owned(),
        "null" => "null".to_owned(),
        "unit" => "nothing".to_owned(),
        _ => there.to_owned(),
    }
}

/// Returns the expected value in the terms of JSON and TOML.
fn wanted(right: &str) -> String {
    match right {
        "u8" => "a whole number from 0 to 255".to_owned(),
        "u16" => "a whole number from 0 to 65535".to_owned(),
        "u32" => "a whole number from 0 to 4294967295".to_owned(),
        "u64" | "usize" => NATURAL.to_owned(),
        "i8" | "i16" | "i32" | "i64" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a string" | "string" | "a borrowed string" | "path string" => "a string".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "an object".to_owned(),
        "IP address" => "an IP address such as 10.0.0.1 or fd00::1".to_owned(),
        _ if right.starts_with("struct ") => "an object".to_owned(),
        _ if right.contains("enum ") => "one of the words that the documentation lists".to_owned(),
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_names_the_nearest() {
        let message = "unknown field `filtr`, expected one of `gate`, `filter`, `priority`";
        assert_eq!(
            explain("the request", "key of this request", "filtr", message),
            "\"filtr\" is no key of this request: did you mean \"filter\"?"
        );
        let message = "unknown field `devise`, expected one of `name`, `device`";
        assert_eq!(
            explain_in_file("port[0]", message).unwrap(),
            "unknown key \"devise\": did you mean \"device\"?"
        );
        assert_eq!(explain_in_file("route[0].to", "\"10.9.0.1/8\": it has host bits"), None);
        assert_eq!(explain_in_file("route[0].via", "no address").unwrap(), "\"route[0].via\": no address");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place_and_what_would_be_right() {
        for (path, said, words) in [
            (
                "priority",
                "invalid type: string \"high\", expected i32",
                "\"priority\" is the string \"high\": give a whole number",
            ),
            (
                "ids[0]",
                "invalid value: integer `-1`, expected u64",
                "\"ids[0]\" is -1: give a whole number, 0 or more",
            ),
            (
                "a",
                "invalid type: floating point `1.5`, expected u16",
                "\"a\" is 1.5: give a whole number from 0 to 65535",
            ),
            ("settings", "invalid type: sequence, expected a map", "\"settings\" is a list: give an object"),
            ("filter", "invalid type: null, expected a string", "\"filter\" is null: give a string"),
            (".", "missing field `action`", "the request lacks the key \"action\""),
            (".", "duplicate field `action`", "the request has the key \"action\" twice"),
            ("limit", "invalid digit found in string", "\"limit\" is no whole number: give a whole number,"),
            (
                "role",
                "unknown variant `root`, expected one of `viewer`, `operator`, `admin`",
                "\"role\": no value here is named \"root\"; values here: viewer, operator, admin",
            ),
            (
                ".",
                "expected value at line 1 column 1",
                "the request can't be read: expected value at line 1 column 1",
            ),
        ] {
            let explained = explain("the request", "key of this request", path, said);
            assert!(explained.starts_with(words), "{explained}");
        }
    }
}
