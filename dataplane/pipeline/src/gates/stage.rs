//! Gates of a worker: find the treatment of a flow, and run its instances over packets.

use millrace_classify::Candidate;
use millrace_connection::ConnectionTable;
use millrace_forward::Route;
use millrace_packet::{BATCH_SIZE, DropReason, FlowKey, Packet, Pool};
use millrace_plugin::{
    Action, BindingId, Classified, ConnectionKeepers, Direction, EMPTY_PATH, EndedStages, Group, Kept, Place,
    PluginChange, Released, Remains, Taken, Ticket, Tracking, Watch, Way, WorkerPlugins,
};
use millrace_plugin_abi::{PacketConnection, Position};
use millrace_units::{Instant, NextHopIndex, PathId, PortId};
use millrace_wire::MacAddr;

use crate::connections::Connections;
use crate::forward::fib::Fib;
use crate::forward::filter_route::FilterRoutes;
use crate::forward::routing::Routing;
use crate::gate_tables::{Published, WorkerTable};
use crate::gates::fates::{fate, refused_by};
use crate::gates::groups::{Groups, PathGroup};
use crate::gates::outlet::Outlet;
use crate::observe::event::Discarded;
use crate::ports::PortTable;
use crate::route_number::{NO_ROUTE, is_filter};
use crate::work::{Fate, Work};

/// Gates, bindings and instances of a worker, and scratch memory for a batch.
#[derive(Debug)]
pub struct Gates {
    pub(super) plugins: WorkerPlugins<WorkerTable>,
    bound: bool,
    /// Whether some binding may drop or consume packets, or matches the protocol, ports or flags.
    judges: bool,
    /// Whether some binding may drop or consume packets.
    refuses: bool,
    /// Whether some binding sends packets or copies to ports.
    copying: bool,
    pub(super) routes: FilterRoutes,
    /// Connections, for instances whose state belongs to them; `None` before the first such instance.
    pub(crate) connections: Option<Box<Connections>>,
    pub(crate) groups: Groups,
    taken: Vec<(u16, Taken)>,
    directed: Vec<(u16, Direction)>,
    /// Egress of each copy, with the account word of the binding that requests it. Scratch memory.
    replicas: Vec<(u64, Way)>,
    /// Scratch memory, reused for each batch.
    classified: Vec<Classified>,
    /// Remains of changes, until control gets them.
    remains: Vec<Remains<WorkerTable>>,
}

impl Default for Gates {
    fn default() -> Self {
        Self {
            plugins: WorkerPlugins::new(),
            bound: false,
            judges: false,
            refuses: false,
            copying: false,
            routes: FilterRoutes::default(),
            connections: None,
            groups: Groups::default(),
            taken: Vec::with_capacity(BATCH_SIZE),
            directed: Vec::with_capacity(BATCH_SIZE),
            replicas: Vec::new(),
            classified: Vec::with_capacity(BATCH_SIZE),
            remains: Vec::new(),
        }
    }
}

impl Gates {
    /// Returns the gates, instances and bindings.
    pub fn plugins(&self) -> &WorkerPlugins<WorkerTable> {
        &self.plugins
    }

    /// Returns the gates, instances and bindings, mutable.
    pub fn plugins_mut(&mut self) -> &mut WorkerPlugins<WorkerTable> {
        &mut self.plugins
    }

    /// Applies a change that control has checked.
    pub fn apply(&mut self, change: PluginChange<Published>) {
        if let PluginChange::Bind { action: Action::Send(ways) | Action::Copy(ways), .. } = &change {
            ways.iter().for_each(|way| self.routes.add(*way));
            self.copying = true;
        }
        match self.plugins.apply(change) {
            Remains::Nothing => {}
            remains => self.remains.push(remains),
        }
        self.follow_changes();
        self.bound = self.plugins.bindings.gates().iter().any(|gate| gate.bindings() > 0);
        self.judges = self.plugins.bindings.judges();
        self.refuses = self.plugins.bindings.refuses();
    }

    /// Removes and returns the remains of a change, which control drops; `None` if there are none.
    pub fn take_discarded(&mut self) -> Option<Discarded> {
        Some(Discarded(Box::new(self.remains.pop()?)))
    }

    /// Begins to track connections in an empty table, unless the worker has a table already.
    pub fn begin_connections(&mut self, table: Box<ConnectionTable>, now: Instant) {
        if self.connections.is_none() {
            self.connections = Some(Box::new(Connections::new(table, now)));
        }
    }

    /// Begins an epoch of the connections if an instance whose state belongs to them was bound, unbound or replaced.
    pub fn follow_changes(&mut self) {
        if ConnectionKeepers::of(&mut self.plugins).take_change()
            && let Some(connections) = &mut self.connections
        {
            connections.table.begin_epoch();
        }
    }

