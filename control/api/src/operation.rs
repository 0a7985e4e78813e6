//! Operations: each method of each resource, with who may do it, what it takes and answers. One list makes the router that carries them out and
//! the description that is served.

use axum::extract::{DefaultBodyLimit, Extension};
use axum::middleware;
use axum::routing::MethodRouter;
use millrace_controller::Role;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::effect::Effect;
use crate::http::extract::{Longest, refuse_arguments, refuse_body};
use crate::http::tag::{refuse_condition, spare};
use crate::served::Served;

/// Makes the schema of a type, with what it refers to.
pub(crate) type Describe = fn(&mut SchemaGenerator) -> Schema;

/// What a method of a resource is.
#[derive(Clone)]
pub(crate) struct Operation {
    /// `GET`, `POST`, …
    pub method: &'static str,
    /// Who may do it: whoever has this role, or a higher one.
    pub role: Role,
    /// The worst that a caller can cause with it.
    pub effect: Effect,
    /// What it does, in a sentence.
    pub summary: &'static str,
    /// The arguments behind the `?`.
    pub arguments: Option<Describe>,
    /// What its body holds; one that has none refuses any.
    pub body: Option<Content>,
    /// Whether there has to be a body.
    pub needs_body: bool,
    /// The status when it is done.
    pub status: u16,
    /// What it answers then.
    pub answer: Describe,
    /// Of which kind that is.
    pub media: &'static str,
    /// Whether it also answers with a stream of server-sent events.
    pub streams: bool,
    /// Whether such a stream goes on behind what `Last-Event-ID` names.
    pub resumes: bool,
    /// Whether the answer has an `ETag`: what changes something takes an `If-Match`, and what reads an `If-None-Match`.
    pub tagged: bool,
    /// Whether the answer may be a part of a list, with a `Link` to the next.
    pub paged: bool,
}

/// What the body of a request holds.
#[derive(Clone, Copy)]
pub(crate) enum Content {
    /// An object.
    One(Describe),
    /// An object, or a list of such.
    OneOrList(Describe),
}

/// What most answers are.
pub(crate) const JSON: &str = "application/json";

impl Operation {
    fn new<T: JsonSchema>(method: &'static str, status: u16, role: Role, summary: &'static str) -> Self {
        Self {
            method,
            role,
            effect: if method == "GET" { Effect::Look } else { Effect::Forwarding },
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
        }
    }

    /// Reads.
    pub fn get<T: JsonSchema>(role: Role, summary: &'static str) -> Self {
        Self::new::<T>("GET", 200, role, summary)
    }

    /// Does something.
    pub fn post<T: JsonSchema>(role: Role, summary: &'static str) -> Self {
        Self::new::<T>("POST", 200, role, summary)
    }

    /// Makes something.
    pub fn create<T: JsonSchema>(role: Role, summary: &'static str) -> Self {
        Self::new::<T>("POST", 201, role, summary)
    }

    /// Puts something in the place of another.
    pub fn put<T: JsonSchema>(role: Role, summary: &'static str) -> Self {
        Self::new::<T>("PUT", 200, role, summary)
    }

    /// Changes something.
    pub fn patch<T: JsonSchema>(role: Role, summary: &'static str) -> Self {
        Self::new::<T>("PATCH", 200, role, summary)
    }

    /// Removes something.
    pub fn delete<T: JsonSchema>(role: Role, summary: &'static str) -> Self {
        Self::new::<T>("DELETE", 200, role, summary)
    }

    /// With an effect. Without this, a GET only looks, and other methods change forwarding.
    pub fn effect(self, effect: Effect) -> Self {
        Self { effect, ..self }
    }

    /// With arguments behind the `?`; without this, none are taken.
    pub fn arguments<T: JsonSchema>(self) -> Self {
        Self { arguments: Some(SchemaGenerator::root_schema_for::<T>), ..self }
    }

    /// With an object in the body.
    pub fn body<T: JsonSchema>(self) -> Self {
        Self { needs_body: true, ..self.may_have_body::<T>() }
    }

    /// With an object in the body, where one is sent.
    pub fn may_have_body<T: JsonSchema>(self) -> Self {
        Self { body: Some(Content::One(SchemaGenerator::root_schema_for::<T>)), ..self }
    }

    /// With an object in the body, or a list of such.
    pub fn one_or_list<T: JsonSchema>(self) -> Self {
        let body = Some(Content::OneOrList(SchemaGenerator::root_schema_for::<T>));
        Self { body, needs_body: true, ..self }
    }

    /// Answers with something else than JSON.
    pub fn media(self, media: &'static str) -> Self {
        Self { media, ..self }
    }

    /// Answers with a stream of server-sent events where these are accepted.
    pub fn streams(self) -> Self {
        Self { streams: true, ..self }
    }

    /// The same, and goes on behind what `Last-Event-ID` names.
    pub fn streams_on(self) -> Self {
        Self { resumes: true, ..self.streams() }
    }

    /// Has an `ETag`: what changes something is only done where an `If-Match` holds, what reads answers 304 where an `If-None-Match` has it.
    pub fn tagged(self) -> Self {
        Self { tagged: true, ..self }
    }

    /// Answers with a page of a list where that is asked for.
    pub fn paged(self) -> Self {
        Self { paged: true, ..self }
    }
}

/// A path, with its methods.
pub(crate) struct Resource {
    /// The path; names in braces stand for any.
    pub path: &'static str,
    /// What its methods do.
    pub operations: Vec<Operation>,
    router: MethodRouter<Served>,
}

impl Resource {
    /// One without methods.
    pub fn new(path: &'static str) -> Self {
        Self { path, operations: Vec::new(), router: MethodRouter::new() }
    }

    /// With a method, and what carries it out.
    pub fn on(mut self, operation: Operation, handler: MethodRouter<Served>) -> Self {
        let handler = match operation.arguments {
            Some(_) => handler,
            None => handler.route_layer(middleware::from_fn(refuse_arguments)),
        };
        let handler = match operation.body {
            Some(_) => handler,
            None => handler.route_layer(middleware::from_fn(refuse_body)),
        };
        let handler = match (operation.method, operation.tagged) {
            ("GET", true) => handler.route_layer(middleware::from_fn(spare)),
            ("GET", false) | (_, true) => handler,
            (_, false) => handler.route_layer(middleware::from_fn(refuse_condition)),
        };
        self.router = self.router.merge(handler);
        self.operations.push(operation);
        self
    }

    /// With bodies up to so many bytes.
    pub fn bodies(mut self, longest: usize) -> Self {
        self.router = self.router.layer((DefaultBodyLimit::max(longest), Extension(Longest(longest))));
        self
    }

    /// What carries out its methods.
    pub fn into_router(self) -> MethodRouter<Served> {
        self.router
    }
}
