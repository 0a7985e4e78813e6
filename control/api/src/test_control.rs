//! A router without packets, for tests: it keeps what it is told and refuses what is wrong.

mod directory;
mod streams;
mod views;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use millrace_config::Scheduler;
use millrace_controller::view::{
    AppliedView, BindingView, ConfigurationView, ControlClassView, ControlPlaneView, CountersView,
    DifferenceView, DropView, DroppedView, FlowsView, GateCheckView, GateExplanationView, GateView,
    HardwareView, HeldView, InstanceView, LookupView, MapView, NeighbourView, PlacementView, PlacementsView,
    PluginDetailView, PluginView, PortClassView, PortView, QueueView, ReleaseView, RemovedNodeView,
    RevisionTextView, RevisionView, RouteView, SchedulerView, StatusView, SummaryView, UpgradeView,
};
use millrace_controller::{
    AddedFilters, Apply, AuditEntry, AuditLog, CaptureAt, CaptureRequest, ControlError, DropCursor, Events,
    FlowQuery, Keep, NewBinding, NewFilter, NewNeighbour, NewPlacement, NewPlugin, NewRoute, NodeRemoval,
    OldFilter, OldNeighbour, Page, PageQuery, Revision, Role, RollBack, RouteQuery, RouterSettings, Save,
    SchedulerNode, Tokens, TraceRequest, Upgrade, Who, Written, Wrong,
};
use serde_json::{Map, Value, json};

use crate::control::{Control, Controlled};

pub(crate) use directory::TestDirectory;
pub(crate) use streams::{TestRecording, TestTrace, block};
use views::{binding, dropped, gate, status, summary, view};

#[derive(Clone, Default)]
pub(crate) struct TestControl {
    instances: Arc<Mutex<Vec<InstanceView>>>,
    bindings: Arc<Mutex<Vec<BindingView>>>,
    /// Routes that were added.
    pub routes: Arc<Mutex<Vec<NewRoute>>>,
    /// What was asked about flows.
    pub queries: Arc<Mutex<Vec<FlowQuery>>>,
    /// How many captures go on.
    pub captures: Arc<AtomicUsize>,
    pub captured: Arc<Mutex<Vec<CaptureRequest>>>,
    /// What was applied, and by whom.
    pub applied: Arc<Mutex<Vec<(Apply, Who)>>>,
    /// The longest body that there is memory for, if it is short.
    pub room: Arc<Mutex<Option<usize>>>,
    /// What happened.
    pub events: Events,
    /// What was asked for.
    pub audited: AuditLog,
    /// By which one is let in from elsewhere.
    pub tokens: Tokens,
}

impl TestControl {
    fn lock(&self) -> MutexGuard<'_, Vec<InstanceView>> {
        self.instances.lock().unwrap()
    }

    fn instance(&self, name: &str) -> Controlled<usize> {
        let instances = self.lock();
        let names = instances.iter().map(|one| one.name.as_str());
        instances
            .iter()
            .position(|one| one.name == name)
            .ok_or_else(|| ControlError::unknown("instance", name, names))
    }
}

impl Control for TestControl {
    type Recording = TestRecording;
    type Tracing = TestTrace;

    fn events(&self) -> &Events {
        &self.events
    }

    fn audit(&self) -> AuditLog {
        self.audited.clone()
    }

    fn room_for(&self, body: usize) -> Controlled<()> {
        match self.room.lock().unwrap().is_some_and(|most| body > most) {
            true => Err(ControlError::NoRoom("memory is short".into())),
            false => Ok(()),
        }
    }

    fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    fn note(&self, entry: AuditEntry) -> Written {
        self.audited.add(entry)
    }

    fn status(&self) -> Controlled<StatusView> {
        Ok(status())
    }

    async fn hardware(&self) -> Controlled<HardwareView> {
        let empty = HardwareView { cpus: vec![], processors: vec![], ports: vec![], switches: vec![] };
        Ok(empty)
    }

    fn summary(&self) -> Controlled<SummaryView> {
        Ok(summary())
    }

    fn ports(&self) -> Controlled<Vec<PortView>> {
        Ok(Vec::new())
    }

    fn counters(&self) -> Controlled<CountersView> {
        Ok(CountersView { time: "2026-11-22T12:00:00.000Z".into(), seconds: 1.0, ports: Vec::new() })
    }

