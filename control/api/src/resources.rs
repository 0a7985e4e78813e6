//! The resources: which paths there are, and what each method does.

use axum::Json;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{MethodRouter, delete, get, patch, post, put};
use millrace_controller::{
    ControlError, FlowQuery, NewBinding, NewFilter, NewPlugin, NewRoute, RouteQuery, Upgrade,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::capture;
use crate::configuration;
use crate::control::{Control, Controlled};
use crate::events;
use crate::extract::{Arguments, Body, Name, Names, OneOrList};
use crate::metrics;
use crate::problem::Problem;
use crate::schedulers;
use crate::server::Served;

/// Largest body of a request, in bytes.
const BODY_LIMIT: usize = 1 << 20;

/// A resource as the list shows it: path, methods, what it is.
type Resource = (&'static str, &'static [&'static str], &'static str);

/// All resources.
pub(crate) const RESOURCES: &[Resource] = &[
    ("/", &["GET"], "this list"),
    ("/status", &["GET"], "the daemon"),
    ("/summary", &["GET"], "what became of all packets"),
    ("/ports", &["GET"], "ports with counters and rates"),
    ("/ports/{name}", &["GET"], "a port"),
    (
        "/routes",
        &["GET", "POST", "DELETE"],
        "routes, mirrored and our own, with what was sent by them; ?within= a prefix; POST {to, via, port, kind} adds one, DELETE {to} removes one of ours; a list of such does all or nothing",
    ),
    ("/routes/lookup", &["GET"], "the route that packets to ?address= take"),
    ("/neighbours", &["GET"], "neighbours of the ports"),
    (
        "/plugins",
        &["GET", "POST"],
        "plugins that instances can be made of; POST {path, allow_downgrade} loads the one of a file of the router's machine",
    ),
    (
        "/plugins/{name}",
        &["PUT", "DELETE"],
        "PUT {path, shadow, accept_differences, without_state, allow_downgrade} puts another version in its place; DELETE forgets one of which there are no instances",
    ),
    ("/plugins/{name}/rollback", &["POST"], "puts the version back that was there before"),
    ("/instances", &["GET", "POST"], "plugin instances; POST {plugin, name, settings} creates one"),
    (
        "/instances/{name}",
        &["GET", "PATCH", "DELETE"],
        "one; PATCH {settings} changes some, PATCH {name} gives it another name",
    ),
    ("/instances/{name}/release", &["POST"], "POST lets it out of quarantine"),
    ("/quarantine", &["GET"], "instances that a call of theirs has ended the router for"),
    ("/instances/{name}/maps", &["GET"], "the maps that the instance writes"),
    ("/instances/{name}/maps/{map}", &["GET"], "one of them, with up to 4,096 of its entries"),
    (
        "/instances/{name}/control",
        &["POST"],
        "POST {message, arguments, slow} sends the instance a message, or its slow half",
    ),
    ("/gates", &["GET", "POST"], "gates and what is bound there; POST {name, position} creates one"),
    (
        "/gates/{name}",
        &["GET", "PATCH", "DELETE"],
        "a gate; PATCH {table} gives it another filter table, DELETE removes it",
    ),
    (
        "/bindings",
        &["GET", "POST", "DELETE"],
        "bindings; POST {instance, gate, filter, priority, on_fault, budget, packet_budget} binds, DELETE {instance, gate, filter} unbinds",
    ),
    (
        "/filters",
        &["GET", "POST", "DELETE"],
        "bindings; POST {filter, action, gate, priority} adds one, a list of such all or none; DELETE {ids} removes some",
    ),
    ("/filters/{id}", &["GET", "DELETE"], "a binding; DELETE removes it"),
    (
        "/filters/check",
        &["GET"],
        "at each gate, filters that never win since another one always does, or several together do, and those of which it is hard to see which wins",
    ),
    (
        "/filters/explain",
        &["GET"],
        "at each gate, which filter ?packet= is treated by, and why not by the others",
    ),
    (
        "/flows",
        &["GET", "DELETE"],
        "flows; ?filter=&order=rate|bytes|packets|recent&limit=; DELETE ?filter= forgets them",
    ),
    ("/drops", &["GET"], "what was dropped, and why"),
    (
        "/events",
        &["GET"],
        "what happened; ?since=&last=&kind=&limit=; with `Accept: text/event-stream`, as it happens",
    ),
    ("/schedulers", &["GET"], "in which order ports send, and at which rates: promised and delivered"),
    (
        "/schedulers/{port}",
        &["GET", "POST", "PATCH"],
        "one; POST {name, kind, under, …} adds a node, PATCH {rate, overhead, default} changes the port's own settings",
    ),
    (
        "/schedulers/{port}/{node}",
        &["PATCH", "DELETE"],
        "PATCH changes settings of a node; DELETE {to} removes it, and moves what waits there to another leaf",
    ),
    (
        "/queues",
        &["GET"],
        "the queues of ports with a scheduler: what waits, and what came before and behind",
    ),
    (
        "/queues/{port}/{queue}",
        &["GET", "PATCH"],
        "one, with the queues of flows in it; PATCH {…} changes its settings, PATCH {flow, quantum, threshold, rate} those of a flow",
    ),
    ("/lookup", &["POST"], "POST {packet} says what would happen to such a packet"),
    (
        "/configuration",
        &["GET", "POST"],
        "what runs, as a file; POST {text, origin, comment, confirm} applies one, whole or not at all, and goes back after `confirm` seconds unless it is confirmed",
    ),
    (
        "/configuration/diff",
        &["POST"],
        "POST {text, origin} says what it would change; without a text, what has changed since the last one was applied",
    ),
    (
        "/configuration/save",
        &["POST"],
        "POST {text, origin} writes what runs into the text of a file, and keeps its comments",
    ),
    ("/configuration/confirm", &["POST"], "POST keeps what was applied and waits to be confirmed"),
    (
        "/configuration/rollback",
        &["POST"],
        "POST {revision, comment, confirm} applies a revision again; without a number, what ran before",
    ),
    ("/revisions", &["GET"], "configurations that were applied: when, by whom, why; the newest first"),
    ("/revisions/{number}", &["GET"], "one, with its text"),
    ("/metrics", &["GET"], "counters and gauges for Prometheus, as OpenMetrics text"),
    ("/counters", &["DELETE"], "DELETE sets them to zero"),
    ("/capture", &["GET"], "frames as pcapng; ?port=&filter=&snap=&count="),
];

type Answer<T> = Result<Json<T>, Problem>;
type Created<T> = Result<(StatusCode, Json<T>), Problem>;

/// The service that answers requests.
pub(crate) fn router<C: Control>(served: Served<C>) -> axum::Router {
    let silent = without_arguments::<C>().route_layer(middleware::from_fn(refuse_arguments));
    silent
        .merge(with_arguments::<C>())
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(served)
}

/// Resources that take arguments behind a `?`, and refuse those that they don't know.
fn with_arguments<C: Control>() -> axum::Router<Served<C>> {
    axum::Router::new()
        .route("/routes", get(routes::<C>))
        .route("/routes/lookup", get(lookup_route::<C>))
        .route("/filters/explain", get(explain_filters::<C>))
        .route("/flows", get(flows::<C>).delete(flush_flows::<C>))
        .route("/events", get(events::events::<C>))
        .route("/capture", get(capture::capture::<C>))
}

/// All others.
fn without_arguments<C: Control>() -> axum::Router<Served<C>> {
    axum::Router::new()
        .route("/", get(list))
        .route("/status", read(C::status))
        .route("/summary", read(C::summary))
        .route("/ports", read(C::ports))
        .route("/ports/{name}", find("port", C::ports, |port| &port.name))
        .route("/routes", post(add_routes::<C>).delete(remove_routes::<C>).layer(long_bodies()))
        .route("/neighbours", read(C::neighbours))
        .route("/plugins", read(C::plugins).post(load_plugin::<C>))
        .route("/plugins/{name}", put(upgrade_plugin::<C>).delete(unload_plugin::<C>))
        .route("/plugins/{name}/rollback", post(roll_back_plugin::<C>))
        .route("/instances", read(C::instances).post(create_instance::<C>))
        .route(
            "/instances/{name}",
            find("instance", C::instances, |one| &one.name)
                .patch(change_instance::<C>)
                .delete(free_instance::<C>),
        )
        .route("/instances/{name}/release", post(release_instance::<C>))
        .route("/quarantine", read(C::quarantine))
        .route("/instances/{name}/maps", get(instance_maps::<C>))
        .route("/instances/{name}/maps/{map}", get(instance_map::<C>))
        .route("/instances/{name}/control", post(control::<C>))
        .route("/gates", read(C::gates).post(create_gate::<C>))
        .route(
            "/gates/{name}",
            find("gate", C::gates, |gate| &gate.name).patch(set_gate::<C>).delete(remove_gate::<C>),
        )
        .route("/bindings", read(C::bindings).post(bind::<C>).delete(unbind::<C>))
        .route(
            "/filters",
            read(C::bindings).post(add_filters::<C>).delete(remove_filters::<C>).layer(long_bodies()),
        )
        .route("/filters/check", get(check_filters::<C>))
        .route("/filters/{id}", get(find_filter::<C>).delete(remove_filter::<C>))
        .route("/drops", read(C::drops))
        .route("/queues", read(C::queues))
        .route("/queues/{port}/{queue}", get(schedulers::queue::<C>).patch(schedulers::set_queue::<C>))
        .route("/schedulers", read(C::schedulers))
        .route(
            "/schedulers/{port}",
            find("scheduler", C::schedulers, |one| &one.port)
                .post(schedulers::add::<C>)
                .patch(schedulers::set::<C>),
        )
        .route(
            "/schedulers/{port}/{node}",
            patch(schedulers::set_node::<C>).delete(schedulers::remove_node::<C>),
        )
        .route("/lookup", post(lookup::<C>))
        .route("/configuration", read(C::configuration).post(configuration::apply::<C>).layer(long_bodies()))
        .route("/configuration/diff", post(configuration::difference::<C>).layer(long_bodies()))
        .route("/configuration/save", post(configuration::save::<C>).layer(long_bodies()))
        .route("/configuration/confirm", post(configuration::confirm::<C>))
        .route("/configuration/rollback", post(configuration::roll_back::<C>))
        .route("/revisions", read(C::revisions))
        .route("/revisions/{number}", get(configuration::revision::<C>))
        .route("/metrics", get(metrics::metrics::<C>))
        .route("/counters", delete(clear::<C>))
}

/// Configurations and lists may be longer than other requests.
fn long_bodies() -> DefaultBodyLimit {
    DefaultBodyLimit::max(configuration::BODY_LIMIT)
}

/// No argument at all.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// Refuses arguments where none are taken: who sends them expects that they matter.
async fn refuse_arguments(_: Arguments<Nothing>, request: Request, next: Next) -> Response {
    next.run(request).await
}

/// GET of a whole noun.
fn read<C: Control, V: Serialize + 'static>(read: fn(&C) -> Controlled<V>) -> MethodRouter<Served<C>> {
    get(move |State(served): State<Served<C>>| async move {
        read(&served.control).map(Json).map_err(Problem::from)
    })
}

/// GET of one of a noun by its name.
fn find<C: Control, V: Serialize + 'static>(
    noun: &'static str,
    read: fn(&C) -> Controlled<Vec<V>>,
    name_of: fn(&V) -> &String,
) -> MethodRouter<Served<C>> {
    get(move |State(served): State<Served<C>>, Name(name): Name| async move {
        let mut all = read(&served.control)?;
        match all.iter().position(|one| *name_of(one) == name) {
            Some(index) => Ok(Json(all.swap_remove(index))),
            None => {
                let known = all.iter().map(|one| name_of(one).as_str());
                Err(Problem::from(ControlError::unknown(noun, &name, known)))
            }
        }
    })
}

