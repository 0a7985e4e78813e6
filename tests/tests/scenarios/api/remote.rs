//! Remote access to the API: over TLS, with an API token of a sufficient role. Threads that talk to clients
//! have no privileges.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use millrace_testkit::{Background, Ground, Line, Millrace, binary, eventually, repository};
use serde_json::Value;

use crate::plugins::host_companions::{COMPANION, build_with_companion};

/// Time limit until the router closes a connection.
const PATIENCE: Duration = Duration::from_secs(10);
/// Roles, in ascending order.
const ROLES: [&str; 3] = ["viewer", "operator", "admin"];

/// HTTP methods of operations.
const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];
/// Placeholders in paths.
const PLACES: [&str; 7] = ["{id}", "{number}", "{name}", "{port}", "{node}", "{queue}", "{map}"];

/// Router of the line between two hosts, also served over TLS.
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

    /// Creates an API token. Returns the path of its file.
    fn token(&self, name: &str, role: &str) -> PathBuf {
        let token = self.router.ask(&["token", "create", name, "--role", role]);
        self.line.write(&format!("{name}.token"), &token)
    }

    /// Sends requests by HTTPS from the router's machine. Returns status and answer of each.
    fn ask(&self, all: &[Asked]) -> Vec<(u16, Value)> {
        let answer = |number: usize| self.line.file(&format!("answer-{number}"));
        let settings: Vec<String> = all
            .iter()
            .enumerate()
            .map(|(number, asked)| asked.settings(&self.certificate(), &answer(number)))
            .collect();
        let file = self.line.write("curl", &settings.join("next\n"));
        let mut command = self.line.r.command("curl");
        let output = command.arg("-K").arg(file).output().expect("curl");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let statuses: Vec<u16> = said.lines().map(|line| line.parse().expect("a status")).collect();
        assert_eq!(statuses.len(), all.len(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        let read = |number: usize| std::fs::read(answer(number)).unwrap_or_default();
        let parsed = |number| serde_json::from_slice(&read(number)).unwrap_or(Value::Null);
        statuses.into_iter().enumerate().map(|(number, status)| (status, parsed(number))).collect()
    }

    /// Returns a command on a host that runs `millrace --server …`. The caller adds the arguments of the
    /// request.
    fn far(&self, token: &PathBuf) -> Command {
        let mut command = self.line.h1.command(binary().to_str().expect("a path"));
        command.args(["--server", "https://10.1.0.1:8443", "--token-file"]).arg(token);
        command.arg("--ca").arg(self.certificate());
        command
    }
}

/// Request over TLS.
#[derive(Clone, Debug)]
struct Asked {
    method: &'static str,
    path: String,
    /// Source address of the request.
    from: String,
    token: Option<String>,
}

impl Asked {
    /// Returns the request as a curl configuration. Except for GET, the request has a body that causes no
    /// change.
    fn settings(&self, certificate: &Path, answer: &Path) -> String {
        let Self { method, path, from, token } = self;
        let (certificate, answer) = (certificate.display(), answer.display());
        let mut text = format!(
            "url = \"https://127.0.0.1:8443{path}\"\nrequest = \"{method}\"\ninterface = \"{from}\"\n\
             cacert = \"{certificate}\"\noutput = \"{answer}\"\nwrite-out = \"%{{http_code}}\\n\"\n\
             silent\ngloboff\nmax-time = 20\n"
        );
        if let Some(token) = token {
            text += &format!("header = \"Authorization: Bearer {token}\"\n");
        }
        if *method != "GET" {
            text += "json = \"{\\\"nothing\\\": 0}\"\n";
        }
        text
    }
}

/// Returns the committed table: the role of each operation.
fn table() -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(repository().join("docs/roles.md")).expect("the table");
    let row = |line: &str| {
        let (operation, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
        let (role, _) = rest.split_once(" | ")?;
        Some((operation.to_owned(), role.to_owned()))
    };
    text.lines().filter_map(row).collect()
}

/// Returns the operations of a description, with the roles that they declare.
fn operations(description: &Value) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for (path, item) in description["paths"].as_object().expect("paths") {
        for method in METHODS {
            let operation = &item[method.to_lowercase()];
            if operation.is_object() {
                let role = operation["security"][0]["token"][0].as_str().unwrap_or("none");
                all.insert(format!("{method} {path}"), role.to_owned());
            }
        }
    }
    all
}