    /// Takes a dropped packet back from its connection. If all packets of the connection were dropped, ends it and
    /// notifies the instances.
    #[inline]
    pub fn note_dropped(&mut self, connection: PacketConnection) {
        if connection.is_counted {
            self.withdraw(connection);
        }
    }

    #[cold]
    fn withdraw(&mut self, dropped: PacketConnection) {
        if let Some(ended) = self.connections.as_mut().and_then(|connections| connections.withdraw(dropped)) {
            ConnectionKeepers::of(&mut self.plugins).ended(&ended);
        }
    }

    /// Returns whether a filter or an instance may drop or consume packets, or a filter matches protocol,
    /// ports or flags.
    #[inline]
    pub fn judges(&self) -> bool {
        self.judges
    }

    /// Returns the drop reason of a packet whose IPv6 extension headers can't be parsed up to the transport
    /// header (`hides_transport`). Returns `None` for any other packet, or if no binding needs the transport
    /// header.
    #[inline]
    pub fn refuse_hidden(&self, hides_transport: bool) -> Option<DropReason> {
        (hides_transport && self.judges).then_some(DropReason::Ip6HeaderChain)
    }

    /// Returns whether a filter or an instance at any gate may drop or consume packets.
    #[inline]
    pub fn refuses(&self) -> bool {
        self.refuses
    }

    /// Returns whether any gate has a binding.
    pub fn is_bound(&self) -> bool {
        self.bound
    }

    /// Returns whether packets may have to wait behind calls of stages that have ended. Then all packets take the
    /// general path.
    #[inline]
    pub(crate) fn has_barriers(&self) -> bool {
        EndedStages::has_barriers(&self.plugins)
    }

    /// Returns the routes that filters prescribe.
    pub fn routes(&self) -> &FilterRoutes {
        &self.routes
    }

    /// Returns the treatment of a packet's flow: its path, the route that a filter prescribes, and the bits
    /// of [`Candidate::varying`] that distinguish the flow's packets. `route`: priority of the flow's FIB
    /// route, which the priorities of filters are compared with; `None` without a route.
    pub fn classify(&mut self, candidate: &Candidate, route: Option<i32>) -> Treatment {
        if !self.bound {
            return Treatment { path: EMPTY_PATH, route: None, varying_mask: 0 };
        }
        let classified = self.plugins.classify(candidate, route);
        self.treatment(candidate, classified)
    }

    /// Classifies many packets, and replaces the contents of `treatments` by the results. `routes` holds the
    /// priority of each candidate's FIB route.
    pub fn classify_batch(
        &mut self,
        candidates: &[Candidate],
        routes: &[Option<i32>],
        treatments: &mut Vec<Treatment>,
    ) {
        let mut classified = std::mem::take(&mut self.classified);
        self.plugins.classify_batch(candidates, routes, &mut classified);
        treatments.clear();
        let both = candidates.iter().zip(&classified);
        treatments.extend(both.map(|(candidate, classified)| self.treatment(candidate, *classified)));
        self.classified = classified;
    }

    fn treatment(&self, candidate: &Candidate, classified: Classified) -> Treatment {
        let gates = self.plugins.bindings.gates().iter().filter(|gate| gate.bindings() > 0);
        let varying_mask = gates.fold(0, |mask, gate| mask | gate.table().varying_mask(&candidate.key));
        let route = classified.primary.and_then(|primary| self.route_of(primary));
        Treatment { path: classified.path, route, varying_mask }
    }

    /// Returns the number of the route that a binding's action prescribes; `None` if it prescribes none.
    #[inline]
    pub fn route_of(&self, binding: BindingId) -> Option<NextHopIndex> {
        self.routes.index(self.plugins.bindings.action(binding)?)
    }

    /// Returns the plugins and the groups, for the fast path, which adds packets to groups itself.
    pub(crate) fn joining(&mut self) -> (&WorkerPlugins<WorkerTable>, &mut Groups) {
        (&self.plugins, &mut self.groups)
    }

    /// Returns whether any instance on the paths of the groups may read packets, or give another verdict than
    /// pass.
    pub(crate) fn looks_at_packets(&self) -> bool {
        self.groups.iter().any(|group| self.plugins.looks_at_packets(group.path))
    }

    /// Groups the open packets of a batch by path. Packets without bindings are left out.
    pub fn group(&mut self, work: &mut Work) {
        self.groups.begin();
        // Packets that have waited may have a path of ended stages, which are barriers.
        if !self.bound && !self.has_barriers() {
            return;
        }
        for index in 0..work.packets.len() {
            let path = work.paths[index];
            if path != EMPTY_PATH && work.fates[index].is_open() {
                let packet = work.packets.at_mut(index);
                self.groups.join(path, index, packet.len());
                // A copy keeps the account of the binding that requested it.
                if packet.counts_for == EMPTY_PATH {
                    packet.counts_for = self.plugins.paths.account(path);
                }
            }
        }
    }

