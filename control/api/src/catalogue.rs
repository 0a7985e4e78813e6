//! Catalogue of all API resources. For each path it lists the methods with arguments, answers and handlers.
//! Each file of the folder holds one group of resources.

mod access;
mod configurations;
mod filters;
mod flows;
mod gates;
mod plugins;
mod principals;
mod queues;
mod router;
mod routes;
mod seeing;

use std::sync::Arc;

use axum::extract::State;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, middleware};
use millrace_controller::ControlError;

use crate::endpoint::{Endpoint, JSON, Resource};
use crate::entrance::access_control::Needs;
use crate::http::body_budget;
use crate::http::body_budget::BodyBudget;
use crate::http::problem::Problem;
use crate::limits::room;
use crate::openapi;
use crate::resources::observe::audit;
use crate::served::{Documents, ListView, ResourceView, Served};

/// Returns the paths of all resources, with the role that each method needs.
pub(crate) fn needs() -> Vec<(&'static str, Needs)> {
    let needs = |resource: Resource| {
        let methods = resource.endpoints.iter().map(|endpoint| (endpoint.method, endpoint.role));
        (resource.path, methods.collect())
    };
    catalogue().into_iter().map(needs).collect()
}

/// Returns the Markdown table of all operations for `docs/roles.md`. Its columns are the needed role, the
/// effect, and whether requests are audited.
pub(crate) fn table() -> String {
    let mut rows = String::from("| operation | role | can cause | audited |\n|---|---|---|---|\n");
    for resource in catalogue() {
        for Endpoint { method, role, effect, .. } in &resource.endpoints {
            let audited = if effect.is_audited() { "each request" } else { "refusals" };
            rows += &format!("| `{method} {}` | {role} | {} | {audited} |\n", resource.path, effect.words());
        }
    }
    rows
}

/// Returns the HTTP service of control: all resources, behind the budget for request bodies, the check for
/// free memory, and the audit log.
pub(crate) fn router(served: Served) -> axum::Router {
    let all = catalogue();
    let effects = all.iter().flat_map(|resource| {
        resource.endpoints.iter().map(|endpoint| (endpoint.method, resource.path, endpoint.effect))
    });
    let effects = effects.collect();
    let documents = Documents::new(list_of(&all), effects);
    let served = Served { documents: Arc::new(documents), ..served };
    let paths: Vec<&'static str> = all.iter().map(|resource| resource.path).collect();
    let router = all.into_iter().fold(axum::Router::new(), |router, resource| {
        let path = resource.path;
        router.route(path, resource.into_router())
    });
    router
        .fallback(move |uri: Uri| std::future::ready(unknown_path(&uri, &paths)))
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(BodyBudget::default(), body_budget::count))
        .layer(middleware::from_fn_with_state(served.control.clone(), room::look))
        .layer(middleware::from_fn_with_state(served.clone(), audit::note))
        .with_state(served)
}

fn list_of(all: &[Resource]) -> ListView {
    let resource = |resource: &Resource| {
        let methods: Vec<_> = resource.endpoints.iter().map(|endpoint| endpoint.method).collect();
        let each = resource.endpoints.iter().map(|endpoint| match methods.len() {
            1 => endpoint.summary.to_owned(),
            _ => format!("{} {}", endpoint.method, endpoint.summary),
        });
        let roles = resource.endpoints.iter().map(|endpoint| endpoint.role).collect();
        let summary = each.collect::<Vec<_>>().join("; ");
        ResourceView { path: resource.path.to_owned(), methods, roles, summary }
    };
    let resources = all.iter().map(resource).collect();
    ListView { name: "millrace", version: env!("CARGO_PKG_VERSION"), resources }
}

async fn list(State(served): State<Served>) -> Json<Option<ListView>> {
    Json(served.documents.list().cloned())
}

async fn description(State(served): State<Served>) -> Result<Response, Problem> {
    let documents = served.documents;
    // Generating the description takes long, so it runs on a blocking thread.
    let make = move || documents.openapi(|| openapi::document(&catalogue()).to_string().into());
    let made = tokio::task::spawn_blocking(make).await;
    let bytes = made.map_err(|error| ControlError::system("make the API description", error))?;
    Ok(([(header::CONTENT_TYPE, JSON)], bytes).into_response())
}

fn unknown_path(uri: &Uri, paths: &[&'static str]) -> Problem {
    let known = paths.iter().copied().filter(|path| *path != "/");
    Problem::from(ControlError::unknown("resource", uri.path(), known))
}

async fn wrong_method(method: Method, uri: Uri) -> Problem {
    let detail =
        format!("{} does not support {method}: GET / lists the methods of each resource", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
}

/// Returns all resources of the API, group by group.
pub(crate) fn catalogue() -> Vec<Resource> {
    let groups = [
        router::router(),
        seeing::packets(),
        access::access(),
        seeing::counters(),
        routes::routes(),
        filters::filters(),
        flows::flows(),
        plugins::plugins(),
        plugins::instances(),
        gates::gates(),
        queues::schedulers(),
        queues::queues(),
        principals::principals(),
        configurations::configurations(),
        configurations::revisions(),
    ];
    groups.into_iter().flatten().collect()
}
