//! Output of `show hardware` for people: the tree of processors, and tables of their features.

use serde_json::Value;

use crate::output::{plain, rows, table};

const PORTS: &str = "port=name | device | driver | xdp | sockets | rx queues=rx_queues \
    | tx queues=tx_queues | mtu | features | reason for the mode=why";
const PROCESSORS: &str = "processor=name | level | cpus | treats | no offload, because=why_not";
const SWITCHES: &str = "switch=name | from | to | works | how";
const CPUS: &str = "cpu | core | package | node";

/// Formats the hardware as a tree and tables.
pub fn drawn(hardware: &Value) -> String {
    let tables = [("processors", PROCESSORS), ("ports", PORTS), ("switches", SWITCHES), ("cpus", CPUS)];
    let tables = tables.map(|(name, columns)| format!("\n{}", table(rows(&hardware[name]), columns)));
    tree(hardware) + &tables.concat()
}

/// Formats the tree of processors, with ports as leaves.
fn tree(hardware: &Value) -> String {
    let mut text = String::new();
    let roots = rows(&hardware["processors"]).iter().filter(|one| one["above"].is_null());
    for root in roots {
        text += &format!("{}\n", plain(&root["name"]));
        branches(hardware, &root["name"], "", &mut text);
    }
    text
}

/// Appends the subtree below a processor.
fn branches(hardware: &Value, name: &Value, indent: &str, text: &mut String) {
    let below = rows(&hardware["processors"]).iter().filter(|one| one["above"] == *name);
    let ports = rows(&hardware["ports"]).iter().filter(|one| one["processor"] == *name);
    let below: Vec<(&Value, bool)> =
        below.map(|one| (one, false)).chain(ports.map(|one| (one, true))).collect();
    for (number, (one, is_port)) in below.iter().enumerate() {
        let (fork, further) =
            if number + 1 == below.len() { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        let label = if *is_port { port(one) } else { plain(&one["name"]) };
        *text += &format!("{indent}{fork}{label}\n");
        if !is_port {
            branches(hardware, &one["name"], &format!("{indent}{further}"), text);
        }
    }
}

/// Formats a port as a line.
fn port(port: &Value) -> String {
    let device = port["device"].as_str().map(|device| format!("{device}, ")).unwrap_or_default();
    let redirects = match &port["why_no_redirects"] {
        Value::Null => ", takes redirected frames",
        _ => "",
    };
    let past = match &port["queueing_discipline"] {
        Value::Null => String::new(),
        discipline => format!(", bypasses the kernel's qdisc {}", plain(discipline)),
    };
    let [name, driver, sockets] = ["name", "driver", "sockets"].map(|key| plain(&port[key]));
    format!("port {name} ({device}{driver}, {sockets}{redirects}{past})")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn processors_are_drawn_as_a_tree_with_ports_as_leaves() {
        let processor = |name: &str, above: Value| json!({"name": name, "above": above});
        let port = |name: &str, processor: &str, why: Value| json!({"name": name, "processor": processor, "device": name, "driver": "veth", "sockets": "copy", "why_no_redirects": why});
        let hardware = json!({
            "processors": [processor("host", Value::Null), processor("worker 0", json!("host")), processor("xdp a", json!("worker 0"))],
            "ports": [port("a", "xdp a", Value::Null), port("b", "worker 0", json!("no"))],
        });
        let drawing = "\
host
└─ worker 0
   ├─ xdp a
   │  └─ port a (a, veth, copy, takes redirected frames)
   └─ port b (b, veth, copy)
";
        assert_eq!(tree(&hardware), drawing);
        assert!(drawn(&hardware).contains("reason for the mode"));
    }
}
