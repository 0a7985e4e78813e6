//! Tests of configurations that can't be planned.

use super::*;

#[test]
fn all_planning_errors_are_reported_at_once_with_their_places() {
    let text = r#"[[port]]
name = "lan"
kind = "memory"
address = ["10.1.0.1/24"]

[[route]]
to = "10.9.0.0/16"
via = "172.16.0.1"

[[instance]]
plugin = "port-filter"
name = "web"
settings = { prts = "80", protocol = "tpc" }

[[instance]]
plugin = "port-filtr"
name = "other"

[[instance]]
plugin = "delay"
name = "late"
[instance.settings]
ms = -1

[[bind]]
instance = "web"
gate = "firewall"
filter = "*"

[[bind]]
instance = "late"
gate = "tap"
filter = "*"

[[filter]]
match = "*"
action = "queue voice"
gate = "route"
"#;
    let refused = match crate::check(&Config::parse(text, "f").unwrap()) {
        Err(ControlError::Config(refused)) => refused,
        other => panic!("{other:?}"),
    };
    let told: Vec<String> = refused.errors().iter().map(ToString::to_string).collect();
    for (told, expected) in told.iter().zip([
        ("f:8:7: ", "its next hop is in no subnet of a port"),
        ("f:13:14: ", "prts: there is no such setting; did you mean \"ports\"?"),
        ("f:13:27: ", "protocol: \"tpc\" is not right"),
        ("f:16:10: ", "did you mean \"port-filter\"?"),
        ("f:23:1: ", "ms"),
        ("f:37:10: ", "no queue is named \"voice\""),
    ]) {
        assert!(told.starts_with(expected.0) && told.contains(expected.1), "{expected:?} {told:#?}");
    }
    assert_eq!(told.len(), 6, "{told:#?}");
}

/// Configuration with an error in each table. Some entries are invalid by themselves, others only in
/// combination with other entries.
const WRONG: &str = r#"[router]
workers = 99

[[port]]
name = "a"
kind = "memory"
address = ["10.1.0.1/24"]
scheduler = { rate = "1mbit", node = [{ name = "x", kind = "fifo", under = "nowhere" }] }

[[route]]
too = "10.7.0.0/16"
via = "10.1.0.2"

[[route]]
to = "10.9.0.0/16"
via = "192.0.2.1"

[[instance]]
name = "j"
plugim = "null"

[[instance]]
name = "i"
plugin = "statistics"
settings = { nonsense = 1 }

[[filter]]
match = "proto udp"
action = "instance j"
gate = "firewall"
"#;

/// Returns the line and the text of each error in a configuration.
fn lines_told(text: &str) -> Vec<(usize, String)> {
    let wrong = Config::parse_further(text, "f", crate::check_rest).unwrap_err();
    wrong.errors().iter().map(|error| (error.place.line, error.problem.to_string())).collect()
}

#[test]
fn combined_errors_are_reported_with_single_errors() {
    let told = lines_told(WRONG);
    let lines: Vec<usize> = told.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [2, 8, 11, 16, 20, 25], "{told:#?}");
    assert!(told[1].1.contains("nowhere") && told[3].1.contains("no subnet"), "{told:#?}");
    assert!(told[5].1.contains("nonsense"), "{told:#?}");
}

#[test]
fn omitted_entries_cause_no_errors() {
    // The left-out port causes no further errors: neither for the route without an egress port, nor for the
    // filter without its instance.
    let told = lines_told(&WRONG.replace("kind = \"memory\"", "kind = \"memry\""));
    let lines: Vec<usize> = told.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [2, 6, 11, 20, 25], "{told:#?}");
    // If a plugin fails to load, its instances cause no errors.
    let text = WRONG.replace("workers = 99", "").replace("plugin = \"statistics\"", "plugin = \"other\"");
    let plugins = format!("{text}\n[[plugin]]\nfile = \"other.wasm\"\n");
    let told = lines_told(&plugins);
    assert!(told.iter().all(|(line, _)| *line != 24), "{told:#?}");
}

#[test]
fn placement_in_the_offload_is_refused_without_an_offload() {
    let place = "[[place]]\nflow = \"proto udp\"\nlevel = \"offload\"\n";
    let device = "[[port]]\nname = \"lan\"\ndevice = \"lan\"\n";
    let memory = "[[port]]\nname = \"lan\"\nkind = \"memory\"\n";
    for (text, why) in [
        (
            format!("[router]\noffloaded-flows = 0\n{device}{place}"),
            "f:8:9: placement \"proto udp\": no flow can be offloaded: the configuration sets offloaded-flows = 0",
        ),
        (
            format!("{memory}{place}"),
            "f:6:9: placement \"proto udp\": no flow can be offloaded: no port has a kernel device",
        ),
    ] {
        let refused = crate::check(&Config::parse(&text, "f").unwrap()).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
        assert!(
            crate::check(&Config::parse(&text.replace("\"offload\"", "\"worker\""), "f").unwrap()).is_ok()
        );
    }
    for there in [format!("{device}{place}"), format!("[router]\nworkers = 2\n{device}{place}")] {
        assert!(crate::check(&Config::parse(&there, "f").unwrap()).is_ok());
    }
}

#[test]
fn instances_may_precede_those_that_they_name_and_cycles_are_errors() {
    let instance = |name: &str, to: &str| {
        format!("[[instance]]\nplugin = \"spread\"\nname = \"{name}\"\nsettings = {{ to = \"{to}\" }}\n")
    };
    let text = [
        "[[port]]\nname = \"lan\"\nkind = \"memory\"\n",
        &instance("user", "a"),
        &instance("a", "b"),
        &instance("b", "t"),
        "[[instance]]\nplugin = \"statistics\"\nname = \"t\"\n",
        "[[bind]]\ninstance = \"user\"\ngate = \"monitor\"\nfilter = \"*\"\n",
    ]
    .concat();
    let config = |text: &str| Config::parse(text, "f").unwrap();
    let model = Model::planned(&config(&text)).unwrap();
    let created: Vec<&str> = model.plugins.instance_names().map(|(_, name, _)| name).collect();
    assert_eq!(created, ["t", "b", "a", "user"]);
    // Instances that name an instance of the cycle cause no errors of their own.
    let refused = match crate::check(&config(&text.replace("to = \"t\"", "to = \"a\""))) {
        Err(ControlError::Config(refused)) => refused,
        other => panic!("{other:?}"),
    };
    let told: Vec<String> = refused.errors().iter().map(ToString::to_string).collect();
    let cycle = "instances name each other in a cycle: \"a\" names \"b\", \"b\" names \"a\";";
    assert!(told.len() == 1 && told[0].starts_with("f:11:") && told[0].contains(cycle), "{told:#?}");
}
