//! Handlers that most resources share.

pub(crate) mod audit;
pub(crate) mod capture;
pub(crate) mod configuration;
pub(crate) mod control_plane;
pub(crate) mod drops;
pub(crate) mod events;
pub(crate) mod instances;
pub(crate) mod metrics;
pub(crate) mod placement;
pub(crate) mod rates;
pub(crate) mod schedulers;
pub(crate) mod status;
pub(crate) mod tokens;
pub(crate) mod trace;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use axum::routing::{MethodRouter, get};
use millrace_controller::view::{GateView, RouteView, ShadowedView};
use millrace_controller::{
    AddedFilters, ControlError, FlowQuery, NewBinding, NewFilter, NewNeighbour, NewRoute, OldFilter,
    OldNeighbour, Page, PageQuery, RouteQuery, Router, RouterSettings,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::http::extract::{Arguments, Body, Name, OneOrList};
use crate::http::naming::{FilterView, Settings, refused};
use crate::http::problem::Problem;
use crate::http::tag::{Condition, Tagged, WithTag};
use crate::principal::Principal;
use crate::served::Served;
use crate::served::long::long;
use crate::served::paging::paged;

type Answer<T> = Result<Json<T>, Problem>;
type Created<T> = Result<(StatusCode, Json<T>), Problem>;

/// Returns the handler for GET of all objects of a noun.
pub(crate) fn read<V: Serialize + 'static>(
    read: fn(&Router) -> Result<V, ControlError>,
) -> MethodRouter<Served> {
    get(
        move |State(served): State<Served>| async move { read(&served.control).map(Json).map_err(Problem::from) },
    )
}

/// Returns the handler for GET of one object of a noun by its name.
pub(crate) fn find<V: Tagged + 'static>(
    noun: &'static str,
    read: fn(&Router) -> Result<Vec<V>, ControlError>,
    name_of: fn(&V) -> &str,
) -> MethodRouter<Served> {
    get(move |State(served): State<Served>, Name(name): Name| async move {
        named(noun, read(&served.control)?, name_of, &name).map(WithTag)
    })
}

/// Returns the object of that name.
pub(crate) fn named<V>(
    noun: &'static str,
    mut all: Vec<V>,
    name_of: fn(&V) -> &str,
    name: &str,
) -> Result<V, Problem> {
    match all.iter().position(|one| name_of(one) == name) {
        Some(index) => Ok(all.swap_remove(index)),
        None => Err(ControlError::unknown(noun, name, all.iter().map(name_of)).into()),
    }
}

pub(crate) async fn hardware(State(served): State<Served>) -> Answer<impl Serialize> {
    Ok(Json(served.control.hardware().await?))
}

pub(crate) async fn find_port(State(served): State<Served>, Name(name): Name) -> Answer<impl Serialize> {
    named("port", served.control.ports()?, |port| &port.name, &name).map(Json)
}

