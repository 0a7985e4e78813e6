//! Commands that ask a running router or change it.

use std::collections::BTreeSet;

use hyper::Method;
use millrace_units::count;
use serde_json::{Map, Value, json};

use crate::arguments::{Bind, Control, GateAction, InstanceAction, Lookup, Noun, Unbind};
use crate::client::Client;
use crate::commands::columns::columns;
use crate::commands::{control_plane, events, hardware, place};
use crate::output::{Column, Failure, lines, plain, rows, table};

/// Shows a noun.
pub fn show(client: &Client, noun: Noun, json: bool) -> Result<(), Failure> {
    show_value(client.get(noun.path())?, noun, json);
    Ok(())
}

pub(super) fn show_value(mut value: Value, noun: Noun, json: bool) {
    match noun {
        Noun::Openapi => print(&value, &[], true),
        Noun::Configuration if !json => print!("{}", value["text"].as_str().unwrap_or_default()),
        Noun::Hardware if !json => print!("{}", hardware::drawn(&value)),
        Noun::Events if !json => print!("{}", events::events_of(&value)),
        Noun::Audit if !json => print!("{}", events::audit_of(&value)),
        Noun::Places if !json => print!("{}", place::listed(&value)),
        Noun::ControlPlane if !json => print!("{}", control_plane::listed(&value)),
        Noun::Rates if !json => print(&value["ports"], columns(noun), false),
        Noun::Interface if !json => print(&value["resources"], columns(noun), false),
        Noun::Status if !json => {
            put_units(&mut value);
            if let Some(waits) = super::configuration::waits(&value["pending"]) {
                value["pending"] = waits.into();
            }
            let missing = super::configuration::missing(&value);
            if !missing.is_empty() {
                value["missing_routes"] = missing.join("; ").into();
            }
            print(&value, &[], false);
        }
        _ => show_rows(&mut value, noun, json),
    }
}

/// Where numbers of the status stand, and what they count.
const UNITS: [(&str, &str); 6] = [
    ("/uptime", "s"),
    ("/memory/frames", "of 2048 bytes"),
    ("/flow_states/bytes", "bytes"),
    ("/turns/longest_change", "µs"),
    ("/sleeps", "times"),
    ("/routes", "prefixes"),
];

/// Puts units behind the numbers of the status.
fn put_units(status: &mut Value) {
    let with_unit = |value: &mut Value, unit: &str| *value = format!("{} {unit}", plain(value)).into();
    for (place, unit) in UNITS {
        status.pointer_mut(place).into_iter().for_each(|value| with_unit(value, unit));
    }
    let seconds = status.get_mut("worker_cpu").and_then(Value::as_array_mut);
    seconds.into_iter().flatten().for_each(|value| with_unit(value, "s"));
}

/// Shows a list, or an object.
fn show_rows(value: &mut Value, noun: Noun, json: bool) {
    if !json {
        let what = if matches!(noun, Noun::Gates) { "action" } else { "gate" };
        value.as_array_mut().into_iter().flatten().for_each(|row| name_bindings(row, what));
    }
    print(value, columns(noun), json);
    if !json {
        rows(value).iter().filter_map(passed_by).for_each(|line| println!("{line}"));
    }
}

/// What is said below the table of a port at which packets of the router pass something by.
fn passed_by(port: &Value) -> Option<String> {
    let discipline = port["queueing_discipline"].as_str()?;
    Some(format!(
        "{}: no packet of the router passes the kernel's queueing discipline {discipline} there; use a scheduler (millrace scheduler)",
        plain(&port["name"])
    ))
}

/// Settings as a file and commands write them: with hyphens where JSON has underscores.
pub(super) fn as_in_file(settings: Value) -> Value {
    match settings {
        Value::Object(keys) => keys.into_iter().map(|(key, value)| (key.replace('_', "-"), value)).collect(),
        other => other,
    }
}

/// Bindings of a row that are shown; of others only how many there are.
const MOST_BINDINGS: usize = 3;

