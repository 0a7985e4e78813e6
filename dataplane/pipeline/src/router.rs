//! The router of a worker: its tables, and the journey of a batch through the stages.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use millrace_classify::FlowTableError;
use millrace_forward::{
    AdjacencyTable, ErrorLimiter, FibReader, HoldLimits, HoldQueue, IcmpError, NO_ADJACENCY, NeighbourTable,
};
use millrace_packet::{Arrivals, BATCH_SIZE, Batch, DropReason, Packet, Pool};
use millrace_plugin::{Pulse, Released};
use millrace_plugin_abi::Position;
use millrace_units::{Instant, PortId};
use millrace_wire::{EtherType, MacAddr};

use crate::accounts::RouteAccounts;
use crate::bare::{Bare, OwnAddresses};
use crate::capture::{CaptureSink, Direction, GateTap};
use crate::classify::Classifier;
use crate::control_plane::ControlPlane;
use crate::driver_flows::DriverFlows;
use crate::drop_log::DropLog;
use crate::event::Event;
use crate::express::leave_known;
use crate::fib::Fib;
use crate::filter_route::is_filter;
use crate::forward::Forwarder;
use crate::from_plugins::FromPlugins;
use crate::gates::{Copies, Gates, Outlet};
use crate::handover::Handover;
use crate::options::Options;
use crate::own_stack::{Outgoing, OwnStack};
use crate::parse::{Parsed, ROUTER, parse, parse_copy};
use crate::plain::read_plain;
use crate::port_scheduler::QueueDrops;
use crate::ports::{DeviceId, PortTable};
use crate::receive::receive;
use crate::route::{admit, look_up};
use crate::snapshot::Totals;
use crate::trace::{Pick, Tracer};
use crate::work::{Fate, Work};

/// Neighbours of all ports together.
const NEIGHBOURS: usize = 65_536;
/// EtherTypes that are counted one by one.
const ETHER_TYPES: usize = 64;
/// Rounds in which packets that the router made are followed at once; what they lead to then waits for the next turn.
const ROUNDS: usize = 4;
/// Packets that have waited too long which are refused in a turn.
const EXPIRED_AT_ONCE: usize = 64;

/// Everything between the devices.
pub struct Router {
    pub(crate) pool: Pool,
    pub(crate) seed: u64,
    pub(crate) ports: PortTable,
    pub(crate) fib: Fib,
    /// Addresses that no packet may come from: the router's own, and broadcasts of its subnets.
    pub(crate) own_addresses: OwnAddresses,
    pub(crate) neighbours: NeighbourTable,
    /// How packets of plain flows leave.
    pub(crate) adjacencies: AdjacencyTable,
    /// Those of routes, for when there is no flow table.
    pub(crate) bare: Bare,
    pub(crate) hold: HoldQueue,
    pub(crate) own: OwnStack,
    pub(crate) control_plane: ControlPlane,
    pub(crate) gates: Gates,
    copies: Copies,
    pub(crate) options: Options,
    pub(crate) classifier: Classifier,
    pub(crate) errors: ErrorLimiter,
    pub(crate) captures: Vec<CaptureSink>,
    /// The trace that goes on.
    pub(crate) trace: Option<Box<Tracer>>,
    /// The number of the first packet of the next trace.
    pub(crate) next_mark: u16,
    /// The last packets that were dropped.
    pub(crate) drop_log: DropLog,
    pub(crate) totals: Totals,
    /// What routes gave to queues, and what became of it.
    pub(crate) route_accounts: RouteAccounts,
    pub(crate) ether_types: BTreeMap<u16, u64>,
    pub(crate) events: VecDeque<Event>,
    /// Packets of the router's own, at the start of their journey.
    pub(crate) made: Vec<Packet>,
    /// Packets that waited for a neighbour, to be forwarded now.
    pub(crate) resumed: Vec<Packet>,
    /// Packets that waited for a neighbour, which is known now. They have met all gates.
    pub(crate) waited: Vec<Packet>,
    /// Packets that plugins have made.
    pub(crate) from_plugins: FromPlugins,
    /// Packets that plugins want classified anew.
    pub(crate) again: Vec<Packet>,
    /// Frames of the own stack.
    pub(crate) frames: Vec<Outgoing>,
    /// Packets for the kernel.
    pub(crate) for_kernel: Vec<Packet>,
    pub(crate) fragments: Vec<Packet>,
    /// What queues dropped, until it is counted.
    pub(crate) queue_drops: QueueDrops,
    pub(crate) identification: u16,
    /// The flows that the driver forwards, where it can.
    pub(crate) driver: Option<Box<DriverFlows>>,
    /// The ways to and from other workers, if there are any.
    pub(crate) handover: Option<Box<Handover>>,
    /// The words of the filters that a packet counts for which is handed over. Kept for its memory.
    pub(crate) handed_filters: Vec<u64>,
    /// The batch that the worker took up last, and the device that it came by; none for a batch of another worker.
    pub(crate) arrivals: (Arrivals, Option<DeviceId>),
    pub(crate) spare: Work,
    /// Packets that plugins kept, and keep no longer.
    pub(crate) released: Vec<Released>,
}

