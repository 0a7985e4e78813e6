//! Tests of transactions in which a worker doesn't answer one of the changes, or must not be asked.

use millrace_config::Config;

use crate::operation::{
    CompareConfiguration, GetConfiguration, GetSummary, ListGates, ListInstances, ListNeighbours,
    ListRevisions, ListSchedulers, Lookup,
};
use crate::workers::handle::silence::Silence;
use crate::{Apply, ControlError, Operation, Principal, Router, StartOptions, start};

const BASE: &str = r#"
[router]
icmp-rate = 100
flows-max = 4096
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
scheduler = { rate = "10mbit", node = [{ name = "bulk", kind = "fifo" }] }
[[gate]]
name = "audit"
position = "late"
[[instance]]
plugin = "port-filter"
name = "pf"
settings = { ports = "80" }
[[filter]]
match = "proto tcp dport 25"
action = "drop"
[[route]]
to = "10.9.0.0/16"
via = "10.2.0.254"
[[neighbour]]
port = "wan"
address = "10.2.0.254"
mac = "02:00:00:00:00:fe"
"#;

/// Returns a configuration that differs from `BASE` in nearly every part.
fn other() -> String {
    let other = [
        ("icmp-rate = 100", "icmp-rate = 7"),
        ("10.1.0.1/24", "10.1.0.9/24"),
        ("rate = \"10mbit\", node", "rate = \"20mbit\", node"),
        ("name = \"audit\"", "name = \"audit\"\ntable = \"linear\""),
        ("ports = \"80\"", "ports = \"81\""),
        ("tcp dport 25", "tcp dport 26"),
        ("[[route]]", "[[filter]]\nmatch = \"proto udp dport 9\"\naction = \"reject\"\n[[route]]"),
        (
            "via = \"10.2.0.254\"",
            "via = \"10.2.0.253\"\n[[route]]\nto = \"10.8.0.0/16\"\nvia = \"10.2.0.254\"",
        ),
        ("02:00:00:00:00:fe", "02:00:00:00:00:fd"),
    ];
    let other = other.iter().fold(BASE.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    });
    format!(
        "{other}[[gate]]\nname = \"more\"\nposition = \"early\"\n[[instance]]\nplugin = \"null\"\nname = \"n\"\n"
    )
}

fn with_silence(text: &str, work: impl AsyncFn(&Router, &Silence)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let config = Config::parse(text, "base.toml").unwrap();
        let router = start(config, StartOptions::default()).await.unwrap();
        // Once both ports have announced their addresses, the counters no longer change.
        while execute(&router, GetSummary).await.transmitted < 2 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        let silence = Silence::before(router.lock().workers.get(0));
        work(&router, &silence).await;
        router.shutdown().await.unwrap();
    });
}

/// Carries out an operation that must succeed.
async fn execute<O: Operation>(router: &Router, operation: O) -> O::Answer {
    router.execute(&Principal::router(), operation).await.unwrap()
}

async fn apply(router: &Router, text: &str) -> Result<Vec<String>, ControlError> {
    let order = Apply { text: text.to_owned(), ..Apply::default() };
    router.execute(&Principal::router(), order).await.map(|view| view.changes)
}

/// Returns the changes that a configuration text would make.
async fn planned(router: &Router, text: &str) -> Vec<String> {
    let compared = CompareConfiguration { text: Some(text.to_owned()), origin: Some("other".to_owned()) };
    execute(router, compared).await.changes
}

/// Returns the state that control reports, and the worker's decisions for several packets.
async fn seen(router: &Router) -> String {
    let mut decisions = Vec::new();
    for to in ["10.9.0.1", "10.8.0.1", "10.1.0.9", "10.1.0.1"] {
        for what in ["tcp dport 25", "tcp dport 26", "udp dport 9"] {
            let packet = format!("src 10.1.0.7 dst {to} proto {what} sport 5 in lan");
            decisions.push(execute(router, Lookup { packet }).await);
        }
    }
    let all = format!(
        "{:#?}\n{:#?}\n{:#?}\n{:#?}\n{:#?}\n{:#?}",
        execute(router, GetConfiguration).await.text,
        decisions,
        execute(router, ListNeighbours).await,
        execute(router, ListInstances).await,
        execute(router, ListGates).await,
        execute(router, ListSchedulers).await,
    );
    // Ids and table sizes differ after objects are removed and added again. Rates depend on the time since
    // the last read.
    let stays = |line: &&str| {
        !["id: ", "memory: ", "delivered: "].iter().any(|key| line.trim_start().starts_with(key))
    };
    all.lines().filter(stays).map(without_filter_number).collect::<Vec<_>>().join("\n")
}

/// Returns a line of a lookup without the number of its filter.
fn without_filter_number(line: &str) -> String {
    match line.split_once(", filter ") {
        Some((before, after)) => {
            format!("{before}, filter{}", after.trim_start_matches(|c: char| c.is_ascii_digit()))
        }
        None => line.to_owned(),
    }
}

