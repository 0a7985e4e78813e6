//! Reads faulty files, and reports all errors at once.
//!
//! Each list entry and each table is read alone. When the reader finds an error in it, it notes the error,
//! removes the faulty value, and tries again until the rest can be read. So no error hides a later one. The
//! resulting configuration omits list entries with an error.

use std::ops::Range;

use crate::origin::error::Found;
use crate::origin::{LeftOut, Origin, WrongParts};
use crate::reading::{Document, Entry, Fault, Node, PathStep, Present, Tree};
use crate::schema::Config;

/// Readable parts of a file.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    pub config: Config,
    pub left_out: LeftOut,
}

impl Rest {
    /// Returns the configuration without the parts in `wrong`: faulty list entries are omitted, and faulty
    /// tables get their default values.
    pub fn without(self, wrong: &WrongParts, origin: &str, text: &str) -> Config {
        let Self { mut config, mut left_out } = self;
        let is_wrong = |table| wrong.contains(&(table, None));
        for (table, reset) in [
            ("router", (|config| config.router = Default::default()) as fn(&mut Config)),
            ("control-plane", |config| config.control_plane = Default::default()),
            ("connections", |config| config.connections = Default::default()),
            ("admission", |config| config.admission = Default::default()),
            ("plugins", |config| config.plugins = Default::default()),
            ("api", |config| config.api = Default::default()),
        ] {
            if is_wrong(table) {
                reset(&mut config);
                left_out.kept.insert(table.to_owned(), Vec::new());
            }
        }
        left_out.leave_out("port", &mut config.port, wrong);
        left_out.leave_out("route", &mut config.route, wrong);
        left_out.leave_out("neighbour", &mut config.neighbour, wrong);
        left_out.leave_out("plugin", &mut config.plugin, wrong);
        left_out.leave_out("instance", &mut config.instance, wrong);
        left_out.leave_out("gate", &mut config.gate, wrong);
        left_out.leave_out("bind", &mut config.bind, wrong);
        left_out.leave_out("filter", &mut config.filter, wrong);
        left_out.leave_out("place", &mut config.place, wrong);
        left_out.leave_out("principal", &mut config.principal, wrong);
        config.origin = Origin::of_rest(origin, text, left_out);
        config
    }
}

/// Reads the readable parts of a file, and notes the errors. Returns `None` if the text is not TOML.
pub(crate) fn rest(text: &str, found: &mut Found) -> Option<Rest> {
    let document = Tree::of_toml(text).map_err(|error| found.note(error.span, error.problem.into())).ok()?;
    let Node::Table(tables) = document.node else { return None };
    let mut left_out = LeftOut::default();
    let read = |table| read_table(table, found, &mut left_out);
    let mended = Node::Table(tables.into_iter().filter_map(read).collect());
    Some(Rest { config: Tree::from(mended).read().ok()?, left_out })
}

fn read_table(Entry { key, span, value }: Entry, found: &mut Found, left_out: &mut LeftOut) -> Option<Entry> {
    let value_span = value.span.clone();
    let before = found.len();
    let entries = match value.node {
        Node::List(entries) => entries,
        _ => {
            let mended = Alone { key: &key, key_span: &span, index: None }.read(value, found);
            if found.len() > before {
                left_out.kept.insert(key.clone(), Vec::new());
            }
            return mended.map(|value| Entry { key, span, value });
        }
    };
    // Reading an empty list shows whether a configuration has a list of this name.
    let none = Tree { node: Node::List(Vec::new()), span: value_span.clone() };
    Alone { key: &key, key_span: &span, index: None }.read(none, found)?;
    let (count, mut kept, mut indices) = (entries.len(), Vec::new(), Vec::new());
    for (index, entry) in entries.into_iter().enumerate() {
        let before = found.len();
        let name = entry.entry("name").and_then(|entry| entry.value.as_text()).map(str::to_owned);
        match (Alone { key: &key, key_span: &span, index: Some(index) }).read(entry, found) {
            Some(whole) if found.len() == before => {
                kept.push(whole);
                indices.push(index);
            }
            _ => left_out.names.entry(key.clone()).or_default().extend(name),
        }
    }
    if kept.len() < count {
        left_out.kept.insert(key.clone(), indices);
    }
    Some(Entry { key, span, value: Tree { node: Node::List(kept), span: value_span } })
}

/// Table or list entry, read as if it were the only content of the file.
struct Alone<'a> {
    key: &'a str,
    key_span: &'a Option<Range<usize>>,
    /// Index of the entry in its list; `None` for a table.
    index: Option<usize>,
}

impl Alone<'_> {
    /// Returns the item without its faulty values, and notes an error for each of them. Returns `None` if the
    /// item can't be read even without them.
    fn read(&self, mut item: Tree, found: &mut Found) -> Option<Tree> {
        let depth = 1 + usize::from(self.index.is_some());
        // Tables and lists from which a faulty value was removed.
        let mut mended: Vec<Vec<PathStep>> = Vec::new();
        loop {
            let Err(error) = self.document(item.clone()).read::<Config>() else { return Some(item) };
            let error = match self.index {
                Some(index) => error.with_step(1, PathStep::Entry(index)),
                None => error,
            };
            let steps: Vec<PathStep> = error.path().skip(depth).cloned().collect();
            // If a misspelt key is removed, the correct key is missing. If a faulty element is removed, its
            // list is too short. These errors only follow from the first error, so they are not noted.
            let is_result =
                matches!(error.fault(), Fault::Missing(_) | Fault::Wrong { present: Present::ListOf(_), .. });
            if !(is_result && mended.contains(&steps)) {
                found.note(error.span(), error.message(Document::File));
            }
            if error.path().len() < depth {
                return None;
            }
            let mut holder = steps;
            let faulty = match error.fault() {
                Fault::UnknownKey(key, _) => PathStep::Key(key.clone()),
                _ => holder.pop()?,
            };
            remove(&mut item, &holder, &faulty)?;
            mended.push(holder);
        }
    }

    /// Returns a document that contains only this item.
    fn document(&self, item: Tree) -> Tree {
        let span = item.span.clone();
        let value = match self.index {
            Some(_) => Tree { node: Node::List(vec![item]), span },
            None => item,
        };
        Node::Table(vec![Entry { key: self.key.to_owned(), span: self.key_span.clone(), value }]).into()
    }
}

/// Removes an element from the table or list at `path`. Returns `None` if there is no such element.
fn remove(item: &mut Tree, path: &[PathStep], element: &PathStep) -> Option<()> {
    let holder = path.iter().try_fold(item, |item, step| match (step, &mut item.node) {
        (PathStep::Key(key) | PathStep::Setting(key), Node::Table(entries)) => {
            entries.iter_mut().find(|entry| entry.key == *key).map(|entry| &mut entry.value)
        }
        (PathStep::Entry(index), Node::List(list)) => list.get_mut(*index),
        _ => None,
    })?;
    match (element, &mut holder.node) {
        (PathStep::Key(key) | PathStep::Setting(key), Node::Table(entries)) => {
            let place = entries.iter().position(|entry| entry.key == *key)?;
            entries.remove(place);
        }
        (PathStep::Entry(index), Node::List(list)) => list.get_mut(*index)?.node = Node::Removed,
        _ => return None,
    }
    Some(())
}
