//! HTTP interface of a running router. It conforms to its description for any request, and logs changes. It
//! makes a conditional change only if the object is still as the client saw it.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use millrace_testkit::{Background, Ground, Line, Millrace, binary, eventually, repository, tool};
use serde_json::Value;

const BASE: &str = r#"
[router]
on-death = "kernel"
[[port]]
name = "lan"
device = "r1"
[[port]]
name = "wan"
device = "r2"
[[gate]]
name = "spare"
position = "late"
[[instance]]
plugin = "statistics"
name = "s1"
[[bind]]
instance = "s1"
gate = "monitor"
filter = "proto udp dport 9000"
"#;

fn start(line: &Line) -> Millrace {
    start_with(line, "")
}

fn start_with(line: &Line, text: &str) -> Millrace {
    let config = line.write("router.toml", &format!("{text}{BASE}"));
    let router = Millrace::start(&line.r, &format!("--config {}", config.display()));
    router.ask(&["scheduler", "add", "wan", "flows", "--kind", "flow-queues"]);
    router.ask(&["token", "create", "ci", "--role", "viewer"]);
    router
}

/// Sends an HTTP request by curl with these arguments. Returns the status and the answer.
fn curl(router: &Millrace, arguments: &[&str], path: &str) -> (u16, Value) {
    let mut command = Command::new("curl");
    command.args(["-s", "-w", "\n%{http_code}", "--unix-socket"]).arg(router.socket());
    command.args(arguments).arg(format!("http://millrace{path}"));
    let output = command.output().expect("curl");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (body, status) = text.rsplit_once('\n').expect("a status");
    (status.parse().expect("a status"), serde_json::from_str(body).unwrap_or(Value::Null))
}

