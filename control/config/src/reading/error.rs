//! Errors of reading, in a form from which messages are made.

use std::fmt;
use std::ops::Range;

use millrace_units::Spelling;
use serde::de::{self, Unexpected};

use super::tree::Node;

/// Fault in a document: its position, the present value, and the valid values.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadError {
    fault: Box<Fault>,
    /// Steps from the root to the value, in reverse order.
    path: Vec<PathStep>,
    /// Byte range of the value or its key; `None` outside of a file.
    span: Option<Range<usize>>,
    /// Spelling of the keys in the fault; `None` unless they are keys of settings.
    pub(super) keys: Option<Spelling>,
    /// Whether the value is a text.
    pub(super) is_text: bool,
}

/// Step from a table or list to an element of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PathStep {
    /// Key of a table.
    Key(String),
    /// Key of a table of settings, in the spelling of a configuration file.
    Setting(String),
    /// Index in a list, counted from 0.
    Entry(usize),
}

/// Kind of fault.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fault {
    /// Unknown key, and the known keys.
    UnknownKey(String, &'static [&'static str]),
    /// Key of a setting that has hyphens although the document is JSON.
    Hyphens(String),
    /// Unknown name of a value, and the known names.
    UnknownName(String, &'static [&'static str]),
    /// Missing key.
    Missing(&'static str),
    /// Key that is given twice.
    Twice(&'static str),
    /// Value of another type or range.
    Wrong { present: Present, expected: Expected },
    /// Reason why the parser of a type refuses the value. If the value is a text, the reason quotes it.
    Refused(String),
}

/// Present value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Present {
    Null,
    /// Boolean or number, as written in the document.
    Plain(String),
    Text(String),
    /// Date or time of TOML.
    Date(String),
    List,
    /// List of this length.
    ListOf(usize),
    Table,
    /// Other value, by the name that serde gives it.
    Other(String),
}

/// Expected value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// Integer in a range.
    Integer {
        least: i128,
        most: i128,
    },
    Number,
    Boolean,
    Text,
    List,
    /// List of this length.
    ListOf(usize),
    Table,
    /// Address: a noun with an article, and examples.
    Address {
        noun: &'static str,
        examples: &'static str,
    },
    /// One of these names.
    OneOf(&'static [&'static str]),
    /// Other value, in the words of its type.
    Other(String),
}

impl From<Fault> for ReadError {
    fn from(fault: Fault) -> Self {
        Self { fault: Box::new(fault), path: Vec::new(), span: None, keys: None, is_text: false }
    }
}

impl ReadError {
    /// Returns the kind of the fault.
    pub(crate) fn fault(&self) -> &Fault {
        &self.fault
    }

    /// Returns the path of the value. For an unknown or missing key, returns the path of its table.
    pub(crate) fn path(&self) -> impl ExactSizeIterator<Item = &PathStep> {
        self.path.iter().rev()
    }

    /// Returns the byte range of the value or its key; `None` outside of a file.
    pub(crate) fn span(&self) -> Option<Range<usize>> {
        self.span.clone()
    }

    /// Sets the byte range, unless it was set for an inner value.
    pub(super) fn at(mut self, span: Option<Range<usize>>) -> Self {
        self.span = self.span.or(span);
        self
    }

    /// Sets the spelling of the keys in the fault, unless the fault is in an element of the value.
    pub(super) fn with_keys(mut self, keys: Option<Spelling>) -> Self {
        if self.path.is_empty() {
            self.keys = keys;
        }
        self
    }

    /// Records that the value is a text, unless the fault is in an element of the value.
    pub(super) fn of_text(mut self) -> Self {
        self.is_text |= self.path.is_empty();
        self
    }

    /// Adds a step at the start of the path.
    pub(super) fn under(mut self, step: PathStep) -> Self {
        self.path.push(step);
        self
    }

    /// Replaces a step of the path, counted from 0.
    pub(crate) fn with_step(mut self, index: usize, step: PathStep) -> Self {
        let steps = self.path.len();
        if let Some(own) = steps.checked_sub(index + 1).and_then(|place| self.path.get_mut(place)) {
            *own = step;
        }
        self
    }
}

impl std::error::Error for ReadError {}

impl de::Error for ReadError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Fault::Refused(message.to_string()).into()
    }

    fn invalid_type(present: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::invalid_value(present, expected)
    }

    fn invalid_value(present: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        let expected = Expected::Other(expected.to_string());
        Fault::Wrong { present: present.into(), expected }.into()
    }

    fn invalid_length(length: usize, expected: &dyn de::Expected) -> Self {
        let expected = Expected::Other(expected.to_string());
        Fault::Wrong { present: Present::ListOf(length), expected }.into()
    }

    fn unknown_variant(name: &str, known: &'static [&'static str]) -> Self {
        Fault::UnknownName(name.to_owned(), known).into()
    }

    fn unknown_field(key: &str, known: &'static [&'static str]) -> Self {
        Fault::UnknownKey(key.to_owned(), known).into()
    }

    fn missing_field(key: &'static str) -> Self {
        Fault::Missing(key).into()
    }

    fn duplicate_field(key: &'static str) -> Self {
        Fault::Twice(key).into()
    }
}

impl Present {
    /// Describes a value of a document.
    pub(super) fn of(node: &Node) -> Self {
        match node {
            Node::Null | Node::Removed => Self::Null,
            Node::Boolean(boolean) => Self::Plain(boolean.to_string()),
            Node::Natural(natural) => Self::Plain(natural.to_string()),
            Node::Negative(negative) => Self::Plain(negative.to_string()),
            Node::Float(float) => Self::Plain(format!("{float:?}")),
            Node::OutOfRange(text) => Self::Plain(format!("{text}, which is out of range")),
            Node::Text(text) | Node::Argument(text) => Self::Text(text.clone()),
            Node::Date(date) => Self::Date(date.clone()),
            Node::List(_) => Self::List,
            Node::Table(_) => Self::Table,
        }
    }
}

impl From<Unexpected<'_>> for Present {
    fn from(present: Unexpected<'_>) -> Self {
        match present {
            Unexpected::Unit | Unexpected::Option => Self::Null,
            Unexpected::Bool(boolean) => Self::Plain(boolean.to_string()),
            Unexpected::Unsigned(natural) => Self::Plain(natural.to_string()),
            Unexpected::Signed(integer) => Self::Plain(integer.to_string()),
            Unexpected::Float(float) => Self::Plain(format!("{float:?}")),
            Unexpected::Char(letter) => Self::Text(letter.to_string()),
            Unexpected::Str(text) => Self::Text(text.to_owned()),
            Unexpected::Seq => Self::List,
            Unexpected::Map => Self::Table,
            other => Self::Other(other.to_string()),
        }
    }
}
