//! Exit codes and error messages of the command line.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

fn millrace(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
    command.env_remove("MILLRACE_SOCKET").env_remove("MILLRACE_LOG").args(arguments).output().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("an exit code")
}

fn error(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// File that is removed at the end of the test.
struct TestFile(PathBuf);

impl TestFile {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("millrace-cli-{}-{name}", std::process::id()));
        fs::write(&path, text).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn socket_option_overrides_server_of_the_environment() {
    let ask = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
        command.env("MILLRACE_SERVER", "https://127.0.0.1:1").env("MILLRACE_TOKEN", "none");
        error(&command.args(arguments).output().unwrap())
    };
    let said = ask(&["show", "status", "--socket", "/nowhere/millrace.sock"]);
    assert!(said.contains("/nowhere/millrace.sock"), "{said}");
    let elsewhere = ask(&["show", "status"]);
    assert!(elsewhere.contains("127.0.0.1:1"), "{elsewhere}");
}

#[test]
fn fingerprint_option_overrides_certificates_of_the_environment() {
    let ask = |variables: &[(&str, &str)], arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
        command.env("MILLRACE_SERVER", "https://127.0.0.1:1").env("MILLRACE_TOKEN", "none");
        let output =
            command.envs(variables.to_vec()).args(["show", "status"]).args(arguments).output().unwrap();
        (code(&output), error(&output))
    };
    let (certificates, print) = (("MILLRACE_CA", "/nowhere/ca.pem"), "ab".repeat(32));
    // No server listens at the address, so the test ends with a failed connection.
    let (_, said) = ask(&[certificates], &["--fingerprint", &print]);
    assert!(said.contains("127.0.0.1:1") && !said.contains("ca.pem"), "{said}");
    let (_, said) = ask(&[("MILLRACE_FINGERPRINT", &print)], &["--ca", "/nowhere/ca.pem"]);
    assert!(said.contains("ca.pem"), "{said}");
    let (status, said) = ask(&[certificates, ("MILLRACE_FINGERPRINT", &print)], &[]);
    assert!(
        status == 2 && said.contains("MILLRACE_CA and MILLRACE_FINGERPRINT exclude each other"),
        "{said}"
    );
    let (status, said) = ask(&[], &["--ca", "x", "--fingerprint", &print]);
    assert!(status == 2 && said.contains("--ca and --fingerprint exclude each other"), "{said}");
}

/// All commands, including nested ones.
const COMMANDS: &[&[&str]] = &[
    &["run"],
    &["init"],
    &["check"],
    &["apply"],
    &["diff"],
    &["confirm"],
    &["history"],
    &["history", "list"],
    &["history", "show"],
    &["rollback"],
    &["save"],
    &["doctor"],
    &["show"],
    &["port"],
    &["port", "set"],
    &["router"],
    &["router", "show"],
    &["router", "set"],
    &["neighbour"],
    &["neighbour", "add"],
    &["neighbour", "remove"],
    &["neighbour", "list"],
    &["route", "replace"],
    &["instance"],
    &["instance", "create"],
    &["instance", "free"],
    &["instance", "list"],
    &["plugin"],
    &["plugin", "new"],
    &["plugin", "build"],
    &["plugin", "inspect"],
    &["plugin", "test"],
    &["plugin", "bench"],
    &["plugin", "keygen"],
    &["plugin", "sign"],
    &["plugin", "load"],
    &["plugin", "unload"],
    &["plugin", "list"],
    &["gate"],
    &["gate", "create"],
    &["gate", "set"],
    &["gate", "remove"],
    &["gate", "list"],
    &["bind"],
    &["unbind"],
    &["filter"],
    &["filter", "add"],
    &["filter", "remove"],
    &["filter", "list"],
    &["filter", "explain"],
    &["filter", "check"],
    &["route"],
    &["route", "add"],
    &["route", "remove"],
    &["route", "list"],
    &["route", "lookup"],
    &["flow"],
    &["flow", "list"],
    &["flow", "show"],
    &["flow", "flush"],
    &["principal"],
    &["principal", "add"],
    &["principal", "set"],
    &["principal", "remove"],
    &["principal", "list"],
    &["principal", "show"],
    &["exec"],
    &["control"],
    &["top"],
    &["metrics"],
    &["completions"],
    &["manual"],
    &["lookup"],
    &["capture"],
    &["clear"],
    &["replay"],
    &["lab"],
    &["lab", "up"],
    &["lab", "down"],
    &["lab", "list"],
    &["lab", "exec"],
    &["bench"],
    &["admission"],
    &["admission", "simulate"],
    &["reproduce"],
];

