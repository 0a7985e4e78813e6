//! Listing and removal of flow records for control, in pieces, so that packets don't wait.

use std::ops::Range;
use std::time::Duration;

use millrace_classify::{CompiledSelection, FlowIndex, FlowRecord, FlowTable};
use millrace_forward::{NextHop, Route};
use millrace_packet::FlowKey;
use millrace_plugin::{BindingId, PaidStages};
use millrace_schedule::cpu::CpuFlowAccount;
use millrace_units::{Instant, NextHopIndex, PathId, PortId, PrincipalId};

use crate::forward::filter_route::FilterRoute;
use crate::offloaded_flows::{Planner, StaysUp};
use crate::parse::ROUTER;
use crate::route_number::NO_ROUTE;
use crate::router::Router;

/// Request for the flow records that match a filter, in a part of the flow table.
#[derive(Clone, Debug)]
pub struct FlowScan {
    /// First slot of the part: 0 in the first request, then `next` of the previous page.
    pub from: u32,
    /// Maximum number of records to check, matching or not.
    pub records: u32,
    /// Filter: a flow matches if some of its packets may match.
    pub filter: CompiledSelection,
}

/// Answer to a [`FlowScan`]: the matching flows in a part of the flow table.
#[derive(Clone, Debug, Default)]
pub struct FlowPage {
    /// Flows that the scan found, or that [`FlowCommand::Flush`](crate::FlowCommand::Flush) removed.
    pub flows: Vec<FlowReport>,
    /// First slot of the next part; `None` at the end of the table.
    pub next: Option<u32>,
}

/// Principal that pays for a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowPayment {
    /// Principal.
    pub principal: PrincipalId,
    /// Account of the flow's queue; `None` if the flow has no queue of its own now.
    pub account: Option<CpuFlowAccount>,
}

/// Report on a flow record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowReport {
    /// Flow key.
    pub key: FlowKey,
    /// Values of those varying fields by which filters distinguish packets of the flow; 0 if no filter does.
    pub varying: u32,
    /// Mask of the bits of `varying` that filters match.
    pub varying_mask: u32,
    /// Number of packets since the record was made.
    pub packets: u64,
    /// Number of bytes since the record was made, link headers included.
    pub bytes: u64,
    /// Age of the record.
    pub age: Duration,
    /// Time since the last packet.
    pub idle: Duration,
    /// Whether the record is on probation, so that new flows may displace it.
    pub probation: bool,
    /// Whether a reservation prevents other flows from displacing the record.
    pub reserved: bool,
    /// Bindings of the flow's path, in the order of the gates.
    pub bindings: Vec<BindingId>,
    /// Route in words, with names of ports.
    pub route: String,
    /// Hash that identifies the flow in queues.
    pub hash: u32,
    /// Reason why the flow stays at the worker; `None` if it is offloaded.
    pub stays_up: Option<StaysUp>,
    /// Whether a placement matches the flow.
    pub placed: bool,
    /// Principals that pay for stages of the flow's path, in the order of the stages.
    pub payments: Vec<FlowPayment>,
}

/// Maximum number of records checked by one command.
const RECORDS: u32 = 2048;
/// Maximum number of flows that one command reports. Making a report takes as long as matching dozens of
/// records with the filter.
const FOUND: usize = 64;

impl FlowScan {
    /// Returns the matching flows in a part of the flow table, at most [`FOUND`].
    pub(crate) fn run(&self, router: &Router, now: Instant) -> FlowPage {
        let (mut flows, mut next) = (Vec::new(), self.next_part(&router.classifier.flows));
        for (index, record) in self.found(&router.classifier.flows) {
            if flows.len() == FOUND {
                next = Some(index.slot());
                break;
            }
            flows.push(report(router, index, record, now));
        }
        FlowPage { flows, next }
    }

    /// Removes the records of the flows that [`run`](Self::run) finds, and returns the flows.
    pub(crate) fn flush(&self, router: &mut Router, now: Instant) -> FlowPage {
        let page = self.run(router, now);
        let found = self.found(&router.classifier.flows).map(|(index, _)| index);
        let found: Vec<FlowIndex> = found.take(page.flows.len()).collect();
        for index in found {
            router.classifier.flows.remove(index);
        }
        router.classification().keep_flows(now, false);
        page
    }

