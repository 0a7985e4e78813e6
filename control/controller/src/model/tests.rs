//! What can't be planned of a configuration.

use super::*;

#[test]
fn all_that_can_not_be_planned_is_told_at_once_and_where_it_stands() {
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
