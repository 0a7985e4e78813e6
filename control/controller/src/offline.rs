//! Router without devices, threads or clocks: its ports are memory, and the caller sets its time.
//!
//! It runs the same pipeline as a router with devices, and serves replay and tests. Every port uses the own
//! stack, regardless of its configured kind.

mod observe;
pub mod replay;
mod workers;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use ipnet::IpNet;
use millrace_classify::CompiledSelection;
use millrace_config::{Config, one_flow};
use millrace_pipeline::{
    Command, FlowCommand, FlowCounts, FlowReport, FlowScan, GateTables, NeighbourChange, NeighbourCommand,
    NeighbourKnowledge, OffloadCommand, OffloadPort, OffloadedFlowCounts, Piece, PluginCommand, PortCommand,
    PortCount, ReversePath, SchedulerCommand, WorkerFlowCache,
};
use millrace_plugin::{BindingCounts, BindingId};
use millrace_plugin_abi::Plugin;
use millrace_port::{MemoryHandle, Port};
use millrace_repository::Memory;
use millrace_units::{Instant, PortId, QueueAccount};
use serde_json::{Map, Value};

use crate::ControlError;
use crate::model::{Model, PluginChange, PortPlan};
use crate::plugins::built_in::built_in_plugins;
use crate::plugins::loader::Loader;
use crate::show;
use crate::view::SummaryView;
use crate::workers::ask::Ask;
use crate::workers::commands::{links, own_routes, plugin_commands, start_commands};
use crate::workers::crash_capture::{CrashReport, RouteState};
use crate::workers::route_table::RouteTable;

use workers::OfflineWorkers;

/// Maximum number of iterations of the workers while the virtual clock stands still. Workers that still have
/// work afterwards have a bug.
const ROUNDS: usize = 100_000;
/// Interval between refreshes of the neighbours in use, the same as in a router with devices.
const REFRESH: Duration = Duration::from_secs(1);

/// Function that makes a port's device. It gets the port's name and the port's memory device. It may return
/// this memory device, a wrapper of it, or another device.
pub type MakeDevice<'a> = dyn FnMut(&str, millrace_port::Memory) -> Box<dyn Port> + 'a;

/// Router under a virtual clock.
pub struct OfflineRouter {
    model: Model,
    tables: GateTables,
    route_table: RouteTable,
    workers: OfflineWorkers,
    ports: Vec<(PortPlan, MemoryHandle)>,
    /// Time of the next refresh of the neighbours in use.
    refresh: Instant,
}

impl std::fmt::Debug for OfflineRouter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OfflineRouter").field("now", &self.workers.now).finish_non_exhaustive()
    }
}

impl OfflineRouter {
    /// Creates the router of a configuration. Its clock starts at zero.
    pub fn new(config: &Config) -> Result<Self, ControlError> {
        Self::of(config, Model::new(config)?, &mut |_, memory| Box::new(memory))
    }

    /// Creates the router of the configuration in `text`, with `plugins` beside the built-in plugins.
    pub fn with_plugins(text: &str, plugins: Vec<Arc<dyn Plugin>>) -> Result<Self, ControlError> {
        Self::with_devices(text, plugins, &mut |_, memory| Box::new(memory))
    }

    /// Creates a router like [`with_plugins`](Self::with_plugins), with the devices that `device` makes.
    /// [`inject`](Self::inject) and [`take`](Self::take) work only at ports whose device uses the memory
    /// device given to `device`.
    pub fn with_devices(
        text: &str,
        plugins: Vec<Arc<dyn Plugin>>,
        device: &mut MakeDevice<'_>,
    ) -> Result<Self, ControlError> {
        let config = Config::parse(text, "configuration")?;
        let built_in = built_in_plugins().into_iter().chain(plugins).collect();
        let model = Model::with_plugins(&config, Memory::open(None), &Loader::new(&config), built_in)?;
        Self::of(&config, model, device)
    }

    fn of(config: &Config, model: Model, device: &mut MakeDevice<'_>) -> Result<Self, ControlError> {
        let route_table = RouteTable::new()?;
        let mut router = Self {
            workers: OfflineWorkers::new(config, &route_table)?,
            ports: Vec::new(),
            refresh: Instant::ZERO + REFRESH,
            model: model.clone(),
            tables: GateTables::default(),
            route_table,
        };
        for plan in model.ports.iter().filter(|plan| plan.config.vlan.is_none()) {
            router.add_device(plan, device);
        }
        for plan in &model.ports {
            router.workers.devices.insert(plan.id, plan.settings.device);
            router.workers.tell(|| PortCommand::Set(plan.id, plan.settings.clone()));
        }
        for commands in start_commands(&model, &mut router.tables, router.workers.len())? {
            router.workers.tell_each(commands);
        }
        for (port, changes) in model.begin_schedulers()? {
            let (reply, answers) = sync_channel(router.workers.len());
            router
                .workers
                .tell(|| SchedulerCommand::Change(port, changes.clone(), Piece::WHOLE, reply.clone()));
            answers.try_iter().collect::<Result<(), _>>().map_err(|error| model.schedulers.refusal(error))?;
        }
        router.route_table.change(own_routes(&model), &mut router.workers)?;
        router.link_gates();
        router.run();
        Ok(router)
    }