impl Router {
    /// A router without ports, that finds routes by `prefixes`. `seed` keys its hashes; it should be random.
    ///
    /// # Errors
    /// When the kernel maps no memory for the flow table.
    pub fn new(pool: Pool, prefixes: FibReader, seed: u64) -> Result<Self, FlowTableError> {
        let hold = HoldQueue::new(HoldLimits::of_pool(pool.capacity()), seed);
        Ok(Self {
            classifier: Classifier::new(&Options::default(), seed)?,
            arrivals: (Arrivals::new(pool.clone()), None),
            pool,
            seed,
            ports: PortTable::default(),
            fib: Fib::new(prefixes),
            own_addresses: OwnAddresses::new(seed),
            bare: Bare::default(),
            neighbours: NeighbourTable::new(NEIGHBOURS, seed),
            adjacencies: AdjacencyTable::new(seed),
            hold,
            own: OwnStack::new(seed),
            control_plane: ControlPlane::default(),
            gates: Gates::default(),
            copies: Copies::default(),
            options: Options::default(),
            errors: ErrorLimiter::default(),
            captures: Vec::new(),
            trace: None,
            next_mark: 1,
            drop_log: DropLog::default(),
            totals: Totals::default(),
            route_accounts: RouteAccounts::default(),
            ether_types: BTreeMap::new(),
            events: VecDeque::new(),
            made: Vec::new(),
            resumed: Vec::new(),
            waited: Vec::new(),
            from_plugins: FromPlugins::default(),
            again: Vec::new(),
            frames: Vec::new(),
            for_kernel: Vec::new(),
            fragments: Vec::new(),
            queue_drops: Vec::new(),
            identification: seed as u16,
            driver: None,
            handover: None,
            handed_filters: Vec::new(),
            spare: Work::default(),
            released: Vec::new(),
        })
    }

    /// Takes a batch that `device` received through all stages. Every packet has left `work` when this returns.
    pub fn process(&mut self, device: DeviceId, work: &mut Work, now: Instant) {
        // Less than none at first, where the worker had taken over what others received when counters were cleared.
        self.totals.received = self.totals.received.wrapping_add(work.packets.len() as u64);
        self.arrivals.0.note(&work.packets);
        self.arrivals.1 = Some(device);
        work.begin();
        // Who captures sees every packet on the general way.
        let tapped = self.is_tapped();
        let mut others = std::mem::take(&mut work.left);
        others.clear();
        if tapped {
            others.extend(0..work.packets.len().min(BATCH_SIZE) as u16);
        } else {
            let table = (&self.classifier.flows, self.classifier.remembers());
            read_plain(&mut self.ports, device, work, table, &mut others);
        }
        for index in others.iter().map(|index| usize::from(*index)) {
            let link = receive(&mut self.ports, device, work.packets.at_mut(index));
            work.fates[index] = link.fate;
            if link.fate.is_open() {
                self.read(work, index, link.ether_type, now);
            } else if link.fate == Fate::Drop(DropReason::EtherType) {
                self.count_ether_type(link.ether_type);
            }
        }
        work.left = others;
        if tapped {
            self.tap_arrivals(work, now);
        }
        if let Some(tracer) = &mut self.trace
            && !tracer.passes(work.packets.len())
        {
            return self.journey_watched(work, Pick::Chosen, now);
        }
        if self.handover.is_some() {
            self.steer(work);
        }
        self.journey(work, now);
    }

