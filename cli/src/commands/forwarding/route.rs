//! The command `route`, with the syntax of ip-route(8).

use std::net::IpAddr;

use hyper::Method;
use millrace_units::count;
use serde_json::{Value, json};

use crate::arguments::{Noun, RouteAction};
use crate::client::{Client, segment};
use crate::commands::forwarding::lists::Lines;
use crate::commands::nouns::describe;
use crate::commands::watch;
use crate::output::{Failure, done, plain, rows, say};

/// Adds, removes, lists and looks up routes.
pub fn route(client: &Client, action: &RouteAction, json: bool) -> Result<(), Failure> {
    match action {
        RouteAction::Add { from: Some(file), .. } => {
            let lines = Lines::read(file, |line| body(line.split_whitespace()), json)?;
            let value = lines.send(client, Method::POST, "/routes", json)?;
            done(&value, &format!("{} added", count(plain(&value["added"]), "route")), json);
        }
        RouteAction::Add { words, from: None } => {
            let body = body_of("add", words)?;
            let value = client.send(Method::POST, "/routes", Some(&body))?;
            done(&value, &format!("route added: {}", line(&value)), json);
        }
        RouteAction::Replace { words } => {
            let body = body_of("replace", words)?;
            let value = client.send(Method::PUT, "/routes", Some(&body))?;
            done(&value, &format!("route in place: {}", line(&value)), json);
        }
        RouteAction::Remove { from: Some(file), .. } => {
            let prefix = |line: &str| body(line.split_whitespace()).map(|route| json!({"to": route["to"]}));
            let value = Lines::read(file, prefix, json)?.send(client, Method::DELETE, "/routes", json)?;
            done(&value, &format!("{} removed", count(plain(&value["removed"]), "route")), json);
        }
        RouteAction::Remove { prefix, from: None } => {
            let prefix = prefix.as_deref().unwrap_or_default();
            let body = json!({"to": written(prefix, &[])});
            let value = client.send(Method::DELETE, "/routes", Some(&body))?;
            done(&value, &format!("route removed: {}", line(&value)), json);
        }
        RouteAction::List { within, lines, watch: how } => {
            let path = match within {
                Some(prefix) => format!("/routes?within={}", segment(&written(prefix, &[]))),
                None => "/routes".to_owned(),
            };
            let look = || client.get(&path);
            if *lines && !json {
                let routes = look()?;
                let readable = rows(&routes).iter().filter(|route| is_readable(route));
                readable.for_each(|route| say!("{}", line(route)));
            } else {
                watch::list(how, look, ("to", describe(Noun::Routes).columns), json)?;
            }
        }
        RouteAction::Lookup { address } => {
            let value = client.get(&format!("/routes/lookup?address={}", segment(address)))?;
            done(&value, &format!("{}{}", line(&value), counted(&value)), json);
        }
    }
    Ok(())
}

/// Formats a route as a line: `10.9.0.0/16 via 10.2.0.2 port wan, protocol static`.
fn line(route: &Value) -> String {
    let hop = |hop: &Value| match hop["via"].as_str() {
        Some(via) if hop["port"] == "-" => format!(" via {via}"),
        Some(via) => format!(" via {via} port {}", plain(&hop["port"])),
        None => format!(" port {}", plain(&hop["port"])),
    };
    let hops: String = rows(&route["next_hops"]).iter().map(hop).collect();
    let kind = match route["kind"].as_str() {
        Some("forward") | None => String::new(),
        Some(kind) => format!("{kind} "),
    };
    format!("{kind}{}{hops}, protocol {}", plain(&route["to"]), plain(&route["protocol"]))
}

/// Formats the counters of a route; empty for a route without counters.
fn counted(route: &Value) -> String {
    if route["queued_packets"].is_null() {
        return String::new();
    }
    let [queued, sent, bytes, lost, waiting] =
        ["queued_packets", "sent_packets", "sent_bytes", "lost_packets", "waiting_packets"]
            .map(|key| plain(&route[key]));
    format!(
        "\npackets queued {queued}, sent {sent} ({}), lost {lost}, waiting {waiting}",
        count(bytes, "byte")
    )
}

fn body_of(command: &str, words: &[String]) -> Result<Value, Failure> {
    let parsed = body(words.iter().map(String::as_str));
    parsed.map_err(|problem| Failure::usage(format!("route {command}: {problem}")))
}

/// Parses a route into a request body. Accepts the syntax of ip-route(8), `route add` and `route list
/// --lines`.
fn body<'a>(words: impl Iterator<Item = &'a str>) -> Result<Value, String> {
    let mut words = words.map(|word| word.trim_end_matches(','));
    let (mut prefix, mut kind) = (None, "forward");
    let (mut via, mut ports): (Vec<&str>, Vec<&str>) = Default::default();
    while let Some(word) = words.next() {
        let mut next = || words.next().ok_or_else(|| format!("{word:?} needs a value"));
        match word {
            "via" => match next()? {
                "inet" | "inet6" => via.push(next()?),
                address => via.push(address),
            },
            "port" | "dev" => ports.push(next()?),
            "weight" if next()? == "1" => {}
            "weight" => {
                return Err("next hops of a route have equal weights: omit the weight".to_owned());
            }
            // Attributes that only kernel routes have: skipped with their values.
            "proto" | "protocol" | "scope" | "pref" | "src" => drop(next()?),
            "nexthop" | "unicast" | "forward" => {}
            "blackhole" | "unreachable" | "prohibit" => kind = word,
            other if prefix.is_none() => prefix = Some(other),
            other => {
                return Err(format!(
                    "{other:?} is unexpected: write PREFIX [via ADDRESS]... [port NAME], or blackhole, \
                     unreachable or prohibit PREFIX"
                ));
            }
        }
    }
    let prefix = prefix.ok_or("the prefix is missing: write PREFIX [via ADDRESS]... [port NAME]")?;
    let port = shared(&ports, via.len())?;
    Ok(json!({"to": written(prefix, &via), "via": via, "port": port, "kind": kind}))
}

