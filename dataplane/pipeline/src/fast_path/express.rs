//! Fast path of known flows: from the flow table straight to the queue of the egress port, or through the
//! instances of bound flows first.
//!
//! When the router forwards a packet to a resolved neighbour at another port, it stores the adjacency's
//! number in the flow record. Later packets take the fast path under two conditions: no filter distinguishes
//! packets of the flow, and all instances of its path are at gates of positions `early` and `late`. Such a
//! packet needs only the record, the adjacency, its own headers and the instances. Packets that an instance
//! redirects, that have exceptions, or that exceed the MTU take the general path, which defines the treatment
//! of all packets.
//!
//! The adjacency number becomes invalid when a change affects the adjacency. The generation of the flow
//! record covers all changes that affect the rest of the record.

use std::ops::Range;

use millrace_classify::{FlowAnswer, FlowRecord, Meeting, Sought};
use millrace_forward::{AdjacencyTable, Exit, NO_ADJACENCY, START};
use millrace_packet::{BATCH_SIZE, Exceptions, Packet, Start};
use millrace_plugin::{EMPTY_PATH, WorkerPlugins};
use millrace_units::{Amount, Instant, NextHopIndex, PathId, PortId};

use super::FastPath;
use crate::classify::Classifier;
use crate::gate_tables::WorkerTable;
use crate::gates::groups::Groups;
use crate::route_number::NO_ROUTE;
use crate::work::{Alike, BriefReading, Fate, Leaving, Work};

/// Loop of the fast path over packets whose flow records are current. Packets of unbound flows leave by their
/// adjacency; packets of bound flows join the group of their path. The adjacency of one packet is kept for
/// the next packet, which usually has the same one.
///
/// Without `BOUND`, the loop handles no groups, and takes fewer registers. With `PLAIN`, all packets are
/// [`PLAIN`](Alike::Plain), and the loop skips the checks that they have already passed.
struct Leave<'a, const BOUND: bool, const PLAIN: bool> {
    joining: Joining<'a>,
    adjacencies: &'a mut AdjacencyTable,
    leaving: &'a mut Leaving,
    /// Value of [`FlowAnswer::validity`] in a record of the current generation, if no filter distinguishes
    /// the flow's packets by varying fields.
    validity: u64,
    /// Number of the current run's adjacency. The next two fields are its egress port and exit.
    number: u32,
    out_port: PortId,
    exit: Exit,
    /// Route that accounts for the current run: successive packets with the same adjacency and route.
    route: NextHopIndex,
    /// Route and adjacency number of the current run, in one word.
    way: u64,
    /// Packets and bytes of the current run so far.
    amount: Amount,
    /// Number of packets in earlier runs.
    before: u64,
}

impl<const BOUND: bool, const PLAIN: bool> Leave<'_, BOUND, PLAIN> {
    /// Ends the current run, and counts its packets.
    #[inline(always)]
    fn settle(&mut self) {
        let amount = std::mem::take(&mut self.amount);
        if amount.packets > 0 {
            self.before += amount.packets;
            self.leaving.add(self.out_port, (self.route, EMPTY_PATH), amount);
            if let Some(adjacency) = self.adjacencies.get_mut(self.number) {
                adjacency.note_use();
            }
        }
    }

    /// Starts a run with the adjacency and route in a flow record. Returns `None` if the adjacency number is
    /// invalid.
    #[inline(never)]
    fn turn_to(&mut self, answer: &FlowAnswer) -> Option<()> {
        self.settle();
        let number = answer.adjacency;
        if self.number != number {
            let adjacency = self.adjacencies.get_mut(number)?;
            (self.number, self.out_port, self.exit) = (number, adjacency.port, adjacency.exit());
        }
        (self.route, self.way) = (answer.next_hop, answer.way());
        Some(())
    }

    /// Returns the first bytes of a packet that leaves by the current adjacency; `None` if the adjacency does
    /// not accept the packet.
    #[inline(always)]
    fn start<'p>(&self, packet: &'p mut Packet) -> Option<Start<'p, START>> {
        if PLAIN {
            return self.exit.start_plain(packet);
        }
        self.exit.start(packet).filter(|start| start.annotations.exceptions == Exceptions::NONE)
    }
}

/// Packets of a batch whose flows are bound at gates of positions `early` and `late` only. Their TTL and link
/// header are set after the instances have run.
struct Joining<'a> {
    plugins: &'a WorkerPlugins<WorkerTable>,
    keeps_states: bool,
    groups: &'a mut Groups,
    /// Results of the stages for each packet.
    paths: &'a mut [PathId; BATCH_SIZE],
    numbers: &'a mut [u32; BATCH_SIZE],
    states: &'a mut [u32; BATCH_SIZE],
    run: Run,
    /// Number of packets in earlier runs.
    before: u64,
}

