//! What runs, written into a file whose comments, order and spacing stay as they are.

mod list;

use std::collections::{HashMap, HashSet};

use serde::Serialize;
use serde_json::{Map, Value};
use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table, TableLike};

use crate::error::{ConfigError, ConfigErrors, Place};
use crate::schema::{Config, Gate, Route};
use crate::words::object;
use list::{List, replace_values};

/// Entries of a list that are written together where nothing stands yet.
const PIECE: usize = 256;
/// Tables that are written in one line behind their key.
const IN_LINE: [&str; 2] = ["settings", "impair"];

impl Config {
    /// This configuration as a file that was written by nobody.
    ///
    /// # Errors
    /// None that is known: what can be read can be written.
    pub fn to_text(&self) -> Result<String, ConfigErrors> {
        let refused = |problem: String| -> ConfigErrors {
            ConfigError { place: Place::of(None, "", "what runs"), problem }.into()
        };
        let pieces = self.pieces();
        pieces.map_err(|error: toml::ser::Error| refused(format!("it can't be written: {error}")))
    }

    /// The text, made in pieces: a document of all of it takes forty times as much memory.
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

    /// The text of a file with this configuration in it: what says the same stays as it was written, with its comments; what says
    /// something else is changed where it stands; what is new comes last. `origin` is the file's name, for messages.
    ///
    /// # Errors
    /// A text that is no configuration.
    pub fn save_into(&self, text: &str, origin: &str) -> Result<String, ConfigErrors> {
        let file = Self::parse(text, origin)?;
        let refused = |problem: String| -> ConfigErrors {
            ConfigError { place: Place::of(None, text, origin), problem }.into()
        };
        let mut document: DocumentMut =
            text.parse().map_err(|error: toml_edit::TomlError| refused(error.to_string()))?;
        let saved = Saving { document: &mut document }.save(&file, &self.clone().normalized());
        saved.map_err(|error| refused(format!("it can't be written: {error}")))?;
        let saved = document.to_string();
        // Where all lines end as those of other systems do, new ones do as well.
        let lines = text.matches('\n').count();
        Ok(match lines > 0 && text.matches("\r\n").count() == lines {
            true => saved.replace("\r\n", "\n").replace('\n', "\r\n"),
            false => saved,
        })
    }
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

    /// What is said of the whole router, and ports.
    fn settings(&mut self, file: &Config, runs: &Config) -> Saved {
        let normal = file.clone().normalized();
        let mut router = normal.router.clone();
        // What needs no word as long as nobody binds: a file with bindings and without it would be refused.
        if runs.silent_on_death().is_some() && !(runs.bind.is_empty() && runs.filter.is_empty()) {
            router.on_death = file.router.on_death;
        }
        self.table("router", &router, &runs.router, &crate::schema::Router::default())?;
        let usual = crate::schema::ControlPlane::default();
        self.table("control-plane", &normal.control_plane, &runs.control_plane, &usual)?;
        self.table("api", &normal.api, &runs.api, &crate::Api::default())?;
        self.table("plugins", &normal.plugins, &runs.plugins, &crate::schema::Plugins::default())?;
        self.named("port", &normal.port, &runs.port, |port| port.name.to_string())
    }

    fn routes(&mut self, file: &[Route], runs: &[Route]) -> Saved {
        self.named("route", file, runs, |route| route.to.written().to_owned())
    }

    /// What is neither of those nor a binding.
    fn others(&mut self, file: &Config, runs: &Config) -> Saved {
        let normal = file.clone().normalized();
        self.named("neighbour", &normal.neighbour, &runs.neighbour, |one| {
            format!("{} {}", one.address, &*one.port)
        })?;
        // What is said of a gate without need stays said.
        let gates: Vec<Gate> = file.gate.iter().map(|gate| normal_gate(gate, &normal)).collect();
        self.named("gate", &gates, &runs.gate, |gate| gate.name.to_string())?;
        self.named("plugin", &normal.plugin, &runs.plugin, |plugin| plugin.file.display().to_string())?;
        self.named("instance", &normal.instance, &runs.instance, |instance| instance.name.to_string())?;
        self.in_order("place", &normal.place, &runs.place, |one| one.flow.written().to_owned())
    }

