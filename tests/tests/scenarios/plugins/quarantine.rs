//! Shared objects in quarantine: the router runs none of their code until an admin releases them.

use std::process::Command;
use std::time::Duration;

use millrace_testkit::{Flow, Ground, Line, Millrace, eventually};

use super::shared_objects::trusting;
use crate::plugins::files::{COUNTER, COUNTER_KEYS, build_source_for, read};
use crate::support::to;

#[test]
fn instance_in_quarantine_is_visible_to_commands_until_freed_or_released() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    let held = |instance: &str| {
        format!(r#"{{"instance":"{instance}","plugin":"null","since":1700000000,"why":"it hung"}}"#)
    };
    std::fs::create_dir(line.file("state")).unwrap();
    let text = format!(r#"{{"format":1,"entries":[{},{},{}]}}"#, held("a"), held("b"), held("c"));
    let file = line.write("state/quarantine.json", &text);
    let state = format!("state = \"{}\"", line.file("state").display());
    let router = trusting(&line, &state);
    let created = router.ask(&["instance", "create", "null", "a"]);
    assert!(created.contains("created, in quarantine: it hung"), "{created}");
    // The quarantine doesn't affect an instance of another plugin.
    router.ask(&["instance", "create", "statistics", "b"]);
    assert_eq!(router.row("instances", "name", "b")["health"], "well");
    assert_eq!(router.row("quarantine", "instance", "c")["since"], "2023-11-14T22:13:20Z");
    assert_eq!(router.row("quarantine", "instance", "c")["exists"], false);
    assert!(router.ask(&["instance", "release", "c"]).contains("can be created again"));
    router.ask(&["instance", "free", "a"]);
    assert!(!router.ask(&["instance", "create", "null", "a"]).contains("quarantine"));
    router.try_ask(&["instance", "release", "d"]).assert_refused(1, &["no instance", "\"d\""]);
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.contains("\"b\"") && !text.contains("\"a\"") && !text.contains("\"c\""), "{text}");
}

/// Requests an operation as an operator, a member of the group `daemon`. Returns the status and the answer.
fn as_operator(router: &Millrace, method: &str, path: &str, body: &str) -> (String, String) {
    let mut operator = Command::new("setpriv");
    // Other users may not be allowed to run the first matching program in root's PATH.
    operator.env("PATH", "/usr/bin:/bin").args(["--reuid", "1", "--regid", "1", "--clear-groups"]);
    operator.args(["curl", "-s", "-m", "20", "-w", "\n%{http_code}", "-X", method, "--unix-socket"]);
    operator.arg(router.socket()).args(["-H", "content-type: application/json", "-d", body]);
    let output = operator.arg(format!("http://m{path}")).output().expect("curl");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (answer, status) = text.rsplit_once('\n').unwrap_or_else(|| panic!("{method} {path}: {output:?}"));
    (status.to_owned(), answer.to_owned())
}

/// Checks that the router refuses each of these operations to an operator, with an answer that contains
/// `words`.
fn assert_operator_refused(router: &Millrace, operations: &[(&str, &str, &str)], words: &[&str]) {
    for (method, path, body) in operations {
        let (status, answer) = as_operator(router, method, path, body);
        let is_said = words.iter().all(|word| answer.contains(word));
        assert!(status == "403" && is_said, "{method} {path} {body}: {status} {answer}");
    }
}

/// Returns lines of a configuration with operators, and with an instance `h1` that may be in quarantine.
fn with_operators(line: &Line, object: &str) -> String {
    format!(
        "faults = 1\nstate = \"{}\"\n[api]\ngroups = {{ daemon = \"operator\" }}\n[router]\non-death = \"kernel\"\n\
         [[plugin]]\nfile = \"{object}\"\nruntime = \"in-process\"\n[[instance]]\nplugin = \"held\"\nname = \"h1\"\n",
        line.file("state").display()
    )
}