/// Run: successive packets of a batch with the same path and adjacency.
struct Run {
    path: PathId,
    number: u32,
    indices: Range<usize>,
    bytes: u64,
}

impl Run {
    const NONE: Self = Self { path: EMPTY_PATH, number: NO_ADJACENCY, indices: 0..0, bytes: 0 };
}

impl Joining<'_> {
    /// Adds a packet to the group of its path, if its adjacency and path permit the fast path. Returns the
    /// packet's length in bytes, or `None` if they don't.
    #[inline(always)]
    fn join(
        &mut self,
        adjacencies: &mut AdjacencyTable,
        (index, packet): (usize, &mut Packet),
        record: &FlowRecord,
    ) -> Option<u32> {
        let FlowAnswer { path, adjacency, next_hop, .. } = record.answer;
        if path != self.run.path || adjacency != self.run.number || index != self.run.indices.end {
            self.turn_to(adjacencies, (path, adjacency), index)?;
        }
        let bytes = packet.len();
        self.run.indices.end = index + 1;
        self.run.bytes += bytes as u64;
        packet.next_hop = next_hop;
        if packet.counts_for == EMPTY_PATH {
            packet.counts_for = path;
        }
        if self.keeps_states {
            self.states[index] = record.state();
        }
        Some(bytes as u32)
    }

    /// Starts another run with the packet at `index`. Returns `None` if its path or adjacency does not permit
    /// the fast path.
    #[inline(never)]
    fn turn_to(
        &mut self,
        adjacencies: &mut AdjacencyTable,
        (path, number): (PathId, u32),
        index: usize,
    ) -> Option<()> {
        adjacencies.get_mut(number).filter(|_| self.plugins.paths.is_through(path))?;
        self.settle();
        self.run = Run { path, number, indices: index..index, bytes: 0 };
        Some(())
    }

    /// Adds the packets of the run to the group of their path.
    fn settle(&mut self) {
        let Run { path, number, indices, bytes } = std::mem::replace(&mut self.run, Run::NONE);
        if !indices.is_empty() {
            self.before += indices.len() as u64;
            self.paths[indices.clone()].fill(path);
            self.numbers[indices.clone()].fill(number);
            self.groups.join_all(path, indices, bytes);
        }
    }
}

impl<const BOUND: bool, const PLAIN: bool> Meeting<Packet, Fate> for Leave<'_, BOUND, PLAIN> {
    #[inline(always)]
    fn meet(
        &mut self,
        index: usize,
        (packet, fate): (&mut Packet, &mut Fate),
        record: &FlowRecord,
    ) -> Option<u32> {
        let answer = &record.answer;
        let is_open = PLAIN || fate.is_open();
        if !is_open || answer.validity() != self.validity {
            return None;
        }
        if answer.path != EMPTY_PATH {
            if !BOUND {
                return None;
            }
            return self.joining.join(self.adjacencies, (index, packet), record);
        }
        if answer.way() != self.way {
            self.turn_to(answer)?;
        }
        let start = self.start(packet)?;
        (start.annotations.out_port, start.annotations.next_hop) = (self.out_port, answer.next_hop);
        self.exit.rewrite(start.bytes);
        self.amount += Amount::packet(start.length);
        *fate = Fate::Queue;
        Some(start.length as u32)
    }
}

