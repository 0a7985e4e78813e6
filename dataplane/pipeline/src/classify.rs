//! Stage classify: what is to become of the packets of a flow. Known flows are found in the flow table; only the first
//! packet of a flow, and the first after a change that concerns it, pays for filters and routes.

use std::net::IpAddr;
use std::time::Duration;

use millrace_classify::{
    ChangeLog, FlowAnswer, FlowIndex, FlowTable, FlowTableConfig, FlowTableError, Fragment, FragmentTable,
    Touch, fragment_key,
};
use millrace_forward::{NO_ADJACENCY, Route};
use millrace_packet::{BATCH_SIZE, DropReason, Exceptions, Family, FlowKey, Packet};
use millrace_plugin_abi::FlowEnd;
use millrace_units::{Instant, PortId};
use millrace_wire::Protocol;

use crate::ahead::Ahead;
use crate::fib::Fib;
use crate::filter_route::is_filter;
use crate::options::Options;
use crate::parse::{Parsed, ROUTER};
use crate::ports::ReversePath;
use crate::reserved_flows::ReservedFlows;
use crate::route::{NO_ROUTE, admit};
use crate::router::Router;
use crate::work::{Fate, Work};

/// Set in the variant of records that are not the base record of their flow.
const VARIANT: u32 = 1 << 31;
/// After so many full batches in a row, more comes than the router bears: then new flows have a budget.
const FULL_BATCHES: u32 = 4;
/// Octets of the fragmented part of an IPv6 packet that may be headers, while something refuses packets: a first fragment with more is
/// dropped, and so is a later one that begins within them, where its first one is not known. A link's least MTU of 1,280 octets leaves
/// as many for a fragment (RFC 8200, 5), and the first one holds all headers (RFC 7112).
const HEADERS_END: u16 = 1232;
/// The same while nothing refuses packets, but something is bound: TCP's flags are among them.
const UNSEEN_HEADERS_END: u16 = 16;
/// Records that are looked at for their age in a round, and steps of growth.
const UPKEEP: usize = 64;
/// The same when there is nothing else to do.
const IDLE_UPKEEP: usize = 1024;

/// How often flows are looked after when no packets come.
const UPKEEP_INTERVAL: Duration = Duration::from_millis(250);

/// How packets met their flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassifyCounts {
    /// Packets whose flow was known.
    pub hits: u64,
    /// Packets whose flow was not.
    pub misses: u64,
    /// Known flows whose answer was checked after a change and is still right.
    pub checked: u64,
    /// Known flows whose route was looked up again after a change.
    pub rerouted: u64,
    /// Known flows that were classified again after a change.
    pub reclassified: u64,
}

/// The state of the stage.
#[derive(Debug)]
pub(crate) struct Classifier {
    pub flows: FlowTable,
    pub changes: ChangeLog,
    pub fragments: FragmentTable,
    pub counts: ClassifyCounts,
    /// Answers for packets of this batch whose flows are not known.
    ahead: Ahead,
    /// Whether flows are remembered at all.
    remembers: bool,
    full_batches: u32,
    /// New flows that may still be classified in this batch.
    budget: usize,
    /// Whether this batch has brought records that its lookup could not see.
    grown: bool,
    /// Whether this batch is a piece of one.
    is_piece: bool,
    /// When flows are next looked after although no packet comes.
    upkeep: Option<Instant>,
    /// Flows that are displaced by no others.
    pub reserved: ReservedFlows,
}

impl Classifier {
    /// # Errors
    /// When the kernel maps no memory for the flow table.
    pub fn new(options: &Options, seed: u64) -> Result<Self, FlowTableError> {
        Ok(Self {
            flows: FlowTable::new(config(options, seed))?,
            changes: ChangeLog::default(),
            fragments: FragmentTable::default(),
            counts: ClassifyCounts::default(),
            ahead: Ahead::default(),
            remembers: options.flows_max > 0,
            full_batches: 0,
            budget: 0,
            grown: false,
            is_piece: false,
            upkeep: None,
            reserved: ReservedFlows::default(),
        })
    }

    /// Takes over what `options` say of flows. A table of another size begins empty.
    pub fn set_options(&mut self, options: &Options, seed: u64) {
        let config = config(options, seed);
        // Where there is no memory for another table, the one that there is goes on.
        if self.flows.is_empty()
            && let Ok(flows) = FlowTable::new(config)
        {
            self.flows = flows;
        }
        self.remembers = options.flows_max > 0;
    }