    /// The stages from classify on, and all that they lead to.
    pub(crate) fn journey(&mut self, work: &mut Work, now: Instant) {
        self.stages(work, now);
        self.follow_up(now);
        self.keep_flows(now, false);
    }

    /// The stages from classify on.
    #[inline(always)]
    pub(crate) fn stages(&mut self, work: &mut Work, now: Instant) {
        match self.settle(work, now) {
            true => self.leave(work, now),
            false => self.dispose(work, now),
        }
    }

    /// The stages from classify on up to where packets leave: their fates are settled. Whether all (but those [aside](Work::aside))
    /// are finished frames that [`Leaving`](crate::work::Leaving) has counted.
    #[inline(always)]
    pub(crate) fn settle(&mut self, work: &mut Work, now: Instant) -> bool {
        self.gates.groups.begin();
        let is_bare = !self.classifier.remembers() && !self.is_tapped() && self.leave_bare(work);
        if !is_bare && !self.classify_or_express(work, now) {
            work.note_keys();
            self.settle_from(work, Position::Early, 0, now);
            return false;
        }
        if self.gates.groups.is_empty() {
            self.offer_to_driver(work, now);
            return true;
        }
        self.settle_bound(work, now)
    }

    /// Takes packets through the instances at gates of `early` and `late`, of whose flows the rest is known; the same answer.
    fn settle_bound(&mut self, work: &mut Work, now: Instant) -> bool {
        if self.gates.looks_at_packets() {
            work.note_keys();
        }
        self.run_gates(Position::Early, 0, work, now);
        self.run_gates(Position::Late, 0, work, now);
        if !leave_known(&mut self.adjacencies, work) {
            work.note_keys();
            self.decide(work);
        }
        self.offer_to_driver(work, now);
        let all = work.leaving.packets() + work.aside as u64 == work.packets.len() as u64;
        if !all {
            work.note_keys();
        }
        all
    }

    /// Stage parse, of one packet.
    #[inline]
    pub(crate) fn read(&mut self, work: &mut Work, index: usize, ether_type: EtherType, now: Instant) {
        let packet = work.packets.at_mut(index);
        match self.parse(packet, ether_type, now) {
            Ok(parsed) => {
                let has_link = packet.network_offset() > 0;
                if packet.port != ROUTER
                    && has_link
                    && packet.data().first().is_some_and(|first| first & 1 == 1)
                {
                    // Sent to many, which no record of a flow says.
                    work.fates[index] = admit(&self.ports, packet, &parsed.key, self.options.martians);
                }
                work.hashes[index] = self.classifier.flows.hash(&parsed.key);
                self.classifier.flows.prefetch(work.hashes[index]);
                work.set_key(index, parsed.key);
                work.varying[index] = parsed.varying;
            }
            Err(reason) => work.fates[index] = Fate::Drop(reason),
        }
    }

    /// Parses a packet; a fragment gets the flow of the first.
    #[inline]
    fn parse(
        &mut self,
        packet: &mut Packet,
        ether_type: EtherType,
        now: Instant,
    ) -> Result<Parsed, DropReason> {
        let mut parsed = parse(packet, ether_type)?;
        if parsed.hides_transport && self.gates.judges() {
            return Err(DropReason::Ip6HeaderChain);
        }
        if parsed.fragment.is_some() {
            self.join_fragments(packet, &mut parsed, now)?;
        }
        packet.hash = self.classifier.flows.hashes(&parsed.key).1;
        Ok(parsed)
    }

    /// The stages from the first gate to the queue.
    pub(crate) fn travel(&mut self, work: &mut Work, now: Instant) {
        self.travel_from(work, Position::Early, 0, now);
    }

