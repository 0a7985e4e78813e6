//! The running router: its state, and what can be asked of it as a whole.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use ipnet::IpNet;
use millrace_classify::CompiledExpression;
use millrace_forward::Route;
use millrace_host::{Actions, Mirror, OwnRoute};
use millrace_offload::{DriverSent, FlowCache};
use millrace_packet::ClassCounts;
use millrace_pipeline::thread::{self, Wake};
use millrace_pipeline::{DeviceId, GateTables, ObservationCommand, Question, SchedulerCommand, Snapshot};
use millrace_plugin::PluginChange;
use millrace_plugin_abi::{Plugin, Request};
use millrace_port::Capabilities;
use millrace_store::{AuditLog, Store};
use millrace_telemetry::Rate;
use millrace_units::{Instant, PortId};
use tokio::sync::Notify;

use crate::configuration::{Base, Waiting};
use crate::crash_capture::crashes;
use crate::death::Death;
use crate::device::KernelDevice;
use crate::driver_forms::Forms;
use crate::events::Events;
use crate::host_level::HostLevel;
use crate::host_output::HostOutput;
use crate::loader::Loader;
use crate::lookup::{self, ReadPacket};
use crate::model::Model;
use crate::observe::Observed;
use crate::overrides::Overrides;
use crate::queues::FormerFlows;
use crate::route_table::RouteTable;
use crate::routes::PortsByDevice;
use crate::show::{self, KernelShare};
use crate::tokens::Tokens;
use crate::view::{
    ApplyingView, DropView, LookupView, MemoryView, MirrorView, NeighbourView, PluginInterfaceView,
    StatusView, SummaryView, TurnsView,
};
use crate::wanted_routes::WantedRoutes;
use crate::watchdog::{Names, Watchdog};
use crate::worker_commands::plugin_commands;
use crate::worker_panic::WorkerPanic;
use crate::workers::Workers;
use crate::{Capture, CaptureRequest, ControlError, MemoryGuard};

/// A handle on a running router. Clones name the same one.
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

/// Changes that belong together and are being made.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// How many are made.
    pub made: usize,
    /// How many there are; 0 as long as nobody knows.
    pub of: usize,
}

impl Progress {
    /// What is told who comes in between.
    fn refusal(self) -> ControlError {
        let Self { made, of } = self;
        ControlError::Conflict(format!(
            "a configuration or a list is being applied, {made} of {} so far: try again in a second",
            millrace_units::count(of, "change")
        ))
    }
}

