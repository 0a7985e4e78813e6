//! Checks a configuration across its tables.

mod allowances;
mod port_files;
mod ports;
mod principals;
mod tables;
mod traffic;

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::ops::Range;

use millrace_plugin_abi::DEFAULT_GATES;
use millrace_units::{Message, remedy};

use crate::origin::error::Found;
use crate::origin::{LeftOut, Step, WrongParts};
use crate::schema::{Config, Principal};
use crate::values::Named;

struct Checker<'a> {
    config: &'a Config,
    left_out: &'a LeftOut,
    found: RefCell<&'a mut Found>,
    /// Table, or entry of a list, that is being checked.
    place: Cell<Option<(&'static str, Option<usize>)>>,
    wrong: RefCell<WrongParts>,
}

/// Problem and its byte range in the file.
type Wrong = (Option<Range<usize>>, Message);

type Checked = Result<(), Wrong>;

/// Location of a problem in the file.
enum At<'a> {
    /// This byte range, if it is known.
    Span(Option<Range<usize>>),
    /// Value of a key in a table: the table and the key.
    Key(&'a str, &'a str),
    /// Value in a list entry: the list, the index of the entry, and the path of keys. Example: `port`, 0,
    /// `impair`, `loss`.
    Entry(&'a str, usize, &'a [&'a str]),
}

impl From<Option<Range<usize>>> for At<'_> {
    fn from(span: Option<Range<usize>>) -> Self {
        Self::Span(span)
    }
}

/// Checks the tables against each other, and notes the problems. Skips the parts in `left_out`. Returns the
/// parts with problems.
pub(crate) fn check(config: &Config, left_out: &LeftOut, found: &mut Found) -> WrongParts {
    let found = RefCell::new(found);
    let checker = Checker { config, left_out, found, place: Cell::default(), wrong: RefCell::default() };
    checker.at("router", None).router();
    checker.at("control-plane", None).control_plane();
    checker.at("connections", None).connections();
    checker.at("plugins", None).plugins(&config.plugins);
    checker.at("api", None).api(&config.api);
    checker.unique("port", config.port.iter().map(|port| &port.name));
    checker.unique("instance", config.instance.iter().map(|instance| &instance.name));
    checker.unique("gate", config.gate.iter().map(|gate| &gate.name));
    checker.files();
    config
        .port
        .iter()
        .enumerate()
        .for_each(|(index, port)| checker.note(checker.at("port", Some(index)).port(index, port)));
    checker.devices();
    checker.port_files();
    checker.routes();
    checker.each("neighbour", &config.neighbour, |neighbour| checker.known("port", &neighbour.port));
    checker.places();
    checker.principals();
    checker.allowances();
    checker.each("instance", &config.instance, |instance| checker.service(instance));
    checker.each("gate", &config.gate, |gate| checker.gate(gate));
    checker.each("bind", &config.bind, |bind| checker.binding(bind));
    checker.each("filter", &config.filter, |filter| checker.filter(filter));
    // This problem belongs to no single entry.
    checker.place.set(None);
    checker.note(checker.death());
    checker.wrong.into_inner()
}

/// Returns the names of all gates.
fn gates(config: &Config) -> impl Iterator<Item = &str> {
    let own = config.gate.iter().map(|gate| &*gate.name).filter(|name| !is_default(name));
    DEFAULT_GATES.iter().map(|(name, _)| *name).chain(own)
}

/// Whether the gate is one of the default gates.
fn is_default(gate: &str) -> bool {
    DEFAULT_GATES.iter().any(|(name, _)| *name == gate)
}

/// Maximum number of `[[place]]` entries in a configuration. Workers compare a flow with one entry after
/// another.
pub const MOST_PLACEMENTS: usize = 256;

/// Maximum number of comparisons that all `[[place]]` entries together need for a flow.
pub const MOST_PLACED_COMPARISONS: usize = 4096;

