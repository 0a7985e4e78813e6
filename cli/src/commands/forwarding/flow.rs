//! The command `flow`.

use hyper::Method;
use millrace_units::{count, write_time};
use serde_json::{Value, json};

use crate::arguments::{FlowAction, FlowOrder, FlowReservation, word};
use crate::client::{Client, segment};
use crate::commands::admission;
use crate::output::{Failure, done, lines, plain, rows, show, table};

/// Maximum number of flows that `flow show` prints.
const SHOWN: usize = 100;

/// Lists, shows and flushes flows.
pub fn flow(client: &Client, action: &FlowAction, json: bool) -> Result<(), Failure> {
    match action {
        FlowAction::List { flows, order, limit } => {
            let value = ask(client, flows.filter(), *order, *limit)?;
            show(&value, json, || listed(&value, *order));
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
            show(&value["flows"], json, || flows.iter().map(lines).collect::<Vec<_>>().join("\n"));
        }
        FlowAction::Reserve(reservation) => reserve(client, reservation, json)?,
        FlowAction::Release { name, drop } => {
            let query = if *drop { "?drop=true" } else { "" };
            let path = format!("/reservations/{}{query}", segment(name));
            let value = client.send(Method::DELETE, &path, None)?;
            done(&value, &format!("{name} released{}", made(&value)), json);
        }
        FlowAction::Flush { flows } => {
            let value = client.send(Method::DELETE, &flows_path(flows.filter(), ""), None)?;
            done(&value, &format!("{} flushed", count(plain(&value["flushed"]), "flow")), json);
        }
    }
    Ok(())
}

/// Reserves resources for flows, or checks the reservation only.
pub fn reserve(client: &Client, reservation: &FlowReservation, json: bool) -> Result<(), Failure> {
    let FlowReservation { filter, principal, cpu, link, port, instance, gate, priority, dry_run, .. } =
        reservation;
    let body = json!({
        "filter": filter,
        "principal": principal,
        "cpu": cpu,
        "link": link,
        "port": port,
        "deadline": deadline(reservation),
        "instance": instance,
        "gate": gate,
        "priority": priority,
        "dry_run": dry_run,
    });
    let value = client.send(Method::POST, "/reservations", Some(&body))?;
    let verb = if *dry_run { "would reserve" } else { "reserved" };
    let text = format!("{verb} for principal {}{}", plain(&value["principal"]), made(&value));
    let components =
        if *dry_run { format!("\n{}", admission::listed(&value).trim_end()) } else { String::new() };
    let text = format!("{text}{}\n{}{components}", bound(&value["deadline"]), left(&value["left"]));
    done(&value, &text, json);
    Ok(())
}

/// Returns the deadline that is asked for, as the API takes it; `null` without one.
fn deadline(asked: &FlowReservation) -> Value {
    let FlowReservation { deadline, rate, cost, size, burst, .. } = asked;
    if deadline.is_none() {
        return Value::Null;
    }
    let mut request = json!({"time": deadline, "rate": rate, "cost": cost, "size": size});
    if let Some(burst) = burst {
        request["burst"] = (*burst).into();
    }
    request
}

/// Returns the granted deadline in one line, after a line break; empty without one.
fn bound(value: &Value) -> String {
    let time = |key: &str| value[key].as_u64().map(write_time);
    let Some(bound) = time("bound") else { return String::new() };
    let part = |name: &str, key| time(key).map(|time| format!("{time} at the {name}"));
    let parts: Vec<_> =
        [part("processor", "processor"), part("link", "link")].into_iter().flatten().collect();
    format!("\na packet takes {bound} at most: {}, the rest for other work", parts.join(", "))
}

/// Returns the resources that principals can still reserve, in one line.
fn left(value: &Value) -> String {
    let rate = |(port, rate): (&String, &Value)| format!(", {} at port {port}", plain(rate));
    let rates: String = value["link"].as_object().into_iter().flatten().map(rate).collect();
    let cpu = value["cpu"].as_f64().unwrap_or_default();
    format!("left to reserve: {cpu} % of a processor{rates}")
}

/// Returns the changes of a reservation, one a line, after a line break.
fn made(value: &Value) -> String {
    rows(&value["changes"]).iter().map(|change| format!("\n  {}", plain(change))).collect()
}

fn ask(client: &Client, filter: Option<&str>, order: FlowOrder, limit: usize) -> Result<Value, Failure> {
    client.get(&flows_path(filter, &format!("order={}&limit={limit}", word(order))))
}

/// Returns the API path of the flows that a filter matches; `more` holds further query arguments.
pub fn flows_path(filter: Option<&str>, more: &str) -> String {
    let filter = filter.map_or_else(String::new, |filter| format!("filter={}&", segment(filter)));
    format!("/flows?{filter}{more}").trim_end_matches(['&', '?']).to_owned()
}

fn listed(value: &Value, order: FlowOrder) -> String {
    let by_order = match order {
        FlowOrder::Rate => " | packets/s=packet_rate | bits/s=bit_rate",
        FlowOrder::Cycles => {
            " | principal=payments/0/principal | cycles=payments/0/cycles | waiting=payments/0/waiting"
        }
        FlowOrder::Bytes | FlowOrder::Packets | FlowOrder::Recent => "",
    };
    let columns =
        format!("flow | packets | bytes{by_order} | idle s=idle | state | level | route | bindings");
    let flows = rows(&value["flows"]);
    let more = value["found"].as_u64().unwrap_or(0).saturating_sub(flows.len() as u64);
    let rest = if more > 0 { format!("and {more} more\n") } else { String::new() };
    table(flows, &columns) + &rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_stands_escaped_in_the_path() {
        assert_eq!(flows_path(Some("proto udp"), "order=rate"), "/flows?filter=proto%20udp&order=rate");
        assert_eq!(flows_path(Some("in lan"), ""), "/flows?filter=in%20lan");
        assert_eq!(flows_path(None, ""), "/flows");
    }
}