    /// Whether flows are remembered at all.
    pub fn remembers(&self) -> bool {
        self.remembers
    }

    /// When flows are to be looked after although no packet comes.
    pub fn next_upkeep(&self) -> Option<Instant> {
        let upkeep = if self.reserved.is_behind() { Some(Instant::ZERO) } else { self.upkeep };
        upkeep.filter(|_| !self.flows.is_empty())
    }

    /// Whether no change since the answer of a record was last known to be right concerns the flow. If so, it is known to be
    /// right now.
    #[cold]
    pub fn is_still_right(&mut self, flow: FlowIndex, key: &FlowKey) -> bool {
        let answer = self.flows.answer_mut(flow);
        let is_right = self.changes.touches(key, answer.generation) == Touch::Nothing;
        if is_right {
            answer.generation = self.changes.current();
            self.counts.checked += 1;
        }
        is_right
    }

    /// A batch of so many packets comes, in pieces.
    pub fn begin_pieces(&mut self, packets: usize, new_flows: u16) {
        self.begin_batch(packets, false, new_flows);
        self.is_piece = true;
    }

    /// That was the last piece.
    pub fn end_pieces(&mut self) {
        self.is_piece = false;
    }

    /// A batch comes to this stage.
    pub fn begin(&mut self, work: &Work, new_flows: u16) {
        let own = work.packets.first().is_some_and(|packet| packet.port == ROUTER);
        self.begin_batch(work.packets.len().min(BATCH_SIZE), own, new_flows);
    }

    fn begin_batch(&mut self, packets: usize, own: bool, new_flows: u16) {
        self.grown = false;
        if own || self.is_piece {
            // How many packets the router makes says nothing of how many come.
            return;
        }
        self.full_batches = if packets == BATCH_SIZE { self.full_batches.saturating_add(1) } else { 0 };
        self.budget = if self.full_batches > FULL_BATCHES { new_flows.into() } else { BATCH_SIZE };
    }
}

fn config(options: &Options, seed: u64) -> FlowTableConfig {
    FlowTableConfig {
        initial: FlowTableConfig::default().initial.min(options.flows_max).max(1),
        maximum: options.flows_max.max(1),
        idle: options.flow_idle,
        seed,
        ..FlowTableConfig::default()
    }
}

impl Router {
    /// Gives a fragment behind the first the flow of that; a first one is remembered.
    pub(crate) fn join_fragments(
        &mut self,
        packet: &mut Packet,
        parsed: &mut Parsed,
        now: Instant,
    ) -> Result<(), DropReason> {
        let Some(fragment) = parsed.fragment else { return Ok(()) };
        let Fragment { identification, first, offset, headers_end } = fragment;
        if parsed.overlaps_header && self.gates.is_bound() {
            // It could rewrite what filters have judged (RFC 1858, 3.2; RFC 3128).
            return Err(DropReason::Ip4Fragment);
        }
        let is_cut = packet.exceptions.contains(Exceptions::CUT);
        if first && is_cut && self.gates.judges() {
            // The rest would pass what asks for its ports or flags (RFC 1858, 3.1; RFC 7112).
            return Err(match parsed.key.family() {
                Family::V4 => DropReason::Ip4Fragment,
                Family::V6 => DropReason::Ip6HeaderChain,
            });
        }
        let is_told_apart = Protocol(parsed.key.protocol).has_ports() || parsed.key.family() == Family::V6;
        if !is_told_apart || is_cut {
            return Ok(());
        }
        if headers_end > HEADERS_END && self.gates.refuses() {
            return Err(DropReason::Ip6HeaderChain);
        }
        let hash = self.classifier.flows.hash(&fragment_key(&parsed.key));
        let mut candidate = parsed.candidate(packet);
        if first {
            self.classifier.fragments.begin(&candidate, hash, fragment, now);
        } else {
            let end = self.classifier.fragments.follow(&mut candidate, hash, identification, now);
            let end = end.unwrap_or(match parsed.key.family() {
                Family::V4 => 0,
                Family::V6 if self.gates.refuses() => HEADERS_END,
                Family::V6 => UNSEEN_HEADERS_END,
            });
            if offset < end && self.gates.is_bound() {
                // The chain of the first one says where its headers are (RFC 5722; RFC 7112).
                return Err(DropReason::Ip4Fragment);
            }
            (parsed.key, parsed.varying.tcp_flags) = (candidate.key, candidate.tcp_flags);
            packet.exceptions = candidate.exceptions;
        }
        Ok(())
    }

