//! Tests of trials: they are refused like the requests themselves, tell what would be, and change nothing.

use super::allowances::{caller, lab, with_allowance};
use super::*;
use crate::model::placements::Placements;
use crate::view::{ComponentView, TrialView};

/// Returns what a request could change: the configuration, the places of services, and the revision.
fn state(router: &Router) -> (Config, Placements, Option<u64>) {
    let running = router.running();
    let inner = router.lock();
    (running, inner.model.placements.clone(), inner.settings.base.revision)
}

/// Tries a request, which must change nothing.
async fn tried(router: &Router, by: &Principal, trial: Trial) -> TrialView {
    let before = state(router);
    let view = router.execute(by, trial).await.unwrap();
    assert_eq!(state(router), before);
    assert!(router.to_change().is_ok(), "no transaction is left");
    view
}

/// Checks that a request and its trial are refused with the same error, which contains `expected`.
async fn both_refused<O: Operation + Clone>(
    router: &Router,
    by: &Principal,
    operation: O,
    trial: fn(O) -> Trial,
    expected: &str,
) {
    let before = state(router);
    let tried = router.execute(by, trial(operation.clone())).await.expect_err(expected).to_string();
    let error = router.execute(by, operation).await.err().expect(expected).to_string();
    assert_eq!(tried, error);
    assert!(error.contains(expected), "{error}\n{expected}");
    assert_eq!(state(router), before);
}

fn component<'t>(components: &'t [ComponentView], name: &str) -> &'t ComponentView {
    components.iter().find(|one| one.component == name).expect(name)
}

fn moved(changes: Value) -> MoveInstance {
    MoveInstance { name: "s".to_owned(), changes: settings(changes) }
}

/// Creates the instance `s` with a declared load.
async fn with_service() -> Router {
    let router = with_allowance().await;
    let service = Some(read(json!({"rate": 100, "packet": 1000})));
    let (plugin, name) = ("null".to_owned(), "s".to_owned());
    let create = CreateInstance { plugin, name, settings: Map::new(), service };
    router.execute(&Principal::router(), create).await.unwrap();
    router
}

#[tokio::test]
async fn tried_move_tells_the_level_and_what_would_be_left() {
    let router = with_service().await;
    let root = caller("root", Role::Admin);
    let asked = || moved(json!({"rate": 200, "worker": 1}));
    let trial = tried(&router, &root, Trial::MoveInstance(asked())).await;
    assert_eq!(trial.changes, ["instance move s --rate 200 --worker 1"]);
    assert_eq!((trial.levels, trial.allowance), ([("s".to_owned(), "worker")].into(), None));
    assert_eq!(component(&trial.components, "worker 1").claims[0].by, "instance s");
    // The trial promises what the move does.
    router.execute(&root, asked()).await.unwrap();
    let now = router.execute(&root, GetAdmission).await.unwrap();
    assert_eq!(trial.components, now.components);
    let gone = moved(json!({"rate": null, "packet": null, "worker": null}));
    let trial = tried(&router, &root, Trial::MoveInstance(gone)).await;
    assert!(trial.levels.is_empty(), "it would be no service");
    router.shutdown().await.unwrap();
}

#[tokio::test]
async fn tried_move_is_refused_like_the_move() {
    let router = with_service().await;
    let root = caller("root", Role::Admin);
    for (by, changes, expected) in [
        (&root, json!({"level": "offload"}), "its plugin has no eBPF variant"),
        (&root, json!({"level": "host"}), "its plugin is built in"),
        (&root, json!({"rate": u32::MAX}), "no room for 4294967295 packets"),
        (&root, json!({"worker": 7}), "2 workers"),
        (&root, json!({"speed": 7}), "speed"),
        (&lab(), json!({"rate": 200}), "a declared load needs the role admin"),
        (&lab(), json!({"level": "offload"}), "runs at the level offload; levels here: worker"),
        (&caller("eve", Role::Viewer), json!({"level": "worker"}), "needs the role operator"),
    ] {
        both_refused(&router, by, moved(changes), Trial::MoveInstance, expected).await;
    }
    let unknown = MoveInstance { name: "t".to_owned(), changes: Map::new() };
    both_refused(&router, &root, unknown, Trial::MoveInstance, "\"t\"").await;
    // A packet has no two workers.
    let service = Some(read(json!({"worker": 0})));
    let (plugin, name) = ("null".to_owned(), "other".to_owned());
    let create = CreateInstance { plugin, name, settings: Map::new(), service };
    router.execute(&root, create).await.unwrap();
    for (instance, gate) in [("other", "audit"), ("s", "empty")] {
        let bind = json!({"instance": instance, "gate": gate, "filter": "proto udp dport 53"});
        router.execute(&root, Bind(read(bind))).await.unwrap();
    }
    let refusal = "instance \"s\" is pinned to worker 1, but instance \"other\"";
    both_refused(&router, &root, moved(json!({"worker": 1})), Trial::MoveInstance, refusal).await;
    router.shutdown().await.unwrap();
}

