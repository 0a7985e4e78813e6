//! All resources: which paths there are, and what each method takes, answers and is carried out by.

use std::sync::{Arc, OnceLock};

use axum::Json;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, patch, post, put};
use millrace_controller::Role::{Admin, Operator, Viewer};
use millrace_controller::view::{
    AppliedView, BindingView, ConfigurationView, CreatedTokenView, DifferenceView, DropView, DroppedView,
    FlowsView, GateCheckView, GateExplanationView, GateView, HardwareView, HeldView, InstanceView,
    LookupView, MapView, NeighbourView, PluginDetailView, PluginView, PortView, QueueView, ReleaseView,
    RemovedNodeView, RevisionTextView, RevisionView, RouteView, SchedulerView, SummaryView, TokenView,
    TraceView, UpgradeView,
};
use millrace_controller::{
    Apply, AuditEntry, ControlError, EventPage, FlowQuery, NewBinding, NewFilter, NewNeighbour, NewPlugin,
    NewRoute, NewToken, NodeRemoval, OldNeighbour, PageQuery, Role, RouteQuery, RouterSettings,
    SchedulerNode, Upgrade,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::body_budget::BodyBudget;
use crate::control::Control;
use crate::operation::{JSON, Operation, Resource};
use crate::paging::pages;
use crate::problem::Problem;
use crate::rates::RatesView;
use crate::resources::{find, read};
use crate::server::Served;
use crate::status::StatusAnswer;
use crate::{
    audit, body_budget, capture, configuration, drops, events, metrics, openapi, placement, rates, resources,
    schedulers, status, tokens, trace,
};

/// Largest body of a request, in bytes.
const BODY_LIMIT: usize = 1 << 20;

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
    name: &'static str,
    /// The version of the router.
    version: &'static str,
    /// What there is.
    resources: Vec<ResourceView>,
}

/// What is served of the catalogue itself.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    /// The list of resources.
    list: Option<ListView>,
    /// The description of the interface, made when it is first asked for: that takes a while.
    openapi: OnceLock<Bytes>,
}

/// The service that answers requests.
pub(crate) fn router<C: Control>(served: Served<C>) -> axum::Router {
    let all = catalogue::<C>();
    let documents = Documents { list: Some(list_of(&all)), openapi: OnceLock::new() };
    let served = Served { documents: Arc::new(documents), ..served };
    let paths: Vec<&'static str> = all.iter().map(|resource| resource.path).collect();
    let router = all.into_iter().fold(axum::Router::new(), |router, resource| {
        let path = resource.path;
        router.route(path, resource.into_router())
    });
    router
        .fallback(move |uri: Uri| std::future::ready(unknown_path(&uri, &paths)))
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(middleware::from_fn_with_state(BodyBudget::default(), body_budget::count))
        .layer(middleware::from_fn_with_state(served.clone(), audit::note::<C>))
        .with_state(served)
}

fn list_of<C>(all: &[Resource<C>]) -> ListView {
    let resource = |resource: &Resource<C>| {
        let methods: Vec<_> = resource.operations.iter().map(|operation| operation.method).collect();
        let each = resource.operations.iter().map(|operation| match methods.len() {
            1 => operation.summary.to_owned(),
            _ => format!("{} {}", operation.method, operation.summary),
        });
        let roles = resource.operations.iter().map(|operation| operation.role).collect();
        let summary = each.collect::<Vec<_>>().join("; ");
        ResourceView { path: resource.path.to_owned(), methods, roles, summary }
    };
    let resources = all.iter().map(resource).collect();
    ListView { name: "millrace", version: env!("CARGO_PKG_VERSION"), resources }
}

async fn list<C: Control>(State(served): State<Served<C>>) -> Json<Option<ListView>> {
    Json(served.documents.list.clone())
}

