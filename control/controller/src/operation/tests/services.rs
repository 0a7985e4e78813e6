//! Tests of the principals of services: their shares, the bindings that they pay for, and their end.

use super::*;
use crate::configuration::{Apply, RollBack};
use crate::filters::bindings::bindings_of;
use crate::workers::tsc::frequency;

const OWN: fn() -> Principal = Principal::router;

/// Returns a service of 1,000 packets per second that uses this part of a processor.
fn load(part: f64) -> Value {
    json!({"rate": 1000, "packet": frequency() as f64 * part / 1000.0})
}

fn create(name: &str, service: Value) -> CreateInstance {
    let settings = Map::new();
    CreateInstance { plugin: "null".to_owned(), name: name.to_owned(), settings, service: read(service) }
}

fn bind(instance: &str, filter: &str, principal: Option<&str>) -> Bind {
    Bind(read(json!({"instance": instance, "gate": "audit", "filter": filter, "principal": principal})))
}

fn move_to(name: &str, changes: Value) -> MoveInstance {
    MoveInstance { name: name.to_owned(), changes: settings(changes) }
}

async fn refused<O: Operation>(router: &Router, operation: O, expected: &str) {
    let error = router.execute(&OWN(), operation).await.err().expect(expected).to_string();
    assert!(error.contains(expected), "{error}\n{expected}");
}

/// Returns the reserved shares of services in percent of a processor, by their principals.
async fn shares(router: &Router) -> Vec<(String, u32)> {
    let all = router.execute(&OWN(), GetPromises).await.unwrap().promises;
    let services = all.into_iter().filter(|one| one.principal.starts_with("service:") && one.is_reserved);
    services.map(|one| (one.principal, one.promised.round() as u32)).collect()
}

/// Returns the principals that pay for the bindings of an instance, the oldest binding first.
fn payers(router: &Router, instance: &str) -> Vec<Option<String>> {
    let inner = router.lock();
    let bindings = bindings_of(&inner.model, instance).unwrap().into_iter();
    let limits = bindings.map(|id| inner.model.plugins.binding(id).unwrap().call_limits);
    limits.map(|limits| inner.model.payer_name(&limits)).collect()
}

fn named(names: &[&str]) -> Vec<Option<String>> {
    names.iter().map(|name| Some((*name).to_owned())).collect()
}

#[tokio::test]
async fn bindings_of_a_service_are_paid_by_its_principal_with_the_admitted_share() {
    let router = started().await;
    let own = OWN();
    let share = |name: &str, percent| vec![(format!("service:{name}"), percent)];
    router.execute(&own, create("a", load(0.2))).await.unwrap();
    assert_eq!(shares(&router).await, [], "nothing is reserved without bindings");
    router.execute(&own, AddPrincipal(read(json!({"name": "p", "cpu": "10 %"})))).await.unwrap();
    router.execute(&own, bind("a", "proto udp", None)).await.unwrap();
    router.execute(&own, bind("a", "proto tcp", Some("p"))).await.unwrap();
    assert_eq!(payers(&router, "a"), named(&["service:a", "p"]));
    assert_eq!(shares(&router).await, share("a", 20));
    router.execute(&own, move_to("a", json!({"rate": 2000}))).await.unwrap();
    assert_eq!(shares(&router).await, share("a", 40));
    router.execute(&own, RenameInstance { name: "a".to_owned(), to: "b".to_owned() }).await.unwrap();
    assert_eq!((payers(&router, "b"), shares(&router).await), (named(&["service:b", "p"]), share("b", 40)));
    // Users know it by its share, and can't change it.
    let listed = router.execute(&own, ListPrincipals).await.unwrap();
    assert_eq!(listed.iter().map(|one| &*one.name).collect::<Vec<_>>(), ["p"]);
    let (name, changes) = ("service:b".to_owned(), settings(json!({"cpu": "50 %"})));
    refused(&router, SetPrincipal { name: name.clone(), changes }, "built in").await;
    refused(&router, RemovePrincipal { name }, "built in").await;
    refused(&router, bind("b", "proto icmp", Some("service:b")), "built in").await;
    refused(&router, AddPrincipal(read(json!({"name": "service:c"}))), "reserved for the router").await;
    let saved = router.running();
    assert!(!saved.to_text().unwrap().contains("service:"), "{}", saved.to_text().unwrap());
    // Without a load, nobody has a share.
    router.execute(&own, move_to("b", json!({"rate": null, "packet": null}))).await.unwrap();
    assert_eq!(payers(&router, "b").last(), named(&["p"]).last());
    assert!(
        shares(&router).await.is_empty() && !payers(&router, "b").contains(&Some("service:b".to_owned()))
    );
    let apply = |config: &Config| Apply { text: config.to_text().unwrap(), ..Apply::default() };
    router.execute(&own, apply(&saved)).await.unwrap();
    assert_eq!((payers(&router, "b"), shares(&router).await), (named(&["service:b", "p"]), share("b", 40)));
    router.execute(&own, FreeInstance { name: "b".to_owned() }).await.unwrap();
    assert_eq!(shares(&router).await, []);
    assert!(!router.lock().model.principal_ids.names().any(|name| name.starts_with("service:")));
    router.execute(&own, RollBack::default()).await.unwrap();
    assert_eq!(shares(&router).await, share("b", 40));
    router.shutdown().await.unwrap();
    let again = start(saved, StartOptions::default()).await.unwrap();
    assert_eq!((payers(&again, "b"), shares(&again).await), (named(&["service:b", "p"]), share("b", 40)));
    again.shutdown().await.unwrap();
}
