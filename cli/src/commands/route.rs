//! The command `route`, in the words of ip-route(8).

use std::net::IpAddr;

use hyper::Method;
use serde_json::{Value, json};

use super::remote::{columns, done, print, segment};
use super::watch;
use crate::arguments::{Noun, RouteAction};
use crate::client::Client;
use crate::output::{Failure, plain, rows};

/// Adds, removes, lists and looks up routes.
pub fn route(client: &Client, action: &RouteAction, json: bool) -> Result<(), Failure> {
    match action {
        RouteAction::Add { words } => {
            let value = client.send(Method::POST, "/routes", Some(&body(words)?))?;
            done(&value, &format!("route added: {}", line(&value)), json);
        }
        RouteAction::Remove { prefix } => {
            let body = json!({"to": written(prefix, &[])});
            let value = client.send(Method::DELETE, "/routes", Some(&body))?;
            done(&value, &format!("route removed: {}", line(&value)), json);
        }
        RouteAction::List { within, watch: how } => {
            let path = match within {
                Some(prefix) => format!("/routes?within={}", segment(&written(prefix, &[]))),
                None => "/routes".to_owned(),
            };
            watch::list(how, || client.get(&path), ("to", columns(Noun::Routes)), json)?;
        }
        RouteAction::Lookup { address } => {
            let value = client.get(&format!("/routes/lookup?address={}", segment(address)))?;
            if json {
                print(&value, &[], json);
            } else {
                println!("{}{}", line(&value), counted(&value));
            }
        }
    }
    Ok(())
}

/// A route as a line: `10.9.0.0/16 via 10.2.0.2 port wan, protocol static`.
fn line(route: &Value) -> String {
    let hop = |hop: &Value| match hop["via"].as_str() {
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

/// What was sent by a route, behind its line; nothing where that is not counted.
fn counted(route: &Value) -> String {
    if route["queued_packets"].is_null() {
        return String::new();
    }
    let [queued, sent, bytes, lost, waiting] =
        ["queued_packets", "sent_packets", "sent_bytes", "lost_packets", "waiting_packets"]
            .map(|key| plain(&route[key]));
    format!("\npackets queued {queued}, sent {sent} ({bytes} bytes), lost {lost}, waiting {waiting}")
}

/// The request for a route.
fn body(words: &[String]) -> Result<Value, Failure> {
    let mut words = words.iter();
    let (mut prefix, mut port, mut kind) = (None, None, "forward");
    let mut via: Vec<&str> = Vec::new();
    let behind = |word: &str, value: Option<&String>| {
        value.cloned().ok_or_else(|| Failure::usage(format!("route add: {word:?} is followed by nothing")))
    };
    while let Some(word) = words.next() {
        match word.as_str() {
            "via" => {
                let address = words.next();
                behind(word, address)?;
                via.extend(address.map(String::as_str));
            }
            "port" | "dev" => {
                let name = behind(word, words.next())?;
                if port.replace(name).is_some() {
                    return Err(Failure::usage("route add: several next hops share one port: name it once"));
                }
            }
            "nexthop" | "unicast" => {}
            "blackhole" | "unreachable" | "prohibit" => kind = word,
            other if prefix.is_none() => prefix = Some(other),
            other => {
                return Err(Failure::usage(format!(
                    "route add: {other:?}: a route is PREFIX [via ADDRESS]... [port NAME], or blackhole, unreachable or \
                     prohibit PREFIX"
                )));
            }
        }
    }
    let prefix = prefix.ok_or_else(|| Failure::usage("route add: name the prefix"))?;
    Ok(json!({"to": written(prefix, &via), "via": via, "port": port, "kind": kind}))
}

/// A prefix as the interface takes it: people leave the length of a host out, and call everything `default`.
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

    fn words(line: &str) -> Result<Value, Failure> {
        body(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
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
        ] {
            assert_eq!(words(line).unwrap(), expected, "{line}");
        }
    }

    #[test]
    fn what_is_no_route_is_wrong_usage() {
        for line in [
            "via 10.2.0.2",
            "10.9.0.0/16 via",
            "10.9.0.0/16 port",
            "10.9.0.0/16 metric 5",
            "10.0.0.0/8 port a port b",
        ] {
            assert_eq!(words(line).unwrap_err().code, 2, "{line}");
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
