//! Classification of new flows, and renewal of records after changes.

use std::net::IpAddr;

use millrace_classify::{FlowAnswer, FlowIndex, Touch};
use millrace_forward::{NO_ADJACENCY, Route};
use millrace_packet::DropReason;
use millrace_plugin_abi::FlowEnd;
use millrace_units::{Instant, PortId};

use super::Classification;
use crate::forward::fib::Fib;
use crate::forward::route::admit;
use crate::forward::tables::ForwardingTables;
use crate::parse::ROUTER;
use crate::ports::{PortTable, ReversePath};
use crate::route_number::{NO_ROUTE, is_filter};
use crate::work::{Fate, Work};

impl Classification<'_> {
    /// Classifies a packet whose flow has no record, by filters and routes, and inserts the record. Drops the
    /// packet if an overload has used up the budget for new flows.
    #[cold]
    pub(super) fn classify_new(
        &mut self,
        work: &mut Work,
        index: usize,
        variant: u32,
        now: Instant,
    ) -> Result<FlowAnswer, Fate> {
        let (key, hash) = (work.keys[index], work.hashes[index]);
        if self.classifier.grown
            && variant == 0
            && let Some(flow) = self.classifier.flows.find(&key, hash, 0)
        {
            work.flows[index] = Some(flow);
            return self.classify_known(work, index, flow, now);
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
            self.gates.plugins_mut().paths.hold(answer.path);
            self.classifier.grown = true;
            if self.classifier.reserved.contains(&key, self.seed) {
                self.classifier.flows.set_reserved(flow, true);
            }
            if self.gates.plugins().keeps_states() {
                let state = self.gates.plugins_mut().begin_state(answer.path);
                self.classifier.flows.set_state(flow, state);
            }
            self.classifier.touch(work, index, flow, now);
        }
        Ok(answer)
    }

    /// Brings the record of a flow up to date after a change. Returns the record's new [`FlowAnswer`].
    #[cold]
    pub(super) fn renew(
        &mut self,
        work: &mut Work,
        index: usize,
        flow: FlowIndex,
    ) -> Result<FlowAnswer, Fate> {
        let old = self.classifier.flows.record(flow).answer;
        let answer = match self.classifier.changes.touches(&work.keys[index], old.generation) {
            Touch::Nothing => {
                self.classifier.counts.checked += 1;
                FlowAnswer { generation: self.classifier.changes.current(), ..old }
            }
            Touch::Route => match self.reroute(work, index, &old) {
                Some(answer) => {
                    self.classifier.counts.rerouted += 1;
                    answer
                }
                None => self.reclassify(work, index, flow, &old)?,
            },
            Touch::All => self.reclassify(work, index, flow, &old)?,
        };
        if answer.path != old.path {
            let plugins = self.gates.plugins_mut();
            plugins.paths.hold(answer.path);
            plugins.paths.release(old.path);
        }
        *self.classifier.flows.answer_mut(flow) = answer;
        Ok(answer)
    }

    /// Classifies the flow of an outdated record again. Removes the record if the packet's fate is decided
    /// here.
    fn reclassify(
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

    /// Looks up the route of an outdated [`FlowAnswer`] again. Returns `None` if more than the route may have
    /// changed, so that the flow has to be classified again.
    fn reroute(&self, work: &Work, index: usize, old: &FlowAnswer) -> Option<FlowAnswer> {
        let key = &work.keys[index];
        let port = self.ports.get(key.port);
        let checks = port.is_some_and(|entry| entry.settings.reverse_path != ReversePath::Off);
        if checks || is_filter(old.next_hop) || self.forwarding.own_addresses.contains(&key.source()) {
            return None;
        }
        let next_hop = self.forwarding.fib.lookup(key.destination()).unwrap_or(NO_ROUTE);
        if self.gates.is_bound() && (next_hop == NO_ROUTE) != (old.next_hop == NO_ROUTE) {
            return None;
        }
        let generation = self.classifier.changes.current();
        Some(FlowAnswer { next_hop, generation, adjacency: NO_ADJACENCY, ..*old })
    }

    /// Classifies a packet by filters and routes. Returns the [`FlowAnswer`] for its flow record, or the fate
    /// of a packet that may not be forwarded.
    #[inline(always)]
    pub(super) fn answer(&mut self, work: &Work, index: usize) -> Result<FlowAnswer, Fate> {
        let (packet, key) = (work.packets.at(index), &work.keys[index]);
        let ahead = self.classifier.ahead.answer(index);
        let next_hop = match ahead {
            Some((next_hop, _)) => next_hop,
            None => self.forwarding.fib.lookup(key.destination()).unwrap_or(NO_ROUTE),
        };
        if packet.port != ROUTER {
            let fate = admit(self.ports, packet, key, self.options.martians);
            if !fate.is_open() {
                return Err(fate);
            }
            if let Some(reason) = refuse_source(self.forwarding, self.ports, packet.port, key.source()) {
                return Err(Fate::Drop(reason));
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
}

/// Returns the drop reason of a received packet with an invalid source: an address of the router itself, or
/// one that fails the reverse path check at the port.
#[inline(always)]
pub(crate) fn refuse_source(
    forwarding: &ForwardingTables,
    ports: &PortTable,
    port: PortId,
    source: IpAddr,
) -> Option<DropReason> {
    if forwarding.own_addresses.contains(&source) {
        return Some(DropReason::MartianSource);
    }
    let mode = ports.get(port).map_or(ReversePath::Off, |entry| entry.settings.reverse_path);
    (!comes_from_there(mode, &forwarding.fib, port, source)).then_some(DropReason::ReversePath)
}

/// Returns whether the reverse path check permits a source address at a port (RFC 3704, 2.2 to 2.4).
fn comes_from_there(mode: ReversePath, fib: &Fib, port: PortId, source: IpAddr) -> bool {
    if mode == ReversePath::Off {
        return true;
    }
    match fib.lookup(source).map(|index| fib.route(index)) {
        Some(Route::Forward(hops)) => mode == ReversePath::Loose || hops.iter().any(|hop| hop.port == port),
        Some(Route::Kernel) => mode == ReversePath::Loose,
        _ => false,
    }
}
