//! Documents about the interface: the list of resources, and the OpenAPI description.

use std::sync::OnceLock;

use axum::body::Bytes;
use axum::http::Method;
use millrace_controller::Role;
use schemars::JsonSchema;
use serde::Serialize;

use crate::effect::Effect;

/// A resource as the list shows it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct ResourceView {
    /// Its path.
    pub path: String,
    /// The methods that it takes.
    pub methods: Vec<&'static str>,
    /// The role that each of them needs.
    pub roles: Vec<Role>,
    /// What they do, in their order.
    pub summary: String,
}

/// The list of resources.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct ListView {
    /// `millrace`.
    pub name: &'static str,
    /// The version of the router.
    pub version: &'static str,
    /// What there is.
    pub resources: Vec<ResourceView>,
}

/// Documents about the interface: the list of resources, and the OpenAPI description.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    /// List of resources.
    list: Option<ListView>,
    /// Method, path and effect of each operation.
    effects: Vec<(&'static str, &'static str, Effect)>,
    /// Description of the interface, made on first request since that takes a while.
    openapi: OnceLock<Bytes>,
}

impl Documents {
    /// Returns the documents of a catalogue: its list, and method, path and effect of each operation.
    pub fn new(list: ListView, effects: Vec<(&'static str, &'static str, Effect)>) -> Self {
        Self { list: Some(list), effects, openapi: OnceLock::new() }
    }

    /// Returns the list of resources.
    pub fn list(&self) -> Option<&ListView> {
        self.list.as_ref()
    }

    /// Returns the description of the interface, which `make` makes when it is first asked for.
    pub fn openapi(&self, make: impl FnOnce() -> Bytes) -> Bytes {
        self.openapi.get_or_init(make).clone()
    }

    /// Returns the effect of a request with this method and path. A path with names in it counts as a read
    /// for GET, and as a change of forwarding otherwise.
    pub fn effect(&self, method: &Method, path: &str) -> Effect {
        let method = if *method == Method::HEAD { &Method::GET } else { method };
        let found = self.effects.iter().find(|(known, of, _)| *known == method.as_str() && *of == path);
        match found {
            Some((.., effect)) => *effect,
            None if [Method::GET, Method::OPTIONS].contains(method) => Effect::Look,
            None => Effect::Forwarding,
        }
    }
}
