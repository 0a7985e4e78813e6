//! Running router: its state, and the requests about the router as a whole.

mod kernel_share;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use ipnet::IpNet;
use millrace_classify::CompiledExpression;
use millrace_forward::Route;
use millrace_host::{Actions, Mirror, OwnRoute};
use millrace_offload::FlowCache;
use millrace_pipeline::thread::{self, Wake};
use millrace_pipeline::{DeviceId, GateTables, ObservationCommand, Question, SchedulerCommand, Snapshot};
use millrace_plugin::PluginChange;
use millrace_plugin_abi::{Plugin, Request};
use millrace_port::Capabilities;
use millrace_store::{AuditLog, Store};
use millrace_telemetry::Rate;
use millrace_units::{Instant, PortId};
use tokio::sync::Notify;

use crate::access::tokens::Tokens;
use crate::configuration::{Base, Waiting};
use crate::flows::lookup::{self, ReadPacket};
use crate::follow::host_output::HostOutput;
use crate::model::Model;
use crate::observe::Observed;
use crate::observe::events::Events;
use crate::overrides::Overrides;
use crate::plugins::driver_forms::Forms;
use crate::plugins::host_level::HostLevel;
use crate::plugins::loader::Loader;
use crate::ports::device::KernelDevice;
use crate::routes::PortsByDevice;
use crate::routes::table::RouteTable;
use crate::routes::wanted::WantedRoutes;
use crate::schedulers::queues::FormerFlows;
use crate::show::{self, KernelShare};
use crate::view::{
    ApplyingView, DropView, LookupView, MemoryView, MirrorView, NeighbourView, PluginInterfaceView,
    StatusView, SummaryView, TurnsView,
};
use crate::workers::Workers;
use crate::workers::commands::plugin_commands;
use crate::workers::crash_capture::crashes;
use crate::workers::death::Death;
use crate::workers::watchdog::{Names, Watchdog};
use crate::workers::worker_panic::WorkerPanic;
use crate::{Capture, CaptureRequest, ControlError, MemoryGuard};

/// Handle on a running router. Clones refer to the same router.
#[derive(Clone)]
pub struct Router(pub(crate) Arc<Shared>);

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Router")
    }
}

pub(crate) struct Shared {
    pub inner: Mutex<Inner>,
    pub stop: Notify,
    /// Notified when a plugin requests a change.
    pub requested: Notify,
    /// Wake-up of control by the workers.
    pub control_wake: Wake,
    /// Event log.
    pub events: Events,
    /// Audit log.
    pub audit: AuditLog,
    /// API tokens for remote access.
    pub tokens: Tokens,
}

/// Progress of a transaction of several changes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// Number of changes made.
    pub made: usize,
    /// Number of changes in all; 0 while it is unknown.
    pub of: usize,
}

impl Progress {
    /// Returns the error for a request that arrives while a transaction is running.
    fn refusal(self) -> ControlError {
        let Self { made, of } = self;
        ControlError::Conflict(format!(
            "a configuration or a list is being applied, {made} of {} so far: try again in a second",
            millrace_units::count(of, "change")
        ))
    }
}

