//! Endpoints: the methods of resources, each with its operation, request and answer. HTTP service and OpenAPI
//! description are generated from the same list.

use axum::handler::Handler;
use axum::middleware;
use axum::routing::{MethodFilter, MethodRouter, on};
use millrace_controller::{Effect, Operation, Role};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;

use crate::http::extract::{refuse_arguments, refuse_body};
use crate::http::tag::{refuse_condition, spare};
use crate::served::Served;

/// Function that generates the JSON Schema of a type, including the types of its fields.
pub(crate) type Describe = fn(&mut SchemaGenerator) -> Schema;

/// Query arguments of a request that can be tried.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TrialQuery {
    /// Whether to check the request only, and answer what would be promised and left: nothing changes. `dry-run` is
    /// read as well.
    #[serde(default, alias = "dry-run")]
    pub dry_run: bool,
}

/// Method of a resource, as described to clients.
#[derive(Clone)]
pub(crate) struct Endpoint {
    /// HTTP method: `GET`, `POST`, …
    pub method: &'static str,
    /// Lowest role that may call the operation.
    pub role: Role,
    /// Worst that a caller can cause with the operation.
    pub effect: Effect,
    /// Summary in one sentence.
    pub summary: &'static str,
    /// Schema of the query arguments; `None` if the operation refuses any.
    pub arguments: Option<Describe>,
    /// Content of the body; `None` if the operation refuses any.
    pub body: Option<Content>,
    /// Whether a body is required.
    pub needs_body: bool,
    /// HTTP status on success.
    pub status: u16,
    /// Schema of the answer on success.
    pub answer: Describe,
    /// Media type of the answer.
    pub media: &'static str,
    /// Whether the operation can also answer with a stream of server-sent events.
    pub streams: bool,
    /// Whether the stream can resume after the event in `Last-Event-ID`.
    pub resumes: bool,
    /// Whether the answer has an `ETag`. Changes then accept `If-Match`, and reads `If-None-Match`.
    pub tagged: bool,
    /// Whether the answer may be a page of a list, with a `Link` to the next page.
    pub paged: bool,
    /// Whether the request can only be tried, with the argument `dry_run`. The answer then is a trial.
    pub tried: bool,
}

/// Content of a request's body.
#[derive(Clone, Copy)]
pub(crate) enum Content {
    /// One JSON object.
    One(Describe),
    /// One JSON object, or a list of such objects.
    OneOrList(Describe),
}

/// Media type of most answers.
pub(crate) const JSON: &str = "application/json";

