//! Values of a document, with their byte ranges in a file.

use std::fmt;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

/// Value of a document, with its byte range if the document is a file.
#[derive(Clone, Debug)]
pub struct Tree {
    pub(crate) node: Node,
    pub(crate) span: Option<Range<usize>>,
}

/// Value without its byte range.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    Null,
    Boolean(bool),
    Natural(u64),
    Negative(i64),
    Float(f64),
    /// Number of TOML beyond the range of its type, as written.
    OutOfRange(String),
    Text(String),
    /// Query argument: text from which numbers and booleans are read too.
    Argument(String),
    /// Date or time of TOML.
    Date(String),
    List(Vec<Tree>),
    /// Entries in the order of the document. A key that is given twice has two entries.
    Table(Vec<Entry>),
    /// Faulty element that was removed from a list. The other elements keep their indices.
    Removed,
}

/// Key of a table, and its value.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub key: String,
    /// Byte range of the key.
    pub span: Option<Range<usize>>,
    pub value: Tree,
}

impl Tree {
    /// Parses a TOML document.
    ///
    /// # Errors
    /// The first syntax error: behind one missing brace or quote everything else looks wrong.
    pub(crate) fn of_toml(text: &str) -> Result<Self, toml::de::Error> {
        let (document, errors) = DeTable::parse_recoverable(text);
        match errors.into_iter().next() {
            Some(error) => Err(error),
            None => {
                let span = document.span();
                Ok(Self { node: Node::Table(entries(document.into_inner())), span: Some(span) })
            }
        }
    }

    /// Returns the arguments of a query as a table.
    pub fn of_arguments(arguments: impl IntoIterator<Item = (String, String)>) -> Self {
        let entry = |(key, text)| Entry { key, span: None, value: Node::Argument(text).into() };
        Node::Table(arguments.into_iter().map(entry).collect()).into()
    }

    /// Whether the value is a table.
    pub fn is_table(&self) -> bool {
        matches!(self.node, Node::Table(_))
    }

    /// Returns the entries of a list; `None` for any other value.
    pub fn into_list(self) -> Option<Vec<Self>> {
        match self.node {
            Node::List(list) => Some(list),
            _ => None,
        }
    }

    /// Returns the entry of a key; `None` for a missing key, or a value that is no table.
    pub(crate) fn entry(&self, key: &str) -> Option<&Entry> {
        match &self.node {
            Node::Table(entries) => entries.iter().find(|entry| entry.key == key),
            _ => None,
        }
    }

    /// Returns an element of a list; `None` for a missing element, or a value that is no list.
    pub(crate) fn element(&self, index: usize) -> Option<&Self> {
        match &self.node {
            Node::List(list) => list.get(index),
            _ => None,
        }
    }

    /// Returns a text; `None` for any other value.
    pub(crate) fn as_text(&self) -> Option<&str> {
        match &self.node {
            Node::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl From<Node> for Tree {
    /// Creates a value outside of any file.
    fn from(node: Node) -> Self {
        Self { node, span: None }
    }
}

type DeEntry<'t> = (Spanned<DeString<'t>>, Spanned<DeValue<'t>>);

fn entries<'t>(table: impl IntoIterator<Item = DeEntry<'t>>) -> Vec<Entry> {
    let entry = |(key, value): DeEntry<'t>| {
        let span = Some(key.span());
        Entry { key: key.into_inner().into_owned(), span, value: of_toml(value) }
    };
    table.into_iter().map(entry).collect()
}

fn of_toml(value: Spanned<DeValue<'_>>) -> Tree {
    let span = Some(value.span());
    let node = match value.into_inner() {
        DeValue::String(text) => Node::Text(text.into_owned()),
        DeValue::Integer(integer) => {
            let (digits, radix) = (integer.as_str(), integer.radix());
            match (u64::from_str_radix(digits, radix), i64::from_str_radix(digits, radix)) {
                (Ok(natural), _) => Node::Natural(natural),
                (_, Ok(negative)) => Node::Negative(negative),
                _ => Node::OutOfRange(format!("{}{digits}", prefix(radix))),
            }
        }
        DeValue::Float(float) => match float.as_str().parse::<f64>() {
            Ok(number) if number.is_finite() || is_infinite(float.as_str()) => Node::Float(number),
            _ => Node::OutOfRange(float.as_str().to_owned()),
        },
        DeValue::Boolean(boolean) => Node::Boolean(boolean),
        DeValue::Datetime(date) => Node::Date(date.to_string()),
        DeValue::Array(list) => Node::List(list.into_iter().map(of_toml).collect()),
        DeValue::Table(table) => Node::Table(entries(table)),
    };
    Tree { node, span }
}

/// Returns the prefix of TOML's integers of a radix.
fn prefix(radix: u32) -> &'static str {
    match radix {
        2 => "0b",
        8 => "0o",
        16 => "0x",
        _ => "",
    }
}

/// Whether a float is written as `inf` or `nan`, and not too large for its type.
fn is_infinite(text: &str) -> bool {
    text.ends_with("inf") || text.ends_with("nan")
}

impl From<Value> for Tree {
    /// Converts JSON.
    fn from(value: Value) -> Self {
        let node = match value {
            Value::Null => Node::Null,
            Value::Bool(boolean) => Node::Boolean(boolean),
            Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(natural), _) => Node::Natural(natural),
                (None, Some(negative)) => Node::Negative(negative),
                (None, None) => Node::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(text) => Node::Text(text),
            Value::Array(list) => Node::List(list.into_iter().map(Self::from).collect()),
            Value::Object(object) => {
                let entry = |(key, value): (String, Value)| Entry { key, span: None, value: value.into() };
                Node::Table(object.into_iter().map(entry).collect())
            }
        };
        node.into()
    }
}

/// Parses JSON.
impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

/// Visitor that takes any value.
struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Node::Null.into())
    }

    fn visit_bool<E>(self, boolean: bool) -> Result<Tree, E> {
        Ok(Node::Boolean(boolean).into())
    }

    fn visit_u64<E>(self, natural: u64) -> Result<Tree, E> {
        Ok(Node::Natural(natural).into())
    }

    fn visit_i64<E>(self, integer: i64) -> Result<Tree, E> {
        Ok(u64::try_from(integer).map_or(Node::Negative(integer), Node::Natural).into())
    }

    fn visit_f64<E>(self, float: f64) -> Result<Tree, E> {
        Ok(Node::Float(float).into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Tree, E> {
        Ok(Node::Text(text.to_owned()).into())
    }

    fn visit_string<E>(self, text: String) -> Result<Tree, E> {
        Ok(Node::Text(text).into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Tree, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = access.next_element()? {
            list.push(value);
        }
        Ok(Node::List(list).into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Tree, A::Error> {
        let mut entries = Vec::new();
        while let Some((key, value)) = access.next_entry()? {
            entries.push(Entry { key, span: None, value });
        }
        Ok(Node::Table(entries).into())
    }
}

#[cfg(test)]
mod tests {
    use crate::Config;

    #[test]
    fn numbers_beyond_their_range_are_refused_as_written() {
        for number in ["18446744073709551616", "-9223372036854775809", "0x10000000000000000", "1e400"] {
            let text = format!("[[instance]]\nplugin = \"p\"\nname = \"i\"\nsettings = {{ x = {number} }}\n");
            let refused = Config::parse(&text, "test").unwrap_err().to_string();
            assert!(refused.contains(&format!("{number}, which is out of range")), "{refused}");
        }
    }
}
