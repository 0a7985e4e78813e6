//! Tests of the execution of operations, and of the guarantees that each kind of operation gives.

mod allowances;
mod pinned;
mod promises;
mod services;
mod silent;
mod trials;
mod upgrades;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use millrace_config::Config;
use millrace_store::Outcome;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, from_value, json};
use tokio::runtime::Handle;

use super::*;
use crate::configuration::Save;
use crate::model::packets::ReadPacket;
use crate::operation::kinds::{Change, Query};
use crate::workers::handle::silence::Silence;
use crate::workers::memory_guard::MemoryGuard;
use crate::{CaptureRequest, FlowQuery, RouteQuery, StartOptions, TraceRequest, start};

/// Configuration that has one object of each kind that an operation can change.
const CONFIG: &str = include_str!("router.toml");

async fn started() -> Router {
    start(Config::parse(CONFIG, "test").unwrap(), StartOptions::default()).await.unwrap()
}

/// Parses a request from JSON.
fn read<T: DeserializeOwned>(json: Value) -> T {
    from_value(json).unwrap()
}

fn settings(json: Value) -> Map<String, Value> {
    read(json)
}

#[tokio::test]
async fn memory_shortage_refuses_only_allocating_operations() {
    let router = started().await;
    let own = Principal::router();
    let route = |to: &str| AddRoute(read(json!({"to": to, "via": ["10.1.0.9"]})));
    router.execute(&own, route("10.19.0.0/16")).await.unwrap();
    router.guard_memory(MemoryGuard { has_room: |_| false, recover: || false });
    let refused = router.execute(&own, route("10.18.0.0/16")).await.unwrap_err();
    assert!(matches!(refused, ControlError::NoRoom(_)), "{refused}");
    let to = "10.19.0.0/16".to_owned();
    router.execute(&own, RemoveRoute { to }).await.unwrap();
    let left = router.execute(&own, ListRoutes(RouteQuery::default())).await.unwrap().rows;
    assert!(left.iter().all(|route| !["10.18.0.0/16", "10.19.0.0/16"].contains(&&*route.to)), "{left:?}");
    router.shutdown().await.unwrap();
}

/// Starts an operation, and drops its future at the first point where it waits.
async fn abandon(router: &Router, caller: &impl Caller) {
    let mut work = pin!(router.execute(caller, FlushFlows::default()));
    let is_pending = poll_fn(|context| Poll::Ready(work.as_mut().poll(context).is_pending())).await;
    assert!(is_pending, "the operation pauses before its end");
}

#[tokio::test]
async fn an_operation_that_is_dropped_before_its_end_is_recorded_as_abandoned() {
    let router = started().await;
    let own = Principal::router();
    abandon(&router, &own).await;
    let call = Call::new(&router, own, "DELETE /flows".to_owned(), Effect::Look);
    abandon(&router, &call).await;
    drop(call);
    router.flush_audit().await;
    let lines = router.audit().last(10).unwrap();
    let lines: Vec<_> = lines.iter().map(|line| (&*line.operation, line.outcome)).collect();
    assert_eq!(lines, [("FlushFlows", Outcome::Abandoned), ("DELETE /flows", Outcome::Abandoned)]);
    router.shutdown().await.unwrap();
}

async fn is_refused<O: Operation>(router: &Router, operation: O) -> bool {
    router.execute(&Principal::router(), operation).await.is_err()
}

#[tokio::test]
async fn failed_move_whose_return_fails_too_names_both_errors() {
    let returns = &Cell::new(0);
    let back = |outcome: Result<(), ControlError>| async move {
        returns.set(returns.get() + 1);
        outcome
    };
    let failed = || Err::<u8, _>(ControlError::conflict("no room"));
    let no_file = ControlError::conflict("the file is gone");
    assert_eq!(instances::or_back(Ok(7), "p", back(Ok(()))).await, Ok(7));
    assert_eq!(returns.get(), 0, "a plugin that has moved stays");
    assert_eq!(instances::or_back(failed(), "p", back(Ok(()))).await, failed());
    assert_eq!(returns.get(), 1);
    let both = "no room; plugin p can't return to its runtime either: the file is gone";
    let both = Err(ControlError::System(both.to_owned()));
    assert_eq!(instances::or_back(failed(), "p", back(Err(no_file))).await, both);
}

