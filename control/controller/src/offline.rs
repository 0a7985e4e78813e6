//! A router without devices, threads or clocks: its ports are memory, its time is what the caller says.
//!
//! The same pipeline as on a wire, for replay and for tests: every port has a stack of its own, whatever kind the
//! configuration gives it.

mod workers;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use ipnet::IpNet;
use millrace_classify::{CompiledExpression, CompiledSelection};
use millrace_config::{Config, one_flow};
use millrace_pipeline::{
    CapturePlace, CaptureSource, Command, DriverCache, DriverFlowCounts, DriverPort, FlowCommand, FlowCounts,
    FlowReport, FlowScan, GateTables, MOST_TRACED, NeighbourChange, NeighbourCommand, NeighbourKnowledge,
    ObservationCommand, OffloadCommand, Piece, PluginCommand, PortCommand, PortCount, ReversePath,
    SchedulerCommand, Snapshot, TraceOrder, TraceSource, capture, trace,
};
use millrace_plugin::{BindingCounts, BindingId, PluginChange};
use millrace_plugin_abi::Plugin;
use millrace_port::{MemoryHandle, Port};
use millrace_repository::Memory;
use millrace_units::{Instant, PortId, QueueAccount};
use serde_json::{Map, Value};

use crate::ControlError;
use crate::built_in::built_in_plugins;
use crate::crash_capture::{CrashReport, RouteState};
use crate::loader::Loader;
use crate::lookup::{self, parse_packet};
use crate::model::{Model, PortPlan};
use crate::route_table::RouteTable;
use crate::show;
use crate::view::{LookupView, SummaryView};
use crate::worker_commands::{links, own_routes, plugin_commands, start_commands};

use workers::OfflineWorkers;

/// Most rounds at one moment: a router that is never done is broken.
const ROUNDS: usize = 100_000;
/// Bytes that a capture has room for.
const CAPTURE_ROOM: usize = 1 << 20;
/// How often neighbours in use are looked after, as with a router on devices.
const REFRESH: Duration = Duration::from_secs(1);

/// Makes the device of a port, by name, out of the memory port that it would be: with wrappers, or something else.
pub type MakeDevice<'a> = dyn FnMut(&str, millrace_port::Memory) -> Box<dyn Port> + 'a;

/// A router under a virtual clock.
pub struct OfflineRouter {
    model: Model,
    tables: GateTables,
    route_table: RouteTable,
    workers: OfflineWorkers,
    ports: Vec<(PortPlan, MemoryHandle)>,
    /// When neighbours in use are next asked whether they are still there.
    refresh: Instant,
}

impl std::fmt::Debug for OfflineRouter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OfflineRouter").field("now", &self.workers.now).finish_non_exhaustive()
    }
}

impl OfflineRouter {
    /// A router of that configuration, at the beginning of time.
    ///
    /// # Errors
    /// What is wrong with the configuration.
    pub fn new(config: &Config) -> Result<Self, ControlError> {
        Self::of(config, Model::new(config)?, &mut |_, memory| Box::new(memory))
    }

    /// A router of the configuration in `text`, with these plugins beside those that are part of every router.
    ///
    /// # Errors
    /// What is wrong with the configuration, and where.
    pub fn with_plugins(text: &str, plugins: Vec<Arc<dyn Plugin>>) -> Result<Self, ControlError> {
        Self::with_devices(text, plugins, &mut |_, memory| Box::new(memory))
    }

    /// The same, with the devices that `device` makes. A device that passes nothing on to the memory port given to it takes no part in
    /// [`inject`](Self::inject) and [`take`](Self::take).
    ///
    /// # Errors
    /// What is wrong with the configuration, and where.
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
            router.workers.note_port(plan.id, plan.settings.device);
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

    /// A router of the configuration in `text`.
    ///
    /// # Errors
    /// What is wrong with the configuration, and where.
    pub fn from_text(text: &str) -> Result<Self, ControlError> {
        Self::new(&Config::parse(text, "configuration")?)
    }

    fn add_device(&mut self, plan: &PortPlan, device: &mut MakeDevice<'_>) {
        // Tagged frames are longer than what the port's own MTU says.
        let (memory, handle) = millrace_port::Memory::new(plan.settings.mac, u16::MAX);
        self.workers.add_device(plan.settings.device, device(&plan.settings.name, memory));
        self.ports.push((plan.clone(), handle));
    }