/// The state of a running router.
pub(crate) struct Inner {
    pub model: Model,
    pub tables: GateTables,
    pub route_table: RouteTable,
    pub mode: &'static str,
    pub workers: Workers,
    pub threads: Vec<JoinHandle<()>>,
    /// Panics of workers, to be captured.
    pub panics: Receiver<WorkerPanic>,
    /// Where the router keeps its state, if anywhere.
    pub state: Option<PathBuf>,
    pub kernel: HashMap<PortId, KernelDevice>,
    /// Plain flows in the driver, or why there are none.
    pub flow_cache: Result<FlowCache, &'static str>,
    /// Forms of plugins that are loaded there.
    pub forms: Forms,
    /// Where the kernel's own packets are caught, by the port that they are for.
    pub hosts: HashMap<PortId, HostOutput>,
    pub capabilities: HashMap<DeviceId, Capabilities>,
    pub mirror: Option<Mirror>,
    pub changes: Option<tokio::sync::mpsc::Receiver<Vec<millrace_host::HostChange>>>,
    pub actions: Option<Actions>,
    /// Routes that the kernel was given.
    pub installed: BTreeMap<IpNet, OwnRoute>,
    /// Those that it is to have, and does not.
    pub wanted: WantedRoutes,
    pub death: Death,
    pub rates: Rate,
    /// Those of schedulers' nodes, which count since they were added.
    pub node_rates: Rate,
    pub started: Instant,
    /// Flows of which something was said, and is no longer.
    pub former_flows: FormerFlows,
    pub captures: u32,
    /// Traces that were started, and the one that goes on.
    pub traces: u32,
    pub tracing: Option<u32>,
    /// What level-0 programs had counted when the counters were cleared.
    pub share_offset: HashMap<PortId, KernelShare>,
    /// What level-0 programs of devices that are gone had counted since.
    pub share_gone: HashMap<PortId, KernelShare>,
    /// What the devices of ports had dropped when the counters were cleared, or the devices were taken.
    pub device_drops_before: HashMap<PortId, u64>,
    /// What instances of plugins want changed, with their names.
    pub requests: VecDeque<(String, Request)>,
    /// Host companions of plugins.
    pub host_level: HostLevel,
    /// The versions of plugins that were there before they were upgraded.
    pub previous_plugins: HashMap<&'static str, Arc<dyn Plugin>>,
    /// What loads plugins that are files.
    pub loader: Loader,
    /// How instances are called, for the watchdog.
    pub names: Names,
    /// Watches whether calls of instances return.
    pub watchdog: Option<Watchdog>,
    /// What was said beside the configuration at the start, and holds for every later one.
    pub overrides: Overrides,
    /// What was applied or saved last, or started with.
    pub base: Base,
    /// The revisions that were applied.
    pub store: Store,
    /// How far a configuration is that is being applied, or a list of changes that are being made.
    pub applying: Option<Progress>,
    /// Whether the router ends: nothing is changed any more, and nothing changed back.
    pub ending: bool,
    /// What goes back by itself unless it is confirmed.
    pub waiting: Option<Waiting>,
    /// What happened.
    pub events: Events,
    /// What was seen last of what happens by itself.
    pub observed: Observed,
    /// Who knows how much memory is left; nobody, where it isn't looked at.
    pub memory: Option<MemoryGuard>,
}

impl Inner {
    /// Refuses once the router ends.
    pub fn unless_ending(&self) -> Result<(), ControlError> {
        match self.ending {
            true => Err(ControlError::Conflict("the router ends: nothing is changed any more".into())),
            false => Ok(()),
        }
    }

    /// Refuses while a configuration is being applied.
    pub fn unless_applying(&self) -> Result<(), ControlError> {
        self.unless_ending()?;
        self.applying.map_or(Ok(()), |progress| Err(progress.refusal()))
    }

    /// Refuses once changes that belong together are being made, and not all of them are.
    pub fn unless_in_between(&self) -> Result<(), ControlError> {
        // As long as nobody knows how many there are, none is made.
        let begun = self.applying.filter(|progress| progress.of > 0);
        begun.map_or(Ok(()), |progress| Err(progress.refusal()))
    }

    /// Refuses while a configuration is being applied, or waits to be confirmed.
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

    /// Sets routes in the forwarding table, or removes those without one.
    pub fn change_routes(&mut self, changes: Vec<(IpNet, Option<Route>)>) -> Result<(), ControlError> {
        self.route_table.change(changes, &mut self.workers)
    }

    /// Tells the worker of changes of instances, gates and bindings.
    pub fn tell_plugins(
        &mut self,
        changes: Vec<PluginChange<CompiledExpression>>,
    ) -> Result<(), ControlError> {
        let commands = plugin_commands(&self.model.plugins, &mut self.tables, changes, self.workers.len())?;
        self.workers.tell_each(commands)
    }

    /// Waits until the worker has taken up all that it was told.
    pub fn barrier(&mut self) -> Result<(), ControlError> {
        self.workers.barrier()
    }

    /// All counters, with what the driver dropped as workers do.
    pub fn snapshot(&mut self) -> Result<Snapshot, ControlError> {
        Ok(self.snapshot_and_shares()?.0)
    }

    /// The same, and what the driver did at each port, of the same moment.
    fn snapshot_and_shares(&mut self) -> Result<(Snapshot, Vec<KernelShare>), ControlError> {
        let mut snapshot = self.workers.snapshot()?;
        let shares = self.add_driver_drops(&mut snapshot);
        Ok((snapshot, shares))
    }

