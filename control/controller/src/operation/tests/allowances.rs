//! Tests of allowances: what they refuse, and the owners of principals.

use std::sync::Arc;

use millrace_plugin_abi::{DeclaredCycles, DeclaredNeeds, Instance, Plugin, PluginError, Position};

use super::*;
use crate::configuration::Apply;
use crate::configuration::RollBack;

/// Allowance of the user `token lab`, and of user `alice`, who is an admin.
const ALLOWANCE: &str = r#"{"name": "students", "user": ["token lab", "alice"], "level": ["worker"], "cpu": "30 %",
    "link": {"wan": "2mbit"}, "memory": "8MiB", "principals": 2}"#;

pub(super) fn caller(name: &str, role: Role) -> Principal {
    let who = millrace_store::Who { uid: None, name: name.to_owned() };
    Principal { who, role: Some(role), pid: None, from: None }
}

pub(super) fn lab() -> Principal {
    caller("token lab", Role::Operator)
}

pub(super) async fn with_allowance() -> Router {
    let router = started().await;
    let allowance = serde_json::from_str(ALLOWANCE).unwrap();
    router.execute(&Principal::router(), AddAllowance(read(allowance))).await.unwrap();
    router
}

async fn refused<O: Operation>(router: &Router, by: &Principal, operation: O, expected: &str) {
    let error = router.execute(by, operation).await.err().expect(expected).to_string();
    assert!(error.contains(expected), "{error}\n{expected}");
}

async fn add(
    router: &Router,
    by: &Principal,
    json: Value,
) -> Result<crate::view::PrincipalView, ControlError> {
    router.execute(by, AddPrincipal(read(json))).await
}

fn set(name: &str, changes: Value) -> SetPrincipal {
    SetPrincipal { name: name.to_owned(), changes: settings(changes) }
}

#[tokio::test]
async fn user_holds_no_more_than_the_allowance_in_all() {
    let router = with_allowance().await;
    let new = |json: Value| AddPrincipal(read(json));
    let a =
        add(&router, &lab(), json!({"name": "a", "cpu": "20 %", "link": {"wan": "1mbit"}})).await.unwrap();
    assert_eq!(a.owner.as_deref(), Some("token lab"));
    for (json, expected) in [
        (
            json!({"name": "b", "cpu": "20 %"}),
            "allowance \"students\" of token lab: cpu: 20 % more are asked for, but 10 % of 30 % are left: ask for at \
             most 10 %",
        ),
        (
            json!({"name": "b", "link": {"wan": "1500kbit"}}),
            "link wan: 1500kbit more are asked for, but 1mbit of 2mbit",
        ),
        (
            json!({"name": "b", "link": {"lan": "1mbit"}}),
            "link lan: 1mbit more are asked for, but 0bit of 0bit",
        ),
        (
            json!({"name": "b", "memory": "9MiB"}),
            "memory: 9MiB more are asked for, but 8MiB of 8MiB are left",
        ),
        (json!({"name": "b", "weight": 7}), "principal \"b\": `weight` needs the role admin"),
        (json!({"name": "b", "process": ["sshd"]}), "principal \"b\": `process` needs the role admin"),
        (json!({"name": "b", "owner": "bob"}), "principal \"b\" belongs to \"bob\""),
    ] {
        refused(&router, &lab(), new(json), expected).await;
    }
    refused(&router, &lab(), set("a", json!({"cpu": "31 %"})), "cpu: 11 % more are asked for, but 10 %")
        .await;
    router.execute(&lab(), set("a", json!({"cpu": "30 %"}))).await.unwrap();
    add(&router, &lab(), json!({"name": "b"})).await.unwrap();
    refused(
        &router,
        &lab(),
        new(json!({"name": "c"})),
        "principals: 1 more are asked for, but 0 of 2 are left",
    )
    .await;
    // Each user of the allowance has the whole of it; the router itself has no limit.
    add(&router, &caller("alice", Role::Admin), json!({"name": "c", "cpu": "30 %"})).await.unwrap();
    router.execute(&Principal::router(), RemovePrincipal { name: "c".to_owned() }).await.unwrap();
    let listed = router.execute(&lab(), ListAllowances).await.unwrap();
    let held: Vec<_> = listed[0].held.iter().map(|one| (&*one.user, one.cpu, one.principals)).collect();
    assert_eq!(held, [("token lab", 30.0, 2), ("alice", 0.0, 0)]);
    // What exceeds a lowered allowance may stay and shrink, but not grow.
    let lower = SetAllowance { name: "students".to_owned(), changes: settings(json!({"cpu": "10 %"})) };
    router.execute(&Principal::router(), lower).await.unwrap();
    refused(&router, &lab(), set("b", json!({"cpu": "1 %"})), "cpu: 1 % more are asked for, but 0 % of 10 %")
        .await;
    router.execute(&lab(), set("a", json!({"cpu": "20 %"}))).await.unwrap();
    router.shutdown().await.unwrap();
}

