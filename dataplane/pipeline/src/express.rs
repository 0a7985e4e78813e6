//! The express way of known flows: their packets go from the flow table straight to the queue of the port that they leave by,
//! or, when their flow is bound, by way of its instances.
//!
//! A packet that is forwarded to a neighbour that is known, by another port than it came in by, leaves the number of an
//! adjacency with its flow's record. Where there is such a number, no field that varies inside of the flow matters, and all
//! instances of its path stand at gates of `early` and `late`, its packets need the record, the adjacency, their own headers,
//! and the instances. One that an instance sends elsewhere, or that is exceptional, or too long, takes the general way,
//! which defines what becomes of a packet.
//!
//! The number is void once something has changed that the adjacency depends on; the record's generation says the same of all
//! that the answer depends on.

use millrace_classify::{FlowAnswer, FlowIndex, Meeting, Sought};
use millrace_forward::{Adjacency, AdjacencyTable, Exit, NO_ADJACENCY, NeighbourKey, Route};
use millrace_packet::{BATCH_SIZE, Exceptions, Family, FlowKey, Packet};
use millrace_plugin::EMPTY_PATH;
use millrace_plugin_abi::Position;
use millrace_units::{Amount, Instant, NextHopIndex, PortId};
use millrace_wire::{EtherType, MacAddr};

use crate::classify::Classifier;
use crate::dispose::link_header;
use crate::filter_route::is_filter;
use crate::forward::alive;
use crate::parse::ROUTER;
use crate::route::NO_ROUTE;
use crate::router::Router;
use crate::work::{Fate, Leaving, Work};

/// Makes a packet ready to leave by the adjacency of its flow, unless something about it is to be looked at on the general
/// way; whether it did.
#[inline]
pub(crate) fn leaves_by(adjacency: &mut Adjacency, packet: &mut Packet) -> bool {
    // An instance may have sent it elsewhere.
    let is_sent_on =
        packet.exceptions == Exceptions::NONE && !is_filter(packet.next_hop) && adjacency.takes(packet);
    if is_sent_on {
        packet.out_port = adjacency.port;
        adjacency.rewrite(packet);
    }
    is_sent_on
}

/// Packets of a batch that leave as most do: of flows that are bound to nothing, whose records are right, by an adjacency that
/// takes them. What the last of them needed is at hand for the next.
struct Leave<'a> {
    adjacencies: &'a mut AdjacencyTable,
    leaving: &'a mut Leaving,
    /// The current generation.
    generation: u32,
    /// The number of the adjacency, with what packets need of it.
    number: u32,
    out_port: PortId,
    exit: Exit,
    /// The route that they count with, and what does so far.
    route: NextHopIndex,
    amount: Amount,
    /// Packets before those.
    before: u64,
}

impl Leave<'_> {
    /// Counts what leaves.
    #[inline(always)]
    fn settle(&mut self) {
        let amount = std::mem::take(&mut self.amount);
        if amount.packets > 0 {
            self.before += amount.packets;
            self.leaving.add(self.out_port, self.route, amount);
            if let Some(adjacency) = self.adjacencies.get_mut(self.number) {
                adjacency.note_use();
            }
        }
    }

    /// Turns to another adjacency, if the number is that of one, and to the route that its packets count with.
    #[inline(always)]
    fn turn_to(&mut self, number: u32, route: NextHopIndex) -> Option<()> {
        self.settle();
        self.route = route;
        if self.number != number {
            let adjacency = self.adjacencies.get_mut(number)?;
            (self.number, self.out_port, self.exit) = (number, adjacency.port, adjacency.exit());
        }
        Some(())
    }
}

impl<'p> Meeting<(&'p mut Packet, &'p mut Fate)> for Leave<'_> {
    #[inline(always)]
    fn meet(&mut self, (packet, fate): (&'p mut Packet, &'p mut Fate), answer: &FlowAnswer) -> Option<u32> {
        let is_right = fate.is_open()
            && answer.path == EMPTY_PATH
            && answer.varying_mask == 0
            && answer.generation == self.generation;
        if !is_right {
            return None;
        }
        if answer.adjacency != self.number || answer.next_hop != self.route {
            self.turn_to(answer.adjacency, answer.next_hop)?;
        }
        let start = self.exit.start(packet)?;
        if start.annotations.exceptions != Exceptions::NONE {
            return None;
        }
        (start.annotations.out_port, start.annotations.next_hop) = (self.out_port, answer.next_hop);
        self.exit.rewrite(start.bytes);
        self.amount += Amount::packet(start.length);
        *fate = Fate::Queue;
        Some(start.length as u32)
    }
}

impl Router {
    /// Makes the packets of known flows ready to leave, or has them join those of their paths; whether those were all. The others are
    /// left.
    #[inline]
    pub(crate) fn express(&mut self, work: &mut Work, now: Instant) -> bool {
        self.classifier.begin(work, self.options.new_flows);
        let Self { classifier, adjacencies, .. } = self;
        let Classifier { flows, changes, counts, .. } = classifier;
        let count = work.packets.len().min(BATCH_SIZE);
        work.left.clear();
        work.leaving.begin();
        let leave = Leave {
            adjacencies,
            leaving: &mut work.leaving,
            generation: changes.current(),
            number: NO_ADJACENCY,
            out_port: PortId::NONE,
            exit: Exit::NONE,
            route: NO_ROUTE,
            amount: Amount::default(),
            before: 0,
        };
        let sought =
            Sought { nears: &work.nears[..count], keys: &work.keys[..count], hashes: &work.hashes[..count] };
        let places = work.packets.iter_mut().zip(work.fates.iter_mut());
        let rest = (leave, &mut work.left);
        let mut leave = flows.meet_batch(sought, &mut work.flows[..count], places, now, rest);
        leave.settle();
        counts.hits += leave.before;
        if !work.left.is_empty() {
            let mut left = std::mem::take(&mut work.left);
            left.retain(|index| !self.express_one(work, usize::from(*index), now));
            work.left = left;
        }
        work.left.is_empty()
    }

