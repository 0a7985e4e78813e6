//! Router of a worker: its tables, and the pipeline that takes a batch through the stages.

pub(crate) mod pending;
mod timers;

use std::sync::Arc;

use millrace_classify::FlowTableError;
use millrace_forward::{FibReader, NO_ADJACENCY};
use millrace_packet::{Arrivals, BATCH_SIZE, Batch, DropReason, Packet, Pool};
use millrace_plugin::Pulse;
use millrace_plugin_abi::Position;
use millrace_units::{Instant, PortId};
use millrace_wire::{EtherType, MacAddr};

use crate::classify::Classifier;
use crate::driver_flows::DriverFlows;
use crate::egress::errors::IcmpErrors;
use crate::egress::ports::{DeviceId, PortTable};
use crate::fast_path::express::leave_known;
use crate::fast_path::plain::read_plain;
use crate::forward::Forwarder;
use crate::forward::filter_route::is_filter;
use crate::forward::route::{admit, look_up};
use crate::forward::tables::ForwardingTables;
use crate::gates::{Gates, Outlet};
use crate::ingress::parse::{Parsed, ROUTER, parse, parse_copy};
use crate::ingress::receive::receive;
use crate::observe::Observation;
use crate::observe::capture::{Direction, GateTap};
use crate::observe::event::Event;
use crate::observe::trace::Pick;
use crate::options::Options;
use crate::punt::Punt;
use crate::router::pending::Pending;
use crate::router::pending::Scratch;
use crate::work::{Fate, Work};
use crate::worker::handover::Handover;

/// Maximum number of EtherTypes with a counter of their own.
const ETHER_TYPES: usize = 64;
/// Maximum number of passes over router-made packets in one call of [`Router::follow_up`]; further packets
/// wait for the next iteration.
const ROUNDS: usize = 4;
/// Maximum number of held packets that an iteration refuses because their wait has timed out.
const EXPIRED_AT_ONCE: usize = 64;

/// Forwarding state of a worker: the state of each stage, and all tables between the devices.
pub struct Router {
    pub(crate) pool: Pool,
    pub(crate) seed: u64,
    pub(crate) options: Options,
    pub(crate) ports: PortTable,
    pub(crate) classifier: Classifier,
    pub(crate) gates: Gates,
    pub(crate) forwarding: ForwardingTables,
    pub(crate) punt: Punt,
    pub(crate) errors: IcmpErrors,
    /// Offloaded flows; `None` without offload.
    pub(crate) driver: Option<Box<DriverFlows>>,
    /// Rings to and from other workers; `None` with a single worker.
    pub(crate) handover: Option<Box<Handover>>,
    pub(crate) observation: Observation,
    pub(crate) pending: Pending,
    pub(crate) scratch: Scratch,
    /// Last batch that the worker received, and its ingress device; `None` for a batch from another worker.
    pub(crate) arrivals: (Arrivals, Option<DeviceId>),
}

impl Observation {
    fn count_ether_type(&mut self, ether_type: EtherType) {
        if self.ether_types.len() < ETHER_TYPES || self.ether_types.contains_key(&ether_type.0) {
            *self.ether_types.entry(ether_type.0).or_default() += 1;
        }
    }

    /// Returns whether any capture is running.
    #[inline]
    pub(crate) fn is_tapped(&self) -> bool {
        !self.captures.is_empty()
    }
}

impl Router {
    /// Returns a router without ports that looks up routes in `prefixes`. `seed` keys its hashes, and should
    /// be random.
    ///
    /// # Errors
    /// When the kernel maps no memory for the flow table.
    pub fn new(pool: Pool, prefixes: FibReader, seed: u64) -> Result<Self, FlowTableError> {
        Ok(Self {
            seed,
            options: Options::default(),
            ports: PortTable::default(),
            classifier: Classifier::new(&Options::default(), seed)?,
            gates: Gates::default(),
            forwarding: ForwardingTables::new(prefixes, pool.capacity(), seed),
            punt: Punt::new(seed),
            errors: IcmpErrors::new(seed),
            driver: None,
            handover: None,
            observation: Observation::default(),
            pending: Pending::default(),
            scratch: Scratch::default(),
            arrivals: (Arrivals::new(pool.clone()), None),
            pool,
        })
    }