impl Endpoint {
    fn new<T: JsonSchema>(
        (method, status): (&'static str, u16),
        (role, effect): (Role, Effect),
        summary: &'static str,
    ) -> Self {
        Self {
            method,
            role,
            effect,
            summary,
            arguments: None,
            body: None,
            needs_body: false,
            status,
            answer: SchemaGenerator::subschema_for::<T>,
            media: JSON,
            streams: false,
            resumes: false,
            tagged: false,
            paged: false,
            tried: false,
        }
    }

    fn of<O: Operation<Answer: JsonSchema>>(
        method: &'static str,
        status: u16,
        summary: &'static str,
    ) -> Self {
        Self::new::<O::Answer>((method, status), (O::ROLE, O::EFFECT), summary)
    }

    /// Returns the endpoint of a read: GET, answered with 200.
    pub fn get<O: Operation<Answer: JsonSchema>>(summary: &'static str) -> Self {
        Self::of::<O>("GET", 200, summary)
    }

    /// Returns an endpoint that reads. The handler converts the operation's answer to a `T`, which is the
    /// answer of the endpoint.
    pub fn get_as<O: Operation, T: JsonSchema>(summary: &'static str) -> Self {
        Self::new::<T>(("GET", 200), (O::ROLE, O::EFFECT), summary)
    }

    /// Returns an endpoint that performs an action.
    pub fn post<O: Operation<Answer: JsonSchema>>(summary: &'static str) -> Self {
        Self::of::<O>("POST", 200, summary)
    }

    /// Returns an endpoint that creates an object.
    pub fn create<O: Operation<Answer: JsonSchema>>(summary: &'static str) -> Self {
        Self::of::<O>("POST", 201, summary)
    }

    /// Returns an endpoint that replaces an object.
    pub fn put<O: Operation<Answer: JsonSchema>>(summary: &'static str) -> Self {
        Self::of::<O>("PUT", 200, summary)
    }

    /// Returns an endpoint that changes an object.
    pub fn patch<O: Operation<Answer: JsonSchema>>(summary: &'static str) -> Self {
        Self::of::<O>("PATCH", 200, summary)
    }

    /// Returns an endpoint that removes an object.
    pub fn delete<O: Operation<Answer: JsonSchema>>(summary: &'static str) -> Self {
        Self::of::<O>("DELETE", 200, summary)
    }

    /// Sets the schema of the answer, if it differs from the operation's answer.
    pub fn answers<T: JsonSchema>(self) -> Self {
        Self { answer: SchemaGenerator::subschema_for::<T>, ..self }
    }

    /// Returns an endpoint that reads state of the API itself.
    pub fn own<T: JsonSchema>(summary: &'static str) -> Self {
        Self::new::<T>(("GET", 200), (Role::Viewer, Effect::Look), summary)
    }

    /// Adds query arguments. By default the operation takes none.
    pub fn arguments<T: JsonSchema>(self) -> Self {
        Self { arguments: Some(SchemaGenerator::root_schema_for::<T>), ..self }
    }

    /// Adds a required object in the body.
    pub fn body<T: JsonSchema>(self) -> Self {
        Self { needs_body: true, ..self.may_have_body::<T>() }
    }

    /// Accepts an optional object in the body.
    pub fn may_have_body<T: JsonSchema>(self) -> Self {
        Self { body: Some(Content::One(SchemaGenerator::root_schema_for::<T>)), ..self }
    }

    /// Adds an object, or a list of such objects, in the body.
    pub fn one_or_list<T: JsonSchema>(self) -> Self {
        let body = Some(Content::OneOrList(SchemaGenerator::root_schema_for::<T>));
        Self { body, needs_body: true, ..self }
    }

    /// Sets the media type of the answer, which is JSON by default.
    pub fn media(self, media: &'static str) -> Self {
        Self { media, ..self }
    }

    /// Lets clients choose a stream of server-sent events as answer.
    pub fn streams(self) -> Self {
        Self { streams: true, ..self }
    }

    /// Works like [`streams`](Self::streams), but the stream can resume after the event in `Last-Event-ID`.
    pub fn streams_on(self) -> Self {
        Self { resumes: true, ..self.streams() }
    }

    /// Adds an `ETag` to the answer. The router then refuses a change whose `If-Match` lacks the current tag,
    /// and answers 304 to a read whose `If-None-Match` has it.
    pub fn tagged(self) -> Self {
        Self { tagged: true, ..self }
    }

    /// Lets clients only try the request, by the argument `dry_run`.
    pub fn tried(self) -> Self {
        Self { tried: true, ..self.arguments::<TrialQuery>() }
    }

    /// Lets clients request the answer in pages.
    pub fn paged(self) -> Self {
        Self { paged: true, ..self }
    }
}

/// Path of the API, with its endpoints and their handlers.
pub(crate) struct Resource {
    /// Path; names in braces match any segment.
    pub path: &'static str,
    /// Endpoints of the path.
    pub endpoints: Vec<Endpoint>,
    router: MethodRouter<Served>,
}

impl Resource {
    /// Returns a resource without methods yet.
    pub fn new(path: &'static str) -> Self {
        Self { path, endpoints: Vec::new(), router: MethodRouter::new() }
    }

    /// Adds a method and its handler.
    pub fn on<T: 'static>(mut self, endpoint: Endpoint, handler: impl Handler<T, Served>) -> Self {
        let method = match endpoint.method {
            "GET" => MethodFilter::GET,
            "POST" => MethodFilter::POST,
            "PUT" => MethodFilter::PUT,
            "PATCH" => MethodFilter::PATCH,
            _ => MethodFilter::DELETE,
        };
        let handler = on(method, handler);
        let handler = match endpoint.arguments {
            Some(_) => handler,
            None => handler.route_layer(middleware::from_fn(refuse_arguments)),
        };
        let handler = match endpoint.body {
            Some(_) => handler,
            None => handler.route_layer(middleware::from_fn(refuse_body)),
        };
        let handler = match (endpoint.method, endpoint.tagged) {
            ("GET", true) => handler.route_layer(middleware::from_fn(spare)),
            ("GET", false) | (_, true) => handler,
            (_, false) => handler.route_layer(middleware::from_fn(refuse_condition)),
        };
        self.router = self.router.merge(handler);
        self.endpoints.push(endpoint);
        self
    }

    /// Returns the axum router of this path, with the handlers of all methods.
    pub fn into_router(self) -> MethodRouter<Served> {
        self.router
    }
}
