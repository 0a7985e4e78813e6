//! Tests of scheduler changes: the saved configuration always equals the running one, and can be read again.

mod commands;
mod configurations;
mod queues;

use millrace_config::Config;
use millrace_controller::operation::{
    AddFilter, AddSchedulerNode, GetConfiguration, GetQueue, GetSchedulerSettings, ListBindings,
    ListSchedulers, RemoveSchedulerNode, SetQueue, SetScheduler, SetSchedulerNode,
};
use millrace_controller::view::{BindingView, FlowQueueView, RemovedNodeView, SchedulerView};
use millrace_controller::{
    ControlError, NewFilter, NodeRemoval, Operation, PageQuery, Principal, Router, SchedulerNode,
    StartOptions, check, start,
};
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

/// Executes an operation as the router itself.
async fn ask<O: Operation>(router: &Router, operation: O) -> Result<O::Answer, ControlError> {
    router.execute(&Principal::router(), operation).await
}

/// Returns the text of the running configuration.
async fn running(router: &Router) -> String {
    ask(router, GetConfiguration).await.unwrap().text
}

async fn bindings(router: &Router) -> Result<Vec<BindingView>, ControlError> {
    ask(router, ListBindings(PageQuery::default())).await.map(|page| page.rows)
}

async fn add_node(router: &Router, port: &str, node: SchedulerNode) -> Result<SchedulerView, ControlError> {
    ask(router, AddSchedulerNode { port: port.to_owned(), node }).await
}

async fn set_node(
    router: &Router,
    name: &str,
    changes: Map<String, Value>,
) -> Result<SchedulerView, ControlError> {
    ask(router, SetSchedulerNode { port: "wan".to_owned(), name: name.to_owned(), changes }).await
}

async fn remove_node(
    router: &Router,
    (port, node): (&str, &str),
    removal: NodeRemoval,
) -> Result<RemovedNodeView, ControlError> {
    ask(router, RemoveSchedulerNode { port: port.to_owned(), node: node.to_owned(), removal }).await
}

/// Changes settings of a queue of port `wan`, or of a flow at this queue.
async fn set_queue(
    router: &Router,
    queue: &str,
    flow: Option<&str>,
    changes: Value,
) -> Result<(), ControlError> {
    let (port, flow, changes) = ("wan".to_owned(), flow.map(str::to_owned), object(changes));
    ask(router, SetQueue { port, queue: queue.to_owned(), flow, changes }).await
}

/// Returns the flows of queue `f` of port `wan`.
async fn flows(router: &Router) -> Vec<FlowQueueView> {
    ask(router, GetQueue { port: "wan".to_owned(), queue: "f".to_owned() }).await.unwrap().flows
}

async fn add(router: &Router, port: &str, node: Value) {
    add_node(router, port, serde_json::from_value(node).unwrap()).await.unwrap();
}

async fn to_queue(router: &Router, filter: &str, queue: &str) -> u64 {
    let action = format!("queue {queue}");
    let new = NewFilter { filter: filter.into(), action, gate: None, priority: 0 };
    ask(router, AddFilter(new)).await.unwrap().id
}

/// Returns the scheduler nodes of the worker: name, parent, promised rate and settings.
async fn shown(router: &Router) -> Vec<(String, Option<String>, Option<u64>, String)> {
    let schedulers = ask(router, ListSchedulers).await.unwrap();
    let nodes = schedulers.into_iter().flat_map(|scheduler| scheduler.nodes);
    let mut nodes: Vec<_> =
        nodes.map(|node| (node.name, node.under, node.promised, json!(node.settings).to_string())).collect();
    nodes.sort();
    nodes
}

async fn actions(router: &Router) -> Vec<(String, String)> {
    bindings(router).await.unwrap().into_iter().map(|one| (one.filter, one.action)).collect()
}

/// Adds a scheduler with three leaves at `wan`. Port `lan` gets a leaf with the name of one of these leaves.
async fn trees(router: &Router) {
    add(router, "wan", json!({"name": "top", "kind": "priority"})).await;
    for (level, leaf) in ["voice", "video", "rest"].into_iter().enumerate() {
        add(router, "wan", json!({"name": leaf, "kind": "fifo", "under": "top", "level": level})).await;
    }
    add(router, "lan", json!({"name": "video", "kind": "fifo"})).await;
}

