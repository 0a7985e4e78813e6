//! Source text of a configuration. Checks that run after reading locate their errors in it.

pub(crate) mod error;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use millrace_units::Message;

use crate::reading::Tree;
use error::{ConfigError, Place};

/// Faulty parts of a configuration: list entries (list and index), and tables (no index).
pub(crate) type WrongParts = HashSet<(&'static str, Option<usize>)>;

/// Faulty parts that were omitted from a configuration.
#[derive(Debug, Default)]
pub(crate) struct LeftOut {
    /// For each list with a faulty entry, the indices of the kept entries in the file. For a faulty table, an
    /// empty list of indices.
    pub kept: HashMap<String, Vec<usize>>,
    /// Names of the omitted entries, by list.
    pub names: HashMap<String, Vec<String>>,
}

impl LeftOut {
    /// Returns the index that a kept entry has in the file.
    pub fn index(&self, list: &str, index: usize) -> usize {
        self.kept.get(list).and_then(|kept| kept.get(index)).copied().unwrap_or(index)
    }

    /// Omits further faulty entries from a list. `wrong` names them by their indices among the entries that
    /// were kept so far.
    pub fn leave_out<T>(&mut self, list: &'static str, entries: &mut Vec<T>, wrong: &WrongParts) {
        let is_right = |index: usize| !wrong.contains(&(list, Some(index)));
        if (0..entries.len()).all(is_right) {
            return;
        }
        let kept = (0..entries.len()).filter(|index| is_right(*index));
        let kept = kept.map(|index| self.index(list, index)).collect();
        self.kept.insert(list.to_owned(), kept);
        let mut index = 0..;
        entries.retain(|_| index.next().is_some_and(is_right));
    }

    /// Returns the names of the omitted entries of a list.
    pub fn names(&self, list: &str) -> impl Iterator<Item = &str> {
        self.names.get(list).into_iter().flatten().map(String::as_str)
    }

    /// Whether any part is omitted.
    pub fn is_any(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Whether a table, or at least one entry of a list, is faulty.
    pub fn is_wrong(&self, table: &str) -> bool {
        self.kept.contains_key(table)
    }
}

/// Name and text of the file from which a configuration was read; empty without a file. All origins are equal
/// in comparisons, so configurations from different files can be equal.
#[derive(Clone, Default)]
pub struct Origin(Option<Arc<Known>>);

/// Name and text of a file.
struct Known {
    name: String,
    text: String,
    /// Parts of the text that the configuration omits as faulty.
    left_out: LeftOut,
    /// Parsed text with byte ranges, set on first use; `None` if it can't be parsed.
    document: OnceLock<Option<Tree>>,
}

impl Origin {
    pub(crate) fn new(name: &str, text: &str) -> Self {
        Self::of_rest(name, text, LeftOut::default())
    }

    /// Creates the origin of a configuration that omits parts of the text.
    pub(crate) fn of_rest(name: &str, text: &str, left_out: LeftOut) -> Self {
        Self(Some(Arc::new(Known {
            name: name.to_owned(),
            text: text.to_owned(),
            left_out,
            document: OnceLock::new(),
        })))
    }

    /// Returns the byte range of the value at `path`, or of the longest part of `path` that exists.
    pub(crate) fn span(&self, path: &[Step<'_>]) -> Option<Range<usize>> {
        self.0.as_ref()?.span(path)
    }

    /// Returns the faulty parts of the text that the configuration omits; `None` without a file.
    pub(crate) fn left_out(&self) -> Option<&LeftOut> {
        self.0.as_ref().map(|known| &known.left_out)
    }

    /// Returns `problem` as an error at the position of the value at `path`, or of the longest part of `path`
    /// that exists. Returns `None` without a file.
    pub(crate) fn error_at(&self, path: &[Step<'_>], problem: Message) -> Option<ConfigError> {
        let known = self.0.as_ref()?;
        let place = Place::of(known.span(path), &known.text, &known.name);
        Some(ConfigError { place, problem })
    }
}

impl PartialEq for Origin {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_ref().map_or("no file", |known| &known.name))
    }
}

/// Step from a table or list to an item in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step<'a> {
    /// The value of a key.
    Key(&'a str),
    /// The key itself, for an error that concerns both its name and its value.
    Name(&'a str),
    /// An entry of a list, counted from 0.
    Entry(usize),
}

impl Known {
    fn span(&self, path: &[Step<'_>]) -> Option<Range<usize>> {
        let document = self.document.get_or_init(|| Tree::of_toml(&self.text).ok());
        let (mut value, mut span) = (document.as_ref()?, None);
        for (depth, step) in path.iter().enumerate() {
            let next = match (depth, path.first(), step) {
                (1, Some(Step::Key(list)), Step::Entry(index)) => {
                    value.element(self.left_out.index(list, *index))
                }
                (_, _, Step::Entry(index)) => value.element(*index),
                (_, _, Step::Key(key)) => value.entry(key).map(|entry| &entry.value),
                (_, _, Step::Name(key)) => {
                    return value.entry(key).and_then(|entry| entry.span.clone()).or(span);
                }
            };
            let Some(next) = next else { break };
            value = next;
            span = value.span.clone().or(span);
        }
        span
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    const TEXT: &str = "[[port]]\nname = \"a\"\nkind = \"memory\"\n\n[[port]]\nname = \"b\"\nkind = \"memory\"\n\n\
                        [port.scheduler]\nnode = [\n    { name = \"x\", kind = \"fifo\" },\n]\n";

    #[test]
    fn steps_lead_to_lines_and_columns() {
        let config = Config::parse(TEXT, "f").unwrap();
        let at = |path: &[Step]| config.error_at(path, "p".into()).unwrap().to_string();
        let (port, scheduler) = ([Step::Key("port"), Step::Entry(1)], Step::Key("scheduler"));
        let node = |index, key| [port[0], port[1], scheduler, Step::Key("node"), Step::Entry(index), key];
        assert_eq!(at(&node(0, Step::Key("kind"))), "f:11:26: p");
        // An error about a missing key has the position of the table that lacks the key.
        assert_eq!(at(&node(0, Step::Key("under"))), "f:11:5: p");
        assert_eq!(at(&node(1, Step::Key("under"))), "f:10:8: p");
        assert_eq!(at(&node(0, Step::Name("kind"))), "f:11:19: p");
        assert_eq!(at(&[]), "f: p");
        assert_eq!(Config::default().error_at(&[], "p".into()), None);
        // Positions are also right for nested tables with headings.
        let tables = TEXT.replace(
            "node = [\n    { name = \"x\", kind = \"fifo\" },\n]",
            "[[port.scheduler.node]]\nname = \"x\"\nkind = \"fifo\"",
        );
        let config = Config::parse(&tables, "f").unwrap();
        assert_eq!(
            config.error_at(&node(0, Step::Key("kind")), "p".into()).unwrap().to_string(),
            "f:12:8: p"
        );
    }
}