/// State of a running router.
pub(crate) struct Inner {
    pub model: Model,
    pub tables: GateTables,
    pub route_table: RouteTable,
    pub mode: &'static str,
    pub workers: Workers,
    pub threads: Vec<JoinHandle<()>>,
    /// Panics of workers, to be captured.
    pub panics: Receiver<WorkerPanic>,
    /// Folder of the router's state, if it has one.
    pub state: Option<PathBuf>,
    pub kernel: HashMap<PortId, KernelDevice>,
    /// Flow cache of offloaded flows, or the reason why there is none.
    pub flow_cache: Result<FlowCache, &'static str>,
    /// Loaded eBPF variants of plugins.
    pub forms: Forms,
    /// Host outputs that catch the kernel's own packets, by egress port.
    pub hosts: HashMap<PortId, HostOutput>,
    pub capabilities: HashMap<DeviceId, Capabilities>,
    pub mirror: Option<Mirror>,
    pub changes: Option<tokio::sync::mpsc::Receiver<Vec<millrace_host::HostChange>>>,
    pub actions: Option<Actions>,
    /// Routes that were installed in the kernel.
    pub installed: BTreeMap<IpNet, OwnRoute>,
    /// Routes that the kernel should have and lacks.
    pub wanted: WantedRoutes,
    pub death: Death,
    pub rates: Rate,
    /// Rates of scheduler nodes, counted since each node was added.
    pub node_rates: Rate,
    pub started: Instant,
    /// Flows whose settings were removed.
    pub former_flows: FormerFlows,
    pub captures: u32,
    /// Number of traces started so far. The number of the running trace follows.
    pub traces: u32,
    pub tracing: Option<u32>,
    /// Counters of the ports' XDP programs when the counters were cleared.
    pub share_offset: HashMap<PortId, KernelShare>,
    /// Counters since then of the XDP programs of devices that are gone.
    pub share_gone: HashMap<PortId, KernelShare>,
    /// Transmit drops of the ports' devices when the counters were cleared, or when the device was taken.
    pub device_drops_before: HashMap<PortId, u64>,
    /// Changes that plugin instances request, with the names of the instances.
    pub requests: VecDeque<(String, Request)>,
    /// Host companions of plugins.
    pub host_level: HostLevel,
    /// Plugin versions before their last upgrade.
    pub previous_plugins: HashMap<&'static str, Arc<dyn Plugin>>,
    /// Loader of plugins that are files.
    pub loader: Loader,
    /// Names of instances, for the watchdog.
    pub names: Names,
    /// Watchdog of calls of instances.
    pub watchdog: Option<Watchdog>,
    /// Options given beside the configuration at the start, which apply to every later configuration.
    pub overrides: Overrides,
    /// Configuration that was applied or saved last, or started with.
    pub base: Base,
    /// Store of the applied revisions.
    pub store: Store,
    /// Progress of the configuration, or of the list of changes, that is being applied.
    pub applying: Option<Progress>,
    /// Whether the router is shutting down: no change and no rollback starts any more.
    pub ending: bool,
    /// Revision that is rolled back unless it is confirmed.
    pub waiting: Option<Waiting>,
    /// Event log.
    pub events: Events,
    /// State of the last look for events.
    pub observed: Observed,
    /// Functions that measure free memory; `None` where memory is not checked.
    pub memory: Option<MemoryGuard>,
}

impl Inner {
    /// Refuses a change once the router is shutting down.
    pub fn unless_ending(&self) -> Result<(), ControlError> {
        match self.ending {
            true => Err(ControlError::Conflict("the router ends: nothing is changed any more".into())),
            false => Ok(()),
        }
    }

    /// Refuses a change while a configuration is being applied.
    pub fn unless_applying(&self) -> Result<(), ControlError> {
        self.unless_ending()?;
        self.applying.map_or(Ok(()), |progress| Err(progress.refusal()))
    }

    /// Refuses a request once a transaction has made some of its changes, until it has made all.
    pub fn unless_in_between(&self) -> Result<(), ControlError> {
        // While the number of changes is unknown, none has been made.
        let begun = self.applying.filter(|progress| progress.of > 0);
        begun.map_or(Ok(()), |progress| Err(progress.refusal()))
    }

    /// Refuses a change while a configuration is being applied or waits for its confirmation.
    fn settled(&self) -> Result<(), ControlError> {
        self.unless_applying()?;
        match &self.waiting {
            None => Ok(()),
            Some(waiting) => Err(ControlError::Conflict(format!(
                "revision {} waits to be confirmed: `millrace confirm` keeps it, `millrace rollback` goes back at once",
                waiting.revision
            ))),
        }
    }

    pub fn by_device(&self) -> PortsByDevice {
        self.kernel.iter().map(|(port, device)| (device.ifindex, *port)).collect()
    }

    /// Sets routes in the forwarding table, or removes the route of a prefix without a new one.
    pub fn change_routes(&mut self, changes: Vec<(IpNet, Option<Route>)>) -> Result<(), ControlError> {
        self.route_table.change(changes, &mut self.workers)
    }

    /// Sends changes of instances, gates and bindings to the workers.
    pub fn tell_plugins(
        &mut self,
        changes: Vec<PluginChange<CompiledExpression>>,
    ) -> Result<(), ControlError> {
        let commands = plugin_commands(&self.model.plugins, &mut self.tables, changes, self.workers.len())?;
        self.workers.tell_each(commands)
    }