impl Checker<'_> {
    /// Sets the part to which all following problems belong: a table, or an entry of a list.
    fn at(&self, part: &'static str, entry: Option<usize>) -> &Self {
        self.place.set(Some((part, entry)));
        self
    }

    /// Checks each entry of a list.
    fn each<T>(&self, list: &'static str, entries: &[T], check: impl Fn(&T) -> Checked) {
        for (index, entry) in entries.iter().enumerate() {
            self.at(list, Some(index)).note(check(entry));
        }
    }

    /// Returns the byte range of a location in the file. Callers compute it only if there is a problem.
    fn span(&self, at: At<'_>) -> Option<Range<usize>> {
        let origin = &self.config.origin;
        match at {
            At::Span(span) => span,
            At::Key(table, key) => origin.span(&[Step::Key(table), Step::Key(key)]),
            At::Entry(list, index, keys) => {
                let steps = [Step::Key(list), Step::Entry(self.left_out.index(list, index))].into_iter();
                origin.span(&steps.chain(keys.iter().copied().map(Step::Key)).collect::<Vec<_>>())
            }
        }
    }

    /// Records the problem of a failed check.
    fn note(&self, checked: Checked) {
        if let Err((span, problem)) = checked {
            self.wrong.borrow_mut().extend(self.place.get());
            self.found.borrow_mut().note(span, problem);
        }
    }

    fn require<'a, M: Into<Message>>(
        &self,
        holds: bool,
        at: impl Into<At<'a>>,
        problem: impl FnOnce() -> M,
    ) -> Checked {
        if holds { Ok(()) } else { Err((self.span(at.into()), problem().into())) }
    }

    /// Notes a problem with a value of a table if `holds` is false.
    fn value<M: Into<Message>>(&self, holds: bool, table: &str, key: &str, problem: impl FnOnce() -> M) {
        self.note(self.require(holds, At::Key(table, key), problem));
    }

    fn files(&self) {
        for (index, plugin) in self.config.plugin.iter().enumerate() {
            self.at("plugin", Some(index));
            let at = At::Entry("plugin", index, &["file"]);
            self.note(self.require(plugin.file.is_absolute(), at, || {
                format!(
                    "plugin file {:?} is relative: give an absolute path, which begins with /",
                    plugin.file
                )
            }));
        }
    }

    fn unique<'a>(&self, noun: &'static str, names: impl Iterator<Item = &'a Named>) {
        let mut seen = HashSet::new();
        for (index, name) in names.enumerate() {
            self.at(noun, Some(index));
            let plain = !name.is_empty()
                && name.len() <= 63
                && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:".contains(c));
            self.note(self.require(plain, name.span(), || {
                format!("invalid {noun} name {:?}: give 1 to 63 ASCII letters, digits or - _ . :", &**name)
            }));
            self.note(self.require(seen.insert(&**name), name.span(), || {
                format!("{noun} name {:?} is used twice: give each {noun} its own name", &**name)
            }));
        }
    }

    /// Returns the names of all entries of a kind (`noun`), including entries with problems.
    fn names<'c>(&'c self, noun: &'c str) -> Vec<&'c str> {
        let config = self.config;
        let mut names: Vec<&str> = match noun {
            "port" => config.port.iter().map(|port| &*port.name).collect(),
            "instance" => config.instance.iter().map(|instance| &*instance.name).collect(),
            "principal" => {
                let own = config.principal.iter().map(|principal| &*principal.name);
                std::iter::once(Principal::DEFAULT).chain(own).collect()
            }
            _ => gates(config).collect(),
        };
        names.extend(self.left_out.names(noun));
        names
    }

    fn known(&self, noun: &str, name: &Named) -> Checked {
        self.known_at(name.span(), noun, name)
    }

    fn known_at(&self, span: Option<Range<usize>>, noun: &str, name: &str) -> Checked {
        let known = self.names(noun);
        self.require(known.contains(&name), span, || {
            format!("no {noun} is named {name:?}{}", remedy(noun, name, known.iter().copied()))
        })
    }
}
