//! Writes the running configuration into a file, and keeps the file's comments, order and spacing.

mod list;

use std::collections::{HashMap, HashSet};

use serde::Serialize;
use serde_json::{Map, Value};
use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table, TableLike};

use crate::change::commands::object;
use crate::origin::error::{ConfigError, ConfigErrors, Place};
use crate::schema::{Config, Gate, Route};
use list::{List, replace_values};

/// Number of list entries that are written at once to a new file.
const PIECE: usize = 256;
/// Tables that are written inline, in one line with their key.
const IN_LINE: [&str; 2] = ["settings", "impair"];

impl Config {
    /// Returns this configuration as the text of a new file.
    ///
    /// # Errors
    /// No case is known: each readable configuration can be written.
    pub fn to_text(&self) -> Result<String, ConfigErrors> {
        self.pieces().map_err(|error| unwritable("running configuration", &error))
    }

    /// Builds the text from several TOML documents. A single document would take forty times as much memory.
    fn pieces(&self) -> Result<String, toml::ser::Error> {
        let (file, runs) = (Self::default(), self.clone().normalized());
        let mut text = String::new();
        let mut write = |part: &dyn Fn(&mut Saving<'_>) -> Saved| -> Saved {
            let mut document = DocumentMut::new();
            part(&mut Saving { document: &mut document })?;
            text += &document.to_string();
            Ok(())
        };
        write(&|saving| saving.settings(&file, &runs))?;
        for route in runs.route.chunks(PIECE) {
            write(&|saving| saving.routes(&[], route))?;
        }
        write(&|saving| saving.others(&file, &runs))?;
        for bind in runs.bind.chunks(PIECE) {
            write(&|saving| saving.bindings(&file, &Self { bind: bind.to_vec(), ..Self::default() }))?;
        }
        for filter in runs.filter.chunks(PIECE) {
            write(&|saving| saving.bindings(&file, &Self { filter: filter.to_vec(), ..Self::default() }))?;
        }
        Ok(text)
    }

    /// Returns the text of a file with this configuration written into it. Unchanged values keep their text
    /// and comments, changed values change in place, and new entries come last. `origin` is the file's name
    /// in messages.
    ///
    /// # Errors
    /// Returns the errors of the text if the text is not a valid configuration.
    pub fn save_into(&self, text: &str, origin: &str) -> Result<String, ConfigErrors> {
        let file = Self::parse(text, origin)?;
        let mut document: DocumentMut =
            text.parse().map_err(|error: toml_edit::TomlError| refused(origin, error.to_string()))?;
        let saved = Saving { document: &mut document }.save(&file, &self.clone().normalized());
        saved.map_err(|error| unwritable(origin, &error))?;
        let saved = document.to_string();
        // If all lines of the text end with CR LF, so do the new lines.
        let lines = text.matches('\n').count();
        Ok(match lines > 0 && text.matches("\r\n").count() == lines {
            true => saved.replace("\r\n", "\n").replace('\n', "\r\n"),
            false => saved,
        })
    }
}

/// Returns an error about a whole file.
fn refused(origin: &str, problem: String) -> ConfigErrors {
    ConfigError { place: Place::of(None, "", origin), problem: problem.into() }.into()
}

fn unwritable(origin: &str, error: &toml::ser::Error) -> ConfigErrors {
    refused(origin, format!("can't be written as TOML: {error}"))
}

type Saved = Result<(), toml::ser::Error>;

struct Saving<'a> {
    document: &'a mut DocumentMut,
}