/// Holds the lock in one thread, and sends invalid filters from another. All must be refused at once, because
/// parsing takes no lock.
#[tokio::test]
async fn selections_are_read_while_the_lock_is_held() {
    let router = started().await;
    let mut long = String::from("dport 1");
    (2..500).for_each(|port| write!(long, " or dport {}", 2 * port).unwrap());
    let wrong = format!("{long} or nothing");
    let (done, waits) = std::sync::mpsc::channel();
    let held = router.lock();
    let (caller, runtime) = (router.clone(), Handle::current());
    let asked = std::thread::spawn(move || {
        let filter = Some(wrong.clone());
        let capture = CaptureRequest { filter: filter.clone(), ..CaptureRequest::default() };
        let trace = TraceRequest { filter: filter.clone(), ..TraceRequest::default() };
        let flows = FlowQuery { filter: filter.clone(), ..FlowQuery::default() };
        let (port, queue) = ("lan".to_owned(), "q".to_owned());
        let set_queue = SetQueue { port, queue, flow: filter, changes: Map::new() };
        let refused = runtime.block_on(async {
            [
                is_refused(&caller, StartCapture(capture)).await,
                is_refused(&caller, StartTrace(trace)).await,
                is_refused(&caller, ListFlows(flows)).await,
                is_refused(&caller, Lookup { packet: wrong.clone() }).await,
                is_refused(&caller, ExplainFilters { packet: wrong.clone() }).await,
                is_refused(&caller, set_queue).await,
            ]
        });
        done.send(refused).unwrap();
    });
    let refused = waits.recv_timeout(std::time::Duration::from_secs(10)).expect("no lock is waited for");
    assert_eq!(refused, [true; 6]);
    drop(held);
    asked.join().unwrap();
    assert!(ReadPacket::read("proto udp or proto tcp").is_err());
    router.shutdown().await.unwrap();
}

/// Returns the names of all operations of a kind, found in the source files.
fn of_kind(kind: &str) -> BTreeSet<String> {
    let folders = ["/src/operation", "/src/operation/principals"];
    let folders = folders.map(|folder| format!("{}{folder}", env!("CARGO_MANIFEST_DIR")));
    let files = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let files = files.map(|file| file.unwrap().path());
    let sources = files.filter(|file| file.extension().is_some_and(|extension| extension == "rs"));
    let text: String = sources.map(|file| std::fs::read_to_string(file).unwrap()).collect();
    let operations = text.split("\nimpl Operation for ").skip(1);
    let wanted = operations.filter(|one| {
        one.lines().take_while(|line| *line != "}").any(|line| line == format!("    type Kind = {kind};"))
    });
    wanted.map(|one| one.split_whitespace().next().unwrap().to_owned()).collect()
}

/// Router under test, with the names of the operations executed so far.
struct Tried {
    router: Router,
    names: BTreeSet<String>,
    /// With it, worker 1 leaves each question of each change unanswered once.
    silence: Option<Silence>,
}

impl Tried {
    async fn new() -> Self {
        Self { router: started().await, names: BTreeSet::new(), silence: None }
    }

    async fn with_silence() -> Self {
        let all = Self::new().await;
        let silence = Silence::before(all.router.lock().workers.get(1));
        Self { silence: Some(silence), ..all }
    }

    fn note<O>(&mut self) -> String {
        let name = std::any::type_name::<O>().rsplit("::").next().unwrap().to_owned();
        self.names.insert(name.clone());
        name
    }

    fn running(&self) -> String {
        self.router.running().to_text().unwrap()
    }

    /// Executes a change, and undoes it by the inverses of the resulting configuration changes. The
    /// configuration must be the same as before. A change that a worker doesn't answer must change nothing.
    async fn change<O: Operation<Kind = Change> + Clone>(&mut self, operation: O) {
        let name = self.note::<O>();
        let before = self.router.running();
        let outcome = match &self.silence {
            Some(silence) => silent::leave_unanswered(&self.router, silence, &name, &operation).await,
            None => self.router.execute(&Principal::router(), operation).await.map(drop),
        };
        if let Err(error) = outcome {
            assert!(["LoadPlugin", "UnloadPlugin"].contains(&&*name), "{name}: {error}");
        }
        let changes = before.difference(&self.router.running()).changes;
        assert!(!changes.is_empty() || name.ends_with("Plugin"), "{name} changes something");
        let inverse = changes.into_iter().rev().map(millrace_config::Change::inverse).collect();
        let undone = self.router.change(move |_| Ok((inverse, ())), |_, ()| Ok(())).await;
        assert_eq!(undone, Ok(()), "{name}");
        assert_eq!(self.running(), before.to_text().unwrap(), "{name}");
    }

    /// Executes a query, which must leave configuration and revision of the router as they are.
    async fn query<O: Operation<Kind = Query>>(&mut self, operation: O) {
        let name = self.note::<O>();
        let before = (self.running(), self.router.lock().settings.base.revision);
        self.router.execute(&Principal::router(), operation).await.map_or_else(
            |error| assert!(["GetRevision", "GetInstanceMap"].contains(&&*name), "{name}: {error}"),
            drop,
        );
        assert_eq!((self.running(), self.router.lock().settings.base.revision), before, "{name}");
        assert!(self.router.to_change().is_ok(), "{name} leaves no transaction");
    }

