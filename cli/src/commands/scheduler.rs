//! The command `scheduler`.

use hyper::Method;
use millrace_units::BitRate;
use serde_json::{Map, Value, json};

use super::remote::{changes, done, pairs, segment};
use crate::arguments::SchedulerAction;
use crate::client::Client;
use crate::output::{Column, Failure, plain, rows, table};

const COLUMNS: &[Column] = &[
    ("node", "shown"),
    ("id", "id"),
    ("kind", "kind"),
    ("settings", "said"),
    ("promised", "promised"),
    ("delivered", "delivered"),
    ("packets", "sent_packets"),
    ("waiting", "held_packets"),
    ("peak bytes", "peak_bytes"),
    ("drops", "dropped"),
];

/// Adds, changes, removes and shows nodes of schedulers.
pub fn scheduler(client: &Client, action: &SchedulerAction, json: bool) -> Result<(), Failure> {
    match action {
        SchedulerAction::Add { port, node, kind, under, settings } => {
            let mut body = pairs(settings)?;
            body.insert("name".to_owned(), json!(node));
            body.insert("kind".to_owned(), json!(kind));
            if let Some(under) = under {
                body.insert("under".to_owned(), json!(under));
            }
            let value = client.send(Method::POST, &path(port, None), Some(&Value::Object(written(body))))?;
            done(&value, &format!("node {node} added to the scheduler of {port}"), json);
        }
        SchedulerAction::Set { port, node, settings } => {
            let body = Value::Object(written(changes(settings)?));
            let value = client.send(Method::PATCH, &path(port, node.as_deref()), Some(&body))?;
            let what = node.as_ref().map_or(format!("port {port}"), |node| format!("node {node} of {port}"));
            done(&value, &format!("{what} changed: {}", settings.join(" ")), json);
        }
        SchedulerAction::Remove { port, node, to } => {
            let value = client.send(Method::DELETE, &path(port, Some(node)), Some(&json!({"to": to})))?;
            let left = to.as_ref().map_or("what waited there is dropped".to_owned(), |to| {
                format!("what waited there waits in {to}")
            });
            done(&value, &format!("node {node} removed from {port}; {left}"), json);
        }
        SchedulerAction::Show { port: Some(port) } => show(&client.get(&path(port, None))?, json),
        SchedulerAction::Show { port: None } => {
            let value = client.get("/schedulers")?;
            if json {
                println!("{value:#}");
            } else if rows(&value).is_empty() {
                println!("no port has a scheduler: all send at once, first in first out");
            } else {
                rows(&value).iter().for_each(|one| show(one, false));
            }
        }
    }
    Ok(())
}

fn path(port: &str, node: Option<&str>) -> String {
    match node {
        Some(node) => format!("/schedulers/{}/{}", segment(port), segment(node)),
        None => format!("/schedulers/{}", segment(port)),
    }
}

/// Rates and curves are texts, also where they look like numbers.
fn written(mut settings: Map<String, Value>) -> Map<String, Value> {
    for key in ["rate", "real-time", "link-sharing", "upper-limit", "default"] {
        if let Some(value) = settings.get_mut(key)
            && value.is_number()
        {
            *value = Value::String(value.to_string());
        }
    }
    settings
}

fn show(scheduler: &Value, json: bool) {
    if json {
        println!("{scheduler:#}");
        return;
    }
    let rate = rate(&scheduler["rate"]);
    let rate = if rate == "-" { "as fast as it can".to_owned() } else { format!("at {rate}") };
    let [port, overhead, default] = ["port", "overhead", "default"].map(|key| plain(&scheduler[key]));
    println!("port {port} sends {rate}, overhead {overhead}; other packets wait in {default}");
    let nodes = rows(&scheduler["nodes"]);
    let lines: Vec<Value> = nodes.iter().map(|node| line(node, nodes)).collect();
    print!("{}", table(&lines, COLUMNS));
}

/// A node as a line, further in the further down it is.
fn line(node: &Value, nodes: &[Value]) -> Value {
    let mut line = node.clone();
    line["shown"] = json!(format!("{}{}", "  ".repeat(depth(node, nodes)), plain(&node["name"])));
    line["promised"] = json!(rate(&node["promised"]));
    line["delivered"] = json!(rate(&node["delivered"]));
    let pairs = |object: &Value| {
        let object = object.as_object().into_iter().flatten();
        object.map(|(key, value)| format!("{key}={}", plain(value))).collect::<Vec<_>>().join(" ")
    };
    line["said"] = json!(pairs(&node["settings"]));
    line["dropped"] = json!(pairs(&node["drops"]));
    line
}

fn depth(node: &Value, nodes: &[Value]) -> usize {
    let above = |name: &Value| nodes.iter().find(|other| other["name"] == *name);
    std::iter::successors(above(&node["under"]), |node| above(&node["under"])).take(nodes.len()).count()
}

fn rate(bits: &Value) -> String {
    bits.as_f64().map_or("-".to_owned(), |bits| BitRate(bits).to_string())
}
