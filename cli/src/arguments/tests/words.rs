//! Test that the command line parses each command that `diff` can print for a change of the configuration.

use clap::Parser as _;
use millrace_config::{Change, Config};

use crate::arguments::Arguments;

/// Configuration with every kind of setting that can change at run time.
const ALL: &str = r#"
[router]
on-death = "drop"
icmp-rate = 200
redirects = false
router-id = "192.0.2.1"

[[port]]
name = "lan"
kind = "memory"
address = ["10.1.0.1/24", "fd00:1::1/64"]
reverse-path = "strict"
input-weight = 64

[[port]]
name = "wan"
kind = "memory"
address = ["10.2.0.1/24"]

[port.scheduler]
rate = "10mbit"
overhead = "atm"
default = "rest"
node = [
    { name = "top", kind = "hfsc" },
    { name = "voice", kind = "fifo", under = "top", real-time = "1mbit 10ms 64kbit" },
    { name = "flows", kind = "flow-queues", under = "top", link-sharing = "2mbit" },
    { name = "rest", kind = "fq-codel", under = "top", link-sharing = "5mbit" },
]
flow = [{ queue = "flows", flow = "src 10.1.0.2 dst 10.2.0.2 proto udp sport 4 dport 5 in lan", rate = "64kbit" }]

[[neighbour]]
port = "wan"
address = "10.2.0.77"
mac = "02:00:00:00:00:07"

[[principal]]
name = "video"
cpu = "5 %"
cpu-limit = "20.5 %"
memory = "8 MiB"
disk = "2 MB/s"
processes = 64

[[gate]]
name = "audit"
position = "late"
table = "linear"

[[plugin]]
file = "/opt/a plugin.wasm"
allow-downgrade = true

[[instance]]
plugin = "port-filter"
name = "pf1"
settings = { ports = "80,8000-8080" }

[[bind]]
instance = "pf1"
gate = "audit"
filter = "in lan proto tcp"
priority = -3
on-fault = "bypass"
budget = "400us"
packet-budget = "20us"
queue = true
queue-weight = 3

[[filter]]
match = "in lan proto udp dport 53"
action = "queue voice"

[[filter]]
match = "src 10.1.7.0/24"
action = "port wan via 10.2.0.77"
priority = -1

[[filter]]
match = "dport 80"
action = "accept"
gate = "firewall"

[[route]]
to = "10.9.0.0/16"
via = ["10.2.0.7", "10.2.0.8"]

[[route]]
to = "10.8.0.0/16"
kind = "prohibit"
"#;

/// Smaller configuration, equal in all settings that need a restart.
const LITTLE: &str = r#"
[router]
on-death = "drop"

[[port]]
name = "lan"
kind = "memory"
address = ["10.1.0.1/24"]

[[port]]
name = "wan"
kind = "memory"
address = ["10.2.0.1/24"]

[[instance]]
plugin = "port-filter"
name = "pf1"
settings = { ports = "443" }

[[route]]
to = "10.9.0.0/16"
via = "10.2.0.7"
"#;

/// Splits a line into words as a shell does, with single quotes.
fn split(line: &str) -> Vec<String> {
    let (mut words, mut quoted, mut escaped) = (vec![String::new()], false, false);
    for c in line.chars() {
        match c {
            _ if escaped => {
                words.last_mut().unwrap().push(c);
                escaped = false;
            }
            '\'' => quoted = !quoted,
            '\\' if !quoted => escaped = true,
            ' ' if !quoted => words.push(String::new()),
            c => words.last_mut().unwrap().push(c),
        }
    }
    words
}

#[test]
fn differences_are_existing_commands() {
    let [all, little] =
        [ALL, LITTLE].map(|text| Config::parse(text, "test").map(Config::normalized).unwrap());
    for (from, to) in [(&all, &little), (&little, &all)] {
        let difference = from.difference(to);
        assert!(difference.restart.is_empty(), "{difference:?}");
        assert!(difference.changes.len() > 10, "{difference:?}");
        for command in difference.changes.iter().flat_map(Change::commands) {
            let words = std::iter::once("millrace".to_owned()).chain(split(&command));
            if let Err(error) = Arguments::try_parse_from(words) {
                panic!("{command}: {error}");
            }
        }
    }
}