    /// Lets plain flows that come in by these ports go down into a driver; it can send by all of them. `cache`: what each worker fills,
    /// by its number.
    pub fn set_driver(&mut self, cache: impl Fn(usize) -> Box<dyn DriverCache>, ports: &[&str]) {
        let caches = (0..self.workers.len()).map(|worker| OffloadCommand::SetCache(cache(worker)));
        self.workers.tell_each(caches.collect());
        for (plan, handle) in
            self.ports.iter().filter(|(plan, _)| ports.contains(&plan.settings.name.as_str()))
        {
            let receive_queues = (1 << handle.queues()) - 1;
            let can = DriverPort { receives: true, sends: true, receive_queues, queues: false };
            self.workers.tell(|| OffloadCommand::SetPort(plan.id, can));
        }
        self.run();
    }

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// The number of a port, as flows are known by it.
    pub fn port_id(&self, port: &str) -> Option<PortId> {
        self.model.port(port).ok().map(|plan| plan.id)
    }

    /// The flows that the driver forwards.
    pub fn driver_flows(&mut self) -> DriverFlowCounts {
        self.snapshot().driver_flows
    }

    fn handle(&self, port: &str) -> Option<&MemoryHandle> {
        let plan = self.model.port(port).ok()?;
        let device = plan.settings.device;
        self.ports.iter().find(|(own, _)| own.settings.device == device).map(|(_, handle)| handle)
    }

    /// Lets a frame arrive at a port (for a sub-interface: at its device). It is treated by the next
    /// [`run`](Self::run). Frames for a port that there isn't are lost.
    pub fn inject(&mut self, port: &str, frame: &[u8]) {
        if let Some(handle) = self.handle(port) {
            handle.inject(frame);
        }
    }

    /// The same by a receive queue of the port, the first of which is 0.
    pub fn inject_by(&mut self, port: &str, queue: usize, frame: &[u8]) {
        if let Some(handle) = self.handle(port) {
            handle.inject_by(queue, frame);
        }
    }

    /// Gives a port so many receive queues, before anything else is done with it.
    pub fn add_queues(&mut self, port: &str, queues: usize) {
        if let Some(handle) = self.handle(port) {
            handle.add_queues(queues);
        }
    }

    /// Has each worker do one round; what they have begun may not be finished then.
    pub fn turn(&mut self) {
        self.workers.turn();
    }

    /// Treats everything there is to treat at this moment.
    pub fn run(&mut self) {
        for _ in 0..ROUNDS {
            let round = self.workers.turn();
            if !round.active && round.next_event.is_none_or(|event| event > self.workers.now) {
                return;
            }
        }
    }

    /// Lets time pass; what falls due on the way is done at its moment.
    pub fn advance(&mut self, duration: Duration) {
        // What sees nothing can't fail.
        let _ = self.advance_seeing(duration, |_| Ok(()));
    }

    /// The same; `see` looks at the router at each of these moments.
    ///
    /// # Errors
    /// Those of `see`.
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
            let next = self.workers.turn().next_event.filter(|event| *event > self.workers.now);
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

    /// Lets the worker ask the neighbours that were used since the last time, as control does.
    fn refresh_neighbours(&mut self) {
        self.workers.refresh_neighbours();
        self.refresh = self.workers.now + REFRESH;
        self.run();
    }

    /// The moment.
    pub fn now(&self) -> Instant {
        self.workers.now
    }

    /// The frames that a port has sent since the last call (for a sub-interface: its device).
    pub fn take(&mut self, port: &str) -> Vec<Vec<u8>> {
        self.handle(port).map(MemoryHandle::take_transmitted).unwrap_or_default()
    }

    /// The names of the ports, in the order of their numbers.
    pub fn ports(&self) -> Vec<String> {
        self.model.ports.iter().map(|plan| plan.settings.name.clone()).collect()
    }

    fn snapshot(&mut self) -> Snapshot {
        self.workers.snapshot()
    }

    /// Returns the packet totals.
    pub fn summary(&mut self) -> SummaryView {
        show::summary(&self.snapshot(), &[])
    }

    /// Packets dropped that came in by a port, by reason.
    pub fn drops(&mut self, port: &str) -> BTreeMap<String, u64> {
        let Ok(id) = self.model.port(port).map(|plan| plan.id) else { return BTreeMap::new() };
        let snapshot = self.snapshot();
        let count = snapshot.ports.iter().find(|(own, _)| *own == id);
        count.map(|(_, count)| show::by_name(&count.drops)).unwrap_or_default()
    }

    /// What was counted at each port.
    pub fn counts(&mut self) -> Vec<(PortId, PortCount)> {
        self.snapshot().ports
    }

