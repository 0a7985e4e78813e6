//! Tests of principals that filters give to paths, and of reservations for flows.

use millrace_controller::PrincipalSettings;
use millrace_controller::operation::{
    AddPrincipal, Bind, CreateInstance, GetConfiguration, GetPromises, ReleaseFlow, RemoveFilter,
    RemovePrincipal, ReserveFlow, SetPrincipal,
};
use millrace_controller::{NewBinding, OldFilter};
use serde_json::{Value, json};

use super::*;

const SIP: &str = "src 10.1.0.2 dst 10.2.0.2 proto udp sport 9 dport 5060 in lan";

async fn add_principal(router: &Router, settings: &str) {
    let entry = format!("[[principal]]\n{settings}\n");
    let principal: PrincipalSettings = Config::parse(&entry, "test").unwrap().principal.remove(0);
    ask(router, AddPrincipal(principal)).await.unwrap();
}

async fn set_principal(router: &Router, name: &str, changes: Value) {
    let changes = changes.as_object().unwrap().clone();
    ask(router, SetPrincipal { name: name.into(), changes }).await.unwrap();
}

/// Returns the principals with promises, each with its number of bindings; without core.
async fn paying(router: &Router) -> Vec<(String, usize)> {
    let promises = ask(router, GetPromises).await.unwrap().promises;
    let named = promises.into_iter().filter(|one| !["core", "control"].contains(&&*one.principal));
    named.map(|one| (one.principal, one.bindings)).collect()
}

fn bind(instance: &str) -> NewBinding {
    let binding = json!({"instance": instance, "gate": "process", "filter": "proto udp"});
    serde_json::from_value(binding).unwrap()
}

fn reserve(body: Value) -> ReserveFlow {
    serde_json::from_value(body).unwrap()
}

/// Returns the outcome of the filter that wins at a gate for a packet to port 5060.
async fn outcome(router: &Router, gate: &str) -> String {
    let gates = explain(router, SIP).await.unwrap();
    let gate = gates.into_iter().find(|one| one.gate == gate).unwrap();
    gate.candidates.into_iter().find(|one| one.chosen).unwrap().outcome
}

