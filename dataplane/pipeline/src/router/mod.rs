//! Router of a worker: its tables, and the pipeline that takes a batch through the stages.

mod follow_up;
mod forwarding;
mod neighbours;
pub(crate) mod scratch;
mod timers;
mod trace_pieces;
mod trace_steps;

use std::sync::Arc;

use millrace_classify::FlowTableError;
use millrace_forward::FibReader;
use millrace_packet::{Arrivals, BATCH_SIZE, DropReason, Pool};
use millrace_plugin::Pulse;
use millrace_plugin_abi::Position;
use millrace_units::Instant;

use crate::classify::Classifier;
use crate::driver_flows::DriverFlows;
use crate::egress::errors::IcmpErrors;
use crate::fast_path::plain::read_plain;
use crate::forward::tables::ForwardingTables;
use crate::gates::Gates;
use crate::handover::Handover;
use crate::ingress::receive::receive;
use crate::observe::Observation;
use crate::observe::event::Event;
use crate::observe::trace::{Pick, Probe};
use crate::options::Options;
use crate::pending::Pending;
use crate::ports::{DeviceId, PortTable};
use crate::punt::Punt;
use crate::router::scratch::Scratch;
use crate::work::{Fate, Work};

/// Maximum number of held packets that time out in an iteration. The router sends ICMP errors about them.
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
    /// Last batch that the worker received, and its ingress device; `None` before the first batch, and for a
    /// batch from another worker.
    pub(crate) arrivals: (Arrivals, Option<DeviceId>),
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
            self.observation.tap_arrivals(work, &self.pool, now);
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
        match self.settle(work, (), now) {
            true => self.leave(work, now),
            false => self.dispose(work, (), now),
        }
    }

    /// Runs the stages from classify up to dispose, which settle the fates of the packets. Returns whether
    /// all packets (except those [aside](Work::aside)) are finished frames that
    /// [`Leaving`](crate::work::Leaving) has counted.
    #[inline(always)]
    pub(crate) fn settle<P: Probe>(&mut self, work: &mut Work, probe: P, now: Instant) -> bool {
        let open = probe.mark().filter(|_| work.fates[0].is_open());
        let before = open.map(|mark| (mark, self.classifier.counts));
        self.gates.groups.begin();
        let is_bare = !self.classifier.remembers() && !self.observation.is_tapped() && self.leave_bare(work);
        let is_express = is_bare || self.classify_or_express(work, probe, now);
        if let Some((mark, before)) = before {
            self.write_classified(mark, work, before, now);
        }
        if !is_express {
            work.note_keys();
            self.settle_from(work, (Position::Early, 0), probe, now);
            return false;
        }
        if !self.gates.groups.is_empty() {
            return self.settle_bound(work, probe, now);
        }
        if let Some(mark) = probe.mark().filter(|_| work.fates[0] == Fate::Queue) {
            self.write_routed(mark, work, now);
        }
        self.offer_to_driver(work, now);
        true
    }

    /// Takes packets of known flows through the instances at gates of positions `early` and `late`. Returns
    /// whether all packets are finished frames.
    fn settle_bound<P: Probe>(&mut self, work: &mut Work, probe: P, now: Instant) -> bool {
        if self.gates.looks_at_packets() {
            work.note_keys();
        }
        self.run_gates((Position::Early, 0), work, probe, now);
        self.run_gates((Position::Late, 0), work, probe, now);
        self.forward_known(work, probe, now);
        self.offer_to_driver(work, now);
        let all = work.leaving.packets() + work.aside as u64 == work.packets.len() as u64;
        if !all {
            work.note_keys();
        }
        all
    }

    /// Settles the fates of packets from a position and stage number on, without disposing of them.
    pub(crate) fn settle_from<P: Probe>(
        &mut self,
        work: &mut Work,
        (position, stage): (Position, u16),
        probe: P,
        now: Instant,
    ) {
        self.gates.group(work);
        let from = |here: Position| if here == position { stage } else { 0 };
        for here in [Position::Early, Position::Route, Position::Late] {
            if here >= position {
                self.run_gates((here, from(here)), work, probe, now);
            }
        }
        if position <= Position::Late {
            self.make_copies(work, probe, now);
            self.forward(work, probe, now);
            if (position, stage) == (Position::Early, 0) {
                // Not for packets that waited: `work` holds no flow records for them.
                self.note_adjacencies(work);
                self.offer_to_driver(work, now);
            }
        }
        self.run_gates((Position::Queue, from(Position::Queue)), work, probe, now);
        if position == Position::Queue {
            self.forwarder().decide_late(work);
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

    /// Returns the next event for control.
    pub(crate) fn take_event(&mut self) -> Option<Event> {
        let failure = || self.gates.plugins_mut().take_failure().map(Event::InstanceFailed);
        self.observation.events.pop_front().or_else(failure)
    }
}
