//! Classify stage: finds the path and route of each packet's flow. For a known flow, the flow table holds
//! path and route. Filters and the FIB are needed only for the first packet of a flow, and for the first
//! packet after a change that affects the flow.

mod ahead;
mod fragments;
mod new_flow;
pub(crate) mod reserved_flows;
mod stage;
mod upkeep;

use millrace_classify::{
    ChangeLog, FlowIndex, FlowTable, FlowTableConfig, FlowTableCounts, FlowTableError, FragmentTable, Touch,
};
use millrace_packet::{BATCH_SIZE, FlowKey};
use millrace_units::Instant;

use crate::classify::ahead::Ahead;
use crate::classify::reserved_flows::ReservedFlows;
use crate::options::Options;
use crate::parse::ROUTER;
use crate::work::Work;

pub(crate) use new_flow::refuse_source;
pub(crate) use stage::Classification;

/// Number of successive full batches above which a worker counts as overloaded. An overloaded worker limits
/// the new flows of each batch.
const FULL_BATCHES: u32 = 4;

/// Counters of flow lookups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassifyCounts {
    /// Packets whose flow record was current.
    pub hits: u64,
    /// Packets without a flow record.
    pub misses: u64,
    /// Flow records that were compared with the change log after a change, and were still valid.
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
    /// Number of records up to which the table neither grows nor displaces records.
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
    /// Results of the batch lookup, for packets of this batch without a flow record.
    ahead: Ahead,
    /// Whether the router has a flow table (`flows-max` above 0).
    remembers: bool,
    full_batches: u32,
    /// Number of new flows that this batch may still classify.
    budget: usize,
    /// Whether this batch has inserted flow records since its flow lookup.
    grown: bool,
    /// Whether this batch is a part of a larger batch with traced packets, which passes the stage in several
    /// parts.
    is_piece: bool,
    /// Time of the next upkeep if no packets arrive before; `None` if none is due.
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

    /// Applies the flow options. A new size takes effect only while the flow table holds no record and
    /// plugins have been notified of all ended flows.
    pub fn set_options(&mut self, options: &Options, seed: u64) {
        let config = config(options, seed);
        // If there is no memory for a new table, the present table stays.
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

    /// Returns the time of the next upkeep if no packets arrive before; `None` if none is needed.
    pub fn next_upkeep(&self) -> Option<Instant> {
        let upkeep = if self.reserved.is_behind() { Some(Instant::ZERO) } else { self.upkeep };
        upkeep.filter(|_| !self.flows.is_empty())
    }

    /// Returns whether a flow record is still correct: no change after its generation affects the flow. If
    /// so, the record gets the current generation.
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

    /// Starts a batch of `packets` packets that passes the stage in several parts, because it contains traced
    /// packets. `new_flows`: maximum number of new flows per batch under overload.
    pub fn begin_pieces(&mut self, packets: usize, new_flows: u16) {
        self.begin_batch(packets, false, new_flows);
        self.is_piece = true;
    }

    /// Ends a batch that passed the stage in several parts.
    pub fn end_pieces(&mut self) {
        self.is_piece = false;
    }

    /// Starts a batch. `new_flows`: maximum number of new flows per batch under overload.
    pub fn begin(&mut self, work: &Work, new_flows: u16) {
        let own = work.packets.first().is_some_and(|packet| packet.port == ROUTER);
        self.begin_batch(work.packets.len().min(BATCH_SIZE), own, new_flows);
    }

    fn begin_batch(&mut self, packets: usize, own: bool, new_flows: u16) {
        self.grown = false;
        if own || self.is_piece {
            // A batch of router-made packets does not show whether the worker is overloaded.
            return;
        }
        self.full_batches = if packets == BATCH_SIZE { self.full_batches.saturating_add(1) } else { 0 };
        self.budget = if self.full_batches > FULL_BATCHES { new_flows.into() } else { BATCH_SIZE };
    }

    /// Counts a packet for its flow.
    #[inline]
    fn touch(&mut self, work: &Work, index: usize, flow: FlowIndex, now: Instant) {
        self.flows.touch(flow, work.packets.at(index).len() as u32, now);
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
