//! Texts of errors of reading.

use std::fmt;

use millrace_units::{Message, count, here, nearest, remedy};

use super::error::{Expected, Fault, PathStep, Present, ReadError};

/// Kind of document that an error is about. The text of the error depends on it.
#[derive(Clone, Copy, Debug)]
pub enum Document<'a> {
    /// File. The line and column of the error are shown with its text.
    File,
    /// Object in a request, by its name.
    Request(&'a str),
}

impl<'a> Document<'a> {
    /// Returns the noun for the document as a whole.
    fn name(self) -> &'a str {
        match self {
            Self::File => "the file",
            Self::Request(name) => name,
        }
    }
}

impl ReadError {
    /// Returns the text of the error.
    pub fn message(&self, document: Document<'_>) -> Message {
        match (self.fault(), document) {
            (Fault::UnknownKey(key, known), Document::File) => {
                self.remedied(Message::from("unknown key ").text(format!("{key:?}")), key, known)
            }
            (Fault::UnknownKey(key, known), Document::Request(name)) => {
                self.remedied(self.quoted(key).text(format!(" is no key of {name}")), key, known)
            }
            (Fault::Hyphens(key), _) => {
                let wrong = format!("{key:?} is no key of {}: did you mean ", document.name());
                Message::from(wrong).quoted_key(key).text("?")
            }
            (Fault::UnknownName(name, known), _) => {
                let what = match document {
                    Document::File => "unknown value",
                    Document::Request(_) => "no value here is named",
                };
                let remedy = remedy("value", name, known.iter().copied());
                self.place(document).text(format!(": {what} {name:?}{remedy}"))
            }
            (Fault::Missing(key), _) => self.place(document).text(" lacks the key ").append(self.quoted(key)),
            (Fault::Twice(key), _) => {
                self.place(document).text(" has the key ").append(self.quoted(key)).text(" twice: remove one")
            }
            (Fault::Wrong { present, expected: Expected::OneOf(names) }, _) => {
                let names = here("value", names.iter().copied());
                self.place(document).text(format!(" is {present}; {names}"))
            }
            (Fault::Wrong { present, expected }, _) => {
                self.place(document).text(format!(" is {present}: give {expected}"))
            }
            // The line and column of the error already identify the text.
            (Fault::Refused(why), Document::File) if self.is_text => why.as_str().into(),
            (Fault::Refused(why), Document::File) => self.place(document).text(format!(": {why}")),
            (Fault::Refused(why), Document::Request(_)) => {
                self.place(document).text(format!(" can't be read: {why}"))
            }
        }
    }