#[test]
fn every_command_has_help_with_an_example() {
    for command in COMMANDS {
        let output = millrace(&[command, &["--help"][..]].concat());
        assert_eq!(code(&output), 0, "{command:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("Examples:") && text.contains("--json"), "{command:?}: {text}");
    }
}

#[test]
fn wrong_usage_is_exit_code_2() {
    let cases: &[&[&str]] = &[
        &[],
        &["fly"],
        &["run"],
        &["run", "--port"],
        &["run", "--port", "a", "--config", "b"],
        &["run", "--port", "a", "--mode", "lazy"],
        &["run", "--port", "a", "--port", "a"],
        &["run", "--port", "a b"],
        &["run", "--port", "a", "--ready-fd", "77"],
        &["run", "--port", "a", "--ready-fd", "-1"],
        &["show"],
        &["show", "prots"],
        &["bind", "s1"],
        &["filter", "add", "*"],
        &["filter", "add", "*", "--action", "drop", "--priority", "high"],
        &["filter", "remove"],
        &["filter", "remove", "one"],
        &["route", "add"],
        &["route", "add", "via", "10.2.0.2"],
        &["route", "add", "10.9.0.0/16", "metric", "5"],
        &["route", "lookup"],
        &["flow", "list", "--order", "size"],
        &["flow", "show"],
        &["control", "s1", "read", "no-equals-sign"],
        &["capture", "lan"],
        &["exec", "--principal", "p"],
        &["exec", "--", "true"],
        &["lab", "exec", "l", "h1"],
        &["bench", "vet"],
        &["reproduce", "vera-table-9.9"],
        &["reproduce", "--list", "--html", "page.html"],
        &["bench", "gates", "--flows", "1K"],
        &["bench", "memory", "--size", "jumbo"],
        &["bench", "memory", "--accept"],
        &["bench", "memory", "--case", "crossover"],
        &["bench", "--html", "page.html"],
        &["bench", "memory", "--against", "/nowhere/millrace"],
        &["bench", "memory", "--against", "/bin/true", "--rounds", "0"],
        &["bench", "--from", "results.json"],
        &["top", "--interval", "100ms"],
        &["top"],
        &["metrics", "--json"],
        &["completions", "cmd"],
        &["manual"],
        &["check"],
    ];
    for case in cases {
        let output = millrace(case);
        assert_eq!(code(&output), 2, "{case:?}: {}", error(&output));
        assert!(!output.stderr.is_empty(), "{case:?} says why");
    }
}

#[test]
fn shells_and_man_know_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let output = millrace(&["completions", shell]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("scheduler") && text.contains("socket"), "{shell}");
    }
    let directory = std::env::temp_dir().join(format!("millrace-cli-{}-man", std::process::id()));
    assert_eq!(code(&millrace(&["manual", directory.to_str().unwrap()])), 0);
    for command in COMMANDS {
        let page = directory.join(format!("millrace-{}.1", command.join("-")));
        let text = fs::read_to_string(&page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
        assert!(text.contains("Examples:"), "{command:?}");
    }
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn failure_exits_with_1_and_prints_one_line() {
    let unknown_key = TestFile::new("key.toml", "[[port]]\nname = \"lan\"\ndevise = \"eth1\"\n");
    let twice = TestFile::new(
        "twice.toml",
        "[[port]]\nname = \"a\"\ndevice = \"x\"\n[[port]]\nname = \"a\"\ndevice = \"y\"\n",
    );
    let no_toml = TestFile::new("no.toml", "port = [\n");
    let cases: &[(&[&str], &str)] = &[
        (&["check", "/no/such/file"], "/no/such/file"),
        (&["check", unknown_key.path()], "did you mean \"device\""),
        (&["check", twice.path()], "is used twice"),
        (&["check", no_toml.path()], "no.toml:"),
        (&["run", "--config", unknown_key.path()], ":3:1: unknown key \"devise\""),
        (&["doctor", "no-such-device"], "no device is named \"no-such-device\""),
        (&["lab", "up", "/no/such/lab.toml"], "/no/such/lab.toml"),
        (&["lab", "down", "no-such-lab"], "no-such-lab"),
        (&["lab", "exec", "no-such-lab", "h1", "--", "true"], "no-such-lab"),
        (&["--socket", "/no/such/socket", "show", "ports"], "can't reach the router at /no/such/socket"),
    ];
    for (case, expected) in cases {
        let output = millrace(case);
        let line = error(&output);
        assert_eq!(code(&output), 1, "{case:?}: {line}");
        assert!(line.contains(expected), "{case:?}: {line}");
        assert_eq!(line.trim_end().lines().count(), 1, "{case:?}: {line}");
    }
}

#[test]
fn run_without_ports_names_the_missing_options() {
    let output = millrace(&["run"]);
    let line = error(&output);
    assert_eq!(code(&output), 2, "{line}");
    assert!(line.contains("--port eth0 --port eth1") && line.contains("--config"), "{line}");
}

#[test]
fn one_missing_brace_is_one_error() {
    let text = "[[port]]\nname = \"a\"\nimpair = { loss = 0.1\ndevice = \"x\"\n[[port]]\nname = \"b\"\n[router]\nworkers = 2\n";
    let file = TestFile::new("brace.toml", text);
    let output = millrace(&["check", file.path()]);
    assert_eq!((code(&output), error(&output).trim_end().lines().count()), (1, 1), "{}", error(&output));
}

#[test]
fn numbers_without_units_are_refused_with_the_unit() {
    for (case, hint) in [
        (&["bind", "i", "--gate", "g", "--filter", "*", "--budget", "5"][..], "5ms"),
        (&["top", "--interval", "5"], "write \"5s\""),
        (&["filter", "list", "--watch", "2"], "write \"2s\""),
        (&["apply", "f", "--confirm", "60"], "write \"60s\" or \"60m\""),
        (
            &["token", "create", "t", "--role", "viewer", "--expires", "30"],
            "write \"30s\", \"30m\" or \"30h\"",
        ),
        (&["trace", "--time", "60"], "write \"60s\" or \"60m\""),
        (&["capture", "any", "-w", "-", "--snap", "128"], "write \"128B\""),
    ] {
        let output = millrace(case);
        let line = error(&output);
        assert_eq!(code(&output), 2, "{case:?}: {line}");
        assert!(line.contains("has no unit") && line.contains(hint), "{case:?}: {line}");
    }
    let file =
        TestFile::new("rate.toml", "[[port]]\nname = \"m\"\nkind = \"memory\"\nscheduler = { rate = 5 }\n");
    let output = millrace(&["check", file.path()]);
    assert!(error(&output).contains("write \"5mbit\""), "{}", error(&output));
}

#[test]
fn init_writes_a_configuration_that_check_accepts() {
    let path = std::env::temp_dir().join(format!("millrace-cli-{}-init.toml", std::process::id()));
    let file = path.to_str().unwrap();
    let written = millrace(&["init", "--output", file]);
    assert_eq!(code(&written), 0, "{}", error(&written));
    let checked = millrace(&["check", file]);
    assert_eq!(code(&checked), 0, "{}", error(&checked));
    let again = millrace(&["init", "--output", file]);
    assert!(code(&again) == 1 && error(&again).contains("--force overwrites it"), "{}", error(&again));
    assert_eq!(code(&millrace(&["init", "--output", file, "--force"])), 0);
    fs::remove_file(&path).unwrap();
    let unknown = millrace(&["init", "no-such-device"]);
    assert!(error(&unknown).contains("no device is named"), "{}", error(&unknown));
}

#[test]
fn benchmarks_are_listed_with_and_without_json() {
    let output = millrace(&["bench", "--json"]);
    assert_eq!(code(&output), 0);
    let list: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(list.as_array().unwrap().iter().all(|bench| bench["name"].is_string()));
    assert_eq!(code(&millrace(&["bench"])), 0);
}

#[test]
fn a_page_is_made_of_results_that_were_kept() {
    let results = TestFile::new(
        "results.json",
        r#"{"results": [{"bench": "memory", "case": "IPv4", "ours": 9.5, "spread": [9.0, 10.0], "unit": "ns/packet",
            "peer": null, "peer_name": null, "ratio": null, "limit": 10.0, "holds": true}]}"#,
    );
    let page = TestFile::new("page.html", "");
    let picture = TestFile::new("picture.svg", "");
    let made = millrace(&["bench", "--from", results.path(), "--html", page.path(), "--svg", picture.path()]);
    assert_eq!(code(&made), 0, "{}", error(&made));
    let text = fs::read_to_string(page.path()).unwrap();
    assert!(text.starts_with("<!DOCTYPE html>") && text.contains("9.00 to 10.0"), "{text}");
    let text = fs::read_to_string(picture.path()).unwrap();
    assert!(text.starts_with("<svg xmlns") && text.contains("ns/packet"), "{text}");
    let neither = millrace(&["bench", "--from", results.path()]);
    assert!(code(&neither) == 2 && error(&neither).contains("--html or --svg"), "{}", error(&neither));
    let wrong = millrace(&["bench", "--from", page.path(), "--html", results.path()]);
    assert!(code(&wrong) == 1 && error(&wrong).contains("not a result file of"), "{}", error(&wrong));
}

