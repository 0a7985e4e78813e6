//! Handlers of routes.

use axum::Json;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use millrace_controller::operation::{AddRoute, AddRoutes, ListRoutes, RemoveRoute, RemoveRoutes};
use millrace_controller::view::RouteView;
use millrace_controller::{NewRoute, RouteQuery};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Answer, Created};
use crate::http::extract::{Arguments, OneOrList};
use crate::served::Session;
use crate::served::paging::paged;

/// Result of adding routes.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum RoutesAdded {
    /// Added route.
    One(Box<RouteView>),
    /// Number of added routes of a list.
    List { added: usize },
}

pub(crate) async fn add_routes(session: Session, asked: OneOrList<NewRoute>) -> Created<RoutesAdded> {
    let added = match asked {
        OneOrList::One(new) => RoutesAdded::One(session.execute(AddRoute(new)).await?.into()),
        OneOrList::List(new) => RoutesAdded::List { added: session.execute(AddRoutes(new)).await? },
    };
    Ok((StatusCode::CREATED, Json(added)))
}

/// Result of removing routes.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum RoutesRemoved {
    /// Removed route.
    One(Box<RouteView>),
    /// Number of removed routes of a list.
    List { removed: usize },
}

pub(crate) async fn remove_routes(session: Session, asked: OneOrList<RemoveRoute>) -> Answer<RoutesRemoved> {
    Ok(Json(match asked {
        OneOrList::One(old) => RoutesRemoved::One(session.execute(old).await?.into()),
        OneOrList::List(old) => {
            let to = old.into_iter().map(|old| old.to).collect();
            RoutesRemoved::List { removed: session.execute(RemoveRoutes(to)).await? }
        }
    }))
}

pub(crate) async fn routes(session: Session, uri: Uri, Arguments(query): Arguments<RouteQuery>) -> Response {
    session.execute_long(ListRoutes(query), move |page| Ok(paged(&uri, page))).await
}