    /// The same for packets that go on at a position, from the stage of that number on.
    pub(crate) fn travel_from(&mut self, work: &mut Work, position: Position, stage: u16, now: Instant) {
        if self.is_traced(work) {
            return self.travel_traced(work, position, stage, now);
        }
        self.settle_from(work, position, stage, now);
        self.dispose(work, now);
    }

    /// The same up to where they leave: their fates are settled.
    fn settle_from(&mut self, work: &mut Work, position: Position, stage: u16, now: Instant) {
        self.gates.group(work);
        let from = |here: Position| if here == position { stage } else { 0 };
        for here in [Position::Early, Position::Route, Position::Late] {
            if here >= position {
                self.run_gates(here, from(here), work, now);
            }
        }
        if position <= Position::Late {
            self.make_copies(work, now);
            self.forward(work);
            if (position, stage) == (Position::Early, 0) {
                // Not for packets that waited: what is noted of flows is not theirs.
                self.note_adjacencies(work);
                self.offer_to_driver(work, now);
            }
        }
        self.run_gates(Position::Queue, from(Position::Queue), work, now);
        if position == Position::Queue {
            self.decide_late(work);
        }
    }

    /// Makes the copies that filters want, and hands those at gates for copies to the instances there.
    #[inline]
    pub(crate) fn make_copies(&mut self, work: &Work, now: Instant) {
        let Self { gates, copies, fib, ports, pool, resumed, captures, .. } = self;
        let mut outlet = Outlet { fib, ports, pool, made: resumed, copies: 0 };
        let copies = match captures.is_empty() {
            true => gates.run_copies(work, copies, &mut outlet, now, &mut ()),
            false => {
                let mut tap = GateTap { captures, pool, now };
                gates.run_copies(work, copies, &mut outlet, now, &mut tap)
            }
        };
        self.totals.created.copies += outlet.copies + copies.made;
        self.totals.consumed += copies.made - copies.kept;
        self.totals.created.copies += self.gates.replicate(work, &self.pool, &mut self.resumed);
    }

    /// Runs the instances at a position over the batch that was grouped last, from the stage of that number on.
    pub(crate) fn run_gates(&mut self, position: Position, stage: u16, work: &mut Work, now: Instant) {
        let Self { gates, fib, ports, pool, resumed, captures, .. } = self;
        let mut outlet = Outlet { fib, ports, pool, made: resumed, copies: 0 };
        if captures.is_empty() {
            gates.run(position, stage, work, &mut outlet, now);
        } else {
            let mut tap = GateTap { captures, pool, now };
            gates.run_watched((position, stage), work, &mut outlet, now, &mut tap);
        }
        self.totals.created.copies += outlet.copies;
    }

    pub(crate) fn forward(&mut self, work: &mut Work) {
        if self.is_tapped() {
            // Who captures sees every packet on the general way.
            work.adjacencies.all_mut().fill(NO_ADJACENCY);
        }
        work.leaving.begin();
        if !leave_known(&mut self.adjacencies, work) {
            self.decide(work);
        }
    }

    /// Decides what becomes of open packets.
    fn decide(&mut self, work: &mut Work) {
        let mut forwarder = Forwarder {
            fib: &self.fib,
            filter_routes: self.gates.routes(),
            neighbours: &mut self.neighbours,
            ports: &self.ports,
        };
        let Work { packets, keys, fates, destinations, .. } = work;
        let each = packets.iter_mut().zip(fates.all_mut()).enumerate();
        for (index, (packet, fate)) in each.filter(|(_, (_, fate))| fate.is_open()) {
            let decision = forwarder.decide(packet, &keys[index]);
            *fate = decision.fate;
            destinations[index] = decision.destination;
        }
    }

    /// Decides what becomes of packets that an instance kept at a gate of `queue` while their neighbour was not known.
    pub(crate) fn decide_late(&mut self, work: &mut Work) {
        let Self { fib, gates, neighbours, ports, .. } = self;
        let mut forwarder = Forwarder { fib, filter_routes: gates.routes(), neighbours, ports };
        for index in 0..work.packets.len() {
            let packet = work.packets.at_mut(index);
            let is_decided = packet.is_framed || work.destinations[index] != MacAddr::ZERO;
            if is_decided || !work.fates[index].is_open() {
                continue;
            }
            let decision = forwarder.decide(packet, &work.keys[index]);
            (work.fates[index], work.destinations[index]) = (decision.fate, decision.destination);
        }
    }