fn gate(served: &Served, name: &str) -> Result<GateView, Problem> {
    named("gate", served.control.gates()?, |one| &one.name, name)
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewGate {
    name: String,
    position: String,
}

pub(crate) async fn create_gate(
    State(served): State<Served>,
    Body(new): Body<NewGate>,
) -> Created<impl Serialize> {
    Ok((StatusCode::CREATED, Json(served.control.create_gate(&new.name, &new.position)?)))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GateSettings {
    table: String,
}

pub(crate) async fn set_gate(
    State(served): State<Served>,
    Name(name): Name,
    condition: Condition,
    Body(settings): Body<GateSettings>,
) -> Result<WithTag<GateView>, Problem> {
    condition.check(|| gate(&served, &name))?;
    Ok(WithTag(served.control.set_gate_table(&name, &settings.table)?))
}

pub(crate) async fn remove_gate(
    State(served): State<Served>,
    Name(name): Name,
    condition: Condition,
) -> Answer<impl Serialize> {
    condition.check(|| gate(&served, &name))?;
    Ok(Json(served.control.remove_gate(&name)?))
}

pub(crate) async fn bind(
    State(served): State<Served>,
    Body(new): Body<NewBinding>,
) -> Created<impl Serialize> {
    let binding = served.control.bind(&new)?;
    Ok((StatusCode::CREATED, Json(binding)))
}

/// Binding to remove; bindings of any priority match.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OldBinding {
    instance: String,
    gate: String,
    filter: String,
}

pub(crate) async fn unbind(
    State(served): State<Served>,
    Body(old): Body<OldBinding>,
) -> Answer<impl Serialize> {
    Ok(Json(served.control.unbind(&old.instance, &old.gate, &old.filter)?))
}

pub(crate) async fn set_port(
    State(served): State<Served>,
    Name(port): Name,
    Body(Settings(changes)): Body<Settings<Map<String, Value>>>,
) -> Answer<impl Serialize> {
    Ok(Json(served.control.set_port(&port, &changes).await.map_err(refused(&changes))?))
}

pub(crate) async fn settings(
    State(served): State<Served>,
) -> Result<WithTag<Settings<RouterSettings>>, Problem> {
    Ok(WithTag(Settings(served.control.settings()?)))
}

pub(crate) async fn set_settings(
    State(served): State<Served>,
    condition: Condition,
    Body(Settings(changes)): Body<Settings<Map<String, Value>>>,
) -> Result<WithTag<Settings<RouterSettings>>, Problem> {
    condition.check(|| Ok(Settings(served.control.settings()?)))?;
    Ok(WithTag(Settings(served.control.set_settings(&changes).await.map_err(refused(&changes))?)))
}

pub(crate) async fn add_neighbour(
    State(served): State<Served>,
    Body(new): Body<NewNeighbour>,
) -> Created<impl Serialize> {
    Ok((StatusCode::CREATED, Json(served.control.add_neighbour(&new).await?)))
}

pub(crate) async fn remove_neighbour(
    State(served): State<Served>,
    Body(old): Body<OldNeighbour>,
) -> Answer<impl Serialize> {
    Ok(Json(served.control.remove_neighbour(&old).await?))
}

pub(crate) async fn replace_route(
    State(served): State<Served>,
    Body(new): Body<NewRoute>,
) -> Answer<impl Serialize> {
    Ok(Json(served.control.replace_route(&new).await?))
}

/// Result of adding filters.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum FiltersAdded {
    /// Added filter.
    One(Box<FilterView>),
    /// Number of added filters of a list, their ids in the order of the list, and those that never win.
    List { added: usize, ids: Vec<u64>, shadowed: Vec<ShadowedView> },
}

pub(crate) async fn add_filters(
    State(served): State<Served>,
    asked: OneOrList<NewFilter>,
) -> Created<FiltersAdded> {
    let added = match asked {
        OneOrList::One(new) => FiltersAdded::One(FilterView(served.control.add_filter(&new)?).into()),
        OneOrList::List(new) => {
            let AddedFilters { ids, shadowed } = served.control.add_filters(new).await?;
            FiltersAdded::List { added: ids.len(), ids, shadowed }
        }
    };
    Ok((StatusCode::CREATED, Json(added)))
}

/// Returns the bindings, ordered by id.
pub(crate) async fn bindings(
    State(served): State<Served>,
    Extension(principal): Extension<Principal>,
    uri: Uri,
    Arguments(query): Arguments<PageQuery>,
) -> Response {
    long(&served, &principal, move |control| Ok(paged(&uri, control.bindings(&query)?))).await
}

/// Returns the filters, ordered by id.
pub(crate) async fn filters(
    State(served): State<Served>,
    Extension(principal): Extension<Principal>,
    uri: Uri,
    Arguments(query): Arguments<PageQuery>,
) -> Response {
    let filters = move |control: &Router| {
        let Page { rows, next } = control.bindings(&query)?;
        Ok(paged(&uri, Page { rows: rows.into_iter().map(FilterView).collect(), next }))
    };
    long(&served, &principal, filters).await
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
    /// Priority of the filter; may be absent if only one filter has the other fields.
    priority: Option<i32>,
}

pub(crate) async fn remove_filters(
    State(served): State<Served>,
    Body(old): Body<OldFilters>,
) -> Answer<impl Serialize> {
    let removed = match old {
        OldFilters { ids: Some(ids), filter: None, action: None, gate: None, priority: None } => {
            served.control.remove_filters(&ids)?
        }
        OldFilters { ids: None, filter: Some(filter), action: Some(action), gate, priority } => {
            vec![served.control.remove_filter(&OldFilter { filter, action, gate, priority })?]
        }
        _ => {
            let problem = "give either `ids`, or `match` and `action`".to_owned();
            return Err(ControlError::Invalid(problem).into());
        }
    };
    Ok(Json(removed.into_iter().map(FilterView).collect::<Vec<_>>()))
}