    /// Sets the keys of a table that differ.
    fn table<T: Serialize>(&mut self, name: &str, file: &T, runs: &T, usual: &T) -> Saved {
        let (file, runs, usual) = (object(file), object(runs), object(usual));
        if file == runs {
            return Ok(());
        }
        let table = self.document.entry(name).or_insert_with(toml_edit::table);
        let Some(table) = table.as_table_like_mut() else { return Ok(()) };
        for (key, value) in runs.iter().filter(|(key, value)| file.get(*key) != Some(value)) {
            // What holds anyway need not be said.
            let value = Some(value).filter(|value| usual.get(key) != Some(value));
            set(table, key, value)?;
        }
        for key in file.keys().filter(|key| !runs.contains_key(*key)) {
            table.remove(key);
        }
        Ok(())
    }

    /// The tables of a noun, each of which has a name.
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
        let new = runs.iter().filter(|one| !known.contains(&name(one)));
        let new = new.map(written).collect::<Result<Vec<_>, _>>()?;
        list.replace(&gone, new);
        self.forget_empty(noun);
        Ok(())
    }

    /// The same of a noun of which the first that matches counts: what can't stay where it stands is written anew.
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
        let all = runs.iter().map(written).collect::<Result<Vec<_>, _>>()?;
        self.list(noun).replace(&vec![true; file.len()], all);
        self.forget_empty(noun);
        Ok(())
    }

    /// Bindings and filters: each is all that it says.
    fn bindings(&mut self, file: &Config, runs: &Config) -> Saved {
        let running: HashSet<String> =
            runs.bind.iter().map(said).chain(runs.filter.iter().map(said)).collect();
        // Which of both a filter is, its normal form says.
        let as_filter = |index: usize| {
            let one = Config { filter: vec![file.filter[index].clone()], ..Config::default() }.normalized();
            one.bind.first().map(said).or_else(|| one.filter.first().map(said)).unwrap_or_default()
        };
        let as_bind = |index: usize| {
            let one = Config { bind: vec![file.bind[index].clone()], ..Config::default() }.normalized();
            one.bind.first().map(said).unwrap_or_default()
        };
        let filters: Vec<String> = (0..file.filter.len()).map(as_filter).collect();
        let binds: Vec<String> = (0..file.bind.len()).map(as_bind).collect();
        let known: HashSet<&String> = filters.iter().chain(&binds).collect();
        let gone = |own: &[String]| own.iter().map(|one| !running.contains(one)).collect::<Vec<_>>();
        let new = runs.bind.iter().filter(|bind| !known.contains(&said(*bind)));
        let new = new.map(written).collect::<Result<Vec<_>, _>>()?;
        self.list("bind").replace(&gone(&binds), new);
        self.forget_empty("bind");
        let new = runs.filter.iter().filter(|filter| !known.contains(&said(*filter)));
        let new = new.map(written).collect::<Result<Vec<_>, _>>()?;
        self.list("filter").replace(&gone(&filters), new);
        self.forget_empty("filter");
        Ok(())
    }

    /// The list of a noun, as it is written in the file; one that isn't there is made.
    fn list(&mut self, noun: &str) -> List<'_> {
        let item = self.document.entry(noun).or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
        if !(item.is_array_of_tables() || item.is_array()) {
            // What can be read as a configuration has no other there.
            *item = Item::ArrayOfTables(ArrayOfTables::new());
        }
        match List::of(item) {
            Some(list) => list,
            None => unreachable!("a list is one"),
        }
    }

    fn forget_empty(&mut self, noun: &str) {
        if self.document.get(noun).and_then(Item::as_array_of_tables).is_some_and(ArrayOfTables::is_empty) {
            self.document.remove(noun);
        }
    }
}