#[tokio::test]
async fn user_changes_and_names_only_own_principals_and_no_allowance() {
    let router = with_allowance().await;
    let operator = caller("token other", Role::Operator);
    refused(
        &router,
        &operator,
        AddPrincipal(read(json!({"name": "a"}))),
        "no allowance concerns token other",
    )
    .await;
    let root = caller("root", Role::Admin);
    let foreign = add(&router, &root, json!({"name": "foreign", "cpu": "50 %"})).await.unwrap();
    assert_eq!(foreign.owner.as_deref(), Some("root"));
    let refusal = "allowance \"students\" of token lab: principal \"foreign\" belongs to \"root\"";
    refused(&router, &lab(), set("foreign", json!({"cpu": "1 %"})), refusal).await;
    refused(&router, &lab(), RemovePrincipal { name: "foreign".to_owned() }, refusal).await;
    refused(&router, &lab(), ReleaseFlow { name: "foreign".to_owned(), drop: true }, refusal).await;
    let shared = json!({"name": "a", "cpu": {"same-as": "foreign"}});
    refused(&router, &lab(), AddPrincipal(read(shared)), "\"foreign\" belongs to another user").await;
    let bind = |principal: &str| {
        Bind(read(json!({"instance": "pf", "gate": "audit", "filter": "proto tcp", "principal": principal})))
    };
    refused(&router, &lab(), bind("foreign"), "no own principals here").await;
    let filter = json!({"match": "proto udp", "action": "principal foreign"});
    refused(&router, &lab(), AddFilter(read(filter.clone())), "\"foreign\" belongs to another user").await;
    refused(&router, &lab(), AddFilters(vec![read(filter.clone())]), "\"foreign\" belongs to another user")
        .await;
    // Neither does an allowance of another user give it away.
    refused(&router, &operator, bind("foreign"), "\"foreign\" belongs to another user").await;
    refused(&router, &operator, AddFilter(read(filter)), "\"foreign\" belongs to another user").await;
    add(&router, &lab(), json!({"name": "own", "cpu": "5 %"})).await.unwrap();
    router.execute(&lab(), bind("own")).await.unwrap();
    let alice = caller("alice", Role::Admin);
    let more = SetAllowance { name: "students".to_owned(), changes: settings(json!({"cpu": null})) };
    refused(&router, &alice, more, "only other users may change allowances").await;
    let gone = RemoveAllowance { name: "students".to_owned() };
    refused(&router, &alice, gone, "only other users may change allowances").await;
    let reserve = json!({"filter": "proto udp", "link": "3mbit", "port": "wan"});
    refused(&router, &lab(), read::<ReserveFlow>(reserve), "link wan: 3mbit more are asked for").await;
    let wrong = json!({"link": {"wa": "1mbit"}, "processor": ["worker 0"]});
    let wrong = SetAllowance { name: "students".to_owned(), changes: settings(wrong) };
    refused(&router, &root, wrong, "no port is named \"wa\": did you mean \"wan\"?").await;
    router.shutdown().await.unwrap();
}

