//! Tests of scheduler changes: the saved configuration always equals the running one, and can be read again.

use millrace_config::Config;
use millrace_controller::{
    Apply, ControlError, NewFilter, NodeRemoval, PageQuery, Router, StartOptions, Who, check, start,
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

const PORTS: &str = "
[plugins]
state = \"none\"
cache = \"none\"
[[port]]
name = \"lan\"
kind = \"memory\"
address = [\"10.1.0.1/24\"]
[[port]]
name = \"wan\"
kind = \"memory\"
address = [\"10.2.0.1/24\"]
";

/// Flow in the syntax of `queue set --flow`.
const FLOW: &str = "src 10.1.0.2 dst 10.2.0.2 proto udp sport 4 dport 5 in lan";

fn with_router(work: impl AsyncFnOnce(Router)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let config = Config::parse(PORTS, "test").unwrap();
        let router = start(config, StartOptions::default()).await.unwrap();
        work(router.clone()).await;
        router.shutdown().await.unwrap();
    });
}

fn object(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

fn add(router: &Router, port: &str, node: Value) {
    router.add_scheduler_node(port, &serde_json::from_value(node).unwrap()).unwrap();
}

fn to_queue(router: &Router, filter: &str, queue: &str) -> u64 {
    let action = format!("queue {queue}");
    let new = NewFilter { filter: filter.into(), action, gate: None, priority: 0 };
    router.add_filter(&new).unwrap().id
}

fn actions(router: &Router) -> Vec<(String, String)> {
    router
        .bindings(&PageQuery::default())
        .unwrap()
        .rows
        .into_iter()
        .map(|one| (one.filter, one.action))
        .collect()
}

/// Adds three leaves at `wan`; `lan` has one of their names too.
fn trees(router: &Router) {
    add(router, "wan", json!({"name": "top", "kind": "priority"}));
    for (level, leaf) in ["voice", "video", "rest"].into_iter().enumerate() {
        add(router, "wan", json!({"name": leaf, "kind": "fifo", "under": "top", "level": level}));
    }
    add(router, "lan", json!({"name": "video", "kind": "fifo"}));
}

#[test]
fn a_leaf_that_filters_name_stays_until_something_is_said_of_them() {
    with_router(async |router| {
        trees(&router);
        let [low, _] = ["dport 1", "dport 2"].map(|filter| to_queue(&router, filter, "voice"));
        to_queue(&router, "dport 3", "video");
        let before = router.configuration().unwrap().text;
        // Removes the leaf itself, or the node above it; no other port has its queue.
        for node in ["voice", "top"] {
            let refused =
                router.remove_scheduler_node("wan", node, &NodeRemoval::default()).await.unwrap_err();
            for words in
                ["2 filters", &format!("{low} \"dport 1\" (queue voice)"), "--to LEAF", "--with-filters"]
            {
                assert!(refused.to_string().contains(words), "{words}: {refused}");
            }
            assert_eq!(router.configuration().unwrap().text, before);
        }
        // The other port has this queue too.
        let removed = router.remove_scheduler_node("wan", "video", &NodeRemoval::default()).await.unwrap();
        assert_eq!(removed.filters.len(), 0);
        let to = |to: &str| NodeRemoval { to: Some(to.into()), with_filters: false };
        // If the target leaf has a filter for the same packets, the one of the higher priority stays.
        let with_priority = |filter: &str, queue: &str, priority| NewFilter {
            filter: filter.into(),
            action: format!("queue {queue}"),
            gate: None,
            priority,
        };
        for (filter, queue, priority) in
            [("dport 2", "rest", 5), ("dport 4", "voice", 10), ("dport 4", "rest", 1)]
        {
            router.add_filter(&with_priority(filter, queue, priority)).unwrap();
        }
        let removed = router.remove_scheduler_node("wan", "voice", &to("rest")).await.unwrap();
        assert_eq!(removed.filters.len(), 3);
        let priority = router.bindings(&PageQuery::default()).unwrap().rows;
        let priority = priority.into_iter().find(|one| one.filter == "dport 4").map(|one| one.priority);
        assert_eq!(priority, Some(10));
        let mut now = actions(&router);
        now.sort();
        let expected = [
            ("dport 1", "queue rest"),
            ("dport 2", "queue rest"),
            ("dport 3", "queue video"),
            ("dport 4", "queue rest"),
        ];
        assert_eq!(now, expected.map(|(filter, action)| (filter.to_owned(), action.to_owned())));
        let with_filters = NodeRemoval { to: None, with_filters: true };
        let removed = router.remove_scheduler_node("wan", "top", &with_filters).await.unwrap();
        assert_eq!(removed.filters.iter().map(|one| &*one.action).collect::<Vec<_>>(), ["queue rest"; 3]);
        assert_eq!(actions(&router), [("dport 3".to_owned(), "queue video".to_owned())]);
        let refused =
            router.remove_scheduler_node("lan", "video", &NodeRemoval::default()).await.unwrap_err();
        assert!(refused.to_string().contains("1 filter names as queue"), "{refused}");
    });
}

/// One command, encoded in numbers: many are valid, many are not.
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
fn nodes(router: &Router, port: &str) -> Vec<(String, &'static str)> {
    let mut schedulers = router.schedulers().unwrap();
    schedulers.retain(|one| one.port == port);
    schedulers.into_iter().flat_map(|one| one.nodes).map(|node| (node.name, node.kind)).collect()
}

/// Returns settings for a node of kind `kind` under a node of kind `above`.
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

/// Carries out the encoded command, or returns the refusal.
async fn take(router: &Router, (what, port, name, other, value): Step) -> Result<(), String> {
    let said = |error: millrace_controller::ControlError| error.to_string();
    let port = ["wan", "wan", "lan"][usize::from(port) % 3];
    let there = nodes(router, port);
    let chosen = |number: u8| match usize::from(number) {
        new if new >= 240 || there.is_empty() => (NAMES[new % NAMES.len()].to_owned(), ""),
        number => there[number % there.len()].clone(),
    };
    let (name, is) = chosen(name);
    match what % 16 {
        0..=5 => {
            let (above, above_kind) = chosen(other);
            let kind = KINDS[usize::from(value) % KINDS.len()];
            let mut node = settings(kind, above_kind, value);
            node.retain(|_, value| !value.is_null());
            node.insert("name".into(), NAMES[usize::from(what) / 16 % NAMES.len()].into());
            node.insert("kind".into(), kind.into());
            if !there.is_empty() {
                node.insert("under".into(), above.into());
            }
            let node = serde_json::from_value(Value::Object(node)).map_err(|error| error.to_string())?;
            router.add_scheduler_node(port, &node).map(drop).map_err(said)
        }
        6 | 7 => {
            let above = KINDS[usize::from(other) % KINDS.len()];
            router.set_scheduler_node(port, &name, &settings(is, above, value)).map(drop).map_err(said)
        }
        8 => {
            let to = (value.is_multiple_of(2)).then(|| chosen(other).0);
            let removal = NodeRemoval { to, with_filters: value.is_multiple_of(3) };
            router.remove_scheduler_node(port, &name, &removal).await.map(drop).map_err(said)
        }
        9..=11 => {
            let filter = format!("dport {}", value % 5);
            let action = format!("queue {name}");
            let gate = (value.is_multiple_of(4)).then(|| "firewall".to_owned());
            let new = NewFilter { filter, action, gate, priority: (value % 3).into() };
            router.add_filter(&new).map(drop).map_err(said)
        }
        12 => {
            let ids =
                router.bindings(&PageQuery::default()).map_err(said)?.rows.first().map_or(0, |one| one.id);
            router.remove_filters(&[ids]).map(drop).map_err(said)
        }
        13 => {
            let changes = [
                json!({"rate": format!("{value}mbit")}),
                json!({"rate": null}),
                json!({"default": name}),
                json!({"default": null}),
                json!({"queues": u32::from(value) * 90}),
                json!({"overhead": "atm"}),
                json!({"host": "direct", "host-weight": value}),
            ];
            let changes = object(changes[usize::from(value) % changes.len()].clone());
            router.set_scheduler(port, &changes).map(drop).map_err(said)
        }
        _ => {
            let changes = [
                json!({"rate": format!("{value}kbit")}),
                json!({"quantum": value}),
                json!({"threshold": value}),
                json!({"rate": null}),
            ];
            let changes = object(changes[usize::from(other) % changes.len()].clone());
            router.set_queue(port, &name, Some(FLOW), &changes).map_err(said)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// After any command, the saved configuration can be read, equals the running one, and passes the check.
    #[test]
    fn what_is_saved_passes_the_check(steps in prop::collection::vec(any::<Step>(), 1..120)) {
        with_router(async |router| {
            for (number, step) in steps.iter().enumerate() {
                let done = take(&router, *step).await;
                let text = router.configuration().unwrap().text;
                let read = Config::parse(&text, "saved").map_err(|error| error.to_string());
                let checked = read.and_then(|config| check(&config).map_err(|error| error.to_string()));
                assert!(checked.is_ok(), "step {number}, {step:?}, {done:?}: {checked:?}\n{text}");
                let difference = router.difference(&text, "saved", millrace_config::Role::Admin).await.unwrap();
                assert!(difference.changes.is_empty(), "step {number}, {step:?}: {difference:?}\n{text}");
            }
        });
    }
}

/// Applies a configuration with this scheduler at port `wan`.
async fn apply(router: &Router, scheduler: &str) -> Result<Vec<String>, ControlError> {
    let text = format!("{PORTS}[port.scheduler]\n{scheduler}");
    let order = Apply { text, ..Apply::default() };
    router.apply(order, Who::router()).await.map(|view| view.changes)
}

/// Returns the worker's nodes: name, parent, promise and settings.
fn shown(router: &Router) -> Vec<(String, Option<String>, Option<u64>, String)> {
    let schedulers = router.schedulers().unwrap();
    let nodes = schedulers.into_iter().flat_map(|scheduler| scheduler.nodes);
    let mut nodes: Vec<_> =
        nodes.map(|node| (node.name, node.under, node.promised, json!(node.settings).to_string())).collect();
    nodes.sort();
    nodes
}

#[test]
fn schedulers_become_each_other_that_no_order_of_single_changes_leads_to() {
    let levels = |one: u32, other: u32| {
        format!(
            "node = [{{ name = \"top\", kind = \"priority\" }}, {{ name = \"a\", kind = \"fifo\", under = \"top\", level = {one} }}, \
             {{ name = \"b\", kind = \"fifo\", under = \"top\", level = {other} }}]"
        )
    };
    let curves = |link: &str, one: &str, other: &str| {
        format!(
            "rate = \"{link}\"\nnode = [{{ name = \"top\", kind = \"hfsc\" }}, {{ name = \"a\", kind = \"fifo\", under = \"top\", \
             real-time = \"{one}\" }}, {{ name = \"b\", kind = \"fifo\", under = \"top\", real-time = \"{other}\" }}]"
        )
    };
    let flows = |queues: u32, of_leaf: u32, rate: &str, one: &str, other: &str| {
        let flow = |port: u32, said: &str| {
            format!(
                "{{ queue = \"f\", flow = \"{}\", {said} }}",
                FLOW.replace("sport 4", &format!("sport {port}"))
            )
        };
        format!(
            "queues = {queues}\nnode = [{{ name = \"f\", kind = \"flow-queues\", queues = {of_leaf}, rate = \"{rate}\" }}]\nflow = [{}, {}]",
            flow(1, one),
            flow(2, other)
        )
    };
    let places = |above_a: &str, above_b: &str| {
        format!(
            "rate = \"10mbit\"\nnode = [{{ name = \"top\", kind = \"deficit-round-robin\" }}, {{ name = \"one\", kind = \"token-bucket\", under = \"top\", \
             rate = \"1mbit\", quantum = \"1B\" }}, {{ name = \"other\", kind = \"token-bucket\", under = \"top\", rate = \"2mbit\", quantum = \"2B\" }}, \
             {{ name = \"a\", kind = \"fifo\", under = \"{above_a}\" }}, {{ name = \"b\", kind = \"fifo\", under = \"{above_b}\" }}]"
        )
    };
    let schedulers = [
        "node = [{ name = \"a\", kind = \"fifo\" }]".to_owned(),
        "node = [{ name = \"b\", kind = \"token-bucket\", rate = \"1mbit\" }, { name = \"a\", kind = \"fifo\", under = \"b\" }]".to_owned(),
        places("one", "other"),
        places("other", "one"),
        levels(1, 2),
        levels(2, 1),
        curves("10mbit", "7mbit", "2mbit"),
        curves("10mbit", "2mbit", "7mbit"),
        curves("4mbit", "1mbit", "3mbit"),
        flows(8192, 4096, "5mbit", "rate = \"4mbit\"", "quantum = \"3000B\""),
        flows(100, 50, "5mbit", "rate = \"1kbit\"", "rate = \"4mbit\""),
        flows(8, 4, "1mbit", "quantum = \"9B\"", "threshold = \"9000B\""),
        flows(8192, 4096, "5mbit", "threshold = \"5B\"", "rate = \"4mbit\""),
    ];
    with_router(async |router| {
        for before in &schedulers {
            for after in &schedulers {
                for one in [before, after] {
                    apply(&router, one).await.unwrap_or_else(|error| panic!("{error}\n{before}\n{after}"));
                    assert_eq!(apply(&router, one).await, Ok(vec![]));
                }
                let there = shown(&router);
                // The result is the same as without a scheduler before.
                apply(&router, "node = [{ name = \"z\", kind = \"fifo\" }]").await.unwrap();
                apply(&router, after).await.unwrap();
                assert_eq!(there, shown(&router), "{before}\n{after}");
            }
        }
    });
}

#[test]
fn a_scheduler_that_is_refused_leaves_nothing_behind() {
    with_router(async |router| {
        let flow = |port: u32, said: &str| {
            format!(
                "{{ queue = \"f\", flow = \"{}\", {said} }}",
                FLOW.replace("sport 4", &format!("sport {port}"))
            )
        };
        let leaf = "rate = \"6mbit\"\nnode = [{ name = \"f\", kind = \"flow-queues\", queues = 2, rate = \"5mbit\" }]";
        for (flows, problem) in [
            (
                vec![flow(1, "rate = \"4mbit\""), flow(2, "rate = \"4mbit\"")],
                "4.00 Mb/s reserved by others + 4.00 Mb/s = 8.00 Mb/s, which must stay below the capacity of 5.00 Mb/s",
            ),
            (
                vec![flow(1, "quantum = \"1B\""), flow(2, "quantum = \"1B\""), flow(3, "quantum = \"1B\"")],
                "all 2 for flows",
            ),
            (vec![flow(1, "quantum = \"0B\"")], "its quantum is 0"),
        ] {
            let text = format!("{leaf}\nflow = [{}]", flows.join(", "));
            let config = Config::parse(&format!("{PORTS}[port.scheduler]\n{text}"), "f").unwrap();
            let checked = check(&config).unwrap_err().to_string();
            assert!(checked.contains(problem) && checked.starts_with("f:"), "{checked}");
            assert!(apply(&router, &text).await.unwrap_err().to_string().contains(problem));
            assert_eq!(shown(&router), []);
        }
        apply(&router, leaf).await.unwrap();
        let before = shown(&router);
        let set = |said: Value| router.set_queue("wan", "f", Some(FLOW), &object(said));
        for said in
            [json!({"rate": "5mbit"}), json!({"quantum": "0B"}), json!({"quantum": "1B", "rate": "1mbit"})]
        {
            assert!(set(said).is_err());
        }
        assert!(router.set_queue("wan", "f", None, &object(json!({"rate": "7mbit"}))).is_err());
        assert_eq!((shown(&router), apply(&router, leaf).await), (before, Ok(vec![])));
        // The settings of a flow are removed by a configuration without them.
        set(json!({"quantum": "3000B", "threshold": "9000B"})).unwrap();
        let said = router.queue("wan", "f").await.unwrap().flows;
        assert_eq!(
            said.iter().map(|flow| (flow.quantum, flow.threshold)).collect::<Vec<_>>(),
            [(3000, 9000)]
        );
        assert_eq!(apply(&router, leaf).await.unwrap().len(), 1);
        let common = router.queue("wan", "f").await.unwrap().flows;
        assert_eq!(
            common.iter().map(|flow| (flow.quantum, flow.threshold)).collect::<Vec<_>>(),
            [(1538, 262_144)]
        );
    });
}

#[test]
fn a_refusal_names_only_what_would_be_right() {
    with_router(async |router| {
        trees(&router);
        let to = |to: &str| NodeRemoval { to: Some(to.into()), with_filters: false };
        for (node, heir, problem) in [
            ("voice", "voice", r#""voice" is removed with "voice": choose a leaf that stays"#),
            ("top", "rest", r#""rest" is removed with "top""#),
            ("voice", "top", "holds no packets itself"),
            ("voice", "els", "nodes here: top, video, rest"),
        ] {
            let refused = router.remove_scheduler_node("wan", node, &to(heir)).await.unwrap_err();
            assert!(refused.to_string().contains(problem), "{refused}");
        }
        let node = json!({"name": "new", "kind": "fifo", "under": "els", "level": 5});
        let refused = router
            .add_scheduler_node("wan", &serde_json::from_value(node).unwrap())
            .map(|view| view.nodes.len())
            .unwrap_err();
        assert!(refused.to_string().ends_with("nodes here: top, voice, video, rest"), "{refused}");
        let refused = router.set_scheduler("wan", &object(json!({"limit": 5}))).map(drop).unwrap_err();
        let settings =
            "settings of a port's scheduler here: rate, overhead, default, queues, host, host-weight";
        assert!(refused.to_string().ends_with(settings), "{refused}");
        assert_eq!(shown(&router).len(), 5);
    });
}

#[test]
fn a_leaf_goes_to_another_place_by_a_setting() {
    with_router(async |router| {
        trees(&router);
        add(
            &router,
            "wan",
            json!({"name": "fair", "kind": "deficit-round-robin", "under": "top", "level": 9}),
        );
        let moved = json!({"under": "fair", "quantum": "3000B", "level": null});
        router.set_scheduler_node("wan", "voice", &object(moved)).unwrap();
        // The former default leaf stays the default.
        let settings = router.scheduler_settings("wan").unwrap().unwrap();
        assert_eq!(settings.default.as_deref(), Some("voice"));
        let voice = shown(&router).into_iter().find(|node| node.0 == "voice").unwrap();
        assert_eq!((voice.1.as_deref(), voice.3.contains("3000")), (Some("fair"), true), "{voice:?}");
        for (under, problem) in [("rest", "a fifo"), ("fiar", "did you mean"), ("fair", "own ancestor")] {
            let node = if under == "fair" { "fair" } else { "voice" };
            let refused =
                router.set_scheduler_node("wan", node, &object(json!({"under": under}))).unwrap_err();
            assert!(refused.to_string().contains(problem), "{refused}");
        }
        // The saved configuration can be read again.
        let text = router.configuration().unwrap().text;
        check(&Config::parse(&text, "saved").unwrap()).unwrap();
    });
}

#[test]
fn all_spellings_of_a_flow_are_one_reservation() {
    with_router(async |router| {
        add(&router, "wan", json!({"name": "f", "kind": "flow-queues", "rate": "8mbit"}));
        let set = |flow: &str, said: Value| router.set_queue("wan", "f", Some(flow), &object(said));
        set(FLOW, json!({"rate": "6mbit"})).unwrap();
        // Another spelling of the same flow: it changes the reservation, and does not conflict with it.
        let other = "in lan dport 5 sport 4 proto 17 dst 10.2.0.2/32 src 10.1.0.2";
        set(other, json!({"rate": "7mbit"})).unwrap();
        let shown = router.queue("wan", "f").await.unwrap().flows;
        let shown: Vec<_> = shown.iter().map(|flow| (flow.flow.as_deref(), flow.rate)).collect();
        assert_eq!(shown, [(Some(FLOW), Some(7_000_000))]);
        let text = router.configuration().unwrap().text;
        assert_eq!(text.matches("[[port.scheduler.flow]]").count(), 1, "{text}");
        assert!(text.contains(FLOW), "{text}");
        // The flow through another ingress port has the same queue, so it can't have settings of its own.
        let by_wan = FLOW.replace("in lan", "in wan");
        for said in [json!({"rate": "1mbit"}), json!({"rate": null})] {
            let refused = set(&by_wan, said).unwrap_err();
            assert!(matches!(refused, ControlError::Conflict(_)), "{refused}");
            assert!(refused.to_string().contains(FLOW), "{refused}");
        }
        for (less, missing) in [
            (FLOW.replace(" in lan", ""), "`in PORT` is missing"),
            (FLOW.replace("proto udp", ""), "`proto udp`"),
            (FLOW.replace(" sport 4 dport 5", ""), "`sport NUMBER`, `dport NUMBER` is missing"),
        ] {
            let refused = set(&less, json!({"rate": "1mbit"})).unwrap_err().to_string();
            assert!(refused.contains(missing), "{refused}");
        }
        assert_eq!(router.configuration().unwrap().text, text);
        set(other, json!({"rate": null})).unwrap();
        assert!(!router.configuration().unwrap().text.contains("flow]]"));
    });
}

#[test]
fn refusals_of_queues_name_what_was_given() {
    with_router(async |router| {
        add(&router, "wan", json!({"name": "flows", "kind": "flow-queues", "rate": "8mbit"}));
        router.set_queue("wan", "flows", Some(FLOW), &object(json!({"rate": "6mbit"}))).unwrap();
        let refused = router.set_queue("wan", "flows", None, &object(json!({"rate": null}))).unwrap_err();
        let text =
            "node \"flows\": it has no rate, of which 6.00 Mb/s could be reserved for one of its flows";
        assert!(refused.to_string().contains(text), "{refused}");
        to_queue(&router, "dport 1", "flows");
        let twice =
            NewFilter { filter: "dport 1".into(), action: "queue flows".into(), gate: None, priority: 0 };
        let refused = router.add_filter(&twice).unwrap_err().to_string();
        assert!(refused.contains("queue flows is already bound at gate \"schedule\""), "{refused}");
        let elsewhere = NewFilter { gate: Some("route".into()), filter: "dport 2".into(), ..twice };
        let refused = router.add_filter(&elsewhere).unwrap_err().to_string();
        assert!(
            refused.contains("where action queue flows can't be: it takes early, late, queue"),
            "{refused}"
        );
        // A leaf can become another kind of leaf, if its flows have no settings.
        let to_fifo = object(json!({"kind": "fifo", "rate": null}));
        assert!(router.set_scheduler_node("wan", "flows", &to_fifo).is_err());
        router.set_queue("wan", "flows", Some(FLOW), &object(json!({"rate": null}))).unwrap();
        let shown = router.set_scheduler_node("wan", "flows", &to_fifo).unwrap();
        assert_eq!((shown.nodes[0].kind, shown.nodes[0].id), ("fifo", 1));
        assert!(shown.room_packets > 0 && shown.room_bytes > 0);
        let refused =
            router.set_scheduler_node("wan", "flows", &object(json!({"kind": "hfsc"}))).unwrap_err();
        assert!(refused.to_string().contains("is a fifo: only a leaf can become"), "{refused}");
    });
}

/// Returns a priority scheduler with this number of leaves.
fn wide(leaves: u32) -> String {
    let leaf =
        |level: u32| format!("{{ name = \"f{level}\", kind = \"fifo\", under = \"top\", level = {level} }}");
    let leaves: Vec<String> = (0..leaves).map(leaf).collect();
    format!("queues = 65536\nnode = [{{ name = \"top\", kind = \"priority\" }}, {}]", leaves.join(", "))
}

#[test]
fn twenty_thousand_leaves_come_and_go_and_what_runs_is_what_was_said() {
    with_router(async |router| {
        apply(&router, &wide(20_000)).await.unwrap();
        let filter = to_queue(&router, "dport 1", "f19999");
        // One leaf is removed, one becomes another kind, and then all but three are removed.
        let removal = NodeRemoval { to: Some("f50".into()), with_filters: false };
        router.remove_scheduler_node("wan", "f19999", &removal).await.unwrap();
        assert_eq!(actions(&router), [("dport 1".to_owned(), "queue f50".to_owned())]);
        let kind = object(json!({"kind": "fq-codel"}));
        let shown = router.set_scheduler_node("wan", "f7", &kind).unwrap();
        assert_eq!((shown.nodes.len(), shown.default.as_deref()), (20_000, Some("f0")));
        assert_ne!(router.bindings(&PageQuery::default()).unwrap().rows[0].id, filter);
        router.remove_filters(&[router.bindings(&PageQuery::default()).unwrap().rows[0].id]).unwrap();
        apply(&router, &wide(3)).await.unwrap();
        let names: Vec<String> = shown_names(&router);
        assert_eq!(names, ["f0", "f1", "f2", "top"]);
        let removal = NodeRemoval { to: None, with_filters: false };
        apply(&router, &wide(20_000)).await.unwrap();
        router.remove_scheduler_node("wan", "top", &removal).await.unwrap();
        assert!(router.schedulers().unwrap().is_empty());
    });
}

fn shown_names(router: &Router) -> Vec<String> {
    shown(router).into_iter().map(|(name, ..)| name).collect()
}