    fn routes(&self, _query: &RouteQuery) -> Controlled<Page<RouteView>> {
        Err(ControlError::System("the mirror has ended".into()))
    }

    fn neighbours(&self) -> Controlled<Vec<NeighbourView>> {
        Ok(Vec::new())
    }

    fn plugins(&self) -> Controlled<Vec<PluginView>> {
        Ok(Vec::new())
    }

    fn plugin(&self, name: &str) -> Controlled<PluginDetailView> {
        Err(ControlError::NotFound(format!("no plugin {name:?}")))
    }

    async fn load_plugin(&self, new: &NewPlugin) -> Controlled<PluginView> {
        Err(ControlError::Invalid(format!("plugin {}: not a module", new.path)))
    }

    fn unload_plugin(&self, name: &str) -> Controlled<PluginView> {
        Err(ControlError::NotFound(format!("no plugin {name:?}")))
    }

    async fn upgrade_plugin(&self, name: &str, _upgrade: &Upgrade) -> Controlled<UpgradeView> {
        Err(ControlError::NotFound(format!("no plugin {name:?}")))
    }

    fn roll_back_plugin(&self, name: &str) -> Controlled<UpgradeView> {
        Err(ControlError::NotFound(format!("no plugin {name:?}")))
    }

    fn instances(&self) -> Controlled<Vec<InstanceView>> {
        Ok(self.lock().clone())
    }

    fn gates(&self) -> Controlled<Vec<GateView>> {
        let bindings = self.bindings(&PageQuery::default())?.rows;
        Ok(vec![gate("monitor".into(), bindings)])
    }

    fn bindings(&self, query: &PageQuery) -> Controlled<Page<BindingView>> {
        query.of(self.bindings.lock().unwrap().clone(), |one| one.id.to_string())
    }

    fn drops(&self) -> Controlled<Vec<DropView>> {
        Ok(Vec::new())
    }

    fn queues(&self) -> Controlled<Vec<QueueView>> {
        Ok(Vec::new())
    }

    async fn queue(&self, port: &str, _: &str) -> Controlled<QueueView> {
        Err(ControlError::unknown("port", port, []))
    }

    fn scheduler_settings(&self, port: &str) -> Controlled<Option<Scheduler>> {
        match port {
            "nowhere" => Err(ControlError::unknown("port", port, ["wan"])),
            _ => Ok(None),
        }
    }

    fn set_queue(&self, port: &str, _: &str, _: Option<&str>, _: &Map<String, Value>) -> Controlled<()> {
        Err(ControlError::unknown("port", port, []))
    }

    async fn set_port(&self, name: &str, _: &Map<String, Value>) -> Controlled<PortView> {
        Err(ControlError::unknown("port", name, []))
    }

    fn settings(&self) -> Controlled<RouterSettings> {
        Ok(RouterSettings::default())
    }

    async fn set_settings(&self, _: &Map<String, Value>) -> Controlled<RouterSettings> {
        Ok(RouterSettings::default())
    }

    fn control_plane(&self) -> Controlled<ControlPlaneView> {
        let class = ControlClassView {
            class: "icmp",
            meaning: "ICMP",
            rate: 1000,
            burst: 100,
            passed: 7,
            dropped: 3,
            dropped_rate: 0.0,
            ports: [("lan".to_owned(), PortClassView { passed: 7, dropped: 3 })].into(),
        };
        Ok(ControlPlaneView { police: true, classes: vec![class] })
    }

    async fn set_control_plane(&self, _: &Map<String, Value>) -> Controlled<ControlPlaneView> {
        self.control_plane()
    }

    async fn add_neighbour(&self, new: &NewNeighbour) -> Controlled<NeighbourView> {
        Err(ControlError::unknown("port", &new.port, []))
    }

    async fn remove_neighbour(&self, old: &OldNeighbour) -> Controlled<NeighbourView> {
        Err(ControlError::unknown("port", &old.port, []))
    }

    fn schedulers(&self) -> Controlled<Vec<SchedulerView>> {
        Ok(Vec::new())
    }

    fn add_scheduler_node(&self, port: &str, _: &SchedulerNode) -> Controlled<SchedulerView> {
        Err(ControlError::unknown("port", port, []))
    }

