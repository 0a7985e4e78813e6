//! Commands carried out by a worker's router, one function for each receiver.

use millrace_forward::{ErrorLimiter, NeighbourKey, RateLimit};
use millrace_schedule::ScheduleError;
use millrace_units::{Instant, PortId, QueueId};

use crate::ports::scheduler::{Piece, ScheduleChange};

use crate::commands::{
    FilterCommand, FlowCommand, NeighbourCommand, ObservationCommand, OffloadCommand, PluginCommand,
    RouteCommand, SchedulerCommand, answer,
};
use crate::driver_flows::DriverFlows;
use crate::explain::Tables;
use crate::forward::changes::NumberedRoutes;
use crate::gates::Gates;
use crate::observe::Observation;
use crate::observe::trace::{TraceSink, Tracer};
use crate::options::Options;
use crate::ports::{PortSettings, PortTable, Stack};
use crate::router::Router;

/// Filters whose counters a worker reads or clears between two batches.
const FILTERS_AT_ONCE: usize = 1024;

impl Observation {
    fn stop_trace(&mut self, id: u32) {
        if let Some(tracer) = self.trace.take_if(|tracer| tracer.id() == id) {
            self.next_mark = tracer.number();
        }
    }
}

impl PortTable {
    /// Returns the leaf that packets for a queue of a port enter; `None` without a scheduler.
    fn leaf(&self, port: PortId, queue: QueueId) -> Option<QueueId> {
        let scheduler = self.get(port)?.scheduler.as_ref()?;
        scheduler.takes_packets().then(|| scheduler.leaf_for(queue))
    }
}

impl Gates {
    /// Carries out a command to the tables and counters of filters.
    pub(crate) fn change_filters(&mut self, command: FilterCommand) {
        let plugins = self.plugins_mut();
        match command {
            // Control keeps the old table until no worker reads it, and drops it.
            FilterCommand::SetTable(gate, table) => drop(plugins.set_table(gate, table)),
            FilterCommand::Count(from, reply) => answer(&reply, plugins.counts_from(from, FILTERS_AT_ONCE)),
            FilterCommand::Clear(from, reply) => answer(&reply, plugins.clear_counts(from, FILTERS_AT_ONCE)),
        }
    }
}

impl Router {
    /// Carries out a command to the routes.
    pub(crate) fn change_routes(&mut self, command: RouteCommand) {
        match command {
            RouteCommand::Set(routes, reply) => answer(&reply, self.set_routes(routes)),
            RouteCommand::Forget(routes, reply) => answer(&reply, self.forwarding.forget_routes(routes)),
            RouteCommand::Changed(changes) => self.forwarding.change_own_addresses(&changes),
            RouteCommand::Waiting(from, reply) => {
                answer(&reply, self.observation.route_accounts.waiting(from))
            }
            RouteCommand::Count(routes, reply) => {
                let accounts = routes.iter().map(|index| self.observation.route_accounts.account(*index));
                answer(&reply, accounts.collect());
            }
            RouteCommand::Clear(from, reply) => answer(&reply, self.observation.route_accounts.clear(from)),
        }
    }

    /// Carries out a command to the table of neighbours.
    pub(crate) fn change_neighbours(&mut self, command: NeighbourCommand, now: Instant) {
        match command {
            NeighbourCommand::Set(changes) => self.set_neighbours(&changes, now),
            NeighbourCommand::TakeUsed(reply) => answer(&reply, self.take_used_neighbours(now)),
        }
    }