    /// What was counted at a binding.
    pub fn filter_counts(&mut self, filter: BindingId) -> BindingCounts {
        self.workers.filter_counts().of(filter)
    }

    /// What the route to exactly `prefix` gave to queues, and what became of it; `None` where that is not counted.
    ///
    /// # Errors
    /// When a worker does not answer.
    pub fn route_counts(&mut self, prefix: IpNet) -> Result<Option<QueueAccount>, ControlError> {
        Ok(self.route_table.count(&[prefix], &mut self.workers)?.into_iter().flatten().next())
    }

    /// Sets all counters to zero.
    pub fn clear_counters(&mut self) {
        self.workers.clear_counters();
    }

    /// Captures the first `snap` bytes of every frame from now on, until the readers are dropped: one for each worker. What
    /// finds no room before it is read is left out.
    pub fn capture(&mut self, snap: usize) -> Vec<CaptureSource> {
        let workers = 0..self.workers.len();
        let (sinks, sources): (Vec<_>, _) =
            workers.map(|_| capture(0, CapturePlace::Ports, None, snap, CAPTURE_ROOM)).unzip();
        self.workers.tell_each(
            sinks.into_iter().map(|sink| ObservationCommand::StartCapture(Box::new(sink))).collect(),
        );
        sources
    }

    /// Traces the first packets that come in from now on, as many as can be traced, until the readers are dropped: one for each
    /// worker. One in `every` is looked at.
    pub fn trace(&mut self, every: u32) -> Vec<TraceSource> {
        let order = TraceOrder { filter: None, every, count: MOST_TRACED, time: Duration::MAX };
        let (sinks, sources): (Vec<_>, _) = (0..self.workers.len()).map(|_| trace(0, order.clone())).unzip();
        self.workers.tell_each(
            sinks.into_iter().map(|sink| ObservationCommand::StartTrace(Box::new(sink))).collect(),
        );
        sources
    }

