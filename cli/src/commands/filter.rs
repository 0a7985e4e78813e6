//! The command `filter`.

use hyper::Method;
use serde_json::{Value, json};

use super::remote::{done, print, segment};
use crate::arguments::FilterAction;
use crate::client::Client;
use crate::output::{Column, Failure, plain};

const COLUMNS: &[Column] = &[
    ("id", "id"),
    ("gate", "gate"),
    ("priority", "priority"),
    ("filter", "filter"),
    ("action", "action"),
    ("packets", "packets"),
    ("bytes", "bytes"),
    ("drops", "drops"),
];

/// Adds, removes, lists and explains filters.
pub fn filter(client: &Client, action: &FilterAction, json: bool) -> Result<(), Failure> {
    match action {
        FilterAction::Add { filter, action, gate, priority } => {
            let body = json!({"filter": filter, "action": action, "gate": gate, "priority": priority});
            let value = client.send(Method::POST, "/filters", Some(&body))?;
            let [id, gate, action, filter] = ["id", "gate", "action", "filter"].map(|key| plain(&value[key]));
            done(&value, &format!("filter {id} added at gate {gate}: {action} for {filter}"), json);
        }
        FilterAction::Remove { ids } => {
            let value = client.send(Method::DELETE, "/filters", Some(&json!({"ids": ids})))?;
            let line = |gone: &Value| {
                let [id, action, filter] = ["id", "action", "filter"].map(|key| plain(&gone[key]));
                format!("filter {id} removed: {action} for {filter}")
            };
            let lines: Vec<String> = value.as_array().into_iter().flatten().map(line).collect();
            done(&value, &lines.join("\n"), json);
        }
        FilterAction::List { gate } => {
            let mut value = client.get("/filters")?;
            if let (Some(gate), Value::Array(rows)) = (gate, &mut value) {
                // A gate that there isn't is an error, and not a gate without filters.
                client.get(&format!("/gates/{}", segment(gate)))?;
                rows.retain(|row| row["gate"] == gate.as_str());
            }
            print(&value, COLUMNS, json);
        }
        FilterAction::Explain { packet } => {
            let value = client.get(&format!("/filters/explain?packet={}", segment(packet)))?;
            explain(&value, json);
        }
    }
    Ok(())
}

fn explain(value: &Value, json: bool) {
    if json {
        println!("{value:#}");
        return;
    }
    let gates = value.as_array().map_or(&[][..], Vec::as_slice);
    if gates.is_empty() {
        println!("no gate has filters");
    }
    for gate in gates {
        println!("gate {}, position {}", plain(&gate["gate"]), plain(&gate["position"]));
        for candidate in gate["candidates"].as_array().into_iter().flatten() {
            let mark = if candidate["chosen"] == true { "*" } else { " " };
            let [id, filter, action, priority, outcome] =
                ["id", "filter", "action", "priority", "outcome"].map(|key| plain(&candidate[key]));
            println!("{mark} {id:>4}  {action} for {filter}, priority {priority}: {outcome}");
        }
        if gate["left_out"] != 0 {
            println!("        {} more do not match", plain(&gate["left_out"]));
        }
    }
}
