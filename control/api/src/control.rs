//! What the interface needs of a router.

use std::future::Future;

use millrace_config::Scheduler;
use millrace_controller::view::{
    AppliedView, BindingView, ConfigurationView, ControlPlaneView, CountersView, DifferenceView, DropView,
    DroppedView, FlowsView, GateCheckView, GateExplanationView, GateView, HardwareView, HeldView,
    InstanceView, LookupView, MapView, NeighbourView, PlacementView, PlacementsView, PluginDetailView,
    PluginView, PortView, QueueView, ReleaseView, RemovedNodeView, RevisionTextView, RevisionView, RouteView,
    SchedulerView, StatusView, SummaryView, TraceView, UpgradeView,
};
use millrace_controller::{
    AddedFilters, Apply, AuditEntry, AuditLog, Capture, CaptureRequest, ControlError, DropCursor, Events,
    FlowQuery, Keep, NewBinding, NewFilter, NewNeighbour, NewPlacement, NewPlugin, NewRoute, NodeRemoval,
    OldFilter, OldNeighbour, Page, PageQuery, Revision, Role, RollBack, RouteQuery, Router, RouterSettings,
    Save, SchedulerNode, Tokens, Trace, TraceRequest, Upgrade, Who, Written,
};
use serde_json::{Map, Value};

/// A result of control.
pub type Controlled<T> = Result<T, ControlError>;