    /// Changes settings of the queue of one flow in a queue of a port, as [`Router::set_queue`](crate::Router::set_queue) does.
    ///
    /// # Errors
    /// No such port or queue, settings that can't be; nothing has changed then.
    pub fn set_flow_queue(
        &mut self,
        port: &str,
        queue: &str,
        flow: &str,
        changes: &Map<String, Value>,
    ) -> Result<(), ControlError> {
        let flow = &*one_flow(flow).map_err(ControlError::Invalid)?;
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

    /// Takes a port up or down.
    pub fn set_up(&mut self, port: &str, up: bool) {
        self.change(port, |plan| plan.settings.up = up);
    }

    /// Changes the MTU of a port.
    pub fn set_mtu(&mut self, port: &str, mtu: u16) {
        self.change(port, |plan| plan.settings.mtu = mtu);
    }

    /// Changes whether a port looks at the way back to the source of packets.
    pub fn set_reverse_path(&mut self, port: &str, reverse_path: ReversePath) {
        self.change(port, |plan| plan.settings.reverse_path = reverse_path);
    }

    /// Changes how many packets are taken from a port in a round, at most.
    pub fn set_input_weight(&mut self, port: &str, weight: u16) {
        self.change(port, |plan| plan.settings.input_weight = weight);
    }

    /// Sets ports, routes and neighbours as a router had them when a worker panicked.
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

    /// Adds a filter, for the packets from now on; returns its id.
    ///
    /// # Errors
    /// Unknown names, a gate where the action can't be, a filter that is there: nothing has changed then.
    pub fn add_filter(&mut self, filter: &millrace_config::Filter) -> Result<BindingId, ControlError> {
        let (matches, action) = (filter.r#match.value(), filter.action.value());
        let (id, change) = self.model.add_filter(matches, action, filter.gate.as_deref(), filter.priority)?;
        self.tell_plugins(change)?;
        Ok(id)
    }

    /// Removes a filter.
    ///
    /// # Errors
    /// When it is not there.
    pub fn remove_filter(&mut self, id: BindingId) -> Result<(), ControlError> {
        let change = self.model.plugins.remove_binding(id)?;
        self.tell_plugins(change)?;
        Ok(())
    }

    fn tell_plugins(&mut self, change: PluginChange<CompiledExpression>) -> Result<(), ControlError> {
        let workers = self.workers.len();
        let commands = plugin_commands(&self.model.plugins, &mut self.tables, vec![change], workers)?;
        self.workers.tell_each(commands);
        self.link_gates();
        Ok(())
    }

    fn link_gates(&mut self) {
        for command in links(&self.model.plugins, &mut self.tables) {
            self.workers.tell(&command);
        }
    }

    /// Adds a route, in place of the one to the same prefix.
    ///
    /// # Errors
    /// Unknown ports, next hops that no port reaches.
    pub fn add_route(&mut self, route: &millrace_config::Route) -> Result<(), ControlError> {
        self.model.add_route(route)?;
        self.renew_route(*route.to.value())
    }

    /// Removes a route that was added: the port's own to the same prefix, if there is one, is there again.
    ///
    /// # Errors
    /// When it is not there.
    pub fn remove_route(&mut self, prefix: IpNet) -> Result<(), ControlError> {
        if self.model.own_routes.remove(&prefix).is_none() {
            return Err(ControlError::NotFound(format!("there is no route of ours to {prefix}")));
        }
        self.renew_route(prefix)
    }

    fn renew_route(&mut self, prefix: IpNet) -> Result<(), ControlError> {
        let route = self.model.own_routes.get(&prefix).cloned();
        self.route_table.change(vec![(prefix, route)], &mut self.workers)
    }

    /// Lets every packet be classified by itself from now on, as if none of its flow had come before.
    pub fn forget_flows(&mut self) {
        let options = millrace_pipeline::Options { flows_max: 0, ..self.model.options.clone() };
        self.workers.tell(|| Command::Options(options.clone()));
    }

    /// The flow table at this moment.
    pub fn flows(&mut self) -> FlowCounts {
        self.snapshot().flows
    }

    /// Flows that are known, as they are listed: a bounded number of them.
    pub fn flow_reports(&mut self) -> Vec<FlowReport> {
        let scan = FlowScan { from: 0, records: u32::MAX, filter: CompiledSelection::any() };
        let pages = self.workers.ask(|reply| FlowCommand::Scan(scan.clone(), reply));
        pages.into_iter().flat_map(|page| page.flows).collect()
    }

    /// Sends an instance a control message.
    ///
    /// # Errors
    /// Why it was refused.
    pub fn control(
        &mut self,
        instance: &str,
        message: &millrace_plugin_abi::Message,
    ) -> Result<Value, ControlError> {
        let id = self.model.plugins.address(instance, message)?;
        let silent = || ControlError::System(format!("instance {instance:?} did not answer"));
        let replies = self.workers.ask(|reply| PluginCommand::Control(id, message.clone(), reply));
        let replies: Vec<_> = replies.into_iter().collect::<Option<_>>().ok_or_else(silent)?;
        let replies = replies
            .into_iter()
            .collect::<Result<_, _>>()
            .map_err(|error| ControlError::Invalid(error.to_string()))?;
        Ok(self.model.plugins.merge_replies(id, message, replies))
    }

    /// Says what would happen to a packet.
    ///
    /// # Errors
    /// When the packet is not one.
    pub fn lookup(&mut self, packet: &str) -> Result<LookupView, ControlError> {
        let question = parse_packet(packet, &self.model)?;
        let worker = self.workers.owner_of_flow(&question.key);
        let explanation = self.workers.ask_one(worker, |reply| ObservationCommand::Explain(question, reply));
        let explanation = explanation.unwrap_or_default();
        let leaf = explanation
            .queue
            .map(|(port, queue)| self.workers.ask(|reply| SchedulerCommand::FindLeaf(port, queue, reply)));
        let leaf = leaf.into_iter().flatten().flatten().next();
        Ok(lookup::view(explanation, leaf, &self.model, &self.route_table))
    }
}

#[cfg(test)]
mod tests {
    use millrace_port::{Impair, Impairment};

    use super::*;

    #[test]
    fn devices_that_a_caller_makes_take_the_place_of_memory_ports() {
        let text = "[[port]]\nname = \"a\"\nkind = \"memory\"\naddress = [\"10.1.0.1/24\"]\n";
        let loses = Impairment { loss: 1.0, ..Impairment::default() };
        let device = &mut |_: &str, memory| -> Box<dyn Port> {
            Box::new(Impair::new(Box::new(memory), &loses).unwrap())
        };
        let mut router = OfflineRouter::with_devices(text, Vec::new(), device).unwrap();
        router.inject("a", &[0; 60]);
        router.run();
        let summary = router.summary();
        // What comes, and what the port announces of its own address.
        let lost = summary.dropped_by.get("impaired").copied();
        assert_eq!(lost, Some(summary.received + summary.created), "{summary:?}");
        assert_eq!((summary.received, summary.transmitted, summary.imbalance), (1, 0, 0), "{summary:?}");
    }
}