#[test]
fn instructions_need_the_baseline_that_was_named() {
    let output = millrace(&["bench", "instructions", "--baseline", "/nowhere/instructions.json"]);
    assert_eq!(code(&output), 1);
    assert!(error(&output).contains("/nowhere/instructions.json: no such file"), "{}", error(&output));
}

#[test]
fn doctor_looks_at_the_machine() {
    let output = millrace(&["doctor", "lo", "--json"]);
    assert_eq!(code(&output), 0, "{}", error(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["devices"][0]["device"], "lo");
    assert!(report["devices"][0]["choice"].is_null(), "loopback can be no port");
    let topics: Vec<&str> = report["system"]["checks"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|check| check["topic"].as_str())
        .collect();
    assert!(
        ["kernel", "tcpdump", "huge pages", "confinement"].iter().all(|topic| topics.contains(topic)),
        "{topics:?}"
    );
}

#[test]
fn an_occupied_socket_changes_nothing_and_names_the_holder() {
    let path = std::env::temp_dir().join(format!("millrace-cli-{}.sock", std::process::id()));
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    // A memory port has no device, so no permission is needed.
    let config = TestFile::new("memory.toml", "[[port]]\nname = \"m\"\nkind = \"memory\"\n");
    let output = millrace(&["--socket", path.to_str().unwrap(), "run", "--config", config.path()]);
    assert_eq!(code(&output), 1);
    let line = error(&output);
    assert!(
        line.contains("already listens") && line.contains(&format!("process {}", std::process::id())),
        "{line}"
    );
    assert!(path.exists());
    drop(listener);
    fs::remove_file(&path).unwrap();
}

#[test]
fn a_start_that_fails_leaves_no_socket() {
    let path = std::env::temp_dir().join(format!("millrace-cli-failed-{}.sock", std::process::id()));
    let output = millrace(&["--socket", path.to_str().unwrap(), "run", "--port", "no-such-dev"]);
    assert_eq!(code(&output), 1, "{}", error(&output));
    // Without root, the start fails for another reason, but it must leave no socket either.
    let why = error(&output);
    assert!(why.contains("no-such-dev") || why.contains("CAP_NET_ADMIN"), "{why}");
    assert!(!path.exists());
}

/// Returns results of `bench --json` from an earlier version: two measurements with a target of 50 ms. The
/// first meets its target; `holds` states whether the second does.
fn results(ours: f64, holds: bool) -> String {
    format!(
        r#"{{"results": [
        {{"bench": "takeover", "case": "restart", "ours": 3.0, "unit": "ms", "peer": null, "peer_name": null, "ratio": null, "limit": 50.0, "holds": true}},
        {{"bench": "takeover", "case": "kill -9", "ours": {ours}, "unit": "ms", "peer": null, "peer_name": null, "ratio": null, "limit": 50.0, "holds": {holds}}}]}}"#
    )
}