    /// Creates the router of the configuration in `text`.
    pub fn from_text(text: &str) -> Result<Self, ControlError> {
        Self::new(&Config::parse(text, "configuration")?)
    }

    fn add_device(&mut self, plan: &PortPlan, device: &mut MakeDevice<'_>) {
        // Tagged frames may exceed the MTU of the port.
        let (memory, handle) = millrace_port::Memory::new(plan.settings.mac, u16::MAX);
        self.workers.add_device(plan.settings.device, device(&plan.settings.name, memory));
        self.ports.push((plan.clone(), handle));
    }

    /// Enables offload for flows that both enter and leave by one of these ports. `cache` returns the flow
    /// cache of the worker with the given number.
    pub fn set_flow_cache(&mut self, cache: impl Fn(usize) -> Box<dyn WorkerFlowCache>, ports: &[&str]) {
        let caches = (0..self.workers.len()).map(|worker| OffloadCommand::SetCache(cache(worker)));
        self.workers.tell_each(caches.collect());
        for (plan, handle) in
            self.ports.iter().filter(|(plan, _)| ports.contains(&plan.settings.name.as_str()))
        {
            let receive_queues = (1 << handle.queues()) - 1;
            let can = OffloadPort { receives: true, sends: true, receive_queues, queues: false };
            self.workers.tell(|| OffloadCommand::SetPort(plan.id, can));
        }
        self.run();
    }

    /// Returns the number of workers.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Returns the id of a port, as in flow keys; `None` for an unknown port.
    pub fn port_id(&self, port: &str) -> Option<PortId> {
        self.model.port_id(port)
    }

    /// Returns the counts of offloaded flows.
    pub fn offloaded_flows(&mut self) -> OffloadedFlowCounts {
        self.workers.snapshot().offloaded_flows
    }

    fn handle(&self, port: &str) -> Option<&MemoryHandle> {
        let plan = self.model.port(port).ok()?;
        let device = plan.settings.device;
        self.ports.iter().find(|(own, _)| own.settings.device == device).map(|(_, handle)| handle)
    }

    /// Queues a frame for receipt at a port, or at the device of a sub-interface. The next [`run`](Self::run)
    /// processes it. Drops the frame if the port is unknown.
    pub fn inject(&mut self, port: &str, frame: &[u8]) {
        if let Some(handle) = self.handle(port) {
            handle.inject(frame);
        }
    }

    /// Queues a frame for receipt at a receive queue of a port; `queue` counts from 0.
    pub fn inject_by(&mut self, port: &str, queue: usize, frame: &[u8]) {
        if let Some(handle) = self.handle(port) {
            handle.inject_by(queue, frame);
        }
    }

    /// Sets the number of receive queues of a port. The call must precede all other use of the port.
    pub fn add_queues(&mut self, port: &str, queues: usize) {
        if let Some(handle) = self.handle(port) {
            handle.add_queues(queues);
        }
    }

    /// Runs one iteration of each worker. The workers may have work left afterwards.
    pub fn iterate(&mut self) {
        self.workers.iterate();
    }

    /// Runs the workers until they have no work left at the current time.
    pub fn run(&mut self) {
        for _ in 0..ROUNDS {
            let round = self.workers.iterate();
            if !round.active && round.next_event.is_none_or(|event| event > self.workers.now) {
                return;
            }
        }
    }

    /// Advances the clock. Timed work runs when it is due in between.
    pub fn advance(&mut self, duration: Duration) {
        // The empty closure can't fail.
        let _ = self.advance_seeing(duration, |_| Ok(()));
    }

    /// Works like [`advance`](Self::advance), and calls `see` after each run of the workers: at the start, at
    /// each time with timed work, and at the end.
    pub fn advance_seeing(
        &mut self,
        duration: Duration,
        mut see: impl FnMut(&mut Self) -> Result<(), ControlError>,
    ) -> Result<(), ControlError> {
        let end = self.workers.now + duration;
        loop {
            self.run();
            see(self)?;
            if self.workers.now >= self.refresh {
                self.refresh_neighbours();
            }
            let next = self.workers.iterate().next_event.filter(|event| *event > self.workers.now);
            let next = next.map_or(self.refresh, |event| event.min(self.refresh));
            if next > end {
                break;
            }
            self.workers.now = next;
        }
        self.workers.now = end;
        self.run();
        see(self)
    }