/// A router as the interface sees it. All calls are quick, or wait without keeping others waiting: they run between two
/// requests on the daemon's one control thread. Their errors say what was wrong and what would be right.
#[allow(missing_docs, reason = "each is what millrace_controller::Router documents under the same name")]
pub trait Control: Clone + Send + Sync + 'static {
    /// A capture that goes on.
    type Recording: Recording;
    /// A trace that goes on.
    type Tracing: Tracing;

    fn events(&self) -> &Events;
    fn audit(&self) -> AuditLog;
    fn tokens(&self) -> &Tokens;
    fn room_for(&self, body: usize) -> Controlled<()>;
    fn note(&self, entry: AuditEntry) -> Written;
    fn status(&self) -> Controlled<StatusView>;
    fn summary(&self) -> Controlled<SummaryView>;
    fn ports(&self) -> Controlled<Vec<PortView>>;
    fn hardware(&self) -> impl Future<Output = Controlled<HardwareView>> + Send;
    fn counters(&self) -> Controlled<CountersView>;
    fn routes(&self, query: &RouteQuery) -> Controlled<Page<RouteView>>;
    fn neighbours(&self) -> Controlled<Vec<NeighbourView>>;
    fn plugins(&self) -> Controlled<Vec<PluginView>>;
    fn plugin(&self, name: &str) -> Controlled<PluginDetailView>;
    fn load_plugin(&self, new: &NewPlugin) -> impl Future<Output = Controlled<PluginView>> + Send;
    fn unload_plugin(&self, name: &str) -> Controlled<PluginView>;
    fn upgrade_plugin(
        &self,
        name: &str,
        upgrade: &Upgrade,
    ) -> impl Future<Output = Controlled<UpgradeView>> + Send;
    fn roll_back_plugin(&self, name: &str) -> Controlled<UpgradeView>;
    fn instances(&self) -> Controlled<Vec<InstanceView>>;
    fn gates(&self) -> Controlled<Vec<GateView>>;
    fn bindings(&self, query: &PageQuery) -> Controlled<Page<BindingView>>;
    fn drops(&self) -> Controlled<Vec<DropView>>;
    fn set_port(
        &self,
        name: &str,
        changes: &Map<String, Value>,
    ) -> impl Future<Output = Controlled<PortView>> + Send;
    fn settings(&self) -> Controlled<RouterSettings>;
    fn set_settings(
        &self,
        changes: &Map<String, Value>,
    ) -> impl Future<Output = Controlled<RouterSettings>> + Send;
    fn control_plane(&self) -> Controlled<ControlPlaneView>;
    fn set_control_plane(
        &self,
        changes: &Map<String, Value>,
    ) -> impl Future<Output = Controlled<ControlPlaneView>> + Send;
    fn add_neighbour(&self, new: &NewNeighbour) -> impl Future<Output = Controlled<NeighbourView>> + Send;
    fn remove_neighbour(&self, old: &OldNeighbour) -> impl Future<Output = Controlled<NeighbourView>> + Send;
    fn schedulers(&self) -> Controlled<Vec<SchedulerView>>;
    fn add_scheduler_node(&self, port: &str, node: &SchedulerNode) -> Controlled<SchedulerView>;
    fn set_scheduler_node(
        &self,
        port: &str,
        name: &str,
        changes: &Map<String, Value>,
    ) -> Controlled<SchedulerView>;
    fn remove_scheduler_node(
        &self,
        port: &str,
        name: &str,
        removal: &NodeRemoval,
    ) -> impl Future<Output = Controlled<RemovedNodeView>> + Send;
    fn set_scheduler(&self, port: &str, changes: &Map<String, Value>) -> Controlled<SchedulerView>;
    fn queues(&self) -> Controlled<Vec<QueueView>>;
    fn queue(&self, port: &str, queue: &str) -> impl Future<Output = Controlled<QueueView>> + Send;
    /// What is said of the order in which a port sends; `None` where it has no scheduler.
    fn scheduler_settings(&self, port: &str) -> Controlled<Option<Scheduler>>;
    fn set_queue(
        &self,
        port: &str,
        queue: &str,
        flow: Option<&str>,
        changes: &Map<String, Value>,
    ) -> Controlled<()>;
    fn create_instance(
        &self,
        plugin: &str,
        name: &str,
        settings: &Map<String, Value>,
        role: Role,
    ) -> Controlled<InstanceView>;
    fn set_instance(&self, name: &str, settings: &Map<String, Value>, role: Role)
    -> Controlled<InstanceView>;
    fn rename_instance(&self, name: &str, to: &str, role: Role) -> Controlled<InstanceView>;
    fn free_instance(&self, name: &str, role: Role) -> Controlled<InstanceView>;
    fn release_instance(&self, name: &str, role: Role) -> Controlled<ReleaseView>;
    fn quarantine(&self) -> Controlled<Vec<HeldView>>;
    fn instance_maps(&self, instance: &str) -> Controlled<Vec<MapView>>;
    fn instance_map(&self, instance: &str, map: &str) -> Controlled<MapView>;
    fn create_gate(&self, name: &str, position: &str) -> Controlled<GateView>;
    fn set_gate_table(&self, name: &str, table: &str) -> Controlled<GateView>;
    fn remove_gate(&self, name: &str) -> Controlled<GateView>;
    fn bind(&self, new: &NewBinding) -> Controlled<BindingView>;
    fn unbind(&self, instance: &str, gate: &str, filter: &str) -> Controlled<BindingView>;
    fn add_filter(&self, new: &NewFilter) -> Controlled<BindingView>;
    fn remove_filters(&self, ids: &[u64]) -> Controlled<Vec<BindingView>>;
    fn remove_filter(&self, old: &OldFilter) -> Controlled<BindingView>;
    fn add_filters(&self, new: Vec<NewFilter>) -> impl Future<Output = Controlled<AddedFilters>> + Send;
    fn explain_filters(&self, packet: &str) -> Controlled<Vec<GateExplanationView>>;
    fn check_filters(&self) -> impl Future<Output = Controlled<Vec<GateCheckView>>> + Send;
    fn add_route(&self, new: &NewRoute) -> impl Future<Output = Controlled<RouteView>> + Send;
    fn replace_route(&self, new: &NewRoute) -> impl Future<Output = Controlled<RouteView>> + Send;
    fn remove_route(&self, to: &str) -> impl Future<Output = Controlled<RouteView>> + Send;
    fn add_routes(&self, new: Vec<NewRoute>) -> impl Future<Output = Controlled<usize>> + Send;
    fn remove_routes(&self, to: Vec<String>) -> impl Future<Output = Controlled<usize>> + Send;
    fn lookup_route(&self, address: &str) -> Controlled<RouteView>;
    fn flows(&self, query: &FlowQuery) -> impl Future<Output = Controlled<FlowsView>> + Send;
    fn flush_flows(&self, filter: Option<&str>) -> impl Future<Output = Controlled<u64>> + Send;
    fn placements(&self) -> impl Future<Output = Controlled<PlacementsView>> + Send;
    fn place(&self, new: &NewPlacement) -> impl Future<Output = Controlled<PlacementView>> + Send;
    fn control(
        &self,
        instance: &str,
        message: &str,
        arguments: &Map<String, Value>,
        role: Role,
    ) -> Controlled<Value>;
    fn control_slow_half(
        &self,
        instance: &str,
        message: &str,
        arguments: &Map<String, Value>,
        role: Role,
    ) -> impl Future<Output = Controlled<Value>> + Send;
    fn lookup(&self, packet: &str) -> Controlled<LookupView>;
    fn configuration(&self) -> Controlled<ConfigurationView>;
    fn apply(&self, order: Apply, who: Who) -> impl Future<Output = Controlled<AppliedView>> + Send;
    /// Compared with a text and its origin, or with what was applied last.
    fn difference(
        &self,
        text: Option<(&str, &str)>,
        role: Role,
    ) -> impl Future<Output = Controlled<DifferenceView>> + Send;
    fn save_into(&self, order: Save) -> impl Future<Output = Controlled<String>> + Send;
    fn keep(&self, order: Keep, who: Who, role: Role) -> impl Future<Output = Controlled<Revision>> + Send;
    fn confirm(&self, revision: Option<u64>) -> impl Future<Output = Controlled<u64>> + Send;
    fn roll_back(
        &self,
        number: Option<u64>,
        order: RollBack,
        who: Who,
    ) -> impl Future<Output = Controlled<AppliedView>> + Send;
    fn revisions(&self) -> Controlled<Vec<RevisionView>>;
    fn revision(&self, number: u64) -> Controlled<RevisionTextView>;
    fn clear_counters(&self) -> Controlled<()>;
    fn capture(&self, request: &CaptureRequest) -> Controlled<Self::Recording>;
    fn trace(&self, request: &TraceRequest) -> Controlled<Self::Tracing>;
    /// The last packets that were dropped behind those that the cursor has seen.
    fn last_drops(&self, reason: Option<&str>, cursor: &mut DropCursor) -> Controlled<Vec<DroppedView>>;
}

