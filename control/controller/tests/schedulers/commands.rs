//! Executes random commands on schedulers, nodes, filters and flows. The saved configuration must always pass
//! the check.

use millrace_controller::operation::{CompareConfiguration, RemoveFilters};
use proptest::prelude::*;

use super::*;

/// Command encoded as numbers. Many commands are valid, and many are not.
type Step = (u8, u8, u8, u8, u8);

const NAMES: [&str; 6] = ["top", "voice", "video", "flows", "rest", "more"];

const KINDS: [&str; 10] = [
    "fifo",
    "flow-queues",
    "hfsc",
    "priority",
    "flow-queues",
    "deficit-round-robin",
    "fifo",
    "fq-codel",
    "hfsc",
    "token-bucket",
];

/// Returns the nodes of a port, with their kinds.
async fn nodes(router: &Router, port: &str) -> Vec<(String, &'static str)> {
    let mut schedulers = ask(router, ListSchedulers).await.unwrap();
    schedulers.retain(|one| one.port == port);
    schedulers.into_iter().flat_map(|one| one.nodes).map(|node| (node.name, node.kind)).collect()
}

/// Returns settings that suit a node of kind `kind` under a node of kind `above`.
fn settings(kind: &str, above: &str, value: u8) -> Map<String, Value> {
    let share = match above {
        "priority" => json!({"level": value % 8}),
        "deficit-round-robin" => json!({"quantum": u32::from(value) * 100}),
        "hfsc" if value.is_multiple_of(3) && kind != "hfsc" => {
            json!({"real-time": format!("{}mbit 10ms {}kbit", value % 9 + 1, value)})
        }
        "hfsc" if value % 3 == 1 => json!({"link-sharing": format!("{value}mbit"), "upper-limit": "40mbit"}),
        "hfsc" => json!({"link-sharing": format!("{value}mbit")}),
        _ => json!({}),
    };
    let own = match (kind, value % 4) {
        ("token-bucket", _) => json!({"rate": format!("{value}mbit"), "burst": "4000B"}),
        ("flow-queues", 0) => json!({"rate": format!("{value}mbit"), "queues": u32::from(value) * 4}),
        ("flow-queues", 1) => json!({"rate": null, "threshold": u32::from(value) * 100}),
        ("fifo" | "flow-queues", 2) => {
            json!({"manage": "red", "minimum": "90B", "maximum": format!("{}B", u32::from(value) * 10)})
        }
        ("fifo", 3) => json!({"manage": "codel", "target": format!("{value}us"), "interval": "50ms"}),
        ("fq-codel", 1) => json!({"limit": u32::from(value) * 40, "ecn": false}),
        _ => json!({}),
    };
    object(share).into_iter().chain(object(own)).collect()
}

/// Returns the node that a command encodes. Its parent is `above`, unless the port has no nodes yet.
fn node_to_add(
    what: u8,
    value: u8,
    above: Option<String>,
    above_kind: &str,
) -> Result<SchedulerNode, String> {
    let kind = KINDS[usize::from(value) % KINDS.len()];
    let mut node = settings(kind, above_kind, value);
    node.retain(|_, value| !value.is_null());
    node.insert("name".into(), NAMES[usize::from(what) / 16 % NAMES.len()].into());
    node.insert("kind".into(), kind.into());
    if let Some(above) = above {
        node.insert("under".into(), above.into());
    }
    serde_json::from_value(Value::Object(node)).map_err(|error| error.to_string())
}

/// Returns the changes of a port's scheduler that a command encodes. `name` is the new default leaf, if the
/// command changes it.
fn changes_of_scheduler(name: &str, value: u8) -> Map<String, Value> {
    let changes = [
        json!({"rate": format!("{value}mbit")}),
        json!({"rate": null}),
        json!({"default": name}),
        json!({"default": null}),
        json!({"queues": u32::from(value) * 90}),
        json!({"overhead": "atm"}),
        json!({"host": "direct", "host-weight": value}),
    ];
    object(changes[usize::from(value) % changes.len()].clone())
}

/// Executes an encoded command. Returns the text of a refusal as the error.
async fn take(router: &Router, (what, port, name, other, value): Step) -> Result<(), String> {
    let said = |error: ControlError| error.to_string();
    let port = ["wan", "wan", "lan"][usize::from(port) % 3];
    let there = nodes(router, port).await;
    let chosen = |number: u8| match usize::from(number) {
        new if new >= 240 || there.is_empty() => (NAMES[new % NAMES.len()].to_owned(), ""),
        number => there[number % there.len()].clone(),
    };
    let (name, is) = chosen(name);
    match what % 16 {
        0..=5 => {
            let (above, above_kind) = chosen(other);
            let above = (!there.is_empty()).then_some(above);
            let node = node_to_add(what, value, above, above_kind)?;
            add_node(router, port, node).await.map(drop).map_err(said)
        }
        6 | 7 => {
            let above = KINDS[usize::from(other) % KINDS.len()];
            let (port, changes) = (port.to_owned(), settings(is, above, value));
            ask(router, SetSchedulerNode { port, name, changes }).await.map(drop).map_err(said)
        }
        8 => {
            let to = (value.is_multiple_of(2)).then(|| chosen(other).0);
            let removal = NodeRemoval { to, with_filters: value.is_multiple_of(3) };
            remove_node(router, (port, &name), removal).await.map(drop).map_err(said)
        }
        9..=11 => {
            let filter = format!("dport {}", value % 5);
            let action = format!("queue {name}");
            let gate = (value.is_multiple_of(4)).then(|| "firewall".to_owned());
            let new = NewFilter { filter, action, gate, priority: (value % 3).into() };
            ask(router, AddFilter(new)).await.map(drop).map_err(said)
        }
        12 => {
            let id = bindings(router).await.map_err(said)?.first().map_or(0, |one| one.id);
            ask(router, RemoveFilters { ids: vec![id] }).await.map(drop).map_err(said)
        }
        13 => {
            let changes = changes_of_scheduler(&name, value);
            ask(router, SetScheduler { port: port.to_owned(), changes }).await.map(drop).map_err(said)
        }
        _ => {
            let changes = [
                json!({"rate": format!("{value}kbit")}),
                json!({"quantum": value}),
                json!({"threshold": value}),
                json!({"rate": null}),
            ];
            let changes = object(changes[usize::from(other) % changes.len()].clone());
            let (port, flow) = (port.to_owned(), Some(FLOW.to_owned()));
            ask(router, SetQueue { port, queue: name, flow, changes }).await.map_err(said)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// After any sequence of commands, the saved configuration can be read, equals the running configuration,
    /// and passes the check.
    #[test]
    fn saved_configuration_passes_the_check(steps in prop::collection::vec(any::<Step>(), 1..120)) {
        with_router(async |router| {
            for (number, step) in steps.iter().enumerate() {
                let done = take(&router, *step).await;
                let text = running(&router).await;
                let read = Config::parse(&text, "saved").map_err(|error| error.to_string());
                let checked = read.and_then(|config| check(&config).map_err(|error| error.to_string()));
                assert!(checked.is_ok(), "step {number}, {step:?}, {done:?}: {checked:?}\n{text}");
                let comparison = CompareConfiguration { text: Some(text.clone()), origin: Some("saved".to_owned()) };
                let difference = ask(&router, comparison).await.unwrap();
                assert!(difference.changes.is_empty(), "step {number}, {step:?}: {difference:?}\n{text}");
            }
        });
    }
}