    /// Waits until the workers have carried out all earlier commands.
    pub fn barrier(&mut self) -> Result<(), ControlError> {
        self.workers.barrier()
    }

    /// Returns all counters, with the drops of the XDP programs added to the workers' drops.
    pub fn snapshot(&mut self) -> Result<Snapshot, ControlError> {
        Ok(self.snapshot_and_shares()?.0)
    }

    /// Returns all counters, and the counters of the XDP program of each port at the same moment.
    fn snapshot_and_shares(&mut self) -> Result<(Snapshot, Vec<KernelShare>), ControlError> {
        let mut snapshot = self.workers.snapshot()?;
        let shares = self.add_driver_drops(&mut snapshot);
        Ok((snapshot, shares))
    }

    /// Returns the counters without the long lists: schedulers, EtherTypes and neighbours.
    pub fn counters(&mut self) -> Result<Snapshot, ControlError> {
        let mut snapshot = self.workers.counters()?;
        self.add_driver_drops(&mut snapshot);
        Ok(snapshot)
    }

    fn add_driver_drops(&self, snapshot: &mut Snapshot) -> Vec<KernelShare> {
        let share = |plan: &crate::model::PortPlan| {
            let share = self.share(plan.id);
            show::add_driver_drops(snapshot, plan.id, &share);
            share
        };
        self.model.ports.iter().map(share).collect()
    }
}