    /// Sends what the packets so far have led to: packets of the router's own, and those that waited for a neighbour.
    pub(crate) fn follow_up(&mut self, now: Instant) {
        for _ in 0..ROUNDS {
            self.act(now);
            self.take_given(now);
            let following = [&self.waited, &self.made, &self.resumed, &self.again];
            if following.iter().all(|packets| packets.is_empty()) && self.frames.is_empty() {
                return;
            }
            self.send_frames(now);
            let mut work = std::mem::take(&mut self.spare);
            let alone = self.trace.is_some();
            while fill(&mut work.packets, &mut self.waited, alone) {
                self.resume(&mut work, now);
                if self.is_traced(&work) {
                    self.go_on_traced(&mut work, now);
                    continue;
                }
                self.forward(&mut work);
                self.dispose(&mut work, now);
            }
            while fill(&mut work.packets, &mut self.made, false) {
                self.start_own(&mut work, now);
                self.classify(&mut work, now);
                self.travel(&mut work, now);
            }
            while fill(&mut work.packets, &mut self.again, alone) {
                self.start_again(&mut work, now);
                self.classify(&mut work, now);
                self.travel(&mut work, now);
            }
            while fill(&mut work.packets, &mut self.resumed, false) {
                self.resume(&mut work, now);
                self.find_paths(&mut work);
                self.gates.group(&mut work);
                self.forward(&mut work);
                self.run_gates(Position::Queue, 0, &mut work, now);
                self.dispose(&mut work, now);
            }
            self.spare = work;
        }
    }

    /// Packets that the router made: they have no link header yet, and no port they came by.
    fn start_own(&mut self, work: &mut Work, now: Instant) {
        work.begin();
        for index in 0..work.packets.len() {
            let packet = work.packets.at_mut(index);
            packet.port = ROUTER;
            packet.set_network(0);
            let ether_type = match packet.data().first().map(|first| first >> 4) {
                Some(6) => EtherType::IPV6,
                _ => EtherType::IPV4,
            };
            self.read(work, index, ether_type, now);
        }
    }

    /// Finds the paths of copies: at gates of `queue` they meet what the packets met from which they were made.
    fn find_paths(&mut self, work: &mut Work) {
        if !self.gates.is_bound() {
            return;
        }
        for index in (0..work.packets.len()).filter(|index| work.fates[*index].is_open()) {
            let has_route = self.fib.lookup(work.keys[index].destination()).is_some();
            let priority = has_route.then_some(self.options.route_priority);
            work.paths[index] = self.gates.classify(&work.candidate(index), priority).path;
        }
    }

    /// Packets that waited for a neighbour, and copies: parsed and treated before, to be routed again.
    fn resume(&mut self, work: &mut Work, now: Instant) {
        work.begin();
        for index in 0..work.packets.len() {
            let packet = work.packets.at_mut(index);
            let (port, tag) = (packet.port, packet.tag);
            let ether_type = match packet.network().first().map(|first| first >> 4) {
                Some(6) => EtherType::IPV6,
                _ => EtherType::IPV4,
            };
            match self.parse(packet, ether_type, now) {
                Ok(parsed) => (work.keys[index], work.varying[index]) = (parsed.key, parsed.varying),
                Err(reason) => work.fates[index] = Fate::Drop(reason),
            }
            (packet.port, packet.tag) = (port, tag);
            if !is_filter(packet.next_hop) {
                look_up(&self.fib, packet, &work.keys[index]);
            }
        }
    }

    /// Lets what plugins have kept go on, where it is due.
    pub fn run_plugins(&mut self, now: Instant) {
        if !self.gates.plugins().is_idle() {
            self.resume_kept(now);
        }
    }