    async fn end(self, kind: &str) {
        assert_eq!(self.names, of_kind(kind));
        self.router.shutdown().await.unwrap();
    }
}

/// Returns the reason why this machine has no usable control groups.
fn no_control_groups() -> Option<String> {
    let detected = millrace_principals::Machine::detect().map_err(|error| error.to_string());
    let usable = detected.and_then(|machine| {
        let cpu = machine.usable(millrace_principals::Controller::Cpu);
        let memory = machine.usable(millrace_principals::Controller::Memory);
        cpu.and(memory).map(drop).map_err(|obstacle| obstacle.to_string())
    });
    usable.err()
}

#[tokio::test]
async fn the_inverse_of_every_change_restores_the_configuration() {
    let mut all = Tried::new().await;
    try_changes(&mut all).await;
    all.end("Change").await;
}

#[tokio::test]
async fn a_change_that_a_worker_does_not_answer_changes_nothing() {
    let mut all = Tried::with_silence().await;
    try_changes(&mut all).await;
    all.end("Change").await;
}

/// Tries every change.
async fn try_changes(all: &mut Tried) {
    let name = |name: &str| name.to_owned();
    all.change(SetPort { name: name("lan"), changes: settings(json!({"input-weight": 3})) }).await;
    all.change(SetControlPlane { changes: settings(json!({"icmp": 500})) }).await;
    all.change(SetAdmission { changes: settings(json!({"link": "90 %", "memory": "1GiB"})) }).await;
    let allowance = json!({"name": "a", "user": ["u"], "cpu": "5 %", "link": {"wan": "1mbit"}});
    all.change(AddAllowance(read(allowance.clone()))).await;
    all.router.execute(&Principal::router(), AddAllowance(read(allowance))).await.unwrap();
    let changes = settings(json!({"link": {"lan": "1mbit"}, "cpu": null}));
    all.change(SetAllowance { name: name("a"), changes }).await;
    all.change(RemoveAllowance { name: name("a") }).await;
    all.change(SetSettings { changes: settings(json!({"icmp-rate": 7})) }).await;
    let neighbour = json!({"port": "wan", "address": "10.2.0.9", "mac": "02:00:00:00:00:09"});
    all.change(AddNeighbour(read(neighbour))).await;
    all.change(RemoveNeighbour(read(json!({"port": "wan", "address": "10.2.0.254"})))).await;
    let route = |to: &str| json!({"to": to, "via": ["10.2.0.253"]});
    all.change(AddRoute(read(route("10.6.0.0/16")))).await;
    all.change(AddRoutes(vec![read(route("10.6.0.0/16"))])).await;
    all.change(ReplaceRoute(read(route("10.9.0.0/16")))).await;
    all.change(RemoveRoute { to: name("10.8.0.0/16") }).await;
    all.change(RemoveRoutes(vec![name("10.7.0.0/16")])).await;
    let filter = json!({"match": "proto udp dport 9", "action": "drop"});
    all.change(AddFilter(read(filter.clone()))).await;
    all.change(AddFilters(vec![read(filter)])).await;
    let old = json!({"match": "proto tcp dport 25", "action": "drop"});
    let old: crate::NewFilter = read(old);
    let crate::NewFilter { filter, action, gate, .. } = old;
    all.change(RemoveFilter(crate::OldFilter { filter, action, gate, priority: None })).await;
    let listed = all.router.execute(&Principal::router(), ListBindings::default()).await.unwrap().rows;
    all.change(RemoveFilters { ids: listed.iter().map(|one| one.id).collect() }).await;
    let placed = json!({"flow": "proto udp dport 7", "level": "worker"});
    all.change(PlaceFlows(read(placed))).await;
    all.change(CreateGate { name: name("g"), position: name("late") }).await;
    all.change(SetGateTable { name: name("audit"), table: name("linear") }).await;
    all.change(RemoveGate { name: name("empty") }).await;
    let bound = json!({"instance": "pf", "gate": "audit", "filter": "proto tcp", "priority": 2});
    all.change(Bind(read(bound))).await;
    all.change(Unbind { instance: name("pf"), gate: name("firewall"), filter: name("in lan") }).await;
    all.change(CreateInstance { plugin: name("null"), name: name("o"), settings: Map::new(), service: None })
        .await;
    let service = Some(read(json!({"rate": 100, "packet": 50})));
    all.change(CreateInstance { plugin: name("null"), name: name("o"), settings: Map::new(), service }).await;
    all.change(SetInstance { name: name("pf"), settings: settings(json!({"ports": "81"})) }).await;
    all.change(RenameInstance { name: name("n"), to: name("m") }).await;
    all.change(FreeInstance { name: name("pf") }).await;
    all.change(LoadPlugin(read(json!({"file": "/nowhere.wasm"})))).await;
    all.change(UnloadPlugin { name: name("null") }).await;
    let node = json!({"name": "more", "kind": "fifo", "under": "all", "quantum": "1500B"});
    all.change(AddSchedulerNode { port: name("wan"), node: read(node) }).await;
    let (port, changes) = (name("wan"), settings(json!({"rate": "20mbit"})));
    all.change(SetScheduler { port, changes }).await;
    let (port, changes) = (name("wan"), settings(json!({"quantum": "3000B"})));
    all.change(SetSchedulerNode { port: port.clone(), name: name("bulk"), changes: changes.clone() }).await;
    all.change(SetQueue { port: port.clone(), queue: name("bulk"), flow: None, changes }).await;
    let removal = read(json!({"to": "bulk"}));
    all.change(RemoveSchedulerNode { port, node: name("flows"), removal }).await;
    change_principals(all).await;
}

