//! Offload stage: offers the flows of packets that the worker treats to the flow cache.

use millrace_classify::FlowIndex;
use millrace_packet::{DropReason, Exceptions, FlowKey, OffloadTotals};
use millrace_units::Instant;

use super::accounting::Accounting;
use super::entry::{Entry, EntryPhase};
use super::flow_state::FlowState;
use super::level::Level;
use super::plan::{Plan, Planner};
use super::quiesce::DeviceSlots;
use super::rate::Rate;
use super::upcalls::Upcalls;
use super::{OffloadedFlows, SETTLING, SUSPENDED};
use crate::classify::Classifier;
use crate::forward::tables::ForwardingTables;
use crate::gates::Gates;
use crate::handover::Handover;
use crate::observe::Observation;
use crate::parse::ROUTER;
use crate::ports::PortTable;
use crate::route_number::is_filter;
use crate::work::{Fate, Work};

/// Offer interval in packets: a flow without an entry is offered with its packets 2, 4, 8, … and with each
/// multiple of this number.
const OFFER: u32 = 256;
/// Interval in packets at which the placement of a flow without an entry is looked up. For the packets of the
/// flow before this number, it is looked up each time.
const PLACED: u32 = 16;
/// Interval in packets at which a flow is offered if a filter drops its packets. So some of these packets
/// reach the worker first, and appear in the worker's drop log.
const SHOWN: u32 = 16;

/// Offer of a flow to the flow cache, made by one of its packets.
struct Offer<'a> {
    key: &'a FlowKey,
    flow: FlowIndex,
    /// Packets of the flow so far.
    packets: u32,
    /// Slot of the flow's outdated entry, if it has one.
    slot: Option<u32>,
    /// Whether a placement offloads the flow.
    placed: bool,
}

impl OffloadedFlows {
    /// Returns the slot of the entry that is evicted in favour of an offered flow. `None` if the flow cache
    /// has room, the flow may evict none, or this iteration may insert no more entries.
    fn victim_of(&mut self, offer: &Offer<'_>, now: Instant) -> Option<u32> {
        match self.inserts > 0 && self.cache.room() == 0 {
            true if offer.placed => self.least_wanted(),
            true => self.lighter_than(offer.flow, offer.packets, now),
            false => None,
        }
    }
}

/// State of the offload stage: the offloaded flows, and the tables that decide about them.
pub(crate) struct OffloadStage<'a> {
    pub offload: &'a mut OffloadedFlows,
    pub classifier: &'a mut Classifier,
    pub gates: &'a mut Gates,
    pub forwarding: &'a mut ForwardingTables,
    pub ports: &'a PortTable,
    pub observation: &'a mut Observation,
    /// Rings to other workers; `None` with a single worker.
    pub handover: Option<&'a mut Handover>,
}