#[tokio::test]
async fn instances_and_flows_run_only_at_allowed_levels_and_processors() {
    let router = with_allowance().await;
    let create = |name: &str| CreateInstance {
        plugin: "null".to_owned(),
        name: name.to_owned(),
        settings: Map::new(),
        service: None,
    };
    router.execute(&lab(), create("w")).await.unwrap();
    let create_with =
        |level: Option<&str>| CreateInstance { service: Some(read(json!({"level": level}))), ..create("s") };
    let refusal = "instance \"s\" runs at the level offload; levels here: worker";
    refused(&router, &lab(), create_with(Some("offload")), refusal).await;
    router.execute(&lab(), create_with(Some("worker"))).await.unwrap();
    let move_to =
        |level: &str| MoveInstance { name: "s".to_owned(), changes: settings(json!({"level": level})) };
    refused(&router, &lab(), move_to("offload"), refusal).await;
    router.execute(&lab(), move_to("worker")).await.unwrap();
    let place = |level: &str| PlaceFlows(read(json!({"flow": "proto udp dport 7", "level": level})));
    refused(&router, &lab(), place("offload"), "runs at the level offload; levels here: worker").await;
    router.execute(&lab(), place("worker")).await.unwrap();
    let other = SetAllowance {
        name: "students".to_owned(),
        changes: settings(json!({"level": null, "processor": ["host"]})),
    };
    router.execute(&Principal::router(), other).await.unwrap();
    refused(
        &router,
        &lab(),
        create("v"),
        "instance \"v\" runs on the processor \"worker 0\"; processors here: host",
    )
    .await;
    router.shutdown().await.unwrap();
}

#[tokio::test]
async fn only_admins_declare_change_and_free_loads() {
    let router = with_allowance().await;
    let operator = caller("token other", Role::Operator);
    let create = |name: &str| CreateInstance {
        plugin: "null".to_owned(),
        name: name.to_owned(),
        settings: Map::new(),
        service: Some(read(json!({"rate": 1000, "packet": 100}))),
    };
    let root = caller("root", Role::Admin);
    router.execute(&root, create("loaded")).await.unwrap();
    let move_to = |changes: Value| MoveInstance { name: "loaded".to_owned(), changes: settings(changes) };
    for by in [&operator, &lab()] {
        let refusal = "a declared load needs the role admin";
        refused(&router, by, create("other"), refusal).await;
        refused(&router, by, Trial::CreateInstance(create("other")), refusal).await;
        refused(&router, by, move_to(json!({"rate": 2000})), refusal).await;
        refused(&router, by, move_to(json!({"packet": 1})), refusal).await;
        refused(&router, by, move_to(json!({"rate": null})), refusal).await;
        refused(&router, by, FreeInstance { name: "loaded".to_owned() }, refusal).await;
    }
    router.execute(&operator, move_to(json!({"level": "worker"}))).await.unwrap();
    assert_eq!(router.running().instance.iter().filter(|one| one.service.is_some()).count(), 1);
    router.execute(&root, FreeInstance { name: "loaded".to_owned() }).await.unwrap();
    router.shutdown().await.unwrap();
}

/// Plugin `null` with another name, whose instances need memory or cycles even without packets.
struct Needing(&'static str, DeclaredNeeds, Option<DeclaredCycles>);

impl Plugin for Needing {
    fn name(&self) -> &'static str {
        self.0
    }

    fn version(&self) -> &'static str {
        "1.0.0"
    }

    fn summary(&self) -> &'static str {
        "Needs memory or cycles without packets."
    }

    fn positions(&self) -> &[Position] {
        &Position::ALL
    }

    fn messages(&self) -> &[(&'static str, &'static str)] {
        &[]
    }

    fn declared_cycles(&self, _kind: &str) -> Option<DeclaredCycles> {
        self.2
    }

    fn declared_needs(&self) -> DeclaredNeeds {
        self.1
    }

    fn create(&self, settings: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError> {
        millrace_plugin_null::PLUGIN.create(settings)
    }
}

