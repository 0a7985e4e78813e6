//! Commands that query or change a running router.

use std::collections::BTreeSet;

use hyper::Method;
use millrace_units::count;
use serde_json::{Value, json};

use crate::arguments::{Bind, Control, GateAction, InstanceAction, Lookup, Noun, Unbind};
use crate::client::{Client, segment};
use crate::commands::admission::{trial, tried};
use crate::commands::observe::show::show;
use crate::output::{self, Failure, done, plain, print, rows, table, write};
use crate::pairs::{changes, pairs, without_defaults};

/// Prints the metrics in OpenMetrics text, as they are served. Refuses `--json`.
pub fn metrics(client: &Client, json: bool) -> Result<(), Failure> {
    if json {
        return Err(Failure::usage("metrics have a text format, not JSON: omit --json"));
    }
    client.stream("/metrics", "*/*", write)
}

/// Creates, frees and lists instances.
pub fn instance(client: &Client, action: &InstanceAction, json: bool) -> Result<(), Failure> {
    match action {
        InstanceAction::Create { plugin, name, settings, service, dry_run } => {
            let mut body = json!({"plugin": plugin, "name": name, "settings": pairs(settings)?});
            let service = service.changes();
            if !service.is_empty() {
                body["service"] = without_defaults(service).into();
            }
            let path = format!("/instances{}", trial(*dry_run));
            let value = client.send(Method::POST, &path, Some(&body))?;
            if *dry_run {
                tried(&value, json);
                return Ok(());
            }
            let line = match value["health"].as_str() {
                Some("quarantined") => {
                    let why = plain(&value["last_fault"]);
                    format!("instance {name} of {plugin} created, in quarantine: {why}")
                }
                _ => format!("instance {name} of {plugin} created{}", at_level(&value)),
            };
            done(&value, &line, json);
        }
        InstanceAction::Set { name, settings } => {
            let body = json!({"settings": changes(settings)?});
            let value = client.send(Method::PATCH, &format!("/instances/{}", segment(name)), Some(&body))?;
            done(&value, &format!("instance {name} changed, settings: {}", value["settings"]), json);
        }
        InstanceAction::Move { name, service, dry_run } => {
            let path = format!("/instances/{}/move{}", segment(name), trial(*dry_run));
            let value = client.send(Method::POST, &path, Some(&service.changes().into()))?;
            if *dry_run {
                tried(&value, json);
                return Ok(());
            }
            done(&value, &format!("instance {name} moved{}", at_level(&value)), json);
        }
        InstanceAction::Rename { name, to } => {
            let body = json!({"name": to});
            let value = client.send(Method::PATCH, &format!("/instances/{}", segment(name)), Some(&body))?;
            done(&value, &format!("instance {name} renamed to {to}"), json);
        }
        InstanceAction::Release { name } => {
            let path = format!("/instances/{}/release", segment(name));
            let value = client.send(Method::POST, &path, None)?;
            let then = if value["exists"] == true { "restarts" } else { "can be created again" };
            done(&value, &format!("instance {name} released from quarantine; it {then}"), json);
        }
        InstanceAction::Free { name } => {
            let value = client.send(Method::DELETE, &format!("/instances/{}", segment(name)), None)?;
            done(&value, &format!("instance {name} freed"), json);
        }
        InstanceAction::List => show(client, Noun::Instances, json)?,
        InstanceAction::Map { name, map: None } => list_maps(client, name, json)?,
        InstanceAction::Map { name, map: Some(map) } => show_map(client, name, map, json)?,
    }
    Ok(())
}

/// Returns where an instance with a declared load or level is; empty for other instances.
fn at_level(instance: &Value) -> String {
    match instance["service"].is_null() {
        true => String::new(),
        false => format!(", at level {}", plain(&instance["level"])),
    }
}

fn list_maps(client: &Client, name: &str, json: bool) -> Result<(), Failure> {
    let maps = client.get(&format!("/instances/{}/maps", segment(name)))?;
    let columns =
        "map=name | key bytes=key | value bytes=value | entries | limit, each worker=limit | refused";
    print(&maps, columns, json);
    Ok(())
}