impl Saving<'_> {
    fn save(mut self, file: &Config, runs: &Config) -> Saved {
        self.settings(file, runs)?;
        self.routes(&file.clone().normalized().route, &runs.route)?;
        self.others(file, runs)?;
        self.bindings(file, runs)
    }

    /// Writes the tables `router`, `control-plane`, `connections`, `admission`, `api` and `plugins`, and the ports.
    fn settings(&mut self, file: &Config, runs: &Config) -> Saved {
        let normal = file.clone().normalized();
        let mut router = normal.router.clone();
        // Without bindings and filters, `on-death` may be absent. With bindings or filters, a file without
        // `on-death` would be refused.
        if runs.silent_on_death().is_some() && !(runs.bind.is_empty() && runs.filter.is_empty()) {
            router.on_death = file.router.on_death;
        }
        self.table("router", &router, &runs.router, &crate::schema::Router::default())?;
        let usual = crate::schema::ControlPlane::default();
        self.table("control-plane", &normal.control_plane, &runs.control_plane, &usual)?;
        let usual = crate::schema::Connections::default();
        self.table("connections", &normal.connections, &runs.connections, &usual)?;
        self.table("admission", &normal.admission, &runs.admission, &crate::schema::Admission::default())?;
        self.table("api", &normal.api, &runs.api, &crate::schema::api::Api::default())?;
        self.table("plugins", &normal.plugins, &runs.plugins, &crate::schema::Plugins::default())?;
        self.named("port", &normal.port, &runs.port, |port| port.name.to_string())
    }

    fn routes(&mut self, file: &[Route], runs: &[Route]) -> Saved {
        self.named("route", file, runs, |route| route.to.written().to_owned())
    }

    /// Writes all remaining lists, except for bindings and filters.
    fn others(&mut self, file: &Config, runs: &Config) -> Saved {
        let normal = file.clone().normalized();
        self.named("neighbour", &normal.neighbour, &runs.neighbour, |one| {
            format!("{} {}", one.address, &*one.port)
        })?;
        // The normal form omits a gate whose settings are all defaults. Such a gate stays in the file.
        let normal_gate =
            |gate: &Gate| normal.gate.iter().find(|own| own.name == gate.name).unwrap_or(gate).clone();
        let gates: Vec<Gate> = file.gate.iter().map(normal_gate).collect();
        self.named("gate", &gates, &runs.gate, |gate| gate.name.to_string())?;
        self.named("plugin", &normal.plugin, &runs.plugin, |plugin| plugin.file.display().to_string())?;
        self.named("instance", &normal.instance, &runs.instance, |instance| instance.name.to_string())?;
        self.named("principal", &normal.principal, &runs.principal, |one| one.name.to_string())?;
        self.in_order("place", &normal.place, &runs.place, |one| one.flow.written().to_owned())
    }

    /// Writes the keys of a table whose values differ from the file.
    fn table<T: Serialize>(&mut self, name: &str, file: &T, runs: &T, usual: &T) -> Saved {
        let (file, runs, usual) = (object(file), object(runs), object(usual));
        if file == runs {
            return Ok(());
        }
        let table = self.document.entry(name).or_insert_with(toml_edit::table);
        let Some(table) = table.as_table_like_mut() else { return Ok(()) };
        for (key, value) in runs.iter().filter(|(key, value)| file.get(*key) != Some(value)) {
            // A default value is not written.
            let value = Some(value).filter(|value| usual.get(key) != Some(value));
            let merged = match (file.get(key), table.get_mut(key), value) {
                (Some(from), Some(own), Some(to)) => merge_value(own, from, to)?,
                _ => false,
            };
            if !merged {
                set(table, key, value)?;
            }
        }
        for key in file.keys().filter(|key| !runs.contains_key(*key)) {
            table.remove(key);
        }
        Ok(())
    }

    /// Writes a list whose entries have names.
    fn named<T: Serialize + PartialEq>(
        &mut self,
        noun: &str,
        file: &[T],
        runs: &[T],
        name: impl Fn(&T) -> String,
    ) -> Saved {
        if file == runs {
            return Ok(());
        }
        let running: HashMap<String, &T> = runs.iter().map(|one| (name(one), one)).collect();
        let known: HashSet<String> = file.iter().map(&name).collect();
        let mut list = self.list(noun);
        for (at, own) in file.iter().enumerate() {
            if let (Some(is), Some(table)) = (running.get(&name(own)), list.get_mut(at)) {
                merge(table, &object(own), &object(*is))?;
            }
        }
        let gone = file.iter().map(|own| !running.contains_key(&name(own))).collect::<Vec<_>>();
        self.replace(noun, &gone, runs.iter().filter(|one| !known.contains(&name(one))))
    }

    /// Writes a list whose order matters, because the first match applies. If the order of the remaining
    /// entries changes, all entries are written again.
    fn in_order<T: Serialize + PartialEq>(
        &mut self,
        noun: &str,
        file: &[T],
        runs: &[T],
        name: impl Fn(&T) -> String,
    ) -> Saved {
        let running: Vec<String> = runs.iter().map(&name).collect();
        let mut stands: Vec<String> = file.iter().map(&name).filter(|own| running.contains(own)).collect();
        let new: Vec<String> = running.iter().filter(|one| !stands.contains(one)).cloned().collect();
        stands.extend(new);
        if stands == running {
            return self.named(noun, file, runs, name);
        }
        self.replace(noun, &vec![true; file.len()], runs.iter())
    }

    /// Writes bindings and filters. They have no names, so two of them are the same only if all fields are
    /// equal.
    fn bindings(&mut self, file: &Config, runs: &Config) -> Saved {
        let running: HashSet<String> =
            runs.bind.iter().map(fields).chain(runs.filter.iter().map(fields)).collect();
        // A filter may be equivalent to a binding, so the normal forms of both are compared.
        let as_filter = |index: usize| {
            let one = Config { filter: vec![file.filter[index].clone()], ..Config::default() }.normalized();
            one.bind.first().map(fields).or_else(|| one.filter.first().map(fields)).unwrap_or_default()
        };
        let as_bind = |index: usize| {
            let one = Config { bind: vec![file.bind[index].clone()], ..Config::default() }.normalized();
            one.bind.first().map(fields).unwrap_or_default()
        };
        let filters: Vec<String> = (0..file.filter.len()).map(as_filter).collect();
        let binds: Vec<String> = (0..file.bind.len()).map(as_bind).collect();
        let known: HashSet<&String> = filters.iter().chain(&binds).collect();
        let gone = |own: &[String]| own.iter().map(|one| !running.contains(one)).collect::<Vec<_>>();
        let new = runs.bind.iter().filter(|bind| !known.contains(&fields(*bind)));
        self.replace("bind", &gone(&binds), new)?;
        let new = runs.filter.iter().filter(|filter| !known.contains(&fields(*filter)));
        self.replace("filter", &gone(&filters), new)
    }

    /// Removes entries from a list and appends new ones. A list that becomes empty is removed.
    fn replace<'t, T: Serialize + 't>(
        &mut self,
        noun: &str,
        gone: &[bool],
        new: impl Iterator<Item = &'t T>,
    ) -> Saved {
        let new = new.map(written).collect::<Result<Vec<_>, _>>()?;
        self.list(noun).replace(gone, new);
        if self.document.get(noun).and_then(Item::as_array_of_tables).is_some_and(ArrayOfTables::is_empty) {
            self.document.remove(noun);
        }
        Ok(())
    }

    /// Returns a list of the file, and creates it if it is missing.
    fn list(&mut self, noun: &str) -> List<'_> {
        let item = self.document.entry(noun).or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
        if !(item.is_array_of_tables() || item.is_array()) {
            // This never happens: a file with another type of item here can't be read as a configuration.
            *item = Item::ArrayOfTables(ArrayOfTables::new());
        }
        match List::of(item) {
            Some(list) => list,
            None => unreachable!("an item that was just made a list is no list"),
        }
    }
}

