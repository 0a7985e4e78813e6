//! The commands `port`, `scheduler` and `queue`.

use std::collections::HashMap;

use hyper::Method;
use millrace_units::{BitRate, by_number, count};
use serde_json::{Map, Value, json};

use crate::arguments::{PortAction, QueueAction, SchedulerAction};
use crate::client::{Client, segment};
use crate::output::{Failure, command_key, done, plain, rows, show, table};
use crate::pairs::{changes, pairs};

const COLUMNS: &str = "node=shown | id | kind | settings=configured | promised | delivered \
    | packets=sent_packets | waiting=held_packets | peak=peak_packets | peak bytes=peak_bytes \
    | drops=dropped | marks=marked_packets";

const QUEUES: &str = "port | queue=name | id | kind | settings=configured | arrived=offered_packets \
    | sent=sent_packets | sent bytes=sent_bytes | waiting=held_packets | bytes=held_bytes \
    | peak=peak_packets | peak bytes=peak_bytes | drops=dropped | marks=marked_packets";

const FLOWS: &str = "flow | quantum | threshold | rate=reserved | arrived=offered_packets \
    | sent=sent_packets | moved=moved_packets | waiting=held_packets | bytes=held_bytes \
    | peak=peak_packets | peak bytes=peak_bytes | drops=dropped | marks=marked_packets";

/// Changes settings of ports.
pub fn port(client: &Client, action: &PortAction, json: bool) -> Result<(), Failure> {
    let PortAction::Set { port, settings } = action;
    let mut body = changes(settings)?;
    if let Some(Value::String(addresses)) = body.get_mut("address") {
        let addresses: Vec<&str> = addresses.split(',').collect();
        body["address"] = json!(addresses);
    }
    let path = format!("/ports/{}", segment(port));
    let value = client.send(Method::PATCH, &path, Some(&Value::Object(body)))?;
    done(&value, &format!("port {port} changed: {}", settings.join(" ")), json);
    Ok(())
}

/// Adds, changes, removes and shows scheduler nodes.
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
        SchedulerAction::Remove { port, node, to, with_filters } => {
            let body = json!({"to": to, "with_filters": with_filters});
            let value = client.send(Method::DELETE, &path(port, Some(node)), Some(&body))?;
            done(&value, &removed(port, node, to.as_deref(), &value), json);
        }
        SchedulerAction::Show { port: Some(port) } => {
            let value = client.get(&path(port, None))?;
            show(&value, json, || tree(&value));
        }
        SchedulerAction::Show { port: None } => {
            let value = client.get("/schedulers")?;
            show(&value, json, || match rows(&value) {
                [] => "no port has a scheduler: all ports send FIFO, without a rate limit\n".to_owned(),
                all => all.iter().map(tree).collect(),
            });
        }
    }
    Ok(())
}

/// Formats the result of removing a node: what happened to the packets and to the filters of the node's
/// queues.
fn removed(port: &str, node: &str, to: Option<&str>, value: &Value) -> String {
    let left = to.map_or("its waiting packets are dropped".to_owned(), |to| {
        format!("its waiting packets move to {to}")
    });
    let number = rows(&value["filters"]).len();
    let named = count(number, "filter");
    let filters = match to.filter(|_| value["with_filters"] != true) {
        _ if number == 0 => String::new(),
        Some(to) => format!("; {named} that named its queue now {} {to}", by_number(number, "names", "name")),
        None => format!("; {named} that named its queue {} removed too", by_number(number, "is", "are")),
    };
    format!("node {node} removed from {port}; {left}{filters}")
}

/// Shows queues and changes them.
pub fn queue(client: &Client, action: &QueueAction, json: bool) -> Result<(), Failure> {
    match action {
        QueueAction::Show { port: Some(port), queue: Some(queue) } => {
            let value = client.get(&queue_path(port, queue))?;
            show(&value, json, || listed(std::slice::from_ref(&value)));
        }
        QueueAction::Show { port, .. } => {
            let mut value = client.get("/queues")?;
            if let (Some(port), Value::Array(queues)) = (port, &mut value) {
                // Query the port first: an unknown port is an error, not an empty list.
                client.get(&format!("/ports/{}", segment(port)))?;
                queues.retain(|queue| queue["port"] == port.as_str());
            }
            show(&value, json, || listed(rows(&value)));
        }
        QueueAction::Set { port, queue, flow, settings } => {
            let mut body = written(changes(settings)?);
            let what = match flow {
                None => format!("queue {queue} of {port}"),
                Some(flow) => {
                    body.insert("flow".to_owned(), json!(flow));
                    format!("the queue of {flow} in {queue} of {port}")
                }
            };
            let value = client.send(Method::PATCH, &queue_path(port, queue), Some(&Value::Object(body)))?;
            done(&value, &format!("{what} changed: {}", settings.join(" ")), json);
        }
    }
    Ok(())
}

fn queue_path(port: &str, queue: &str) -> String {
    format!("/queues/{}/{}", segment(port), segment(queue))
}

/// Formats queues and their flow queues as tables.
fn listed(queues: &[Value]) -> String {
    if queues.is_empty() {
        return "no queues: `scheduler add` creates the queues of a port\n".to_owned();
    }
    let line = |queue: &Value| {
        let mut line = spelled(queue);
        line["reserved"] = json!(rate(&queue["rate"]));
        if queue["shared"] == true {
            line["flow"] = json!("(all others)");
        }
        line
    };
    let all = table(&queues.iter().map(line).collect::<Vec<_>>(), QUEUES);
    let flows: Vec<Value> = queues.iter().flat_map(|queue| rows(&queue["flows"])).map(line).collect();
    if flows.is_empty() { all } else { format!("{all}\n{}", table(&flows, FLOWS)) }
}