async fn list() -> Json<Value> {
    let resource =
        |(path, methods, summary): &Resource| json!({"path": path, "methods": methods, "summary": summary});
    let resources: Vec<Value> = RESOURCES.iter().map(resource).collect();
    Json(json!({"name": "millrace", "version": env!("CARGO_PKG_VERSION"), "resources": resources}))
}

async fn load_plugin<C: Control>(
    State(served): State<Served<C>>,
    Body(new): Body<NewPlugin>,
) -> Created<impl Serialize> {
    Ok((StatusCode::CREATED, Json(served.control.load_plugin(&new).await?)))
}

async fn unload_plugin<C: Control>(
    State(served): State<Served<C>>,
    Name(name): Name,
) -> Answer<impl Serialize> {
    Ok(Json(served.control.unload_plugin(&name)?))
}

async fn upgrade_plugin<C: Control>(
    State(served): State<Served<C>>,
    Name(name): Name,
    Body(upgrade): Body<Upgrade>,
) -> Answer<impl Serialize> {
    Ok(Json(served.control.upgrade_plugin(&name, &upgrade).await?))
}

async fn roll_back_plugin<C: Control>(
    State(served): State<Served<C>>,
    Name(name): Name,
) -> Answer<impl Serialize> {
    Ok(Json(served.control.roll_back_plugin(&name)?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewInstance {
    plugin: String,
    name: String,
    #[serde(default)]
    settings: Map<String, Value>,
}

async fn create_instance<C: Control>(
    State(served): State<Served<C>>,
    Body(new): Body<NewInstance>,
) -> Created<impl Serialize> {
    let instance = served.control.create_instance(&new.plugin, &new.name, &new.settings)?;
    Ok((StatusCode::CREATED, Json(instance)))
}

async fn free_instance<C: Control>(
    State(served): State<Served<C>>,
    Name(name): Name,
) -> Answer<impl Serialize> {
    Ok(Json(served.control.free_instance(&name)?))
}

async fn release_instance<C: Control>(
    State(served): State<Served<C>>,
    Name(name): Name,
) -> Answer<impl Serialize> {
    Ok(Json(served.control.release_instance(&name)?))
}

async fn instance_maps<C: Control>(
    State(served): State<Served<C>>,
    Name(name): Name,
) -> Answer<impl Serialize> {
    Ok(Json(served.control.instance_maps(&name)?))
}

async fn instance_map<C: Control>(
    State(served): State<Served<C>>,
    Names([instance, map]): Names,
) -> Answer<impl Serialize> {
    Ok(Json(served.control.instance_map(&instance, &map)?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Message {
    message: String,
    #[serde(default)]
    arguments: Map<String, Value>,
    /// Whether it is for the slow half.
    #[serde(default)]
    slow: bool,
}

async fn control<C: Control>(
    State(served): State<Served<C>>,
    Name(name): Name,
    Body(message): Body<Message>,
) -> Answer<Value> {
    let Message { message, arguments, slow } = message;
    Ok(Json(match slow {
        true => served.control.control_slow_half(&name, &message, &arguments).await?,
        false => served.control.control(&name, &message, &arguments)?,
    }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewGate {
    name: String,
    position: String,
}

async fn create_gate<C: Control>(
    State(served): State<Served<C>>,
    Body(new): Body<NewGate>,
) -> Created<impl Serialize> {
    Ok((StatusCode::CREATED, Json(served.control.create_gate(&new.name, &new.position)?)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InstanceChange {
    /// Its name from now on.
    name: Option<String>,
    /// Settings that change; `null` takes one away.
    settings: Option<Map<String, Value>>,
}

async fn change_instance<C: Control>(
    State(served): State<Served<C>>,
    Name(name): Name,
    Body(change): Body<InstanceChange>,
) -> Answer<impl Serialize> {
    let control = &served.control;
    let changed = match (change.settings, change.name) {
        (Some(settings), None) => control.set_instance(&name, &settings)?,
        (None, Some(to)) => control.rename_instance(&name, &to)?,
        _ => {
            let problem = "give settings, or a name: one of the two at a time".to_owned();
            return Err(ControlError::Invalid(problem).into());
        }
    };
    Ok(Json(changed))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GateSettings {
    table: String,
}

async fn set_gate<C: Control>(
    State(served): State<Served<C>>,
    Name(name): Name,
    Body(settings): Body<GateSettings>,
) -> Answer<impl Serialize> {
    Ok(Json(served.control.set_gate_table(&name, &settings.table)?))
}

async fn remove_gate<C: Control>(
    State(served): State<Served<C>>,
    Name(name): Name,
) -> Answer<impl Serialize> {
    Ok(Json(served.control.remove_gate(&name)?))
}

async fn bind<C: Control>(
    State(served): State<Served<C>>,
    Body(new): Body<NewBinding>,
) -> Created<impl Serialize> {
    let binding = served.control.bind(&new)?;
    Ok((StatusCode::CREATED, Json(binding)))
}

/// A binding is known by these three; of its priority nothing is left to say.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OldBinding {
    instance: String,
    gate: String,
    filter: String,
}

async fn unbind<C: Control>(
    State(served): State<Served<C>>,
    Body(old): Body<OldBinding>,
) -> Answer<impl Serialize> {
    Ok(Json(served.control.unbind(&old.instance, &old.gate, &old.filter)?))
}

async fn add_filters<C: Control>(
    State(served): State<Served<C>>,
    asked: OneOrList<NewFilter>,
) -> Created<impl Serialize> {
    let added = match asked {
        OneOrList::One(new) => shown(served.control.add_filter(&new)?)?,
        OneOrList::List(new) => {
            let ids = served.control.add_filters(new).await?;
            json!({"added": ids.len(), "ids": ids})
        }
    };
    Ok((StatusCode::CREATED, Json(added)))
}

/// One thing, where the answer to a list looks different.
fn shown(view: impl Serialize) -> Result<Value, Problem> {
    serde_json::to_value(view).map_err(|error| ControlError::system("show it", error).into())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OldFilters {
    ids: Vec<u64>,
}

async fn remove_filters<C: Control>(
    State(served): State<Served<C>>,
    Body(old): Body<OldFilters>,
) -> Answer<impl Serialize> {
    Ok(Json(served.control.remove_filters(&old.ids)?))
}

async fn remove_filter<C: Control>(
    State(served): State<Served<C>>,
    Name(id): Name,
) -> Answer<impl Serialize> {
    Ok(Json(served.control.remove_filters(&[number(&id)?])?.pop()))
}

async fn find_filter<C: Control>(State(served): State<Served<C>>, Name(id): Name) -> Answer<impl Serialize> {
    let id = number(&id)?;
    let found = served.control.bindings()?.into_iter().find(|binding| binding.id == id);
    let found = found.ok_or_else(|| ControlError::NotFound(format!("no filter has the id {id}")));
    Ok(Json(found?))
}

/// The id in a path.
fn number(id: &str) -> Result<u64, Problem> {
    id.parse().map_err(|_| Problem::bad_request(format!("{id:?} is no id: ids are numbers")))
}

async fn explain_filters<C: Control>(
    State(served): State<Served<C>>,
    Arguments(asked): Arguments<Packet>,
) -> Answer<impl Serialize> {
    Ok(Json(served.control.explain_filters(&asked.packet)?))
}

async fn check_filters<C: Control>(State(served): State<Served<C>>) -> Answer<impl Serialize> {
    Ok(Json(served.control.check_filters().await?))
}

async fn add_routes<C: Control>(
    State(served): State<Served<C>>,
    asked: OneOrList<NewRoute>,
) -> Created<impl Serialize> {
    let added = match asked {
        OneOrList::One(new) => shown(served.control.add_route(&new).await?)?,
        OneOrList::List(new) => json!({"added": served.control.add_routes(new).await?}),
    };
    Ok((StatusCode::CREATED, Json(added)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OldRoute {
    to: String,
}

async fn remove_routes<C: Control>(
    State(served): State<Served<C>>,
    asked: OneOrList<OldRoute>,
) -> Answer<impl Serialize> {
    Ok(Json(match asked {
        OneOrList::One(old) => shown(served.control.remove_route(&old.to).await?)?,
        OneOrList::List(old) => {
            let to = old.into_iter().map(|old| old.to).collect();
            json!({"removed": served.control.remove_routes(to).await?})
        }
    }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Address {
    address: String,
}

async fn routes<C: Control>(
    State(served): State<Served<C>>,
    Arguments(query): Arguments<RouteQuery>,
) -> Answer<impl Serialize> {
    Ok(Json(served.control.routes(&query)?))
}

async fn lookup_route<C: Control>(
    State(served): State<Served<C>>,
    Arguments(asked): Arguments<Address>,
) -> Answer<impl Serialize> {
    Ok(Json(served.control.lookup_route(&asked.address)?))
}

async fn flows<C: Control>(
    State(served): State<Served<C>>,
    Arguments(query): Arguments<FlowQuery>,
) -> Answer<impl Serialize> {
    Ok(Json(served.control.flows(&query).await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OldFlows {
    filter: Option<String>,
}

async fn flush_flows<C: Control>(
    State(served): State<Served<C>>,
    Arguments(old): Arguments<OldFlows>,
) -> Answer<Value> {
    let flushed = served.control.flush_flows(old.filter.as_deref()).await?;
    Ok(Json(json!({"flushed": flushed})))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Packet {
    packet: String,
}

async fn lookup<C: Control>(
    State(served): State<Served<C>>,
    Body(asked): Body<Packet>,
) -> Answer<impl Serialize> {
    Ok(Json(served.control.lookup(&asked.packet)?))
}

async fn clear<C: Control>(State(served): State<Served<C>>) -> Answer<Value> {
    served.control.clear_counters()?;
    Ok(Json(json!({"cleared": true})))
}

async fn unknown_path(uri: Uri) -> Problem {
    let known = RESOURCES.iter().map(|(path, ..)| *path).filter(|path| *path != "/");
    Problem::from(ControlError::unknown("resource", uri.path(), known))
}

async fn wrong_method(method: Method, uri: Uri) -> Problem {
    let detail = format!("{} does not take {method}: GET / lists what each resource takes", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
}