#[test]
fn every_operation_answers_exactly_its_roles() {
    let Some(_ground) = Ground::enter(&["curl"]) else { return };
    let served = Served::start();
    let secret = |role| std::fs::read_to_string(served.token(role, role)).unwrap().trim().to_owned();
    let tokens = ROLES.map(secret);
    let (table, from) = (table(), "127.0.0.1".to_owned());
    let asked = Asked { method: "GET", path: "/openapi.json".into(), from, token: Some(tokens[0].clone()) };
    let (status, description) = served.ask(std::slice::from_ref(&asked)).remove(0);
    assert_eq!(status, 200);
    assert_eq!(operations(&description), table, "docs/roles.md and the description differ");
    assert!(table.len() > 70, "{}", table.len());
    // No token, a wrong token, and a token of each role. Each caller has its own address, because the router
    // slows down failed attempts by address.
    let wrong = format!("millrace_{}", "0".repeat(64));
    let all = [None, Some(wrong)].into_iter().chain(tokens.map(Some)).enumerate();
    for (who, token) in all {
        let request = |(number, operation): (usize, &String)| {
            let (method, path) = operation.split_once(' ').expect("a method and a path");
            let method = METHODS.into_iter().find(|known| *known == method).expect("a method");
            let path = PLACES.iter().fold(path.to_owned(), |path, part| path.replace(part, "0"));
            Asked { method, path, from: format!("127.0.1.{}", number + 1), token: token.clone() }
        };
        let requests: Vec<Asked> = table.keys().enumerate().map(request).collect();
        for ((operation, needed), (status, answer)) in table.iter().zip(served.ask(&requests)) {
            let needed = ROLES.iter().position(|role| role == needed).expect("a role");
            let said = || format!("{operation}: {status} {answer}");
            match who.checked_sub(2) {
                None => assert_eq!((status, &answer["status"]), (401, &401.into()), "a stranger, {}", said()),
                Some(role) if role >= needed => {
                    assert!(![401, 403, 429].contains(&status), "{}, {}", ROLES[role], said());
                }
                Some(role) => {
                    assert_eq!((status, &answer["needs"]), (403, &ROLES[needed].into()), "{}", said());
                    let detail = answer["detail"].as_str().unwrap_or_default();
                    assert!(detail.contains(ROLES[needed]) && detail.contains(ROLES[role]), "{detail}");
                }
            }
        }
    }
    let nowhere = Asked { path: "/nowhere".into(), token: None, ..asked };
    assert_eq!(served.ask(&[nowhere])[0].0, 401, "what there is isn't told to strangers");
    let headers = served
        .line
        .r
        .run(&format!("curl -si --cacert {} https://127.0.0.1:8443/status", served.certificate().display()));
    assert!(headers.to_lowercase().contains("www-authenticate: bearer realm=\"millrace\""), "{headers}");
    let plain = served.line.r.try_run("curl -s -m 5 http://127.0.0.1:8443/status");
    assert!(!plain.status.success(), "without TLS nothing is said: {plain:?}");
}

#[test]
fn remote_commands_work_until_their_token_is_revoked() {
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

    // Revoking the token also ends event streams.
    let program = served.far(&operator);
    let words: Vec<&str> = program.get_args().map(|word| word.to_str().unwrap()).collect();
    // Without the first words, which enter the namespace, because `Background` adds them.
    let words = [&words[4..], &["events", "--follow", "--last", "1"]].concat();
    let log = served.line.file("events.log");
    let mut follower = Background::start(&served.line.h1, binary().to_str().unwrap(), &words, log);
    eventually("it has heard something", PATIENCE, || (!follower.log().is_empty()).then_some(()));
    router.ask(&["token", "revoke", "ops"]);
    assert!(follower.wait(PATIENCE).is_some(), "{}", follower.log());
    let (done, _, said) = run(&["show", "ports"]);
    assert!(!done && said.contains("invalid API token"), "{said}");

    // The audit log names the caller.
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
fn client_threads_have_no_privileges_and_all_operations_work() {
    let Some(_ground) = Ground::enter(&["curl", "ping"]) else { return };
    let served = Served::start();
    let (admin, router) = (served.token("admin", "admin"), &served.router);
    let run = |arguments: &[&str]| {
        let output = served.far(&admin).args(arguments).output().expect("millrace");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    // This remote request is for an operation that needs privileges.
    let module = served.line.file("hold.wasm");
    std::fs::write(&module, MODULE).expect("a module");
    let load = served.far(&admin).args(["plugin", "load"]).arg(&module).output().expect("millrace");
    assert!(
        String::from_utf8_lossy(&load.stderr).contains("hold.wasm"),
        "the router reads the file, and says what is wrong with it: {load:?}"
    );
    let relative = served.far(&admin).args(["plugin", "load", "hold.wasm"]).output().expect("millrace");
    assert_eq!(relative.status.code(), Some(2), "{relative:?}");
    let absent = served.far(&admin).args(["plugin", "load", "/nowhere.wasm"]).output().expect("millrace");
    let refusal = String::from_utf8_lossy(&absent.stderr).into_owned();
    assert!(refusal.contains("/nowhere.wasm") && refusal.contains("millrace: "), "{refusal}");
    run(&["route", "add", "10.9.0.0/16", "via", "10.2.0.2"]);
    assert!(served.line.r.run("ip route show proto 213").contains("10.9.0.0/16"));
    let text = served.line.file("router.toml").display().to_string();
    run(&["apply", &text, "--comment", "from elsewhere"]);
    let log = served.line.file("ping.log");
    let mut pings = Background::start(&served.line.h1, "ping", &["-i", "0.2", "-c", "40", "10.2.0.2"], log);
    let captured = run(&["capture", "lan", "--count", "4", "-w", "-"]);
    assert_eq!(captured[..4], 0x0a0d_0d0a_u32.to_ne_bytes(), "pcapng");
    assert!(pings.wait(PATIENCE).is_some_and(|status| status.success()), "{}", pings.log());
    router.ask(&["show", "ports"]);

    for thread in threads(router).iter().filter(|thread| thread.name.starts_with("api-")) {
        assert!(thread.is_confined && thread.capabilities == 0, "{thread:?}");
    }
    let threads = router.json(&["show", "status"])["interface"]["threads"].clone();
    let all = threads.as_array().expect("threads");
    assert!(all.len() == 2 && all.iter().all(|thread| thread["confined"] == true), "{threads}");
    router.assert_conservation();
}

/// Thread of a router.
#[derive(Debug)]
struct Thread {
    name: String,
    /// Capabilities that the thread has or could get, one bit each.
    capabilities: u64,
    /// Bounding set: capabilities that the thread could gain by starting a program, one bit each.
    bounds: u64,
    /// Whether the thread can gain no privileges by starting programs, and its system calls are filtered.
    is_confined: bool,
}

/// Returns all threads of a router.
fn threads(router: &Millrace) -> Vec<Thread> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", router.pid())).expect("threads");
    // A thread may have ended in between; then it has no status.
    let statuses =
        tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
    let thread = |status: String| {
        let value = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            line.unwrap_or_else(|| panic!("no {key} in {status}")).trim().to_owned()
        };
        let set = |key| u64::from_str_radix(&value(key), 16).expect("a set of capabilities");
        Thread {
            name: value("Name:"),
            capabilities: ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"].map(set).iter().fold(0, |a, b| a | b),
            bounds: set("CapBnd:"),
            is_confined: value("NoNewPrivs:") == "1" && value("Seccomp:") == "2",
        }
    };
    statuses.map(thread).collect()
}