#[tokio::test]
async fn only_admins_declare_services_that_need_memory_or_cycles_without_packets() {
    let router = with_allowance().await;
    let (operator, root) = (caller("token other", Role::Operator), caller("root", Role::Admin));
    let memory = DeclaredNeeds { memory: 4096.0, ..DeclaredNeeds::default() };
    let cycles = DeclaredCycles { fixed: 1000.0, ..DeclaredCycles::default() };
    for plugin in
        [Needing("remembers", memory, None), Needing("wakes", DeclaredNeeds::default(), Some(cycles))]
    {
        let name = plugin.0;
        router.lock().model.plugins.add_plugin(Arc::new(plugin)).unwrap();
        let create = |service: Value| CreateInstance {
            plugin: name.to_owned(),
            name: name.to_owned(),
            settings: Map::new(),
            service: read(service),
        };
        let move_to =
            |level: Value| MoveInstance { name: name.to_owned(), changes: settings(json!({"level": level})) };
        let free = || FreeInstance { name: name.to_owned() };
        let refusal = "a declared load needs the role admin";
        for by in [&operator, &lab()] {
            refused(&router, by, create(json!({"level": "worker"})), refusal).await;
            // An instance without a service reserves nothing.
            router.execute(by, create(Value::Null)).await.unwrap();
            refused(&router, by, move_to(json!("worker")), refusal).await;
            router.execute(by, free()).await.unwrap();
        }
        router.execute(&root, create(json!({"level": "worker"}))).await.unwrap();
        refused(&router, &operator, move_to(Value::Null), refusal).await;
        refused(&router, &operator, free(), refusal).await;
        router.execute(&root, free()).await.unwrap();
    }
    router.shutdown().await.unwrap();
}

#[tokio::test]
async fn services_move_only_to_levels_of_their_owners_whoever_moves_them() {
    let router = with_allowance().await;
    let (alice, root) = (caller("alice", Role::Admin), caller("root", Role::Admin));
    let create = |name: &str| CreateInstance {
        plugin: "null".to_owned(),
        name: name.to_owned(),
        settings: Map::new(),
        service: Some(read(json!({"rate": 10, "packet": 100}))),
    };
    let move_to =
        |name: &str, changes: Value| MoveInstance { name: name.to_owned(), changes: settings(changes) };
    let owner = |name: &str| {
        let running = router.running();
        let one = running.instance.iter().find(|one| *one.name == *name).unwrap();
        (one.owner.clone(), one.owner_role)
    };
    router.execute(&alice, create("own")).await.unwrap();
    router.execute(&root, create("other")).await.unwrap();
    assert_eq!((owner("own"), owner("other")), ((Some("alice".to_owned()), Some(Role::Admin)), (None, None)));
    let excluded = "level offload: allowance \"students\" of alice excludes it";
    refused(&router, &root, move_to("own", json!({"level": "offload"})), excluded).await;
    refused(&router, &root, move_to("other", json!({"level": "offload"})), "its plugin has no eBPF variant")
        .await;
    router.execute(&root, RenameInstance { name: "own".to_owned(), to: "mine".to_owned() }).await.unwrap();
    refused(&router, &root, move_to("mine", json!({"level": "offload"})), excluded).await;
    // Another user's file takes no service from its owner, and gives none away.
    let running = router.running();
    let mut file = running.clone();
    file.instance.iter_mut().for_each(|one| (one.owner, one.owner_role) = (Some("bob".to_owned()), None));
    let apply =
        |config: &millrace_config::Config| Apply { text: config.to_text().unwrap(), ..Apply::default() };
    router.execute(&root, apply(&file)).await.unwrap();
    assert_eq!(router.running(), running);
    let mut new = running.instance[0].clone();
    (new.name, new.owner) = ("new".into(), Some("bob".to_owned()));
    file = running.clone();
    file.instance.push(new);
    refused(&router, &alice, apply(&file), "instance \"new\" belongs to \"bob\": make it your own").await;
    file.instance.iter_mut().for_each(|one| (one.owner, one.owner_role) = (None, None));
    router.execute(&alice, apply(&file)).await.unwrap();
    assert_eq!(owner("new"), (Some("alice".to_owned()), Some(Role::Admin)));
    // What runs stays when an allowance changes, but a change of the service is checked.
    let lower = SetAllowance { name: "students".to_owned(), changes: settings(json!({"level": ["host"]})) };
    router.execute(&root, lower).await.unwrap();
    refused(&router, &root, move_to("mine", json!({"rate": 20})), "level worker: allowance \"students\"")
        .await;
    router.execute(&root, FreeInstance { name: "mine".to_owned() }).await.unwrap();
    router.execute(&root, create("mine")).await.unwrap();
    assert_eq!(owner("mine"), (None, None));
    router.shutdown().await.unwrap();
}