/// All that an entry says.
fn said(entry: &impl Serialize) -> String {
    Value::Object(object(entry)).to_string()
}

/// Returns the normal form of a gate, or the gate itself if the normal form omits it.
fn normal_gate(gate: &Gate, normal: &Config) -> Gate {
    let found = normal.gate.iter().find(|own| own.name == gate.name);
    found.unwrap_or(gate).clone()
}

/// An entry as a table of its own.
fn written(entry: &impl Serialize) -> Result<Table, toml::ser::Error> {
    let text = toml::to_string(entry)?;
    // What was just written can be read.
    let mut table = text.parse::<DocumentMut>().unwrap_or_default().as_table().clone();
    for key in IN_LINE {
        if let Some(Ok(value)) = table.remove(key).map(Item::into_value) {
            table.insert(key, Item::Value(value));
        }
    }
    unplace(&mut table);
    Ok(table)
}

/// Forgets where in a text a table stood.
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

/// Makes of a table that says `from` one that says `to`. What is in it is changed where it stands: tables, tables that have names, and
/// lists of words.
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

/// The same of a value, where its parts can be changed alone. Returns whether they were.
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

/// The same for lists of tables that have names.
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

/// Where in a list the tables of those names stand, of several of a name the first.
fn by_name(list: &[Value]) -> HashMap<&str, usize> {
    let names = list.iter().enumerate().filter_map(|(place, one)| Some((one["name"].as_str()?, place)));
    // The first of a name comes last.
    names.rev().collect()
}

/// The same for lists of words, where those that stay keep their order. Returns whether it was done.
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

/// Sets a key, or removes it. What stands around its value stays.
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
            // Within braces the last value has the blank before the closing one.
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
mod tests {
    use super::*;
    use crate::values::Text;

    const FILE: &str = r#"# Our router.
[router]
icmp-rate = 100   # not more

# The inside.
[[port]]
name = "lan"      # towards the hosts
kind = "memory"
address = ["10.1.0.1/24"]

[port.scheduler]
rate = "10mbit"   # as paid for

[[port.scheduler.node]]
name = "all"      # one for all
kind = "fifo"

[[port]]
name = "wan"
kind = "memory"
address = ["10.2.0.1/24"]

# Mail goes another way.
[[filter]]
match = "dport 25  in lan proto tcp"  # from inside
action = "drop"

[[route]]
to = "10.9.0.0/16"   # the branch
via = "10.2.0.254"
"#;

    fn parsed(text: &str) -> Config {
        Config::parse(text, "test.toml").unwrap()
    }

    #[test]
    fn what_runs_as_the_file_says_leaves_the_file_as_it_is() {
        assert_eq!(parsed(FILE).save_into(FILE, "test.toml").unwrap(), FILE);
        // A filter that means the same is the same.
        let other = FILE.replace("dport 25  in lan proto tcp", "proto tcp dport 25 in lan");
        assert_eq!(parsed(&other).save_into(FILE, "test.toml").unwrap(), FILE);
    }

    #[test]
    fn what_is_made_in_pieces_is_what_is_made_at_once() {
        let routes = (0..600).map(|one| {
            format!("[[route]]\nto = \"20.{}.{}.0/24\"\nvia = \"10.2.0.254\"\n", one / 256, one % 256)
        });
        let filters = (0..300).map(|one| format!("[[filter]]\nmatch = \"dport {one}\"\naction = \"drop\"\n"));
        let bind = "[[instance]]\nplugin = \"null\"\nname = \"n\"\n[[bind]]\ninstance = \"n\"\ngate = \"monitor\"\nfilter = \"dport 7\"\n";
        let neighbour =
            "[[neighbour]]\nport = \"wan\"\naddress = \"10.2.0.254\"\nmac = \"02:00:00:00:00:fe\"\n";
        let bare = "[[port]]\nname = \"wan\"\nkind = \"memory\"\naddress = [\"10.2.0.1/24\"]\n";
        let all: String =
            [FILE, bind, neighbour].into_iter().map(str::to_owned).chain(routes).chain(filters).collect();
        for text in ["", bare, FILE, &all] {
            let runs = parsed(text);
            assert_eq!(runs.to_text().unwrap(), runs.save_into("", "what runs").unwrap());
        }
    }

