//! Describes changes by equivalent commands.

use std::collections::HashSet;
use std::fmt::Display;

use serde_json::{Map, Value};

use super::nodes::{Nodes, default_leaf};
use crate::schema::scheduler::{FlowQueue, Scheduler, SchedulerNode};
use crate::schema::{
    Admission, Allowance, Bind, Filter, Gate, Neighbour, ObjectRuntime, OnFault, Placement, Plugin,
    Principal, Route, RouteKind, Service,
};

/// Quotes a word for a shell.
pub(crate) fn quoted(word: &impl Display) -> String {
    let word = word.to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/,=+@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word,
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Returns the text of a value that is a string in a configuration file.
pub(crate) fn text(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(text)) => text,
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}

/// Returns `KEY=VALUE`; the value is empty for a removal.
pub(crate) fn setting(key: &str, value: &Value) -> String {
    match value {
        Value::Null => format!("{key}="),
        Value::String(text) => quoted(&format!("{key}={text}")),
        other => quoted(&format!("{key}={other}")),
    }
}

pub(crate) fn add_plugin(plugin: &Plugin) -> String {
    let downgrade = if plugin.allow_downgrade { " --allow-downgrade" } else { "" };
    let runtime = match plugin.runtime {
        ObjectRuntime::Process => "",
        ObjectRuntime::InProcess => " --runtime in-process",
    };
    format!("plugin load {}{downgrade}{runtime}", quoted(&plugin.file.display()))
}

pub(crate) fn add_gate(gate: &Gate) -> String {
    let position = gate.position.as_ref().map_or("", |position| position.written());
    format!("gate create {position} {}", &*gate.name)
}

pub(crate) fn bind(verb: &str, bind: &Bind) -> String {
    let filter = quoted(&bind.filter.written());
    let mut words = format!("{verb} {} --gate {} --filter {filter}", &*bind.instance, &*bind.gate);
    if verb == "unbind" {
        return words;
    }
    if bind.priority != 0 {
        words += &format!(" --priority {}", bind.priority);
    }
    if bind.on_fault != OnFault::default() {
        words += &format!(" --on-fault {}", text(&bind.on_fault));
    }
    if let Some(principal) = &bind.principal {
        words += &format!(" --principal {}", &**principal);
    }
    for (option, budget) in [("budget", bind.budget), ("packet-budget", bind.packet_budget)] {
        if let Some(budget) = budget {
            words += &format!(" --{option} {budget}");
        }
    }
    if bind.queue {
        words += " --queue";
    }
    if let Some(weight) = bind.queue_weight {
        words += &format!(" --queue-weight {weight}");
    }
    words
}