#[tokio::test]
async fn placements_and_services_do_not_decide_the_level_of_one_instance() {
    let router = started().await;
    let own = Principal::router();
    let create = |name: &str, service: Value| CreateInstance {
        plugin: "null".to_owned(),
        name: name.to_owned(),
        settings: Map::new(),
        service: read(service),
    };
    let place = |name: &str, level: &str| {
        PlaceFlows(read(json!({"flow": format!("instance {name}"), "level": level})))
    };
    let move_to = |name: &str| MoveInstance {
        name: name.to_owned(),
        changes: settings(json!({"rate": 10, "packet": 1})),
    };
    router.execute(&own, create("service", json!({"rate": 10, "packet": 1}))).await.unwrap();
    router.execute(&own, create("placed", Value::Null)).await.unwrap();
    router.execute(&own, place("placed", "worker")).await.unwrap();
    refused(&router, &own, place("service", "worker"), "move it with `instance move service --level").await;
    refused(&router, &own, move_to("placed"), "remove it first with `place \"instance placed\" auto`").await;
    let mut both = router.running();
    both.instance.iter_mut().for_each(|one| one.service = Some(read(json!({"rate": 10, "packet": 1}))));
    refused(&router, &own, Apply { text: both.to_text().unwrap(), ..Apply::default() }, "has a placement")
        .await;
    router.execute(&own, place("placed", "auto")).await.unwrap();
    router.execute(&own, move_to("placed")).await.unwrap();
    router.shutdown().await.unwrap();
}

#[tokio::test]
async fn applied_configuration_keeps_owners_and_passes_the_allowances_of_its_user() {
    let router = with_allowance().await;
    let (alice, root) = (caller("alice", Role::Admin), caller("root", Role::Admin));
    let whole = router.running().to_text().unwrap();
    let apply = |more: &str| Apply { text: format!("{whole}\n{more}"), ..Apply::default() };
    let principal = |name: &str, cpu: &str| format!("[[principal]]\nname = \"{name}\"\ncpu = \"{cpu}\"\n");
    let owner = |name: &str| {
        let inner = router.lock();
        let one = inner.model.principals.iter().find(|one| *one.name == *name);
        one.and_then(|one| one.owner.clone())
    };
    refused(
        &router,
        &alice,
        apply(&principal("a", "40 %")),
        "cpu: 40 % more are asked for, but 30 % of 30 %",
    )
    .await;
    refused(&router, &alice, Apply { text: CONFIG.to_owned(), ..Apply::default() }, "may change allowances")
        .await;
    router.execute(&alice, apply(&principal("a", "20 %"))).await.unwrap();
    assert_eq!(owner("a").as_deref(), Some("alice"));
    // Another user applies a file that names no owner.
    let both = principal("a", "25 %") + &principal("b", "5 %");
    let applied = router.execute(&root, apply(&both)).await.unwrap();
    assert_eq!((owner("a").as_deref(), owner("b")), (Some("alice"), None));
    let stored = router.execute(&root, GetRevision { number: applied.revision.unwrap() }).await.unwrap().text;
    assert!(stored.contains("owner = \"alice\""), "{stored}");
    let difference = CompareConfiguration { text: Some(apply(&both).text), origin: None };
    assert_eq!(router.execute(&root, difference).await.unwrap().changes, Vec::<String>::new());
    assert_eq!(router.execute(&root, apply(&both)).await.unwrap().changes, Vec::<String>::new());
    refused(&router, &alice, apply(&principal("a", "20 %")), "principal \"b\" belongs to nobody").await;
    let back = RollBack { revision: Some(1), ..RollBack::default() };
    refused(&router, &alice, back.clone(), "principal \"b\" belongs to nobody").await;
    router.execute(&root, back).await.unwrap();
    assert!(router.lock().model.principals.is_empty());
    router.shutdown().await.unwrap();
}

