//! The running router: its state, and everything that can be asked of it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use ipnet::IpNet;
use millrace_classify::CompiledFilter;
use millrace_forward::Route;
use millrace_host::{Actions, Mirror, OwnRoute};
use millrace_offload::{DriverSent, FlowCache};
use millrace_pipeline::thread::Wake;
use millrace_pipeline::{Command, DeviceId, GateTables, Question, Snapshot};
use millrace_plugin::PluginChange;
use millrace_plugin_abi::{Instance, Message, Plugin, Position, Reply, Request};
use millrace_port::Capabilities;
use millrace_store::{AuditLog, Draft, Store};
use millrace_telemetry::{EventKind, Rate};
use millrace_units::{Instant, PortId};
use serde_json::{Map, Value, json};
use tokio::sync::Notify;

use crate::configuration::Waiting;
use crate::device::KernelDevice;
use crate::driver_forms::Forms;
use crate::events::{Events, utc_now};
use crate::feed::plugin_commands;
use crate::host_level::{HostLevel, PATIENCE};
use crate::host_output::HostOutput;
use crate::load::Loaded;
use crate::loader::Loader;
use crate::lookup::{self, parse_packet};
use crate::model::Model;
use crate::observe::Observed;
use crate::overrides::Overrides;
use crate::route_table::RouteTable;
use crate::routes::PortsByDevice;
use crate::show::{self, KernelShare};
use crate::tokens::Tokens;
use crate::view::{
    ApplyingView, CountersView, DropView, GateView, InstanceView, LookupView, MemoryView, MirrorView,
    NeighbourView, PluginDetailView, PluginInterfaceView, PluginView, PortCountersView, PortView, StatusView,
    SummaryView, TurnsView,
};
use crate::watchdog::{Names, Watchdog};
use crate::workers::Workers;
use crate::{Capture, CaptureRequest, ControlError, NewPlugin};

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
    /// Notified when a plugin has asked for a change.
    pub requested: Notify,
    /// Signalled by the worker when it has something to say.
    pub control_wake: Wake,
    /// What happened.
    pub events: Events,
    /// What was asked for, and by whom.
    pub audit: AuditLog,
    /// By which one is let in from elsewhere.
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

/// The state of a running router.
pub(crate) struct Inner {
    pub model: Model,
    pub tables: GateTables,
    pub route_table: RouteTable,
    pub mode: &'static str,
    pub workers: Workers,
    pub threads: Vec<JoinHandle<()>>,
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
    pub on_death: HashMap<PortId, millrace_config::OnDeath>,
    pub rates: Rate,
    pub started: Instant,
    pub captures: u32,
    /// Traces that were started, and the one that goes on.
    pub traces: u32,
    pub tracing: Option<u32>,
    /// What level-0 programs had counted when the counters were cleared.
    pub share_offset: HashMap<PortId, KernelShare>,
    /// What level-0 programs of devices that are gone had counted since.
    pub share_gone: HashMap<PortId, KernelShare>,
    /// What instances of plugins want changed, with their names.
    pub requests: VecDeque<(String, Request)>,
    /// Slow halves of plugins.
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
    /// What was applied last, or started with.
    pub base: Draft,
    /// The revisions that were applied.
    pub store: Store,
    /// How far a configuration is that is being applied, or a list of changes that are being made.
    pub applying: Option<Progress>,
    /// What goes back by itself unless it is confirmed.
    pub waiting: Option<Waiting>,
    /// What happened.
    pub events: Events,
    /// What was seen last of what happens by itself.
    pub observed: Observed,
}

impl Inner {
    /// The slow half of an instance that is to be created; none, if that will be in quarantine.
    fn slow_half_to_be(
        &self,
        plugin: &str,
        name: &str,
        settings: &Map<String, Value>,
    ) -> Result<Option<Box<dyn Instance>>, ControlError> {
        if self.model.repository.quarantine().find(name, plugin).is_some() {
            return Ok(None);
        }
        let known = self.model.plugins.plugin_named(plugin)?;
        Ok(self.model.plugins.slow_half(&*known, settings)?)
    }

