//! Tests of every operation of the catalogue, at a running router.

use std::collections::BTreeSet;

use millrace_controller::operation::GetConfiguration;
use millrace_controller::{Apply, Principal};

use super::*;

/// Operations that change the running configuration, with a path and a body that are valid for the test
/// router.
pub(super) const CHANGES: &[(&str, &str, &str)] = &[
    ("PATCH /ports/{name}", "/ports/lan", r#"{"input_weight": 3}"#),
    ("POST /neighbours", "", r#"{"port": "wan", "address": "10.2.0.9", "mac": "02:00:00:00:00:09"}"#),
    ("DELETE /neighbours", "", r#"{"port": "wan", "address": "10.2.0.254"}"#),
    ("PATCH /router", "", r#"{"icmp_rate": 7}"#),
    ("PATCH /control-plane", "", r#"{"icmp": 500}"#),
    ("PATCH /admission", "", r#"{"cpu": "90 %"}"#),
    ("POST /routes", "", r#"{"to": "10.6.0.0/16", "via": ["10.2.0.254"]}"#),
    ("POST /routes", "", r#"[{"to": "10.5.0.0/16", "via": ["10.2.0.254"]}]"#),
    ("PUT /routes", "", r#"{"to": "10.9.0.0/16", "via": ["10.2.0.253"]}"#),
    ("DELETE /routes", "", r#"{"to": "10.8.0.0/16"}"#),
    ("DELETE /routes", "", r#"[{"to": "10.7.0.0/16"}]"#),
    ("POST /filters", "", r#"{"match": "proto udp dport 9", "action": "drop"}"#),
    ("POST /filters", "", r#"[{"match": "proto udp dport 10", "action": "drop"}]"#),
    ("DELETE /filters", "", r#"{"match": "proto udp dport 9", "action": "drop"}"#),
    ("DELETE /filters/{id}", "/filters/1", ""),
    ("PUT /placements", "", r#"{"flow": "proto udp dport 7", "level": "worker"}"#),
    ("POST /plugins", "", r#"{"file": "/nowhere.wasm"}"#),
    ("PUT /plugins/{name}", "/plugins/null", r#"{"file": "/nowhere.wasm"}"#),
    ("DELETE /plugins/{name}", "/plugins/null", ""),
    ("POST /plugins/{name}/rollback", "/plugins/null/rollback", ""),
    ("POST /instances", "", r#"{"plugin": "null", "name": "o", "settings": {}}"#),
    ("PATCH /instances/{name}", "/instances/pf", r#"{"settings": {"ports": "81"}}"#),
    ("PATCH /instances/{name}", "/instances/n", r#"{"name": "m"}"#),
    ("POST /instances/{name}/move", "/instances/pf/move", r#"{"rate": 100, "packet": 50}"#),
    ("POST /instances/{name}/release", "/instances/pf/release", ""),
    ("POST /gates", "", r#"{"name": "g", "position": "late"}"#),
    ("PATCH /gates/{name}", "/gates/audit", r#"{"table": "linear"}"#),
    ("DELETE /gates/{name}", "/gates/empty", ""),
    ("POST /bindings", "", r#"{"instance": "pf", "gate": "audit", "filter": "proto tcp", "priority": 2}"#),
    ("DELETE /bindings", "", r#"{"instance": "pf", "gate": "firewall", "filter": "in lan"}"#),
    ("DELETE /instances/{name}", "/instances/pf", ""),
    (
        "POST /schedulers/{port}",
        "/schedulers/wan",
        r#"{"name": "more", "kind": "fifo", "under": "all", "quantum": "1500B"}"#,
    ),
    ("PATCH /schedulers/{port}", "/schedulers/wan", r#"{"rate": "20mbit"}"#),
    ("PATCH /schedulers/{port}/{node}", "/schedulers/wan/bulk", r#"{"quantum": "3000B"}"#),
    ("DELETE /schedulers/{port}/{node}", "/schedulers/wan/flows", r#"{"to": "bulk"}"#),
    ("PATCH /queues/{port}/{queue}", "/queues/wan/bulk", r#"{"quantum": "2000B"}"#),
    (
        "POST /allowances",
        "",
        r#"{"name": "a", "user": ["u"], "cpu": "5 %", "link": {"wan": "1mbit"}, "level": ["worker"]}"#,
    ),
    ("PATCH /allowances/{name}", "/allowances/a", r#"{"memory": "8MiB"}"#),
    ("DELETE /allowances/{name}", "/allowances/a", ""),
    ("POST /principals", "", r#"{"name": "p", "cpu_limit": "50 %"}"#),
    ("PATCH /principals/{name}", "/principals/p", r#"{"memory": "8MiB"}"#),
    ("DELETE /principals/{name}", "/principals/p", ""),
    ("POST /reservations", "", r#"{"filter": "proto udp", "principal": "r", "cpu": "1 %"}"#),
    ("DELETE /reservations/{name}", "/reservations/r", ""),
    ("POST /configuration", "", r#"{"text": "THE CONFIGURATION"}"#),
    ("POST /revisions", "", r#"{"comment": "so it stays"}"#),
];

/// Operations that don't change the configuration, or that end a pending confirmation. Each has a path and a
/// body, as in [`CHANGES`].
pub(super) const OTHERS: &[(&str, &str, &str)] = &[
    ("POST /tokens", "", r#"{"name": "t", "role": "viewer", "expires": "60s"}"#),
    ("DELETE /tokens/{name}", "/tokens/t", ""),
    ("DELETE /counters", "", ""),
    ("DELETE /flows", "", ""),
    ("POST /admission/place", "", r#"{"plugin": "null", "service": {"rate": 9, "packet": 50}}"#),
    ("POST /lookup", "", r#"{"packet": "src 10.1.0.7 dst 10.9.0.1 proto udp in lan"}"#),
    ("POST /instances/{name}/control", "/instances/pf/control", r#"{"message": "read", "arguments": {}}"#),
    ("POST /configuration/diff", "", r#"{"text": ""}"#),
    ("POST /configuration/save", "", r#"{"text": ""}"#),
    ("POST /configuration/confirm", "", r#"{"revision": 2}"#),
    ("POST /configuration/rollback", "", r#"{"comment": "back"}"#),
];

/// Sends the request of an operation.
pub(super) async fn ask(
    server: &Server,
    (operation, path, body): &(&str, &str, &str),
) -> (StatusCode, Value) {
    let (method, whole) = operation.split_once(' ').unwrap();
    let path = if path.is_empty() { whole } else { path };
    server.ask(method, path, body.replace("THE CONFIGURATION", &CONFIG.escape_default().to_string())).await
}

#[test]
fn each_operation_that_is_no_question_stands_in_a_list() {
    let of = |resource: &crate::endpoint::Resource| {
        let others = resource.endpoints.iter().filter(|endpoint| endpoint.method != "GET");
        others.map(|endpoint| format!("{} {}", endpoint.method, resource.path)).collect::<Vec<_>>()
    };
    let served: BTreeSet<String> = catalogue().iter().flat_map(of).collect();
    let listed: BTreeSet<String> =
        CHANGES.iter().chain(OTHERS).map(|(operation, ..)| (*operation).to_owned()).collect();
    assert_eq!(served, listed);
}

#[test]
fn no_operation_needs_a_lower_role_than_its_effects() {
    for resource in catalogue() {
        for endpoint in resource.endpoints {
            let (least, method) = (endpoint.effect.least_role(), endpoint.method);
            assert!(endpoint.role >= least, "{method} {}: {} needs {least}", resource.path, endpoint.role);
            let audited = endpoint.effect.is_audited();
            assert!(audited || endpoint.role < Role::Admin || method == "GET", "{method} {}", resource.path);
        }
    }
}

#[test]
fn docs_roles_has_the_table_of_operations() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/roles.md");
    let text = std::fs::read_to_string(&file).unwrap();
    let table = crate::roles();
    let start = text.find("| operation |").expect("a table");
    let written = format!("{}{table}", &text[..start]);
    if std::env::var_os("MILLRACE_WRITE_DOCS").is_some() {
        std::fs::write(&file, &written).unwrap();
    } else {
        assert!(text == written, "docs/roles.md is out of date: MILLRACE_WRITE_DOCS=1 writes it");
    }
}

/// Returns the text of the running configuration.
async fn running(server: &Server) -> String {
    server.control.execute(&Principal::router(), GetConfiguration).await.unwrap().text
}

#[tokio::test]
async fn every_change_is_refused_while_a_configuration_waits_to_be_confirmed() {
    let server = Server::start().await;
    let text = CONFIG.replace("dport 25", "dport 26");
    let order = Apply { text, confirm: Some("1h".parse().unwrap()), ..Apply::default() };
    server.control.execute(&Principal::router(), order).await.unwrap();
    let before = running(&server).await;
    for change in CHANGES {
        let (status, answer) = ask(&server, change).await;
        let detail = answer["detail"].as_str().unwrap_or_default();
        assert!(
            status == StatusCode::CONFLICT && detail.contains("revision 2 waits to be confirmed"),
            "{change:?}: {status} {answer}"
        );
    }
    assert_eq!(running(&server).await, before);
    for other in OTHERS.iter().filter(|(operation, ..)| !operation.ends_with("rollback")) {
        let (status, answer) = ask(&server, other).await;
        assert_ne!(status, StatusCode::CONFLICT, "{other:?}: {answer}");
    }
    let mut has_groups = true;
    // Once the confirmation has ended, the same changes succeed. Operations of plugins are left out.
    for change in CHANGES.iter().filter(|(operation, ..)| !operation.contains("plugins")) {
        let (status, answer) = ask(&server, change).await;
        let is_no_error =
            status.is_success() || ["release", "{id}"].iter().any(|word| change.0.contains(word));
        has_groups &= !answer["detail"].as_str().is_some_and(|text| text.contains("no control group"));
        let is_no_error = is_no_error || (!has_groups && change.0.contains("principals"));
        assert!(is_no_error, "{change:?}: {status} {answer}");
    }
    server.end().await;
}

/// Returns all lines of the audit log.
async fn lines(server: &Server) -> Vec<Value> {
    let (_, lines) = server.ask("GET", "/audit?last=10000", "").await;
    lines.as_array().cloned().unwrap_or_default()
}

#[tokio::test]
async fn every_change_is_audited_once_with_outcome_and_revision() {
    let server = Server::start().await;
    let mut led = Vec::new();
    for change in CHANGES.iter().chain(OTHERS) {
        let before = lines(&server).await.len();
        let (status, answer) = ask(&server, change).await;
        let noted = lines(&server).await.split_off(before);
        let (method, whole) = change.0.split_once(' ').unwrap();
        if ["/lookup", "/admission/place", "/configuration/save"].contains(&whole) {
            assert_eq!(noted, Vec::<Value>::new(), "{change:?} changes nothing");
            continue;
        }
        let [line] = &noted[..] else { panic!("{change:?}: {noted:?}") };
        let outcome = if status.is_success() { "done" } else { "refused" };
        assert_eq!(
            (&line["status"], &line["outcome"]),
            (&json!(status.as_u16()), &json!(outcome)),
            "{change:?}"
        );
        assert!(line["operation"].as_str().unwrap().starts_with(&format!("{method} ")), "{line}");
        let makes_one = status.is_success() && (whole.starts_with("/configuration") || whole == "/revisions");
        let told = [&answer["revision"], &answer["number"]].into_iter().find(|number| number.is_u64());
        let revision = told.filter(|_| makes_one).unwrap_or(&Value::Null);
        assert_eq!(line["revision"], *revision, "{change:?}: {answer}");
        led.extend(revision.as_u64().map(|_| change.0));
    }
    assert_eq!(led, ["POST /configuration", "POST /revisions", "POST /configuration/rollback"]);
    server.end().await;
}

#[tokio::test]
async fn audit_log_names_the_confirmed_or_reverted_revision() {
    let server = Server::start().await;
    let text = CONFIG.replace("dport 25", "dport 26");
    let order = |confirm| json!({"text": text, "confirm": confirm}).to_string();
    let last = async || lines(&server).await.pop().unwrap();
    assert_eq!(server.ask("POST", "/configuration", order(Some("1h"))).await.0, StatusCode::OK);
    let waiting = last().await["revision"].clone();
    assert_eq!(server.ask("POST", "/configuration/rollback", "{}").await.0, StatusCode::OK);
    assert_ne!(last().await["revision"], waiting, "what ran before runs");
    assert_eq!(server.ask("POST", "/configuration", order(Some("1h"))).await.0, StatusCode::OK);
    let waiting = last().await["revision"].clone();
    assert_eq!(server.ask("POST", "/configuration/confirm", "").await.0, StatusCode::OK);
    assert_eq!(last().await["revision"], waiting);
    server.end().await;
}