    /// Runs the instances of each group at a position, and calls `watch` before and after each instance.
    pub fn run_watched<W: Watch>(
        &mut self,
        (position, from): (Position, u16),
        work: &mut Work,
        outlet: &mut Outlet<'_>,
        now: Instant,
        watch: &mut W,
    ) {
        if !self.has_barriers() {
            return self.run_groups::<false, W>((position, from), work, outlet, now, watch);
        }
        self.stop_packets(position, work);
        self.run_groups::<true, W>((position, from), work, outlet, now, watch);
    }

    /// Lets open packets without stages at a position wait that must not overtake packets in calls of ended stages.
    #[cold]
    fn stop_packets(&mut self, position: Position, work: &mut Work) {
        let Self { plugins, groups, .. } = self;
        for index in 0..work.packets.len() {
            let (path, fate) = (work.paths[index], work.fates[index]);
            // The forward stage has decided the fates already.
            let is_open = fate.is_open() || position == Position::Queue && matches!(fate, Fate::Hold(_));
            if is_open && !plugins.has_stages(path, position) {
                let place = Place { path, position, stage: 0 };
                let ticket = EndedStages::of(plugins).stop(place, &work.keys[index]);
                work.fates[index] = ticket.map_or(fate, Fate::Kept);
            }
        }
        for PathGroup { path, members, has_changed, .. } in groups.iter_mut() {
            if !plugins.has_stages(*path, position) {
                members.retain(|member| !matches!(work.fates[usize::from(*member)], Fate::Kept(_)));
                *has_changed = true;
            }
        }
    }

    /// Runs the instances of each group at a position as [`run_watched`](Self::run_watched) does. `BARRIERS`: whether
    /// packets may have to wait at barriers.
    #[inline(always)]
    fn run_groups<const BARRIERS: bool, W: Watch>(
        &mut self,
        (position, from): (Position, u16),
        work: &mut Work,
        outlet: &mut Outlet<'_>,
        now: Instant,
        watch: &mut W,
    ) {
        let queues = &Routing { fib: outlet.fib, filter_routes: &self.routes, ports: outlet.ports };
        for PathGroup { path, members, bytes, has_changed } in self.groups.iter_mut() {
            if !self.plugins.has_stages(*path, position) {
                continue;
            }
            if position == Position::Queue {
                // Since the packets joined their groups, the forward stage may have ended some of them, which
                // leave their groups here. Before the forward stage, only instances end packets. A packet
                // held for its neighbour passes the `queue` gates before the wait, so that the packets of its
                // flow stay in order.
                members.retain(|member| {
                    matches!(work.fates[usize::from(*member)], Fate::Forward | Fate::Hold(_))
                });
                *has_changed = true;
            }
            let Work { packets, keys, states, verdicts, fates, .. } = work;
            let (taken, directed) = (&mut self.taken, &mut self.directed);
            let mut known = (!*has_changed).then_some(*bytes);
            let bytes = &mut known;
            let tracker = self.connections.as_deref_mut().filter(|_| self.plugins.paths.tracks(*path));
            let (states, connections) = states.all(tracker.is_some());
            let tracking = tracker.map(|tracker| Tracking { tracker, connections });
            let (keys, verdicts) = (&keys[..], &mut verdicts[..]);
            let mut group =
                Group { packets, keys, states, verdicts, members, bytes, taken, directed, queues, tracking };
            let place = Place { path: *path, position, stage: from };
            let refused = match BARRIERS {
                false => self.plugins.run_watched(place, &mut group, now, watch),
                true => EndedStages::of(&mut self.plugins).run_watched(place, &mut group, now, watch),
            };
            *has_changed |= known.is_none();
            for (member, why) in taken.drain(..) {
                fates[usize::from(member)] = fate(why);
            }
            let Some(filtered) = refused.map(refused_by) else { continue };
            members.drain(..).for_each(|member| fates[usize::from(member)] = filtered);
        }
        if !self.directed.is_empty() {
            self.direct_all(position, work, outlet);
        }
    }

    /// Continues suspended calls of instances. Adds to `released` the packets that instances have released.
    pub fn resume(&mut self, fib: &Fib, ports: &PortTable, released: &mut Vec<Released>, now: Instant) {
        let queues = Routing { fib, filter_routes: &self.routes, ports };
        self.plugins.resume(now, &queues, released);
        // An upgrade may have ended.
        self.follow_changes();
    }

