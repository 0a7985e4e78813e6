//! Entity tags (RFC 9110, 8.8.3 and 13.1.1). A tag identifies one state of a resource. In a conditional
//! request, the client sends the tag of the state that it has read before.
//!
//! A tag covers the changeable part of a resource but no counters, so it stays the same while packets flow.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use axum::Json;
use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use millrace_controller::RouterSettings;
use millrace_controller::view::{
    BindingView, ConfigurationView, GateView, InstanceView, PluginDetailView, PluginView, PrincipalView,
    QueueView, SchedulerNodeView, SchedulerView,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::put_tag;
use crate::http::problem::Problem;

/// Resource that has an entity tag, calculated from its settings.
pub(crate) trait Tagged: Serialize {
    /// Returns the changeable part of the resource.
    fn settings(&self) -> Value;

    /// Returns the entity tag of the resource, with its quotation marks.
    fn tag(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.settings().to_string().hash(&mut hasher);
        format!("\"{:016x}\"", hasher.finish())
    }
}

impl Tagged for BindingView {
    fn settings(&self) -> Value {
        let Self { id, action, gate, filter, priority, calls, .. } = self;
        json!([id, action, gate, filter, priority, calls])
    }
}

impl Tagged for RouterSettings {
    fn settings(&self) -> Value {
        json!(self)
    }
}

impl Tagged for InstanceView {
    fn settings(&self) -> Value {
        let bindings: Vec<Value> = self.bindings.iter().map(Tagged::settings).collect();
        json!([self.name, self.plugin, self.settings, self.place.service, bindings])
    }
}

impl Tagged for GateView {
    fn settings(&self) -> Value {
        let bindings: Vec<Value> = self.bindings.iter().map(Tagged::settings).collect();
        json!([self.name, self.position, self.table, bindings])
    }
}

impl Tagged for PluginView {
    fn settings(&self) -> Value {
        json!([self.name, self.version, self.runtime, self.signature])
    }
}

impl Tagged for PluginDetailView {
    fn settings(&self) -> Value {
        self.plugin.settings()
    }
}

impl Tagged for SchedulerNodeView {
    fn settings(&self) -> Value {
        json!([self.name, self.id, self.kind, self.under, self.settings])
    }
}

impl Tagged for SchedulerView {
    fn settings(&self) -> Value {
        let nodes: Vec<Value> = self.nodes.iter().map(Tagged::settings).collect();
        let host = self.host.as_ref().map(|host| json!([host.setting, host.weight]));
        json!([self.port, self.rate, self.overhead, self.default, self.queues_limit, host, nodes])
    }
}

impl Tagged for QueueView {
    fn settings(&self) -> Value {
        // Packets create and remove flow queues, so the tag covers only flow queues with a reserved rate.
        let reserved = self.flows.iter().filter(|flow| flow.rate.is_some());
        let reserved: Vec<Value> =
            reserved.map(|flow| json!([flow.flow, flow.rate, flow.quantum, flow.threshold])).collect();
        json!([self.port, self.node.settings(), reserved])
    }
}

impl Tagged for PrincipalView {
    fn settings(&self) -> Value {
        let Self { name, owner, cpu, same_as, weight, cpu_limit, deadline, queue, .. } = self;
        let Self { link, memory, disk, processes, process, .. } = self;
        json!([
            name, owner, cpu, same_as, weight, cpu_limit, deadline, queue, link, memory, disk, processes,
            process
        ])
    }
}

impl Tagged for ConfigurationView {
    fn settings(&self) -> Value {
        json!([self.text, self.origin, self.pending.as_ref().map(|pending| pending.revision)])
    }
}

/// Answer with the `ETag` header of its resource.
pub(crate) struct WithTag<V>(pub V);

impl<V: Tagged> IntoResponse for WithTag<V> {
    fn into_response(self) -> Response {
        let tag = self.0.tag();
        let mut response = Json(self.0).into_response();
        put_tag(&mut response, &tag);
        response
    }
}

/// Tags of a request's `If-Match` header; `None` if the header is absent.
#[derive(Debug, Default)]
pub(crate) struct Condition(Option<Vec<String>>);

impl<S: Send + Sync> FromRequestParts<S> for Condition {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let mut tags: Option<Vec<String>> = None;
        for value in parts.headers.get_all(header::IF_MATCH) {
            let text = value.to_str().map_err(|_| {
                Problem::bad_request(
                    "header If-Match has characters beyond ASCII: give ETags, separated by commas",
                )
            })?;
            tags.get_or_insert_default().extend(text.split(',').map(|tag| tag.trim().to_owned()));
        }
        Ok(Self(tags))
    }
}

/// Answers 304 without a body if `If-None-Match` contains the current tag (RFC 9110, 13.1.2).
pub(crate) async fn spare(request: Request, next: Next) -> Response {
    let known: Vec<HeaderValue> = request.headers().get_all(header::IF_NONE_MATCH).iter().cloned().collect();
    let response = next.run(request).await;
    let Some(tag) = response.headers().get(header::ETAG).filter(|_| response.status() == StatusCode::OK)
    else {
        return response;
    };
    // The comparison is weak (RFC 9110, 8.8.3.2): the prefix `W/` is ignored.
    let known = known.iter().filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(','));
    let mut known = known.map(|tag| tag.trim().trim_start_matches("W/"));
    match known.any(|one| one == "*" || one.as_bytes() == tag.as_bytes()) {
        true => (StatusCode::NOT_MODIFIED, [(header::ETAG, tag.clone())]).into_response(),
        false => response,
    }
}

/// Refuses `If-Match` at an operation without entity tags, since the client expects a check (RFC 9110,
/// 13.1.1).
pub(crate) async fn refuse_condition(request: Request, next: Next) -> Response {
    if request.headers().contains_key(header::IF_MATCH) {
        let detail = "this operation has no ETag to compare with If-Match: leave it out";
        return Problem::new(StatusCode::PRECONDITION_FAILED, detail).into_response();
    }
    next.run(request).await
}

impl Condition {
    /// Whether the request has an `If-Match` header.
    pub fn is_there(&self) -> bool {
        self.0.is_some()
    }

    /// If the request has `If-Match`, awaits the resource and checks its tag.
    ///
    /// # Errors
    /// Returns 412 with the current state if the tag differs, or the error of reading the resource.
    pub async fn check<V: Tagged>(
        &self,
        current: impl Future<Output = Result<V, Problem>>,
    ) -> Result<(), Problem> {
        if self.0.is_none() { Ok(()) } else { self.check_this(&current.await?) }
    }

    /// Checks the tag of a resource that was already read.
    ///
    /// # Errors
    /// Returns 412 with the current state if the tag differs.
    pub fn check_this<V: Tagged>(&self, current: &V) -> Result<(), Problem> {
        let tag = current.tag();
        match &self.0 {
            Some(tags) if !tags.iter().any(|one| one == "*" || *one == tag) => {
                let problem = Problem::new(
                    StatusCode::PRECONDITION_FAILED,
                    format!(
                        "If-Match does not have the current ETag {tag}, so nothing was changed: `current` \
                         has the current state"
                    ),
                );
                Err(problem.with_current(tag, json!(current)))
            }
            _ => Ok(()),
        }
    }
}