    fn set_scheduler_node(&self, port: &str, _: &str, _: &Map<String, Value>) -> Controlled<SchedulerView> {
        Err(ControlError::unknown("port", port, []))
    }

    async fn remove_scheduler_node(
        &self,
        port: &str,
        _: &str,
        _: &NodeRemoval,
    ) -> Controlled<RemovedNodeView> {
        Err(ControlError::unknown("port", port, []))
    }

    fn set_scheduler(&self, port: &str, _: &Map<String, Value>) -> Controlled<SchedulerView> {
        Err(ControlError::unknown("port", port, []))
    }

    fn create_instance(
        &self,
        plugin: &str,
        name: &str,
        settings: &Map<String, Value>,
        _: Role,
    ) -> Controlled<InstanceView> {
        if plugin != "statistics" {
            return Err(ControlError::unknown("plugin", plugin, ["statistics"]));
        }
        if self.instance(name).is_ok() {
            return Err(ControlError::Conflict(format!("{name} is there")));
        }
        let settings = Value::Object(settings.clone());
        let instance = InstanceView {
            level: "worker",
            why_worker: None,
            name: name.into(),
            plugin: "statistics",
            settings,
            health: "well",
            faults: BTreeMap::new(),
            last_fault: None,
            counters: [("late", 3)].into(),
            suspensions: 0,
            drops: Default::default(),
            slow_half: None,
            number: 0,
            packets: 0,
            packet_rate: 0.0,
            bindings: Vec::new(),
        };
        self.lock().push(instance.clone());
        Ok(instance)
    }

    fn set_instance(&self, name: &str, settings: &Map<String, Value>, _: Role) -> Controlled<InstanceView> {
        let index = self.instance(name)?;
        let instance = &mut self.lock()[index];
        instance.settings = Value::Object(settings.clone());
        Ok(instance.clone())
    }

    fn instance_maps(&self, instance: &str) -> Controlled<Vec<MapView>> {
        self.instance(instance).map(|_| Vec::new())
    }

    fn instance_map(&self, instance: &str, map: &str) -> Controlled<MapView> {
        self.instance(instance)?;
        Err(ControlError::unknown("map", map, []))
    }

    fn rename_instance(&self, name: &str, to: &str, _: Role) -> Controlled<InstanceView> {
        let index = self.instance(name)?;
        let instance = &mut self.lock()[index];
        to.clone_into(&mut instance.name);
        Ok(instance.clone())
    }

    fn free_instance(&self, name: &str, _: Role) -> Controlled<InstanceView> {
        let index = self.instance(name)?;
        Ok(self.lock().remove(index))
    }

    fn release_instance(&self, name: &str, _: Role) -> Controlled<ReleaseView> {
        self.instance(name)?;
        Ok(ReleaseView { instance: name.to_owned(), is_here: true })
    }

    fn quarantine(&self) -> Controlled<Vec<HeldView>> {
        Ok(Vec::new())
    }

    fn configuration(&self) -> Controlled<ConfigurationView> {
        let text = self.applied.lock().unwrap().last().map(|(order, _)| order.text.clone());
        Ok(ConfigurationView {
            text: text.unwrap_or_default(),
            origin: "test".into(),
            store: None,
            pending: None,
        })
    }

    async fn apply(&self, order: Apply, who: Who) -> Controlled<AppliedView> {
        if order.text == "slow" {
            tokio::time::sleep(std::time::Duration::from_secs(60)).await;
        }
        if order.text.is_empty() {
            return Err(ControlError::Invalid("an empty text".into()));
        }
        let (origin, confirm) = (order.origin.clone().unwrap_or_default(), order.confirm);
        self.applied.lock().unwrap().push((order, who));
        let changes = vec!["route add".into()];
        Ok(AppliedView {
            revision: Some(1),
            changes,
            confirm,
            runs: Some(1),
            ..AppliedView::nothing(&origin)
        })
    }

    async fn difference(&self, text: Option<(&str, &str)>, _role: Role) -> Controlled<DifferenceView> {
        let origin = text.map_or("base", |(_, origin)| origin).to_owned();
        Ok(DifferenceView { origin, changes: Vec::new(), restart: Vec::new() })
    }

