//! Tests of services that are pinned to a worker: their room, their bindings, and the changes between workers.

use super::*;
use crate::configuration::{Apply, RollBack};

const OWN: fn() -> Principal = Principal::router;

fn create(name: &str, service: Value) -> CreateInstance {
    CreateInstance {
        plugin: "null".to_owned(),
        name: name.to_owned(),
        settings: Map::new(),
        service: read(service),
    }
}

fn move_to(name: &str, changes: Value) -> MoveInstance {
    MoveInstance { name: name.to_owned(), changes: settings(changes) }
}

fn bind(instance: &str, gate: &str, filter: &str) -> Bind {
    Bind(read(json!({"instance": instance, "gate": gate, "filter": filter})))
}

async fn refused<O: Operation>(router: &Router, operation: O, expected: &str) {
    let error = router.execute(&OWN(), operation).await.err().expect(expected).to_string();
    assert!(error.contains(expected), "{error}\n{expected}");
}

/// Returns the workers of the bindings of an instance.
fn workers_of(router: &Router, instance: &str) -> Vec<Option<u16>> {
    let inner = router.lock();
    let id = inner.model.plugins.instance(instance).unwrap();
    let all = inner.model.plugins.bindings_by_age().map(|(_, bound)| bound);
    all.filter(|bound| bound.action.instance() == Some(id)).map(|bound| bound.call_limits.worker).collect()
}

#[tokio::test]
async fn service_runs_at_its_worker_and_bindings_follow_it() {
    let router = started().await;
    let own = OWN();
    refused(
        &router,
        create("a", json!({"worker": 2})),
        "there is no worker 2: the router has 2 workers, numbered from 0 on",
    )
    .await;
    let both = json!({"worker": 1, "level": "host"});
    refused(&router, create("a", both), "worker 1 excludes the level host").await;
    router.execute(&own, create("a", json!({"worker": 1}))).await.unwrap();
    let written = router.running().to_text().unwrap();
    router.execute(&own, bind("a", "audit", "proto udp")).await.unwrap();
    assert_eq!(workers_of(&router, "a"), [Some(1)]);
    router.execute(&own, move_to("a", json!({"worker": 0}))).await.unwrap();
    assert_eq!(workers_of(&router, "a"), [Some(0)]);
    refused(&router, move_to("a", json!({"level": "offload"})), "worker 0 excludes the level offload").await;
    router.execute(&own, move_to("a", json!({"worker": null}))).await.unwrap();
    assert_eq!(workers_of(&router, "a"), [None]);
    // The configuration before the binding is applied, and the one with it comes back.
    let bound = router.running();
    let apply = |text: String| Apply { text, ..Apply::default() };
    let first = router.execute(&own, apply(bound.to_text().unwrap())).await.unwrap().revision;
    router.execute(&own, apply(written)).await.unwrap();
    assert_eq!(router.running().instance.last().unwrap().service.unwrap().worker, Some(1));
    if let Some(revision) = first {
        router.execute(&own, RollBack { revision: Some(revision), ..RollBack::default() }).await.unwrap();
        assert_eq!(router.running(), bound);
    }
    router.shutdown().await.unwrap();
}

#[tokio::test]
async fn full_worker_refuses_a_service_that_another_worker_takes() {
    let router = started().await;
    let own = OWN();
    let whole = crate::workers::tsc::frequency() as f64;
    let load = |part: f64, worker: Option<u16>| json!({"rate": 1000, "packet": whole * part / 1000.0, "worker": worker});
    router.execute(&own, create("a", load(0.3, Some(1)))).await.unwrap();
    refused(&router, create("b", load(0.9, Some(1))), "% of worker 1").await;
    let most = router.execute(&own, create("b", load(0.9, Some(1)))).await.unwrap_err().to_string();
    assert!(most.contains("packets per second would fit"), "{most}");
    router.execute(&own, create("b", load(0.3, Some(0)))).await.unwrap();
    let shown = router.execute(&own, GetAdmission).await.unwrap().components;
    let claims = |name: &str| {
        let found = shown.iter().find(|one| one.component == name).unwrap();
        found.claims.iter().map(|claim| claim.by.clone()).collect::<Vec<_>>()
    };
    assert_eq!(
        (claims("worker 0"), claims("worker 1")),
        (vec!["instance b".into()], vec!["instance a".into()])
    );
    let place: ExplainService =
        read(json!({"plugin": "null", "instance": "c", "service": load(0.9, Some(0))}));
    refused(&router, place, "% of worker 0").await;
    router.shutdown().await.unwrap();
}

#[tokio::test]
async fn packet_has_no_two_workers() {
    let router = started().await;
    let own = OWN();
    for (name, worker) in [("a", 0), ("b", 1), ("c", 0)] {
        router.execute(&own, create(name, json!({"worker": worker}))).await.unwrap();
    }
    router.execute(&own, bind("a", "audit", "proto udp dport 53")).await.unwrap();
    let refusal = "instance \"b\" is pinned to worker 1, but instance \"a\", which is pinned to worker 0";
    refused(&router, bind("b", "empty", "proto udp"), refusal).await;
    router.execute(&own, bind("b", "empty", "proto udp dport 54")).await.unwrap();
    router.execute(&own, bind("c", "empty", "proto udp dport 53")).await.unwrap();
    refused(
        &router,
        move_to("c", json!({"worker": 1})),
        "instance \"c\" is pinned to worker 1, but instance \"a\"",
    )
    .await;
    router.execute(&own, move_to("c", json!({"worker": null}))).await.unwrap();
    let gates = router
        .lock()
        .model
        .plugins
        .gates()
        .iter()
        .map(|gate| (gate.name.clone(), gate.position))
        .collect::<Vec<_>>();
    let queue = gates.iter().find(|(_, position)| *position == "queue");
    if let Some((queue, _)) = queue {
        refused(&router, bind("a", queue, "proto tcp"), "copies pass gate").await;
    }
    let whole = router.running().to_text().unwrap().replacen("dport 54", "dport 53", 1);
    refused(&router, Apply { text: whole, ..Apply::default() }, "pinned to worker 1").await;
    router.shutdown().await.unwrap();
}

#[test]
fn configured_bindings_run_at_the_worker_of_their_service() {
    let text = |second: u16| {
        let instance = |name: &str, gate: &str, worker: u16| {
            format!(
                "[[instance]]\nplugin = \"null\"\nname = \"{name}\"\nservice = {{ worker = {worker} }}\n\
                 [[bind]]\ninstance = \"{name}\"\ngate = \"{gate}\"\nfilter = \"proto udp\"\n"
            )
        };
        format!("{CONFIG}\n{}{}", instance("a", "audit", 1), instance("b", "empty", second))
    };
    let planned = |second| crate::model::Model::planned(&Config::parse(&text(second), "f").unwrap());
    let model = planned(1).unwrap();
    let workers = model.plugins.bindings_by_age().map(|(_, bound)| bound.call_limits.worker);
    assert_eq!(workers.flatten().collect::<Vec<_>>(), [1, 1]);
    assert!(model.placements.planned.is_empty());
    let error = planned(0).unwrap_err().to_string();
    assert!(error.contains("instance \"b\" is pinned to worker 0, but instance \"a\""), "{error}");
}