    #[test]
    fn lines_end_as_those_of_the_file_do() {
        let file = "# Ours.\r\n[[port]]\r\nname = \"lan\"\r\ndevice = \"eth1\"\r\n";
        let more = file.to_owned() + "\r\n[[route]]\r\nto = \"10.9.0.0/16\"\r\nvia = \"10.2.0.254\"\r\n";
        assert_eq!(parsed(&more).save_into(file, "test.toml").unwrap(), more);
        assert_eq!(parsed(&more).save_into("", "test.toml").unwrap().find('\r'), None);
    }

    #[test]
    fn comments_in_lists_within_brackets_stay() {
        const LISTS: &str = r#"# The whole.
route = [ # the branches
    # The first.
    { to = "10.9.0.0/16", via = "10.2.0.254" }, # by radio
    { to = "10.8.0.0/16", via = "10.2.0.254" }, # by wire

    # The last.
    { to = "10.7.0.0/16", via = "10.2.0.254" } # by nobody
]
port = [ # the inside
    { name = "lan", kind = "memory", address = ["10.1.0.1/24"] }, # lan!
    { name = "wan", kind = "memory", address = [ # many
        "10.2.0.1/24", # one
        "10.3.0.1/24", # two
    ] }, # wan!
]
"#;
        assert_eq!(parsed(LISTS).save_into(LISTS, "test.toml").unwrap(), LISTS);
        let runs = LISTS
            .replace("    { to = \"10.8.0.0/16\", via = \"10.2.0.254\" }, # by wire\n", "")
            .replace("# by nobody", "# by nobody,")
            .replace(
                " } # by nobody,\n",
                " }, # by nobody\n    { to = \"10.6.0.0/16\", via = \"10.2.0.254\" },\n",
            )
            .replace("[\"10.1.0.1/24\"] }", "[\"10.1.0.1/24\"], input-weight = 3 }")
            .replace("        \"10.2.0.1/24\", # one\n", "");
        let saved = parsed(&runs).save_into(LISTS, "test.toml").unwrap();
        assert_eq!(saved, runs);
        // On one line all stays in one line.
        let line = "route = [{ to = \"10.9.0.0/16\", kind = \"blackhole\" }, { to = \"10.8.0.0/16\", kind = \"blackhole\" }] # both\n";
        let other = line.replacen("10.9.0.0", "10.7.0.0", 1);
        let saved = parsed(&other).save_into(line, "test.toml").unwrap();
        assert_eq!(
            saved,
            "route = [{ to = \"10.8.0.0/16\", kind = \"blackhole\" }, { to = \"10.7.0.0/16\", kind = \"blackhole\" }] # both\n"
        );
    }

    #[test]
    fn placements_stand_in_the_order_in_which_they_count() {
        let place =
            |flow: &str, level: &str| format!("[[place]]\nflow = \"{flow}\"\nlevel = \"{level}\" # so\n");
        let [all, udp, tcp] = [("*", "worker"), ("proto udp", "xdp"), ("proto tcp", "worker")]
            .map(|(flow, level)| place(flow, level));
        for (file, runs, comments) in [
            (format!("{all}{udp}"), format!("{udp}{all}"), 0),
            (format!("{all}{udp}"), format!("{all}{udp}{tcp}"), 2),
            (format!("{all}{udp}{tcp}"), format!("{all}{tcp}"), 2),
        ] {
            let saved = parsed(&runs).save_into(&file, "test.toml").unwrap();
            assert_eq!(parsed(&saved), parsed(&runs), "{saved}");
            assert_eq!(saved.matches("# so").count(), comments, "{saved}");
        }
    }

