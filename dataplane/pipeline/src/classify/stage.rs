//! Classification of a batch: finds or creates the flow record of each packet, and applies the classification
//! in it.

use millrace_classify::{FlowAnswer, FlowIndex};
use millrace_packet::{BATCH_SIZE, DropReason};
use millrace_plugin::PaidStages;
use millrace_units::Instant;

use super::Classifier;
use crate::forward::routing::Routing;
use crate::forward::tables::ForwardingTables;
use crate::gates::Gates;
use crate::options::Options;
use crate::pending::Pending;
use crate::pending::for_processor::ForProcessor;
use crate::ports::PortTable;
use crate::work::{Fate, Work};

/// Bit of a variant number: set for every variant record, and clear for a flow's first record.
const VARIANT: u32 = 1 << 31;

/// State that the classify stage needs for a batch: the flow records, and the tables that decide about new
/// flows.
pub(crate) struct Classification<'a> {
    pub classifier: &'a mut Classifier,
    pub forwarding: &'a ForwardingTables,
    pub gates: &'a mut Gates,
    pub ports: &'a PortTable,
    pub pending: &'a Pending,
    pub options: &'a Options,
    /// Key of the flow hashes.
    pub seed: u64,
}

impl Classification<'_> {
    /// Finds the path and the route of every open packet of a batch.
    pub fn classify(&mut self, work: &mut Work, now: Instant) {
        work.complete_all();
        if !self.classifier.remembers() {
            return self.classify_each(work);
        }
        let count = self.find_records(work);
        (0..count).for_each(|index| self.classify_open(work, index, now));
    }

    /// Classifies a batch like [`classify`](Self::classify) while core is overloaded, and drops the packets to
    /// be shed. Returns their number.
    ///
    /// Packets to the router itself, and packets of flows with a reserved rate, are never shed.
    pub fn classify_or_shed(&mut self, work: &mut Work, now: Instant) -> u64 {
        work.complete_all();
        let remembers = self.classifier.remembers();
        let count = if remembers { self.find_records(work) } else { work.packets.len().min(BATCH_SIZE) };
        if !remembers {
            self.classify_each(work);
        }
        let mut shed = 0;
        for index in 0..count {
            let is_new = remembers && work.flows[index].is_none();
            if remembers {
                self.classify_open(work, index, now);
            }
            if work.fates[index].is_open() && self.is_shed(work, index, is_new) {
                work.fates[index] = Fate::Drop(DropReason::CoreCeiling);
                shed += 1;
                // The flow's next packet is one of a new flow, too.
                if is_new && let Some(flow) = work.flows[index].take() {
                    self.classifier.flows.remove(flow);
                }
            }
        }
        shed
    }

    fn is_shed(&self, work: &Work, index: usize, is_new: bool) -> bool {
        let plugins = self.gates.plugins();
        let is_reserved = || {
            let records = &self.classifier.flows;
            work.flows[index].is_some_and(|flow| records.record(flow).is_reserved())
        };
        let Self { forwarding, gates, ports, .. } = self;
        let routing = Routing { fib: &forwarding.fib, filter_routes: gates.routes(), ports };
        let mut owners = PaidStages::of(plugins).owners(work.paths[index]).peekable();
        let mut sheds = |waiting: &ForProcessor| match owners.peek() {
            None => waiting.core.sheds_plain(is_new),
            Some(_) => owners.all(|owner| waiting.sheds(owner)),
        };
        let next_hop = work.packets.at(index).next_hop;
        let device = |port| ports.get(port).map(|port| port.settings.device);
        let output =
            || routing.next_hop(next_hop, work.packets.at(index).hash).and_then(|(_, hop)| device(hop.port));
        let is_over = |waiting: &ForProcessor| {
            waiting.core.sheds_between(device(work.packets.at(index).port), output())
        };
        self.pending.for_processor.get().is_some_and(|waiting| sheds(waiting) && is_over(waiting))
            && !routing.is_local(next_hop)
            && !is_reserved()
    }

    /// Begins a batch, and finds the flow records of its packets. Returns the number of packets.
    fn find_records(&mut self, work: &mut Work) -> usize {
        let count = work.packets.len().min(BATCH_SIZE);
        self.classifier.begin(work, self.options.new_flows);
        let flows = &self.classifier.flows;
        flows.find_batch(&work.keys[..count], &work.hashes[..count], &mut work.flows[..count]);
        self.look_ahead_for_new(work, count);
        count
    }

    /// Finds the paths and routes of the packets that the fast path left to the general path. The fast path
    /// has already looked up their flow records.
    pub fn classify_left(&mut self, work: &mut Work, now: Instant) {
        let left = std::mem::take(&mut work.left);
        left.iter().for_each(|index| work.complete(usize::from(*index)));
        self.look_ahead_for_new(work, work.packets.len().min(BATCH_SIZE));
        left.iter().for_each(|index| self.classify_open(work, usize::from(*index), now));
        work.left = left;
    }

    /// Finds the path of each copy in a batch. Like its original, a copy passes the instances at the `queue`
    /// gates of the path.
    pub fn find_paths(&mut self, work: &mut Work) {
        if !self.gates.is_bound() {
            return;
        }
        for index in (0..work.packets.len()).filter(|index| work.fates[*index].is_open()) {
            let has_route = self.forwarding.fib.lookup(work.keys[index].destination()).is_some();
            let priority = has_route.then_some(self.options.route_priority);
            work.paths[index] = self.gates.classify(&work.candidate(index), priority).path;
        }
    }

    /// Looks up the routes and treatments of open packets without a flow record together, as many as the
    /// budget for new flows permits.
    fn look_ahead_for_new(&mut self, work: &Work, count: usize) {
        if work.flows[..count].contains(&None) {
            self.look_ahead(work, self.classifier.budget, |index| work.flows[index].is_none());
        } else {
            self.classifier.ahead.clear();
        }
    }

    /// Looks up the routes and treatments of up to `most` open packets together, in the order of the batch.
    /// Skips packets for whose index `wanted` returns `false`.
    fn look_ahead(&mut self, work: &Work, most: usize, wanted: impl Fn(usize) -> bool) {
        self.classifier.ahead.clear();
        let open = (0..work.packets.len()).filter(|index| work.fates[*index].is_open());
        for index in open.filter(|index| wanted(*index)).take(most) {
            let candidate = work.candidate(index);
            self.classifier.ahead.ask(index, candidate);
        }
        if self.classifier.ahead.len() > 0 {
            self.classifier.ahead.look_up(&self.forwarding.fib, self.gates, self.options.route_priority);
        }
    }

    /// Classifies a packet if it is open. Sets its fate if classification decides it.
    #[inline]
    fn classify_open(&mut self, work: &mut Work, index: usize, now: Instant) {
        if work.fates[index].is_open()
            && let Err(fate) = self.classify_one(work, index, now)
        {
            work.fates[index] = fate;
        }
    }

    /// Classifies each packet of a batch separately, if the router has no flow table.
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

    /// Sets the path, route, adjacency and flow state of a packet. Returns the packet's fate if
    /// classification decides it.
    #[inline]
    fn classify_one(&mut self, work: &mut Work, index: usize, now: Instant) -> Result<(), Fate> {
        let answer = match work.flows[index] {
            Some(flow) => self.classify_known(work, index, flow, now)?,
            None => self.classify_new(work, index, 0, now)?,
        };
        work.paths[index] = answer.path;
        work.adjacencies[index] = answer.adjacency;
        work.packets.at_mut(index).next_hop = answer.next_hop;
        if self.gates.plugins().keeps_states()
            && let Some(flow) = work.flows[index]
        {
            work.states.flows[index] = self.classifier.flows.state(flow);
        }
        Ok(())
    }

    /// Returns the [`FlowAnswer`] for a packet of a flow that has a record, and counts the packet for the
    /// flow.
    #[inline]
    pub(super) fn classify_known(
        &mut self,
        work: &mut Work,
        index: usize,
        flow: FlowIndex,
        now: Instant,
    ) -> Result<FlowAnswer, Fate> {
        let mut answer = self.classifier.flows.record(flow).answer;
        if answer.generation != self.classifier.changes.current() {
            // Renewal comes first: a change may also change the fields that distinguish packets of the flow.
            answer = self.renew(work, index, flow)?;
        } else {
            self.classifier.counts.hits += 1;
        }
        if answer.varying_mask != 0 {
            let varying = work.candidate(index).varying() & answer.varying_mask;
            if varying != answer.varying_value {
                return self.classify_variant(work, index, varying | VARIANT, now);
            }
        }
        self.classifier.touch(work, index, flow, now);
        Ok(answer)
    }

    /// Returns the [`FlowAnswer`] of a variant record, for a packet whose varying fields differ from those of
    /// the flow's first record. Creates the variant record if there is none.
    fn classify_variant(
        &mut self,
        work: &mut Work,
        index: usize,
        variant: u32,
        now: Instant,
    ) -> Result<FlowAnswer, Fate> {
        let Some(flow) = self.classifier.flows.find(&work.keys[index], work.hashes[index], variant) else {
            return self.classify_new(work, index, variant, now);
        };
        work.flows[index] = Some(flow);
        let mut answer = self.classifier.flows.record(flow).answer;
        if answer.generation != self.classifier.changes.current() {
            answer = self.renew(work, index, flow)?;
        }
        self.classifier.touch(work, index, flow, now);
        Ok(answer)
    }
}