#[tokio::test]
async fn tried_part_that_may_be_promised_is_refused_like_the_change_and_tells_what_would_be_left() {
    let router = with_allowance().await;
    let root = caller("root", Role::Admin);
    let set = |changes: Value| SetAdmission { changes: settings(changes) };
    let reserve = json!({"filter": "proto udp", "principal": "r", "link": "4mbit", "port": "wan"});
    router.execute(&root, read::<ReserveFlow>(reserve)).await.unwrap();
    let trial = tried(&router, &root, Trial::SetAdmission(set(json!({"link": "50 %"})))).await;
    assert_eq!(trial.changes, ["admission set 'link=50 %'"]);
    let link = component(&trial.components, "link wan");
    assert_eq!((link.whole, link.left), (Some(5e6), Some(1e6)));
    let now = router.execute(&root, GetAdmission).await.unwrap();
    assert_eq!(component(&now.components, "link wan").whole, Some(1e7));
    for (by, changes, expected) in [
        (&root, json!({"link": "10 %"}), "\"r\""),
        (&root, json!({"lnk": "50 %"}), "link"),
        (&lab(), json!({"link": "50 %"}), "needs the role admin"),
    ] {
        both_refused(&router, by, set(changes), Trial::SetAdmission, expected).await;
    }
    router.shutdown().await.unwrap();
}

#[tokio::test]
async fn tried_allowance_is_refused_like_the_change_and_tells_what_its_users_hold() {
    let router = with_allowance().await;
    let (root, alice) = (caller("root", Role::Admin), caller("alice", Role::Admin));
    let set = |name: &str, changes: Value| SetAllowance { name: name.to_owned(), changes: settings(changes) };
    let trial = tried(&router, &root, Trial::SetAllowance(set("students", json!({"principals": 7})))).await;
    assert_eq!(trial.changes, ["allowance set students principals=7"]);
    let allowance = trial.allowance.unwrap();
    assert_eq!((&*allowance.name, allowance.principals, allowance.held.len()), ("students", Some(7), 2));
    let listed = router.execute(&root, ListAllowances).await.unwrap();
    assert_eq!(listed[0].principals, Some(2));
    for (by, name, changes, expected) in [
        (&root, "student", json!({"principals": 7}), "students"),
        (&root, "students", json!({"principal": 7}), "principals"),
        (&root, "students", json!({"link": {"wa": "1mbit"}}), "did you mean \"wan\""),
        (&alice, "students", json!({"principals": 7}), "only other users may change allowances"),
        (&lab(), "students", json!({"principals": 7}), "needs the role admin"),
    ] {
        both_refused(&router, by, set(name, changes), Trial::SetAllowance, expected).await;
    }
    let add = |name: &str| AddAllowance(read(json!({"name": name, "user": ["bob"], "cpu": "5 %"})));
    let trial = tried(&router, &root, Trial::AddAllowance(add("guests"))).await;
    assert_eq!(trial.allowance.unwrap().user, ["bob"]);
    both_refused(&router, &root, add("students"), Trial::AddAllowance, "exists already").await;
    both_refused(&router, &lab(), add("guests"), Trial::AddAllowance, "needs the role admin").await;
    router.shutdown().await.unwrap();
}

#[tokio::test]
async fn tried_settings_of_the_router_are_refused_like_the_change_and_tell_what_would_be_left() {
    let router = with_service().await;
    let root = caller("root", Role::Admin);
    let set = |changes: Value| SetSettings { changes: settings(changes) };
    let now = router.execute(&root, GetAdmission).await.unwrap();
    let trial = tried(&router, &root, Trial::SetSettings(set(json!({"core-ceiling": "80 %"})))).await;
    assert!(trial.changes[0].starts_with("router set") && trial.changes.len() == 1, "{:?}", trial.changes);
    let workers = |components: &[ComponentView]| component(components, "workers").whole;
    assert!(workers(&trial.components) < workers(&now.components));
    for (by, changes, expected) in [
        (&root, json!({"core-ceilings": "80 %"}), "core-ceiling"),
        (&root, json!({"workers": 1}), "workers"),
        (&lab(), json!({"core-ceiling": "80 %"}), "needs the role admin"),
    ] {
        both_refused(&router, by, set(changes), Trial::SetSettings, expected).await;
    }
    router.shutdown().await.unwrap();
}