/// Puts lines in the place of a row's bindings, if it has any: `what` each has, and its filter.
fn name_bindings(row: &mut Value, what: &str) {
    let Some(Value::Array(bindings)) = row.get_mut("bindings") else { return };
    let line = |binding: &Value| format!("{} [{}]", plain(&binding[what]), plain(&binding["filter"]));
    let mut lines: Vec<Value> =
        bindings.iter().take(MOST_BINDINGS).map(|binding| line(binding).into()).collect();
    if bindings.len() > MOST_BINDINGS {
        lines.push(format!("and {} more", bindings.len() - MOST_BINDINGS).into());
    }
    *bindings = lines;
}

/// Prints the metrics.
pub fn metrics(client: &Client, json: bool) -> Result<(), Failure> {
    if json {
        return Err(Failure::usage("metrics are text that programs read: leave out --json"));
    }
    client.stream("/metrics", "*/*", |bytes| match std::io::Write::write_all(&mut std::io::stdout(), bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::new(format!("can't print the metrics: {error}"))),
    })
}

/// Prints JSON, a table, or an object line by line.
pub fn print(value: &Value, columns: &[Column], json: bool) {
    match value {
        _ if json => println!("{value:#}"),
        Value::Array(rows) => print!("{}", table(rows, columns)),
        object => print!("{}", lines(object)),
    }
}

/// Says that something was done: in JSON the thing itself, else a line.
pub fn done(value: &Value, line: &str, json: bool) {
    if json {
        println!("{value:#}");
    } else {
        println!("{line}");
    }
}

/// Creates, frees and lists instances.
pub fn instance(client: &Client, action: &InstanceAction, json: bool) -> Result<(), Failure> {
    match action {
        InstanceAction::Create { plugin, name, settings } => {
            let body = json!({"plugin": plugin, "name": name, "settings": pairs(settings)?});
            let value = client.send(Method::POST, "/instances", Some(&body))?;
            let line = match value["health"].as_str() {
                Some("quarantined") => {
                    let why = plain(&value["last_fault"]);
                    format!("instance {name} of {plugin} created, in quarantine: {why}")
                }
                _ => format!("instance {name} of {plugin} created"),
            };
            done(&value, &line, json);
        }
        InstanceAction::Set { name, settings } => {
            let body = json!({"settings": changes(settings)?});
            let value = client.send(Method::PATCH, &format!("/instances/{}", segment(name)), Some(&body))?;
            done(&value, &format!("instance {name} has the settings {}", value["settings"]), json);
        }
        InstanceAction::Rename { name, to } => {
            let body = json!({"name": to});
            let value = client.send(Method::PATCH, &format!("/instances/{}", segment(name)), Some(&body))?;
            done(&value, &format!("instance {name} is {to} now"), json);
        }
        InstanceAction::Release { name } => {
            let path = format!("/instances/{}/release", segment(name));
            let value = client.send(Method::POST, &path, None)?;
            let then = if value["is_here"] == true { "begins anew" } else { "can be created again" };
            done(&value, &format!("instance {name} is out of quarantine, and {then}"), json);
        }
        InstanceAction::Free { name } => {
            let value = client.send(Method::DELETE, &format!("/instances/{}", segment(name)), None)?;
            done(&value, &format!("instance {name} freed"), json);
        }
        InstanceAction::List => show(client, Noun::Instances, json)?,
        InstanceAction::Map { name, map: None } => {
            let maps = client.send(Method::GET, &format!("/instances/{}/maps", segment(name)), None)?;
            let columns = [
                ("map", "name"),
                ("key bytes", "key"),
                ("value bytes", "value"),
                ("entries", "entries"),
                ("at most, each worker", "most"),
                ("refused", "refused"),
            ];
            print(&maps, &columns, json);
        }
        InstanceAction::Map { name, map: Some(map) } => {
            let path = format!("/instances/{}/maps/{}", segment(name), segment(map));
            let shown = client.send(Method::GET, &path, None)?;
            if json {
                println!("{shown:#}");
            } else {
                let columns = [("worker", "worker"), ("key", "key"), ("value", "value")];
                print!("{}", table(rows(&shown["content"]), &columns));
                if shown["more"] == true {
                    println!("and more: {} in all", shown["entries"]);
                }
            }
        }
    }
    Ok(())
}