#[test]
fn principal_of_a_filter_pays_reserves_and_is_shown() {
    with_router(async |router| {
        add_principal(&router, "name = \"video\"\ncpu = \"10 %\"").await;
        add_principal(&router, "name = \"big\"\ncpu = \"45 %\"").await;
        ask(&router, Bind(bind("stats1"))).await.unwrap();
        assert_eq!(outcome(&router, "process").await, "chosen");
        let added = add_filter(&router, filter("proto udp dport 5060", "principal video")).await.unwrap();
        assert_eq!((&*added.action, &*added.gate), ("principal video", "schedule"));
        assert_eq!(added.calls.principal.as_deref(), Some("video"));
        assert_eq!(paying(&router).await, [("video".to_owned(), 1)]);
        let in_line = outcome(&router, "process").await;
        assert!(in_line.ends_with("the call runs in line, charged to principal video"), "{in_line}");
        let settings = json!({"plugin": "null", "name": "busy", "settings": {"work": 5000}});
        ask(&router, serde_json::from_value::<CreateInstance>(settings).unwrap()).await.unwrap();
        let queue = json!({"instance": "busy", "gate": "process", "filter": "proto udp dport 5060"});
        ask(&router, Bind(serde_json::from_value(queue).unwrap())).await.unwrap();
        let waits = outcome(&router, "process").await;
        assert!(waits.ends_with("packets wait for the processor, which principal video pays for"), "{waits}");
        let given = outcome(&router, "schedule").await;
        assert!(given.ends_with("it pays for bindings that name no principal"), "{given}");
        let text = ask(&router, GetConfiguration).await.unwrap().text;
        assert!(text.contains("action = \"principal video\""), "{text}");
        let refused = async |action: &str, expected: &str| {
            let error = add_filter(&router, filter("proto tcp", action)).await.unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        refused("principal vide", "did you mean \"video\"").await;
        refused("principal big", "cpu is 45 %, but the other principals leave 40 %").await;
        let error = ask(&router, RemovePrincipal { name: "video".into() }).await.unwrap_err().to_string();
        assert!(error.contains("is named by 1 filter"), "{error}");
    });
}

#[test]
fn filters_follow_the_payer_of_their_principal() {
    with_router(async |router| {
        add_principal(&router, "name = \"a\"\ncpu = \"10 %\"").await;
        add_principal(&router, "name = \"b\"").await;
        set_principal(&router, "b", json!({"cpu": {"same-as": "a"}})).await;
        add_filter(&router, filter("proto udp", "principal b")).await.unwrap();
        assert_eq!(paying(&router).await, [("a".to_owned(), 1)]);
        set_principal(&router, "b", json!({"cpu": "5 %"})).await;
        assert_eq!(paying(&router).await, [("b".to_owned(), 1)]);
        let rows = bindings(&router).await;
        assert_eq!(rows.iter().filter(|row| row.action == "principal b").count(), 1);
        let (filter, action) = ("proto udp".into(), "principal b".into());
        let old = OldFilter { filter, action, gate: None, priority: None };
        ask(&router, RemoveFilter(old)).await.unwrap();
        assert_eq!(paying(&router).await, []);
    });
}

#[test]
fn changes_of_same_as_take_effect_or_are_refused() {
    with_router(async |router| {
        add_principal(&router, "name = \"a\"\ncpu = \"10 %\"").await;
        add_principal(&router, "name = \"b\"").await;
        let entries = async || {
            let principals = Config::parse(&ask(&router, GetConfiguration).await.unwrap().text, "test");
            principals.unwrap().principal
        };
        for key in ["same-as", "same_as"] {
            set_principal(&router, "b", json!({"cpu": {"same_as": "a"}})).await;
            set_principal(&router, "b", json!({"cpu": {key: null}})).await;
            assert!(entries().await[1].cpu.is_none(), "{key}");
        }
        // An own share is not named by `same-as`.
        set_principal(&router, "a", json!({"cpu": {"same_as": null}})).await;
        assert_eq!(entries().await[0].reserved_cpu().unwrap().ppm(), 100_000);
        let refused = async |changes: Value, expected: &str| {
            let changes = changes.as_object().unwrap().clone();
            let error =
                ask(&router, SetPrincipal { name: "a".into(), changes }).await.unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        refused(json!({"cpu": {"same": null}}), "did you mean \"same-as\"?").await;
        refused(json!({"cpu": {"same-as": "unknown"}}), "\"unknown\"; principals here: b, default").await;
    });
}

#[test]
fn reservation_pays_at_once_and_is_released_whole() {
    with_router(async |router| {
        let before = ask(&router, GetConfiguration).await.unwrap().text;
        let done =
            ask(&router, reserve(json!({"filter": "proto udp dport 5060", "cpu": "5 %"}))).await.unwrap();
        let commands = [
            "principal add flow-1 'cpu=5 %'",
            "filter add 'proto udp dport 5060' --action 'principal flow-1'",
        ];
        assert_eq!(done.changes, commands);
        assert_eq!(paying(&router).await, [("flow-1".to_owned(), 1)]);
        assert_eq!((done.left.cpu, done.left.link.len()), (45.0, 0));
        let dry = reserve(json!({"filter": "proto tcp", "cpu": "45 %", "dry_run": true}));
        let planned = ask(&router, dry).await.unwrap();
        assert_eq!((&*planned.principal, planned.changes.len(), planned.left.cpu), ("flow-2", 2, 0.0));
        assert_eq!(paying(&router).await, [("flow-1".to_owned(), 1)]);
        for (body, expected) in [
            (json!({"filter": "proto tcp", "cpu": "46 %", "dry_run": true}), "45 %"),
            (json!({"filter": "proto tcp in lam", "cpu": "1 %", "dry_run": true}), "did you mean \"lan\""),
            (json!({"filter": "proto udp dport 5060", "cpu": "1 %", "dry_run": true}), "has the same match"),
            (
                json!({"filter": "proto tcp", "cpu": "1 %", "instance": "stats1", "gate": "late", "dry_run": true}),
                "late",
            ),
        ] {
            let error = ask(&router, reserve(body.clone())).await.unwrap_err().to_string();
            assert!(error.contains(expected), "{body}: {error}");
        }
        let too_much = reserve(json!({"filter": "proto tcp", "cpu": "46 %"}));
        let error = ask(&router, too_much).await.unwrap_err().to_string();
        assert!(error.contains("45 %"), "{error}");
        ask(&router, ReleaseFlow { name: "flow-1".into(), drop: false }).await.unwrap();
        assert_eq!(ask(&router, GetConfiguration).await.unwrap().text, before);
    });
}
