//! What control tells a worker's router, carried out.

use millrace_forward::{ErrorLimiter, NeighbourKey, RateLimit};
use millrace_plugin::PluginChange;
use millrace_units::{Instant, PortId, QueueId};

use crate::command::{Command, NumberedRoutes, RouteChange};
use crate::driver_flows::DriverFlows;
use crate::explain::Tables;
use crate::gate_tables::Published;
use crate::options::Options;
use crate::ports::{PortSettings, Stack};
use crate::router::Router;
use crate::trace::{TraceSink, Tracer};

/// Filters whose counters are read between two batches.
const FILTERS_AT_ONCE: usize = 1024;

impl Router {
    /// Carries out a command that needs no device.
    pub(crate) fn carry_out(&mut self, command: Command, now: Instant) {
        // Who asked may have gone: an answer that nobody takes is lost, and that is all right.
        match command {
            Command::SetDriverCache(cache) => self.driver = Some(Box::new(DriverFlows::new(cache))),
            Command::SetDriverPort(id, can) => self.set_driver_port(id, can),
            Command::PlaceFlows(placements) => self.place_flows(placements),
            Command::SetDriverForm(id, form) => self.gates.plugins_mut().set_driver_form(id, form),
            Command::SetPort(id, settings) => self.set_port(id, settings, now),
            Command::SetRoutes(routes, reply) => _ = reply.try_send(self.set_routes(routes)),
            Command::ForgetRoutes(routes, reply) => _ = reply.try_send(self.forget_routes(routes)),
            Command::WaitingRoutes(from, reply) => _ = reply.try_send(self.route_accounts.waiting(from)),
            Command::CountRoutes(routes, reply) => {
                let accounts = routes.iter().map(|index| self.route_accounts.account(*index));
                let _ = reply.try_send(accounts.collect());
            }
            Command::CountFilters(from, reply) => {
                _ = reply.try_send(self.gates.plugins().counts_from(from, FILTERS_AT_ONCE));
            }
            Command::TellDriven(from, reply) => _ = reply.try_send(self.tell_driven_from(from, now)),
            Command::ClearRoutes(from, reply) => _ = reply.try_send(self.route_accounts.clear(from)),
            Command::ClearFilters(from, reply) => {
                let cleared = self.gates.plugins_mut().clear_counts(from, FILTERS_AT_ONCE);
                let _ = reply.try_send(cleared);
            }
            Command::RoutesChanged(changes) => self.routes_changed(&changes),
            Command::SetNeighbours(changes) => self.set_neighbours(&changes, now),
            Command::TakeUsedNeighbours(reply) => _ = reply.try_send(self.take_used_neighbours(now)),
            Command::Plugins(changes) => self.change_plugins(changes),
            // Control keeps the old one until it is no longer read, and drops it.
            Command::SetTable(gate, table) => drop(self.gates.plugins_mut().set_table(gate, table)),
            Command::Control(instance, message, reply) => {
                let answer = Box::new(move |answer| drop(reply.try_send(answer)));
                self.gates.plugins_mut().control(instance, &message, now, answer);
            }
            Command::Message(instance, bytes) => self.gates.plugins_mut().message(instance, bytes, now),
            Command::Succeed(instance, successor, reply) => {
                let told = Box::new(move |end| drop(reply.try_send(end)));
                self.gates.plugins_mut().succeed(instance, successor, now, told);
                self.after_succession();
            }
            Command::Shadow(id, instance, packets, reply) => {
                let reported = Box::new(move |report| drop(reply.try_send(report)));
                self.gates.plugins_mut().shadow(id, instance, packets, self.pool.clone(), reported);
            }
            Command::Schedule(port, changes, piece, reply) => {
                _ = reply.try_send(self.schedule(port, &changes, piece, now));
            }
            Command::ShowNodes(port, first, reply) => _ = reply.try_send(self.nodes(port, first, now)),
            Command::ShowQueues(port, leaf, first, reply) => {
                _ = reply.try_send(self.flow_queues(port, leaf, first));
            }
            Command::FindLeaf(port, queue, reply) => _ = reply.try_send(self.leaf(port, queue)),
            Command::EndShadow(id) => self.gates.plugins_mut().end_shadow(id),
            Command::StartCapture(sink) => self.captures.push(*sink),
            Command::StopCapture(id) => self.captures.retain(|capture| capture.id != id),
            Command::StartTrace(sink) => self.start_trace(*sink, now),
            Command::StopTrace(id) => self.stop_trace(id),
            Command::LastDrops(query, reply) => _ = reply.try_send(self.last_drops(&query)),
            Command::Explain(question, reply) => _ = reply.try_send(self.tables().explain(&question)),
            Command::SetOptions(options) => self.set_options(options),
            Command::ReserveFlows(flows) => self.classifier.reserved.set(&flows, self.seed),
            Command::ScanFlows(scan, reply) => _ = reply.try_send(self.scan_flows(&scan, now)),
            Command::FlushFlows(scan, reply) => _ = reply.try_send(self.flush_flows(&scan, now)),
            Command::AddDevice(..)
            | Command::RemoveDevice(..)
            | Command::AddHostOutput(..)
            | Command::SetHostOutput(..)
            | Command::RemoveHostOutput(..)
            | Command::Snapshot(_)
            | Command::Counters(_)
            | Command::ClearCounters
            | Command::SetHostPath(_)
            | Command::Stop => {}
        }
    }

