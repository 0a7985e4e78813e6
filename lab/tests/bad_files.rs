//! Tests of lab files with faults. The error for each names line and column, the fault, and the remedy.

use std::collections::BTreeSet;
use std::path::Path;

use millrace_lab::{LabFile, NodeKind};

const GOOD: &str = r#"[lab]
name = "demo"
[[host]]
name = "h1"
addresses = ["10.1.0.2/24", "fd00:1::2/64"]
gateway = "10.1.0.1"
[[host]]
name = "h2"
[[router]]
name = "r"
kind = "kernel"
[[link]]
ends = ["h1", "r:r1"]
addresses.r = ["10.1.0.1/24"]
mtu = 1500
[[link]]
ends = ["h2", "r"]
addresses.h2 = ["10.2.0.2/24"]
addresses.r = ["10.2.0.1/24"]
[[route]]
node = "h2"
to = "default"
via = "10.2.0.1"
"#;

fn parse(text: &str) -> Result<LabFile, String> {
    LabFile::parse(text, Path::new("x.toml")).map_err(|error| error.to_string())
}

#[test]
fn a_good_file_is_understood() {
    let lab = parse(GOOD).unwrap();
    assert_eq!(lab.namespace("h1"), "demo-h1");
    let router = &lab.nodes[lab.node("r").unwrap()];
    assert_eq!(router.kind, NodeKind::Kernel);
    let names: Vec<&str> = router.devices.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["r1", "eth1"]);
    let host = &lab.nodes[lab.node("h2").unwrap()];
    assert_eq!(host.devices[0].addresses[0].to_string(), "10.2.0.2/24");
    assert_eq!(host.routes[0].to.to_string(), "0.0.0.0/0");
    assert_eq!(lab.links[0].mtu, Some(1500));
}

/// Text in a valid file, its faulty replacement, and the expected error.
const CASES: &[(&str, &str, &str)] = &[
    (
        "addresses = [\"10",
        "adresses = [\"10",
        "x.toml:5:1: unknown key `adresses`: did you mean \"addresses\"?",
    ),
    ("[[router]]", "[[ruoter]]", "x.toml:9:3: unknown key `ruoter`: did you mean \"router\"?"),
    ("\"kernel\"", "\"kernle\"", "x.toml:11:8: unknown value `kernle`: did you mean \"kernel\"?"),
    ("[[route]]\nnode = \"h2\"\n", "[[route]]\n", "x.toml:20:1: missing field `node`"),
    (
        "10.1.0.2/24",
        "10.1.0.300/24",
        "x.toml:5:13: \"10.1.0.300/24\" is not an address with its prefix length, as in 10.1.0.2/24 or \
         fd00:1::2/64",
    ),
    (
        "gateway = \"10.1.0.1\"",
        "gateway = \"fd00::1\"",
        "x.toml:6:11: \"fd00::1\" is not an IPv4 address, as in 10.1.0.1",
    ),
    (
        "gateway = \"10.1.0.1\"",
        "gateway = \"10.3.0.1\"",
        "x.toml:6:11: next hop 10.3.0.1 is in none of the networks of node h1: give a next hop in a \
         connected network",
    ),
    ("name = \"h2\"", "name = \"h1\"", "x.toml:8:8: two nodes have the name h1: give each a different name"),
    (
        "name = \"demo\"",
        "name = \"a/b\"",
        "x.toml:2:8: \"a/b\" is not a valid name of a lab: give 1 to 24 letters, digits, - and _, not \
         beginning with -",
    ),
    (
        "[\"h2\", \"r\"]",
        "[\"h2\", \"rr\"]",
        "x.toml:17:15: no [[host]] or [[router]] is named \"rr\": did you mean \"r\"?",
    ),
    ("[\"h2\", \"r\"]", "[\"h2\"]", "x.toml:17:8: a link needs two ends, as in ends = [\"h1\", \"r:r1\"]"),
    (
        "[\"h2\", \"r\"]",
        "[\"r:a\", \"r:b\"]",
        "x.toml:17:8: both ends of the link are at r: name two different nodes",
    ),
    (
        "[\"h2\", \"r\"]",
        "[\"h2\", \"r:r1\"]",
        "x.toml:17:15: node r has two devices with the name r1: rename one",
    ),
    (
        "[\"h2\", \"r\"]",
        "[\"h2\", \"r:a-very-long-name\"]",
        "x.toml:17:15: \"a-very-long-name\" is not a valid device name: give 1 to 15 letters and digits, as \
         in \"r:r1\"",
    ),
    (
        "addresses.h2",
        "addresses.h1",
        "x.toml:17:8: `addresses` names h1, but the ends of this link are at h2 and r",
    ),
    ("10.2.0.1/24", "10.1.0.2/24", "x.toml:19:16: address 10.1.0.2 is given twice in lab demo: remove one"),
    (
        "10.2.0.1/24",
        "10.2.0.0/24",
        "x.toml:19:16: 10.2.0.0/24 is the address of the network itself: give a host address in this network",
    ),
    ("mtu = 1500", "mtu = 67", "x.toml:15:7: mtu must be 68 to 65535 bytes, not 67"),
    (
        "mtu = 1500",
        "impairment = { loss = 0.1 }",
        "x.toml:15:14: impairment needs a router of kind \"millrace\" at one end of the link, because its \
         port applies the impairment",
    ),
    ("mtu = 1500", "impairment = { loss = 2 }", "x.toml:15:14: loss must be a fraction from 0 to 1, not 2"),
    (
        "mtu = 1500",
        "impairment = { delay = 1 }",
        "x.toml:15:16: unknown key `delay`: did you mean \"delay-ms\"?",
    ),
    (
        "to = \"default\"",
        "to = \"10.9.0.1/16\"",
        "x.toml:22:6: 10.9.0.1/16 has host bits set beyond its prefix length: write 10.9.0.0/16",
    ),
    (
        "to = \"default\"",
        "to = \"fd00:9::/48\"",
        "x.toml:22:6: `to` and `via` are of different address families: write both as IPv4, or both as IPv6",
    ),
    ("via = \"10.2.0.1\"", "", "x.toml:22:6: a route needs `via`, `device`, or both"),
    (
        "via = \"10.2.0.1\"",
        "device = \"eth7\"",
        "x.toml:23:10: node h2 has no device \"eth7\": did you mean \"eth0\"?",
    ),
    (
        "kind = \"kernel\"",
        "kind = \"kernel\"\nmode = \"poll\"",
        "x.toml:12:8: `mode` needs a router of kind \"millrace\", but r is of kind \"kernel\"",
    ),
    (
        "kind = \"kernel\"",
        "config = \"/nowhere/r.toml\"",
        "x.toml:11:10: cannot read /nowhere/r.toml: No such file or directory (os error 2)",
    ),
];

