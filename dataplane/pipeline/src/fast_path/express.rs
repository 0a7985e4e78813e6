//! Fast path of known flows: from the flow table straight to the queue of the egress port, or through the
//! instances of bound flows.
//!
//! When a packet is forwarded to a resolved neighbour out of another port, its flow record gets the number of
//! an adjacency. Later packets take the fast path if no filter distinguishes packets of the flow. In
//! addition, all instances of its path must be at gates of positions `early` and `late`. Packets on the fast
//! path need only the record, the adjacency, their own headers and the instances. Packets that an instance
//! redirects, that have exceptions, or that are too long take the general path, which defines the treatment
//! of all packets.
//!
//! The adjacency number becomes invalid when a change affects the adjacency. The generation of the flow
//! record covers all changes that affect the rest of the record.

use std::ops::Range;

use millrace_classify::{FlowAnswer, FlowIndex, FlowRecord, Meeting, Sought};
use millrace_forward::{Adjacency, AdjacencyTable, Exit, NO_ADJACENCY, NeighbourKey, Route, START};
use millrace_packet::{BATCH_SIZE, Exceptions, Family, FlowKey, Packet, Start};
use millrace_plugin::{EMPTY_PATH, WorkerPlugins};
use millrace_plugin_abi::Position;
use millrace_units::{Amount, Instant, NextHopIndex, PathId, PortId};
use millrace_wire::{EtherType, MacAddr};

use crate::classify::Classifier;
use crate::forward::alive;
use crate::forward::tables::ForwardingTables;
use crate::gate_tables::WorkerTable;
use crate::gates::groups::Groups;
use crate::parse::ROUTER;
use crate::ports::link_header;
use crate::route_number::{NO_ROUTE, is_filter};
use crate::router::Router;
use crate::work::{Accounts, Alike, Fate, Leaving, Work};

/// Makes the open packets of a batch ready to leave by the adjacencies of their flows, and [counts](Leaving)
/// them. Packets that need the general path stay open. Returns whether no packet stays open.
pub(crate) fn leave_known(adjacencies: &mut AdjacencyTable, work: &mut Work) -> bool {
    let Work { packets, fates, adjacencies: numbers, leaving, .. } = work;
    let count = packets.len().min(BATCH_SIZE);
    let mut all = true;
    // Adjacency of the previous packet, with the parts that the next packets need, and the amount of their
    // accounts so far.
    let (mut last, mut port, mut exit) = (NO_ADJACENCY, PortId::NONE, Exit::NONE);
    let (mut accounts, mut amount) = ((NO_ROUTE, EMPTY_PATH), Amount::default());
    for ((packet, fate), number) in packets.iter_mut().zip(&mut fates[..count]).zip(&numbers[..count]) {
        if !fate.is_open() {
            continue;
        }
        if *number == last
            && let Some((own, length)) = leaves_like(&exit, port, packet)
        {
            if own != accounts {
                leaving.add(port, accounts, std::mem::take(&mut amount));
                accounts = own;
            }
            amount += Amount::packet(length);
        } else if let Some(adjacency) = adjacencies.get_mut(*number)
            && leaves_by(adjacency, packet)
        {
            leaving.add(port, accounts, std::mem::replace(&mut amount, Amount::packet(packet.len())));
            accounts = (packet.next_hop, packet.counts_for);
            (last, port, exit) = (*number, adjacency.port, adjacency.exit());
        } else {
            all = false;
            continue;
        }
        *fate = Fate::Queue;
    }
    leaving.add(port, accounts, amount);
    all
}

/// Makes a packet ready to leave by an adjacency, unless an instance has redirected it or it has exceptions.
/// Returns whether the packet is ready.
fn leaves_by(adjacency: &mut Adjacency, packet: &mut Packet) -> bool {
    let is_sent_on =
        packet.exceptions == Exceptions::NONE && !is_filter(packet.next_hop) && adjacency.takes(packet);
    if is_sent_on {
        packet.out_port = adjacency.port;
        adjacency.rewrite(packet);
    }
    is_sent_on
}

/// Makes a packet ready to leave by the exit of the previous packet. Returns the accounts and length of the
/// packet; `None` if the packet does not fit.
#[inline(always)]
fn leaves_like(exit: &Exit, port: PortId, packet: &mut Packet) -> Option<(Accounts, usize)> {
    let start = exit.start(packet)?;
    let accounts = (start.annotations.next_hop, start.annotations.counts_for);
    let is_sent_on =
        start.annotations.exceptions == Exceptions::NONE && !is_filter(accounts.0) && exit.is_whole(&start);
    if !is_sent_on {
        return None;
    }
    start.annotations.out_port = port;
    exit.rewrite(start.bytes);
    Some((accounts, start.length))
}

/// Fast path for the packets of a batch whose flow records are up to date. Packets of unbound flows leave by
/// an adjacency that accepts them; the others join the group of their path. The adjacency of the previous
/// packet is kept for the next one.
///
/// Without `BOUND`, the loop handles no groups, and takes fewer registers. With `PLAIN`, all packets are
/// [`PLAIN`](Alike::Plain), and checks made during reading are not repeated.
struct Leave<'a, const BOUND: bool, const PLAIN: bool> {
    joining: Joining<'a>,
    adjacencies: &'a mut AdjacencyTable,
    leaving: &'a mut Leaving,
    /// Value of [`FlowAnswer::validity`] for answers of the current generation that depend on no varying
    /// field.
    validity: u64,
    /// Number of the current adjacency, followed by its egress port and exit.
    number: u32,
    out_port: PortId,
    exit: Exit,
    /// Route to which the current packets are accounted.
    route: NextHopIndex,
    /// Route and adjacency of the current packets in one word.
    way: u64,
    /// Amount of the current packets so far.
    amount: Amount,
    /// Number of packets that left before the current ones.
    before: u64,
}