impl FastPath<'_> {
    /// Makes the packets of unbound known flows ready to leave, and adds the packets of bound known flows to
    /// the groups of their paths. Other packets stay in `work.left`. Returns whether all packets in
    /// `work.left` are [aside](Work::aside).
    #[inline]
    pub fn express(&mut self, work: &mut Work, now: Instant) -> bool {
        self.classifier.begin(work, self.options.new_flows);
        match (self.gates.is_bound(), work.reading.alike != Alike::No) {
            (true, false) => self.meet_all::<true, false>(work, now),
            (true, true) => self.meet_all::<true, true>(work, now),
            (false, false) => self.meet_all::<false, false>(work, now),
            (false, true) => self.meet_all::<false, true>(work, now),
        }
        if work.left.len() > work.aside {
            self.express_left(work, now);
        }
        // Packets aside are not for the general path either.
        work.left.len() == work.aside
    }

    /// Sends the packets whose flow records are current by the fast path, and lists all others in
    /// `work.left`.
    fn meet_all<const BOUND: bool, const PLAIN: bool>(&mut self, work: &mut Work, now: Instant) {
        let Classifier { flows, changes, counts, .. } = &mut *self.classifier;
        let adjacencies = &mut self.forwarding.adjacencies;
        let count = work.packets.len().min(BATCH_SIZE);
        work.left.clear();
        work.leaving.begin();
        let (plugins, groups) = self.gates.joining();
        let keeps_states = plugins.keeps_states();
        let has_v6 = work.reading.alike != Alike::Plain4;
        let Work {
            packets,
            reading: BriefReading { nears, .. },
            keys,
            hashes,
            flows: found,
            states,
            paths,
            adjacencies: numbers,
            fates,
            left,
            leaving,
            ..
        } = &mut *work;
        let leave = Leave::<BOUND, PLAIN> {
            joining: Joining {
                plugins,
                keeps_states,
                groups,
                paths: paths.all_mut(),
                numbers: numbers.all_mut(),
                states: states.flows.all_mut(),
                run: Run::NONE,
                before: 0,
            },
            adjacencies,
            leaving,
            validity: FlowAnswer { generation: changes.current(), ..FlowAnswer::default() }.validity(),
            number: NO_ADJACENCY,
            out_port: PortId::NONE,
            exit: Exit::NONE,
            route: NO_ROUTE,
            way: FlowAnswer { adjacency: NO_ADJACENCY, next_hop: NO_ROUTE, ..FlowAnswer::default() }.way(),
            amount: Amount::default(),
            before: 0,
        };
        let sought =
            Sought { nears: &nears[..count], keys: &keys[..count], hashes: &hashes[..count], has_v6 };
        let packets = (&mut packets[..count], &mut fates[..count]);
        let rest = (leave, left);
        let mut leave = flows.meet_batch(sought, &mut found[..count], packets, now, rest);
        leave.settle();
        leave.joining.settle();
        let joined = leave.joining.before;
        counts.hits += leave.before + joined;
        work.reading.keys_due = joined > 0;
    }

    /// Tries the fast path for each packet of `work.left`, and renews its flow record if necessary. Packets
    /// that can't take the fast path stay in `work.left`.
    fn express_left(&mut self, work: &mut Work, now: Instant) {
        let mut left = std::mem::take(&mut work.left);
        let mut in_order = true;
        left.retain(|index| {
            let index = usize::from(*index);
            let takes_it = self.express_one(work, index, now);
            let path = work.paths[index];
            if takes_it && path != EMPTY_PATH {
                in_order &= self.gates.groups.join_late(path, index, work.packets.at(index).len());
            }
            !takes_it
        });
        work.left = left;
        if !in_order {
            self.gates.group(work);
        }
    }

    /// Tries the fast path for a batch of one packet, whose flow key is complete. Returns whether the packet
    /// takes it.
    pub fn express_alone(&mut self, work: &mut Work, now: Instant) -> bool {
        self.classifier.begin(work, self.options.new_flows);
        work.left.clear();
        work.leaving.begin();
        work.flows[0] = self.classifier.flows.find(&work.keys[0], work.hashes[0], 0);
        let takes_it = self.express_one(work, 0, now);
        if !takes_it {
            work.left.push(0);
        } else if work.paths[0] != EMPTY_PATH {
            self.gates.groups.join(work.paths[0], 0, work.packets.at(0).len());
        }
        takes_it
    }

    /// Makes one packet ready to leave, or sets its path if its flow is bound. Returns whether the packet
    /// takes the fast path.
    fn express_one(&mut self, work: &mut Work, index: usize, now: Instant) -> bool {
        let Some(flow) = work.flows[index].filter(|_| work.fates[index].is_open()) else { return false };
        let answer = self.classifier.flows.record(flow).answer;
        let Some(adjacency) = self.forwarding.adjacencies.get_mut(answer.adjacency) else { return false };
        let packet = work.packets.at_mut(index);
        let takes_it = match answer.path {
            EMPTY_PATH => packet.exceptions == Exceptions::NONE && adjacency.takes(packet),
            // For a bound flow, only the path is tested now. The adjacency tests the packet after the
            // instances have run.
            path => self.gates.plugins().paths.is_through(path),
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
        let packet = work.packets.at_mut(index);
        self.classifier.flows.touch(flow, packet.len() as u32, now);
        packet.next_hop = answer.next_hop;
        if answer.path != EMPTY_PATH {
            (work.paths[index], work.adjacencies[index]) = (answer.path, answer.adjacency);
            if self.gates.plugins().keeps_states() {
                work.states.flows[index] = self.classifier.flows.state(flow);
            }
            if packet.counts_for == EMPTY_PATH {
                packet.counts_for = answer.path;
            }
            return true;
        }
        adjacency.rewrite(packet);
        packet.out_port = adjacency.port;
        work.leaving.add(adjacency.port, (answer.next_hop, EMPTY_PATH), Amount::packet(packet.len()));
        work.fates[index] = Fate::Queue;
        true
    }
}