    /// The same without what may be long: schedulers, EtherTypes and neighbours.
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

    /// What the level-0 program of a port did since it was loaded.
    pub fn share_now(&self, port: PortId) -> KernelShare {
        let Some(device) = self.kernel.get(&port) else {
            return KernelShare { sent: self.driver_sent(port), ..KernelShare::default() };
        };
        let counters = device.programs.counters().unwrap_or_default();
        KernelShare {
            seen: counters.seen,
            seen_bytes: counters.seen_bytes,
            passed: counters.passed(),
            dropped: counters.fallback_dropped + counters.undeliverable + counters.made_way,
            forwarded: counters.forwarded,
            filtered: counters.filtered,
            policed: counters.policed,
            formed: counters.formed,
            classes: ClassCounts { passed: counters.entered, dropped: counters.refused },
            sent: self.driver_sent(port),
        }
    }

    /// What the level-0 programs of a port did since the counters were cleared.
    pub fn share(&self, port: PortId) -> KernelShare {
        let now = self.share_now(port);
        let gone = self.share_gone.get(&port).copied().unwrap_or_default();
        let offset = self.share_offset.get(&port).copied().unwrap_or_default();
        let mut classes = gone.classes;
        classes.add(&now.classes.since(&offset.classes));
        KernelShare {
            seen: gone.seen + now.seen.saturating_sub(offset.seen),
            seen_bytes: gone.seen_bytes + now.seen_bytes.saturating_sub(offset.seen_bytes),
            passed: gone.passed + now.passed.saturating_sub(offset.passed),
            dropped: gone.dropped + now.dropped.saturating_sub(offset.dropped),
            forwarded: gone.forwarded + now.forwarded.saturating_sub(offset.forwarded),
            filtered: gone.filtered + now.filtered.saturating_sub(offset.filtered),
            policed: gone.policed + now.policed.saturating_sub(offset.policed),
            formed: gone.formed + now.formed.saturating_sub(offset.formed),
            classes,
            sent: DriverSent {
                packets: gone.sent.packets + now.sent.packets.saturating_sub(offset.sent.packets),
                bytes: gone.sent.bytes + now.sent.bytes.saturating_sub(offset.sent.bytes),
            },
        }
    }

    /// What left by a port in the driver.
    fn driver_sent(&self, port: PortId) -> DriverSent {
        let sent = self.flow_cache.as_ref().ok().map(|cache| cache.sent(port.0));
        sent.and_then(Result::ok).unwrap_or_default()
    }
}

impl Router {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        // What a panicking thread left behind is as consistent as any state between two commands.
        self.0.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, to be changed by a single change. Every one of them asks here whether it may be made: not while a configuration is
    /// applied, of which it would be no part, nor while one waits to be confirmed, for it would be gone when that goes back.
    ///
    /// # Errors
    /// [`ControlError::Conflict`] while it is so.
    pub(crate) fn to_change(&self) -> Result<MutexGuard<'_, Inner>, ControlError> {
        let inner = self.lock();
        inner.settled()?;
        Ok(inner)
    }

    /// Waits until every worker has taken up all that it was told: each of them lives, and control does.
    ///
    /// # Errors
    /// When the data plane does not answer.
    pub fn answers(&self) -> Result<(), ControlError> {
        self.lock().barrier()
    }

    /// What happened, and what happens.
    pub fn events(&self) -> &Events {
        &self.0.events
    }

    /// The daemon itself.
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

    /// What became of all packets.
    ///
    /// # Errors
    /// When the data plane does not answer.
    pub fn summary(&self) -> Result<SummaryView, ControlError> {
        let mut inner = self.lock();
        let (snapshot, shares) = inner.snapshot_and_shares()?;
        Ok(show::summary(&snapshot, &shares))
    }

    /// What was dropped.
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

    /// The neighbours of all ports.
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

    /// Says what would happen to a packet, written as a filter without wildcards.
    ///
    /// # Errors
    /// When the packet is not one.
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
    /// No such port, a filter that is none.
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