    /// Carries out a command to gates, bindings and instances of plugins.
    pub(crate) fn change_plugins(&mut self, command: PluginCommand, now: Instant) {
        match command {
            PluginCommand::Change(changes) => {
                changes.into_iter().for_each(|change| self.gates.apply(change));
                self.gates.plugins_mut().release_orphans();
            }
            PluginCommand::Control(instance, message, reply) => {
                let replied = Box::new(move |replied| answer(&reply, replied));
                self.gates.plugins_mut().control(instance, &message, now, replied);
            }
            PluginCommand::Message(instance, bytes) => {
                self.gates.plugins_mut().message(instance, bytes, now);
            }
            PluginCommand::Replace(instance, successor, reply) => {
                let replaced = Box::new(move |end| answer(&reply, end));
                self.gates.plugins_mut().succeed(instance, successor, now, replaced);
                self.after_succession();
            }
            PluginCommand::Shadow(id, instance, packets, reply) => {
                let reported = Box::new(move |report| answer(&reply, report));
                self.gates.plugins_mut().shadow(id, instance, packets, self.pool.clone(), reported);
            }
            PluginCommand::EndShadow(id) => self.gates.plugins_mut().end_shadow(id),
        }
    }

    /// Carries out a command to the scheduler of a port.
    pub(crate) fn change_scheduler(&mut self, command: SchedulerCommand, now: Instant) {
        match command {
            SchedulerCommand::Change(port, changes, piece, reply) => {
                answer(&reply, self.schedule(port, (&changes, piece), now));
            }
            SchedulerCommand::ShowNodes(port, first, reply) => {
                answer(&reply, self.ports.nodes(port, first, now))
            }
            SchedulerCommand::ShowQueues(port, leaf, first, reply) => {
                answer(&reply, self.ports.flow_queues(port, leaf, first));
            }
            SchedulerCommand::FindLeaf(port, queue, reply) => answer(&reply, self.ports.leaf(port, queue)),
        }
    }

    /// Carries out a command to the flow table.
    pub(crate) fn change_flows(&mut self, command: FlowCommand, now: Instant) {
        match command {
            FlowCommand::Reserve(flows) => self.classifier.reserved.set(&flows, self.seed),
            FlowCommand::Scan(scan, reply) => answer(&reply, self.scan_flows(&scan, now)),
            FlowCommand::Flush(scan, reply) => answer(&reply, self.flush_flows(&scan, now)),
        }
    }

    /// Carries out a command to the offload of flows.
    pub(crate) fn change_offload(&mut self, command: OffloadCommand, now: Instant) {
        match command {
            OffloadCommand::SetCache(cache) => self.driver = Some(Box::new(DriverFlows::new(cache))),
            OffloadCommand::SetPort(id, capabilities) => {
                if let Some(driver) = &mut self.driver {
                    driver.set_port(id, capabilities);
                }
            }
            OffloadCommand::Place(placements) => {
                if let Some(driver) = &mut self.driver {
                    driver.place(placements);
                }
            }
            OffloadCommand::SetForm(id, form) => self.gates.plugins_mut().set_driver_form(id, form),
            OffloadCommand::Account(from, reply) => answer(&reply, self.account_offloaded_from(from, now)),
        }
    }

    /// Carries out a command to captures and traces, or answers a question about packets.
    pub(crate) fn observe(&mut self, command: ObservationCommand, now: Instant) {
        match command {
            ObservationCommand::StartCapture(sink) => self.observation.captures.push(*sink),
            ObservationCommand::StopCapture(id) => {
                self.observation.captures.retain(|capture| capture.id != id)
            }
            ObservationCommand::StartTrace(sink) => self.start_trace(*sink, now),
            ObservationCommand::StopTrace(id) => self.observation.stop_trace(id),
            ObservationCommand::LastDrops(query, reply) => {
                answer(&reply, self.observation.last_drops(&query))
            }
            ObservationCommand::Explain(question, reply) => answer(&reply, self.tables().explain(&question)),
        }
    }

    /// Changes the scheduler of a port. Nothing changes at a worker that does not own the port's device.
    pub(crate) fn schedule(
        &mut self,
        port: PortId,
        changes: (&[ScheduleChange], Piece),
        now: Instant,
    ) -> Result<(), ScheduleError> {
        // Half of the packet memory is left to packets outside schedulers.
        let frames = self.pool.capacity() / 2 / self.ports.iter().count().max(1) as u32;
        let is_ours = self.ports.get(port).is_some_and(|entry| self.has(entry.settings.device));
        let Some(entry) = self.ports.get_mut(port).filter(|_| is_ours) else { return Ok(()) };
        let memory = (frames, self.seed);
        let changed = entry.change_scheduler(changes, memory, now, &mut self.scratch.queue_drops);
        self.drop_queued();
        changed
    }

