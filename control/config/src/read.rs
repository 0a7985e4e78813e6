//! Reads what can be read of a file in which something is wrong, so that all of that is told at once.
//!
//! Each entry of a list, and each table, is read alone. What is wrong in it is noted and taken away, until the rest can be read:
//! so nothing hides what stands behind it. An entry of a list in which something was wrong is left out of the rest.

use std::ops::Range;

use serde_path_to_error::Segment;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue, Deserializer};

use crate::error::Found;
use crate::origin::{LeftOut, Origin, WrongParts};
use crate::schema::Config;

/// What a file says beside that in which something is wrong.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    pub config: Config,
    pub left_out: LeftOut,
}

impl Rest {
    /// What is left of it without the parts that are wrong as well: tables are what they are where nothing is said of them.
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

/// Reads what can be read, and notes what can't; nothing, where the text is no TOML.
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
    // Whether there is such a list at all.
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

/// A table, or an entry of a list, that is read as if nothing else stood in the file.
struct Alone<'a, 't> {
    key: &'a Key<'t>,
    /// Where in the list it stands.
    index: Option<usize>,
    whole: &'a Item<'t>,
}

impl<'t> Alone<'_, 't> {
    /// What is left of it without what is wrong, which is noted; nothing, where it can't be without that.
    fn read(&self, found: &mut Found) -> Option<Item<'t>> {
        let mut item = self.whole.clone();
        // Keys that were taken away, and what had them.
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
            // Who has misspelt a key lacks it; that is told once.
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

    /// A file that holds it alone.
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

    /// The name of what stands there, from the file on: `port[0].mtu`.
    fn path(&self, span: &Range<usize>) -> String {
        let own = self.index.map_or_else(String::new, |index| format!("[{index}]"));
        format!("{}{own}{}", self.key.get_ref(), way(self.whole, span).unwrap_or_default())
    }
}

/// Values that know their place in the file are read as tables with keys of the reader's own.
fn is_readers_own(step: &Segment) -> bool {
    match step {
        Segment::Map { key } => key.starts_with("$__"),
        Segment::Seq { .. } => false,
        _ => true,
    }
}

/// What was taken out of an item.
struct Taken {
    /// Where stands what had it.
    from: Range<usize>,
    /// Its key, if it had one.
    key: Option<String>,
}

/// Takes away what steps lead to, or as far as there is something. Returns where that stands, and what was taken: nothing, if it would
/// be the item itself.
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

/// The way from an item to what stands there.
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
