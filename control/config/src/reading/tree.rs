//! Values of a document, with their byte ranges in a file.

use std::fmt;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

/// Maximum nesting depth of a TOML document, the same as for JSON. The parser allows 6,400 levels: dotted
/// keys of 80 parts in inline tables of 80 levels.
const MOST_LEVELS: usize = 128;

/// Messages of the TOML parser about nesting that is deeper than its limit of 80.
const PARSER_LIMITS: [&str; 2] = ["recursion limit", "cannot recurse further; max recursion depth met"];

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
    /// TOML number beyond the range of its type, as written.
    OutOfRange(String),
    Text(String),
    /// Query argument: a text from which numbers and booleans can be read too.
    Argument(String),
    /// Date or time of TOML.
    Date(String),
    List(Vec<Tree>),
    /// Table: entries in the order of the document. A key that is given twice has two entries.
    Table(Vec<Entry>),
    /// Element that was removed from a list because it is faulty. The other elements keep their indices.
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
    /// Returns only the first syntax error, because after a missing brace or quote everything else looks
    /// wrong.
    pub(crate) fn of_toml(text: &str) -> Result<Self, SyntaxError> {
        let (document, errors) = DeTable::parse_recoverable(text);
        let (span, document) = (document.span(), document.into_inner());
        let error = errors.into_iter().next().map(SyntaxError::from);
        match error.or_else(|| too_deep(&document)) {
            Some(error) => {
                dismantle(document);
                Err(error)
            }
            None => Ok(Self { node: Node::Table(entries(document)), span: Some(span) }),
        }
    }

    /// Returns the arguments of a query as a table of texts.
    pub fn of_arguments(arguments: impl IntoIterator<Item = (String, String)>) -> Self {
        let entry = |(key, text)| Entry { key, span: None, value: Node::Argument(text).into() };
        Node::Table(arguments.into_iter().map(entry).collect()).into()
    }

    /// Whether the value is still in its list; false if it was removed as faulty.
    pub(super) fn is_there(&self) -> bool {
        !matches!(self.node, Node::Removed)
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

/// Syntax error of a TOML document.
#[derive(Clone, Debug)]
pub(crate) struct SyntaxError {
    pub span: Option<Range<usize>>,
    /// Problem, on one line.
    pub problem: String,
}

impl SyntaxError {
    fn too_deep(span: Option<Range<usize>>) -> Self {
        let problem = "tables and lists are nested too deeply: use 80 levels at most";
        Self { span, problem: problem.to_owned() }
    }
}

impl From<toml::de::Error> for SyntaxError {
    fn from(error: toml::de::Error) -> Self {
        if PARSER_LIMITS.contains(&error.message()) {
            return Self::too_deep(error.span());
        }
        Self { span: error.span(), problem: error.message().lines().collect::<Vec<_>>().join(" ") }
    }
}

/// Returns the error for a document that is nested deeper than [`MOST_LEVELS`]; `None` for any other
/// document. The search is not recursive.
fn too_deep(document: &DeTable<'_>) -> Option<SyntaxError> {
    let mut left: Vec<_> = document.values().map(|value| (1, value)).collect();
    while let Some((level, value)) = left.pop() {
        if level > MOST_LEVELS {
            return Some(SyntaxError::too_deep(Some(value.span())));
        }
        match value.get_ref() {
            DeValue::Array(list) => left.extend(list.iter().map(|value| (level + 1, value))),
            DeValue::Table(table) => left.extend(table.values().map(|value| (level + 1, value))),
            _ => {}
        }
    }
    None
}

/// Drops a document level by level. A recursive drop of a deeply nested value would overflow the stack.
fn dismantle(document: DeTable<'_>) {
    let mut left: Vec<_> = document.into_iter().map(|(_, value)| value).collect();
    while let Some(value) = left.pop() {
        match value.into_inner() {
            DeValue::Array(list) => left.extend(list),
            DeValue::Table(table) => left.extend(table.into_iter().map(|(_, value)| value)),
            _ => {}
        }
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

/// Returns the prefix of TOML integers with a given radix.
fn prefix(radix: u32) -> &'static str {
    match radix {
        2 => "0b",
        8 => "0o",
        16 => "0x",
        _ => "",
    }
}

/// Whether a float is literally `inf` or `nan`, as opposed to a number too large for its type.
fn is_infinite(text: &str) -> bool {
    text.ends_with("inf") || text.ends_with("nan")
}

impl From<Value> for Tree {
    /// Converts a JSON value.
    fn from(value: Value) -> Self {
        Self::deserialize(value).unwrap_or_else(|_| Node::Null.into())
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
    use super::*;
    use crate::Config;

    /// Runs a test on a thread with a stack of this size, in KiB. Threads have 2 MiB by default.
    fn on_stack_of(kibibytes: usize, test: impl FnOnce() + Send + 'static) {
        std::thread::Builder::new().stack_size(kibibytes << 10).spawn(test).unwrap().join().unwrap();
    }

    /// Returns a configuration with nested settings.
    fn nested(levels: usize, open: &str, close: &str) -> String {
        let (open, close) = (open.repeat(levels), close.repeat(levels));
        format!("[[instance]]\nplugin = \"p\"\nname = \"i\"\nsettings.x = {open}1{close}\n")
    }

    #[test]
    fn deeply_nested_toml_is_refused_on_a_small_stack() {
        on_stack_of(512, || {
            let keys = "a.".repeat(78) + "a";
            let dotted = |levels: usize| "a.".repeat(levels) + "a = 1\n";
            for text in [
                nested(80, &format!("{{{keys} = "), "}"),
                nested(80, &format!("{{{keys} = "), "}") + "wrong\n",
                nested(100_000, "{a = ", "}"),
                nested(100_000, "[", "]"),
                nested(100_000, "[", ""),
                nested(40, "[{a.a.a.a = ", "}]"),
                dotted(100_000),
                format!("[{}a]\n", "a.".repeat(100_000)),
                format!("x = {{ {} }}\n", dotted(100_000).trim()),
            ] {
                let error = Config::parse(&text, "f").unwrap_err().to_string();
                let is_syntax = text.ends_with("wrong\n");
                assert!(
                    is_syntax || error.contains(": tables and lists are nested too deeply: use 80 levels"),
                    "{error}"
                );
            }
        });
    }

    #[test]
    fn values_of_the_largest_depth_are_read_on_a_small_stack() {
        on_stack_of(2048, || {
            for text in [nested(77, "[", "]"), nested(77, "{a = ", "}"), nested(31, "[{a.a.a = ", "}]")] {
                let config = Config::parse(&text, "f").unwrap();
                let saved = config.save_into(&text, "f").unwrap();
                assert_eq!(Config::parse(&saved, "f").unwrap(), config);
                // The reader of faulty files accepts the same depth.
                let faulty = format!("{text}plugins = 5\n");
                assert!(Config::parse(&faulty, "f").unwrap_err().to_string().contains("plugins"));
            }
        });
    }

    #[test]
    fn deeply_nested_json_is_refused_on_a_small_stack() {
        on_stack_of(2048, || {
            for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("[{\"a\":", "}]")] {
                let text = open.repeat(100_000) + "1" + &close.repeat(100_000);
                let error = serde_json::from_str::<Tree>(&text).unwrap_err().to_string();
                assert!(error.contains("recursion limit exceeded"), "{error}");
            }
            let text = "[".repeat(127) + &"]".repeat(127);
            let read = serde_json::from_str::<Tree>(&text).unwrap().read::<Value>().unwrap();
            assert_eq!(read.to_string(), text);
        });
    }

    #[test]
    fn numbers_beyond_their_range_are_refused_as_written() {
        for number in ["18446744073709551616", "-9223372036854775809", "0x10000000000000000", "1e400"] {
            let text = format!("[[instance]]\nplugin = \"p\"\nname = \"i\"\nsettings = {{ x = {number} }}\n");
            let refused = Config::parse(&text, "test").unwrap_err().to_string();
            assert!(refused.contains(&format!("{number}, which is out of range")), "{refused}");
        }
    }
}
