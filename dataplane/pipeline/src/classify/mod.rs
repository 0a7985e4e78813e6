//! Classify stage: finds the path and route of each packet's flow. Known flows are found in the flow table.
//! Only the first packet of a flow, and the first after a change that affects the flow, needs filters and the
//! FIB.

pub(crate) mod ahead;
mod new_flow;
pub(crate) mod reserved_flows;

pub(crate) use new_flow::comes_from_there;
use std::time::Duration;

use millrace_classify::{
    ChangeLog, FlowAnswer, FlowIndex, FlowTable, FlowTableConfig, FlowTableCounts, FlowTableError, Fragment,
    FragmentTable, Touch, fragment_key,
};
use millrace_packet::{BATCH_SIZE, DropReason, Exceptions, Family, FlowKey, Packet};
use millrace_units::Instant;
use millrace_wire::Protocol;

use crate::classify::ahead::Ahead;
use crate::classify::reserved_flows::ReservedFlows;
use crate::observe::trace::Probe;
use crate::options::Options;
use crate::parse::{Parsed, ROUTER};
use crate::router::Router;
use crate::work::{Fate, Work};

/// Bit in the variant of all records that are not the base record of their flow.
const VARIANT: u32 = 1 << 31;
/// Number of successive full batches after which the worker is overloaded, and new flows have a budget.
const FULL_BATCHES: u32 = 4;
/// Number of octets of a fragmented IPv6 packet, from the fragmentable part's start, that may hold headers
/// while some binding refuses packets. A first fragment with longer headers is dropped. So is a later
/// fragment that begins within them, if its first fragment is unknown. A link's minimum MTU of 1,280 octets
/// leaves this number for a fragment (RFC 8200, 5), and the first one holds all headers (RFC 7112).
const HEADERS_END: u16 = 1232;
/// As [`HEADERS_END`], if bindings exist but none refuses packets: the TCP flags lie within this number of
/// octets.
const UNSEEN_HEADERS_END: u16 = 16;
/// Maximum number of flow records that the upkeep of the flow table (expiry and growth) visits per batch.
const UPKEEP: usize = 64;
/// As [`UPKEEP`], for an idle worker.
const IDLE_UPKEEP: usize = 1024;

/// Interval of the flow table's upkeep while no packets arrive.
const UPKEEP_INTERVAL: Duration = Duration::from_millis(250);

/// Counters of flow lookups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassifyCounts {
    /// Packets whose flow record was up to date.
    pub hits: u64,
    /// Packets without a flow record.
    pub misses: u64,
    /// Flow records that were checked after a change and remain right.
    pub checked: u64,
    /// Flow records whose route was looked up again after a change.
    pub rerouted: u64,
    /// Flow records that were classified again after a change.
    pub reclassified: u64,
}

/// State and counters of the flow table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounts {
    /// Number of records.
    pub records: u32,
    /// Number of records on probation, whose second packet has not arrived.
    pub on_probation: u32,
    /// Number of records at which the table grows or recycles.
    pub capacity: u32,
    /// Maximum number of records.
    pub maximum: u32,
    /// Counters of flow lookups.
    pub packets: ClassifyCounts,
    /// Counters of inserted and removed records.
    pub table: FlowTableCounts,
}

/// State of the classify stage.
#[derive(Debug)]
pub(crate) struct Classifier {
    pub flows: FlowTable,
    pub changes: ChangeLog,
    pub fragments: FragmentTable,
    pub counts: ClassifyCounts,
    /// Answers for packets of this batch without a flow record.
    ahead: Ahead,
    /// Whether the router has a flow table (`flows-max` above 0).
    remembers: bool,
    full_batches: u32,
    /// Number of new flows that this batch may still classify.
    budget: usize,
    /// Whether this batch has inserted records after its batch lookup.
    grown: bool,
    /// Whether this batch is a piece of a larger one.
    is_piece: bool,
    /// Time of the next upkeep while no packets arrive.
    upkeep: Option<Instant>,
    /// Flows whose records are never displaced.
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

    /// Applies the flow options. A new size takes effect only if the flow table holds no records, ended ones
    /// included.
    pub fn set_options(&mut self, options: &Options, seed: u64) {
        let config = config(options, seed);
        // Without memory for a new table, the present one stays.
        if self.flows.is_empty()
            && self.flows.unread() == 0
            && let Ok(flows) = FlowTable::new(config)
        {
            self.flows = flows;
        }
        self.remembers = options.flows_max > 0;
    }

    /// Returns the size and counters of the flow table.
    pub fn flow_counts(&self) -> FlowCounts {
        let flows = &self.flows;
        FlowCounts {
            records: flows.len(),
            on_probation: flows.on_probation(),
            capacity: flows.capacity(),
            maximum: flows.maximum(),
            packets: self.counts,
            table: flows.counts(),
        }
    }

    /// Returns whether the router has a flow table.
    pub fn remembers(&self) -> bool {
        self.remembers
    }

