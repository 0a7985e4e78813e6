//! The command `flow`.

use hyper::Method;
use millrace_units::count;
use serde_json::Value;

use crate::arguments::{FlowAction, FlowOrder};
use crate::client::{Client, segment};
use crate::output::{Column, Failure, done, lines, plain, rows, table};

/// Maximum number of flows that `flow show` prints.
const SHOWN: usize = 100;

/// Lists, shows and flushes flows.
pub fn flow(client: &Client, action: &FlowAction, json: bool) -> Result<(), Failure> {
    match action {
        FlowAction::List { flows, order, limit } => {
            let value = ask(client, flows.filter(), *order, *limit)?;
            list(&value, *order, json);
        }
        FlowAction::Show { flows } => {
            let flow = flows.filter().ok_or_else(|| {
                Failure::usage("give the flows: a line of `flow list`, or a filter; '*' matches all flows")
            })?;
            let value = ask(client, Some(flow), FlowOrder::Rate, SHOWN)?;
            let flows = rows(&value["flows"]);
            if flows.is_empty() {
                return Err(Failure::new(format!("no flow matches {flow:?}: `flow list` lists the flows")));
            }
            if json {
                println!("{:#}", value["flows"]);
            } else {
                let shown: Vec<String> = flows.iter().map(lines).collect();
                print!("{}", shown.join("\n"));
            }
        }
        FlowAction::Flush { flows } => {
            let value = client.send(Method::DELETE, &path(flows.filter(), ""), None)?;
            done(&value, &format!("{} forgotten", count(plain(&value["flushed"]), "flow")), json);
        }
    }
    Ok(())
}

fn ask(client: &Client, filter: Option<&str>, order: FlowOrder, limit: usize) -> Result<Value, Failure> {
    client.get(&path(filter, &format!("order={}&limit={limit}", order.name())))
}

fn path(filter: Option<&str>, more: &str) -> String {
    let filter = filter.map_or_else(String::new, |filter| format!("filter={}&", segment(filter)));
    format!("/flows?{filter}{more}").trim_end_matches(['&', '?']).to_owned()
}

fn list(value: &Value, order: FlowOrder, json: bool) {
    if json {
        println!("{value:#}");
        return;
    }
    let mut columns: Vec<Column> = vec![("flow", "flow"), ("packets", "packets"), ("bytes", "bytes")];
    if matches!(order, FlowOrder::Rate) {
        columns.extend([("packets/s", "packet_rate"), ("bits/s", "bit_rate")]);
    }
    columns.extend([
        ("idle s", "idle"),
        ("state", "state"),
        ("level", "level"),
        ("route", "route"),
        ("bindings", "bindings"),
    ]);
    let flows = rows(&value["flows"]);
    print!("{}", table(flows, &columns));
    let more = value["found"].as_u64().unwrap_or(0).saturating_sub(flows.len() as u64);
    if more > 0 {
        println!("and {more} more");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_stands_escaped_in_the_path() {
        assert_eq!(path(Some("proto udp"), "order=rate"), "/flows?filter=proto%20udp&order=rate");
        assert_eq!(path(Some("in lan"), ""), "/flows?filter=in%20lan");
        assert_eq!(path(None, ""), "/flows");
    }
}