    /// Finds the path and the route of every open packet of a batch.
    pub(crate) fn classify(&mut self, work: &mut Work, now: Instant) {
        work.complete_all();
        if !self.classifier.remembers {
            return self.classify_each(work);
        }
        let count = work.packets.len().min(BATCH_SIZE);
        self.classifier.begin(work, self.options.new_flows);
        let flows = &self.classifier.flows;
        flows.find_batch(&work.keys[..count], &work.hashes[..count], &mut work.flows[..count]);
        self.look_ahead_for_new(work, count);
        (0..count).for_each(|index| self.classify_open(work, index, now));
    }

    /// The same, but packets of flows that are known take the express way where they may; whether all did.
    #[inline(always)]
    pub(crate) fn classify_or_express(&mut self, work: &mut Work, now: Instant) -> bool {
        if self.is_tapped() || !self.classifier.remembers {
            self.classify(work, now);
            return false;
        }
        let all = self.express(work, now);
        if !all {
            self.classify_left(work, now);
        }
        all
    }

    /// Finds path and route of those packets that the express way has left, whose flows it has looked up.
    pub(crate) fn classify_left(&mut self, work: &mut Work, now: Instant) {
        let left = std::mem::take(&mut work.left);
        left.iter().for_each(|index| work.complete(usize::from(*index)));
        self.look_ahead_for_new(work, work.packets.len().min(BATCH_SIZE));
        left.iter().for_each(|index| self.classify_open(work, usize::from(*index), now));
        work.left = left;
    }

    fn look_ahead_for_new(&mut self, work: &Work, count: usize) {
        if work.flows[..count].contains(&None) {
            self.look_ahead(work, self.classifier.budget, |index| work.flows[index].is_none());
        } else {
            self.classifier.ahead.clear();
        }
    }

    #[inline]
    fn classify_open(&mut self, work: &mut Work, index: usize, now: Instant) {
        if work.fates[index].is_open()
            && let Err(fate) = self.classify_one(work, index, now)
        {
            work.fates[index] = fate;
        }
    }

    /// Looks up the answers for so many open packets at most, of those that are `wanted`.
    fn look_ahead(&mut self, work: &Work, most: usize, wanted: impl Fn(usize) -> bool) {
        self.classifier.ahead.clear();
        let open = (0..work.packets.len()).filter(|index| work.fates[*index].is_open());
        for index in open.filter(|index| wanted(*index)).take(most) {
            let candidate = work.candidate(index);
            self.classifier.ahead.ask(index, candidate);
        }
        if self.classifier.ahead.len() > 0 {
            self.classifier.ahead.look_up(&self.fib, &mut self.gates, self.options.route_priority);
        }
    }

    /// Does without the flow table.
    fn classify_each(&mut self, work: &mut Work) {
        self.look_ahead(work, BATCH_SIZE, |_| true);
        for index in 0..work.packets.len() {
            if !work.fates[index].is_open() {
                continue;
            }
            match self.answer(work, index) {
                Ok(answer) => {
                    work.paths[index] = answer.path;
                    work.packets.at_mut(index).next_hop = answer.next_hop;
                }
                Err(fate) => work.fates[index] = fate,
            }
        }
    }

    #[inline]
    fn classify_one(&mut self, work: &mut Work, index: usize, now: Instant) -> Result<(), Fate> {
        let answer = match work.flows[index] {
            Some(flow) => self.known(work, index, flow, now)?,
            None => self.met(work, index, 0, now)?,
        };
        work.paths[index] = answer.path;
        work.adjacencies[index] = answer.adjacency;
        work.packets.at_mut(index).next_hop = answer.next_hop;
        if self.gates.plugins().keeps_states()
            && let Some(flow) = work.flows[index]
        {
            work.states[index] = self.classifier.flows.state(flow);
        }
        Ok(())
    }

