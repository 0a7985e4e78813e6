//! Configurations made of input bytes.

use millrace_tests::STANDARD;

use super::devices::Devices;
use crate::input::Input;

/// Part of the configuration that all inputs share: memory for few packets and flows, instances, neighbours,
/// sub-interfaces.
const WORLD: &str = r#"
[[port]]
name = "v"
device = "trunk"
vlan = 10
mac = "02:00:00:00:00:1a"
address = ["10.10.0.1/24"]

[[port]]
name = "q"
device = "trunk"
vlan = [7, 10]
mac = "02:00:00:00:00:1b"
address = ["10.11.0.1/24", "fd00:11::1/64"]

[[port]]
name = "t"
device = "trunk"

[[port]]
name = "p"
kind = "memory"
mac = "02:00:00:00:00:0f"
address = ["10.4.0.1/24", "fd00:4::1/64"]

[[neighbour]]
port = "v"
address = "10.10.0.2"
mac = "02:00:00:00:00:a4"

[[neighbour]]
port = "q"
address = "10.11.0.2"
mac = "02:00:00:00:00:a5"

[[neighbour]]
port = "q"
address = "fd00:11::2"
mac = "02:00:00:00:00:a5"

[[neighbour]]
port = "p"
address = "10.4.0.2"
mac = "02:00:00:00:00:a6"

[[neighbour]]
port = "a"
address = "10.1.0.3"
mac = "02:00:00:00:00:a3"

[[neighbour]]
port = "a"
address = "fd00:1::3"
mac = "02:00:00:00:00:a3"

[[instance]]
plugin = "null"
name = "free"

[[instance]]
plugin = "port-filter"
name = "some"
settings = { ports = "53" }

[[instance]]
plugin = "writer"
name = "writer"
"#;

/// Schedulers of port `b`.
const SCHEDULERS: [&str; 4] = [
    r#"scheduler = { rate = "2mbit", default = "rest", node = [
    { name = "top", kind = "priority" },
    { name = "bulk", kind = "fifo", under = "top", level = 0, threshold = "3000B" },
    { name = "rest", kind = "fifo", under = "top", level = 1, threshold = "2000B" } ] }"#,
    r#"scheduler = { rate = "3mbit", default = "rest", node = [
    { name = "top", kind = "deficit-round-robin" },
    { name = "bulk", kind = "fq-codel", under = "top", quantum = "1500B" },
    { name = "rest", kind = "fifo", under = "top", quantum = "1500B", threshold = "2000B" } ] }"#,
    r#"scheduler = { rate = "2mbit", default = "rest", node = [
    { name = "top", kind = "deficit-round-robin" },
    { name = "rest", kind = "flow-queues", under = "top", quantum = "1500B", threshold = "1000B" },
    { name = "bulk", kind = "fifo", manage = "red", minimum = "500B", maximum = "3000B", under = "top", quantum = "500B" } ] }"#,
    r#"scheduler = { rate = "1mbit", default = "rest", node = [
    { name = "top", kind = "priority" },
    { name = "rest", kind = "fifo", manage = "codel", under = "top", level = 1 },
    { name = "bulk", kind = "fifo", under = "top", level = 0 } ] }"#,
];

const TABLES: [&str; 6] = ["tuple-space", "cutting-tree", "linear", "dag", "dag-patricia", "dag-tree-bitmap"];
/// Gates at which the writer plugin may be bound, of each position: early, route, late, queue.
const GATES: [&str; 7] = ["options", "security-in", "firewall", "route", "process", "monitor", "schedule"];

/// Configuration made of an input, with properties that the comparison needs.
#[derive(Debug)]
pub struct Settings {
    /// Text of the configuration.
    pub text: String,
    /// Devices of ports.
    pub devices: Devices,
    /// Whether the order of packets decides their fate, because a port has a scheduler or its link is
    /// impaired.
    pub ordered: bool,
    /// Whether frames may keep wrong transport checksums.
    pub lies: bool,
    /// Whether the writer plugin is bound to all packets.
    pub writes: bool,
}

impl Settings {
    /// Reads a configuration from the input.
    pub fn next(input: &mut Input<'_>) -> Self {
        let table = input.pick(&TABLES);
        let workers = 1 + usize::from(input.one_in(8));
        let kinds = input.byte();
        let mut standard = STANDARD.to_owned();
        let mut more = Vec::new();
        let schedules = kinds & 3 == 1;
        if schedules {
            more.push(input.pick(&SCHEDULERS));
        }
        let lies = kinds & 0xc0 == 0x80;
        let devices = Devices::next(input, kinds, lies);
        if kinds & 12 == 4 {
            more.push("mtu = 1280");
        }
        if !more.is_empty() {
            standard =
                standard.replacen("name = \"b\"\n", &format!("name = \"b\"\n{}\n", more.join("\n")), 1);
        }
        let mut text = format!(
            "[router]\nframes = 1024\nflows-max = 1024\non-death = \"drop\"\nicmp-rate = 1000000\nicmp-burst = 1000000\n\
             workers = {workers}\n[plugins]\nstate = \"none\"\ncache = \"none\"\nfaults = 1000\n\
             fault-window = \"1s\"\n{standard}{WORLD}"
        );
        for gate in ["firewall", "route"] {
            text += &format!("[[gate]]\nname = \"{gate}\"\ntable = \"{table}\"\n");
        }
        let writes = kinds & 0x30 == 0x10;
        if writes {
            let gate = input.pick(&GATES);
            text += &format!("[[bind]]\ninstance = \"writer\"\ngate = \"{gate}\"\nfilter = \"*\"\n");
        }
        if kinds & 0xc0 == 0x40 {
            text += "[[filter]]\nmatch = \"*\"\naction = \"copy-to c via 10.3.0.2\"\n";
        }
        let ordered = schedules || devices.impairs();
        Self { text, devices, ordered, lies, writes }
    }
}