    /// Refreshes the neighbours used since the last refresh, as control does for a router with devices.
    fn refresh_neighbours(&mut self) {
        self.workers.refresh_neighbours();
        self.refresh = self.workers.now + REFRESH;
        self.run();
    }

    /// Returns the current time.
    pub fn now(&self) -> Instant {
        self.workers.now
    }

    /// Returns the frames that a port has sent since the last call. For a sub-interface, returns the frames
    /// of its device.
    pub fn take(&mut self, port: &str) -> Vec<Vec<u8>> {
        self.handle(port).map(MemoryHandle::take_transmitted).unwrap_or_default()
    }

    /// Returns the names of the ports, in the order of their ids.
    pub fn ports(&self) -> Vec<String> {
        self.model.ports.iter().map(|plan| plan.settings.name.clone()).collect()
    }

    /// Returns the packet totals.
    pub fn summary(&mut self) -> SummaryView {
        show::summary(&self.workers.snapshot(), &[])
    }

    /// Returns the number of dropped packets that arrived at a port, by drop reason.
    pub fn drops(&mut self, port: &str) -> BTreeMap<String, u64> {
        let Some(id) = self.model.port_id(port) else { return BTreeMap::new() };
        let snapshot = self.workers.snapshot();
        let count = snapshot.ports.iter().find(|(own, _)| *own == id);
        count.map(|(_, count)| show::by_name(&count.drops)).unwrap_or_default()
    }

    /// Returns the counters of each port.
    pub fn counts(&mut self) -> Vec<(PortId, PortCount)> {
        self.workers.snapshot().ports
    }

    /// Returns the counters of a binding.
    pub fn filter_counts(&mut self, filter: BindingId) -> BindingCounts {
        self.workers.filter_counts().unwrap_or_default().of(filter)
    }

    /// Returns the queue account of the route to exactly `prefix`; `None` if the route has none.
    pub fn route_counts(&mut self, prefix: IpNet) -> Result<Option<QueueAccount>, ControlError> {
        Ok(self.route_table.count(&[prefix], &mut self.workers)?.into_iter().flatten().next())
    }

    /// Sets all counters to zero.
    pub fn clear_counters(&mut self) {
        // These workers always answer, so the call can't fail.
        let _ = self.workers.clear_counters();
    }

    /// Changes settings of a flow at a leaf of a port's scheduler, like
    /// [`SetQueue`](crate::operation::SetQueue).
    ///
    /// # Errors
    /// Returns an error for an unknown port or leaf, or invalid settings. Nothing has changed then.
    pub fn set_flow_queue(
        &mut self,
        port: &str,
        queue: &str,
        flow: &str,
        changes: &Map<String, Value>,
    ) -> Result<(), ControlError> {
        let flow = &*one_flow(flow).map_err(ControlError::invalid)?;
        let id = self.model.port(port)?.id;
        let old = self.model.schedulers.clone();
        let change = self.model.change_flow(port, queue, flow, changes)?;
        let after = self.model.schedulers.of(id).cloned().unwrap_or_default();
        let checked = self.model.schedulers.check(&after).map_err(ControlError::from);
        checked.inspect_err(|_| self.model.schedulers = old)?;
        let (reply, answers) = sync_channel(self.workers.len());
        self.workers.tell(|| SchedulerCommand::Change(id, vec![change.clone()], Piece::WHOLE, reply.clone()));
        let outcome: Result<(), _> = answers.try_iter().collect();
        outcome.map_err(|error| self.model.schedulers.refusal(error))?;
        let flows = self.model.reserved_flows();
        self.workers.tell(|| FlowCommand::Reserve(flows.clone()));
        self.run();
        Ok(())
    }

    /// Sets a port up or down.
    pub fn set_up(&mut self, port: &str, up: bool) {
        self.change(port, |plan| plan.settings.up = up);
    }

    /// Sets the MTU of a port.
    pub fn set_mtu(&mut self, port: &str, mtu: u16) {
        self.change(port, |plan| plan.settings.mtu = mtu);
    }

    /// Sets the reverse-path check of a port.
    pub fn set_reverse_path(&mut self, port: &str, reverse_path: ReversePath) {
        self.change(port, |plan| plan.settings.reverse_path = reverse_path);
    }

    /// Sets the maximum number of packets that a worker takes from a port in an iteration.
    pub fn set_input_weight(&mut self, port: &str, weight: u16) {
        self.change(port, |plan| plan.settings.input_weight = weight);
    }