    /// Gives routes their numbers; those that had them before come back, for control to drop.
    fn set_routes(&mut self, mut routes: NumberedRoutes) -> NumberedRoutes {
        let mut other = false;
        for (index, route) in &mut routes {
            self.route_accounts.begin(*index);
            self.bare.forget(*index);
            other |= self.fib.exchange(*index, route);
        }
        if other {
            self.forget_adjacencies();
        }
        routes
    }

    /// The same for numbers that nobody has any more. No flow is sent by them, so there is no adjacency to forget.
    fn forget_routes(&mut self, mut routes: NumberedRoutes) -> NumberedRoutes {
        for (index, route) in &mut routes {
            self.fib.exchange(*index, route);
            self.bare.forget(*index);
        }
        routes
    }

    /// The leaf where packets for a queue of a port wait, if it has a scheduler.
    fn leaf(&self, port: PortId, queue: QueueId) -> Option<QueueId> {
        let scheduler = self.ports.get(port)?.scheduler.as_ref()?;
        scheduler.takes_packets().then(|| scheduler.leaf_for(queue))
    }

    fn start_trace(&mut self, sink: TraceSink, now: Instant) {
        let worker = self.handover.as_ref().map_or(0, |handover| handover.me());
        self.trace = Some(Box::new(Tracer::new(sink, worker, self.next_mark, now)));
    }

    fn stop_trace(&mut self, id: u32) {
        if let Some(tracer) = self.trace.take_if(|tracer| tracer.id() == id) {
            self.next_mark = tracer.number();
        }
    }

    /// What says how a packet would fare.
    fn tables(&self) -> Tables<'_> {
        Tables {
            ports: &self.ports,
            fib: &self.fib,
            neighbours: &self.neighbours,
            gates: &self.gates,
            route_priority: self.options.route_priority,
            martians: self.options.martians,
            seed: self.seed,
            worker: self.handover.as_ref().map(|handover| (handover.me(), handover.workers())),
        }
    }

    /// Options of the whole router: what is said of it is for all workers together.
    fn set_options(&mut self, options: Options) {
        let workers = self.handover.as_ref().map_or(1, |handover| handover.workers() as u32);
        let share = |all: u32| all.div_ceil(workers);
        let options = Options { flows_max: share(options.flows_max), ..options };
        let limit = RateLimit { per_second: share(options.icmp_rate), burst: share(options.icmp_burst) };
        self.errors = ErrorLimiter::new(limit);
        self.control_plane.set(&options.control_plane, workers);
        self.classifier.set_options(&options, self.seed);
        self.gates.plugins_mut().set_limits(options.instances);
        self.options = options;
    }

    fn change_plugins(&mut self, changes: Vec<PluginChange<Published>>) {
        for change in changes {
            match &change {
                PluginChange::Bind { filter, .. } | PluginChange::Unbind { filter, .. } => {
                    let changes = &mut self.classifier.changes;
                    filter.filter.alternatives().iter().for_each(|filter| changes.filter_changed(*filter));
                }
                PluginChange::Quarantine { .. } => self.instance_changed(),
                PluginChange::AddInstance { .. } | PluginChange::RemoveInstance { .. } => {}
                PluginChange::AddGate { .. } | PluginChange::RemoveGate { .. } => {}
            }
            self.gates.apply(change);
        }
        self.gates.plugins_mut().let_go_of_orphans();
    }

    fn set_port(&mut self, id: PortId, settings: PortSettings, now: Instant) {
        // Who answers for a port, and what may come in by it, stands in the answers for its flows.
        self.classifier.changes.everything_changed();
        self.forget_adjacencies();
        let before = self.ports.get(id).map(|entry| (entry.settings.up, entry.settings.addresses.clone()));
        // Of a port without a kernel, the worker that has its device is the stack.
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
            self.own.resolver.link_down(id);
        }
        let old =
            before.filter(|(was_up, _)| *was_up && up).map(|(_, addresses)| addresses).unwrap_or_default();
        for net in old.iter().filter(|net| !addresses.contains(net)) {
            self.own.resolver.remove_own(NeighbourKey { port: id, address: net.addr() });
        }
        for net in addresses.iter().filter(|net| up && !old.contains(net)) {
            let key = NeighbourKey { port: id, address: net.addr() };
            self.own.resolver.add_own(key);
            self.with_own(now, |own, context| own.announce(key, context));
        }
        self.follow_up(now);
    }

    fn routes_changed(&mut self, changes: &[RouteChange]) {
        self.classifier.changes.begin_routes();
        for RouteChange { prefix, own } in changes {
            self.classifier.changes.route_changed(*prefix);
            if *own {
                self.own_addresses.insert(prefix.addr());
            } else if prefix.prefix_len() == prefix.max_prefix_len() {
                self.own_addresses.remove(&prefix.addr());
            }
        }
    }
}