/// `CAP_NET_ADMIN`, as a bit (capability(7)).
const NET_ADMIN: u64 = 1 << 12;
/// `CAP_IPC_LOCK`.
const OF_MEMORY: u64 = 1 << 14;
/// Capabilities for files: `CAP_CHOWN`, `CAP_DAC_OVERRIDE`, `CAP_DAC_READ_SEARCH`, `CAP_FOWNER`,
/// `CAP_FSETID`, `CAP_KILL`, `CAP_SETGID`, `CAP_SETUID`.
const OF_FILES: u64 = 0xff;

#[test]
fn network_privileges_belong_to_control_only() {
    let Some(_ground) = Ground::enter(&["clang"]) else { return };
    let served = Served::start();
    let router = &served.router;
    // These commands start every kind of thread: for files, for plugins, and for host companions.
    let module = build_with_companion(&served.line, "gatekeeper", COMPANION);
    router.ask(&["plugin", "load", &module]);
    router.ask(&["instance", "create", "gatekeeper", "g"]);
    router.ask(&["history"]);
    let seen = threads(router);
    for thread in &seen {
        let allowed = match &*thread.name {
            "millrace" => u64::MAX,
            name if name.starts_with("worker-") => OF_MEMORY,
            name if name.starts_with("api-") => 0,
            _ => OF_FILES,
        };
        assert_eq!((thread.capabilities | thread.bounds) & !allowed, 0, "{thread:?} of {seen:#?}");
        assert_ne!(thread.is_confined, thread.name == "millrace", "{thread:?} of {seen:#?}");
    }
    for (name, bits) in [("millrace", NET_ADMIN), ("worker-0", OF_MEMORY)] {
        let thread = seen.iter().find(|thread| thread.name == name);
        assert!(thread.is_some_and(|thread| thread.capabilities & bits == bits), "{name}: {seen:#?}");
    }
    let others = [
        "api-local",
        "api-remote",
        "audit",
        "host-level",
        "launcher",
        "plugin-ticker",
        "tokio-rt-worker",
        "watchdog",
    ];
    for name in others {
        assert!(seen.iter().any(|thread| thread.name == name), "{name}: {seen:#?}");
    }
    // The remaining privileges suffice: the router opens a returning device, and stores changes.
    served.line.r.ip("link set r2 down");
    served.line.r.ip("link set r2 up");
    let text = served.line.file("router.toml").display().to_string();
    router.ask(&["route", "add", "10.9.0.0/16", "via", "10.2.0.2"]);
    router.ask(&["save", &text]);
}

/// Empty WebAssembly module.
const MODULE: &[u8] = b"\0asm\x01\0\0\0";