    /// Restores the ports, routes and neighbours that a crash report describes.
    pub(crate) fn restore(&mut self, report: &CrashReport) -> Result<(), ControlError> {
        for port in &report.ports {
            self.change(&port.name, |plan| port.put_into(&mut plan.settings));
        }
        let route = |state: &RouteState| Some((state.to, Some(state.route(|port| self.port_id(port))?)));
        let routes: Vec<_> = report.routes.iter().filter_map(route).collect();
        self.route_table.change(routes, &mut self.workers)?;
        for neighbour in &report.neighbours {
            let (Some(port), Ok(mac)) = (self.port_id(&neighbour.port), neighbour.mac.parse()) else {
                continue;
            };
            let state = NeighbourKnowledge::Known(mac);
            let change = NeighbourChange { port, address: neighbour.address, state };
            self.workers.tell(|| NeighbourCommand::Set(vec![change]));
        }
        self.run();
        Ok(())
    }

    fn change(&mut self, port: &str, change: impl FnOnce(&mut PortPlan)) {
        let Some(plan) = self.model.ports.iter_mut().find(|plan| plan.settings.name == port) else { return };
        change(plan);
        let (id, settings) = (plan.id, plan.settings.clone());
        self.workers.tell(|| PortCommand::Set(id, settings.clone()));
        self.run();
    }

    /// Adds a filter, and returns its id. The filter applies to the next packet.
    ///
    /// # Errors
    /// Returns an error for unknown names, an action that the gate doesn't allow, or a filter that already
    /// exists. Nothing has changed then.
    pub fn add_filter(&mut self, filter: &millrace_config::Filter) -> Result<BindingId, ControlError> {
        let (id, change) = self.model.add_filter(filter)?;
        self.tell_plugins(change)?;
        Ok(id)
    }

    /// Removes a filter.
    pub fn remove_filter(&mut self, id: BindingId) -> Result<(), ControlError> {
        let change = self.model.plugins.remove_binding(id)?;
        self.tell_plugins(change)
    }

    fn tell_plugins(&mut self, change: PluginChange) -> Result<(), ControlError> {
        let workers = self.workers.len();
        let commands = plugin_commands(&self.model, &mut self.tables, vec![change], workers)?;
        self.workers.tell_each(commands);
        self.link_gates();
        Ok(())
    }

    fn link_gates(&mut self) {
        for command in links(&self.model.plugins, &mut self.tables) {
            self.workers.tell(&command);
        }
    }

    /// Adds a route; it replaces an existing route to the same prefix.
    pub fn add_route(&mut self, route: &millrace_config::Route) -> Result<(), ControlError> {
        self.model.add_route(route)?;
        self.renew_route(*route.to.value())
    }

    /// Removes an added route. A connected route to the same prefix then applies again.
    pub fn remove_route(&mut self, prefix: IpNet) -> Result<(), ControlError> {
        if self.model.own_routes.remove(&prefix).is_none() {
            return Err(ControlError::not_found(format!("no configured route to {prefix}")));
        }
        self.model.routes.remove(&prefix);
        self.renew_route(prefix)
    }

    fn renew_route(&mut self, prefix: IpNet) -> Result<(), ControlError> {
        let route = self.model.own_routes.get(&prefix).cloned();
        self.route_table.change(vec![(prefix, route)], &mut self.workers)
    }

    /// Disables the flow table: each later packet is classified as if it were the first of its flow.
    pub fn forget_flows(&mut self) {
        let options = millrace_pipeline::Options { flows_max: 0, ..self.model.options.clone() };
        self.workers.tell(|| Command::Options(options.clone()));
    }

    /// Returns the counts of the flow table.
    pub fn flows(&mut self) -> FlowCounts {
        self.workers.snapshot().flows
    }

    /// Returns reports of the flows in the flow tables. Omits flows of a worker that exceed the size of a
    /// single answer.
    pub fn flow_reports(&mut self) -> Vec<FlowReport> {
        let scan = FlowScan { from: 0, records: u32::MAX, filter: CompiledSelection::any() };
        let pages = self.workers.ask(|reply| FlowCommand::Scan(scan.clone(), reply));
        pages.unwrap_or_default().into_iter().flat_map(|page| page.flows).collect()
    }

    /// Sends a control message to an instance.
    pub fn control(
        &mut self,
        instance: &str,
        message: &millrace_plugin_abi::Message,
    ) -> Result<Value, ControlError> {
        let id = self.model.plugins.instance_registry().address(instance, message)?;
        let silent = || ControlError::System(format!("instance {instance:?} did not answer"));
        let replies = self.workers.ask(|reply| PluginCommand::Control(id, message.clone(), reply))?;
        let replies: Vec<Vec<_>> = replies.into_iter().collect::<Option<_>>().ok_or_else(silent)?;
        let replies = replies
            .into_iter()
            .flatten()
            .collect::<Result<_, _>>()
            .map_err(|error| ControlError::invalid(error.to_string()))?;
        Ok(self.model.plugins.instance_registry().merge_replies(id, message, replies))
    }
}

#[cfg(test)]
mod tests;