    async fn save_into(&self, order: Save) -> Controlled<String> {
        Ok(order.text.unwrap_or_default())
    }

    async fn keep(&self, _order: Keep, _who: Who, _role: Role) -> Controlled<Revision> {
        Err(ControlError::Conflict("revision 1 waits to be confirmed".into()))
    }

    async fn confirm(&self, _revision: Option<u64>) -> Controlled<u64> {
        Err(ControlError::Conflict("nothing waits to be confirmed".into()))
    }

    async fn roll_back(&self, number: Option<u64>, order: RollBack, who: Who) -> Controlled<AppliedView> {
        let text = format!("revision {}", number.unwrap_or_default());
        self.apply(Apply { text, comment: order.comment, ..Apply::default() }, who).await
    }

    fn revisions(&self) -> Controlled<Vec<RevisionView>> {
        Ok(Vec::new())
    }

    fn revision(&self, number: u64) -> Controlled<RevisionTextView> {
        Err(ControlError::NotFound(format!("there is no revision {number}")))
    }

    fn create_gate(&self, name: &str, position: &str) -> Controlled<GateView> {
        match position {
            "late" => Ok(gate(name.into(), Vec::new())),
            _ => Err(ControlError::Invalid(format!("{position:?} is no position"))),
        }
    }

    fn set_gate_table(&self, name: &str, table: &str) -> Controlled<GateView> {
        match table {
            "dag" => Ok(gate(name.into(), Vec::new())),
            other => Err(ControlError::Invalid(format!("no filter table {other:?}"))),
        }
    }

    fn remove_gate(&self, name: &str) -> Controlled<GateView> {
        Ok(gate(name.into(), Vec::new()))
    }

    fn bind(&self, new: &NewBinding) -> Controlled<BindingView> {
        self.instance(&new.instance)?;
        let binding = binding(&new.instance, &new.gate, &new.filter, new.priority);
        self.bindings.lock().unwrap().push(binding.clone());
        Ok(binding)
    }

    fn unbind(&self, instance: &str, gate: &str, filter: &str) -> Controlled<BindingView> {
        let mut bindings = self.bindings.lock().unwrap();
        let found = bindings.iter().position(|one| {
            one.instance.as_deref() == Some(instance) && one.gate == gate && one.filter == filter
        });
        found
            .map(|index| bindings.remove(index))
            .ok_or_else(|| ControlError::NotFound("no such binding".into()))
    }

    fn add_filter(&self, new: &NewFilter) -> Controlled<BindingView> {
        if new.action != "drop" {
            return Err(ControlError::Invalid(format!("there is no action {:?}", new.action)));
        }
        let mut bindings = self.bindings.lock().unwrap();
        let binding = BindingView {
            id: bindings.len() as u64,
            action: new.action.clone(),
            instance: None,
            ..binding("", new.gate.as_deref().unwrap_or("route"), &new.filter, new.priority)
        };
        bindings.push(binding.clone());
        Ok(binding)
    }

    fn remove_filter(&self, old: &OldFilter) -> Controlled<BindingView> {
        Err(ControlError::NotFound(format!("no filter {:?}", old.filter)))
    }

    fn remove_filters(&self, ids: &[u64]) -> Controlled<Vec<BindingView>> {
        let mut bindings = self.bindings.lock().unwrap();
        let (gone, left): (Vec<_>, Vec<_>) = bindings.iter().cloned().partition(|one| ids.contains(&one.id));
        if gone.len() < ids.len() {
            return Err(ControlError::NotFound("no such filter".into()));
        }
        *bindings = left;
        Ok(gone)
    }

    fn explain_filters(&self, packet: &str) -> Controlled<Vec<GateExplanationView>> {
        let gate = packet.to_owned();
        Ok(vec![GateExplanationView { gate, position: "route", candidates: Vec::new(), left_out: 0 }])
    }

    async fn check_filters(&self) -> Controlled<Vec<GateCheckView>> {
        Ok(Vec::new())
    }

    async fn add_filters(&self, new: Vec<NewFilter>) -> Controlled<AddedFilters> {
        let (count, mut wrong) = (new.len(), Wrong::default());
        let added = new.iter().enumerate().filter_map(|(number, new)| {
            let added = wrong.unless(number, self.add_filter(new));
            added.map(|_| number as u64 + 1)
        });
        let ids = added.collect();
        wrong.refuse(count).map(|()| AddedFilters { ids, shadowed: Vec::new() })
    }

