//! List of entries in a file, with headings or in brackets. Changes keep the comments of the entries that
//! stay.

use toml_edit::{Array, ArrayOfTables, Item, RawString, Table, TableLike, Value};

/// List of entries, in one of the two forms of TOML.
pub(super) enum List<'a> {
    /// One table with a heading for each entry: `[[port]]`.
    Headed(&'a mut ArrayOfTables),
    /// All entries within brackets: `port = [{ … }, { … }]`.
    Bracketed(&'a mut Array),
}

impl<'a> List<'a> {
    /// Returns the item as a list; `None` if it is neither kind of list.
    pub fn of(item: &'a mut Item) -> Option<Self> {
        match item {
            Item::ArrayOfTables(tables) => Some(Self::Headed(tables)),
            Item::Value(Value::Array(array)) => Some(Self::Bracketed(array)),
            _ => None,
        }
    }

    /// Returns an entry of the list.
    pub fn get_mut(&mut self, at: usize) -> Option<&mut dyn TableLike> {
        match self {
            Self::Headed(tables) => tables.get_mut(at).map(|table| table as &mut dyn TableLike),
            Self::Bracketed(array) => {
                array.get_mut(at)?.as_inline_table_mut().map(|table| table as &mut dyn TableLike)
            }
        }
    }

    /// Removes the entries for which `gone` is true, and appends new entries.
    pub fn replace(&mut self, gone: &[bool], new: Vec<Table>) {
        match self {
            Self::Headed(tables) => {
                if gone.contains(&true) {
                    let kept = std::mem::take(*tables).into_iter().zip(gone).filter(|(_, gone)| !**gone);
                    **tables = kept.map(|(table, _)| table).collect();
                }
                tables.extend(new);
            }
            Self::Bracketed(array) => {
                replace_values(
                    array,
                    gone,
                    new.into_iter().map(|table| table.into_inline_table().into()).collect(),
                );
            }
        }
    }
}

/// Value within brackets, with the text around it.
struct Entry {
    value: Value,
    /// Line break, blanks and comments before the value.
    lead: String,
    /// Comment in the same line after the value.
    tail: String,
}

/// Removes the values for which `gone` is true from a list in brackets, and appends new values. A removed
/// value takes its comments along: those in its line, and those in the lines above it.
pub(super) fn replace_values(array: &mut Array, gone: &[bool], new: Vec<Value>) {
    if !gone.contains(&true) && new.is_empty() {
        return;
    }
    let (opening, entries, closing) = taken_apart(array);
    let first = entries.first().map(|entry| entry.lead.clone()).unwrap_or_default();
    let between = entries.get(1).or(entries.first()).map(|entry| entry.lead.clone());
    let between = between.map_or_else(|| " ".to_owned(), |lead| indent(&lead));
    let kept = entries.into_iter().zip(gone).filter(|(_, gone)| !**gone).map(|(entry, _)| entry);
    let mut entries: Vec<Entry> = kept.collect();
    entries.extend(new.into_iter().map(|value| Entry { value, lead: between.clone(), tail: String::new() }));
    if let Some(entry) = entries.first_mut().filter(|entry| entry.lead.trim().is_empty()) {
        entry.lead = indent(&first);
    }
    let in_lines = closing.contains('\n');
    let mut before = opening;
    for Entry { mut value, lead, tail } in entries {
        // A comment ends only at a line break, so a line break must stand before the next value.
        let end = if !before.is_empty() && !lead.starts_with('\n') { "\n" } else { "" };
        value.decor_mut().set_prefix(format!("{before}{end}{lead}"));
        value.decor_mut().set_suffix("");
        array.push_formatted(value);
        before = tail;
    }
    array.set_trailing(format!("{before}{closing}"));
    array.set_trailing_comma(in_lines && !array.is_empty());
}

/// Splits a list into three parts: the text in the line of the opening bracket, the values, and the text
/// before the closing bracket.
fn taken_apart(array: &mut Array) -> (String, Vec<Entry>, String) {
    let mut rest = array.trailing().as_str().unwrap_or_default().to_owned();
    let mut entries: Vec<Entry> = Vec::new();
    let mut opening = String::new();
    let values: Vec<Value> = array.iter().cloned().collect();
    array.clear();
    for value in values {
        let (tail, lead) = line_end(text(value.decor().prefix()));
        match entries.last_mut() {
            Some(entry) => entry.tail += &tail,
            None => opening = tail,
        }
        let tail = text(value.decor().suffix()).trim_end_matches(' ').to_owned();
        entries.push(Entry { value, lead, tail });
    }
    // If the last value has no comma, the parser counts the text after it as part of the value.
    if let Some(entry) = entries.last_mut() {
        rest = std::mem::take(&mut entry.tail) + &rest;
    }
    let (tail, closing) = line_end(&rest);
    match entries.last_mut() {
        Some(entry) => entry.tail = tail,
        None => opening = tail,
    }
    (opening, entries, closing)
}

/// Splits a text before its first line break. If there is none, the first part is empty.
fn line_end(text: &str) -> (String, String) {
    let (tail, lead) = text.split_at(text.find('\n').unwrap_or(0));
    (tail.trim_end().to_owned(), lead.to_owned())
}

/// Returns the line break and indentation for a new value. They are those of an existing value, whose
/// preceding text is `lead`.
fn indent(lead: &str) -> String {
    match lead.rfind('\n') {
        Some(at) => lead[at..].to_owned(),
        None => lead.chars().take_while(|c| c.is_whitespace()).collect(),
    }
}

fn text(raw: Option<&RawString>) -> &str {
    raw.and_then(RawString::as_str).unwrap_or_default()
}