/// Creates, removes and lists gates.
pub fn gate(client: &Client, action: &GateAction, json: bool) -> Result<(), Failure> {
    match action {
        GateAction::Create { position, name } => {
            let body = json!({"name": name, "position": position});
            let value = client.send(Method::POST, "/gates", Some(&body))?;
            done(&value, &format!("gate {name} created at position {position}"), json);
        }
        GateAction::Set { name, table } => {
            let body = json!({"table": table});
            let value = client.send(Method::PATCH, &format!("/gates/{}", segment(name)), Some(&body))?;
            let line = match value["moved"].as_str() {
                Some(why) => format!("gate {name}: {why}"),
                None => format!("gate {name} searches its filters by {}", plain(&value["table"])),
            };
            done(&value, &line, json);
        }
        GateAction::Remove { name } => {
            let value = client.send(Method::DELETE, &format!("/gates/{}", segment(name)), None)?;
            done(&value, &format!("gate {name} removed"), json);
        }
        GateAction::List => show(client, Noun::Gates, json)?,
    }
    Ok(())
}

/// Binds an instance.
pub fn bind(client: &Client, bind: &Bind, json: bool) -> Result<(), Failure> {
    let body = json!({
        "instance": bind.instance,
        "gate": bind.gate,
        "filter": bind.filter,
        "priority": bind.priority,
        "on_fault": bind.on_fault,
        "budget": bind.budget,
        "packet_budget": bind.packet_budget,
    });
    let value = client.send(Method::POST, "/bindings", Some(&body))?;
    let filter = plain(&value["filter"]);
    done(&value, &format!("{} bound at {} to: {filter}", bind.instance, bind.gate), json);
    super::filter::warn_shadowed(&value);
    Ok(())
}

/// Undoes a binding; with `--all`, all of an instance.
pub fn unbind(client: &Client, unbind: &Unbind, json: bool) -> Result<(), Failure> {
    let Unbind { instance, gate, filter, all } = unbind;
    if let (Some(gate), Some(filter)) = (gate, filter) {
        return unbind_one(client, instance, gate, filter, json);
    }
    // An instance that there isn't is an error, and not an instance without bindings.
    client.get(&format!("/instances/{}", segment(instance)))?;
    let listed = client.get("/bindings")?;
    let is_meant = |row: &&Value| {
        row["instance"] == instance.as_str() && gate.as_ref().is_none_or(|gate| row["gate"] == gate.as_str())
    };
    let bound: Vec<&Value> = rows(&listed).iter().filter(is_meant).collect();
    let at = gate.as_ref().map_or(String::new(), |gate| format!(" at gate {gate}"));
    match bound.as_slice() {
        [] => Err(Failure::new(format!("instance {instance:?} is not bound{at}: `millrace show bindings`"))),
        several if several.len() > 1 && !all => {
            let line =
                |row: &&Value| format!("--gate {} --filter '{}'", plain(&row["gate"]), plain(&row["filter"]));
            let lines: Vec<String> = several.iter().map(line).collect();
            Err(Failure::usage(format!(
                "instance {instance:?} has {}{at}: add --all, or one of: {}",
                count(several.len(), "binding"),
                lines.join("; ")
            )))
        }
        bound => {
            // One call undoes all priorities.
            let named: BTreeSet<_> =
                bound.iter().map(|row| (plain(&row["gate"]), plain(&row["filter"]))).collect();
            named.iter().try_for_each(|(gate, filter)| unbind_one(client, instance, gate, filter, json))
        }
    }
}

fn unbind_one(client: &Client, instance: &str, gate: &str, filter: &str, json: bool) -> Result<(), Failure> {
    let body = json!({"instance": instance, "gate": gate, "filter": filter});
    let value = client.send(Method::DELETE, "/bindings", Some(&body))?;
    let filter = plain(&value["filter"]);
    done(&value, &format!("{instance} no longer bound at {gate} to: {filter}"), json);
    Ok(())
}

/// Sends a control message and prints the reply.
pub fn control(client: &Client, control: &Control, json: bool) -> Result<(), Failure> {
    let mut body = json!({"message": control.message, "arguments": pairs(&control.arguments)?});
    if control.slow {
        body["slow"] = true.into();
    }
    let path = format!("/instances/{}/control", segment(&control.instance));
    let value = client.send(Method::POST, &path, Some(&body))?;
    print(&value, &[], json);
    Ok(())
}