impl Router {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panicking thread leaves a state as consistent as any state between two commands.
        self.0.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the state for a single change; every single change calls this function.
    ///
    /// While a configuration is being applied it refuses, because the change would be no part of it. While a
    /// revision waits for its confirmation it refuses, because a rollback would undo the change.
    ///
    /// # Errors
    /// [`ControlError::Conflict`] in these cases.
    pub(crate) fn to_change(&self) -> Result<MutexGuard<'_, Inner>, ControlError> {
        let inner = self.lock();
        inner.settled()?;
        Ok(inner)
    }

    /// Waits until every worker has carried out all earlier commands. Success shows that all workers and
    /// control are alive.
    ///
    /// # Errors
    /// When the data plane does not answer.
    pub fn answers(&self) -> Result<(), ControlError> {
        self.lock().barrier()
    }

    /// Returns the event log.
    pub fn events(&self) -> &Events {
        &self.0.events
    }

    /// Returns the status of the daemon.
    ///
    /// # Errors
    /// When the data plane does not answer.
    pub fn status(&self) -> Result<StatusView, ControlError> {
        let mut inner = self.lock();
        let snapshot = inner.snapshot()?;
        let mirror = inner.mirror.as_ref().map(|mirror| {
            let statistics = mirror.statistics();
            MirrorView {
                messages: statistics.messages,
                overruns: statistics.overruns,
                dumps: statistics.dumps,
                divergences_repaired: statistics.divergences_repaired,
            }
        });
        let has_cache = inner.flow_cache.is_ok();
        let driver_flows =
            has_cache.then(|| show::driver_flows(snapshot.driver_flows, &mut inner.rates, snapshot.at));
        Ok(StatusView {
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            uptime: snapshot.at.since(inner.started).as_secs_f64(),
            mode: inner.mode,
            on_death: inner.death.view(),
            workers: inner.workers.len(),
            worker_cpu: inner.workers.cpu_times(),
            memory: MemoryView { used: snapshot.memory.0, frames: snapshot.memory.1 },
            routes: inner.route_table.len(),
            flows: show::flow_table(&snapshot.flows),
            flow_states: show::flow_states(snapshot.flow_states),
            driver_flows,
            turns: TurnsView {
                busy: snapshot.turns.0,
                empty: snapshot.turns.1,
                longest_change: snapshot.longest_change.as_micros() as u64,
            },
            sleeps: snapshot.sleeps,
            applying: inner.applying.map(|Progress { made, of }| ApplyingView { made, of }),
            pending: inner.waiting.as_ref().map(Waiting::pending),
            missing_routes: inner.wanted.view(),
            crashes: inner.state.as_deref().map(crashes).filter(|crashes| !crashes.is_empty()),
            plugin_interface: PluginInterfaceView::default(),
            leftover_objects: Some(millrace_plugin::native::leftovers()).filter(|count| *count > 0),
            mirror,
        })
    }

    /// Returns the packet totals.
    ///
    /// # Errors
    /// When the data plane does not answer.
    pub fn summary(&self) -> Result<SummaryView, ControlError> {
        let mut inner = self.lock();
        let (snapshot, shares) = inner.snapshot_and_shares()?;
        Ok(show::summary(&snapshot, &shares))
    }

    /// Returns the dropped packets by reason.
    ///
    /// # Errors
    /// When the data plane does not answer.
    pub fn drops(&self) -> Result<Vec<DropView>, ControlError> {
        let mut inner = self.lock();
        let snapshot = inner.snapshot()?;
        let mut views = show::drops(&snapshot, &inner.model);
        for view in &mut views {
            view.rate = inner.rates.read(&format!("drop {}", view.reason), view.packets, snapshot.at);
        }
        Ok(views)
    }

    /// Returns the neighbours of all ports.
    ///
    /// # Errors
    /// When the data plane does not answer.
    pub fn neighbours(&self) -> Result<Vec<NeighbourView>, ControlError> {
        let mut inner = self.lock();
        let snapshot = inner.snapshot()?;
        let mut views: Vec<NeighbourView> = snapshot
            .neighbours
            .iter()
            .map(|(port, address, mac)| NeighbourView {
                port: inner.model.port_name(*port).to_owned(),
                address: address.to_string(),
                mac: mac.map(|mac| mac.to_string()),
                state: if mac.is_some() { "known".into() } else { "incomplete".into() },
            })
            .collect();
        let ports = inner.by_device();
        if let Some(mirror) = &inner.mirror {
            let state = mirror.state();
            views.extend(state.neighbours().filter_map(|neighbour| {
                let port = ports.get(&neighbour.ifindex)?;
                Some(NeighbourView {
                    port: inner.model.port_name(*port).to_owned(),
                    address: neighbour.ip.to_string(),
                    mac: neighbour.mac.map(|mac| millrace_wire::MacAddr(mac).to_string()),
                    state: format!("{:?}", neighbour.state).to_lowercase(),
                })
            }));
        }
        views.sort_by(|a, b| (&a.port, &a.address).cmp(&(&b.port, &b.address)));
        Ok(views)
    }

    /// Explains what the router would do with a packet, which is described by a filter without wildcards.
    ///
    /// # Errors
    /// An invalid description of the packet.
    pub fn lookup(&self, packet: &str) -> Result<LookupView, ControlError> {
        let packet = ReadPacket::read(packet)?;
        let mut inner = self.lock();
        let question: Question = packet.question(&inner.model)?;
        let explanation = inner
            .workers
            .owner_of_flow(&question.key)
            .ask(|reply| ObservationCommand::Explain(question, reply))?;
        let leaf = match explanation.queue {
            Some((port, queue)) => {
                inner.workers.ask(|reply| SchedulerCommand::FindLeaf(port, queue, reply))?
            }
            None => Vec::new(),
        };
        let leaf = leaf.into_iter().flatten().next();
        Ok(lookup::view(explanation, leaf, &inner.model, &inner.route_table))
    }

    /// Sets all counters to zero.
    ///
    /// # Errors
    /// When the data plane does not answer.
    pub fn clear_counters(&self) -> Result<(), ControlError> {
        let mut inner = self.lock();
        inner.workers.clear_counters()?;
        let offsets: HashMap<PortId, KernelShare> =
            inner.model.ports.iter().map(|plan| (plan.id, inner.share_now(plan.id))).collect();
        inner.share_offset = offsets;
        inner.share_gone.clear();
        inner.device_drops_before = inner.device_drops_now();
        inner.rates = Rate::since(thread::now());
        inner.snapshot().map(|_| ())
    }

    /// Starts a capture.
    ///
    /// # Errors
    /// No such port, an invalid filter.
    pub fn capture(&self, request: &CaptureRequest) -> Result<Capture, ControlError> {
        let filter = self.select(request.filter.as_deref())?;
        let mut inner = self.lock();
        inner.captures += 1;
        let number = inner.captures;
        let workers = inner.workers.len();
        let (capture, sinks) = Capture::new(request, filter.as_ref(), number, &inner.model, workers)?;
        let start = |sink| ObservationCommand::StartCapture(Box::new(sink));
        inner.workers.tell_each(sinks.into_iter().map(start).collect())?;
        Ok(capture)
    }
}