pub(crate) fn filter(verb: &str, filter: &Filter) -> String {
    let (matches, action) = (quoted(&filter.r#match.written()), quoted(&filter.action.written()));
    let mut words = format!("filter {verb} {matches} --action {action}");
    if let Some(gate) = &filter.gate
        && filter.action.value().default_gate() != Some(&**gate)
    {
        words += &format!(" --gate {}", &**gate);
    }
    if filter.priority != 0 {
        words += &format!(" --priority {}", filter.priority);
    }
    words
}

pub(crate) fn route(verb: &str, route: &Route) -> String {
    let kind = match route.kind {
        RouteKind::Forward => String::new(),
        kind => format!("{} ", kind.name()),
    };
    let via: String = route.via.iter().map(|via| format!(" via {via}")).collect();
    let port = route.port.as_ref().map_or_else(String::new, |port| format!(" port {}", &**port));
    format!("route {verb} {kind}{}{via}{port}", route.to.value())
}

pub(crate) fn neighbour(verb: &str, neighbour: &Neighbour) -> String {
    let (port, address) = (&*neighbour.port, neighbour.address);
    match verb {
        "add" => format!("neighbour add {port} {address} {}", neighbour.mac.value()),
        _ => format!("neighbour {verb} {port} {address}"),
    }
}

pub(crate) fn add_principal(principal: &Principal) -> String {
    let settings = flat(principal).into_iter().filter(|(key, _)| key != "name");
    let settings: String = settings.map(|(key, value)| format!(" {}", setting(&key, &value))).collect();
    format!("principal add {}{settings}", &*principal.name)
}

/// Returns the commands that change how much may be promised, and the allowances.
pub(crate) fn admission(from: &Admission, to: &Admission) -> Vec<String> {
    let settings = |changes: &Map<String, Value>| -> String {
        changes.iter().map(|(key, value)| format!(" {}", setting(key, value))).collect()
    };
    let named = |list: &[Allowance], name: &str| list.iter().find(|one| *one.name == *name).map(flat);
    let gone = from.allowance.iter().filter(|one| named(&to.allowance, &one.name).is_none());
    let gone = gone.map(|one| format!("allowance remove {}", &*one.name));
    let kept = to.allowance.iter().filter_map(|one| {
        let name = &*one.name;
        let before = named(&from.allowance, name);
        let verb = if before.is_some() { "set" } else { "add" };
        let mut changes = difference(&before.unwrap_or_default(), &flat(one));
        changes.remove("name");
        (verb == "add" || !changes.is_empty())
            .then(|| format!("allowance {verb} {name}{}", settings(&changes)))
    });
    let mut whole = changed(from, to);
    whole.remove("allowance");
    let whole = (!whole.is_empty()).then(|| format!("admission set{}", settings(&whole)));
    whole.into_iter().chain(gone).chain(kept).collect()
}

pub(crate) fn set_principal(from: &Principal, to: &Principal) -> String {
    let (mut from, to) = (flat(from), flat(to));
    // An amount of its own replaces that of another principal, and the other way round.
    for key in to.keys() {
        match key.strip_suffix(".same-as") {
            Some(own) => from.remove(own),
            None => from.remove(&format!("{key}.same-as")),
        };
    }
    let changes = difference(&from, &to);
    let settings: String = changes.iter().map(|(key, value)| format!(" {}", setting(key, value))).collect();
    format!("principal set {}{settings}", to["name"].as_str().unwrap_or_default())
}

/// Returns a table as a JSON object. The key of a setting inside another one is `OUTER.INNER`.
fn flat(table: &impl serde::Serialize) -> Map<String, Value> {
    let mut flat = Map::new();
    flatten("", object(table), &mut flat);
    flat
}

fn flatten(outer: &str, settings: Map<String, Value>, flat: &mut Map<String, Value>) {
    for (key, value) in settings {
        let key = format!("{outer}{key}");
        match value {
            Value::Object(inner) => flatten(&format!("{key}."), inner, flat),
            value => drop(flat.insert(key, value)),
        }
    }
}

/// Returns the options that turn one declared load and level of an instance into another. Each follows a blank.
pub(crate) fn service(from: Option<&Service>, to: Option<&Service>) -> String {
    let none = Service::default();
    let (from, to) = (from.unwrap_or(&none), to.unwrap_or(&none));
    let mut words = String::new();
    if from.rate != to.rate {
        words += &format!(" --rate {}", to.rate);
    }
    for (option, was, is, default) in [
        ("size", from.size.map(|one| text(&one)), to.size.map(|one| text(&one)), "1538B"),
        ("packet", from.packet.map(|one| one.to_string()), to.packet.map(|one| one.to_string()), "default"),
        ("byte", from.byte.map(|one| one.to_string()), to.byte.map(|one| one.to_string()), "default"),
        ("level", from.level.map(|one| text(&one)), to.level.map(|one| text(&one)), "auto"),
        ("worker", from.worker.map(|one| one.to_string()), to.worker.map(|one| one.to_string()), "auto"),
    ] {
        if was != is {
            words += &format!(" --{option} {}", is.as_deref().unwrap_or(default));
        }
    }
    words
}

/// Returns the commands that turn one list of placements into another. If the order of the remaining
/// placements changes, all placements are removed and added again.
pub(crate) fn places(from: &[Placement], to: &[Placement]) -> Vec<String> {
    let place = |flow: &str, level: &str| format!("place {} {level}", quoted(&flow));
    let stay = |one: &&Placement| to.iter().any(|other| other.flow == one.flow);
    let kept: Vec<&str> = from.iter().filter(stay).map(|one| one.flow.written()).collect();
    let ordered = to.iter().map(|one| one.flow.written()).take(kept.len()).eq(kept.iter().copied());
    let gone = from.iter().filter(|one| !ordered || !stay(one));
    let placed = to.iter().filter(|one| !ordered || !from.contains(one));
    let gone = gone.map(|one| place(one.flow.written(), "auto"));
    gone.chain(placed.map(|one| place(one.flow.written(), &text(&one.level)))).collect()
}

/// Returns the commands that turn one scheduler of a port into another. Packets of removed leaves move to
/// leaf `heir` if the commands keep this leaf; otherwise they are dropped.
pub(crate) fn scheduler(port: &str, from: &Scheduler, to: &Scheduler, heir: Option<&str>) -> Vec<String> {
    let mut commands = Vec::new();
    let (released, set) = flows(port, from, to);
    commands.extend(released);
    let (before, left) = (Nodes::of(from), staying(from, to));
    let stays = |name: &str| left.contains(name);
    let heir = heir.filter(|heir| stays(heir)).map_or_else(String::new, |heir| format!(" --to {heir}"));
    for gone in from.node.iter().filter(|node| !stays(&node.name)) {
        // Removing a node removes its descendants too, so they need no commands.
        if gone.under.as_deref().is_none_or(stays) {
            commands.push(format!("scheduler remove {port} {}{heir}", gone.name));
        }
    }
    for node in &to.node {
        let settings = |from: Option<&SchedulerNode>| -> String {
            let changed = match from {
                Some(from) => changed(from, node),
                None => object(node),
            };
            let is_part_of_command = |key: &str| match from {
                Some(_) => key == "name",
                None => ["name", "kind", "under"].contains(&key),
            };
            let settings = changed.iter().filter(|(key, _)| !is_part_of_command(key));
            settings.map(|(key, value)| format!(" {}", setting(key, value))).collect()
        };
        match before.get(&node.name).filter(|own| stays(&own.name)) {
            Some(own) if own == node => {}
            Some(own) => {
                commands.push(format!("scheduler set {port} --node {}{}", node.name, settings(Some(own))));
            }
            None => {
                let under = node.under.as_ref().map_or_else(String::new, |under| format!(" --under {under}"));
                let (name, kind) = (&node.name, node.kind.name());
                commands.push(format!("scheduler add {port} {name} --kind {kind}{under}{}", settings(None)));
            }
        }
    }
    let own = |scheduler: &Scheduler| Scheduler { node: Vec::new(), flow: Vec::new(), ..scheduler.clone() };
    let mut settings = changed(&own(from), &own(to));
    // Without a `default`, the first leaf is the default. It may be another leaf after the commands.
    if to.default.is_none() && default_leaf(to) != default_after(from, to, &left) {
        settings.insert("default".to_owned(), default_leaf(to).into());
    }
    if !to.node.is_empty() && !settings.is_empty() {
        let settings: String =
            settings.iter().map(|(key, value)| format!(" {}", setting(key, value))).collect();
        commands.push(format!("scheduler set {port}{settings}"));
    }
    commands.extend(set);
    commands
}

/// Returns the first leaf after the commands have removed and added nodes. It is the default leaf if no
/// `default` is set.
fn default_after<'s>(from: &'s Scheduler, to: &'s Scheduler, stay: &HashSet<&str>) -> Option<&'s str> {
    let there = from.node.iter().filter(|node| stay.contains(&*node.name));
    let mut leaves = there.chain(&to.node).filter(|node| node.kind.is_leaf());
    leaves.next().map(|node| &*node.name)
}

/// Returns the nodes that commands can keep: leaves that stay leaves, and inner nodes that keep their kind.
/// The parent of a kept node is also kept. A root stays a root, and other nodes don't become roots.
fn staying<'s>(from: &'s Scheduler, to: &Scheduler) -> HashSet<&'s str> {
    let now = Nodes::of(to);
    let mut staying = HashSet::new();
    for was in &from.node {
        let Some(is) = now.get(&was.name) else { continue };
        let is_leaf = was.kind.is_leaf() && is.kind.is_leaf();
        let is_below = was.under.as_deref().is_none_or(|above| staying.contains(above));
        if (was.kind == is.kind || is_leaf) && was.under.is_none() == is.under.is_none() && is_below {
            staying.insert(&*was.name);
        }
    }
    staying
}