    /// Does what has fallen due: neighbours are asked again, packets have waited too long.
    pub fn run_timers(&mut self, now: Instant) {
        self.from_plugins.begin(self.options.plugin_weight);
        self.run_plugins(now);
        self.own.resolver.poll(now, &mut self.own.actions);
        // What is left of these has a turn right behind this one: see `next_timer`.
        for _ in 0..EXPIRED_AT_ONCE {
            let Some(held) = self.hold.expire(now) else { break };
            self.refuse(held.packet, IcmpError::HostUnreachable, DropReason::NeighbourFailed, now);
        }
        self.keep_flows(now, true);
        self.keep_offloaded(now);
        self.follow_up(now);
    }

    /// The device and the MTU of every port.
    pub fn mtus(&self) -> impl Iterator<Item = (DeviceId, u16)> {
        self.ports.iter().map(|(_, entry)| (entry.settings.device, entry.settings.mtu))
    }

    /// When [`run_timers`](Self::run_timers) next has something to do.
    pub fn next_timer(&self, now: Instant) -> Option<Instant> {
        let flows = self.classifier.next_upkeep();
        let plugins = self.gates.plugins().next_event(now);
        let again = (!self.again.is_empty() || self.from_plugins.len() > 0).then_some(now);
        // A port whose device is full sends nothing, whatever its scheduler says.
        let ports = self.ports.iter().filter(|(_, entry)| entry.queue.is_empty());
        let queues = ports.filter_map(|(_, entry)| entry.scheduler.as_ref()?.next_ready());
        let driver = self.driver.as_ref().and_then(|driver| driver.next_event(now));
        let others = self
            .hold
            .next_event()
            .into_iter()
            .chain(flows)
            .chain(plugins)
            .chain(again)
            .chain(queues)
            .chain(driver);
        self.own.resolver.next_event().into_iter().chain(others).min()
    }

    /// Whose code the worker runs.
    pub(crate) fn pulse(&self) -> Arc<Pulse> {
        self.gates.plugins().pulse()
    }

    /// Has flows classified anew where instances that took others' places want that.
    pub(crate) fn after_succession(&mut self) {
        if self.gates.plugins_mut().take_reclassify() {
            self.classifier.changes.everything_changed();
        }
    }

    fn count_ether_type(&mut self, ether_type: EtherType) {
        if self.ether_types.len() < ETHER_TYPES || self.ether_types.contains_key(&ether_type.0) {
            *self.ether_types.entry(ether_type.0).or_default() += 1;
        }
    }

    fn tap_arrivals(&mut self, work: &Work, now: Instant) {
        for packet in work.packets.iter() {
            self.tap(packet, packet.port, Direction::Inbound, now);
        }
    }

    /// Gives captures a frame.
    #[cold]
    pub(crate) fn tap(&mut self, packet: &Packet, port: PortId, direction: Direction, now: Instant) {
        let parsed = parse_copy(packet, &self.pool);
        let candidate = parsed.map(|(parsed, copy)| parsed.candidate(&copy));
        self.captures.retain(|capture| !capture.is_abandoned());
        for capture in &mut self.captures {
            capture.offer(packet, candidate.as_ref(), port, direction, now);
        }
    }

    /// Whether anybody captures.
    #[inline]
    pub(crate) fn is_tapped(&self) -> bool {
        !self.captures.is_empty()
    }

    /// What control is to be told.
    pub(crate) fn take_event(&mut self) -> Option<Event> {
        let failure = || self.gates.plugins_mut().take_failure().map(Event::InstanceFailed);
        self.events.pop_front().or_else(failure)
    }
}

/// Moves packets into an empty batch; whether there were any. Those that are marked are to be `alone`.
fn fill(batch: &mut Batch, packets: &mut Vec<Packet>, alone: bool) -> bool {
    let mut count = packets.len().min(batch.room());
    if alone && let Some(marked) = packets.iter().take(count).position(|packet| packet.trace != 0) {
        count = marked.max(1);
    }
    for packet in packets.drain(..count) {
        // There is room for as many as were counted.
        let _ = batch.push(packet);
    }
    count > 0
}