/// Returns the value of a header of the answer.
fn header(router: &Millrace, name: &str, path: &str) -> String {
    let mut command = Command::new("curl");
    command.args(["-s", "-o", "/dev/null", "-w", &format!("%header{{{name}}}"), "--unix-socket"]);
    let output = command.arg(router.socket()).arg(format!("http://millrace{path}")).output().expect("curl");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn api_follows_its_description_for_any_input() {
    let Some(_ground) = Ground::enter(&["schemathesis"]) else { return };
    let line = Line::new();
    line.r.ip("link set lo up");
    let state = line.file("state").display().to_string();
    let elsewhere = format!("[plugins]\nstate = \"{state}\"\n[api]\nlisten = [\"127.0.0.1:8443\"]\n");
    let mut router = start_with(&line, &elsewhere);
    let token = router.ask(&["token", "create", "schemathesis", "--role", "admin"]);
    let header = format!("Authorization: Bearer {}", token.trim());
    let program = tool("schemathesis").unwrap_or_else(|| PathBuf::from("schemathesis"));
    let settings = repository().join("tests/schemathesis.toml").display().to_string();
    let place = line.file("schemathesis");
    std::fs::create_dir_all(&place).expect("a directory");
    let (url, certificate) = ("https://127.0.0.1:8443", line.file("state").join("interface.crt"));
    let mut command = line.r.command("timeout");
    command.args(["-k", "5", "300"]).arg(program).args(["--config-file", &settings]);
    command.args([
        "run",
        &format!("{url}/openapi.json"),
        "--url",
        url,
        "--no-color",
        "--seed",
        "1",
        "-H",
        &header,
    ]);
    command.arg("--tls-verify").arg(certificate);
    command.args(["--max-examples", "40", "--request-timeout", "20", "--warnings", "off"]);
    let output = command.current_dir(&place).output().expect("schemathesis");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    // The tool must have tried all operations except the three streams and the description itself. Afterwards
    // the router still works.
    let description = curl(&router, &[], "/openapi.json").1;
    let resources = description["paths"].as_object().expect("paths").values();
    let methods = ["get", "post", "put", "patch", "delete"];
    let count: usize =
        resources.map(|one| methods.iter().filter(|name| one[**name].is_object()).count()).sum();
    assert!(said.contains(&format!("Tested: {}\n", count - 4)), "of {count}: {said}");
    assert!(router.is_running());
    assert_eq!(curl(&router, &[], "/status").0, 200);
    router.assert_conservation();
}

#[test]
fn if_match_protects_against_concurrent_changes() {
    let Some(_ground) = Ground::enter(&["curl"]) else { return };
    let line = Line::new();
    let router = start(&line);
    for (path, change) in [
        ("/gates/spare", r#"{"table": "linear"}"#),
        ("/instances/s1", r#"{"settings": {}}"#),
        ("/schedulers/wan/flows", r#"{"threshold": "100000B"}"#),
        ("/queues/wan/flows", r#"{"threshold": "100000B"}"#),
    ] {
        let read = if path.starts_with("/schedulers") { "/schedulers/wan" } else { path };
        let tag = header(&router, "etag", read);
        assert!(tag.starts_with('"'), "{path}: {tag:?}");
        let wrong = ["-X", "PATCH", "-H", "If-Match: \"0\"", "--json", change];
        let (status, problem) = curl(&router, &wrong, path);
        assert_eq!(status, 412, "{path}: {problem}");
        assert!(problem["current"].is_object(), "{path}: {problem}");
        let right = format!("If-Match: {tag}");
        let (status, answer) = curl(&router, &["-X", "PATCH", "-H", &right, "--json", change], path);
        assert_eq!(status, 200, "{path}: {answer}");
    }
    // The configuration is applied only to the state that the client read.
    let tag = header(&router, "etag", "/configuration");
    let text =
        serde_json::json!({"text": format!("{BASE}[[route]]\nto = \"10.9.0.0/16\"\nvia = \"10.2.0.2\"\n")});
    router.ask(&["filter", "add", "proto udp dport 53", "--action", "drop"]);
    let condition = format!("If-Match: {tag}");
    let asked = ["-H", &*condition, "--json", &*text.to_string()];
    let (status, problem) = curl(&router, &asked, "/configuration");
    assert_eq!(status, 412, "{problem}");
    assert!(problem["current"]["text"].as_str().is_some_and(|text| text.contains("dport 53")), "{problem}");
    let condition = format!("If-Match: {}", header(&router, "etag", "/configuration"));
    let (status, applied) = curl(&router, &["-H", &condition, "--json", &text.to_string()], "/configuration");
    // The second revision is the configuration that ran before, with the filter.
    assert_eq!((status, &applied["revision"]), (200, &3.into()), "{applied}");
}

#[test]
fn long_lists_come_in_pages_and_rates_as_a_stream() {
    let Some(_ground) = Ground::enter(&["curl"]) else { return };
    let line = Line::new();
    let router = start(&line);
    let filters: String = (1..=250).map(|port| format!("proto udp dport {port} action drop\n")).collect();
    let file = line.write("filters", &filters).display().to_string();
    router.ask(&["filter", "add", "--from", &file]);
    let (_, all) = curl(&router, &[], "/filters");
    let (mut path, mut seen) = ("/filters?limit=100".to_owned(), Vec::new());
    for _ in 0..3 {
        let (status, page) = curl(&router, &[], &path);
        assert_eq!(status, 200, "{page}");
        seen.extend(page.as_array().unwrap().iter().map(|filter| filter["id"].clone()));
        let link = header(&router, "link", &path);
        let Some((next, "rel=\"next\"")) = link.split_once("; ") else { break };
        path = next.trim_matches(['<', '>']).to_owned();
    }
    let ids: Vec<Value> = all.as_array().unwrap().iter().map(|filter| filter["id"].clone()).collect();
    assert_eq!((seen.len(), seen), (251, ids));
    assert_eq!(curl(&router, &[], "/routes?limit=0").0, 400);
    assert_eq!(curl(&router, &[], "/routes?limit=1").1.as_array().unwrap().len(), 1);
    assert_eq!(curl(&router, &["-d", "{}"], "/filters").0, 415, "what curl sends by itself is no JSON");

    let socket = router.socket().display().to_string();
    let program = binary().display().to_string();
    let arguments = ["--socket", &*socket, "rates", "--hz", "10", "--count", "5", "--json"];
    let rates = Background::start(&line.r, &program, &arguments, line.file("rates.log"));
    eventually("five looks", Duration::from_secs(20), || (rates.log().lines().count() == 5).then_some(()));
    let look: Value = serde_json::from_str(rates.log().lines().next().unwrap()).unwrap();
    assert_eq!(look["ports"][0]["name"], "lan");
}

#[test]
fn every_change_and_every_refusal_is_noted() {
    let Some(_ground) = Ground::enter(&["curl"]) else { return };
    let line = Line::new();
    let state = format!("[plugins]\nstate = \"{}\"\n", line.file("state").display());
    let config = line.write("router.toml", &format!("{state}{BASE}"));
    let mut router = Millrace::start(&line.r, &format!("--config {}", config.display()));
    router.ask(&["filter", "add", "proto udp dport 53", "--action", "drop"]);
    router.try_ask(&["instance", "free", "nobody"]);
    router.try_ask(&["lookup", "src 10.1.0.2 dst 10.2.0.2 proto udp sport 9 dport 5201 in lan"]);
    curl(&router, &["--json", "nonsense"], "/instances");
    curl(&router, &["-X", "DELETE"], "/nowhere");
    let lines = router.json(&["audit"]);
    let noted: Vec<(&str, &str)> = lines
        .as_array()
        .unwrap()
        .iter()
        .map(|line| (line["operation"].as_str().unwrap(), line["outcome"].as_str().unwrap()))
        .collect();
    let expected = [
        ("POST /filters", "done"),
        ("DELETE /instances/nobody", "refused"),
        ("POST /instances", "refused"),
        ("DELETE /nowhere", "refused"),
    ];
    assert_eq!(noted, expected, "{lines:#}");
    assert_eq!(lines[0]["who"]["uid"], 0);
    assert_eq!(lines[0]["request"]["match"], "proto udp dport 53");
    assert!(lines[0]["pid"].as_i64().is_some_and(|pid| pid > 0), "{lines:#}");
    assert!(lines[1]["why"].as_str().unwrap().contains("no instance \"nobody\""), "{lines:#}");
    // The audit entries remain after the router has died.
    router.kill();
    let router = Millrace::start(&line.r, &format!("--config {}", config.display()));
    router.try_ask(&["instance", "free", "somebody"]);
    let last = router.ask(&["audit", "--last", "2"]);
    let lines: Vec<&str> = last.lines().collect();
    assert_eq!(lines.len(), 2, "{last}");
    assert!(lines[0].contains("DELETE /nowhere") && lines[1].contains("somebody"), "{last}");
}
