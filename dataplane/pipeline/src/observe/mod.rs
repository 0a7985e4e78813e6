//! Observation: captures, traces, the drop log, events for control, and counters of a router.

pub(crate) mod capture;
pub(crate) mod drop_log;
pub(crate) mod event;
pub(crate) mod totals;
pub(crate) mod trace;

use std::collections::{BTreeMap, VecDeque};

use millrace_packet::{DropReason, Packet};
use millrace_plugin::WorkerPlugins;
use millrace_wire::EtherType;

use crate::accounts::RouteAccounts;
use crate::gate_tables::WorkerTable;
use crate::observe::capture::CaptureSink;
use crate::observe::drop_log::DropLog;
use crate::observe::event::{EVENT_LIMIT, Event};
use crate::observe::totals::Totals;
use crate::observe::trace::Tracer;
use crate::ports::PortTable;

/// Maximum number of unsupported EtherTypes that are counted separately.
const ETHER_TYPES: usize = 64;

/// Counters, drop log, events, captures and trace of a router.
pub(crate) struct Observation {
    pub totals: Totals,
    /// Accounts of routes: packets and bytes that were queued, that wait, and that were dropped.
    pub route_accounts: RouteAccounts,
    pub ether_types: BTreeMap<u16, u64>,
    /// Last dropped packets, by reason.
    pub drop_log: DropLog,
    pub events: VecDeque<Event>,
    pub captures: Vec<CaptureSink>,
    /// Running trace.
    pub trace: Option<Box<Tracer>>,
    /// Trace number of the first packet of the next trace.
    pub next_mark: u16,
}

impl Default for Observation {
    fn default() -> Self {
        Self {
            totals: Totals::default(),
            route_accounts: RouteAccounts::default(),
            ether_types: BTreeMap::new(),
            drop_log: DropLog::default(),
            events: VecDeque::new(),
            captures: Vec::new(),
            trace: None,
            next_mark: 1,
        }
    }
}

impl Observation {
    /// Counts a packet whose EtherType the router does not support.
    pub fn count_ether_type(&mut self, ether_type: EtherType) {
        if self.ether_types.len() < ETHER_TYPES || self.ether_types.contains_key(&ether_type.0) {
            *self.ether_types.entry(ether_type.0).or_default() += 1;
        }
    }

    /// Returns whether any capture is running.
    #[inline]
    pub fn is_tapped(&self) -> bool {
        !self.captures.is_empty()
    }

    /// Reports an event to control. Returns `false` if too many events wait already.
    pub fn report_event(&mut self, event: Event) -> bool {
        let room = self.events.len() < EVENT_LIMIT;
        if room {
            self.events.push_back(event);
        }
        room
    }

    /// Drops a packet: counts the drop at its ingress port, and records it in the drop log and the packet's
    /// trace.
    pub fn drop_packet(
        &mut self,
        packet: Packet,
        reason: DropReason,
        ports: &mut PortTable,
        plugins: &WorkerPlugins<WorkerTable>,
    ) {
        self.totals.dropped += 1;
        ports.count_drop(packet.port, reason);
        self.drop_log.note(&packet, reason, plugins);
        if packet.trace != 0 {
            self.trace_dropped(&packet, reason);
        }
    }

    /// Ends the trace with number `id`, if it is running.
    pub fn stop_trace(&mut self, id: u32) {
        if let Some(tracer) = self.trace.take_if(|tracer| tracer.id() == id) {
            self.next_mark = tracer.number();
        }
    }
}
