//! The text that a configuration was read from, to tell where in it stands what is found to be wrong only when names and
//! sums are looked at together.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use toml_edit::{Document, Item};

use crate::error::{ConfigError, Place};

/// Parts of a configuration in which something is wrong: entries of lists, and tables.
pub(crate) type WrongParts = HashSet<(&'static str, Option<usize>)>;

/// Entries that were left out of a configuration, since something is wrong in them.
#[derive(Debug, Default)]
pub(crate) struct LeftOut {
    /// Of each list in which something is wrong: where in the file stand the entries that were kept.
    pub kept: HashMap<String, Vec<usize>>,
    /// The names of those that were not.
    pub names: HashMap<String, Vec<String>>,
}

impl LeftOut {
    /// Where in the file's list an entry stands.
    pub fn index(&self, list: &str, index: usize) -> usize {
        self.kept.get(list).and_then(|kept| kept.get(index)).copied().unwrap_or(index)
    }

    /// Leaves out of a list what is wrong there as well, by its index in what was left so far.
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

    /// The names of what was left out of a list.
    pub fn names(&self, list: &str) -> impl Iterator<Item = &str> {
        self.names.get(list).into_iter().flatten().map(String::as_str)
    }

    /// Whether something is.
    pub fn is_any(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Whether something is wrong in that table, or in entries of that list.
    pub fn is_wrong(&self, table: &str) -> bool {
        self.kept.contains_key(table)
    }
}

/// A file's name and its text; nothing, where a configuration comes from no file. It is no part of what a configuration
/// says: any two are equal.
#[derive(Clone, Default)]
pub struct Origin(Option<Arc<Known>>);

/// A file's name and its text.
struct Known {
    name: String,
    text: String,
    /// What is not in the configuration, of what the text says.
    left_out: LeftOut,
    /// The text with the places of everything in it, once somebody asks; `None` where it can't be read.
    document: OnceLock<Option<Document<String>>>,
}

impl Origin {
    pub(crate) fn new(name: &str, text: &str) -> Self {
        Self::of_rest(name, text, LeftOut::default())
    }

    /// The same of a configuration that lacks parts of the text.
    pub(crate) fn of_rest(name: &str, text: &str, left_out: LeftOut) -> Self {
        Self(Some(Arc::new(Known {
            name: name.to_owned(),
            text: text.to_owned(),
            left_out,
            document: OnceLock::new(),
        })))
    }

    /// Where in the text stands what these steps lead to, or as far as there is something.
    pub(crate) fn span(&self, path: &[Step<'_>]) -> Option<Range<usize>> {
        self.0.as_ref()?.span(path)
    }

    /// Returns the wrong entries of the text, which the configuration omits; `None` without a file.
    pub(crate) fn left_out(&self) -> Option<&LeftOut> {
        self.0.as_ref().map(|known| &known.left_out)
    }

    /// Returns an error about what stands where these steps lead, or as far as there is something.
    pub(crate) fn error_at(&self, path: &[Step<'_>], problem: &str) -> Option<ConfigError> {
        let known = self.0.as_ref()?;
        let place = Place::of(known.span(path), &known.text, &known.name);
        Some(ConfigError { place, problem: problem.to_owned() })
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

/// A step from a table or list to what is in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step<'a> {
    /// The value of a key.
    Key(&'a str),
    /// A key itself, for what is wrong with its name as well as with its value.
    Name(&'a str),
    /// An entry of a list, from 0.
    Entry(usize),
}

impl Known {
    fn span(&self, path: &[Step<'_>]) -> Option<Range<usize>> {
        let document = self.document.get_or_init(|| Document::parse(self.text.clone()).ok());
        let (mut item, mut span) = (document.as_ref()?.as_item(), None);
        for (depth, step) in path.iter().enumerate() {
            let step = match (depth, path.first(), step) {
                (1, Some(Step::Key(list)), Step::Entry(index)) => {
                    Step::Entry(self.left_out.index(list, *index))
                }
                _ => *step,
            };
            let Some((next, there)) = into(item, step) else { break };
            item = next;
            span = there.or(span);
        }
        span
    }
}

fn into<'i>(item: &'i Item, step: Step<'_>) -> Option<(&'i Item, Option<Range<usize>>)> {
    let next = match step {
        Step::Key(key) => item.get(key)?,
        Step::Entry(index) => item.get(index)?,
        Step::Name(key) => {
            let (name, value) = item.as_table_like()?.get_key_value(key)?;
            return Some((value, name.span()));
        }
    };
    Some((next, next.span()))
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
        let at = |path: &[Step]| config.error_at(path, "p").unwrap().to_string();
        let (port, scheduler) = ([Step::Key("port"), Step::Entry(1)], Step::Key("scheduler"));
        let node = |index, key| [port[0], port[1], scheduler, Step::Key("node"), Step::Entry(index), key];
        assert_eq!(at(&node(0, Step::Key("kind"))), "f:11:26: p");
        // What isn't there is told at what would have it.
        assert_eq!(at(&node(0, Step::Key("under"))), "f:11:5: p");
        assert_eq!(at(&node(1, Step::Key("under"))), "f:10:8: p");
        assert_eq!(at(&node(0, Step::Name("kind"))), "f:11:19: p");
        assert_eq!(at(&[]), "f: p");
        assert_eq!(Config::default().error_at(&[], "p"), None);
        // Tables of tables as well.
        let tables = TEXT.replace(
            "node = [\n    { name = \"x\", kind = \"fifo\" },\n]",
            "[[port.scheduler.node]]\nname = \"x\"\nkind = \"fifo\"",
        );
        let config = Config::parse(&tables, "f").unwrap();
        assert_eq!(config.error_at(&node(0, Step::Key("kind")), "p").unwrap().to_string(), "f:12:8: p");
    }
}