    #[test]
    fn what_happens_at_death_is_said_where_it_has_to_be() {
        const PORTS: &str = "[[port]]\nname = \"lan\"\ndevice = \"eth1\"\n";
        let mut runs = parsed(PORTS);
        assert_eq!(runs.save_into(PORTS, "test.toml").unwrap(), PORTS);
        runs.filter = parsed(FILE).filter;
        runs.filter[0].r#match = Text::of("proto tcp dport 25".parse().unwrap());
        let saved = runs.save_into(PORTS, "test.toml").unwrap();
        assert!(saved.contains("on-death = \"kernel\""), "{saved}");
        // Nothing has to be restarted to make of one the other.
        assert_eq!(runs.normalized().difference(&parsed(&saved).normalized()).restart, [""; 0]);
    }

    #[test]
    fn what_differs_is_changed_where_it_stands_and_comments_stay() {
        let runs = FILE
            .replace("icmp-rate = 100", "icmp-rate = 200")
            .replace("rate = \"10mbit\"", "rate = \"20mbit\"")
            .replace("via = \"10.2.0.254\"", "via = [\"10.2.0.253\", \"10.2.0.254\"]");
        let saved = parsed(&runs).save_into(FILE, "test.toml").unwrap();
        assert_eq!(saved, runs);
    }

    #[test]
    fn what_is_gone_goes_and_what_is_new_comes_last() {
        let gone = FILE.split("# Mail").next().unwrap();
        let more = "[[route]]\nto = \"10.8.0.0/16\"\nkind = \"blackhole\"\n\n[[bind]]\ninstance = \"s\"\ngate = \"monitor\"\n\
                    filter = \"*\"\n\n[[instance]]\nplugin = \"port-filter\"\nname = \"s\"\nsettings = { ports = \"80\" }\n";
        let runs = parsed(&format!("{gone}{more}"));
        let saved = runs.save_into(FILE, "test.toml").unwrap();
        for kept in ["# Our router.", "# not more", "# towards the hosts", "# as paid for", "# one for all"] {
            assert!(saved.contains(kept), "{kept}: {saved}");
        }
        assert!(!saved.contains("dport 25") && !saved.contains("the branch"), "{saved}");
        let again = parsed(&saved).normalized();
        assert!(again.difference(&runs.clone().normalized()).is_empty(), "{saved}");
        assert!(saved.contains("settings = { ports = \"80\" }"), "{saved}");
    }

    #[test]
    fn what_a_port_gets_is_written_at_the_port() {
        let tree = "kind = \"memory\"\naddress = [\"10.2.0.1/24\"]\nreverse-path = \"loose\"\nscheduler = { node = [{ name = \"q\", \
                    kind = \"flow-queues\", rate = \"1mbit\" }], flow = [{ queue = \"q\", rate = \"64kbit\", \
                    flow = \"src 10.0.0.2 dst 10.1.0.2 proto udp sport 4 dport 5 in wan\" }] }";
        let runs = FILE.replace("kind = \"memory\"\naddress = [\"10.2.0.1/24\"]", tree);
        assert!(runs.contains("flow-queues"));
        let saved = parsed(&runs).save_into(FILE, "test.toml").unwrap();
        let difference = parsed(&runs).normalized().difference(&parsed(&saved).normalized());
        assert!(difference.is_empty(), "{difference:?}: {saved}");
        assert!(saved.contains("# no mail") || saved.contains("# from inside"), "{saved}");
        // And away again.
        let back = parsed(FILE).save_into(&saved, "test.toml").unwrap();
        assert!(parsed(FILE).normalized().difference(&parsed(&back).normalized()).is_empty(), "{back}");
    }

    #[test]
    fn a_text_that_nobody_wrote_reads_back() {
        let runs = parsed(FILE);
        let text = runs.to_text().unwrap();
        let difference = runs.normalized().difference(&parsed(&text).normalized());
        assert!(difference.is_empty(), "{difference:?}: {text}");
    }
}