fn assert_same(now: &str, before: &str, context: &str) {
    let different = now.lines().zip(before.lines()).find(|(now, before)| now != before);
    assert_eq!(different, None, "{context}");
    assert_eq!(now.len(), before.len(), "{context}");
}

/// Returns the step number and the command that an error names.
fn step(error: &str) -> (usize, String) {
    let (number, rest) =
        error.split_once("step ").and_then(|(_, rest)| rest.split_once(" of ")).expect(error);
    let (_, change) = rest.split_once('`').expect(error);
    (number.parse().expect(error), change.split_once("`: ").expect(error).0.to_owned())
}

#[test]
fn unanswered_command_reverts_all_steps_and_names_the_step() {
    with_silence(BASE, async |router, silence| {
        let (before, other) = (seen(router).await, other());
        let changes = planned(router, &other).await;
        let mut named = Vec::new();
        for answered in 0.. {
            silence.after(answered, 1);
            let Err(error) = apply(router, &other).await else { break };
            assert!(!silence.is_to_come());
            let error = error.to_string();
            assert!(error.contains("did not answer within 5 s"), "{error}");
            assert!(error.contains("undone"), "{error}");
            let (number, change) = step(&error);
            assert_eq!(changes[number - 1], change, "{error}");
            assert!(named.last().is_none_or(|last| *last <= number), "{named:?} {error}");
            named.push(number);
            assert_same(&seen(router).await, &before, &format!("question {answered}: {error}"));
            assert!(execute(router, ListRevisions).await.is_empty());
        }
        assert!(silence.is_to_come(), "all questions were lost once");
        silence.after(0, 0);
        named.dedup();
        // Filters are changed in a group, and so are routes: the error names the last change of the group.
        assert_eq!(named, [1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 14], "{changes:#?}");
        assert!(planned(router, &other).await.is_empty());
        assert!(!apply(router, BASE).await.unwrap().is_empty());
        assert_same(&seen(router).await, &before, "applied and taken back");
    });
}

/// Instances that `BASE` gets: `target`, which has a binding, and `both`, which names it in a setting.
const USED: &str = r#"
[[instance]]
plugin = "statistics"
name = "target"
[[instance]]
plugin = "spread"
name = "both"
settings = { to = "target" }
[[bind]]
instance = "target"
gate = "monitor"
filter = "proto udp"
"#;

#[test]
fn removal_of_an_instance_in_use_is_refused_before_its_bindings_end() {
    let text = format!("{BASE}{USED}");
    with_silence(&text, async |router, silence| {
        let before = seen(router).await;
        // The first question to a worker would stay unanswered: the end of a binding asks each worker.
        silence.after(0, 1);
        // An instance that gets another plugin is removed and created again.
        let error = apply(router, &text.replace("\"statistics\"", "\"null\"")).await.unwrap_err().to_string();
        assert!(silence.is_to_come(), "a worker was asked: {error}");
        silence.after(0, 0);
        let user = "\"target\" is in use by instance \"both\", whose setting \"to\" names it";
        assert!(error.contains(user), "{error}");
        assert_eq!(step(&error), (2, "instance free target".to_owned()));
        assert!(error.ends_with("; nothing was changed"), "{error}");
        assert_same(&seen(router).await, &before, "refused");
        assert!(execute(router, ListRevisions).await.is_empty());
    });
}

#[test]
fn removal_of_an_instance_is_made_with_its_last_use() {
    let text = format!("{BASE}{USED}");
    let (instances, _) = USED.split_once("[[bind]]").unwrap();
    let other_target = instances.replace("to = \"target\"", "to = \"pf\"");
    let (_, other_target) = other_target.split_once("name = \"target\"").unwrap();
    for rest in ["", other_target] {
        with_silence(&text, async |router, _| {
            let changes = apply(router, &format!("{BASE}{rest}")).await.unwrap();
            assert!(changes.iter().any(|change| change == "instance free target"), "{changes:?}");
            assert!(planned(router, &format!("{BASE}{rest}")).await.is_empty());
        });
    }
}

#[test]
fn unanswered_command_reverts_instances_that_name_others() {
    let (instances, binding) = USED.split_once("[[bind]]").unwrap();
    let (_, user) = instances.split_once("name = \"target\"\n").unwrap();
    let target = instances.strip_suffix(user).unwrap();
    // The file lists the user first.
    let text = format!("{BASE}{user}{target}[[bind]]{binding}");
    with_silence(BASE, async |router, silence| {
        for (before, after) in [(BASE, text.as_str()), (text.as_str(), BASE)] {
            let is_whole = async |text: &str| planned(router, text).await.is_empty();
            for answered in 0.. {
                silence.after(answered, 1);
                let Err(error) = apply(router, after).await else { break };
                assert!(!silence.is_to_come() && is_whole(before).await, "question {answered}: {error}");
            }
            assert!(silence.is_to_come(), "all questions were lost once");
            silence.after(0, 0);
            assert!(is_whole(after).await);
        }
    });
}
