//! Tests of applying, confirming, rolling back and saving configurations.

mod confirmations;
mod orders;
mod revisions;
mod saves;

use millrace_config::Config;
use millrace_controller::operation::{
    AddFilter, CompareConfiguration, Confirm, GetConfiguration, GetRevision, ListRevisions,
};
use millrace_controller::view::{DifferenceView, RevisionTextView, RevisionView};
use millrace_controller::{
    Apply, ControlError, Keep, NewFilter, Operation, Principal, Revision, Role, RollBack, Router, Save,
    Source, StartOptions, start,
};

/// Configuration with two ports and every kind of table.
const BASE: &str = r#"
[router]
icmp-rate = 100
[plugins]
state = "none"
cache = "none"
[[port]]
name = "lan"
kind = "memory"
address = ["10.1.0.1/24"]
[[port]]
name = "wan"
kind = "memory"
address = ["10.2.0.1/24"]
scheduler = { rate = "10mbit", node = [{ name = "flows", kind = "flow-queues", rate = "10mbit", queues = 16 }] }
[[gate]]
name = "audit"
position = "late"
[[instance]]
plugin = "port-filter"
name = "pf"
settings = { ports = "80" }
[[bind]]
instance = "pf"
gate = "firewall"
filter = "in lan"
[[filter]]
match = "proto tcp dport 25"
action = "drop"
[[filter]]
match = "proto udp dport 5060"
action = "queue flows"
[[route]]
to = "10.9.0.0/16"
via = "10.2.0.254"
[[neighbour]]
port = "wan"
address = "10.2.0.254"
mac = "02:00:00:00:00:fe"
"#;

fn with_router(work: impl AsyncFn(Router)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let config = Config::parse(BASE, "base.toml").unwrap();
        let source = Some(Source { origin: "base.toml".into(), text: BASE.into() });
        let router = start(config, StartOptions { source, ..StartOptions::default() }).await.unwrap();
        work(router.clone()).await;
        router.shutdown().await.unwrap();
    });
}

/// Executes an operation as the router itself.
async fn ask<O: Operation>(router: &Router, operation: O) -> Result<O::Answer, ControlError> {
    router.execute(&Principal::router(), operation).await
}

async fn apply(router: &Router, text: &str) -> Result<Vec<String>, ControlError> {
    let order = Apply { text: text.to_owned(), ..Apply::default() };
    ask(router, order).await.map(|view| view.changes)
}

async fn save(router: &Router, text: &str, force: bool) -> Result<String, ControlError> {
    let order = Save { text: Some(text.to_owned()), origin: Some("router.toml".into()), force };
    ask(router, order).await.map(|saved| saved.text)
}

async fn add_filter(router: &Router, filter: &str) {
    let new = NewFilter { filter: filter.into(), action: "drop".into(), gate: None, priority: 0 };
    ask(router, AddFilter(new)).await.unwrap();
}

/// Returns the text of the running configuration.
async fn running(router: &Router) -> String {
    ask(router, GetConfiguration).await.unwrap().text
}

async fn compare(router: &Router, text: &str) -> DifferenceView {
    let comparison = CompareConfiguration { text: Some(text.to_owned()), origin: Some("text".to_owned()) };
    ask(router, comparison).await.unwrap()
}

async fn revisions(router: &Router) -> Vec<RevisionView> {
    ask(router, ListRevisions).await.unwrap()
}

async fn revision(router: &Router, number: u64) -> RevisionTextView {
    ask(router, GetRevision { number }).await.unwrap()
}

/// Applies a text that must be confirmed within ten minutes. Returns its revision.
async fn apply_waiting(router: &Router, text: &str) -> u64 {
    let order = Apply { text: text.to_owned(), confirm: Some("10m".parse().unwrap()), ..Apply::default() };
    ask(router, order).await.unwrap().revision.unwrap()
}

async fn confirm(router: &Router, revision: Option<u64>) -> Result<u64, ControlError> {
    ask(router, Confirm { revision }).await.map(|confirmed| confirmed.revision)
}

