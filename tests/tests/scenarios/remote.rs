//! The interface from elsewhere: over TLS, to whoever has a token whose role suffices; and threads that speak with clients and have no
//! privileges.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use millrace_testkit::{Background, Ground, Line, Millrace, binary, eventually, repository};
use serde_json::Value;

/// How long it may take until somebody is let go.
const PATIENCE: Duration = Duration::from_secs(10);
/// The roles, from the least on.
const ROLES: [&str; 3] = ["viewer", "operator", "admin"];

/// A router that is served over TLS as well, on the line.
struct Served {
    router: Millrace,
    line: Line,
}

impl Served {
    fn start() -> Self {
        let line = Line::new();
        line.r.ip("link set lo up");
        let text = format!(
            "[router]\non-death = \"kernel\"\n[plugins]\nstate = \"{}\"\n\
             [api]\nlisten = [\"0.0.0.0:8443\"]\nnames = [\"10.1.0.1\"]\n\
             [[port]]\nname = \"lan\"\ndevice = \"r1\"\n[[port]]\nname = \"wan\"\ndevice = \"r2\"\n",
            line.file("state").display()
        );
        let config = line.write("router.toml", &text);
        let router = Millrace::start(&line.r, &format!("--config {}", config.display()));
        Self { router, line }
    }

    fn certificate(&self) -> PathBuf {
        self.line.file("state").join("interface.crt")
    }

    /// Makes a token; returns its file.
    fn token(&self, name: &str, role: &str) -> PathBuf {
        let token = self.router.ask(&["token", "create", name, "--role", role]);
        self.line.write(&format!("{name}.token"), &token)
    }

    /// Asks by HTTPS from the router's machine, by an address of its own; returns the status and the answer.
    fn curl(&self, from: &str, token: Option<&PathBuf>, arguments: &[&str], path: &str) -> (u16, Value) {
        let mut command = self.line.r.command("curl");
        command.args(["-s", "-g", "-m", "20", "-w", "\n%{http_code}", "--interface", from, "--cacert"]);
        command.arg(self.certificate()).args(arguments);
        if let Some(token) = token {
            let token = std::fs::read_to_string(token).expect("a token");
            command.args(["-H", &format!("Authorization: Bearer {}", token.trim())]);
        }
        let output = command.arg(format!("https://127.0.0.1:8443{path}")).output().expect("curl");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (body, status) = text.rsplit_once('\n').expect("a status");
        (status.parse().expect("a status"), serde_json::from_str(body).unwrap_or(Value::Null))
    }

    /// `millrace --server …`, run on a host, to be completed by a command.
    fn far(&self, token: &PathBuf) -> Command {
        let mut command = self.line.h1.command(binary().to_str().expect("a path"));
        command.args(["--server", "https://10.1.0.1:8443", "--token-file"]).arg(token);
        command.arg("--ca").arg(self.certificate());
        command
    }
}

/// The committed table: the role of each operation.
fn table() -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(repository().join("docs/roles.md")).expect("the table");
    let row = |line: &str| {
        let (operation, role) = line.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | ")?;
        Some((operation.to_owned(), role.to_owned()))
    };
    text.lines().filter_map(row).collect()
}

/// The operations of a description, with the roles that they are said to need.
fn operations(description: &Value) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for (path, item) in description["paths"].as_object().expect("paths") {
        for method in ["get", "post", "put", "patch", "delete"] {
            if item[method].is_object() {
                let role = item[method]["security"][0]["token"][0].as_str().unwrap_or("none");
                all.insert(format!("{} {path}", method.to_uppercase()), role.to_owned());
            }
        }
    }
    all
}