impl<const BOUND: bool, const PLAIN: bool> Leave<'_, BOUND, PLAIN> {
    /// Counts the current packets.
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

    /// Switches to the adjacency and route of an answer. Returns `None` if the adjacency number is invalid.
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
    /// Adds a packet to the group of its path, if its adjacency and path permit the fast path. Returns its
    /// length in bytes.
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

    /// Starts another run with the packet at `index`, if its path permits the fast path.
    #[inline(never)]
    fn turn_to(
        &mut self,
        adjacencies: &mut AdjacencyTable,
        (path, number): (PathId, u32),
        index: usize,
    ) -> Option<()> {
        adjacencies.get_mut(number).filter(|_| self.plugins.is_through(path))?;
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

impl Router {
    /// Makes the packets of known flows ready to leave, or adds them to the groups of their paths. Other
    /// packets stay in `work.left`. Returns whether only packets [aside](Work::aside) are left there.
    #[inline]
    pub(crate) fn express(&mut self, work: &mut Work, now: Instant) -> bool {
        self.classifier.begin(work, self.options.new_flows);
        match (self.gates.is_bound(), work.alike != Alike::No) {
            (true, false) => self.meet_all::<true, false>(work, now),
            (true, true) => self.meet_all::<true, true>(work, now),
            (false, false) => self.meet_all::<false, false>(work, now),
            (false, true) => self.meet_all::<false, true>(work, now),
        }
        if work.left.len() > work.aside {
            self.express_left(work, now);
        }
        // Packets aside are treated elsewhere.
        work.left.len() == work.aside
    }

    /// Treats the packets that take the common case of the fast path, and lists the others in `work.left`.
    fn meet_all<const BOUND: bool, const PLAIN: bool>(&mut self, work: &mut Work, now: Instant) {
        let Self { classifier, gates, forwarding: ForwardingTables { adjacencies, .. }, .. } = self;
        let Classifier { flows, changes, counts, .. } = classifier;
        let count = work.packets.len().min(BATCH_SIZE);
        work.left.clear();
        work.leaving.begin();
        let (plugins, groups) = gates.joining();
        let keeps_states = plugins.keeps_states();
        let has_v6 = work.alike != Alike::Plain4;
        let Work {
            packets,
            nears,
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
                states: states.all_mut(),
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
        work.keys_due = joined > 0;
    }

    /// Treats the packets of `work.left` one by one. Packets that can't take the fast path stay there.
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

    /// Takes a batch of one completed packet by the fast path. Returns whether the packet takes it.
    pub(crate) fn express_alone(&mut self, work: &mut Work, now: Instant) -> bool {
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

    /// Makes one packet ready to leave, or records its path. Returns whether the packet takes the fast path.
    fn express_one(&mut self, work: &mut Work, index: usize, now: Instant) -> bool {
        let Some(flow) = work.flows[index].filter(|_| work.fates[index].is_open()) else { return false };
        let answer = self.classifier.flows.record(flow).answer;
        let Some(adjacency) = self.forwarding.adjacencies.get_mut(answer.adjacency) else { return false };
        let packet = work.packets.at_mut(index);
        let takes_it = match answer.path {
            EMPTY_PATH => packet.exceptions == Exceptions::NONE && adjacency.takes(packet),
            // Instances come first: the other conditions are checked after them.
            path => self.gates.plugins().is_through(path),
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
                work.states[index] = self.classifier.flows.state(flow);
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

    /// Records the adjacencies of this batch's forwarded packets: in their flow records, or with their routes
    /// if there is no flow table.
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
        if !is_right || self.forwarding.adjacencies.get_mut(answer.adjacency).is_some() {
            return;
        }
        if let Some(number) = self.adjacency_of(packet, key, destination) {
            self.classifier.flows.answer_mut(flow).adjacency = number;
        }
    }

    /// Returns the number of the adjacency by which a packet leaves, according to the route in its
    /// annotations.
    fn adjacency_of(&mut self, packet: &Packet, key: &FlowKey, destination: MacAddr) -> Option<u32> {
        let out = self.ports.get(packet.out_port).filter(|out| out.is_here)?;
        let Route::Forward(hops) = self.forwarding.fib.route(packet.next_hop) else { return None };
        let neighbour = alive(hops, packet.hash, &self.ports).neighbour(key.destination());
        let neighbour = NeighbourKey { port: packet.out_port, address: neighbour };
        let ether_type = if key.family() == Family::V4 { EtherType::IPV4 } else { EtherType::IPV6 };
        let made = || {
            let header = link_header(&out.settings, destination, ether_type);
            Adjacency::new(packet.out_port, out.settings.mtu, key.family(), header)
        };
        self.forwarding.adjacencies.intern(neighbour, key.family(), made)
    }

    /// Invalidates all adjacency numbers, after a change that affects adjacencies. Each flow then takes the
    /// general path once.
    pub(crate) fn forget_adjacencies(&mut self) {
        let Self { classifier, forwarding: ForwardingTables { adjacencies, bare, .. }, .. } = self;
        if adjacencies.forget() {
            classifier.changes.everything_changed();
            bare.forget_all();
        }
    }
}