#[test]
fn invalid_file_is_refused_with_the_place_of_the_error() {
    for (from, to, expected) in CASES {
        let text = GOOD.replacen(from, to, 1);
        assert_ne!(text, GOOD, "{from} is not in the good file");
        match parse(&text) {
            Ok(_) => panic!("accepted: {to}"),
            Err(error) => assert_eq!(error, *expected, "for {to}"),
        }
    }
}

#[test]
fn broken_syntax_is_refused_on_one_line() {
    let error = parse("[lab]\nname = \"demo\n").unwrap_err();
    assert!(error.starts_with("x.toml:2:") && !error.contains('\n'), "{error}");
}

#[test]
fn host_with_several_links_has_its_addresses_on_them() {
    let text = GOOD.replace("[\"h2\", \"r\"]", "[\"h1\", \"r\"]").replace("addresses.h2", "addresses.h1");
    let error = parse(&text).unwrap_err();
    assert!(error.starts_with("x.toml:5:14: h1 has 2 links: move the address to one link"), "{error}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = LabFile::read(Path::new("/nowhere/lab.toml")).unwrap_err().to_string();
    assert!(error.starts_with("cannot read the lab file /nowhere/lab.toml: "), "{error}");
}

#[test]
fn the_examples_are_labs() {
    let examples =
        [("two-hosts", 3, 2), ("lossy-line", 3, 2), ("static-routes", 4, 3), ("bird", 3, 2), ("frr", 3, 2)];
    let files = std::fs::read_dir("../examples/lab").unwrap().count();
    assert_eq!(files, examples.len(), "each example is read here");
    for (name, nodes, links) in examples {
        let path = format!("../examples/lab/{name}.toml");
        let lab = LabFile::read(Path::new(&path)).unwrap();
        assert_eq!((lab.nodes.len(), lab.links.len()), (nodes, links), "{name}");
        let document = std::fs::read_to_string("../docs/labs.md").unwrap();
        assert!(
            document.contains(&format!("(../examples/lab/{name}.toml)")),
            "docs/labs.md doesn't list {name}"
        );
    }
}

#[test]
fn the_document_of_labs_has_every_key_of_every_table_and_no_other() {
    let document = std::fs::read_to_string("../docs/labs.md").unwrap();
    for (table, header) in [
        ("lab", "[lab]"),
        ("host", "[[host]]"),
        ("router", "[[router]]"),
        ("link", "[[link]]"),
        ("route", "[[route]]"),
        ("daemon", "[[daemon]]"),
    ] {
        // No valid key is similar to `_0_`, so the error lists all valid keys.
        let error = parse(&format!("{header}\n_0_ = 1\n")).unwrap_err();
        let (_, known) = error.split_once("keys here: ").unwrap_or_else(|| panic!("{table}: {error}"));
        let known: BTreeSet<&str> = known.split(", ").map(str::trim).collect();
        let (_, section) = document.split_once(&format!("### `{header}`\n")).expect(header);
        let section = section.split("\n### ").next().unwrap_or_default();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        assert_eq!(rows.collect::<BTreeSet<_>>(), known, "{table}");
    }
}

#[test]
fn missing_requirements_of_a_daemon_are_named() {
    let with = |keys: &str| parse(&format!("{GOOD}[[daemon]]\nnode = \"r\"\n{keys}\n")).unwrap_err();
    let unknown = with("program = \"brid\"\ntext = \"\"");
    assert!(
        unknown.contains("\"brid\" is not a supported routing daemon; routing daemons here: bird, zebra"),
        "{unknown}"
    );
    let silent = with("program = \"bird\"");
    assert!(silent.contains("bird needs a configuration: set config = \"FILE\", or text = "), "{silent}");
    let both = with("program = \"bird\"\nconfig = \"a\"\ntext = \"b\"");
    assert!(both.contains("cannot read") || both.contains("`config` and `text` exclude"), "{both}");
    let gone = with("program = \"bird\"\nconfig = \"no-such.conf\"");
    assert!(gone.contains("cannot read no-such.conf"), "{gone}");
}
