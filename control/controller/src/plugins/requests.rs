//! Changes that plugins request, within their capabilities. They are made with the rights of an operator.

use std::convert::Infallible;
use std::time::Duration;

use millrace_config::{Role, SchedulerNode};
use millrace_plugin_abi::{Request, RequestKinds};
use millrace_store::Who;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::ControlError;
use crate::request::reading::read;
use crate::request::{NewBinding, NewFilter, NewRoute, NodeRemoval};
use crate::router::Router;

/// Role with which requests of plugins are carried out.
const ROLE: Role = Role::Operator;

/// Request of a plugin: a JSON object with one key.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum PluginRequest {
    /// Adds a filter.
    AddFilter(NewFilter),
    /// Removes filters and bindings by their ids.
    RemoveFilters(Vec<u64>),
    /// Adds a route.
    AddRoute(NewRoute),
    /// Removes the route to a prefix.
    RemoveRoute(String),
    /// Creates an instance.
    CreateInstance {
        plugin: String,
        name: String,
        #[serde(default)]
        settings: Map<String, Value>,
    },
    /// Frees an instance.
    FreeInstance(String),
    /// Binds an instance.
    Bind(NewBinding),
    /// Removes a binding.
    Unbind { instance: String, gate: String, filter: String },
    /// Sends an instance a control message.
    Control {
        instance: String,
        message: String,
        #[serde(default)]
        arguments: Map<String, Value>,
    },
    /// Adds a node to the scheduler of a port.
    AddNode { port: String, node: Box<SchedulerNode> },
    /// Changes settings of a node.
    SetNode { port: String, node: String, settings: Map<String, Value> },
    /// Removes a node; its queued packets move to leaf `to`, or are dropped.
    RemoveNode {
        port: String,
        node: String,
        #[serde(default)]
        to: Option<String>,
    },
    /// Changes settings of a queue, or of a flow's queue in it.
    SetQueue {
        port: String,
        queue: String,
        #[serde(default)]
        flow: Option<String>,
        settings: Map<String, Value>,
    },
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
        }
    }

    /// Parses a request, and checks that the plugin has the capability for it.
    fn read(request: &Request) -> Result<Self, ControlError> {
        let json = serde_json::from_str(&request.json);
        let json = json.map_err(|error| ControlError::Invalid(format!("the request is no JSON: {error}")))?;
        let read: Self = read("the request", json)?;
        if request.granted.contains(read.kind()) {
            return Ok(read);
        }
        let capability = read.kind().capability();
        Err(ControlError::Invalid(format!("its manifest doesn't name the capability {capability:?}")))
    }
}

impl Router {
    /// Carries out the requests of plugins, one after the other. Logs each request and its outcome, and
    /// records them in the audit log.
    pub(crate) async fn serve_requests(&self) -> Infallible {
        loop {
            // A request waits while a transaction runs.
            while self.is_applying() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let next = self.lock().plugins.requests.pop_front();
            let Some((instance, request)) = next else {
                self.0.requested.notified().await;
                continue;
            };
            let json = &*request.json;
            // A confirmation may take a day, so a request doesn't wait for it, but is refused like other
            // changes.
            let result = self.serve_request(&request).await;
            let asked = serde_json::from_str(json).unwrap_or_else(|_| Value::String(json.to_owned()));
            self.note_own(
                Who::instance(&instance),
                "a plugin's request",
                Some(asked),
                result.as_ref().map(|()| None),
            );
            match result {
                Ok(()) => tracing::info!(instance, request = json, "a plugin's request is carried out"),
                Err(error) => {
                    tracing::warn!(instance, request = json, "a plugin's request is refused: {error}")
                }
            }
        }
    }

    fn is_applying(&self) -> bool {
        self.lock().settings.unless_applying().is_err()
    }

    async fn serve_request(&self, request: &Request) -> Result<(), ControlError> {
        match PluginRequest::read(request)? {
            PluginRequest::AddFilter(new) => self.add_filter(&new).map(drop),
            PluginRequest::RemoveFilters(ids) => self.remove_filters(&ids).map(drop),
            PluginRequest::AddRoute(new) => self.add_route(&new).await.map(drop),
            PluginRequest::RemoveRoute(to) => self.remove_route(&to).await.map(drop),
            PluginRequest::CreateInstance { plugin, name, settings } => {
                self.create_instance(&plugin, &name, &settings, ROLE).map(drop)
            }
            PluginRequest::FreeInstance(name) => self.free_instance(&name, ROLE).map(drop),
            PluginRequest::Bind(new) => self.bind(&new).map(drop),
            PluginRequest::Unbind { instance, gate, filter } => {
                self.unbind(&instance, &gate, &filter).map(drop)
            }
            PluginRequest::Control { instance, message, arguments } => {
                self.control(&instance, &message, &arguments, ROLE).map(drop)
            }
            PluginRequest::AddNode { port, node } => self.add_scheduler_node(&port, &node).map(drop),
            PluginRequest::SetNode { port, node, settings } => {
                self.set_scheduler_node(&port, &node, &settings).map(drop)
            }
            PluginRequest::RemoveNode { port, node, to } => {
                // Filters are never removed with the node: if one would lose its queue, the request is
                // refused.
                let removal = NodeRemoval { to, with_filters: false };
                self.remove_scheduler_node(&port, &node, &removal).await.map(drop)
            }
            PluginRequest::SetQueue { port, queue, flow, settings } => {
                self.set_queue(&port, &queue, flow.as_deref(), &settings)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(json: &str, capability: &str) -> Request {
        Request { json: json.to_owned(), granted: RequestKinds::of(&[capability]) }
    }

    fn parse(json: &str) -> Result<PluginRequest, String> {
        PluginRequest::read(&asked(json, "request")).map_err(|error| error.to_string())
    }

    #[test]
    fn each_kind_needs_its_capability() {
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
            let request = |json: &str| {
                router.lock().plugins.requests.push_back(("i".into(), asked(json, "request")));
                router.0.requested.notify_one();
            };
            request(r#"{"reboot": {}}"#);
            request(r#"{"add-filter": {"match": "proto udp", "action": "drop"}}"#);
            while router.bindings(&crate::PageQuery::default()).unwrap().rows.is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            // A further request, after the earlier ones were carried out.
            request(r#"{"add-route": {"to": "10.9.0.0/16", "via": ["10.1.0.9"]}}"#);
            while !router
                .routes(&Default::default())
                .unwrap()
                .rows
                .iter()
                .any(|route| route.to == "10.9.0.0/16")
            {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            router.shutdown().await.unwrap();
            following.await.unwrap().unwrap();
        });
    }
}