    /// Sets the routes of numbers. Returns the previous routes, which control drops.
    fn set_routes(&mut self, mut routes: NumberedRoutes) -> NumberedRoutes {
        let mut other = false;
        for (index, route) in &mut routes {
            self.observation.route_accounts.begin(*index);
            self.forwarding.bare.forget(*index);
            other |= self.forwarding.fib.exchange(*index, route);
        }
        if other {
            self.forget_adjacencies();
        }
        routes
    }

    fn start_trace(&mut self, sink: TraceSink, now: Instant) {
        let worker = self.handover.as_ref().map_or(0, |handover| handover.me());
        self.observation.trace = Some(Box::new(Tracer::new(sink, worker, self.observation.next_mark, now)));
    }

    /// Returns the tables that explain the journey of a packet.
    fn tables(&self) -> Tables<'_> {
        Tables {
            ports: &self.ports,
            fib: &self.forwarding.fib,
            neighbours: &self.forwarding.neighbours,
            gates: &self.gates,
            route_priority: self.options.route_priority,
            martians: self.options.martians,
            own_addresses: &self.forwarding.own_addresses,
            seed: self.seed,
            worker: self.handover.as_ref().map(|handover| (handover.me(), handover.workers())),
        }
    }

    /// Sets the options. Limits for the whole router are divided by the number of workers.
    pub(crate) fn set_options(&mut self, options: Options) {
        let workers = self.handover.as_ref().map_or(1, |handover| handover.workers() as u32);
        let share = |all: u32| all.div_ceil(workers);
        let options = Options { flows_max: share(options.flows_max), ..options };
        let limit = RateLimit { per_second: share(options.icmp_rate), burst: share(options.icmp_burst) };
        self.errors.limiter = ErrorLimiter::new(limit);
        self.punt.control_plane.set(&options.control_plane, workers);
        self.classifier.set_options(&options, self.seed);
        self.gates.plugins_mut().set_limits(options.instances);
        self.options = options;
    }

    /// Adds a port or changes its settings. Announces the new addresses of the port if its device is open;
    /// otherwise they are announced when the device is opened.
    pub(crate) fn set_port(&mut self, id: PortId, settings: PortSettings, is_open: bool, now: Instant) {
        self.forget_adjacencies();
        let before = self.ports.get(id).map(|entry| (entry.settings.up, entry.settings.addresses.clone()));
        // For a port without a kernel, the owner of its device runs the own stack.
        let elsewhere = matches!(settings.stack, Stack::Kernel { .. }) || !self.has(settings.device);
        let (up, is_here) = (settings.up, self.has(settings.device));
        let addresses = settings.addresses.clone();
        self.gates.plugins_mut().set_port(id, true);
        self.ports.set(id, settings);
        if let Some(entry) = self.ports.get_mut(id) {
            entry.is_here = is_here;
        }
        if elsewhere {
            return;
        }
        if !up {
            self.punt.own.resolver.link_down(id);
        }
        let old =
            before.filter(|(was_up, _)| *was_up && up).map(|(_, addresses)| addresses).unwrap_or_default();
        for net in old.iter().filter(|net| !addresses.contains(net)) {
            self.punt.own.resolver.remove_own(NeighbourKey { port: id, address: net.addr() });
        }
        for net in addresses.iter().filter(|net| up && !old.contains(net)) {
            let key = NeighbourKey { port: id, address: net.addr() };
            self.punt.own.resolver.add_own(key);
            if is_open {
                self.with_own(now, |own, context| own.announce(key, context));
            }
        }
        self.follow_up(now);
    }
}