/// A trace that goes on until it is dropped.
pub trait Tracing: Send + 'static {
    /// The journeys that have ended since the last call; whether the trace is over.
    fn take(&mut self) -> (Vec<TraceView>, bool);
    /// Packets that were left out because they were taken too slowly.
    fn lost(&self) -> u64;
}

/// A capture that goes on until it is dropped.
pub trait Recording: Send + 'static {
    /// The pcapng bytes since the last call, in whole blocks; how many frames are in them; whether it has ended.
    fn take(&mut self) -> (Vec<u8>, u64, bool);
    /// Frames that were left out because they were taken too slowly.
    fn lost(&self) -> u64;
}

impl Control for Router {
    type Recording = Capture;
    type Tracing = Trace;

    fn events(&self) -> &Events {
        Router::events(self)
    }

    fn audit(&self) -> AuditLog {
        Router::audit(self)
    }

    fn tokens(&self) -> &Tokens {
        Router::tokens(self)
    }

    fn room_for(&self, body: usize) -> Controlled<()> {
        Router::room_for(self, body)
    }

    fn note(&self, entry: AuditEntry) -> Written {
        Router::note(self, entry)
    }

    fn status(&self) -> Controlled<StatusView> {
        Router::status(self)
    }

    fn summary(&self) -> Controlled<SummaryView> {
        Router::summary(self)
    }

    fn ports(&self) -> Controlled<Vec<PortView>> {
        Router::ports(self)
    }

    async fn hardware(&self) -> Controlled<HardwareView> {
        Router::hardware(self).await
    }

    fn counters(&self) -> Controlled<CountersView> {
        Router::counters(self)
    }

    fn routes(&self, query: &RouteQuery) -> Controlled<Page<RouteView>> {
        Router::routes(self, query)
    }

    fn neighbours(&self) -> Controlled<Vec<NeighbourView>> {
        Router::neighbours(self)
    }

    fn plugins(&self) -> Controlled<Vec<PluginView>> {
        Router::plugins(self)
    }

    fn plugin(&self, name: &str) -> Controlled<PluginDetailView> {
        Router::plugin(self, name)
    }

    async fn load_plugin(&self, new: &NewPlugin) -> Controlled<PluginView> {
        Router::load_plugin(self, new).await
    }

    fn unload_plugin(&self, name: &str) -> Controlled<PluginView> {
        Router::unload_plugin(self, name)
    }

    async fn upgrade_plugin(&self, name: &str, upgrade: &Upgrade) -> Controlled<UpgradeView> {
        Router::upgrade_plugin(self, name, upgrade).await
    }

    fn roll_back_plugin(&self, name: &str) -> Controlled<UpgradeView> {
        Router::roll_back_plugin(self, name)
    }

    fn instances(&self) -> Controlled<Vec<InstanceView>> {
        Router::instances(self)
    }

    fn gates(&self) -> Controlled<Vec<GateView>> {
        Router::gates(self)
    }

    fn bindings(&self, query: &PageQuery) -> Controlled<Page<BindingView>> {
        Router::bindings(self, query)
    }

    fn drops(&self) -> Controlled<Vec<DropView>> {
        Router::drops(self)
    }

    async fn set_port(&self, name: &str, changes: &Map<String, Value>) -> Controlled<PortView> {
        Router::set_port(self, name, changes).await
    }

