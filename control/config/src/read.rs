//! Reader of faulty files, which reports all errors at once.
//!
//! The reader reads each list entry and each table alone. It notes each error and removes the faulty value
//! until the rest can be read, so that no error hides a later one. A list entry with an error is omitted from
//! the rest.

use std::ops::Range;

use serde_path_to_error::Segment;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue, Deserializer};

use crate::error::Found;
use crate::origin::{LeftOut, Origin, WrongParts};
use crate::schema::Config;

/// Readable parts of a file.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    pub config: Config,
    pub left_out: LeftOut,
}

impl Rest {
    /// Returns the configuration without the parts in `wrong`: faulty tables get their default values.
    pub fn without(self, wrong: &WrongParts, origin: &str, text: &str) -> Config {
        let Self { mut config, mut left_out } = self;
        let is_wrong = |table| wrong.contains(&(table, None));
        for (table, reset) in [
            ("router", (|config| config.router = Default::default()) as fn(&mut Config)),
            ("control-plane", |config| config.control_plane = Default::default()),
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
        config.origin = Origin::of_rest(origin, text, left_out);
        config
    }
}

/// Reads the readable parts and notes the errors; `None` if the text is no TOML.
pub(crate) fn rest(text: &str, found: &mut Found) -> Option<Rest> {
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        // Behind one missing brace or quote everything else looks wrong: the first error is the cause.
        errors.iter().take(1).for_each(|error| found.note_toml(error, ""));
        return None;
    }
    let (mut mended, mut left_out) = (DeTable::new(), LeftOut::default());
    for (key, value) in document.get_ref() {
        if let Some(value) = read_table(key, value, found, &mut left_out) {
            mended.insert(key.clone(), value);
        }
    }
    let config = serde::Deserialize::deserialize(Deserializer::from(Spanned::new(0..0, mended))).ok()?;
    Some(Rest { config, left_out })
}

type Key<'t> = Spanned<DeString<'t>>;
type Item<'t> = Spanned<DeValue<'t>>;

fn read_table<'t>(
    key: &Key<'t>,
    value: &Item<'t>,
    found: &mut Found,
    left_out: &mut LeftOut,
) -> Option<Item<'t>> {
    let name = key.get_ref().as_ref();
    let DeValue::Array(entries) = value.get_ref() else {
        let before = found.len();
        let mended = Alone { key, index: None, whole: value }.read(found);
        if found.len() > before {
            left_out.kept.insert(name.to_owned(), Vec::new());
        }
        return mended;
    };
    // Check that the configuration has such a list at all.
    let none = Spanned::new(value.span(), DeValue::Array(std::iter::empty().collect()));
    Alone { key, index: None, whole: &none }.read(found)?;
    let (mut kept, mut indices) = (Vec::new(), Vec::new());
    for (index, entry) in entries.iter().enumerate() {
        let before = found.len();
        match (Alone { key, index: Some(index), whole: entry }).read(found) {
            Some(whole) if found.len() == before => {
                kept.push(whole);
                indices.push(index);
            }
            _ => {
                let own = entry.get_ref().get("name").and_then(|own| own.get_ref().as_str());
                left_out.names.entry(name.to_owned()).or_default().extend(own.map(str::to_owned));
            }
        }
    }
    if kept.len() < entries.len() {
        left_out.kept.insert(name.to_owned(), indices);
    }
    Some(Spanned::new(value.span(), DeValue::Array(kept.into_iter().collect())))
}

/// Table or list entry, read as if it were the only content of the file.
struct Alone<'a, 't> {
    key: &'a Key<'t>,
    /// Index of the entry in its list.
    index: Option<usize>,
    whole: &'a Item<'t>,
}