/// Says what would happen to a packet.
pub fn lookup(client: &Client, lookup: &Lookup, json: bool) -> Result<(), Failure> {
    let value = client.send(Method::POST, "/lookup", Some(&json!({"packet": lookup.packet})))?;
    if json {
        println!("{value:#}");
        return Ok(());
    }
    for step in value["steps"].as_array().into_iter().flatten() {
        println!("{:<9} {}", plain(&step["stage"]), plain(&step["text"]));
    }
    println!("{:<9} {}", "verdict", plain(&value["verdict"]));
    Ok(())
}

/// Sets the counters to zero.
pub fn clear(client: &Client, json: bool) -> Result<(), Failure> {
    let value = client.send(Method::DELETE, "/counters", None)?;
    done(&value, "counters are zero", json);
    Ok(())
}

/// `KEY=VALUE` arguments as an object; values that are JSON are taken as such, all others as text.
pub fn pairs(arguments: &[String]) -> Result<Map<String, Value>, Failure> {
    let mut object = Map::new();
    for argument in arguments {
        let Some((key, text)) = argument.split_once('=') else {
            return Err(Failure::usage(format!("{argument:?} is not of the form KEY=VALUE")));
        };
        if key.trim().is_empty() {
            return Err(Failure::usage(format!(
                "{argument:?} has no key: write KEY=VALUE, without blanks around the ="
            )));
        }
        let value = serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()));
        if object.insert(key.to_owned(), value).is_some() {
            return Err(Failure::usage(format!("{key} is given twice")));
        }
    }
    Ok(object)
}

/// Settings that change: one without a value is taken away.
pub fn changes(arguments: &[String]) -> Result<Map<String, Value>, Failure> {
    let mut settings = pairs(arguments)?;
    for value in settings.values_mut().filter(|value| value.as_str() == Some("")) {
        *value = Value::Null;
    }
    Ok(settings)
}

/// A name as a segment of a path.
pub fn segment(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    name.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_become_json_where_they_are_json() {
        let object = pairs(&["n=5".into(), "ports=80,443".into(), "on=true".into()]).unwrap();
        assert_eq!(Value::Object(object), json!({"n": 5, "ports": "80,443", "on": true}));
        assert_eq!(pairs(&["n".into()]).unwrap_err().code, 2);
        assert!(pairs(&["n=1".into(), "n=2".into()]).is_err());
        let nameless = pairs(&["=5".into()]).unwrap_err();
        assert_eq!(nameless.code, 2);
        assert!(nameless.message.starts_with("\"=5\" has no key"), "{}", nameless.message);
    }

    #[test]
    fn numbers_of_the_status_have_units() {
        let mut status = json!({"uptime": 1.44, "memory": {"used": 3, "frames": 32768}, "worker_cpu": [0.5, 2.0], "pid": 7});
        put_units(&mut status);
        let expected = json!({
            "uptime": "1.4 s",
            "memory": {"used": 3, "frames": "32768 of 2048 bytes"},
            "worker_cpu": ["0.5 s", "2.0 s"],
            "pid": 7
        });
        assert_eq!(status, expected);
    }

    #[test]
    fn bindings_read_as_lines() {
        let binding = |port: u16| json!({"gate": "monitor", "action": "drop", "filter": format!("dport {port}"), "packets": 5});
        let shown = |count: u16, what| {
            let mut row = json!({"bindings": (1..=count).map(binding).collect::<Vec<_>>()});
            name_bindings(&mut row, what);
            plain(&row["bindings"])
        };
        assert_eq!(shown(0, "gate"), "-");
        assert_eq!(shown(2, "gate"), "monitor [dport 1], monitor [dport 2]");
        assert_eq!(shown(5, "action"), "drop [dport 1], drop [dport 2], drop [dport 3], and 2 more");
        let mut port = json!({"name": "lan"});
        name_bindings(&mut port, "gate");
        assert_eq!(port, json!({"name": "lan"}));
    }

    #[test]
    fn names_are_escaped_in_paths() {
        assert_eq!(segment("a/b c"), "a%2Fb%20c");
    }
}