    fn settings(&self) -> Controlled<RouterSettings> {
        Router::settings(self)
    }

    async fn set_settings(&self, changes: &Map<String, Value>) -> Controlled<RouterSettings> {
        Router::set_settings(self, changes).await
    }

    fn control_plane(&self) -> Controlled<ControlPlaneView> {
        Router::control_plane(self)
    }

    async fn set_control_plane(&self, changes: &Map<String, Value>) -> Controlled<ControlPlaneView> {
        Router::set_control_plane(self, changes).await
    }

    async fn add_neighbour(&self, new: &NewNeighbour) -> Controlled<NeighbourView> {
        Router::add_neighbour(self, new).await
    }

    async fn remove_neighbour(&self, old: &OldNeighbour) -> Controlled<NeighbourView> {
        Router::remove_neighbour(self, old).await
    }

    fn schedulers(&self) -> Controlled<Vec<SchedulerView>> {
        Router::schedulers(self)
    }

    fn add_scheduler_node(&self, port: &str, node: &SchedulerNode) -> Controlled<SchedulerView> {
        Router::add_scheduler_node(self, port, node)
    }

    fn set_scheduler_node(
        &self,
        port: &str,
        name: &str,
        changes: &Map<String, Value>,
    ) -> Controlled<SchedulerView> {
        Router::set_scheduler_node(self, port, name, changes)
    }

    async fn remove_scheduler_node(
        &self,
        port: &str,
        name: &str,
        removal: &NodeRemoval,
    ) -> Controlled<RemovedNodeView> {
        Router::remove_scheduler_node(self, port, name, removal).await
    }

    fn set_scheduler(&self, port: &str, changes: &Map<String, Value>) -> Controlled<SchedulerView> {
        Router::set_scheduler(self, port, changes)
    }

    fn queues(&self) -> Controlled<Vec<QueueView>> {
        Router::queues(self)
    }

    async fn queue(&self, port: &str, queue: &str) -> Controlled<QueueView> {
        Router::queue(self, port, queue).await
    }

    fn scheduler_settings(&self, port: &str) -> Controlled<Option<Scheduler>> {
        Router::scheduler_settings(self, port)
    }

    fn set_queue(
        &self,
        port: &str,
        queue: &str,
        flow: Option<&str>,
        changes: &Map<String, Value>,
    ) -> Controlled<()> {
        Router::set_queue(self, port, queue, flow, changes)
    }

    fn create_instance(
        &self,
        plugin: &str,
        name: &str,
        settings: &Map<String, Value>,
        role: Role,
    ) -> Controlled<InstanceView> {
        Router::create_instance(self, plugin, name, settings, role)
    }

    fn set_instance(
        &self,
        name: &str,
        settings: &Map<String, Value>,
        role: Role,
    ) -> Controlled<InstanceView> {
        Router::set_instance(self, name, settings, role)
    }

    fn rename_instance(&self, name: &str, to: &str, role: Role) -> Controlled<InstanceView> {
        Router::rename_instance(self, name, to, role)
    }

    fn free_instance(&self, name: &str, role: Role) -> Controlled<InstanceView> {
        Router::free_instance(self, name, role)
    }

    fn release_instance(&self, name: &str, role: Role) -> Controlled<ReleaseView> {
        Router::release_instance(self, name, role)
    }

    fn quarantine(&self) -> Controlled<Vec<HeldView>> {
        Router::quarantine(self)
    }

    fn instance_maps(&self, instance: &str) -> Controlled<Vec<MapView>> {
        Router::instance_maps(self, instance)
    }

    fn instance_map(&self, instance: &str, map: &str) -> Controlled<MapView> {
        Router::instance_map(self, instance, map)
    }

    fn create_gate(&self, name: &str, position: &str) -> Controlled<GateView> {
        Router::create_gate(self, name, position)
    }

    fn set_gate_table(&self, name: &str, table: &str) -> Controlled<GateView> {
        Router::set_gate_table(self, name, table)
    }

    fn remove_gate(&self, name: &str) -> Controlled<GateView> {
        Router::remove_gate(self, name)
    }

    fn bind(&self, new: &NewBinding) -> Controlled<BindingView> {
        Router::bind(self, new)
    }

    fn unbind(&self, instance: &str, gate: &str, filter: &str) -> Controlled<BindingView> {
        Router::unbind(self, instance, gate, filter)
    }

    fn add_filter(&self, new: &NewFilter) -> Controlled<BindingView> {
        Router::add_filter(self, new)
    }

    fn remove_filter(&self, old: &OldFilter) -> Controlled<BindingView> {
        Router::remove_filter(self, old)
    }