    /// Begins the slow halves of the instances there are.
    pub fn begin_slow_halves(&mut self) -> Result<(), ControlError> {
        let Self { model, host_level, .. } = self;
        for (id, name) in model.plugins.running() {
            if let Some(slow) = model.plugins.slow_half_of(name)? {
                host_level.put(id, Some(slow), (0, true))?;
            }
        }
        Ok(())
    }

    /// Refuses while a configuration is being applied.
    pub fn unless_applying(&self) -> Result<(), ControlError> {
        let Some(Progress { made, of }) = self.applying else { return Ok(()) };
        Err(ControlError::Conflict(format!(
            "a configuration or a list is being applied, {made} of {of} changes so far: try again in a second"
        )))
    }

    /// Refuses while a configuration is being applied, or waits to be confirmed.
    pub fn settled(&self) -> Result<(), ControlError> {
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
    pub fn tell_plugins(&mut self, changes: Vec<PluginChange<CompiledFilter>>) -> Result<(), ControlError> {
        let commands = plugin_commands(&self.model.plugins, &mut self.tables, changes, self.workers.len())?;
        self.workers.tell_each(commands)
    }

    /// Waits until the worker has taken up all that it was told.
    pub fn barrier(&mut self) -> Result<(), ControlError> {
        self.workers.ask(|reply| Command::SetRoutes(Vec::new(), reply)).map(drop)
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
            sent: self.driver_sent(port),
        }
    }