    /// Stores a packet that waits, with the stage results that it needs later. Half of the packet memory is for
    /// packets that don't wait. Returns a packet that may not wait as error, with the reason to drop it.
    pub fn keep(
        &mut self,
        ticket: Ticket,
        packet: Packet,
        key: FlowKey,
        destination: MacAddr,
        (state, connection): (u32, PacketConnection),
        pool: &Pool,
    ) -> Result<(), (Packet, DropReason)> {
        let most = pool.capacity() as usize / 2;
        let state = self.plugins.flow_states().reference(state);
        let destination = destination.0;
        self.plugins.keep(ticket, most, Kept { packet, key, destination, state, connection })
    }

    /// Sets the routes of packets that instances have directed to ports, unless an instance has dropped or
    /// consumed the packet since.
    #[cold]
    fn direct_all(&mut self, position: Position, work: &mut Work, outlet: &mut Outlet<'_>) {
        let mut directed = std::mem::take(&mut self.directed);
        for (member, direction) in directed.drain(..) {
            let index = usize::from(member);
            if matches!(work.fates[index], Fate::Forward | Fate::Kept(_)) {
                self.direct(work.packets.at_mut(index), direction, position, outlet);
            }
        }
        self.directed = directed;
    }

    /// Sets the route of a packet to the port that an instance has directed it to. For a direction with
    /// several ports, makes a copy for each further port. `position`: position of the instance's gate.
    pub fn direct(
        &mut self,
        packet: &mut Packet,
        direction: Direction,
        position: Position,
        outlet: &mut Outlet<'_>,
    ) {
        let ports = match direction {
            Direction::Port(port) => 1u128 << port.0.min(127),
            Direction::Ports(ports) => ports.into(),
        };
        let first = match direction {
            Direction::Port(port) => port,
            Direction::Ports(ports) => PortId(ports.trailing_zeros() as u16),
        };
        let further = (0..64).map(PortId).filter(|port| *port != first && ports >> port.0 & 1 == 1);
        for port in further {
            let way = self.way(packet, port, outlet.fib);
            if let Some(next_hop) = self.routes.for_copies(way)
                && let Some(mut copy) = packet.copy(outlet.pool)
            {
                copy.next_hop = next_hop;
                outlet.made.push(copy);
                outlet.copies += 1;
            }
        }
        let way = self.way(packet, first, outlet.fib);
        let next_hop = match position {
            Position::Copy => self.routes.for_copies(way),
            _ => self.routes.of(way),
        };
        packet.next_hop = next_hop.unwrap_or(packet.next_hop);
    }

    /// Returns the egress (port and gateway) of a packet that is directed to a port. If the packet's route
    /// uses this port, the gateway is the gateway of that route; otherwise there is none.
    fn way(&mut self, packet: &Packet, port: PortId, fib: &Fib) -> Way {
        let via = match packet.next_hop {
            index if index == NO_ROUTE || is_filter(index) => None,
            index => match fib.route(index) {
                Route::Forward(hops) => Some(hops.select(packet.hash)).filter(|hop| hop.port == port),
                _ => None,
            },
        };
        let way = Way { port, via: via.and_then(|hop| hop.gateway) };
        self.routes.add(way);
        way
    }

    /// Makes the copies that filters send out of ports, and adds them to `made`, each with its route. The
    /// filter that requests a copy accounts for it. Returns the number of copies.
    pub fn replicate(&mut self, work: &Work, pool: &Pool, made: &mut Vec<Packet>) -> u64 {
        if !self.copying {
            return 0;
        }
        let before = made.len();
        for PathGroup { path, members, .. } in self.groups.iter() {
            let further = self.plugins.actions_at(*path, Position::Route);
            let further = further.filter_map(|(binding, action)| match action {
                Action::Send(ways) => Some((binding, ways.get(1..)?)),
                _ => None,
            });
            let copies = self.plugins.actions_at(*path, Position::Copy);
            let copies = copies.filter_map(|(binding, action)| match action {
                Action::Copy(ways) => Some((binding, &**ways)),
                _ => None,
            });
            self.replicas.clear();
            for (binding, ways) in further.chain(copies) {
                self.replicas.extend(ways.iter().map(|way| (binding, *way)));
            }
            for (binding, way) in &self.replicas {
                let counts_for = self.plugins.paths.account_of(std::iter::once(*binding));
                let open = members.iter().map(|at| usize::from(*at)).filter(|at| work.fates[*at].is_open());
                made.extend(open.filter_map(|at| {
                    let mut copy = work.packets.at(at).copy(pool)?;
                    copy.next_hop = self.routes.for_copies(*way)?;
                    copy.counts_for = counts_for;
                    Some(copy)
                }));
            }
        }
        (made.len() - before) as u64
    }
}

/// Treatment of a flow according to the filters: path, route and varying fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Treatment {
    /// Path of the flow.
    pub path: PathId,
    /// Number of the route that a filter prescribes; `None` if the FIB determines the route.
    pub route: Option<NextHopIndex>,
    /// Bits of [`Candidate::varying`] that distinguish packets of the flow.
    pub varying_mask: u32,
}
