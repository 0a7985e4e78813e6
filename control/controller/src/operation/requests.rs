//! Requests of plugins for changes of the router. The capabilities of a plugin limit its requests, which are
//! executed with the rights of an operator; requests for principals, with those of an admin.

use std::convert::Infallible;
use std::time::Duration;

use millrace_config::Role;
use millrace_plugin_abi::{Request, RequestKinds};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::ControlError;
use crate::operation::{
    AddFilter, AddPrincipal, AddRoute, AddSchedulerNode, Bind, Call, ControlInstance, CreateInstance, Effect,
    FreeInstance, Principal, ReleaseFlow, RemoveFilters, RemovePrincipal, RemoveRoute, RemoveSchedulerNode,
    ReserveFlow, SetPrincipal, SetQueue, SetSchedulerNode, Unbind,
};
use crate::request::reading::read;
use crate::request::{NewFilter, NodeRemoval};
use crate::router::Router;

/// Request of a plugin: a JSON object with one key.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum PluginRequest {
    /// Adds a filter.
    AddFilter(NewFilter),
    /// Removes filters and bindings by their ids.
    RemoveFilters(Vec<u64>),
    /// Adds a route.
    AddRoute(AddRoute),
    /// Removes the route to a prefix.
    RemoveRoute(String),
    /// Creates an instance.
    CreateInstance(CreateInstance),
    /// Frees an instance.
    FreeInstance(String),
    /// Binds an instance.
    Bind(Bind),
    /// Removes a binding.
    Unbind(Unbind),
    /// Sends an instance a control message.
    Control(ControlInstance),
    /// Adds a node to the scheduler of a port.
    AddNode(Box<AddSchedulerNode>),
    /// Changes settings of a scheduler node.
    SetNode(SetSchedulerNode),
    /// Removes a scheduler node. The node's queued packets move to leaf `to`; without `to`, they are dropped.
    RemoveNode {
        port: String,
        node: String,
        #[serde(default)]
        to: Option<String>,
    },
    /// Changes settings of a queue, or of a single flow at the queue.
    SetQueue(SetQueue),
    /// Adds a principal.
    AddPrincipal(Box<AddPrincipal>),
    /// Changes shares and limits of a principal.
    SetPrincipal { name: String, settings: Map<String, Value> },
    /// Removes a principal.
    RemovePrincipal(String),
    /// Reserves resources for flows.
    ReserveFlow(Box<ReserveFlow>),
    /// Releases a reservation.
    ReleaseFlow(String),
}

impl PluginRequest {
    fn kind(&self) -> RequestKinds {
        match self {
            Self::AddFilter(_) | Self::RemoveFilters(_) | Self::Bind(_) | Self::Unbind { .. } => {
                RequestKinds::FILTERS
            }
            Self::AddRoute(_) | Self::RemoveRoute(_) => RequestKinds::ROUTES,
            Self::CreateInstance { .. } | Self::FreeInstance(_) | Self::Control { .. } => {
                RequestKinds::INSTANCES
            }
            Self::AddNode { .. } | Self::SetNode { .. } | Self::RemoveNode { .. } | Self::SetQueue { .. } => {
                RequestKinds::QUEUES
            }
            Self::AddPrincipal(_)
            | Self::SetPrincipal { .. }
            | Self::RemovePrincipal(_)
            | Self::ReserveFlow(_)
            | Self::ReleaseFlow(_) => RequestKinds::PRINCIPALS,
        }
    }

    /// Returns the role with which the request is executed, and its effect.
    fn rights(&self) -> (Role, Effect) {
        match self.kind() {
            RequestKinds::PRINCIPALS => (Role::Admin, Effect::Protection),
            _ => (Role::Operator, Effect::Forwarding),
        }
    }

    /// Whether the request would move processes outside the router into a control group.
    fn takes_processes(&self) -> bool {
        match self {
            Self::AddPrincipal(new) => !new.0.process.is_empty(),
            Self::SetPrincipal { settings, .. } => settings.contains_key("process"),
            _ => false,
        }
    }

    /// Parses a request, and checks that the plugin has the capability for it.
    fn read(request: &Request) -> Result<Self, ControlError> {
        let json = serde_json::from_str(&request.json);
        let json =
            json.map_err(|error| ControlError::invalid(format!("the request is not valid JSON: {error}")))?;
        let read: Self = read("the request", json)?;
        if !request.granted.contains(read.kind()) {
            let capability = read.kind().capability();
            let problem = format!("its manifest doesn't name the capability {capability:?}");
            return Err(ControlError::invalid(problem));
        }
        if read.takes_processes() {
            return Err(ControlError::invalid("a plugin can't set `process`: use `principal set`"));
        }
        Ok(read)
    }
}