impl<'t> Alone<'_, 't> {
    /// Returns the item without its faulty values, and notes each of them. `None` if the rest of the item
    /// can't be read either.
    fn read(&self, found: &mut Found) -> Option<Item<'t>> {
        let mut item = self.whole.clone();
        // Removed keys, and the byte ranges of the tables that held them.
        let mut gone: Vec<(Range<usize>, String)> = Vec::new();
        loop {
            let Err(error) = serde_path_to_error::deserialize::<_, Config>(self.document(item.clone()))
            else {
                return Some(item);
            };
            let steps: Vec<Segment> =
                error.path().iter().filter(|step| !is_readers_own(step)).cloned().collect();
            let steps = steps.get(1 + usize::from(self.index.is_some())..).unwrap_or_default();
            let (reached, taken) = take_away(&mut item, steps);
            let said = error.inner().message();
            let lacks = said.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
            // A misspelt key is also missing: one error is enough.
            let is_told = lacks.is_some_and(|_| gone.iter().any(|(span, _)| *span == reached));
            if !is_told {
                found.note_toml(error.inner(), &self.path(&reached));
            }
            match taken {
                Some(Taken { from, key }) => gone.extend(key.map(|key| (from, key))),
                None => return None,
            }
        }
    }

    /// Returns a document with this item only.
    fn document(&self, item: Item<'t>) -> Deserializer<'t> {
        let span = item.span();
        let value = match self.index {
            Some(_) => Spanned::new(span, DeValue::Array([item].into_iter().collect())),
            None => item,
        };
        let mut table = DeTable::new();
        table.insert(self.key.clone(), value);
        Deserializer::from(Spanned::new(0..0, table))
    }

    /// Returns the path of the value at a byte range: `port[0].mtu`.
    fn path(&self, span: &Range<usize>) -> String {
        let own = self.index.map_or_else(String::new, |index| format!("[{index}]"));
        format!("{}{own}{}", self.key.get_ref(), way(self.whole, span).unwrap_or_default())
    }
}

/// Whether a step is an internal key (`$__…`) of the TOML reader, which reads values with byte ranges as
/// tables.
fn is_readers_own(step: &Segment) -> bool {
    match step {
        Segment::Map { key } => key.starts_with("$__"),
        Segment::Seq { .. } => false,
        _ => true,
    }
}

/// Value that was removed from an item.
struct Taken {
    /// Byte range of the table or list that held the value.
    from: Range<usize>,
    /// Key of the value, if it had one.
    key: Option<String>,
}

/// Removes the value at the path `steps`, or at its longest existing prefix. Returns the byte range of that
/// value, and the removed value: `None` if the whole item would be removed.
fn take_away(item: &mut Item<'_>, steps: &[Segment]) -> (Range<usize>, Option<Taken>) {
    let from = item.span();
    let Some((first, others)) = steps.split_first() else { return (from, None) };
    match (item.get_mut(), first) {
        (DeValue::Table(table), Segment::Map { key }) => {
            let Some(next) = table.get_mut(key.as_str()) else { return (from, None) };
            let (reached, taken) = take_away(next, others);
            if taken.is_some() {
                return (reached, taken);
            }
            table.remove(key.as_str());
            (reached, Some(Taken { from, key: Some(key.clone()) }))
        }
        (DeValue::Array(list), Segment::Seq { index }) => {
            let Some(next) = list.get_mut(*index) else { return (from, None) };
            let (reached, taken) = take_away(next, others);
            if taken.is_some() {
                return (reached, taken);
            }
            let kept = std::mem::replace(list, std::iter::empty().collect()).into_iter().enumerate();
            *list = kept.filter(|(place, _)| place != index).map(|(_, one)| one).collect();
            (reached, Some(Taken { from, key: None }))
        }
        _ => (from, None),
    }
}

/// Returns the path from an item to the value at a byte range.
fn way(item: &Item<'_>, span: &Range<usize>) -> Option<String> {
    if item.span() == *span {
        return Some(String::new());
    }
    match item.get_ref() {
        DeValue::Table(table) => {
            table.iter().find_map(|(key, own)| Some(format!(".{}{}", key.get_ref(), way(own, span)?)))
        }
        DeValue::Array(list) => {
            list.iter().enumerate().find_map(|(place, own)| Some(format!("[{place}]{}", way(own, span)?)))
        }
        _ => None,
    }
}