    /// Returns the time of the next upkeep while no packets arrive; `None` if none is needed.
    pub fn next_upkeep(&self) -> Option<Instant> {
        let upkeep = if self.reserved.is_behind() { Some(Instant::ZERO) } else { self.upkeep };
        upkeep.filter(|_| !self.flows.is_empty())
    }

    /// Returns whether no change since the record's generation affects the flow. If so, the record gets the
    /// current generation.
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

    /// Starts a batch of `packets` packets that arrives in pieces.
    pub fn begin_pieces(&mut self, packets: usize, new_flows: u16) {
        self.begin_batch(packets, false, new_flows);
        self.is_piece = true;
    }

    /// Ends a batch that arrived in pieces.
    pub fn end_pieces(&mut self) {
        self.is_piece = false;
    }

    /// Starts a batch.
    pub fn begin(&mut self, work: &Work, new_flows: u16) {
        let own = work.packets.first().is_some_and(|packet| packet.port == ROUTER);
        self.begin_batch(work.packets.len().min(BATCH_SIZE), own, new_flows);
    }

    fn begin_batch(&mut self, packets: usize, own: bool, new_flows: u16) {
        self.grown = false;
        if own || self.is_piece {
            // Batches of router-made packets don't show the load.
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

impl Classifier {
    #[inline]
    fn touch(&mut self, work: &Work, index: usize, flow: FlowIndex, now: Instant) {
        self.flows.touch(flow, work.packets.at(index).len() as u32, now);
    }
}

impl Router {
    /// Assigns a later fragment to the flow of its first fragment, and records a first fragment. Returns the
    /// drop reason of a fragment that could evade filters.
    pub(crate) fn join_fragments(
        &mut self,
        packet: &mut Packet,
        parsed: &mut Parsed,
        now: Instant,
    ) -> Result<(), DropReason> {
        let Some(fragment) = parsed.fragment else { return Ok(()) };
        let Fragment { identification, first, offset, headers_end } = fragment;
        if parsed.overlaps_header && self.gates.is_bound() {
            // The fragment could overwrite fields that filters have checked (RFC 1858, 3.2; RFC 3128).
            return Err(DropReason::Ip4Fragment);
        }
        let is_cut = packet.exceptions.contains(Exceptions::CUT);
        if first && is_cut && self.gates.judges() {
            // Later fragments would pass filters on ports or flags (RFC 1858, 3.1; RFC 7112).
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
                // The first fragment's header chain determines the extent of the headers (RFC 5722; RFC
                // 7112).
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

    /// Classifies a batch; packets of known flows take the fast path if possible. Returns whether all packets
    /// did.
    #[inline(always)]
    pub(crate) fn classify_or_express<P: Probe>(&mut self, work: &mut Work, probe: P, now: Instant) -> bool {
        if self.observation.is_tapped() || !self.classifier.remembers {
            self.classify(work, now);
            return false;
        }
        let all = match probe.mark() {
            None => self.express(work, now),
            // A lookup alone costs less than a batch lookup.
            Some(_) => self.express_alone(work, now),
        };
        if !all {
            self.classify_left(work, now);
        }
        all
    }

    /// Finds the paths and routes of packets that the fast path has left. Their flow lookups are done.
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

    /// Looks up the answers of the first `most` open packets that are `wanted`.
    fn look_ahead(&mut self, work: &Work, most: usize, wanted: impl Fn(usize) -> bool) {
        self.classifier.ahead.clear();
        let open = (0..work.packets.len()).filter(|index| work.fates[*index].is_open());
        for index in open.filter(|index| wanted(*index)).take(most) {
            let candidate = work.candidate(index);
            self.classifier.ahead.ask(index, candidate);
        }
        if self.classifier.ahead.len() > 0 {
            self.classifier.ahead.look_up(&self.forwarding.fib, &mut self.gates, self.options.route_priority);
        }
    }

    /// Finds the paths of copies: at gates of `queue`, a copy passes the same instances as its original.
    pub(crate) fn find_paths(&mut self, work: &mut Work) {
        if !self.gates.is_bound() {
            return;
        }
        for index in (0..work.packets.len()).filter(|index| work.fates[*index].is_open()) {
            let has_route = self.forwarding.fib.lookup(work.keys[index].destination()).is_some();
            let priority = has_route.then_some(self.options.route_priority);
            work.paths[index] = self.gates.classify(&work.candidate(index), priority).path;
        }
    }

    /// Classifies each packet of a batch without a flow table.
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

    /// Returns the answer for a packet of a known flow.
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
            // Renewal comes first: a change may also change the fields that distinguish packets of the flow.
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
        self.classifier.touch(work, index, flow, now);
        Ok(answer)
    }

    /// Returns the answer for a packet whose relevant varying fields differ from those of the base record.
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
        self.classifier.touch(work, index, flow, now);
        Ok(answer)
    }
}