#[test]
fn every_operation_answers_those_whom_the_table_of_roles_names_and_nobody_else() {
    let Some(_ground) = Ground::enter(&["curl"]) else { return };
    let served = Served::start();
    let admin = served.token("admin", "admin");
    let (status, description) = served.curl("127.0.0.1", Some(&admin), &[], "/openapi.json");
    assert_eq!(status, 200);
    let (table, described) = (table(), operations(&description));
    assert_eq!(described, table, "docs/roles.md and the description differ");
    assert!(table.len() > 70, "{}", table.len());
    let tokens = ROLES.map(|role| (role, served.token(&format!("a-{role}"), role)));
    for (number, (operation, needed)) in table.iter().enumerate() {
        let (method, path) = operation.split_once(' ').expect("a method and a path");
        let filled = ["{id}", "{number}", "{name}", "{port}", "{node}", "{queue}", "{map}"];
        let path = filled.iter().fold(path.to_owned(), |path, part| path.replace(part, "0"));
        // Bodies that nothing comes of.
        let arguments = match method {
            "GET" => vec![],
            _ => vec!["-X", method, "--json", "{\"nothing\": 0}"],
        };
        // From an address of its own: guesses are slowed down by address.
        let from = format!("127.0.1.{}", number + 1);
        let wrong = served.line.write("wrong.token", &format!("millrace_{}", "0".repeat(64)));
        for token in [None, Some(&wrong)] {
            let (status, problem) = served.curl(&from, token, &arguments, &path);
            assert_eq!((status, &problem["status"]), (401, &401.into()), "{operation}: {problem}");
        }
        let rank = |role: &str| ROLES.iter().position(|one| *one == role);
        for (role, token) in &tokens {
            let (status, answer) = served.curl(&from, Some(token), &arguments, &path);
            if rank(role) >= rank(needed) {
                assert!(![401, 403, 429].contains(&status), "{operation} as {role}: {status} {answer}");
            } else {
                assert_eq!(
                    (status, &answer["needs"]),
                    (403, &needed.as_str().into()),
                    "{operation} as {role}"
                );
                let detail = answer["detail"].as_str().unwrap_or_default();
                assert!(detail.contains(needed) && detail.contains(role), "{operation} as {role}: {detail}");
            }
        }
    }
    let (status, _) = served.curl("127.0.0.1", None, &[], "/nowhere");
    assert_eq!(status, 401, "what there is isn't told to strangers");
    let headers = served
        .line
        .r
        .run(&format!("curl -si --cacert {} https://127.0.0.1:8443/status", served.certificate().display()));
    assert!(headers.to_lowercase().contains("www-authenticate: bearer realm=\"millrace\""), "{headers}");
    let plain = served.line.r.try_run("curl -s -m 5 http://127.0.0.1:8443/status");
    assert!(!plain.status.success(), "without TLS nothing is said: {plain:?}");
}

#[test]
fn commands_ask_from_elsewhere_until_their_token_is_revoked() {
    let Some(_ground) = Ground::enter(&["curl"]) else { return };
    let served = Served::start();
    let (operator, router) = (served.token("ops", "operator"), &served.router);
    let run = |arguments: &[&str]| {
        let output = served.far(&operator).args(arguments).output().expect("millrace");
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), said(&output.stdout), said(&output.stderr))
    };
    let (done, ports, said) = run(&["show", "ports", "--json"]);
    assert!(done && ports.contains("\"lan\""), "{ports}{said}");
    assert!(run(&["route", "add", "10.9.0.0/16", "via", "10.2.0.2"]).0);
    assert!(router.ask(&["route", "list"]).contains("10.9.0.0/16"));
    let (done, _, said) = run(&["token", "list"]);
    assert!(!done && said.contains("needs the role admin"), "{said}");
    let fingerprint =
        router.json(&["show", "status"])["interface"]["fingerprint"].as_str().unwrap().to_owned();
    let known = ["--server", "https://10.1.0.1:8443", "--token-file"];
    let by_fingerprint = |fingerprint: &str| {
        let mut command = served.line.h1.command(binary().to_str().unwrap());
        command.args(known).arg(&operator).args(["--fingerprint", fingerprint, "show", "ports"]);
        command.output().expect("millrace")
    };
    assert!(by_fingerprint(&fingerprint).status.success());
    let refused = by_fingerprint(&"ab".repeat(32));
    assert!(!refused.status.success(), "another router");
    assert!(String::from_utf8_lossy(&refused.stderr).contains(&fingerprint), "it tells which it found");

    // Who follows events is let go, too, when the token is revoked.
    let program = served.far(&operator);
    let words: Vec<&str> = program.get_args().map(|word| word.to_str().unwrap()).collect();
    // The first three are those of the namespace, which `Background` enters by itself.
    let words = [&words[4..], &["events", "--follow", "--last", "1"]].concat();
    let log = served.line.file("events.log");
    let mut follower = Background::start(&served.line.h1, binary().to_str().unwrap(), &words, log);
    eventually("it has heard something", PATIENCE, || (!follower.log().is_empty()).then_some(()));
    router.ask(&["token", "revoke", "ops"]);
    assert!(follower.wait(PATIENCE).is_some(), "{}", follower.log());
    let (done, _, said) = run(&["show", "ports"]);
    assert!(!done && said.contains("lets nobody in"), "{said}");

    // The audit log tells who that was.
    let entries = router.json(&["audit"]);
    let found = |operation: &str, outcome: &str| {
        entries.as_array().unwrap().iter().any(|entry| {
            entry["operation"] == operation
                && entry["outcome"] == outcome
                && entry["who"]["name"] == "token ops"
                && entry["role"] == "operator"
                && entry["from"] == "10.1.0.2"
        })
    };
    assert!(found("POST /routes", "done") && found("GET /tokens", "refused"), "{entries:#}");
    let stranger = |entry: &Value| entry["status"] == 401 && entry["from"] == "10.1.0.2";
    assert!(entries.as_array().unwrap().iter().any(stranger), "{entries:#}");
}