#[test]
fn leaf_named_by_filters_stays_until_the_filters_are_dealt_with() {
    with_router(async |router| {
        trees(&router).await;
        let low = to_queue(&router, "dport 1", "voice").await;
        to_queue(&router, "dport 2", "voice").await;
        to_queue(&router, "dport 3", "video").await;
        let before = running(&router).await;
        // Neither the leaf `voice` nor the node above it can be removed. The queue `voice` exists at no other
        // port, and filters name it.
        for node in ["voice", "top"] {
            let refused = remove_node(&router, ("wan", node), NodeRemoval::default()).await.unwrap_err();
            for words in
                ["2 filters", &format!("{low} \"dport 1\" (queue voice)"), "--to LEAF", "--with-filters"]
            {
                assert!(refused.to_string().contains(words), "{words}: {refused}");
            }
            assert_eq!(running(&router).await, before);
        }
        // The queue `video` exists at port `lan` too, so its leaf at `wan` can be removed.
        let removed = remove_node(&router, ("wan", "video"), NodeRemoval::default()).await.unwrap();
        assert_eq!(removed.filters.len(), 0);
        let to = |to: &str| NodeRemoval { to: Some(to.into()), with_filters: false };
        // If the target leaf already has a filter for the same packets, the filter with the higher priority
        // stays.
        let with_priority = |filter: &str, queue: &str, priority| NewFilter {
            filter: filter.into(),
            action: format!("queue {queue}"),
            gate: None,
            priority,
        };
        for (filter, queue, priority) in
            [("dport 2", "rest", 5), ("dport 4", "voice", 10), ("dport 4", "rest", 1)]
        {
            ask(&router, AddFilter(with_priority(filter, queue, priority))).await.unwrap();
        }
        let removed = remove_node(&router, ("wan", "voice"), to("rest")).await.unwrap();
        assert_eq!(removed.filters.len(), 3);
        let priority = bindings(&router).await.unwrap();
        let priority = priority.into_iter().find(|one| one.filter == "dport 4").map(|one| one.priority);
        assert_eq!(priority, Some(10));
        let mut now = actions(&router).await;
        now.sort();
        let expected = [
            ("dport 1", "queue rest"),
            ("dport 2", "queue rest"),
            ("dport 3", "queue video"),
            ("dport 4", "queue rest"),
        ];
        assert_eq!(now, expected.map(|(filter, action)| (filter.to_owned(), action.to_owned())));
        let with_filters = NodeRemoval { to: None, with_filters: true };
        let removed = remove_node(&router, ("wan", "top"), with_filters).await.unwrap();
        assert_eq!(removed.filters.iter().map(|one| &*one.action).collect::<Vec<_>>(), ["queue rest"; 3]);
        assert_eq!(actions(&router).await, [("dport 3".to_owned(), "queue video".to_owned())]);
        let refused = remove_node(&router, ("lan", "video"), NodeRemoval::default()).await.unwrap_err();
        assert!(refused.to_string().contains("1 filter names a queue at or below node"), "{refused}");
    });
}

#[test]
fn refusal_names_only_valid_alternatives() {
    with_router(async |router| {
        trees(&router).await;
        let to = |to: &str| NodeRemoval { to: Some(to.into()), with_filters: false };
        for (node, heir, problem) in [
            (
                "voice",
                "voice",
                r#"packets can't move to "voice", which is removed with "voice": choose a leaf that stays"#,
            ),
            ("top", "rest", r#""rest", which is removed with "top""#),
            ("voice", "top", "holds no packets itself"),
            ("voice", "els", "nodes here: top, video, rest"),
        ] {
            let refused = remove_node(&router, ("wan", node), to(heir)).await.unwrap_err();
            assert!(refused.to_string().contains(problem), "{refused}");
        }
        let node = json!({"name": "new", "kind": "fifo", "under": "els", "level": 5});
        let node = serde_json::from_value(node).unwrap();
        let refused = add_node(&router, "wan", node).await.map(|view| view.nodes.len()).unwrap_err();
        assert!(refused.to_string().ends_with("nodes here: top, voice, video, rest"), "{refused}");
        let limit = SetScheduler { port: "wan".to_owned(), changes: object(json!({"limit": 5})) };
        let refused = ask(&router, limit).await.map(drop).unwrap_err();
        let settings =
            "settings of a port's scheduler here: rate, overhead, default, queues, host, host-weight";
        assert!(refused.to_string().ends_with(settings), "{refused}");
        assert_eq!(shown(&router).await.len(), 5);
    });
}

#[test]
fn a_leaf_goes_to_another_place_by_a_setting() {
    with_router(async |router| {
        trees(&router).await;
        add(
            &router,
            "wan",
            json!({"name": "fair", "kind": "deficit-round-robin", "under": "top", "level": 9}),
        )
        .await;
        let moved = json!({"under": "fair", "quantum": "3000B", "level": null});
        set_node(&router, "voice", object(moved)).await.unwrap();
        // The former default leaf stays the default.
        let settings = ask(&router, GetSchedulerSettings { port: "wan".to_owned() }).await.unwrap().unwrap();
        assert_eq!(settings.default.as_deref(), Some("voice"));
        let voice = shown(&router).await.into_iter().find(|node| node.0 == "voice").unwrap();
        assert_eq!((voice.1.as_deref(), voice.3.contains("3000")), (Some("fair"), true), "{voice:?}");
        for (under, problem) in [("rest", "a fifo"), ("fiar", "did you mean"), ("fair", "own ancestor")] {
            let node = if under == "fair" { "fair" } else { "voice" };
            let refused = set_node(&router, node, object(json!({"under": under}))).await.unwrap_err();
            assert!(refused.to_string().contains(problem), "{refused}");
        }
        // The saved configuration can be read again.
        let text = running(&router).await;
        check(&Config::parse(&text, "saved").unwrap()).unwrap();
    });
}