#[test]
fn bench_writes_the_page_and_exits_with_1_when_a_promise_is_not_kept() {
    let (broken, page) =
        (TestFile::new("broken.json", &results(61.5, false)), TestFile::new("broken.html", ""));
    let output = millrace(&["bench", "--from", broken.path(), "--html", page.path()]);
    assert_eq!(code(&output), 1, "{}", error(&output));
    let told = error(&output);
    assert!(told.contains("1 of 2 performance targets is missed:"), "{told}");
    assert!(told.contains("takeover: kill -9: 61.5 ms, promised at most 50.0"), "{told}");
    assert!(!told.contains("restart"), "{told}");
    assert!(fs::read_to_string(page.path()).unwrap().ends_with("</html>\n"));
    let output = millrace(&["bench", "--from", broken.path(), "--html", page.path(), "--json"]);
    let told = error(&output);
    let last = told.lines().last().unwrap();
    assert!(code(&output) == 1 && last.starts_with('{') && last.contains("promised at most 50.0"), "{told}");
}

#[test]
fn bench_exits_with_0_when_all_promises_are_kept() {
    let (kept, page) = (TestFile::new("kept.json", &results(12.0, true)), TestFile::new("kept.html", ""));
    let output = millrace(&["bench", "--from", kept.path(), "--html", page.path()]);
    assert_eq!(code(&output), 0, "{}", error(&output));
    assert!(fs::read_to_string(page.path()).unwrap().contains("2 of 2 promises were kept"));
}

#[test]
fn output_that_takes_no_more_is_a_failure_with_its_reason() {
    for arguments in [["bench", "--json"], ["check", "--schema"]] {
        let full = std::fs::File::create("/dev/full").unwrap();
        let ended =
            Command::new(env!("CARGO_BIN_EXE_millrace")).args(arguments).stdout(full).output().unwrap();
        let error = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{arguments:?}: {error}");
        assert!(error.contains("can't write to standard output: No space left"), "{arguments:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}
