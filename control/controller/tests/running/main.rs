//! Tests of changes to a running router without kernel devices. A refused change has no effect.

mod checks;
mod filters;
mod lists;
mod principals;
mod queues;
mod selections;

use millrace_config::{Config, RouteKind};
use millrace_controller::operation::{
    AddFilter, AddRoute, CreateGate, ExplainFilters, FlushFlows, ListBindings, ListGates, ListRoutes,
    LookupRoute, RemoveFilters, RemoveRoute,
};
use millrace_controller::view::{BindingView, GateExplanationView, RouteView};
use millrace_controller::{
    ControlError, NewFilter, NewRoute, Operation, PageQuery, Principal, RouteQuery, Router, StartOptions,
    start,
};

const CONFIG: &str = "
[router]
route-priority = 10
flows-max = 4096

[[port]]
name = \"lan\"
kind = \"memory\"
address = [\"10.1.0.1/24\", \"fd00:1::1/64\"]

[[port]]
name = \"wan\"
kind = \"memory\"
address = [\"10.2.0.1/24\", \"fd00:2::1/64\"]

[[gate]]
name = \"firewall\"
table = \"dag\"

[[instance]]
plugin = \"statistics\"
name = \"stats1\"

[[route]]
to = \"10.66.0.0/16\"
kind = \"blackhole\"

[[filter]]
match = \"proto tcp dport 25\"
action = \"drop\"
gate = \"firewall\"
";

fn with_router<T>(work: impl AsyncFnOnce(Router) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let config = Config::parse(CONFIG, "test").unwrap();
        let router = start(config, StartOptions::default()).await.unwrap();
        let result = work(router.clone()).await;
        router.shutdown().await.unwrap();
        result
    })
}

/// Executes an operation as the router itself.
async fn ask<O: Operation>(router: &Router, operation: O) -> Result<O::Answer, ControlError> {
    router.execute(&Principal::router(), operation).await
}

fn filter(filter: &str, action: &str) -> NewFilter {
    NewFilter { filter: filter.into(), action: action.into(), gate: None, priority: 0 }
}

fn route(to: &str, via: &[&str]) -> NewRoute {
    let via = via.iter().map(|via| via.parse().unwrap()).collect();
    NewRoute { to: to.into(), via, port: None, kind: RouteKind::Forward }
}

async fn bindings(router: &Router) -> Vec<BindingView> {
    ask(router, ListBindings(PageQuery::default())).await.unwrap().rows
}

async fn add_filter(router: &Router, new: NewFilter) -> Result<BindingView, ControlError> {
    ask(router, AddFilter(new)).await
}

async fn remove_filters(router: &Router, ids: &[u64]) -> Result<Vec<BindingView>, ControlError> {
    ask(router, RemoveFilters { ids: ids.to_vec() }).await
}

async fn explain(router: &Router, packet: &str) -> Result<Vec<GateExplanationView>, ControlError> {
    ask(router, ExplainFilters { packet: packet.to_owned() }).await
}

async fn flush_flows(router: &Router, filter: &str) -> Result<u64, ControlError> {
    ask(router, FlushFlows { filter: Some(filter.to_owned()) }).await.map(|done| done.flushed)
}

async fn remove_route(router: &Router, to: &str) -> Result<RouteView, ControlError> {
    ask(router, RemoveRoute { to: to.to_owned() }).await
}

async fn lookup_route(router: &Router, address: &str) -> Result<RouteView, ControlError> {
    ask(router, LookupRoute { address: address.to_owned() }).await
}

async fn state(router: &Router) -> String {
    let routes = ask(router, ListRoutes(RouteQuery::default())).await.unwrap().rows;
    format!("{:?}\n{routes:?}", bindings(router).await)
}