async fn keep(router: &Router, order: Keep, role: Role) -> Result<Revision, ControlError> {
    router.execute(&Principal { role: Some(role), ..Principal::router() }, order).await
}

async fn back(router: &Router) -> (Option<u64>, String) {
    let view = ask(router, RollBack::default()).await.unwrap();
    (view.revision, view.origin)
}

fn object(value: serde_json::Value) -> serde_json::Map<String, serde_json::Value> {
    value.as_object().cloned().unwrap_or_default()
}

/// Checks that the running configuration equals the text.
async fn assert_runs(router: &Router, text: &str) {
    let difference = compare(router, text).await;
    assert!(difference.changes.is_empty() && difference.restart.is_empty(), "{difference:?}");
}

/// Returns configurations that differ from the base in one or several entries.
fn others() -> Vec<String> {
    let other = |from: &str, to: &str| {
        assert!(BASE.contains(from), "{from}");
        BASE.replace(from, to)
    };
    vec![
        other("icmp-rate = 100", "icmp-rate = 7\nredirects = false\nroute-priority = 3"),
        other("10.1.0.1/24", "10.1.0.9/24"),
        other(
            "address = [\"10.1.0.1/24\"]",
            "address = [\"10.1.0.1/24\"]\nreverse-path = \"loose\"\ninput-weight = 9",
        ),
        other("rate = \"10mbit\", node", "rate = \"20mbit\", node"),
        other("kind = \"flow-queues\", rate = \"10mbit\", queues = 16", "kind = \"fifo\"")
            .replace("queue flows", "drop"),
        other(
            "queues = 16 }] }",
            "queues = 16 }], flow = [{ queue = \"flows\", rate = \"1mbit\", \
             flow = \"src 10.0.0.2 dst 10.1.0.2 proto udp sport 4 dport 5 in lan\" }] }",
        ),
        other("position = \"late\"", "position = \"late\"\ntable = \"linear\""),
        other("position = \"late\"", "position = \"early\""),
        other("settings = { ports = \"80\" }", "settings = { ports = \"81\", protocol = \"tcp\" }"),
        other(
            "plugin = \"port-filter\"\nname = \"pf\"\nsettings = { ports = \"80\" }",
            "plugin = \"null\"\nname = \"pf\"",
        ),
        other(
            "filter = \"in lan\"",
            "filter = \"in lan\"\npriority = 4\non-fault = \"bypass\"\nbudget = \"77us\"",
        ),
        other("action = \"drop\"", "action = \"reject\"\npriority = 9"),
        other("via = \"10.2.0.254\"", "via = [\"10.2.0.253\", \"10.2.0.254\"]"),
        other("via = \"10.2.0.254\"", "kind = \"blackhole\""),
        other("02:00:00:00:00:fe", "02:00:00:00:00:fd"),
        BASE.split("[[gate]]").next().unwrap().to_owned(),
        // This configuration lacks the leaf, and the filter that names it.
        other(
            "scheduler = { rate = \"10mbit\", node = [{ name = \"flows\", kind = \"flow-queues\", \
             rate = \"10mbit\", queues = 16 }] }\n",
            "",
        )
        .replace("queue flows", "drop"),
        with_principals(),
    ]
}

/// Returns `BASE` with principals of every kind: shares, weights, rates and chains of `same-as`.
fn with_principals() -> String {
    let fifo = BASE.replace("kind = \"flow-queues\", rate = \"10mbit\", queues = 16", "kind = \"fifo\"");
    let principals = "[[principal]]\nname = \"video\"\ncpu = \"5 %\"\ncpu-limit = \"20 %\"\n\
                      link = { wan = \"2mbit\" }\nqueue = \"64KiB\"\ndeadline = \"5ms\"\n\
                      [[principal]]\nname = \"bulk\"\nweight = 7\nlink = { wan = { same-as = \"video\" } }\n\
                      [[principal]]\nname = \"twin\"\ncpu = { same-as = \"video\" }\n\
                      [[filter]]\nmatch = \"proto udp dport 9\"\naction = \"principal bulk\"\n\
                      [[filter]]\nmatch = \"proto udp dport 7\"\naction = \"queue principal:video\"\n";
    format!("{}{principals}", fifo.replace("queue flows", "drop"))
}

