//! Documents about the API: the list of resources, and the OpenAPI description.

use std::sync::OnceLock;

use axum::body::Bytes;
use axum::http::Method;
use millrace_controller::{Effect, Role};
use schemars::JsonSchema;
use serde::Serialize;

/// Entry of the list of resources.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct ResourceView {
    /// Path of the resource.
    pub path: String,
    /// Methods of the resource.
    pub methods: Vec<&'static str>,
    /// Role that each method needs, in the order of the methods.
    pub roles: Vec<Role>,
    /// Summaries of the methods, in the order of the methods.
    pub summary: String,
}

/// List of the API's resources, as served at `/`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct ListView {
    /// Name of the product: `millrace`.
    pub name: &'static str,
    /// Version of the router.
    pub version: &'static str,
    /// All resources.
    pub resources: Vec<ResourceView>,
}

/// Documents about the API: the list of resources, and the OpenAPI description.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    /// List of resources.
    list: Option<ListView>,
    /// Method, path and effect of each operation.
    effects: Vec<(&'static str, &'static str, Effect)>,
    /// OpenAPI description, made at the first request because that takes long.
    openapi: OnceLock<Bytes>,
}

impl Documents {
    /// Returns the documents of a catalogue. `effects` are method, path and effect of each operation.
    pub fn new(list: ListView, effects: Vec<(&'static str, &'static str, Effect)>) -> Self {
        Self { list: Some(list), effects, openapi: OnceLock::new() }
    }

    /// Returns the list of resources.
    pub fn list(&self) -> Option<&ListView> {
        self.list.as_ref()
    }

    /// Returns the OpenAPI description. The first call makes it with `make`.
    pub fn openapi(&self, make: impl FnOnce() -> Bytes) -> Bytes {
        self.openapi.get_or_init(make).clone()
    }

    /// Returns the effect of a request with this method and path. A path with the value of a parameter is not
    /// in the list: for it, GET and OPTIONS count as reading, and other methods as a change of forwarding.
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