#[test]
fn refused_request_changes_nothing() {
    with_router(async |router| {
        add_filter(&router, filter("proto udp", "drop")).await.unwrap();
        let before = state(&router).await;
        let refuse = async |new: NewFilter, said: &str| {
            let error = add_filter(&router, new).await.unwrap_err().to_string();
            assert!(error.contains(said) && !error.contains('\n'), "{said}: {error}");
        };
        let at = |gate: &str, new: NewFilter| NewFilter { gate: Some(gate.into()), ..new };
        refuse(filter(" ", "drop"), "write *").await;
        refuse(filter("src 10.0.0.1 dst fd00::1", "drop"), "one family").await;
        refuse(filter("proto udp dport 90-80", "drop"), "90-80").await;
        refuse(filter("src 10.1.2.3/8", "drop"), "10.0.0.0/8").await;
        refuse(filter("in lam", "drop"), "did you mean \"lan\"?").await;
        refuse(filter("proto tcp", "dorp"), "did you mean \"drop\"?").await;
        refuse(filter("proto tcp", "lane 3"), "the actions are").await;
        refuse(filter("proto tcp", "queue 3"), "no queue is named").await;
        refuse(filter("proto tcp", "port wam"), "did you mean \"wan\"?").await;
        refuse(filter("dst fd00::/16", "port wan via 10.2.0.9"), "IPv6 neighbour").await;
        refuse(filter("proto tcp", "instance stats1"), "needs a gate").await;
        refuse(filter("proto tcp", "copy stats2"), "stats1").await;
        refuse(at("firewal", filter("proto tcp", "drop")), "firewall").await;
        refuse(
            at("tap", filter("proto tcp", "drop")),
            "does not support action drop: use a gate at one of the positions early, route, late",
        )
        .await;
        refuse(at("monitor", filter("proto tcp", "copy stats1")), "use a gate at position copy").await;
        refuse(filter("proto udp", "drop"), "already").await;
        assert!(matches!(remove_filters(&router, &[0, 77]).await, Err(ControlError::NotFound(_))));

        let refuse = async |new: NewRoute, said: &str| {
            let error = ask(&router, AddRoute(new)).await.unwrap_err().to_string();
            assert!(error.contains(said), "{said}: {error}");
        };
        refuse(route("10.9.0.1/16", &["10.2.0.2"]), "the prefix is 10.9.0.0/16").await;
        refuse(route("10.9.0.0", &["10.2.0.2"]), "ADDRESS/LENGTH").await;
        refuse(route("10.9.0.0/16", &[]), "name its next hop with `via`, or its `port`").await;
        refuse(route("10.9.0.0/16", &["192.0.2.1"]), "in no subnet of a port").await;
        refuse(route("fd00:9::/48", &["10.2.0.2"]), "IPv6 next hops").await;
        refuse(NewRoute { port: Some("wam".into()), ..route("10.9.0.0/16", &[]) }, "did you mean \"wan\"?")
            .await;
        refuse(NewRoute { kind: RouteKind::Prohibit, ..route("10.9.0.0/16", &["10.2.0.2"]) }, "remove `via`")
            .await;
        refuse(route("10.66.0.0/16", &["10.2.0.2"]), "a configured route to 10.66.0.0/16 exists already")
            .await;
        let error = remove_route(&router, "10.2.0.0/24").await.unwrap_err().to_string();
        assert!(error.contains("belongs to a port's address"), "{error}");
        assert!(matches!(remove_route(&router, "10.7.0.0/16").await, Err(ControlError::NotFound(_))));
        assert_eq!(state(&router).await, before);
    });
}

#[test]
fn routes_come_and_go() {
    with_router(async |router| {
        let added = ask(&router, AddRoute(route("10.9.0.0/16", &["10.2.0.2", "10.2.0.3"]))).await.unwrap();
        assert_eq!((added.next_hops.len(), &*added.next_hops[0].port, added.source), (2, "wan", "millrace"));
        assert_eq!(lookup_route(&router, "10.9.1.1").await.unwrap().to, "10.9.0.0/16");
        assert_eq!(lookup_route(&router, "10.66.1.1").await.unwrap().kind, "blackhole");
        remove_route(&router, "10.9.0.0/16").await.unwrap();
        assert!(matches!(lookup_route(&router, "10.9.1.1").await, Err(ControlError::NotFound(_))));
        // A configured route takes precedence over the connected route to the same prefix, until it is
        // removed.
        let hiding = NewRoute { kind: RouteKind::Unreachable, ..route("10.1.0.0/24", &[]) };
        ask(&router, AddRoute(hiding)).await.unwrap();
        assert_eq!(lookup_route(&router, "10.1.0.7").await.unwrap().kind, "unreachable");
        remove_route(&router, "10.1.0.0/24").await.unwrap();
        assert_eq!(lookup_route(&router, "10.1.0.7").await.unwrap().kind, "forward");
    });
}

#[test]
fn table_over_its_limit_is_refused() {
    with_router(async |router| {
        let create = async |name: String| ask(&router, CreateGate { name, position: "late".into() }).await;
        let there = ask(&router, ListGates).await.unwrap().len();
        for number in there..256 {
            create(format!("g{number}")).await.unwrap();
        }
        let error = create("one-more".into()).await.unwrap_err().to_string();
        assert!(error.contains("256 gates") && error.contains("can't be more"), "{error}");
        assert_eq!(ask(&router, ListGates).await.unwrap().len(), 256);
    });
}