#[test]
fn from_any_of_many_configurations_any_other_is_reached_and_the_same_again_is_nothing() {
    with_router(async |router| {
        let others = others();
        assert_runs(&router, BASE).await;
        for other in &others {
            for text in [other.as_str(), BASE] {
                let changes = apply(&router, text).await.unwrap_or_else(|error| panic!("{error}\n{text}"));
                assert!(!changes.is_empty(), "{text}");
                assert_runs(&router, text).await;
                assert_eq!(apply(&router, text).await, Ok(vec![]));
            }
        }
        for pair in others.windows(2) {
            for text in pair {
                apply(&router, text).await.unwrap_or_else(|error| panic!("{error}\n{text}"));
                assert_runs(&router, text).await;
            }
        }
    });
}

#[test]
fn saved_text_parses_to_the_running_configuration() {
    with_router(async |router| {
        for text in others() {
            apply(&router, &text).await.unwrap();
            let told = running(&router).await;
            assert_runs(&router, &told).await;
            assert_eq!(save(&router, &text, false).await.unwrap(), text);
        }
    });
}

#[test]
fn invalid_configuration_or_restart_changes_nothing() {
    with_router(async |router| {
        for (text, word) in [
            (BASE.replace("dport 25", "dport x"), "x"),
            (BASE.replace("10.9.0.0/16", "10.9.0.1/16"), "has host bits"),
            (BASE.replace("via = \"10.2.0.254\"", "via = \"10.7.0.1\""), "in no subnet of a port"),
            (BASE.replace("via = \"10.2.0.254\"", "via = \"10.7.0.1\""), "configuration:35:7: "),
            (BASE.replace("queue flows", "queue flow"), "configuration:32:10: no queue is named \"flow\""),
            (BASE.replace("ports = \"80\"", "prts = \"80\""), "configuration:22:14: instance \"pf\""),
            (BASE.replace("\"port-filter\"", "\"port-filtr\""), "configuration:20:10: instance \"pf\""),
            (BASE.replace("icmp-rate = 100", "icmp-rate = 5\nworkers = 3"), "only a restart"),
            (format!("{BASE}[[port]]\nname = \"more\"\nkind = \"memory\"\n"), "\"more\": it is in the file"),
        ] {
            let refused = apply(&router, &text).await.unwrap_err().to_string();
            assert!(refused.contains(word), "{word}: {refused}");
            assert_runs(&router, BASE).await;
        }
    });
}

#[test]
fn running_configuration_is_read_whole_during_changes() {
    with_router(async |router| {
        let filter = |port| format!("[[filter]]\nmatch = \"dport {port}\"\naction = \"drop\"\n");
        let text = (1000..3000).map(filter).fold(BASE.to_owned(), |text, filter| text + &filter);
        let before = running(&router).await;
        let order = Apply { text, ..Apply::default() };
        let (mut told, mut refused) = (Vec::new(), 0);
        let done = std::cell::Cell::new(false);
        let apply = async {
            ask(&router, order).await.unwrap();
            done.set(true);
        };
        let read = async {
            while !done.get() {
                match ask(&router, GetConfiguration).await {
                    Ok(running) => told.push(running.text),
                    Err(ControlError::Conflict(why)) if why.to_string().contains("try again in a second") => {
                        refused += 1
                    }
                    Err(other) => panic!("{other}"),
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::join!(apply, read);
        let after = running(&router).await;
        let half = told.iter().find(|text| **text != before && **text != after);
        assert_eq!(half.map(|text| text.matches("[[filter]]").count()), None, "half of the change");
        assert!(refused > 0, "nobody asked in between");
    });
}