/// Carries out the requests of plugins, one after another. Logs each request with its outcome, and records
/// request and outcome in the audit log.
pub(crate) async fn serve_requests(router: &Router) -> Infallible {
    loop {
        // A request waits while a transaction runs.
        while is_applying(router) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let next = router.lock().plugins.requests.pop_front();
        let Some((instance, request)) = next else {
            router.0.requested.notified().await;
            continue;
        };
        let json = &*request.json;
        // A revision may wait a day for confirmation. The request doesn't wait that long: it is refused in
        // the meantime, like other changes.
        let operation = "a plugin's request".to_owned();
        let read = PluginRequest::read(&request);
        let (role, effect) =
            read.as_ref().map_or((Role::Operator, Effect::Forwarding), PluginRequest::rights);
        let call = Call::new(router, Principal::instance(&instance, role), operation, effect);
        call.set_body(json.as_bytes());
        let result = match read {
            Ok(request) => serve_request(router, &call, request).await,
            Err(error) => Err(error),
        };
        // Nobody waits until the line is written.
        drop(call.close(None, result.as_ref().err().map(ToString::to_string)));
        match result {
            Ok(()) => tracing::info!(instance, request = json, "a plugin's request is carried out"),
            Err(error) => {
                tracing::warn!(instance, request = json, "a plugin's request is refused: {error}")
            }
        }
    }
}

fn is_applying(router: &Router) -> bool {
    router.lock().settings.unless_applying().is_err()
}