    /// Adds the most similar known key to a message, or else all known keys.
    fn remedied(&self, message: Message, key: &str, known: &[&'static str]) -> Message {
        if let Some(near) = nearest(key, known.iter().copied()) {
            return message.text(": did you mean ").append(self.quoted(near)).text("?");
        }
        let keys = known.iter().map(|key| match self.keys {
            Some(_) => Message::default().key(*key),
            None => (*key).into(),
        });
        match known {
            [] => message.text("; no keys here"),
            _ => message.text("; keys here: ").append(Message::join(keys, ", ")),
        }
    }

    fn quoted(&self, key: &str) -> Message {
        match self.keys {
            Some(_) => Message::default().quoted_key(key),
            None => format!("{key:?}").into(),
        }
    }

    /// Returns the path of the value in quotes. If the path is empty, returns the noun for the document.
    fn place(&self, document: Document<'_>) -> Message {
        let step = |(index, step): (usize, &PathStep)| {
            let dot = if index == 0 { "" } else { "." };
            match step {
                PathStep::Key(key) => format!("{dot}{}", key.escape_debug()).into(),
                PathStep::Setting(key) => Message::from(dot).key(key),
                PathStep::Entry(entry) => format!("[{entry}]").into(),
            }
        };
        match self.path().len() {
            0 => document.name().into(),
            _ => Message::from("\"").append(Message::join(self.path().enumerate().map(step), "")).text("\""),
        }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.message(Document::Request("the value")).fmt(f)
    }
}

impl fmt::Display for Present {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Plain(value) => f.write_str(value),
            Self::Text(text) => write!(f, "the string {text:?}"),
            Self::Date(date) => write!(f, "the date {date}"),
            Self::List => f.write_str("a list"),
            Self::ListOf(length) => write!(f, "a list of {}", count(*length, "value")),
            Self::Table => f.write_str("an object"),
            Self::Other(value) => f.write_str(value),
        }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NATURAL: i128 = u64::MAX as i128;
        const LEAST: i128 = i64::MIN as i128;
        const MOST: i128 = i64::MAX as i128;
        match self {
            Self::Integer { least: 0, most: NATURAL } => f.write_str("a whole number, 0 or more"),
            Self::Integer { least: LEAST, most: MOST } => f.write_str("a whole number"),
            Self::Integer { least, most } => write!(f, "a whole number from {least} to {most}"),
            Self::Number => f.write_str("a number"),
            Self::Boolean => f.write_str("true or false"),
            Self::Text => f.write_str("a string"),
            Self::List => f.write_str("a list"),
            Self::ListOf(length) => write!(f, "a list of {}", count(*length, "value")),
            Self::Table => f.write_str("an object"),
            Self::Address { noun, examples } => write!(f, "{noun} such as {examples}"),
            Self::OneOf(names) => write!(f, "one of {}", names.join(", ")),
            Self::Other(expected) => f.write_str(expected),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::IpAddr;

    use millrace_units::Spelling;
    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::*;
    use crate::reading::Tree;
    use crate::values::VlanIds;

    #[derive(Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Request {
        action: String,
        priority: i32,
        ids: Vec<u64>,
        size: u16,
        half: f64,
        on: bool,
        settings: BTreeMap<String, String>,
        role: Option<Role>,
        via: Option<IpAddr>,
        vlan: Option<VlanIds>,
        pair: Option<(u8, u8)>,
        rest: Option<Required>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Role {
        Viewer,
        Operator,
        Admin {
            #[expect(dead_code, reason = "only errors are tested")]
            since: u8,
        },
        #[expect(dead_code, reason = "only errors are tested")]
        Point(u8, u8),
    }

    #[derive(Debug, Deserialize)]
    struct Required {
        #[expect(dead_code, reason = "only errors are tested")]
        level: u8,
    }

    const REQUEST: Document<'_> = Document::Request("the request");

    fn message(value: Value, document: Document<'_>) -> String {
        Tree::from(value).read::<Request>().unwrap_err().message(document).to_string()
    }

    #[test]
    fn an_unknown_key_names_the_nearest() {
        let wrong = json!({"settigs": {}});
        assert_eq!(
            message(wrong.clone(), REQUEST),
            "\"settigs\" is no key of the request: did you mean \"settings\"?"
        );
        assert_eq!(message(wrong, Document::File), "unknown key \"settigs\": did you mean \"settings\"?");
        let none = message(json!({"zzzzzz": 1}), Document::File);
        assert!(none.starts_with("unknown key \"zzzzzz\"; keys here: action, priority, "), "{none}");
    }

    #[test]
    fn a_message_has_path_present_value_and_remedy() {
        for (value, expected) in [
            (
                json!({"priority": "high"}),
                "\"priority\" is the string \"high\": give a whole number from -2147483648 to 2147483647",
            ),
            (json!({"ids": [-1]}), "\"ids[0]\" is -1: give a whole number, 0 or more"),
            (json!({"size": 1.5}), "\"size\" is 1.5: give a whole number from 0 to 65535"),
            (json!({"half": "x"}), "\"half\" is the string \"x\": give a number"),
            (json!({"on": 1}), "\"on\" is 1: give true or false"),
            (json!({"settings": []}), "\"settings\" is a list: give an object"),
            (json!({"settings": {"a": {}}}), "\"settings.a\" is an object: give a string"),
            (json!({"action": null}), "\"action\" is null: give a string"),
            (json!({"rest": {}}), "\"rest\" lacks the key \"level\""),
            (
                json!({"role": "root"}),
                "\"role\": no value here is named \"root\"; values here: viewer, operator, admin, point",
            ),
            (json!({"role": 5}), "\"role\" is 5; values here: viewer, operator, admin, point"),
            (
                json!({"role": {"admin": {"since": -1}}}),
                "\"role.admin.since\" is -1: give a whole number from 0 to 255",
            ),
            (json!({"role": {"viewer": 1}}), "\"role.viewer\" is 1: give only \"viewer\""),
            (
                json!({"via": "10.0"}),
                "\"via\" is the string \"10.0\": give an IP address such as 10.0.0.1 or fd00::1",
            ),
            (json!({"via": 10}), "\"via\" is 10: give an IP address such as 10.0.0.1 or fd00::1"),
            (
                json!({"vlan": [1, 2, 3]}),
                "\"vlan\" is a list of 3 values: give a VLAN id from 1 to 4094, or an outer and an inner id such as [100, 5]",
            ),
            (json!({"pair": [1]}), "\"pair\" is a list of 1 value: give a list of 2 values"),
            (json!({"pair": [1, 2, 3]}), "\"pair\" is a list of 3 values: give a list of 2 values"),
            (json!({"role": {"point": [1]}}), "\"role.point\" is a list of 1 value: give a list of 2 values"),
            (
                json!({"role": {"point": [1, 2, 3]}}),
                "\"role.point\" is a list of 3 values: give a list of 2 values",
            ),
        ] {
            assert_eq!(message(value, REQUEST), expected);
        }
        let twice: Tree = serde_json::from_str("{\"on\": true, \"on\": false}").unwrap();
        let error = twice.read::<Request>().unwrap_err();
        assert_eq!(error.message(REQUEST).to_string(), "the request has the key \"on\" twice: remove one");
    }

    #[test]
    fn keys_of_settings_follow_the_spelling() {
        let spelled = |value: Value| {
            let read = Tree::from(value).read_settings::<crate::Router>(Spelling::File);
            read.unwrap_err().message(REQUEST).spelled(Spelling::Json)
        };
        assert_eq!(
            spelled(json!({"icmp-rat": 1})),
            "\"icmp_rat\" is no key of the request: did you mean \"icmp_rate\"?"
        );
        assert_eq!(
            spelled(json!({"icmp-rate": []})),
            "\"icmp_rate\" is a list: give a whole number from 0 to 4294967295"
        );
    }
}