pub(crate) async fn remove_filter(
    State(served): State<Served>,
    Name(id): Name,
    condition: Condition,
) -> Answer<impl Serialize> {
    let id = number(&id)?;
    condition.check(|| filter(&served, id))?;
    Ok(Json(served.control.remove_filters(&[id])?.pop().map(FilterView)))
}

pub(crate) async fn find_filter(
    State(served): State<Served>,
    Name(id): Name,
) -> Result<WithTag<FilterView>, Problem> {
    filter(&served, number(&id)?).map(WithTag)
}

fn filter(served: &Served, id: u64) -> Result<FilterView, Problem> {
    let before = id.checked_sub(1).map(|before| before.to_string());
    let query = PageQuery { limit: Some(1), cursor: before };
    let found = served.control.bindings(&query)?.rows.into_iter().find(|binding| binding.id == id);
    let found = found.ok_or_else(|| ControlError::NotFound(format!("no filter has the id {id}")))?;
    Ok(FilterView(found))
}

/// Parses the id in a path.
fn number(id: &str) -> Result<u64, Problem> {
    id.parse().map_err(|_| Problem::bad_request(format!("filter id {id:?} is not a number")))
}

pub(crate) async fn explain_filters(
    State(served): State<Served>,
    Arguments(asked): Arguments<Packet>,
) -> Answer<impl Serialize> {
    Ok(Json(served.control.explain_filters(&asked.packet)?))
}

pub(crate) async fn check_filters(State(served): State<Served>) -> Answer<impl Serialize> {
    Ok(Json(served.control.check_filters().await?))
}

/// Result of adding routes.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum RoutesAdded {
    /// Added route.
    One(Box<RouteView>),
    /// Number of added routes of a list.
    List { added: usize },
}

pub(crate) async fn add_routes(
    State(served): State<Served>,
    asked: OneOrList<NewRoute>,
) -> Created<RoutesAdded> {
    let added = match asked {
        OneOrList::One(new) => RoutesAdded::One(served.control.add_route(&new).await?.into()),
        OneOrList::List(new) => RoutesAdded::List { added: served.control.add_routes(new).await? },
    };
    Ok((StatusCode::CREATED, Json(added)))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OldRoute {
    to: String,
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

pub(crate) async fn remove_routes(
    State(served): State<Served>,
    asked: OneOrList<OldRoute>,
) -> Answer<RoutesRemoved> {
    Ok(Json(match asked {
        OneOrList::One(old) => RoutesRemoved::One(served.control.remove_route(&old.to).await?.into()),
        OneOrList::List(old) => {
            let to = old.into_iter().map(|old| old.to).collect();
            RoutesRemoved::List { removed: served.control.remove_routes(to).await? }
        }
    }))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Address {
    address: String,
}

pub(crate) async fn routes(
    State(served): State<Served>,
    Extension(principal): Extension<Principal>,
    uri: Uri,
    Arguments(query): Arguments<RouteQuery>,
) -> Response {
    long(&served, &principal, move |control| Ok(paged(&uri, control.routes(&query)?))).await
}

pub(crate) async fn lookup_route(
    State(served): State<Served>,
    Arguments(asked): Arguments<Address>,
) -> Answer<impl Serialize> {
    Ok(Json(served.control.lookup_route(&asked.address)?))
}

pub(crate) async fn flows(
    State(served): State<Served>,
    Arguments(query): Arguments<FlowQuery>,
) -> Answer<impl Serialize> {
    Ok(Json(served.control.flows(&query).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OldFlows {
    filter: Option<String>,
}

/// Result of flushing flows.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Flushed {
    /// Number of flushed flows.
    flushed: u64,
}

pub(crate) async fn flush_flows(
    State(served): State<Served>,
    Arguments(old): Arguments<OldFlows>,
) -> Answer<Flushed> {
    let flushed = served.control.flush_flows(old.filter.as_deref()).await?;
    Ok(Json(Flushed { flushed }))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Packet {
    packet: String,
}

pub(crate) async fn lookup(
    State(served): State<Served>,
    Body(asked): Body<Packet>,
) -> Answer<impl Serialize> {
    Ok(Json(served.control.lookup(&asked.packet)?))
}

/// Result of clearing the counters.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Cleared {
    /// Always `true`.
    cleared: bool,
}

pub(crate) async fn clear(State(served): State<Served>) -> Answer<Cleared> {
    served.control.clear_counters()?;
    Ok(Json(Cleared { cleared: true }))
}