/// Carries out a request as the plugin instance that made it.
async fn serve_request(router: &Router, caller: &Call, request: PluginRequest) -> Result<(), ControlError> {
    match request {
        PluginRequest::AddFilter(new) => router.execute(caller, AddFilter(new)).await.map(drop),
        PluginRequest::RemoveFilters(ids) => router.execute(caller, RemoveFilters { ids }).await.map(drop),
        PluginRequest::AddRoute(new) => router.execute(caller, new).await.map(drop),
        PluginRequest::RemoveRoute(to) => router.execute(caller, RemoveRoute { to }).await.map(drop),
        PluginRequest::CreateInstance(new) => router.execute(caller, new).await.map(drop),
        PluginRequest::FreeInstance(name) => router.execute(caller, FreeInstance { name }).await.map(drop),
        PluginRequest::Bind(new) => router.execute(caller, new).await.map(drop),
        PluginRequest::Unbind(old) => router.execute(caller, old).await.map(drop),
        PluginRequest::Control(message) => router.execute(caller, message).await.map(drop),
        PluginRequest::AddNode(node) => router.execute(caller, *node).await.map(drop),
        PluginRequest::SetNode(changes) => router.execute(caller, changes).await.map(drop),
        PluginRequest::RemoveNode { port, node, to } => {
            // A plugin's request never removes filters together with the node. It is refused if a filter
            // would lose its queue.
            let removal = NodeRemoval { to, with_filters: false };
            router.execute(caller, RemoveSchedulerNode { port, node, removal }).await.map(drop)
        }
        PluginRequest::SetQueue(changes) => router.execute(caller, changes).await,
        PluginRequest::AddPrincipal(new) => router.execute(caller, *new).await.map(drop),
        PluginRequest::SetPrincipal { name, settings } => {
            router.execute(caller, SetPrincipal { name, changes: settings }).await.map(drop)
        }
        PluginRequest::RemovePrincipal(name) => {
            router.execute(caller, RemovePrincipal { name }).await.map(drop)
        }
        PluginRequest::ReserveFlow(flow) => router.execute(caller, *flow).await.map(drop),
        PluginRequest::ReleaseFlow(name) => {
            router.execute(caller, ReleaseFlow { name, drop: false }).await.map(drop)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RouteQuery;
    use crate::operation::{ListBindings, ListPrincipals, ListRoutes};

    fn asked(json: &str, capability: &str) -> Request {
        Request { json: json.to_owned(), granted: RequestKinds::of(&[capability]) }
    }

    fn parse(json: &str) -> Result<PluginRequest, String> {
        PluginRequest::read(&asked(json, "request")).map_err(|error| error.to_string())
    }

    #[test]
    fn each_request_kind_needs_its_capability() {
        let requests = [
            (r#"{"add-filter": {"match": "proto udp", "action": "drop"}}"#, "request-filters"),
            (r#"{"unbind": {"instance": "i", "gate": "monitor", "filter": "*"}}"#, "request-filters"),
            (r#"{"remove-route": "10.9.0.0/16"}"#, "request-routes"),
            (r#"{"add-node": {"port": "wan", "node": {"name": "voice", "kind": "fifo"}}}"#, "request-queues"),
            (
                r#"{"set-queue": {"port": "wan", "queue": "bulk", "settings": {"weight": 2}}}"#,
                "request-queues",
            ),
            (r#"{"free-instance": "i"}"#, "request-instances"),
            (r#"{"add-principal": {"name": "a", "cpu": "5 %", "cpu-limit": "9 %"}}"#, "request-principals"),
            (r#"{"set-principal": {"name": "a", "settings": {"weight": 2}}}"#, "request-principals"),
            (r#"{"remove-principal": "a"}"#, "request-principals"),
            (r#"{"reserve-flow": {"filter": "proto udp", "cpu": "5 %"}}"#, "request-principals"),
            (r#"{"release-flow": "a"}"#, "request-principals"),
        ];
        for (json, needed) in requests {
            for (capability, _) in RequestKinds::CAPABILITIES {
                let read = PluginRequest::read(&asked(json, capability)).map_err(|error| error.to_string());
                assert_eq!(read.is_ok(), capability == needed, "{json}, {capability}: {read:?}");
                let refusal = format!("its manifest doesn't name the capability {needed:?}");
                assert!(capability == needed || read.unwrap_err().contains(&refusal));
            }
        }
    }

    #[test]
    fn requests_for_principals_need_their_own_capability_and_take_no_processes() {
        let principals = |json: &str| {
            let read = PluginRequest::read(&asked(json, "request-principals"));
            read.map(|read| read.rights().0).map_err(|error| error.to_string())
        };
        let release = r#"{"release-flow": "a"}"#;
        assert!(parse(release).unwrap_err().contains("the capability \"request-principals\""));
        assert_eq!(principals(release), Ok(Role::Admin));
        for json in [
            r#"{"add-principal": {"name": "a", "process": ["sshd"]}}"#,
            r#"{"set-principal": {"name": "a", "settings": {"process": ["sshd"]}}}"#,
        ] {
            assert!(principals(json).unwrap_err().contains("can't set `process`"), "{json}");
        }
    }

    #[test]
    fn requests_have_one_key() {
        assert!(parse(r#"{"add-filter": {"match": "proto udp", "action": "drop"}}"#).is_ok());
        assert!(parse(r#"{"remove-filters": [1, 2]}"#).is_ok());
        assert!(parse(r#"{"control": {"instance": "i", "message": "reset"}}"#).is_ok());
        assert!(parse(r#"{"reboot": {}}"#).unwrap_err().contains("no value here is named \"reboot\""));
        assert!(parse(r#"{"control": {"instance": "i", "name": "reset"}}"#).is_err());
        assert!(parse("[]").is_err());
    }

    #[test]
    fn requests_are_carried_out_while_the_router_is_followed() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let text = "[[port]]\nname = \"lan\"\nkind = \"memory\"\naddress = [\"10.1.0.1/24\"]\n";
            let config = millrace_config::Config::parse(text, "test").unwrap();
            let router = crate::start(config, crate::StartOptions::default()).await.unwrap();
            let following = tokio::spawn({
                let router = router.clone();
                async move { router.run().await }
            });
            let request_as = |json: &str, capability: &str| {
                router.lock().plugins.requests.push_back(("i".into(), asked(json, capability)));
                router.0.requested.notify_one();
            };
            let request = |json: &str| request_as(json, "request");
            request(r#"{"reboot": {}}"#);
            request(r#"{"add-filter": {"match": "proto udp", "action": "drop"}}"#);
            let own = Principal::router();
            while router.execute(&own, ListBindings::default()).await.unwrap().rows.is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            // This request is carried out after the earlier requests.
            request(r#"{"add-route": {"to": "10.9.0.0/16", "via": ["10.1.0.9"]}}"#);
            let is_there = async || {
                let routes = router.execute(&own, ListRoutes(RouteQuery::default())).await.unwrap();
                routes.rows.iter().any(|route| route.to == "10.9.0.0/16")
            };
            while !is_there().await {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let principals = async || {
                let listed = router.execute(&own, ListPrincipals).await.unwrap();
                listed.into_iter().map(|one| one.name).collect::<Vec<_>>()
            };
            for (json, expected) in [
                (r#"{"add-principal": {"name": "a", "weight": 3}}"#, &["a"][..]),
                (r#"{"reserve-flow": {"filter": "proto tcp", "cpu": "5 %"}}"#, &["a", "flow-1"]),
                (r#"{"remove-principal": "a"}"#, &["flow-1"]),
                (r#"{"release-flow": "flow-1"}"#, &[]),
            ] {
                request_as(json, "request-principals");
                while principals().await != expected {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
            router.shutdown().await.unwrap();
            following.await.unwrap().unwrap();
        });
    }
}