#[test]
fn threads_that_speak_with_clients_have_no_privileges_and_the_router_does_all_it_should() {
    let Some(_ground) = Ground::enter(&["curl", "ping"]) else { return };
    let served = Served::start();
    let (admin, router) = (served.token("admin", "admin"), &served.router);
    let run = |arguments: &[&str]| {
        let output = served.far(&admin).args(arguments).output().expect("millrace");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    // What takes privileges, asked for from elsewhere.
    let module = served.line.file("hold.wasm");
    std::fs::write(&module, MODULE).expect("a module");
    let load = served.far(&admin).args(["plugin", "load"]).arg(&module).output().expect("millrace");
    assert!(
        String::from_utf8_lossy(&load.stderr).contains("hold.wasm"),
        "the router reads the file, and says what is wrong with it: {load:?}"
    );
    run(&["route", "add", "10.9.0.0/16", "via", "10.2.0.2"]);
    assert!(served.line.r.run("ip route show proto 213").contains("10.9.0.0/16"));
    let text = served.line.file("router.toml").display().to_string();
    run(&["apply", &text, "--comment", "from elsewhere"]);
    let pings = served.line.h1.command("ping").args(["-i", "0.2", "-c", "40", "10.2.0.2"]).spawn();
    let captured = run(&["capture", "lan", "--count", "4", "-w", "-"]);
    assert_eq!(captured[..4], 0x0a0d_0d0a_u32.to_ne_bytes(), "pcapng");
    pings.expect("ping").wait().expect("ping");
    router.ask(&["show", "ports"]);

    let tasks = std::fs::read_dir(format!("/proc/{}/task", router.pid())).expect("threads");
    let mut seen = BTreeMap::new();
    for task in tasks {
        let status =
            std::fs::read_to_string(task.expect("a thread").path().join("status")).unwrap_or_default();
        let value = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            line.unwrap_or_default().trim().to_owned()
        };
        let given_away = ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"]
            .iter()
            .all(|set| value(set).trim_matches('0').is_empty());
        seen.insert(value("Name:"), (given_away, value("NoNewPrivs:"), value("Seccomp:")));
    }
    for name in ["api-local", "api-remote"] {
        assert_eq!(seen.get(name), Some(&(true, "1".into(), "2".into())), "{name}: {seen:?}");
    }
    assert!(
        seen.iter().any(|(name, (given_away, ..))| name.starts_with("worker") && !given_away),
        "{seen:?}"
    );
    let threads = router.json(&["show", "status"])["interface"]["threads"].clone();
    let all = threads.as_array().expect("threads");
    assert!(all.len() == 2 && all.iter().all(|thread| thread["confined"] == true), "{threads}");
    router.assert_conservation();
}

/// A module of WebAssembly with nothing in it.
const MODULE: &[u8] = b"\0asm\x01\0\0\0";