    /// Takes a batch received by `device` through all stages. Afterwards `work` holds no packets.
    pub fn process(&mut self, device: DeviceId, work: &mut Work, now: Instant) {
        // The counter may be below zero: cleared counters leave out packets that other workers have received.
        self.observation.totals.received =
            self.observation.totals.received.wrapping_add(work.packets.len() as u64);
        self.arrivals.0.note(&work.packets);
        self.arrivals.1 = Some(device);
        work.begin();
        // Captures see packets on the general path only.
        let tapped = self.observation.is_tapped();
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
                self.observation.count_ether_type(link.ether_type);
            }
        }
        work.left = others;
        if tapped {
            self.tap_arrivals(work, now);
        }
        if let Some(tracer) = &mut self.observation.trace
            && !tracer.passes(work.packets.len())
        {
            return self.journey_watched(work, Pick::Chosen, now);
        }
        if self.handover.is_some() {
            self.steer(work);
        }
        self.journey(work, now);
    }

    /// Runs the stages from classify on, then all packets that they create or release.
    pub(crate) fn journey(&mut self, work: &mut Work, now: Instant) {
        self.stages(work, now);
        self.follow_up(now);
        self.keep_flows(now, false);
    }

    /// Runs the stages from classify on.
    #[inline(always)]
    pub(crate) fn stages(&mut self, work: &mut Work, now: Instant) {
        match self.settle(work, now) {
            true => self.leave(work, now),
            false => self.dispose(work, now),
        }
    }

    /// Runs the stages from classify up to dispose, which settle the fates of the packets. Returns whether
    /// all packets (except those [aside](Work::aside)) are finished frames that
    /// [`Leaving`](crate::work::Leaving) has counted.
    #[inline(always)]
    pub(crate) fn settle(&mut self, work: &mut Work, now: Instant) -> bool {
        self.gates.groups.begin();
        let is_bare = !self.classifier.remembers() && !self.observation.is_tapped() && self.leave_bare(work);
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

    /// Takes packets of known flows through the instances at gates of `early` and `late`. Returns whether all
    /// packets are finished frames.
    fn settle_bound(&mut self, work: &mut Work, now: Instant) -> bool {
        if self.gates.looks_at_packets() {
            work.note_keys();
        }
        self.run_gates(Position::Early, 0, work, now);
        self.run_gates(Position::Late, 0, work, now);
        if !leave_known(&mut self.forwarding.adjacencies, work) {
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

    /// Runs the parse stage for one packet.
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
                    // A group link address forbids forwarding, and flow records don't contain link addresses.
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

    /// Parses a packet. A later fragment gets the ports of the first one, and so its flow.
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

    /// Runs the stages from the first gate to the queue.
    pub(crate) fn travel(&mut self, work: &mut Work, now: Instant) {
        self.travel_from(work, Position::Early, 0, now);
    }

    /// Continues packets at stage number `stage` of a position, up to the queue.
    pub(crate) fn travel_from(&mut self, work: &mut Work, position: Position, stage: u16, now: Instant) {
        if self.observation.is_traced(work) {
            return self.travel_traced(work, position, stage, now);
        }
        self.settle_from(work, position, stage, now);
        self.dispose(work, now);
    }

    /// Settles the fates of packets from a position and stage number on, without disposing of them.
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
                // Not for packets that waited: `work` holds no flow records for them.
                self.note_adjacencies(work);
                self.offer_to_driver(work, now);
            }
        }
        self.run_gates(Position::Queue, from(Position::Queue), work, now);
        if position == Position::Queue {
            self.decide_late(work);
        }
    }

    /// Makes the copies that filters request, and gives copies at `copy` gates to the instances there.
    #[inline]
    pub(crate) fn make_copies(&mut self, work: &Work, now: Instant) {
        let Self {
            gates,
            ports,
            pool,
            scratch: Scratch { copies, .. },
            forwarding: ForwardingTables { fib, .. },
            pending: Pending { resumed, .. },
            observation: Observation { captures, .. },
            ..
        } = self;
        let mut outlet = Outlet { fib, ports, pool, made: resumed, copies: 0 };
        let copies = match captures.is_empty() {
            true => gates.run_copies(work, copies, &mut outlet, now, &mut ()),
            false => {
                let mut tap = GateTap { captures, pool, now };
                gates.run_copies(work, copies, &mut outlet, now, &mut tap)
            }
        };
        self.observation.totals.created.copies += outlet.copies + copies.made;
        self.observation.totals.consumed += copies.made - copies.kept;
        self.observation.totals.created.copies +=
            self.gates.replicate(work, &self.pool, &mut self.pending.resumed);
    }

    /// Runs the instances at a position over the batch that was grouped last, from stage number `stage` on.
    pub(crate) fn run_gates(&mut self, position: Position, stage: u16, work: &mut Work, now: Instant) {
        let Self {
            gates,
            ports,
            pool,
            forwarding: ForwardingTables { fib, .. },
            pending: Pending { resumed, .. },
            observation: Observation { captures, .. },
            ..
        } = self;
        let mut outlet = Outlet { fib, ports, pool, made: resumed, copies: 0 };
        if captures.is_empty() {
            gates.run(position, stage, work, &mut outlet, now);
        } else {
            let mut tap = GateTap { captures, pool, now };
            gates.run_watched((position, stage), work, &mut outlet, now, &mut tap);
        }
        self.observation.totals.created.copies += outlet.copies;
    }

    pub(crate) fn forward(&mut self, work: &mut Work) {
        if self.observation.is_tapped() {
            // Captures see packets on the general path only.
            work.adjacencies.all_mut().fill(NO_ADJACENCY);
        }
        work.leaving.begin();
        if !leave_known(&mut self.forwarding.adjacencies, work) {
            self.decide(work);
        }
    }

    /// Decides the fates of open packets: their routes, egress ports and link addresses.
    fn decide(&mut self, work: &mut Work) {
        let mut forwarder = Forwarder {
            fib: &self.forwarding.fib,
            filter_routes: self.gates.routes(),
            neighbours: &mut self.forwarding.neighbours,
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

    /// Decides the fates of packets that an instance kept at a gate of `queue` while their neighbour was
    /// unknown.
    pub(crate) fn decide_late(&mut self, work: &mut Work) {
        let Self { gates, ports, forwarding: ForwardingTables { fib, neighbours, .. }, .. } = self;
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

    /// Forwards the packets that earlier packets caused: packets made by the router, and packets released
    /// from a wait.
    pub(crate) fn follow_up(&mut self, now: Instant) {
        for _ in 0..ROUNDS {
            self.act(now);
            self.take_given(now);
            if self.pending.is_empty() && self.punt.frames.is_empty() {
                return;
            }
            self.send_frames(now);
            let mut work = std::mem::take(&mut self.scratch.spare);
            let alone = self.observation.trace.is_some();
            while fill(&mut work.packets, &mut self.pending.waited, alone) {
                self.resume(&mut work, now);
                if self.observation.is_traced(&work) {
                    self.go_on_traced(&mut work, now);
                    continue;
                }
                self.forward(&mut work);
                self.dispose(&mut work, now);
            }
            while fill(&mut work.packets, &mut self.pending.made, false) {
                self.start_own(&mut work, now);
                self.classify(&mut work, now);
                self.travel(&mut work, now);
            }
            while fill(&mut work.packets, &mut self.pending.again, alone) {
                self.start_again(&mut work, now);
                self.classify(&mut work, now);
                self.travel(&mut work, now);
            }
            while fill(&mut work.packets, &mut self.pending.resumed, false) {
                self.resume(&mut work, now);
                self.find_paths(&mut work);
                self.gates.group(&mut work);
                self.forward(&mut work);
                self.run_gates(Position::Queue, 0, &mut work, now);
                self.dispose(&mut work, now);
            }
            self.scratch.spare = work;
        }
    }

    /// Parses packets made by the router, which have neither a link header nor an ingress port.
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

    /// Finds the paths of copies: at gates of `queue`, a copy passes the same instances as its original.
    fn find_paths(&mut self, work: &mut Work) {
        if !self.gates.is_bound() {
            return;
        }
        for index in (0..work.packets.len()).filter(|index| work.fates[*index].is_open()) {
            let has_route = self.forwarding.fib.lookup(work.keys[index].destination()).is_some();
            let priority = has_route.then_some(self.options.route_priority);
            work.paths[index] = self.gates.classify(&work.candidate(index), priority).path;
        }
    }

    /// Parses copies and formerly held packets again, and looks up their routes.
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
                look_up(&self.forwarding.fib, packet, &work.keys[index]);
            }
        }
    }

    /// Returns the device and the MTU of every port.
    pub fn mtus(&self) -> impl Iterator<Item = (DeviceId, u16)> {
        self.ports.iter().map(|(_, entry)| (entry.settings.device, entry.settings.mtu))
    }

    /// Returns the record of the plugin code that the worker currently runs.
    pub(crate) fn pulse(&self) -> Arc<Pulse> {
        self.gates.plugins().pulse()
    }

    /// Invalidates the flow records if a replaced instance requires reclassification.
    pub(crate) fn after_succession(&mut self) {
        if self.gates.plugins_mut().take_reclassify() {
            self.classifier.changes.everything_changed();
        }
    }

    fn tap_arrivals(&mut self, work: &Work, now: Instant) {
        for packet in work.packets.iter() {
            self.tap(packet, packet.port, Direction::Inbound, now);
        }
    }

    /// Offers a frame to all captures.
    #[cold]
    pub(crate) fn tap(&mut self, packet: &Packet, port: PortId, direction: Direction, now: Instant) {
        let parsed = parse_copy(packet, &self.pool);
        let candidate = parsed.map(|(parsed, copy)| parsed.candidate(&copy));
        self.observation.captures.retain(|capture| !capture.is_abandoned());
        for capture in &mut self.observation.captures {
            capture.offer(packet, candidate.as_ref(), port, direction, now);
        }
    }

    /// Returns the next event for control.
    pub(crate) fn take_event(&mut self) -> Option<Event> {
        let failure = || self.gates.plugins_mut().take_failure().map(Event::InstanceFailed);
        self.observation.events.pop_front().or_else(failure)
    }
}

/// Moves packets into an empty batch. Returns whether there were any. With `alone`, each traced packet gets a
/// batch of its own.
fn fill(batch: &mut Batch, packets: &mut Vec<Packet>, alone: bool) -> bool {
    let mut count = packets.len().min(batch.room());
    if alone && let Some(marked) = packets.iter().take(count).position(|packet| packet.trace != 0) {
        count = marked.max(1);
    }
    for packet in packets.drain(..count) {
        // Never fails: `count` is at most the batch's room.
        let _ = batch.push(packet);
    }
    count > 0
}