fn path(port: &str, node: Option<&str>) -> String {
    match node {
        Some(node) => format!("/schedulers/{}/{}", segment(port), segment(node)),
        None => format!("/schedulers/{}", segment(port)),
    }
}

/// Converts the value of `default`, the name of the default queue, to a string. A name such as `5` has been
/// parsed as a number.
fn written(mut settings: Map<String, Value>) -> Map<String, Value> {
    if let Some(name) = settings.get_mut("default").filter(|name| name.is_number()) {
        *name = Value::String(name.to_string());
    }
    settings
}

/// Formats a scheduler: the port, and its nodes as a tree.
fn tree(scheduler: &Value) -> String {
    let rate = rate(&scheduler["rate"]);
    let rate = if rate == "-" { "without a rate limit".to_owned() } else { format!("at {rate}") };
    let link =
        scheduler["link"].as_f64().map_or(String::new(), |bits| format!(" over a link of {}", BitRate(bits)));
    let [port, overhead, default] = ["port", "overhead", "default"].map(|key| plain(&scheduler[key]));
    let [queues, limit] = ["queues", "queues_limit"].map(|key| plain(&scheduler[key]));
    let [held, room, bytes, room_bytes] =
        ["held", "room_packets", "held_bytes", "room_bytes"].map(|key| plain(&scheduler[key]));
    let mut text = format!(
        "port {port} sends {rate}{link}, overhead {overhead}; default queue {default}; {queues} of {} in \
         use; backlog {held} of {}, {bytes} of {}\n",
        count(limit, "queue"),
        count(room, "packet"),
        count(room_bytes, "byte")
    );
    text.extend(scheduler["warning"].as_str().map(|warning| format!("warning: {warning}\n")));
    text.extend(host(&scheduler["host"]).map(|host| host + "\n"));
    let nodes = rows(&scheduler["nodes"]);
    if scheduler["default"].is_null() {
        text += "warning: the scheduler has no leaf, so the port sends FIFO without a rate limit; add a leaf: \
                 `millrace scheduler add`\n";
    }
    let lines: Vec<Value> = nodes.iter().zip(depths(nodes)).map(|(node, depth)| line(node, depth)).collect();
    text + &table(&lines, COLUMNS)
}

/// Formats how the scheduler treats packets that the kernel itself sends by the port.
fn host(host: &Value) -> Option<String> {
    let setting = host["setting"].as_str()?;
    Some(match (host["queued_here"].as_bool(), host["why"].as_str()) {
        (Some(true), _) => {
            let [packets, bytes, lost] = ["packets", "bytes", "lost"].map(|key| plain(&host[key]));
            format!(
                "packets of the kernel also wait in this scheduler ({setting}): {}, {}, {lost} lost",
                count(packets, "packet"),
                count(bytes, "byte")
            )
        }
        (_, Some(why)) => format!("packets of the kernel bypass this scheduler: {why}"),
        _ => format!("packets of the kernel bypass this scheduler ({setting})"),
    })
}

/// Formats a node as a row, indented by its depth.
fn line(node: &Value, depth: usize) -> Value {
    let mut line = spelled(node);
    line["shown"] = json!(format!("{}{}", "  ".repeat(depth), plain(&node["name"])));
    line["promised"] = json!(rate(&node["promised"]));
    line["delivered"] = json!(rate(&node["delivered"]));
    line
}

/// Formats settings and drops of a node or queue as text columns.
fn spelled(row: &Value) -> Value {
    let mut row = row.clone();
    row["configured"] = json!(pairs_of(&row["settings"]));
    row["dropped"] = json!(pairs_of(&row["drops"]));
    row
}

/// Formats settings as `key=value` words, as on the command line.
fn pairs_of(settings: &Value) -> String {
    let settings = settings.as_object().into_iter().flatten();
    let pair = |(key, value): (&String, &Value)| format!("{}={}", command_key(key), plain(value));
    settings.map(pair).collect::<Vec<_>>().join(" ")
}

/// Returns the depth of each node in the tree. In `nodes`, parents precede their children.
fn depths(nodes: &[Value]) -> Vec<usize> {
    let mut known: HashMap<&str, usize> = HashMap::new();
    let mut depths = Vec::with_capacity(nodes.len());
    for node in nodes {
        let above = node["under"].as_str().and_then(|above| known.get(above));
        let depth = above.map_or(0, |above| above + 1);
        if let Some(name) = node["name"].as_str() {
            known.insert(name, depth);
        }
        depths.push(depth);
    }
    depths
}

fn rate(bits: &Value) -> String {
    bits.as_f64().map_or("-".to_owned(), |bits| BitRate(bits).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formats 40,000 nodes. An algorithm whose time is quadratic in the number of nodes would take minutes.
    #[test]
    fn forty_thousand_nodes_are_listed_below_their_parents() {
        let mut nodes = vec![json!({"name": "top", "under": null})];
        nodes.extend((0..40_000).map(|number| json!({"name": format!("leaf{number}"), "under": "top"})));
        nodes.push(json!({"name": "inner", "under": "top"}));
        nodes.push(json!({"name": "last", "under": "inner"}));
        let depths = depths(&nodes);
        assert_eq!((depths[0], depths[40_000], &depths[40_001..]), (0, 1, &[1, 2][..]));
        assert_eq!(line(&nodes[40_002], depths[40_002])["shown"], "    last");
    }
}