#[tokio::test]
async fn trial_says_what_is_left_or_lacks_and_changes_nothing() {
    let router = with_allowance().await;
    let before = router.running();
    let left = |trial: &crate::view::TrialView, component: &str| {
        let found = trial.components.iter().find(|one| one.component == component);
        found.and_then(|one| one.left)
    };
    let bulk = |cpu: &str| json!({"name": "bulk", "cpu": cpu, "link": {"wan": "2mbit"}});
    let now = router.execute(&lab(), GetAdmission).await.unwrap();
    let processors = now.components[0].left.unwrap();
    let left_now = |name: &str| now.components.iter().find(|one| one.component == name).unwrap().left;
    let trial = Trial::AddPrincipal(AddPrincipal(read(bulk("20 %"))));
    let trial = router.execute(&lab(), trial).await.unwrap();
    assert_eq!(trial.changes, ["principal add bulk 'cpu=20 %' link.wan=2mbit 'owner=token lab'"]);
    assert_eq!(left(&trial, "processors"), Some(processors - 20.0));
    assert!(
        left(&trial, "link wan")
            < now.components.iter().find(|one| one.component == "link wan").unwrap().left
    );
    refused(&router, &lab(), Trial::AddPrincipal(AddPrincipal(read(bulk("31 %")))), "30 % of 30 % are left")
        .await;
    let bind = json!({"instance": "pf", "gate": "audit", "filter": "proto tcp"});
    let trial = router.execute(&lab(), Trial::Bind(Bind(read(bind)))).await.unwrap();
    assert_eq!(trial.changes, ["bind pf --gate audit --filter 'proto tcp'"]);
    let nowhere = json!({"instance": "pf", "gate": "nowhere", "filter": "proto tcp"});
    refused(&router, &lab(), Trial::Bind(Bind(read(nowhere))), "nowhere").await;
    let create = |plugin: &str, name: &str| {
        Trial::CreateInstance(CreateInstance {
            plugin: plugin.to_owned(),
            name: name.to_owned(),
            settings: Map::new(),
            service: None,
        })
    };
    let trial = router.execute(&lab(), create("null", "v")).await.unwrap();
    assert_eq!(trial.changes, ["instance create null v"]);
    refused(&router, &lab(), create("null", "pf"), "pf").await;
    refused(&router, &lab(), create("nil", "v"), "nil").await;
    let service = |rate: u32| {
        Trial::CreateInstance(CreateInstance {
            plugin: "null".to_owned(),
            name: "s".to_owned(),
            settings: Map::new(),
            service: Some(read(json!({"rate": rate, "packet": 1000}))),
        })
    };
    let trial = router.execute(&Principal::router(), service(100)).await.unwrap();
    assert!(left(&trial, "workers") < left_now("workers"), "the load counts");
    refused(&router, &Principal::router(), service(u32::MAX), "no room for 4294967295 packets").await;
    assert_eq!(router.running(), before);
    add(&router, &lab(), bulk("20 %")).await.unwrap();
    let trial =
        router.execute(&lab(), Trial::SetPrincipal(set("bulk", json!({"cpu": "30 %"})))).await.unwrap();
    assert_eq!(left(&trial, "processors"), Some(processors - 30.0));
    router.shutdown().await.unwrap();
}