    /// The answer for a packet of a known flow.
    #[inline]
    fn known(
        &mut self,
        work: &mut Work,
        index: usize,
        flow: FlowIndex,
        now: Instant,
    ) -> Result<FlowAnswer, Fate> {
        let mut answer = self.classifier.flows.record(flow).answer;
        if answer.generation != self.classifier.changes.current() {
            // First, for a change may be that packets of the flow are told apart by other fields.
            answer = self.renewed(work, index, flow)?;
        } else {
            self.classifier.counts.hits += 1;
        }
        if answer.varying_mask != 0 {
            let varying = work.candidate(index).varying() & answer.varying_mask;
            if varying != answer.varying_value {
                return self.known_variant(work, index, varying | VARIANT, now);
            }
        }
        self.touch(work, index, flow, now);
        Ok(answer)
    }

    #[inline]
    fn touch(&mut self, work: &Work, index: usize, flow: FlowIndex, now: Instant) {
        self.classifier.flows.touch(flow, work.packets.at(index).len() as u32, now);
    }

    /// The answer for a packet whose fields differ from those of the flow's base record in a way that matters.
    fn known_variant(
        &mut self,
        work: &mut Work,
        index: usize,
        variant: u32,
        now: Instant,
    ) -> Result<FlowAnswer, Fate> {
        let Some(flow) = self.classifier.flows.find(&work.keys[index], work.hashes[index], variant) else {
            return self.met(work, index, variant, now);
        };
        work.flows[index] = Some(flow);
        let mut answer = self.classifier.flows.record(flow).answer;
        if answer.generation != self.classifier.changes.current() {
            answer = self.renewed(work, index, flow)?;
        }
        self.touch(work, index, flow, now);
        Ok(answer)
    }

    /// The answer for a packet whose flow has no record: found by filters and routes, and recorded.
    #[cold]
    fn met(&mut self, work: &mut Work, index: usize, variant: u32, now: Instant) -> Result<FlowAnswer, Fate> {
        let (key, hash) = (work.keys[index], work.hashes[index]);
        if self.classifier.grown
            && variant == 0
            && let Some(flow) = self.classifier.flows.find(&key, hash, 0)
        {
            work.flows[index] = Some(flow);
            return self.known(work, index, flow, now);
        }
        self.classifier.counts.misses += 1;
        if self.classifier.budget == 0 && work.packets.at(index).port != ROUTER {
            return Err(Fate::Drop(DropReason::NewFlows));
        }
        self.classifier.budget = self.classifier.budget.saturating_sub(1);
        let answer = self.answer(work, index)?;
        let flow = self.classifier.flows.insert_absent(&key, hash, variant, answer, now).ok();
        work.flows[index] = flow;
        if let Some(flow) = flow {
            self.classifier.grown = true;
            if self.classifier.reserved.contains(&key, self.seed) {
                self.classifier.flows.set_reserved(flow, true);
            }
            if self.gates.plugins().keeps_states() {
                let state = self.gates.plugins_mut().begin_state(answer.path);
                self.classifier.flows.set_state(flow, state);
            }
            self.touch(work, index, flow, now);
        }
        Ok(answer)
    }

    /// The answer for a packet whose flow's record was made before the latest changes.
    #[cold]
    fn renewed(&mut self, work: &mut Work, index: usize, flow: FlowIndex) -> Result<FlowAnswer, Fate> {
        let old = self.classifier.flows.record(flow).answer;
        let answer = match self.classifier.changes.touches(&work.keys[index], old.generation) {
            Touch::Nothing => {
                self.classifier.counts.checked += 1;
                FlowAnswer { generation: self.classifier.changes.current(), ..old }
            }
            Touch::Route => match self.rerouted(work, index, &old) {
                Some(answer) => {
                    self.classifier.counts.rerouted += 1;
                    answer
                }
                None => self.reclassified(work, index, flow, &old)?,
            },
            Touch::All => self.reclassified(work, index, flow, &old)?,
        };
        *self.classifier.flows.answer_mut(flow) = answer;
        Ok(answer)
    }

    fn reclassified(
        &mut self,
        work: &Work,
        index: usize,
        flow: FlowIndex,
        old: &FlowAnswer,
    ) -> Result<FlowAnswer, Fate> {
        self.classifier.counts.reclassified += 1;
        let answer = match self.answer(work, index) {
            Ok(answer) => answer,
            Err(fate) => {
                self.classifier.flows.remove(flow);
                return Err(fate);
            }
        };
        if answer.path != old.path {
            let flows = &mut self.classifier.flows;
            let end = FlowEnd {
                key: work.keys[index],
                packets: flows.packets(flow),
                bytes: flows.record(flow).bytes(),
            };
            let before = (old.path, flows.state(flow));
            flows.set_state(flow, self.gates.plugins_mut().flow_moved(before, answer.path, &end));
        }
        Ok(answer)
    }