    fn found<'a>(&'a self, flows: &'a FlowTable) -> impl Iterator<Item = (FlowIndex, &'a FlowRecord)> {
        flows.range(self.part()).filter(|(index, _)| self.filter.may_match_flow(&flows.key(*index)))
    }

    fn next_part(&self, flows: &FlowTable) -> Option<u32> {
        let end = self.part().end;
        (end < flows.slots()).then_some(end)
    }

    fn part(&self) -> Range<u32> {
        self.from..self.from.saturating_add(self.records.min(RECORDS))
    }
}

fn report(router: &Router, index: FlowIndex, record: &FlowRecord, now: Instant) -> FlowReport {
    let flows = &router.classifier.flows;
    let stages = router.gates.plugins().stages(record.answer.path);
    let hash = flows.hashes(&flows.key(index)).1;
    FlowReport {
        payments: payments(router, record.answer.path, hash),
        key: flows.key(index),
        varying: record.answer.varying_value,
        varying_mask: record.answer.varying_mask,
        packets: flows.packets(index),
        bytes: record.bytes(),
        age: now.since(flows.created(index)),
        idle: now.since(flows.last_used(index)),
        probation: record.is_on_probation(),
        reserved: record.is_reserved(),
        bindings: stages.map(|stage| stage.binding).collect(),
        route: route_in_words(router, record.answer.next_hop),
        hash,
        stays_up: stays_up(router, index, record, now),
        placed: router.offload.as_ref().is_some_and(|offload| offload.is_placed(&flows.key(index))),
    }
}

/// Returns the principals that pay for stages of a path, with the accounts of a flow's queues.
fn payments(router: &Router, path: PathId, hash: u32) -> Vec<FlowPayment> {
    let mut payments: Vec<FlowPayment> = Vec::new();
    for principal in PaidStages::of(router.gates.plugins()).payers(path) {
        if payments.iter().all(|payment| payment.principal != principal) {
            let waiting = router.pending.for_processor.get();
            let account = waiting.and_then(|waiting| waiting.account(principal, hash));
            payments.push(FlowPayment { principal, account });
        }
    }
    payments
}

/// Returns the reason why a flow stays at the worker; `None` if the flow is offloaded.
pub(crate) fn stays_up(
    router: &Router,
    index: FlowIndex,
    record: &FlowRecord,
    now: Instant,
) -> Option<StaysUp> {
    let flows = &router.classifier.flows;
    let key = flows.key(index);
    let offload = router.offload.as_deref();
    if offload.is_some_and(|offload| offload.has(index, &key)) {
        return None;
    }
    if key.port == ROUTER {
        return Some(StaysUp::Own);
    }
    let Some(offload) = offload else { return Some(StaysUp::NoCache) };
    if offload.keeps_up(index, &key, now) {
        return Some(StaysUp::ComesUp);
    }
    let planner = Planner {
        offload,
        gates: &router.gates,
        forwarding: &router.forwarding,
        ports: &router.ports,
        observation: &router.observation,
    };
    let plan = planner.plan_of(&key, flows.hashes(&key).1, &record.answer);
    let full_or_soon = if offload.counts().room == 0 { StaysUp::Full } else { StaysUp::Soon };
    Some(plan.err().unwrap_or(full_or_soon))
}

fn route_in_words(router: &Router, next_hop: NextHopIndex) -> String {
    let name = |port: PortId| router.ports.get(port).map_or("-", |entry| entry.settings.name.as_str());
    let hop = |hop: &NextHop| match hop.gateway {
        Some(via) => format!("via {via} port {}", name(hop.port)),
        None => format!("port {}", name(hop.port)),
    };
    match router.gates.routes().route(next_hop) {
        Some(FilterRoute::Drop) => "drop (filter)".to_owned(),
        Some(FilterRoute::Reject) => "reject (filter)".to_owned(),
        Some(FilterRoute::Host) => "host (filter)".to_owned(),
        Some(FilterRoute::Forward(hops)) => format!("{} (filter)", hop(hops.select(0))),
        None if next_hop == NO_ROUTE => "no route".to_owned(),
        None => match router.forwarding.fib.route(next_hop) {
            Route::Forward(hops) => hops.iter().map(hop).collect::<Vec<_>>().join(", or "),
            other => other.to_string(),
        },
    }
}
