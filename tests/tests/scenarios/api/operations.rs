//! Every operation of the API has a command.

use std::collections::BTreeSet;

use millrace_testkit::{Ground, Line};

/// Operations, each with the command that performs it, on one object or on all objects.
const COMMANDS: &[(&str, &str)] = &[
    ("get /", "show interface"),
    ("get /openapi.json", "show openapi"),
    ("get /status", "show status"),
    ("get /summary", "show summary"),
    ("get /ports", "show ports"),
    ("get /ports/{name}", "show ports"),
    ("patch /ports/{name}", "port set"),
    ("get /hardware", "show hardware"),
    ("get /neighbours", "neighbour list"),
    ("post /neighbours", "neighbour add"),
    ("delete /neighbours", "neighbour remove"),
    ("get /router", "router show"),
    ("patch /router", "router set"),
    ("get /control-plane", "control-plane show"),
    ("patch /control-plane", "control-plane set"),
    ("get /admission", "admission show"),
    ("patch /admission", "admission set"),
    ("post /admission/place", "admission place"),
    ("get /tokens", "token list"),
    ("post /tokens", "token create"),
    ("delete /tokens/{name}", "token revoke"),
    ("get /drops", "drops"),
    ("get /drops/packets", "drops"),
    ("get /trace", "trace"),
    ("get /rates", "rates"),
    ("get /events", "events"),
    ("get /audit", "audit"),
    ("get /metrics", "metrics"),
    ("delete /counters", "clear"),
    ("get /capture", "capture"),
    ("get /routes", "route list"),
    ("post /routes", "route add"),
    ("put /routes", "route replace"),
    ("delete /routes", "route remove"),
    ("get /routes/lookup", "route lookup"),
    ("get /filters", "filter list"),
    ("post /filters", "filter add"),
    ("delete /filters", "filter remove"),
    ("get /filters/check", "filter check"),
    ("get /filters/explain", "filter explain"),
    ("get /filters/{id}", "filter list"),
    ("delete /filters/{id}", "filter remove"),
    ("get /flows", "flow list"),
    ("delete /flows", "flow flush"),
    ("get /connections", "connection list"),
    ("get /placements", "place list"),
    ("put /placements", "place"),
    ("post /lookup", "lookup"),
    ("get /plugins", "plugin list"),
    ("post /plugins", "plugin load"),
    ("get /plugins/{name}", "plugin inspect"),
    ("put /plugins/{name}", "plugin upgrade"),
    ("delete /plugins/{name}", "plugin unload"),
    ("post /plugins/{name}/rollback", "plugin rollback"),
    ("get /instances", "instance list"),
    ("post /instances", "instance create"),
    ("get /instances/{name}", "instance list"),
    ("patch /instances/{name}", "instance set"),
    ("delete /instances/{name}", "instance free"),
    ("post /instances/{name}/move", "instance move"),
    ("post /instances/{name}/release", "instance release"),
    ("get /quarantine", "show quarantine"),
    ("get /instances/{name}/maps", "instance map"),
    ("get /instances/{name}/maps/{map}", "instance map"),
    ("post /instances/{name}/control", "control"),
    ("get /gates", "gate list"),
    ("post /gates", "gate create"),
    ("get /gates/{name}", "gate list"),
    ("patch /gates/{name}", "gate set"),
    ("delete /gates/{name}", "gate remove"),
    ("get /bindings", "show bindings"),
    ("post /bindings", "bind"),
    ("delete /bindings", "unbind"),
    ("get /schedulers", "scheduler show"),
    ("get /schedulers/{port}", "scheduler show"),
    ("post /schedulers/{port}", "scheduler add"),
    ("patch /schedulers/{port}", "scheduler set"),
    ("patch /schedulers/{port}/{node}", "scheduler set"),
    ("delete /schedulers/{port}/{node}", "scheduler remove"),
    ("get /queues", "queue show"),
    ("get /queues/{port}/{queue}", "queue show"),
    ("patch /queues/{port}/{queue}", "queue set"),
    ("get /allowances", "allowance list"),
    ("post /allowances", "allowance add"),
    ("get /allowances/{name}", "allowance show"),
    ("patch /allowances/{name}", "allowance set"),
    ("delete /allowances/{name}", "allowance remove"),
    ("get /principals", "principal list"),
    ("post /principals", "principal add"),
    ("get /principals/{name}", "principal show"),
    ("patch /principals/{name}", "principal set"),
    ("delete /principals/{name}", "principal remove"),
    ("post /reservations", "flow reserve"),
    ("delete /reservations/{name}", "flow release"),
    ("get /promises", "show promises"),
    ("get /configuration", "show configuration"),
    ("post /configuration", "apply"),
    ("post /configuration/diff", "diff"),
    ("post /configuration/save", "save"),
    ("post /configuration/confirm", "confirm"),
    ("post /configuration/rollback", "rollback"),
    ("get /revisions", "history"),
    ("post /revisions", "save"),
    ("get /revisions/{number}", "history show"),
];

#[test]
fn every_operation_of_the_interface_has_a_command() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    let router = crate::support::router(&line);
    let description = router.json(&["show", "openapi"]);
    let paths = description["paths"].as_object().expect("paths");
    let methods = ["get", "post", "put", "patch", "delete"];
    let operations = paths.iter().flat_map(|(path, item)| {
        let there = methods.iter().filter(|method| item[**method].is_object());
        there.map(move |method| format!("{method} {path}"))
    });
    let served: BTreeSet<String> = operations.collect();
    let listed: BTreeSet<String> = COMMANDS.iter().map(|(operation, _)| (*operation).to_owned()).collect();
    let missing: Vec<_> = served.difference(&listed).collect();
    assert!(missing.is_empty(), "without a command: {missing:?}");
    let gone: Vec<_> = listed.difference(&served).collect();
    assert!(gone.is_empty(), "not served: {gone:?}");
    let commands: BTreeSet<&str> = COMMANDS.iter().map(|(_, command)| *command).collect();
    for command in commands {
        // `show NOUN` has no help page for each noun.
        let words: Vec<&str> = command.split(' ').collect();
        let words = if words[0] == "show" { vec!["show"] } else { words };
        let help = router.ask(&[words.as_slice(), &["--help"]].concat());
        assert!(help.contains("Usage: millrace"), "{command}: {help}");
        if command.starts_with("show ") {
            router.ask(&command.split(' ').collect::<Vec<_>>());
        }
    }
    let running = router.ask(&["show", "configuration"]);
    assert!(running.contains("device = \"r1\""), "{running}");
    assert!(router.ask(&["show", "interface"]).contains("/openapi.json"));
}