/// Shows the entries of an instance's map.
fn show_map(client: &Client, name: &str, map: &str, json: bool) -> Result<(), Failure> {
    let path = format!("/instances/{}/maps/{}", segment(name), segment(map));
    let shown = client.get(&path)?;
    let more = || match shown["more"] == true {
        true => format!("more entries exist: {} in total\n", shown["entries"]),
        false => String::new(),
    };
    output::show(&shown, json, || table(rows(&shown["content"]), "worker | key | value") + &more());
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
            let line = match value["table_reason"].as_str() {
                Some(why) => format!("gate {name}: {why}"),
                None => format!("gate {name} looks up filters by {}", plain(&value["table"])),
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

/// Binds an instance to the flows of a filter.
pub fn bind(client: &Client, bind: &Bind, json: bool) -> Result<(), Failure> {
    let body = json!({
        "instance": bind.instance,
        "gate": bind.gate,
        "filter": bind.filter,
        "priority": bind.priority,
        "on_fault": bind.on_fault,
        "principal": bind.principal,
        "budget": bind.budget,
        "packet_budget": bind.packet_budget,
        "queue": bind.queue,
        "queue_weight": bind.queue_weight,
    });
    let path = format!("/bindings{}", trial(bind.dry_run));
    let value = client.send(Method::POST, &path, Some(&body))?;
    if bind.dry_run {
        tried(&value, json);
        return Ok(());
    }
    let filter = plain(&value["filter"]);
    done(&value, &format!("{} bound at gate {}, filter: {filter}", bind.instance, bind.gate), json);
    crate::commands::forwarding::filter::warn_shadowed(&value);
    Ok(())
}

/// Removes a binding; with `--all`, all bindings of an instance.
pub fn unbind(client: &Client, unbind: &Unbind, json: bool) -> Result<(), Failure> {
    let Unbind { instance, gate, filter, all } = unbind;
    if let (Some(gate), Some(filter)) = (gate, filter) {
        return unbind_one(client, instance, gate, filter, json);
    }
    // Check that the instance exists: an unknown instance is an error, not an instance without bindings.
    client.get(&format!("/instances/{}", segment(instance)))?;
    let listed = client.get("/bindings")?;
    let is_meant = |row: &&Value| {
        row["instance"] == instance.as_str() && gate.as_ref().is_none_or(|gate| row["gate"] == gate.as_str())
    };
    let bound: Vec<&Value> = rows(&listed).iter().filter(is_meant).collect();
    let at = gate.as_ref().map_or(String::new(), |gate| format!(" at gate {gate}"));
    match bound.as_slice() {
        [] => Err(Failure::new(format!(
            "instance {instance:?} is not bound{at}: `millrace show bindings` lists the bindings"
        ))),
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
            // One request for each gate and filter: it removes the bindings of all priorities.
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
    done(&value, &format!("{instance} unbound at gate {gate}, filter: {filter}"), json);
    Ok(())
}

/// Sends a control message and prints the reply.
pub fn control(client: &Client, control: &Control, json: bool) -> Result<(), Failure> {
    let mut body = json!({"message": control.message, "arguments": pairs(&control.arguments)?});
    if control.companion {
        body["companion"] = true.into();
    }
    let path = format!("/instances/{}/control", segment(&control.instance));
    let value = client.send(Method::POST, &path, Some(&body))?;
    print(&value, "", json);
    Ok(())
}

/// Shows how the router would treat a packet.
pub fn lookup(client: &Client, lookup: &Lookup, json: bool) -> Result<(), Failure> {
    let value = client.send(Method::POST, "/lookup", Some(&json!({"packet": lookup.packet})))?;
    let line = |stage: &str, text: &Value| format!("{stage:<9} {}\n", plain(text));
    let step = |step: &Value| line(&plain(&step["stage"]), &step["text"]);
    let steps = || rows(&value["steps"]).iter().map(step).collect::<String>();
    output::show(&value, json, || steps() + &line("verdict", &value["verdict"]));
    Ok(())
}

/// Sets the router's packet counters to zero.
pub fn clear(client: &Client, json: bool) -> Result<(), Failure> {
    let value = client.send(Method::DELETE, "/counters", None)?;
    done(&value, "counters reset", json);
    Ok(())
}