impl OffloadStage<'_> {
    /// Offers the flows of a batch to the flow cache. To be called after the packets were classified and
    /// their fates decided.
    pub fn offer(&mut self, work: &mut Work, now: Instant) {
        if self.offload.published == SUSPENDED || !self.classifier.remembers() {
            return;
        }
        work.complete_all();
        for (index, packet) in work.packets.iter().enumerate() {
            let Some(flow) = work.flows[index].filter(|_| packet.port != ROUTER) else { continue };
            if is_plain(work, index) {
                self.offer_one(packet.hash, &work.keys[index], flow, now);
            } else if let Fate::Kept(_) = work.fates[index] {
                self.withdraw(&work.keys[index], flow, now);
            }
        }
    }

    /// Removes the entry of a flow with a packet that waits, for the processor or an instance: no grace period covers
    /// the wait, so later packets of the flow would overtake it. The flow's next packet that does not wait gets an entry
    /// again, unless the flow had too many upcalls by now. The packet that waits is one of them.
    fn withdraw(&mut self, key: &FlowKey, flow: FlowIndex, now: Instant) {
        let Some(slot) = self.offload.slot_of(flow, key) else { return };
        self.offload.count_upcall(slot);
        self.accounting().account(slot, now);
        let is_better_up = self.offload.is_better_up(slot, now);
        let Some(upcalls) = self.offload.entry(slot).map(|entry| entry.upcalls) else { return };
        self.accounting().remove(slot);
        match is_better_up {
            true => self.offload.states.keep_up(flow, *key, now),
            false => self.offload.states.withdraw(flow, *key, upcalls, now),
        }
    }

    /// Offers the flow of a packet to the flow cache, unless its entry is current or the flow is not due for
    /// an offer.
    fn offer_one(&mut self, hash: u32, key: &FlowKey, flow: FlowIndex, now: Instant) {
        let offload = &mut *self.offload;
        let slot = offload.slot_of(flow, key);
        if slot.is_some_and(|slot| offload.count_upcall(slot)) || offload.keeps_up(flow, key, now) {
            return;
        }
        let record = self.classifier.flows.record(flow);
        let packets = record.packets_low();
        let is_due = slot.is_none() && offload.states.is_due(flow);
        if packets <= 2 {
            offload.states.forget_refusal(flow);
        }
        let is_sampled = slot.is_none() && offload.asking.is_sampled() && offload.cache.room() == 0;
        let is_time = packets >= 2
            && (is_due || is_sampled || packets.is_power_of_two() || packets.is_multiple_of(OFFER));
        // Limits the placement lookups of flows that stay at the worker.
        let may_be_placed = slot.is_some() || is_time || packets < PLACED || packets.is_multiple_of(PLACED);
        let placed = may_be_placed
            && !offload.placements.is_empty()
            && offload.placements.of(key) == Some(Level::Offload);
        // The flow table may have reused the record for another flow within this batch.
        let is_asked = (is_time || (placed && packets >= 2)) && self.classifier.flows.key(flow) == *key;
        if (slot.is_none() && !is_asked) || record.variant() != 0 {
            return;
        }
        // If the flow can't be offloaded, its outdated entry stays in the flow cache, unused.
        let plan = self.planner().plan_of(key, hash, &record.answer);
        if is_due {
            self.offload.states.set(flow, FlowState::AtWorker);
        }
        let Ok(plan) = plan else { return };
        if plan.steps.drops() && !packets.is_multiple_of(SHOWN) {
            return;
        }
        self.offload(&Offer { key, flow, packets, slot, placed }, plan, now);
    }

    /// Renews the entry of an offered flow, or inserts an entry.
    fn offload(&mut self, offer: &Offer<'_>, plan: Plan, now: Instant) {
        if let Some(slot) = offer.slot {
            // Packets of the entry so far belong to its previous plan.
            self.accounting().account(slot, now);
        }
        let offload = &mut *self.offload;
        let policer = self.gates.plugins().bindings.offload_policer(&plan.steps).map(|policer| &**policer);
        let Some(content) = offload.content(&plan, policer) else {
            // If the treatment of a flow can't be stored, the flow keeps its outdated entry, and later
            // packets offer the flow again.
            if offer.slot.is_none() {
                offload.refuse(offer.flow);
            }
            return;
        };
        if let Some(slot) = offer.slot {
            offload.renew(slot, (plan, &content), offer.placed, now);
            return;
        }
        let entry = Entry {
            key: *offer.key,
            flow: offer.flow,
            plan,
            generation: offload.published,
            phase: EntryPhase::Settling { until: now + SETTLING },
            accounted: OffloadTotals::default(),
            placed: offer.placed,
            upcalls: Upcalls::from(now),
            rate: Rate::from(now),
            last_used: now,
        };
        if let Some(slot) = offload.victim_of(offer, now) {
            self.accounting().remove(slot);
            self.offload.counts.evicted += 1;
        }
        self.offload.insert(entry, &content);
    }

    /// Begins the entries whose settling time is over, and advances the grace period after which entries may
    /// be used. `devices`: devices of the worker, by number.
    pub fn advance(&mut self, devices: &mut DeviceSlots, now: Instant) {
        self.offload.publish_generation(&self.classifier.changes);
        self.offload.carry_over(&self.classifier.changes, self.gates.plugins());
        self.offload.advance(self.ports, devices, self.handover.as_deref_mut(), now);
    }

    fn planner(&self) -> Planner<'_> {
        let Self { offload, gates, forwarding, ports, observation, .. } = self;
        Planner { offload, gates, forwarding, ports, observation }
    }

    pub fn accounting(&mut self) -> Accounting<'_> {
        Accounting {
            offload: self.offload,
            flows: &mut self.classifier.flows,
            routes: &mut self.observation.route_accounts,
            neighbours: &mut self.forwarding.neighbours,
            plugins: self.gates.plugins_mut(),
        }
    }
}

/// Returns whether a packet of a batch has no exceptions and is either forwarded unchanged or dropped by a
/// filter or a plugin. The exceptions are TTL expired, options, later fragment and transport header cut.
fn is_plain(work: &Work, index: usize) -> bool {
    let packet = work.packets.at(index);
    let is_settled = match work.fates[index] {
        Fate::Forward | Fate::Queue => !is_filter(packet.next_hop),
        Fate::Drop(reason) => matches!(reason, DropReason::Filter | DropReason::Plugin),
        _ => false,
    };
    is_settled && packet.exceptions == Exceptions::NONE
}
