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

use millrace_classify::{ChangeLog, FlowAnswer, FlowIndex, Meeting, Touch};
use millrace_forward::{Adjacency, AdjacencyTable, Exit, NO_ADJACENCY, NeighbourKey, Route};
use millrace_packet::{BATCH_SIZE, Exceptions, Family, FlowKey, Packet};
use millrace_plugin::EMPTY_PATH;
use millrace_plugin_abi::Position;
use millrace_units::{Instant, PathId, PortId};
use millrace_wire::{EtherType, MacAddr};

use crate::classify::Classifier;
use crate::dispose::link_header;
use crate::filter_route::is_filter;
use crate::forward::alive;
use crate::gates::Gates;
use crate::parse::ROUTER;
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

/// What the express way needs of the router, and the notes on a batch.
struct Express<'a> {
    packets: &'a mut [Packet],
    keys: &'a [FlowKey; BATCH_SIZE],
    fates: &'a mut [Fate; BATCH_SIZE],
    paths: &'a mut [PathId; BATCH_SIZE],
    numbers: &'a mut [u32; BATCH_SIZE],
    states: &'a mut [u32; BATCH_SIZE],
    left: &'a mut Vec<u16>,
    leaving: &'a mut Leaving,
    adjacencies: &'a mut AdjacencyTable,
    changes: &'a ChangeLog,
    gates: &'a mut Gates,
    /// The current generation.
    generation: u32,
    /// The number of the adjacency by which the last packet has left, with what the next ones need of it.
    number: u32,
    out_port: PortId,
    exit: Exit,
    /// Packets whose flows' answers were of the current generation, and packets whose answers had to be checked.
    hits: u64,
    checked: u64,
}

impl Meeting for Express<'_> {
    #[inline(always)]
    fn meet(&mut self, index: usize, _: FlowIndex, answer: &mut FlowAnswer, state: u32) -> Option<u32> {
        let treated = match answer.path {
            EMPTY_PATH => self.leave(index, answer),
            _ => self.join(index, answer, state),
        };
        if treated.is_none() {
            self.left.push(index as u16);
        }
        treated
    }

    #[inline(always)]
    fn miss(&mut self, index: usize) {
        self.left.push(index as u16);
    }
}

impl Express<'_> {
    /// Makes the packet of a flow that is bound to nothing ready to leave; its bytes, if it does.
    #[inline(always)]
    fn leave(&mut self, index: usize, answer: &mut FlowAnswer) -> Option<u32> {
        let packet = &mut self.packets[index];
        let is_ordinary = self.fates[index].is_open()
            && answer.varying_mask == 0
            && packet.exceptions == Exceptions::NONE
            && answer.generation == self.generation
            && answer.adjacency == self.number;
        if !is_ordinary {
            return self.leave_rarely(index, answer);
        }
        let Some((start, length)) = self.exit.start(packet) else { return self.leave_rarely(index, answer) };
        self.exit.rewrite(start);
        self.hits += 1;
        packet.next_hop = answer.next_hop;
        packet.out_port = self.out_port;
        self.leaving.add(answer.next_hop, length);
        self.fates[index] = Fate::Queue;
        Some(length as u32)
    }

    /// The same for packets that are otherwise than the one before, or than most.
    #[inline(never)]
    fn leave_rarely(&mut self, index: usize, answer: &mut FlowAnswer) -> Option<u32> {
        if !self.fates[index].is_open() || answer.varying_mask != 0 {
            return None;
        }
        let packet = &mut self.packets[index];
        let adjacency = self.adjacencies.get_mut(answer.adjacency)?;
        if packet.exceptions != Exceptions::NONE || !adjacency.takes(packet) {
            return None;
        }
        if !is_right(answer, &self.keys[index], self.changes, (&mut self.hits, &mut self.checked)) {
            return None;
        }
        let length = packet.len();
        adjacency.rewrite(packet);
        packet.next_hop = answer.next_hop;
        packet.out_port = adjacency.port;
        (self.number, self.out_port, self.exit) = (answer.adjacency, adjacency.port, adjacency.exit());
        self.leaving.turn_to(adjacency.port);
        self.leaving.add(answer.next_hop, packet.len());
        self.fates[index] = Fate::Queue;
        Some(length as u32)
    }

    /// Has the packet of a bound flow join those of its path; its bytes, if it does. What is left to be said of it is said behind
    /// its instances.
    #[inline(never)]
    fn join(&mut self, index: usize, answer: &mut FlowAnswer, state: u32) -> Option<u32> {
        let path = answer.path;
        let joins = self.fates[index].is_open()
            && answer.varying_mask == 0
            && self.adjacencies.get_mut(answer.adjacency).is_some()
            && (self.gates.groups.is_last(path) || self.gates.plugins().is_through(path))
            && is_right(answer, &self.keys[index], self.changes, (&mut self.hits, &mut self.checked));
        if !joins {
            return None;
        }
        let packet = &mut self.packets[index];
        packet.next_hop = answer.next_hop;
        (self.paths[index], self.numbers[index]) = (path, answer.adjacency);
        if self.gates.plugins().keeps_states() {
            self.states[index] = state;
        }
        self.gates.groups.join(path, index, packet.len());
        if packet.counts_for == EMPTY_PATH {
            packet.counts_for = path;
        }
        Some(packet.len() as u32)
    }
}

/// Whether no change since the answer of a record was last known to be right concerns the flow. If so, it is known to be right now.
#[inline]
fn is_right(
    answer: &mut FlowAnswer,
    key: &FlowKey,
    changes: &ChangeLog,
    (hits, checked): (&mut u64, &mut u64),
) -> bool {
    if answer.generation == changes.current() {
        *hits += 1;
        return true;
    }
    let is_right = changes.touches(key, answer.generation) == Touch::Nothing;
    if is_right {
        answer.generation = changes.current();
        *checked += 1;
    }
    is_right
}

impl Router {
    /// Makes the packets of known flows ready to leave, or has them join those of their paths; whether those were all.
    #[inline]
    pub(crate) fn express(&mut self, work: &mut Work, now: Instant) -> bool {
        self.classifier.begin(work, self.options.new_flows);
        let Self { classifier, adjacencies, gates, .. } = self;
        let Classifier { flows, changes, counts, .. } = classifier;
        let count = work.packets.len().min(BATCH_SIZE);
        work.left.clear();
        work.leaving.begin();
        let mut express = Express {
            packets: &mut work.packets,
            keys: &work.keys,
            fates: &mut work.fates,
            paths: &mut work.paths,
            numbers: &mut work.adjacencies,
            states: &mut work.states,
            left: &mut work.left,
            leaving: &mut work.leaving,
            adjacencies,
            generation: changes.current(),
            changes,
            gates,
            number: NO_ADJACENCY,
            out_port: PortId::NONE,
            exit: Exit::NONE,
            hits: 0,
            checked: 0,
        };
        let flows_of = (&work.keys[..count], &work.hashes[..count]);
        flows.meet_batch(flows_of, &mut work.flows[..count], now, &mut express);
        counts.hits += express.hits;
        counts.checked += express.checked;
        work.left.is_empty()
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