async fn description<C: Control>(State(served): State<Served<C>>) -> Result<Response, Problem> {
    let documents = served.documents;
    // Beside everything else: others are not kept waiting.
    let make = move || {
        documents.openapi.get_or_init(|| openapi::document(&catalogue::<C>()).to_string().into()).clone()
    };
    let made = tokio::task::spawn_blocking(make).await;
    let bytes = made.map_err(|error| ControlError::system("describe the interface", error))?;
    Ok(([(header::CONTENT_TYPE, JSON)], bytes).into_response())
}

fn unknown_path(uri: &Uri, paths: &[&'static str]) -> Problem {
    let known = paths.iter().copied().filter(|path| *path != "/");
    Problem::from(ControlError::unknown("resource", uri.path(), known))
}

async fn wrong_method(method: Method, uri: Uri) -> Problem {
    let detail = format!("{} does not take {method}: GET / lists what each resource takes", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
}

/// Configurations and lists may be longer than other requests.
fn long_bodies() -> DefaultBodyLimit {
    DefaultBodyLimit::max(configuration::BODY_LIMIT)
}

/// All resources.
pub(crate) fn catalogue<C: Control>() -> Vec<Resource<C>> {
    [overview(), traffic(), plugins(), gates(), queues(), configurations()].into_iter().flatten().collect()
}

/// What the router is and does.
fn overview<C: Control>() -> Vec<Resource<C>> {
    vec![
        Resource::new("/").on(Operation::get::<ListView>(Viewer, "this list"), get(list::<C>)),
        Resource::new("/openapi.json").on(
            Operation::get::<Map<String, Value>>(Viewer, "the description of this interface, in OpenAPI 3.1"),
            get(description::<C>),
        ),
        Resource::new("/status").on(
            Operation::get::<StatusAnswer>(Viewer, "the daemon, and how it is asked"),
            get(status::status::<C>),
        ),
        Resource::new("/summary")
            .on(Operation::get::<SummaryView>(Viewer, "what became of all packets"), read(C::summary)),
        Resource::new("/ports")
            .on(Operation::get::<Vec<PortView>>(Viewer, "ports with counters and rates"), read(C::ports)),
        Resource::new("/ports/{name}")
            .on(Operation::get::<PortView>(Viewer, "a port"), get(resources::find_port::<C>))
            .on(
                Operation::patch::<PortView>(
                    Operator,
                    "changes a port while it forwards; null is the default",
                )
                .body::<Map<String, Value>>(),
                patch(resources::set_port::<C>),
            ),
        hardware(),
        Resource::new("/neighbours")
            .on(
                Operation::get::<Vec<NeighbourView>>(Viewer, "neighbours of the ports")
                    .arguments::<PageQuery>()
                    .paged(),
                pages(C::neighbours, |one| format!("{} {}", one.port, one.address)),
            )
            .on(
                Operation::create::<NeighbourView>(Operator, "makes one known for good")
                    .body::<NewNeighbour>(),
                post(resources::add_neighbour::<C>),
            )
            .on(
                Operation::delete::<NeighbourView>(Operator, "forgets one that was known for good")
                    .body::<OldNeighbour>(),
                delete(resources::remove_neighbour::<C>),
            ),
        Resource::new("/router")
            .on(
                Operation::get::<RouterSettings>(Viewer, "settings that hold for the whole router").tagged(),
                get(resources::settings::<C>),
            )
            .on(
                Operation::patch::<RouterSettings>(
                    Admin,
                    "changes some of them; null is the default again",
                )
                .body::<Map<String, Value>>()
                .tagged(),
                patch(resources::set_settings::<C>),
            ),
        Resource::new("/drops")
            .on(Operation::get::<Vec<DropView>>(Viewer, "what was dropped, and why"), read(C::drops)),
        Resource::new("/drops/packets").on(
            Operation::get::<Vec<DroppedView>>(
                Operator,
                "the last packets that were dropped, up to 8 for each reason and worker; as pcapng, or as a stream, if accepted",
            )
            .arguments::<drops::Wanted>()
            .streams(),
            get(drops::packets::<C>),
        ),
        Resource::new("/trace").on(
            Operation::get::<Vec<TraceView>>(
                Operator,
                "journeys of packets that come in, stage by stage, until there are ?count=; as pcapng, or as a stream, if accepted",
            )
            .arguments::<trace::Wanted>()
            .streams(),
            get(trace::trace::<C>),
        ),
        Resource::new("/rates").on(
            Operation::get::<RatesView>(
                Viewer,
                "what the counters of ports grow by in a second, ?hz= times a second as a stream, or once",
            )
            .arguments::<rates::Wanted>()
            .streams(),
            get(rates::rates::<C>),
        ),
        Resource::new("/events").on(
            Operation::get::<EventPage>(
                Viewer,
                "what happened; with `Accept: text/event-stream`, as it happens, and after Last-Event-ID",
            )
            .arguments::<events::Wanted>()
            .streams_on(),
            get(events::events::<C>),
        ),
        Resource::new("/audit").on(
            Operation::get::<Vec<AuditEntry>>(Admin, "who asked for which change, and what came of it")
                .arguments::<audit::Wanted>(),
            get(audit::audit::<C>),
        ),
        Resource::new("/tokens")
            .on(
                Operation::get::<Vec<TokenView>>(
                    Admin,
                    "by which one is let in from elsewhere: whose, and when used",
                ),
                get(tokens::list::<C>),
            )
            .on(
                Operation::create::<CreatedTokenView>(Admin, "makes one, and tells it this once")
                    .body::<NewToken>(),
                post(tokens::create::<C>),
            ),
        Resource::new("/tokens/{name}")
            .on(Operation::delete::<TokenView>(Admin, "revokes it"), delete(tokens::revoke::<C>)),
        Resource::new("/metrics").on(
            Operation::get::<String>(Viewer, "counters and gauges for Prometheus, as OpenMetrics text")
                .media(metrics::MEDIA),
            get(metrics::metrics::<C>),
        ),
        Resource::new("/counters").on(
            Operation::delete::<resources::Cleared>(Operator, "sets them to zero"),
            delete(resources::clear::<C>),
        ),
        Resource::new("/capture").on(
            Operation::get::<String>(
                Operator,
                "frames as pcapng, until there are ?count= or the client goes",
            )
            .arguments::<capture::Wanted>()
            .media("application/x-pcapng"),
            get(capture::capture::<C>),
        ),
    ]
}

/// What there is for packets to pass.
fn hardware<C: Control>() -> Resource<C> {
    Resource::new("/hardware").on(
        Operation::get::<HardwareView>(
            Viewer,
            "processors, ports and the switches between them, with what each can do here",
        ),
        read(C::hardware),
    )
}

/// Where packets go.
fn traffic<C: Control>() -> Vec<Resource<C>> {
    vec![
        Resource::new("/routes")
            .on(
                Operation::get::<Vec<RouteView>>(
                    Viewer,
                    "routes, mirrored and our own, with what was sent by them",
                )
                .arguments::<RouteQuery>()
                .paged(),
                get(resources::routes::<C>),
            )
            .on(
                Operation::create::<resources::RoutesAdded>(
                    Operator,
                    "adds one of ours, or all or none of a list",
                )
                .one_or_list::<NewRoute>(),
                post(resources::add_routes::<C>),
            )
            .on(
                Operation::put::<RouteView>(
                    Operator,
                    "adds one, or puts it in the place of ours to the same prefix",
                )
                .body::<NewRoute>(),
                put(resources::replace_route::<C>),
            )
            .on(
                Operation::delete::<resources::RoutesRemoved>(
                    Operator,
                    "removes one of ours, or all or none of a list",
                )
                .one_or_list::<resources::OldRoute>(),
                delete(resources::remove_routes::<C>),
            )
            .bodies(long_bodies()),
        Resource::new("/routes/lookup").on(
            Operation::get::<RouteView>(Viewer, "the route that packets to ?address= take")
                .arguments::<resources::Address>(),
            get(resources::lookup_route::<C>),
        ),
        Resource::new("/filters")
            .on(
                Operation::get::<Vec<BindingView>>(Viewer, "all bindings, of instances and of other actions")
                    .arguments::<PageQuery>()
                    .paged(),
                get(resources::bindings::<C>),
            )
            .on(
                Operation::create::<resources::FiltersAdded>(Operator, "adds one, or all or none of a list")
                    .one_or_list::<NewFilter>(),
                post(resources::add_filters::<C>),
            )
            .on(
                Operation::delete::<Vec<BindingView>>(Operator, "removes some, all or none")
                    .body::<resources::OldFilters>(),
                delete(resources::remove_filters::<C>),
            )
            .bodies(long_bodies()),
        Resource::new("/filters/check").on(
            Operation::get::<Vec<GateCheckView>>(
                Viewer,
                "at each gate, filters that never win, and those of which it is hard to see which wins",
            ),
            get(resources::check_filters::<C>),
        ),
        Resource::new("/filters/explain").on(
            Operation::get::<Vec<GateExplanationView>>(
                Viewer,
                "at each gate, which filter ?packet= is treated by, and why not by the others",
            )
            .arguments::<resources::Packet>(),
            get(resources::explain_filters::<C>),
        ),
        Resource::new("/filters/{id}")
            .on(Operation::get::<BindingView>(Viewer, "a binding").tagged(), get(resources::find_filter::<C>))
            .on(
                Operation::delete::<Option<BindingView>>(Operator, "removes it").tagged(),
                delete(resources::remove_filter::<C>),
            ),
        Resource::new("/flows")
            .on(
                Operation::get::<FlowsView>(Viewer, "flows that a filter selects, in an order")
                    .arguments::<FlowQuery>(),
                get(resources::flows::<C>),
            )
            .on(
                Operation::delete::<resources::Flushed>(Operator, "forgets flows that a filter selects")
                    .arguments::<resources::OldFlows>(),
                delete(resources::flush_flows::<C>),
            ),
        placement::resource(),
        Resource::new("/lookup").on(
            Operation::post::<LookupView>(Viewer, "says what would happen to a packet")
                .body::<resources::Packet>(),
            post(resources::lookup::<C>),
        ),
    ]
}

/// Plugins and their instances.
fn plugins<C: Control>() -> Vec<Resource<C>> {
    vec![
        Resource::new("/plugins")
            .on(
                Operation::get::<Vec<PluginView>>(Viewer, "plugins that instances can be made of"),
                read(C::plugins),
            )
            .on(
                Operation::create::<PluginView>(Admin, "loads the one of a file of the router's machine")
                    .body::<NewPlugin>(),
                post(resources::load_plugin::<C>),
            ),
        Resource::new("/plugins/{name}")
            .on(
                Operation::get::<PluginDetailView>(Viewer, "all that a plugin says of itself").tagged(),
                get(resources::find_plugin::<C>),
            )
            .on(
                Operation::put::<UpgradeView>(Admin, "puts another version in its place")
                    .body::<Upgrade>()
                    .tagged(),
                put(resources::upgrade_plugin::<C>),
            )
            .on(
                Operation::delete::<PluginView>(Admin, "forgets one of which there are no instances")
                    .tagged(),
                delete(resources::unload_plugin::<C>),
            ),
        Resource::new("/plugins/{name}/rollback").on(
            Operation::post::<UpgradeView>(Admin, "puts the version back that was there before").tagged(),
            post(resources::roll_back_plugin::<C>),
        ),
        Resource::new("/instances")
            .on(
                Operation::get::<Vec<InstanceView>>(Viewer, "plugin instances")
                    .arguments::<PageQuery>()
                    .paged(),
                pages(C::instances, |one| one.name.clone()),
            )
            .on(
                Operation::create::<InstanceView>(Operator, "creates one").body::<resources::NewInstance>(),
                post(resources::create_instance::<C>),
            ),
        Resource::new("/instances/{name}")
            .on(
                Operation::get::<InstanceView>(Viewer, "one").tagged(),
                find("instance", C::instances, |one| &one.name),
            )
            .on(
                Operation::patch::<InstanceView>(Operator, "changes some settings, or gives it another name")
                    .body::<resources::InstanceChange>()
                    .tagged(),
                patch(resources::change_instance::<C>),
            )
            .on(
                Operation::delete::<InstanceView>(Operator, "frees it, after its bindings").tagged(),
                delete(resources::free_instance::<C>),
            ),
        Resource::new("/instances/{name}/release").on(
            Operation::post::<ReleaseView>(Operator, "lets it out of quarantine"),
            post(resources::release_instance::<C>),
        ),
        Resource::new("/quarantine").on(
            Operation::get::<Vec<HeldView>>(
                Viewer,
                "instances that a call of theirs has ended the router for",
            ),
            read(C::quarantine),
        ),
        Resource::new("/instances/{name}/maps").on(
            Operation::get::<Vec<MapView>>(Viewer, "the maps that the instance writes"),
            get(resources::instance_maps::<C>),
        ),
        Resource::new("/instances/{name}/maps/{map}").on(
            Operation::get::<MapView>(Viewer, "one of them, with up to 4,096 of its entries"),
            get(resources::instance_map::<C>),
        ),
        Resource::new("/instances/{name}/control").on(
            Operation::post::<Value>(Operator, "sends the instance a message, or its slow half")
                .body::<resources::Message>(),
            post(resources::control::<C>),
        ),
    ]
}

/// Gates and what is bound there.
fn gates<C: Control>() -> Vec<Resource<C>> {
    vec![
        Resource::new("/gates")
            .on(Operation::get::<Vec<GateView>>(Viewer, "gates and what is bound there"), read(C::gates))
            .on(
                Operation::create::<GateView>(Operator, "creates one, the last at its position")
                    .body::<resources::NewGate>(),
                post(resources::create_gate::<C>),
            ),
        Resource::new("/gates/{name}")
            .on(
                Operation::get::<GateView>(Viewer, "a gate").tagged(),
                find("gate", C::gates, |gate| &gate.name),
            )
            .on(
                Operation::patch::<GateView>(Operator, "gives it another filter table")
                    .body::<resources::GateSettings>()
                    .tagged(),
                patch(resources::set_gate::<C>),
            )
            .on(
                Operation::delete::<GateView>(Operator, "removes it").tagged(),
                delete(resources::remove_gate::<C>),
            ),
        Resource::new("/bindings")
            .on(
                Operation::get::<Vec<BindingView>>(Viewer, "bindings").arguments::<PageQuery>().paged(),
                get(resources::bindings::<C>),
            )
            .on(
                Operation::create::<BindingView>(Operator, "binds an instance").body::<NewBinding>(),
                post(resources::bind::<C>),
            )
            .on(
                Operation::delete::<BindingView>(Operator, "undoes a binding")
                    .body::<resources::OldBinding>(),
                delete(resources::unbind::<C>),
            ),
    ]
}

/// Schedulers and queues.
fn queues<C: Control>() -> Vec<Resource<C>> {
    vec![
        Resource::new("/schedulers").on(
            Operation::get::<Vec<SchedulerView>>(
                Viewer,
                "in which order ports send, and at which rates: promised and delivered",
            ),
            read(C::schedulers),
        ),
        Resource::new("/schedulers/{port}")
            .on(
                Operation::get::<SchedulerView>(Viewer, "one").tagged(),
                find("scheduler", C::schedulers, |one| &one.port),
            )
            .on(
                Operation::create::<SchedulerView>(Operator, "adds a node").body::<SchedulerNode>().tagged(),
                post(schedulers::add::<C>),
            )
            .on(
                Operation::patch::<SchedulerView>(Operator, "changes the port's own settings")
                    .body::<Map<String, Value>>()
                    .tagged(),
                patch(schedulers::set::<C>),
            ),
        Resource::new("/schedulers/{port}/{node}")
            .on(
                Operation::patch::<SchedulerView>(
                    Operator,
                    "changes settings of a node; null takes one away",
                )
                .body::<Map<String, Value>>()
                .tagged(),
                patch(schedulers::set_node::<C>),
            )
            .on(
                Operation::delete::<RemovedNodeView>(
                    Operator,
                    "removes it, and moves what waits there to another leaf",
                )
                .body::<NodeRemoval>()
                .tagged(),
                delete(schedulers::remove_node::<C>),
            ),
        Resource::new("/queues").on(
            Operation::get::<Vec<QueueView>>(
                Viewer,
                "what waits in queues of ports with a scheduler, and what came before and behind",
            )
            .arguments::<PageQuery>()
            .paged(),
            pages(C::queues, |one| format!("{} {:05}", one.port, one.node.id)),
        ),
        Resource::new("/queues/{port}/{queue}")
            .on(
                Operation::get::<QueueView>(Viewer, "one, with the queues of flows in it").tagged(),
                get(schedulers::queue::<C>),
            )
            .on(
                Operation::patch::<schedulers::QueueChanged>(
                    Operator,
                    "changes its settings, or those of a flow in it",
                )
                .body::<schedulers::QueueChanges>()
                .tagged(),
                patch(schedulers::set_queue::<C>),
            ),
    ]
}

/// The configuration and its revisions.
fn configurations<C: Control>() -> Vec<Resource<C>> {
    vec![
        Resource::new("/configuration")
            .on(
                Operation::get::<ConfigurationView>(Viewer, "what runs, as a file").tagged(),
                get(configuration::running::<C>),
            )
            .on(
                Operation::post::<AppliedView>(Admin, "applies a file, whole or not at all, and goes back after `confirm` seconds unless it is confirmed",
                )
                .body::<Apply>()
                .tagged(),
                post(configuration::apply::<C>),
            )
            .bodies(long_bodies()),
        Resource::new("/configuration/diff")
            .on(
                Operation::post::<DifferenceView>(Operator, "says what a file would change; without a text, what has changed since the last one was applied",
                )
                .body::<configuration::Compared>(),
                post(configuration::difference::<C>),
            )
            .bodies(long_bodies()),
        Resource::new("/configuration/save")
            .on(
                Operation::post::<configuration::Saved>(Operator, "writes what runs into the text of a file, and keeps its comments",
                )
                .body::<configuration::Text>(),
                post(configuration::save::<C>),
            )
            .bodies(long_bodies()),
        Resource::new("/configuration/confirm").on(
            Operation::post::<configuration::Confirmed>(Admin, "keeps what was applied and waits to be confirmed"),
            post(configuration::confirm::<C>),
        ),
        Resource::new("/configuration/rollback").on(
            Operation::post::<AppliedView>(Admin, "applies a revision again; without a number, what ran before")
                .body::<configuration::Return>(),
            post(configuration::roll_back::<C>),
        ),
        Resource::new("/revisions").on(
            Operation::get::<Vec<RevisionView>>(
                Viewer,
                "configurations that were applied: when, by whom, why; the newest first",
            )
            .arguments::<PageQuery>()
            .paged(),
            // The newest has the lowest key.
            pages(C::revisions, |one| format!("{:020}", u64::MAX - one.revision.number)),
        ),
        Resource::new("/revisions/{number}").on(
            Operation::get::<RevisionTextView>(Viewer, "one, with its text"),
            get(configuration::revision::<C>),
        ),
    ]
}