    async fn add_routes(&self, new: Vec<NewRoute>) -> Controlled<usize> {
        let count = new.len();
        self.routes.lock().unwrap().extend(new);
        Ok(count)
    }

    async fn replace_route(&self, new: &NewRoute) -> Controlled<RouteView> {
        self.add_route(new).await
    }

    async fn remove_routes(&self, to: Vec<String>) -> Controlled<usize> {
        let mut wrong = Wrong::default();
        for (number, to) in to.iter().enumerate() {
            wrong.unless(number, self.remove_route(to).await);
        }
        wrong.refuse(to.len()).map(|()| to.len())
    }

    async fn add_route(&self, new: &NewRoute) -> Controlled<RouteView> {
        self.routes.lock().unwrap().push(new.clone());
        Ok(view(new))
    }

    async fn remove_route(&self, to: &str) -> Controlled<RouteView> {
        let mut routes = self.routes.lock().unwrap();
        let found = routes.iter().position(|route| route.to == to);
        let gone = found.map(|at| routes.remove(at));
        gone.map(|gone| view(&gone)).ok_or_else(|| ControlError::Conflict("the route is bird's".into()))
    }

    fn lookup_route(&self, address: &str) -> Controlled<RouteView> {
        let routes = self.routes.lock().unwrap();
        routes.first().map(view).ok_or_else(|| ControlError::NotFound(format!("no route to {address}")))
    }

    async fn flows(&self, query: &FlowQuery) -> Controlled<FlowsView> {
        self.queries.lock().unwrap().push(query.clone());
        Ok(FlowsView { found: 3, flows: Vec::new() })
    }

    async fn placements(&self) -> Controlled<PlacementsView> {
        Err(ControlError::System("no flow is placed in tests".into()))
    }

    async fn place(&self, new: &NewPlacement) -> Controlled<PlacementView> {
        Ok(PlacementView {
            flow: new.flow.clone(),
            level: "auto",
            driver: 0,
            worker: 0,
            why_worker: BTreeMap::new(),
        })
    }

    async fn flush_flows(&self, filter: Option<&str>) -> Controlled<u64> {
        Ok(if filter.is_some() { 1 } else { 3 })
    }

    fn control(
        &self,
        instance: &str,
        message: &str,
        arguments: &Map<String, Value>,
        _: Role,
    ) -> Controlled<Value> {
        self.instance(instance)?;
        Ok(json!({"message": message, "arguments": arguments}))
    }

    async fn control_slow_half(
        &self,
        instance: &str,
        message: &str,
        arguments: &Map<String, Value>,
        _: Role,
    ) -> Controlled<Value> {
        self.instance(instance)?;
        Ok(json!({"slow": message, "arguments": arguments}))
    }

    fn lookup(&self, packet: &str) -> Controlled<LookupView> {
        assert_ne!(packet, "panic", "as asked for");
        Ok(LookupView { steps: Vec::new(), verdict: packet.into() })
    }

    fn clear_counters(&self) -> Controlled<()> {
        Ok(())
    }

    fn capture(&self, request: &CaptureRequest) -> Controlled<TestRecording> {
        if request.place == CaptureAt::Port("nowhere".to_owned()) {
            return Err(ControlError::unknown("port", "nowhere", ["lan"]));
        }
        self.captured.lock().unwrap().push(request.clone());
        self.captures.fetch_add(1, Ordering::SeqCst);
        Ok(TestRecording { captures: Arc::clone(&self.captures), first: true })
    }

    fn trace(&self, request: &TraceRequest) -> Controlled<TestTrace> {
        match request.filter.as_deref() {
            Some("nonsense") => Err(ControlError::Invalid("filter \"nonsense\"".into())),
            _ => Ok(TestTrace(request.count.unwrap_or(1).into())),
        }
    }

    fn last_drops(&self, reason: Option<&str>, _cursor: &mut DropCursor) -> Controlled<Vec<DroppedView>> {
        match reason {
            None | Some("no_route") => Ok(vec![dropped()]),
            Some(other) => Err(ControlError::unknown("reason", other, ["no_route"])),
        }
    }
}