/// Returns all fields of an entry as one text, for comparison.
fn fields(entry: &impl Serialize) -> String {
    Value::Object(object(entry)).to_string()
}

/// Returns an entry as a table of its own.
fn written(entry: &impl Serialize) -> Result<Table, toml::ser::Error> {
    let text = toml::to_string(entry)?;
    // The parser reads any text that the serializer has just written.
    let mut table = text.parse::<DocumentMut>().unwrap_or_default().as_table().clone();
    for key in IN_LINE {
        if let Some(Ok(value)) = table.remove(key).map(Item::into_value) {
            table.insert(key, Item::Value(value));
        }
    }
    unplace(&mut table);
    Ok(table)
}

/// Clears the positions that a table and its subtables had in their source text. Puts an empty line before
/// each of these tables.
fn unplace(table: &mut Table) {
    table.set_position(None);
    table.decor_mut().set_prefix("\n");
    for (_, item) in table.iter_mut() {
        match item {
            Item::Table(table) => unplace(table),
            Item::ArrayOfTables(tables) => tables.iter_mut().for_each(unplace),
            _ => {}
        }
    }
}

/// Changes a table from `from` to `to`. Nested tables, lists of named tables and lists of words change in
/// place.
fn merge(table: &mut dyn TableLike, from: &Map<String, Value>, to: &Map<String, Value>) -> Saved {
    for (key, value) in to.iter().filter(|(key, value)| from.get(*key) != Some(value)) {
        let merged = match (from.get(key), table.get_mut(key)) {
            (Some(from), Some(own)) => merge_value(own, from, value)?,
            _ => false,
        };
        if !merged {
            set(table, key, Some(value))?;
        }
    }
    for key in from.keys().filter(|key| !to.contains_key(*key)) {
        table.remove(key);
    }
    Ok(())
}