#[test]
fn operators_begin_no_code_of_a_shared_object_that_is_in_quarantine() {
    let Some(_ground) = Ground::enter_alone(&["cc", "curl", "setpriv"]) else { return };
    let line = Line::new();
    let object = build_source_for(&line, "native", ("held", "1.0.0"), COUNTER_KEYS, COUNTER);
    std::fs::create_dir(line.file("state")).unwrap();
    line.write(
        "state/quarantine.json",
        r#"{"format":1,"entries":[{"instance":"h1","plugin":"held","since":1700000000,"why":"it hung"}]}"#,
    );
    let config = with_operators(&line, &object);
    let router = trusting(&line, &config);
    // Another instance of the same plugin is healthy, so its code runs on.
    router.ask(&["instance", "create", "held", "well"]);
    let words = ["instance \\\"h1\\\" is in quarantine", "role admin", "millrace instance release h1"];
    assert_operator_refused(
        &router,
        &[
            ("PATCH", "/instances/h1", r#"{"settings": {}}"#),
            ("PATCH", "/instances/h1", r#"{"name": "h2"}"#),
            ("PATCH", "/instances/well", r#"{"settings": {}}"#),
            ("POST", "/instances/h1/control", r#"{"message": "read"}"#),
            ("POST", "/instances/h1/control", r#"{"message": "read", "companion": true}"#),
            ("POST", "/instances", r#"{"plugin": "held", "name": "other"}"#),
        ],
        &words,
    );
    let by_role = [
        ("POST", "/instances/h1/release", ""),
        ("PUT", "/plugins/held", r#"{"file": "/nowhere.so"}"#),
        ("POST", "/plugins/held/rollback", ""),
        ("POST", "/configuration", r#"{"text": ""}"#),
        ("POST", "/configuration/rollback", "{}"),
        ("POST", "/configuration/confirm", "{}"),
    ];
    assert_operator_refused(&router, &by_role, &["admin"]);
    assert_eq!(as_operator(&router, "POST", "/instances/well/control", r#"{"message": "read"}"#).0, "200");
    assert_eq!(as_operator(&router, "PATCH", "/instances/well", r#"{"name": "w"}"#).0, "200");
    assert_eq!(router.row("instances", "name", "h1")["health"], "quarantined");
    // An operator may free the instance `h1`. The quarantine of its name stays, and no instance of the same
    // plugin can take the name.
    assert_eq!(as_operator(&router, "DELETE", "/instances/h1", "").0, "200");
    let freed = router.row("quarantine", "instance", "h1");
    assert_eq!((&freed["plugin"], &freed["exists"]), (&"held".into(), &false.into()), "{freed}");
    assert_operator_refused(
        &router,
        &[
            ("POST", "/instances", r#"{"plugin": "held", "name": "h1"}"#),
            ("POST", "/instances", r#"{"plugin": "held", "name": "h3"}"#),
            ("PATCH", "/instances/w", r#"{"name": "h1"}"#),
        ],
        &words,
    );
    its_name_goes_to_another_plugin(&router);
    assert_operator_refused(&router, &[("POST", "/instances/h1/release", "")], &["role admin"]);
    admins_begin_it(&router);
    drop(router);
    assert_eq!(trusting(&line, &config).row("instances", "name", "h1")["health"], "well");
}

/// Checks that another plugin's instance can take and release the name `h1`, while the quarantine of that
/// name stays.
fn its_name_goes_to_another_plugin(router: &Millrace) {
    // Before the release, even an admin can't give the name to another instance of the same plugin.
    router
        .try_ask(&["instance", "rename", "w", "h1"])
        .assert_refused(1, &["in quarantine", "release it first"]);
    let of_null = ("/instances", r#"{"plugin": "null", "name": "h1"}"#);
    let (status, answer) = as_operator(router, "POST", of_null.0, of_null.1);
    assert_eq!(status, "201", "{answer}");
    assert_eq!(router.row("quarantine", "instance", "h1")["exists"], false);
    assert_eq!(as_operator(router, "PATCH", "/instances/h1", r#"{"name": "n"}"#).0, "200");
    assert_eq!(router.row("quarantine", "instance", "h1")["plugin"], "held");
    assert_eq!(as_operator(router, "POST", of_null.0, of_null.1).0, "201");
    assert_eq!(as_operator(router, "DELETE", "/instances/h1", "").0, "200");
    assert_eq!(router.row("quarantine", "instance", "h1")["plugin"], "held");
}

/// Checks that an admin may perform the refused operations, and that operators may again once `h1` is
/// released.
fn admins_begin_it(router: &Millrace) {
    let created = router.ask(&["instance", "create", "held", "h1"]);
    assert!(created.contains("created, in quarantine: it hung"), "{created}");
    router.ask(&["instance", "create", "held", "further"]);
    assert_eq!(router.row("instances", "name", "further")["health"], "well");
    router.ask(&["instance", "rename", "h1", "h2"]);
    router.ask(&["instance", "rename", "h2", "h1"]);
    // Until the release, no code of the instance runs.
    router.try_ask(&["control", "h1", "read"]).assert_refused(1, &["in quarantine: it hung"]);
    router.ask(&["instance", "release", "h1"]);
    assert_eq!(read(router, "h1", "packets"), 0);
    let (status, answer) =
        as_operator(router, "POST", "/instances", r#"{"plugin": "held", "name": "other"}"#);
    assert_eq!(status, "201", "{answer}");
    assert_eq!(as_operator(router, "POST", "/instances/h1/control", r#"{"message": "read"}"#).0, "200");
}

#[test]
fn a_configuration_lets_no_shared_object_out_of_quarantine() {
    let Some(_ground) = Ground::enter_alone(&["cc"]) else { return };
    let line = Line::new();
    let object = build_source_for(&line, "native", ("held", "1.0.0"), COUNTER_KEYS, COUNTER);
    std::fs::create_dir(line.file("state")).unwrap();
    line.write(
        "state/quarantine.json",
        r#"{"format":1,"entries":[{"instance":"h1","plugin":"held","since":1700000000,"why":"it hung"}]}"#,
    );
    let config = with_operators(&line, &object);
    let router = trusting(&line, &config);
    let with = std::fs::read_to_string(line.file("router.toml")).unwrap();
    let without = with.replace("[[instance]]\nplugin = \"held\"\nname = \"h1\"\n", "");
    assert_ne!(with, without);
    let [with, without] = [("with.toml", &with), ("without.toml", &without)]
        .map(|(file, text)| line.write(file, text).display().to_string());
    router.ask(&["apply", &without]);
    assert_eq!(router.row("quarantine", "instance", "h1")["exists"], false);
    router.ask(&["rollback"]);
    assert_eq!(router.row("instances", "name", "h1")["health"], "quarantined");
    router.ask(&["apply", &without]);
    router.ask(&["apply", &with]);
    assert_eq!(router.row("instances", "name", "h1")["health"], "quarantined");
    // If an admin frees an instance, its quarantine ends.
    router.ask(&["instance", "free", "h1"]);
    assert_eq!(router.json(&["show", "quarantine"]), serde_json::json!([]));
}

#[test]
fn shared_object_in_quarantine_for_its_faults_stays_there_when_an_operator_frees_it() {
    let Some(_ground) = Ground::enter_alone(&["ping", "cc", "curl", "setpriv"]) else { return };
    let line = Line::new();
    let wrong = COUNTER.replace(
        "packets += call->count;",
        "packets += call->count;\n    millrace_packet(call, 0)->verdict = 99;",
    );
    assert_ne!(wrong, COUNTER);
    let object = build_source_for(&line, "native", ("held", "1.0.0"), COUNTER_KEYS, &wrong);
    let router = trusting(&line, &with_operators(&line, &object));
    line.h1.run("ping -c 1 10.2.0.2");
    router.ask(&["bind", "h1", "--gate", "process", "--filter", "dport 9001", "--on-fault", "bypass"]);
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9001"), 500, 64);
    eventually("it is in quarantine", Duration::from_secs(10), || {
        (router.row("instances", "name", "h1")["health"] == "quarantined").then_some(())
    });
    let words = ["instance \\\"h1\\\" is in quarantine", "role admin", "millrace instance release h1"];
    assert_operator_refused(
        &router,
        &[
            ("PATCH", "/instances/h1", r#"{"settings": {}}"#),
            ("PATCH", "/instances/h1", r#"{"name": "h2"}"#),
            ("POST", "/instances/h1/control", r#"{"message": "read"}"#),
            ("POST", "/instances", r#"{"plugin": "held", "name": "other"}"#),
        ],
        &words,
    );
    assert_eq!(as_operator(&router, "DELETE", "/instances/h1", "").0, "200");
    assert_eq!(router.row("quarantine", "instance", "h1")["exists"], false);
    let again = ("POST", "/instances", r#"{"plugin": "held", "name": "h1"}"#);
    assert_operator_refused(&router, &[again], &words);
    let released = router.ask(&["instance", "release", "h1"]);
    assert!(released.contains("can be created again"), "{released}");
    assert_eq!(as_operator(&router, again.0, again.1, again.2).0, "201");
    drop(flow);
    router.assert_conservation();
}