/// Returns the commands that change the settings of flows, in two lists: first the resets of removed
/// settings, then all other commands.
fn flows(port: &str, from: &Scheduler, to: &Scheduler) -> (Vec<String>, Vec<String>) {
    let is = |one: &FlowQueue, other: &FlowQueue| (&one.queue, &one.flow) == (&other.queue, &other.flow);
    let command = |own: &FlowQueue, settings: String| {
        format!("queue set {port} {} --flow {}{settings}", own.queue, quoted(&own.flow))
    };
    // Removing a queue removes its flow settings too, so they need no commands.
    let there = |own: &&FlowQueue| to.node.iter().any(|node| node.name == own.queue);
    let gone = from.flow.iter().filter(there).filter(|own| !to.flow.iter().any(|other| is(own, other)));
    let settings = |own: &FlowQueue| {
        let mut settings = object(own);
        settings.retain(|key, _| key != "queue" && key != "flow");
        settings
    };
    let without = |keys: Vec<&String>| keys.into_iter().map(|key| format!(" {key}=")).collect::<String>();
    let released = gone.map(|own| command(own, without(settings(own).keys().collect()))).collect();
    let mut commands = Vec::new();
    for own in to.flow.iter().filter(|own| !from.flow.contains(own)) {
        let before = from.flow.iter().find(|other| is(own, other)).map(settings).unwrap_or_default();
        let now = settings(own);
        let gone = without(before.keys().filter(|key| !now.contains_key(*key)).collect());
        let set: String = now.iter().map(|(key, value)| format!(" {}", setting(key, value))).collect();
        commands.push(command(own, gone + &set));
    }
    (released, commands)
}

/// Returns the keys whose values differ between two versions of a table, with their new values; `null` marks
/// a removed key.
pub(crate) fn changed<T: serde::Serialize>(from: &T, to: &T) -> Map<String, Value> {
    difference(&object(from), &object(to))
}

/// Returns the keys whose values differ between two objects, with their new values; `null` marks a removed
/// key.
pub(crate) fn difference(from: &Map<String, Value>, to: &Map<String, Value>) -> Map<String, Value> {
    let gone = from.keys().filter(|key| !to.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let new = to.iter().filter(|(key, value)| from.get(*key) != Some(value));
    gone.chain(new.map(|(key, value)| (key.clone(), value.clone()))).collect()
}

/// Returns a table as a JSON object.
pub(crate) fn object<T: serde::Serialize>(table: &T) -> Map<String, Value> {
    match serde_json::to_value(table).map(without_nulls) {
        Ok(Value::Object(object)) => object,
        _ => Map::new(),
    }
}

/// Returns a value without the keys whose value is `null`.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(object) => {
            let there = object.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(there.map(|(key, value)| (key, without_nulls(value))).collect())
        }
        Value::Array(list) => Value::Array(list.into_iter().map(without_nulls).collect()),
        other => other,
    }
}