    /// The answer with the route looked up anew; `None` where more than the route may be another.
    fn rerouted(&self, work: &Work, index: usize, old: &FlowAnswer) -> Option<FlowAnswer> {
        let key = &work.keys[index];
        let port = self.ports.get(key.port);
        let checks = port.is_some_and(|entry| entry.settings.reverse_path != ReversePath::Off);
        if checks || is_filter(old.next_hop) || self.own_addresses.contains(&key.source()) {
            return None;
        }
        let next_hop = self.fib.lookup(key.destination()).unwrap_or(NO_ROUTE);
        if self.gates.is_bound() && (next_hop == NO_ROUTE) != (old.next_hop == NO_ROUTE) {
            return None;
        }
        let generation = self.classifier.changes.current();
        Some(FlowAnswer { next_hop, generation, adjacency: NO_ADJACENCY, ..*old })
    }

    /// What filters and routes say of a packet.
    fn answer(&mut self, work: &Work, index: usize) -> Result<FlowAnswer, Fate> {
        let (packet, key) = (work.packets.at(index), &work.keys[index]);
        let ahead = self.classifier.ahead.answer(index);
        let next_hop = match ahead {
            Some((next_hop, _)) => next_hop,
            None => self.fib.lookup(key.destination()).unwrap_or(NO_ROUTE),
        };
        if packet.port != ROUTER {
            let fate = admit(&self.ports, packet, key, self.options.martians);
            if !fate.is_open() {
                return Err(fate);
            }
            if self.own_addresses.contains(&key.source()) {
                return Err(Fate::Drop(DropReason::MartianSource));
            }
            let mode =
                self.ports.get(packet.port).map_or(ReversePath::Off, |entry| entry.settings.reverse_path);
            if !comes_from_there(mode, &self.fib, packet.port, key.source()) {
                return Err(Fate::Drop(DropReason::ReversePath));
            }
        }
        let candidate = work.candidate(index);
        let treatment = match ahead {
            Some((_, treatment)) => treatment,
            None => {
                let priority = (next_hop != NO_ROUTE).then_some(self.options.route_priority);
                self.gates.classify(&candidate, priority)
            }
        };
        Ok(FlowAnswer {
            path: treatment.path,
            next_hop: treatment.route.unwrap_or(next_hop),
            generation: self.classifier.changes.current(),
            varying_mask: treatment.varying_mask,
            varying_value: candidate.varying() & treatment.varying_mask,
            adjacency: NO_ADJACENCY,
        })
    }

    /// Lets idle flows end, the table grow, and plugins know of flows that have ended. `idle`: there is time for it.
    pub(crate) fn keep_flows(&mut self, now: Instant, idle: bool) {
        let classifier = &mut self.classifier;
        classifier.reserved.mark(&mut classifier.flows, self.seed);
        if idle && classifier.upkeep.is_some_and(|upkeep| upkeep > now) {
            return;
        }
        let more = classifier.flows.maintain(now, if idle { IDLE_UPKEEP } else { UPKEEP });
        classifier.upkeep = Some(if more { now } else { now + UPKEEP_INTERVAL });
        while let Some(removed) = self.classifier.flows.pop_removed() {
            if removed.state != 0 || self.gates.plugins().hears_flow_ends(removed.answer.path) {
                let end = FlowEnd { key: removed.key, packets: removed.packets, bytes: removed.bytes };
                self.gates.plugins_mut().flow_ended(removed.answer.path, &end, removed.state);
            }
        }
    }
}

/// Whether a packet of this source may come in by a port (RFC 3704, 2.2 to 2.4).
pub(crate) fn comes_from_there(mode: ReversePath, fib: &Fib, port: PortId, source: IpAddr) -> bool {
    if mode == ReversePath::Off {
        return true;
    }
    match fib.lookup(source).map(|index| fib.route(index)) {
        Some(Route::Forward(hops)) => mode == ReversePath::Loose || hops.iter().any(|hop| hop.port == port),
        Some(Route::Kernel) => mode == ReversePath::Loose,
        _ => false,
    }
}