/// Tries the changes of principals.
async fn change_principals(all: &mut Tried) {
    if let Some(obstacle) = no_control_groups() {
        println!("principals are not tried: {obstacle}");
        let names = ["AddPrincipal", "RemovePrincipal", "SetPrincipal", "ReserveFlow", "ReleaseFlow"];
        all.names.extend(names.map(str::to_owned));
        return;
    }
    let name = |name: &str| name.to_owned();
    let principal = json!({"name": "p", "cpu-limit": "50 %"});
    all.change(AddPrincipal(read(principal.clone()))).await;
    all.router.execute(&Principal::router(), AddPrincipal(read(principal))).await.unwrap();
    let changes = settings(json!({"memory": "8MiB", "cpu-limit": null, "weight": 7}));
    all.change(SetPrincipal { name: name("p"), changes }).await;
    all.change(RemovePrincipal { name: name("p") }).await;
    let reservation = json!({"filter": "proto udp", "principal": "r", "link": "1mbit", "port": "wan"});
    all.change(read::<ReserveFlow>(reservation.clone())).await;
    all.router.execute(&Principal::router(), read::<ReserveFlow>(reservation)).await.unwrap();
    all.change(ReleaseFlow { name: name("r"), drop: true }).await;
}

#[tokio::test]
async fn every_query_leaves_configuration_and_revision_as_they_are() {
    let mut all = Tried::new().await;
    let name = |name: &str| name.to_owned();
    all.query(ListTokens).await;
    all.query(ReadAudit { last: Some(10) }).await;
    all.query(CompareConfiguration { text: Some(name(CONFIG)), origin: Some(name("test")) }).await;
    all.query(CompareConfiguration::default()).await;
    all.query(GetConfiguration).await;
    all.query(ListRevisions).await;
    all.query(GetRevision { number: 1 }).await;
    all.query(Save::default()).await;
    all.query(ListBindings::default()).await;
    let packet = name("src 10.1.0.7 dst 10.9.0.1 proto udp in lan");
    all.query(ExplainFilters { packet: packet.clone() }).await;
    all.query(Lookup { packet }).await;
    all.query(CheckFilters).await;
    all.query(ListGates).await;
    all.query(ListFlows::default()).await;
    all.query(ListConnections::default()).await;
    all.query(ListPlacements).await;
    all.query(ListInstances).await;
    all.query(ListEvents::default()).await;
    all.query(FollowEvents).await;
    all.query(ReadLastDrops::default()).await;
    all.query(GetStatus).await;
    all.query(GetSummary).await;
    all.query(ListDrops).await;
    all.query(ListPlugins).await;
    all.query(GetPlugin { name: name("null") }).await;
    all.query(ListInstanceMaps { instance: name("n") }).await;
    all.query(GetInstanceMap { instance: name("pf"), map: name("ports") }).await;
    all.query(ListQuarantine).await;
    all.query(ListPrincipals).await;
    all.query(GetPromises).await;
    all.query(ListPorts).await;
    all.query(GetCounters).await;
    all.query(ListNeighbours).await;
    all.query(GetHardware).await;
    all.query(GetControlPlane).await;
    all.query(GetAdmission).await;
    all.query(read::<ExplainService>(json!({"plugin": "null", "service": {"rate": 100, "packet": 50}})))
        .await;
    all.query(ListAllowances).await;
    all.query(Trial::AddPrincipal(read(json!({"name": "p"})))).await;
    all.query(GetSettings).await;
    all.query(LookupRoute { address: name("10.9.0.1") }).await;
    all.query(ListRoutes::default()).await;
    all.query(GetSchedulerSettings { port: name("wan") }).await;
    all.query(ListQueues).await;
    all.query(GetQueue { port: name("wan"), queue: name("bulk") }).await;
    all.query(ListSchedulers).await;
    all.end("Query").await;
}
