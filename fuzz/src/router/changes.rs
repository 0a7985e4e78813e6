//! Changes of a router made of input bytes: filters, routes, port settings.

use millrace_config::{Filter, Route};

use crate::input::Input;

const ADDRESSES: [&str; 11] = [
    "",
    "",
    "",
    "src 10.1.0.2",
    "dst 10.9.0.0/16",
    "src 10.1.0.0/24 dst 10.9.0.1",
    "src 203.0.113.0/24",
    "src fd00:1::2",
    "dst fd00:9::/48",
    "src fd00:1::/64 dst fd00:9::1",
    "dst 224.0.0.0/4",
];
const UPPER: [&str; 16] = [
    "",
    "",
    "",
    "proto tcp",
    "proto udp",
    "proto icmp",
    "proto 60",
    "proto esp",
    "dport 53",
    "dport 0-100",
    "sport 1000",
    "proto tcp dport 80",
    "proto tcp flags syn/syn+ack",
    "proto udp sport 53 dport 80",
    "proto tcp sport 0-80 dport 53-1000",
    "not proto udp",
];
const OTHERS: [&str; 13] = [
    "",
    "",
    "",
    "",
    "dscp 46",
    "dscp 0",
    "tag 0",
    "exceptions ttl",
    "exceptions fragment",
    "exceptions cut",
    "exceptions none",
    "in a",
    "in b",
];
/// Filter actions, each with its gate.
const ACTIONS: [(&str, &str); 24] = [
    ("drop", "firewall"),
    ("drop", "route"),
    ("drop", "monitor"),
    ("reject", "firewall"),
    ("reject", "route"),
    ("accept", "firewall"),
    ("port c via 10.3.0.2", "route"),
    ("port b via fd00:2::2", "route"),
    ("port b", "route"),
    ("host", "route"),
    ("ports b via 10.2.0.2,c via 10.3.0.2", "route"),
    ("ports b via fd00:2::2,c via fd00:3::2", "route"),
    ("copy free", "tap"),
    ("copy writer", "tap"),
    ("copy-to c via 10.3.0.2", "tap"),
    ("copy-to b via 10.2.0.2,a via 10.1.0.3", "tap"),
    ("instance free", "firewall"),
    ("instance free", "route"),
    ("instance some", "firewall"),
    ("instance some", "monitor"),
    ("instance writer", "firewall"),
    ("instance writer", "process"),
    ("queue bulk", "schedule"),
    ("queue bulk", "firewall"),
];
const PREFIXES: [&str; 12] = [
    "10.9.0.0/17",
    "10.9.1.0/24",
    "10.9.0.1/32",
    "0.0.0.0/0",
    "203.0.113.0/24",
    "10.1.0.0/24",
    "fd00:9::/49",
    "fd00:9:0:1::/64",
    "fd00:9::1/128",
    "::/0",
    "2001:db8::/40",
    "fd00:1::/64",
];
const WAYS: [&str; 8] = [
    "via = '10.2.0.2'",
    "via = '10.3.0.2'",
    "via = ['10.2.0.2', '10.3.0.2']",
    "via = '10.2.0.77'",
    "via = '10.1.0.3'",
    "port = 'c'",
    "kind = 'blackhole'",
    "kind = 'prohibit'",
];

/// Returns a filter, and whether it binds the writer plugin. `None` if the conditions of the filter
/// contradict each other.
pub fn next_filter(input: &mut Input<'_>) -> Option<(Filter, bool)> {
    let words = [input.pick(&ADDRESSES), input.pick(&UPPER), input.pick(&OTHERS), input.pick(&OTHERS)];
    let (action, gate) = input.pick(&ACTIONS);
    let priority = i32::from(input.byte() % 3) - 1;
    let words = words.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
    let matches = if words.is_empty() { "*" } else { &words };
    let text =
        format!("match = \"{matches}\"\naction = \"{action}\"\ngate = \"{gate}\"\npriority = {priority}\n");
    Some((toml::from_str(&text).ok()?, action.ends_with("writer")))
}

/// Returns a prefix that the input chooses.
pub fn next_prefix(input: &mut Input<'_>) -> &'static str {
    input.pick(&PREFIXES)
}

/// Returns a route that the input chooses.
pub fn next_route(input: &mut Input<'_>) -> Route {
    let (prefix, way) = (next_prefix(input), input.pick(&WAYS));
    let mut way = way.to_owned();
    if prefix.contains(':') {
        for net in 1..=3 {
            way = way.replace(&format!("10.{net}.0."), &format!("fd00:{net}::"));
        }
    }
    toml::from_str(&format!("to = '{prefix}'\n{way}\n")).expect("a route")
}

/// Returns the description of a packet that the input chooses, in the syntax of `lookup`.
pub fn next_packet(input: &mut Input<'_>) -> String {
    let words = ["src 10.1.0.2 dst 10.9.0.1", "src fd00:1::2 dst fd00:9::1", "dst 10.2.0.77", "src 10.1.0.3"];
    format!("{} {} {}", input.pick(&words), input.pick(&UPPER), input.pick(&["in a", "in b", "in v", ""]))
}