    /// What the level-0 programs of a port did since the counters were cleared.
    pub fn share(&self, port: PortId) -> KernelShare {
        let now = self.share_now(port);
        let gone = self.share_gone.get(&port).copied().unwrap_or_default();
        let offset = self.share_offset.get(&port).copied().unwrap_or_default();
        KernelShare {
            seen: gone.seen + now.seen.saturating_sub(offset.seen),
            seen_bytes: gone.seen_bytes + now.seen_bytes.saturating_sub(offset.seen_bytes),
            passed: gone.passed + now.passed.saturating_sub(offset.passed),
            dropped: gone.dropped + now.dropped.saturating_sub(offset.dropped),
            forwarded: gone.forwarded + now.forwarded.saturating_sub(offset.forwarded),
            filtered: gone.filtered + now.filtered.saturating_sub(offset.filtered),
            policed: gone.policed + now.policed.saturating_sub(offset.policed),
            formed: gone.formed + now.formed.saturating_sub(offset.formed),
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
        Ok(StatusView {
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            uptime: snapshot.at.since(inner.started).as_secs_f64(),
            mode: inner.mode,
            workers: inner.workers.len(),
            worker_cpu: inner.workers.cpu_times(),
            memory: MemoryView { used: snapshot.memory.0, frames: snapshot.memory.1 },
            routes: inner.route_table.len(),
            flows: show::flow_table(&snapshot.flows),
            flow_states: show::flow_states(snapshot.flow_states),
            driver_flows: inner.flow_cache.is_ok().then(|| show::driver_flows(snapshot.driver_flows)),
            turns: TurnsView {
                busy: snapshot.turns.0,
                empty: snapshot.turns.1,
                longest_change: snapshot.longest_change.as_micros() as u64,
            },
            sleeps: snapshot.sleeps,
            applying: inner.applying.map(|Progress { made, of }| ApplyingView { made, of }),
            plugin_interface: PluginInterfaceView::default(),
            leftover_objects: Some(millrace_plugin::native::leftovers()).filter(|count| *count > 0),
            mirror,
        })
    }

    /// All ports.
    ///
    /// # Errors
    /// When the data plane does not answer.
    pub fn ports(&self) -> Result<Vec<PortView>, ControlError> {
        let mut inner = self.lock();
        let snapshot = inner.snapshot()?;
        let plans = inner.model.ports.clone();
        Ok(plans.iter().map(|plan| port_view(&mut inner, plan, &snapshot)).collect())
    }

    /// The counters of all ports at one moment.
    ///
    /// # Errors
    /// When the data plane does not answer.
    pub fn counters(&self) -> Result<CountersView, ControlError> {
        let mut inner = self.lock();
        let snapshot = inner.counters()?;
        let ports = inner.model.ports.iter().map(|plan| port_counters(&inner, plan, &snapshot)).collect();
        Ok(CountersView { time: utc_now(), seconds: snapshot.at.since(inner.started).as_secs_f64(), ports })
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

    /// The plugins that instances can be made of.
    ///
    /// # Errors
    /// None so far.
    pub fn plugins(&self) -> Result<Vec<PluginView>, ControlError> {
        Ok(show::plugins(&self.lock().model))
    }

    /// A plugin, and all that it says of itself.
    ///
    /// # Errors
    /// No such plugin.
    pub fn plugin(&self, name: &str) -> Result<PluginDetailView, ControlError> {
        let inner = self.lock();
        let mut view = show::plugin(&inner.model, name)?;
        view.previous = inner.previous_plugins.get(name).map(|plugin| plugin.version());
        Ok(view)
    }

    /// All instances.
    ///
    /// # Errors
    /// When the data plane does not answer.
    pub fn instances(&self) -> Result<Vec<InstanceView>, ControlError> {
        let mut inner = self.lock();
        let snapshot = inner.snapshot()?;
        let (counts, slow) = (inner.workers.filter_counts()?, inner.host_level.report()?);
        Ok(show::instances(&snapshot, &counts, &inner, &slow))
    }

    /// All gates.
    ///
    /// # Errors
    /// When the data plane does not answer.
    pub fn gates(&self) -> Result<Vec<GateView>, ControlError> {
        let mut inner = self.lock();
        let counts = inner.workers.filter_counts()?;
        Ok(show::gates(&counts, &inner.model, &inner.tables))
    }

    /// Makes the plugin of a file known: a WebAssembly module, checked and compiled beside everything else, or a shared object,
    /// where the configuration allows that.
    ///
    /// # Errors
    /// A file that can't be read, isn't signed as the configuration wants it or is no plugin for this router, a version that
    /// goes back, a name that is taken; nothing has changed then.
    pub async fn load_plugin(&self, new: &NewPlugin) -> Result<PluginView, ControlError> {
        let loaded = self.load_file(new).await;
        crate::load::log(&new.path, loaded.as_ref().map(|plugin| (plugin.name, plugin.version)));
        if let Ok(PluginView { name, version, home, signature, .. }) = &loaded {
            let text = format!("plugin {name} {version} is loaded");
            let details = json!({"plugin": name, "version": version, "home": home, "signature": signature, "path": new.path});
            self.events().note(EventKind::PluginLoaded, name, text, details);
        }
        loaded
    }

    async fn load_file(&self, new: &NewPlugin) -> Result<PluginView, ControlError> {
        let loaded = self.read_plugin(&new.path).await?;
        let mut inner = self.lock();
        let name = crate::load::enter(&mut inner.model, loaded, new)?;
        let known = show::plugins(&inner.model).into_iter().find(|plugin| plugin.name == name);
        known.ok_or_else(|| ControlError::System("the plugin is not there".into()))
    }

    /// The plugin of a file, checked against its signature and compiled.
    pub(crate) async fn read_plugin(&self, path: &str) -> Result<Loaded, ControlError> {
        let file = path.to_owned();
        let (loader, admitted) = {
            let inner = self.lock();
            (inner.loader.clone(), inner.model.admitted())
        };
        let loaded = tokio::task::spawn_blocking(move || loader.load(&admitted, &file)).await;
        loaded.map_err(|error| ControlError::system("load the plugin", error))?
    }

    /// Forgets a plugin of which there are no instances; it is told by its name, or by the file that it was loaded from.
    ///
    /// # Errors
    /// No such plugin, one that is built in, instances of it.
    pub fn unload_plugin(&self, plugin: &str) -> Result<PluginView, ControlError> {
        let mut inner = self.lock();
        let of_file = inner.model.files.iter().find(|(_, file)| file.file == std::path::Path::new(plugin));
        let name = of_file.map_or(plugin, |(name, _)| *name);
        let known = show::plugins(&inner.model).into_iter().find(|plugin| plugin.name == name);
        if inner.model.plugins.is_built_in(name)? {
            return Err(ControlError::Conflict(format!(
                "plugin {name:?} is part of the router and can't be unloaded: that can only be what `plugin load` has loaded"
            )));
        }
        inner.model.plugins.remove_plugin(name)?;
        inner.previous_plugins.remove(name);
        inner.model.files.retain(|(known, _)| *known != name);
        inner.model.repository.unloaded(name);
        let text = format!("plugin {name} is unloaded");
        inner.events.note(EventKind::PluginUnloaded, name, text, json!({"plugin": name}));
        known.ok_or_else(|| ControlError::System("the plugin was not there".into()))
    }

    /// Creates an instance of a plugin.
    ///
    /// # Errors
    /// No such plugin, a name taken, a setting refused; nothing has changed then.
    pub fn create_instance(
        &self,
        plugin: &str,
        name: &str,
        settings: &Map<String, Value>,
    ) -> Result<InstanceView, ControlError> {
        let mut inner = self.lock();
        let slow = inner.slow_half_to_be(plugin, name, settings)?;
        let changes = inner.model.create_instance(plugin, name, settings.clone())?;
        let id = inner.model.plugins.instance(name)?;
        inner.host_level.put(id, slow, (0, true))?;
        inner.tell_names();
        inner.tell_plugins(changes)?;
        inner.begin_form(id)?;
        find_instance(&mut inner, name)
    }

    /// Frees an instance; its bindings go first.
    ///
    /// # Errors
    /// No such instance.
    pub fn free_instance(&self, name: &str) -> Result<InstanceView, ControlError> {
        let mut inner = self.lock();
        let id = inner.model.plugins.instance(name)?;
        let view = find_instance(&mut inner, name)?;
        inner.forget_quarantine(name)?;
        let changes = inner.model.plugins.free_instance(name)?;
        inner.host_level.remove(id)?;
        inner.tell_plugins(changes)?;
        inner.end_form(id)?;
        // A configuration that is being applied says of its own what is placed.
        if inner.unless_applying().is_ok() {
            inner.model.forget_placed_instance(name);
        }
        inner.tell_names();
        Ok(view)
    }

    /// Creates a gate, the last at its position.
    ///
    /// # Errors
    /// No such position, a name taken.
    pub fn create_gate(&self, name: &str, position: &str) -> Result<GateView, ControlError> {
        let position: Position = position.parse().map_err(ControlError::Invalid)?;
        let mut inner = self.lock();
        let (_, change) = inner.model.plugins.create_gate(name, position, None)?;
        inner.tell_plugins(vec![change])?;
        find_gate(&mut inner, name)
    }

    /// Says how the filters of a gate are searched. They are moved while the router forwards; all kinds of tables find
    /// the same.
    ///
    /// # Errors
    /// No such gate, no such kind of table.
    pub fn set_gate_table(&self, name: &str, table: &str) -> Result<GateView, ControlError> {
        let kind = table.parse().map_err(ControlError::Invalid)?;
        let mut inner = self.lock();
        let id = inner.model.plugins.gate(name)?.id;
        if let Some(table) = inner.tables.set_kind(id, kind) {
            inner.workers.tell(|| Command::SetTable(id, table.clone()))?;
            inner.barrier()?;
            inner.say_moved(id, false);
        }
        find_gate(&mut inner, name)
    }

    /// Removes a gate that nothing is bound at.
    ///
    /// # Errors
    /// No such gate; it is in use.
    pub fn remove_gate(&self, name: &str) -> Result<GateView, ControlError> {
        let mut inner = self.lock();
        inner.model.plugins.gate(name)?;
        let view = find_gate(&mut inner, name)?;
        let change = inner.model.plugins.remove_gate(name)?;
        inner.tell_plugins(vec![change])?;
        Ok(view)
    }

    /// Sends an instance a control message and returns its reply.
    ///
    /// # Errors
    /// No such instance or message, or the instance refuses.
    pub fn control(
        &self,
        instance: &str,
        message: &str,
        arguments: &Map<String, Value>,
    ) -> Result<Value, ControlError> {
        let message = Message { name: message.to_owned(), arguments: arguments.clone() };
        let mut inner = self.lock();
        let id = inner.model.plugins.address(instance, &message)?;
        let replies = inner.workers.ask(|reply| Command::Control(id, message.clone(), reply))?;
        let absent = || ControlError::System(format!("instance {instance:?} is not on the data plane"));
        let replies: Vec<Reply> = replies.into_iter().collect::<Option<_>>().ok_or_else(absent)?;
        let replies: Vec<Value> = replies
            .into_iter()
            .collect::<Result<_, _>>()
            .map_err(|error| ControlError::Invalid(error.to_string()))?;
        Ok(inner.model.plugins.merge_replies(id, &message, replies))
    }

    /// Sends the slow half of an instance a control message and returns its reply, which may take a second, and longer while other
    /// slow halves have their turn.
    ///
    /// # Errors
    /// No such instance or message, no slow half, or it refuses or doesn't answer within five seconds.
    pub async fn control_slow_half(
        &self,
        instance: &str,
        message: &str,
        arguments: &Map<String, Value>,
    ) -> Result<Value, ControlError> {
        let message = Message { name: message.to_owned(), arguments: arguments.clone() };
        let reply = {
            let inner = self.lock();
            let id = inner.model.plugins.address_slow_half(instance, &message)?;
            inner.host_level.control(id, message)?
        };
        let reply = tokio::time::timeout(PATIENCE, reply).await;
        let silent =
            || ControlError::System(format!("the slow half of instance {instance:?} does not answer"));
        let reply = reply.ok().and_then(Result::ok).flatten().ok_or_else(silent)?;
        reply.map_err(|error| ControlError::Invalid(error.to_string()))
    }

    /// Says what would happen to a packet, written as a filter without wildcards.
    ///
    /// # Errors
    /// When the packet is not one.
    pub fn lookup(&self, packet: &str) -> Result<LookupView, ControlError> {
        let mut inner = self.lock();
        let question: Question = parse_packet(packet, &inner.model)?;
        let explanation =
            inner.workers.owner_of_flow(&question.key).ask(|reply| Command::Explain(question, reply))?;
        let leaf = match explanation.queue {
            Some((port, queue)) => inner.workers.ask(|reply| Command::FindLeaf(port, queue, reply))?,
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
        inner.workers.tell(|| Command::ClearCounters)?;
        let offsets: HashMap<PortId, KernelShare> =
            inner.model.ports.iter().map(|plan| (plan.id, inner.share_now(plan.id))).collect();
        inner.share_offset = offsets;
        inner.share_gone.clear();
        inner.rates = Rate::default();
        inner.snapshot().map(|_| ())
    }

    /// Starts a capture.
    ///
    /// # Errors
    /// No such port, a filter that is none.
    pub fn capture(&self, request: &CaptureRequest) -> Result<Capture, ControlError> {
        let mut inner = self.lock();
        inner.captures += 1;
        let number = inner.captures;
        let (capture, sinks) = Capture::new(request, number, &inner.model, inner.workers.len())?;
        let start = |sink| Command::StartCapture(Box::new(sink));
        inner.workers.tell_each(sinks.into_iter().map(start).collect())?;
        Ok(capture)
    }
}

pub(crate) fn find_instance(inner: &mut Inner, name: &str) -> Result<InstanceView, ControlError> {
    let (snapshot, counts) = (inner.snapshot()?, inner.workers.filter_counts()?);
    let instances = show::instances(&snapshot, &counts, inner, &inner.host_level.report()?);
    instances
        .into_iter()
        .find(|instance| instance.name == name)
        .ok_or_else(|| ControlError::NotFound(format!("no instance is named {name:?}")))
}

pub(crate) fn find_gate(inner: &mut Inner, name: &str) -> Result<GateView, ControlError> {
    let counts = inner.workers.filter_counts()?;
    let gates = show::gates(&counts, &inner.model, &inner.tables);
    gates
        .into_iter()
        .find(|gate| gate.name == name)
        .ok_or_else(|| ControlError::NotFound(format!("no gate is named {name:?}")))
}

fn port_counters(inner: &Inner, plan: &crate::model::PortPlan, snapshot: &Snapshot) -> PortCountersView {
    let count = snapshot.ports.iter().find(|(id, _)| *id == plan.id).map(|(_, count)| count);
    let share = inner.share(plan.id);
    // As in Linux, the frames of sub-interfaces count at their device too.
    let (rx_packets, rx_bytes) = match inner.kernel.contains_key(&plan.id) {
        true => (share.seen, share.seen_bytes),
        false => count.map_or((0, 0), |count| (count.rx_packets, count.rx_bytes)),
    };
    let (tx_packets, tx_bytes) = count.map_or((0, 0), |count| (count.tx_packets, count.tx_bytes));
    let main = plan.config.vlan.is_none();
    let device = snapshot.devices.iter().find(|(id, _)| *id == plan.settings.device && main);
    let drops = count.into_iter().flat_map(|count| count.drops.iter());
    let drops = drops.chain(device.into_iter().flat_map(|(_, device)| device.drops.iter()));
    PortCountersView {
        name: plan.settings.name.clone(),
        rx_packets,
        rx_bytes,
        tx_packets: tx_packets + share.sent.packets,
        tx_bytes: tx_bytes + share.sent.bytes,
        dropped: drops.map(|(_, packets)| packets).sum(),
    }
}

fn port_view(inner: &mut Inner, plan: &crate::model::PortPlan, snapshot: &Snapshot) -> PortView {
    let settings = &plan.settings;
    let count = snapshot
        .ports
        .iter()
        .find(|(id, _)| *id == plan.id)
        .map(|(_, count)| count.clone())
        .unwrap_or_default();
    let queued = snapshot.queued.iter().find(|(id, _)| *id == plan.id).map_or(0, |(_, queued)| *queued);
    let main = plan.config.vlan.is_none();
    let device =
        snapshot.devices.iter().find(|(id, _)| *id == settings.device && main).map(|(_, count)| count);
    let share = inner.share(plan.id);
    let mut drops = show::by_name(&count.drops);
    let mut held = queued;
    if let Some(device) = device {
        held += device.held;
        for (reason, packets) in device.drops.iter() {
            *drops.entry(reason.name().to_owned()).or_default() += packets;
        }
    }
    let capabilities = inner.capabilities.get(&settings.device);
    let driver = if main { capabilities.map_or("", |found| found.driver) } else { "vlan" };
    let (mode, why) = capabilities
        .map_or((String::new(), String::new()), |found| (found.mode.to_string(), found.why.clone()));
    let driver = driver.to_owned();
    let PortCountersView { rx_packets, rx_bytes, tx_packets, tx_bytes, .. } =
        port_counters(inner, plan, snapshot);
    let name = settings.name.clone();
    let mut rate = |what: &str, value: u64| inner.rates.read(&format!("{name} {what}"), value, snapshot.at);
    PortView {
        rx_rate: rate("rx", rx_packets),
        tx_rate: rate("tx", tx_packets),
        rx_bits: 8.0 * rate("rx bytes", rx_bytes),
        tx_bits: 8.0 * rate("tx bytes", tx_bytes),
        device: plan.config.device.clone(),
        driver,
        mode,
        why,
        state: if settings.up { "up" } else { "down" },
        mac: settings.mac.to_string(),
        mtu: settings.mtu,
        addresses: settings.addresses.iter().map(ToString::to_string).collect(),
        on_death: inner.on_death.get(&plan.id).map(|on_death| match on_death {
            millrace_config::OnDeath::Kernel => "kernel",
            millrace_config::OnDeath::Drop => "drop",
        }),
        reverse_path: show::reverse_path(settings.reverse_path),
        input_weight: settings.input_weight,
        rx_packets,
        rx_bytes,
        tx_packets,
        tx_bytes,
        driver_packets: share.forwarded,
        to_host: count.to_host + share.passed,
        held,
        drops,
        name: settings.name.clone(),
    }
}