/// Changes a table or list in place, element by element. Returns false if this is impossible, or if the value
/// is neither a table nor a list.
fn merge_value(own: &mut Item, from: &Value, to: &Value) -> Result<bool, toml::ser::Error> {
    match (from, to) {
        (Value::Object(from), Value::Object(to)) => match own.as_table_like_mut() {
            Some(own) => merge(own, from, to).map(|()| true),
            None => Ok(false),
        },
        (Value::Array(from), Value::Array(to)) => {
            if from.iter().chain(to).all(|one| one.get("name").is_some()) {
                return match List::of(own) {
                    Some(list) => merge_list(list, from, to).map(|()| true),
                    None => Ok(false),
                };
            }
            Ok(own.as_array_mut().is_some_and(|own| merge_words(own, from, to)))
        }
        _ => Ok(false),
    }
}

/// Changes a list of named tables in place.
fn merge_list(mut list: List<'_>, from: &[Value], to: &[Value]) -> Saved {
    let (before, after) = (by_name(from), by_name(to));
    let find = |list: &HashMap<&str, usize>, one: &Value| list.get(one["name"].as_str()?).copied();
    for (at, own) in from.iter().enumerate() {
        if let (Value::Object(own), Some(Value::Object(is)), Some(table)) =
            (own, find(&after, own).map(|place| &to[place]), list.get_mut(at))
        {
            merge(table, own, is)?;
        }
    }
    let gone = from.iter().map(|own| find(&after, own).is_none()).collect::<Vec<_>>();
    let new = to.iter().filter(|one| find(&before, one).is_none());
    let new = new.map(written).collect::<Result<Vec<_>, _>>()?;
    list.replace(&gone, new);
    Ok(())
}

/// Returns the indices of the tables in a list, by name. If several have the same name, returns the first.
fn by_name(list: &[Value]) -> HashMap<&str, usize> {
    let names = list.iter().enumerate().filter_map(|(place, one)| Some((one["name"].as_str()?, place)));
    // The order is reversed, so that the first table of a name overwrites the others.
    names.rev().collect()
}

/// Changes a list of words in place. Returns false if the order of the remaining words changes.
fn merge_words(own: &mut Array, from: &[Value], to: &[Value]) -> bool {
    let stands =
        own.len() == from.len() && own.iter().zip(from).all(|(own, from)| own.as_str() == from.as_str());
    let words =
        |list: &[Value]| list.iter().map(|one| one.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>();
    let (true, Some(from), Some(to)) = (stands, words(from), words(to)) else { return false };
    let new: Vec<&String> = to.iter().filter(|one| !from.contains(one)).collect();
    let kept = from.iter().filter(|one| to.contains(one));
    if !kept.chain(new.iter().copied()).eq(&to) {
        return false;
    }
    let gone = from.iter().map(|one| !to.contains(one)).collect::<Vec<_>>();
    replace_values(own, &gone, new.into_iter().map(|one| one.as_str().into()).collect());
    true
}

/// Sets a key to a value; `None` removes the key. Comments around the value stay.
fn set(table: &mut dyn TableLike, key: &str, value: Option<&Value>) -> Saved {
    let Some(value) = value.filter(|value| !value.is_null()) else {
        table.remove(key);
        return Ok(());
    };
    let mut one = Map::new();
    one.insert(key.to_owned(), value.clone());
    let mut made = written(&Value::Object(one))?;
    let Some(mut made) = made.remove(key) else { return Ok(()) };
    match (table.get_mut(key), &mut made) {
        (Some(Item::Value(own)), Item::Value(value)) => {
            let decor = own.decor().clone();
            *own = value.clone();
            *own.decor_mut() = decor;
        }
        (Some(own), _) => *own = made,
        (None, _) => {
            // In an inline table, the blank before the closing brace belongs to the last value. That value is
            // no longer the last, so its blank is removed.
            if let Some((_, Item::Value(last))) = table.iter_mut().last()
                && last
                    .decor()
                    .suffix()
                    .and_then(|suffix| suffix.as_str())
                    .is_some_and(|text| text.trim_matches(' ').is_empty())
            {
                last.decor_mut().set_suffix("");
            }
            if let Item::Value(value) = &mut made {
                value.decor_mut().clear();
            }
            drop(table.insert(key, made));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