    /// The same for a packet that does not leave as most do; whether it takes the express way.
    fn express_one(&mut self, work: &mut Work, index: usize, now: Instant) -> bool {
        let Some(flow) = work.flows[index].filter(|_| work.fates[index].is_open()) else { return false };
        let answer = self.classifier.flows.record(flow).answer;
        let Some(adjacency) = self.adjacencies.get_mut(answer.adjacency) else { return false };
        let packet = &mut work.packets[index];
        let takes_it = match answer.path {
            EMPTY_PATH => packet.exceptions == Exceptions::NONE && adjacency.takes(packet),
            // What is left to be said of the packet is said behind its instances.
            path => self.gates.groups.is_last(path) || self.gates.plugins().is_through(path),
        };
        if answer.varying_mask != 0 || !takes_it {
            return false;
        }
        work.complete(index);
        if answer.generation == self.classifier.changes.current() {
            self.classifier.counts.hits += 1;
        } else if !self.classifier.is_still_right(flow, &work.keys[index]) {
            return false;
        }
        let packet = &mut work.packets[index];
        self.classifier.flows.touch(flow, packet.len() as u32, now);
        packet.next_hop = answer.next_hop;
        if answer.path != EMPTY_PATH {
            (work.paths[index], work.adjacencies[index]) = (answer.path, answer.adjacency);
            if self.gates.plugins().keeps_states() {
                work.states[index] = self.classifier.flows.state(flow);
            }
            self.gates.groups.join(answer.path, index, packet.len());
            if packet.counts_for == EMPTY_PATH {
                packet.counts_for = answer.path;
            }
            return true;
        }
        adjacency.rewrite(packet);
        packet.out_port = adjacency.port;
        work.leaving.add(adjacency.port, answer.next_hop, Amount::packet(packet.len()));
        work.fates[index] = Fate::Queue;
        true
    }

    /// Notes with the records of flows, or with routes where there are none, how their packets leave, as it was found out for
    /// packets of this batch.
    pub(crate) fn note_adjacencies(&mut self, work: &Work) {
        for (index, packet) in work.packets.iter().enumerate() {
            let is_sent_on = work.fates[index] == Fate::Forward
                && packet.exceptions == Exceptions::NONE
                && packet.port != ROUTER
                && packet.port != packet.out_port
                && !is_filter(packet.next_hop);
            if !is_sent_on {
                continue;
            }
            let (key, destination) = (&work.keys[index], work.destinations[index]);
            if !self.classifier.remembers() {
                if let Some(number) = self.adjacency_of(packet, key, destination) {
                    self.note_bare(packet.next_hop, key.family(), number);
                }
            } else if let Some(flow) = work.flows[index] {
                self.note_adjacency(packet, key, flow, destination);
            }
        }
    }

    fn note_adjacency(&mut self, packet: &Packet, key: &FlowKey, flow: FlowIndex, destination: MacAddr) {
        let answer = self.classifier.flows.record(flow).answer;
        let is_right = answer.generation == self.classifier.changes.current()
            && answer.next_hop == packet.next_hop
            && !self.gates.plugins().has_stages(answer.path, Position::Queue);
        if !is_right || self.adjacencies.get_mut(answer.adjacency).is_some() {
            return;
        }
        if let Some(number) = self.adjacency_of(packet, key, destination) {
            self.classifier.flows.answer_mut(flow).adjacency = number;
        }
    }

    /// The number of the adjacency by which a packet leaves, by the route that is noted on it.
    fn adjacency_of(&mut self, packet: &Packet, key: &FlowKey, destination: MacAddr) -> Option<u32> {
        let out = self.ports.get(packet.out_port).filter(|out| out.is_here)?;
        let Route::Forward(hops) = self.fib.route(packet.next_hop) else { return None };
        let neighbour = alive(hops, packet.hash, &self.ports).neighbour(key.destination());
        let neighbour = NeighbourKey { port: packet.out_port, address: neighbour };
        let ether_type = if key.family() == Family::V4 { EtherType::IPV4 } else { EtherType::IPV6 };
        let made = || {
            let header = link_header(&out.settings, destination, ether_type);
            Adjacency::new(packet.out_port, out.settings.mtu, key.family(), header)
        };
        self.adjacencies.intern(neighbour, key.family(), made)
    }

    /// Has every flow take the general way once, because something has changed that adjacencies depend on.
    pub(crate) fn forget_adjacencies(&mut self) {
        let Self { adjacencies, neighbours, classifier, bare, .. } = self;
        // Who looks up a neighbour says that it is used.
        if adjacencies.forget(|key| _ = neighbours.lookup(key.port, key.address)) {
            classifier.changes.everything_changed();
            bare.forget_all();
        }
    }
}