/// Returns the port that all next hops share. Returns `None` if no port is given, or if the ports differ and
/// each next hop has an address.
fn shared<'a>(ports: &[&'a str], addresses: usize) -> Result<Option<&'a str>, String> {
    match ports {
        [] => Ok(None),
        [port, others @ ..] if others.iter().all(|other| other == port) => Ok(Some(port)),
        _ if ports.len() == addresses => Ok(None),
        _ => Err("next hops at several ports each need an address: write via ADDRESS port NAME for each"
            .to_owned()),
    }
}

/// Whether `route add` can create this route.
fn is_readable(route: &Value) -> bool {
    matches!(route["kind"].as_str(), None | Some("forward" | "blackhole" | "unreachable" | "prohibit"))
}

/// Completes a prefix for the request: adds `/32` or `/128` to an address without length, and expands
/// `default`.
fn written(prefix: &str, via: &[&str]) -> String {
    let is_v6 = via.first().is_some_and(|via| via.contains(':'));
    match (prefix, prefix.parse::<IpAddr>()) {
        ("default", _) if is_v6 => "::/0".to_owned(),
        ("default", _) => "0.0.0.0/0".to_owned(),
        (_, Ok(IpAddr::V4(host))) => format!("{host}/32"),
        (_, Ok(IpAddr::V6(host))) => format!("{host}/128"),
        _ => prefix.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Value, String> {
        body(line.split(' '))
    }

    #[test]
    fn routes_are_written_as_for_ip_route() {
        let route = |to: &str, via: &[&str], port: Option<&str>, kind: &str| json!({"to": to, "via": via, "port": port, "kind": kind});
        for (line, expected) in [
            ("10.9.0.0/16 via 10.2.0.2", route("10.9.0.0/16", &["10.2.0.2"], None, "forward")),
            ("10.9.0.1 via 10.2.0.2 dev wan", route("10.9.0.1/32", &["10.2.0.2"], Some("wan"), "forward")),
            ("default via fd00::1", route("::/0", &["fd00::1"], None, "forward")),
            ("default port wan", route("0.0.0.0/0", &[], Some("wan"), "forward")),
            ("fd00::9 port wan", route("fd00::9/128", &[], Some("wan"), "forward")),
            ("blackhole 10.6.0.0/16", route("10.6.0.0/16", &[], None, "blackhole")),
            ("10.6.0.0/16 prohibit", route("10.6.0.0/16", &[], None, "prohibit")),
            (
                "10.9.0.0/16 nexthop via 10.2.0.2 nexthop via 10.2.0.3",
                route("10.9.0.0/16", &["10.2.0.2", "10.2.0.3"], None, "forward"),
            ),
            (
                "10.9.0.0/16 via 10.2.0.2 dev wan proto static scope link",
                route("10.9.0.0/16", &["10.2.0.2"], Some("wan"), "forward"),
            ),
            (
                "10.9.0.0/16 via inet6 fe80::2 dev wan",
                route("10.9.0.0/16", &["fe80::2"], Some("wan"), "forward"),
            ),
            (
                "10.9.0.0/16 via 10.2.0.2 port wan via 10.2.0.3 port wan, protocol millrace",
                route("10.9.0.0/16", &["10.2.0.2", "10.2.0.3"], Some("wan"), "forward"),
            ),
            (
                "10.9.0.0/16 via 10.2.0.2 port wan via 10.3.0.2 port lan, protocol millrace",
                route("10.9.0.0/16", &["10.2.0.2", "10.3.0.2"], None, "forward"),
            ),
            (
                "10.2.0.0/24 dev wan proto kernel scope link src 10.2.0.1",
                route("10.2.0.0/24", &[], Some("wan"), "forward"),
            ),
        ] {
            assert_eq!(words(line).unwrap(), expected, "{line}");
        }
    }

    #[test]
    fn invalid_route_is_refused() {
        for line in [
            "via 10.2.0.2",
            "10.9.0.0/16 via",
            "10.9.0.0/16 port",
            "10.9.0.0/16 metric 5",
            "10.0.0.0/8 port a port b",
            "10.0.0.0/8 via 10.2.0.2 port a port b",
            "10.0.0.0/8 nexthop via 10.2.0.2 weight 2",
        ] {
            assert!(words(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_route_reads_as_a_line() {
        let hops = json!([{"via": "10.2.0.2", "port": "wan"}, {"via": null, "port": "lan"}]);
        let route = json!({"to": "10.9.0.0/16", "kind": "forward", "next_hops": hops, "protocol": "static"});
        assert_eq!(line(&route), "10.9.0.0/16 via 10.2.0.2 port wan port lan, protocol static");
        let route =
            json!({"to": "10.6.0.0/16", "kind": "blackhole", "next_hops": [], "protocol": "millrace"});
        assert_eq!(line(&route), "blackhole 10.6.0.0/16, protocol millrace");
    }
}