    fn remove_filters(&self, ids: &[u64]) -> Controlled<Vec<BindingView>> {
        Router::remove_filters(self, ids)
    }

    async fn add_filters(&self, new: Vec<NewFilter>) -> Controlled<AddedFilters> {
        Router::add_filters(self, new).await
    }

    fn explain_filters(&self, packet: &str) -> Controlled<Vec<GateExplanationView>> {
        Router::explain_filters(self, packet)
    }

    async fn check_filters(&self) -> Controlled<Vec<GateCheckView>> {
        Router::check_filters(self).await
    }

    async fn add_route(&self, new: &NewRoute) -> Controlled<RouteView> {
        Router::add_route(self, new).await
    }

    async fn replace_route(&self, new: &NewRoute) -> Controlled<RouteView> {
        Router::replace_route(self, new).await
    }

    async fn remove_route(&self, to: &str) -> Controlled<RouteView> {
        Router::remove_route(self, to).await
    }

    async fn add_routes(&self, new: Vec<NewRoute>) -> Controlled<usize> {
        Router::add_routes(self, new).await
    }

    async fn remove_routes(&self, to: Vec<String>) -> Controlled<usize> {
        Router::remove_routes(self, to).await
    }

    fn lookup_route(&self, address: &str) -> Controlled<RouteView> {
        Router::lookup_route(self, address)
    }

    async fn flows(&self, query: &FlowQuery) -> Controlled<FlowsView> {
        Router::flows(self, query).await
    }

    async fn placements(&self) -> Controlled<PlacementsView> {
        Router::placements(self).await
    }

    async fn place(&self, new: &NewPlacement) -> Controlled<PlacementView> {
        Router::place(self, new).await
    }

    async fn flush_flows(&self, filter: Option<&str>) -> Controlled<u64> {
        Router::flush_flows(self, filter).await
    }

    fn control(
        &self,
        instance: &str,
        message: &str,
        arguments: &Map<String, Value>,
        role: Role,
    ) -> Controlled<Value> {
        Router::control(self, instance, message, arguments, role)
    }

    async fn control_slow_half(
        &self,
        instance: &str,
        message: &str,
        arguments: &Map<String, Value>,
        role: Role,
    ) -> Controlled<Value> {
        Router::control_slow_half(self, instance, message, arguments, role).await
    }

    fn lookup(&self, packet: &str) -> Controlled<LookupView> {
        Router::lookup(self, packet)
    }

    fn configuration(&self) -> Controlled<ConfigurationView> {
        Router::configuration(self)
    }

    async fn apply(&self, order: Apply, who: Who) -> Controlled<AppliedView> {
        Router::apply(self, order, who).await
    }

    async fn difference(&self, text: Option<(&str, &str)>, role: Role) -> Controlled<DifferenceView> {
        match text {
            Some((text, origin)) => Router::difference(self, text, origin, role).await,
            None => Router::difference_from_base(self).await,
        }
    }

    async fn save_into(&self, order: Save) -> Controlled<String> {
        Router::save_into(self, order).await
    }

    async fn keep(&self, order: Keep, who: Who, role: Role) -> Controlled<Revision> {
        Router::keep(self, order, who, role).await
    }

    async fn confirm(&self, revision: Option<u64>) -> Controlled<u64> {
        Router::confirm(self, revision).await
    }

    async fn roll_back(&self, number: Option<u64>, order: RollBack, who: Who) -> Controlled<AppliedView> {
        Router::roll_back(self, number, &order, who).await
    }

    fn revisions(&self) -> Controlled<Vec<RevisionView>> {
        Router::revisions(self)
    }

    fn revision(&self, number: u64) -> Controlled<RevisionTextView> {
        Router::revision(self, number)
    }

    fn clear_counters(&self) -> Controlled<()> {
        Router::clear_counters(self)
    }

    fn capture(&self, request: &CaptureRequest) -> Controlled<Capture> {
        Router::capture(self, request)
    }

    fn trace(&self, request: &TraceRequest) -> Controlled<Trace> {
        Router::trace(self, request)
    }

    fn last_drops(&self, reason: Option<&str>, cursor: &mut DropCursor) -> Controlled<Vec<DroppedView>> {
        Router::last_drops(self, reason, cursor)
    }
}

impl Tracing for Trace {
    fn take(&mut self) -> (Vec<TraceView>, bool) {
        Trace::take(self)
    }

    fn lost(&self) -> u64 {
        Trace::lost(self)
    }
}

impl Recording for Capture {
    fn take(&mut self) -> (Vec<u8>, u64, bool) {
        Capture::take(self)
    }

    fn lost(&self) -> u64 {
        Capture::lost(self)
    }
}
