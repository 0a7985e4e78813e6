//! Handlers of filters.

use axum::Json;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use millrace_controller::operation::{AddFilter, AddFilters, ListBindings, RemoveFilter, RemoveFilters};
use millrace_controller::view::ShadowedView;
use millrace_controller::{AddedFilters, ControlError, NewFilter, OldFilter, PageQuery};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Answer, Created};
use crate::http::extract::{Arguments, InPath, LongBody, OneOrList};
use crate::http::naming::FilterView;
use crate::http::problem::Problem;
use crate::http::tag::{Condition, WithTag};
use crate::served::Session;
use crate::served::paging::paged;

/// Result of adding filters.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum FiltersAdded {
    /// Added filter.
    One(Box<FilterView>),
    /// Number of added filters of a list, their ids in the order of the list, and those that never win.
    List { added: usize, ids: Vec<u64>, shadowed: Vec<ShadowedView> },
}

pub(crate) async fn add_filters(session: Session, asked: OneOrList<NewFilter>) -> Created<FiltersAdded> {
    let added = match asked {
        OneOrList::One(new) => FiltersAdded::One(FilterView(session.execute(AddFilter(new)).await?).into()),
        OneOrList::List(new) => {
            let AddedFilters { ids, shadowed } = session.execute(AddFilters(new)).await?;
            FiltersAdded::List { added: ids.len(), ids, shadowed }
        }
    };
    Ok((StatusCode::CREATED, Json(added)))
}

/// Returns the filters, ordered by id.
pub(crate) async fn filters(session: Session, uri: Uri, Arguments(query): Arguments<PageQuery>) -> Response {
    session.execute_long(ListBindings(query), move |page| Ok(paged(&uri, page.map(FilterView)))).await
}

/// Filters to remove: by their ids, or one by its content.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OldFilters {
    ids: Option<Vec<u64>>,
    #[serde(rename = "match")]
    filter: Option<String>,
    action: Option<String>,
    gate: Option<String>,
    /// Priority of the filter; may be omitted if no other filter has the same match, action and gate.
    priority: Option<i32>,
}

pub(crate) async fn remove_filters(
    session: Session,
    LongBody(old): LongBody<OldFilters>,
) -> Answer<Vec<FilterView>> {
    let removed = match old {
        OldFilters { ids: Some(ids), filter: None, action: None, gate: None, priority: None } => {
            session.execute(RemoveFilters { ids }).await?
        }
        OldFilters { ids: None, filter: Some(filter), action: Some(action), gate, priority } => {
            let old = OldFilter { filter, action, gate, priority };
            vec![session.execute(RemoveFilter(old)).await?]
        }
        _ => {
            let problem = "give either `ids`, or `match` and `action`".to_owned();
            return Err(ControlError::invalid(problem).into());
        }
    };
    Ok(Json(removed.into_iter().map(FilterView).collect()))
}

pub(crate) async fn remove_filter(
    session: Session,
    InPath(id): InPath<String>,
    condition: Condition,
) -> Answer<Option<FilterView>> {
    let id = number(&id)?;
    condition.check(filter(&session, id)).await?;
    let removed = session.execute(RemoveFilters { ids: vec![id] }).await?.pop();
    Ok(Json(removed.map(FilterView)))
}

pub(crate) async fn find_filter(
    session: Session,
    InPath(id): InPath<String>,
) -> Result<WithTag<FilterView>, Problem> {
    filter(&session, number(&id)?).await.map(WithTag)
}

async fn filter(session: &Session, id: u64) -> Result<FilterView, Problem> {
    let before = id.checked_sub(1).map(|before| before.to_string());
    let page = session.execute(ListBindings(PageQuery { limit: Some(1), cursor: before })).await?;
    let found = page.rows.into_iter().find(|binding| binding.id == id);
    let found = found.ok_or_else(|| ControlError::not_found(format!("no filter has the id {id}")))?;
    Ok(FilterView(found))
}

/// Parses the filter id in a path.
fn number(id: &str) -> Result<u64, Problem> {
    id.parse().map_err(|_| Problem::bad_request(format!("filter id {id:?} is not a number")))
}
