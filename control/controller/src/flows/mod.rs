//! Flows in the flow tables of the workers.
//!
//! A worker visits a bounded number of records at once, between two batches, so that packets don't wait. In
//! the meantime, control serves other requests.

mod ebpf_variants;
pub(crate) mod flow_cache;
pub(crate) mod lookup;
pub(crate) mod offload;
pub(crate) mod placement;

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use millrace_classify::Filter;
use millrace_pipeline::{FlowPayment, FlowReport};
use millrace_schedule::cpu::CpuFlowAccount;
use millrace_units::Cycles;
use millrace_wire::Protocol;

use crate::model::Model;
use crate::model::packets::selector;
use crate::request::FlowOrder;
use crate::show;
use crate::view::{FlowLevelView, FlowPaymentView, FlowView};

/// Maximum number of flow records that a worker visits between two batches. It stops earlier if many of them
/// match.
pub(crate) const AT_ONCE: u32 = 2048;
/// Default number of listed flows.
pub(crate) const LIMIT: usize = 100;
/// Maximum number of listed flows.
pub(crate) const MOST: usize = 10_000;
/// Duration of the measurement of flow rates.
pub(crate) const MEASURE: Duration = Duration::from_millis(500);

/// Packets and bytes of a flow at an earlier reading, and the time of that reading.
type Look = (u64, u64, Instant);

/// Flow in the list, with its worker and rate.
pub(crate) struct Measured {
    pub flow: FlowReport,
    pub worker: usize,
    /// Packets and bytes per second; `None` unless flows are ordered by rate.
    pub rate: Option<(f64, f64)>,
}

/// Returns packets and bytes per second since the reading `before`. Without an earlier reading, returns the
/// average since the flow record was created.
pub(crate) fn rate(flow: &FlowReport, before: Option<&Look>) -> (f64, f64) {
    let known = before.filter(|(packets, ..)| *packets <= flow.packets);
    let (packets, bytes, time) = match known {
        Some((packets, bytes, at)) => {
            (flow.packets - packets, flow.bytes.saturating_sub(*bytes), at.elapsed())
        }
        None => (flow.packets, flow.bytes, flow.age),
    };
    let seconds = time.as_secs_f64().max(1e-3);
    (packets as f64 / seconds, bytes as f64 / seconds)
}

/// Collector that keeps the first `limit` flows in the requested order. Its memory is bounded, however many
/// flows it takes.
pub(crate) struct Top {
    order: FlowOrder,
    limit: usize,
    flows: Vec<Measured>,
}

impl Top {
    /// Returns an empty collector of at most `limit` flows.
    pub fn new(order: FlowOrder, limit: usize) -> Self {
        Self { order, limit, flows: Vec::new() }
    }

    pub(crate) fn take(&mut self, flow: Measured) {
        self.flows.push(flow);
        if self.flows.len() >= 2 * self.limit + AT_ONCE as usize {
            self.cut();
        }
    }

    fn cut(&mut self) {
        match self.order {
            FlowOrder::Rate => {
                let packets = |one: &Measured| one.rate.map_or(0.0, |(packets, _)| packets);
                self.flows.sort_by(|a, b| packets(b).total_cmp(&packets(a)));
            }
            FlowOrder::Bytes => self.flows.sort_by_key(|one| Reverse(one.flow.bytes)),
            FlowOrder::Packets => self.flows.sort_by_key(|one| Reverse(one.flow.packets)),
            FlowOrder::Recent => self.flows.sort_by_key(|one| one.flow.idle),
            FlowOrder::Cycles => self.flows.sort_by_key(|one| Reverse(cycles(&one.flow))),
        }
        self.flows.truncate(self.limit);
    }

    pub(crate) fn finish(mut self) -> Vec<Measured> {
        self.cut();
        self.flows
    }
}

/// Returns the processor time of a flow since it got its present queues.
fn cycles(flow: &FlowReport) -> Cycles {
    let used = flow.payments.iter().filter_map(|payment| Some(payment.account?.used));
    used.fold(Cycles(0), |sum, used| sum + used)
}

fn payment_view(payment: &FlowPayment, model: &Model) -> FlowPaymentView {
    let CpuFlowAccount { used: Cycles(cycles), packets: waiting, bytes: waiting_bytes, dropped } =
        payment.account.unwrap_or_default();
    let principal = model.principal_ids.name(payment.principal).to_owned();
    FlowPaymentView { principal, cycles, waiting, waiting_bytes, dropped }
}

pub(crate) fn view(Measured { flow, worker, rate }: Measured, model: &Model) -> FlowView {
    let key = &flow.key;
    let bindings = flow.bindings.iter().filter_map(|id| model.plugins.binding(*id));
    let binding = |bound: &crate::model::Bound| {
        let (gate, filter) = (model.plugins.gate_name(bound.gate), bound.filter.to_string());
        format!("gate {gate}: {} by {filter:?}", show::action(&bound.action, model))
    };
    FlowView {
        flow: variant(&flow, model),
        source: key.source().to_string(),
        destination: key.destination().to_string(),
        protocol: Protocol(key.protocol).to_string(),
        source_port: key.source_port,
        destination_port: key.destination_port,
        port: model.port_name(key.port).to_owned(),
        packets: flow.packets,
        bytes: flow.bytes,
        packet_rate: rate.map(|(packets, _)| packets),
        bit_rate: rate.map(|(_, bytes)| 8.0 * bytes),
        age: flow.age.as_secs_f64(),
        idle: flow.idle.as_secs_f64(),
        level: FlowLevelView {
            level: if flow.stays_up.is_none() { "offload" } else { "worker" },
            why_not_offloaded: flow.stays_up.map(|why| placement::words(why, model)),
            placed: flow.placed,
        },
        worker,
        state: match (flow.reserved, flow.probation) {
            (true, _) => "reserved",
            (false, true) => "new",
            (false, false) => "established",
        },
        bindings: bindings.map(binding).collect(),
        payments: flow.payments.iter().map(|payment| payment_view(payment, model)).collect(),
        route: flow.route,
    }
}

/// Returns a filter that matches exactly the packets of this flow record. The filter consists of the flow
/// key, and of the varying fields that the flow's filters distinguish.
fn variant(flow: &FlowReport, model: &Model) -> String {
    let kind = Filter::of_varying(flow.varying, flow.varying_mask);
    let selector = selector(&flow.key, model);
    if kind.is_any() { selector } else { format!("{selector} {kind}") }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use millrace_packet::FlowKey;
    use millrace_units::{PortId, PrincipalId};

    use super::*;

    fn report(number: u8, packets: u64) -> FlowReport {
        let account = CpuFlowAccount { used: Cycles(packets % 7), ..CpuFlowAccount::default() };
        let key = FlowKey::v4(Ipv4Addr::new(10, 0, 0, number), Ipv4Addr::LOCALHOST, 17, (1, 2), PortId(0));
        FlowReport {
            key,
            varying: 0,
            varying_mask: 0,
            packets,
            bytes: 1000 - packets,
            age: Duration::from_secs(2),
            idle: Duration::from_millis(u64::from(number)),
            probation: false,
            reserved: false,
            bindings: Vec::new(),
            route: String::new(),
            stays_up: Some(millrace_pipeline::StaysUp::Soon),
            placed: false,
            hash: 0,
            payments: vec![FlowPayment { principal: PrincipalId(0), account: Some(account) }],
        }
    }

    fn first(order: FlowOrder) -> Vec<u64> {
        let mut top = Top { order, limit: 2, flows: Vec::new() };
        for (number, packets) in [(9, 5), (1, 7), (4, 6)] {
            let rate = Some((-(packets as f64), 0.0));
            top.take(Measured { flow: report(number, packets), worker: 0, rate });
        }
        top.finish().into_iter().map(|one| one.flow.packets).collect()
    }

    #[test]
    fn first_flows_follow_the_order() {
        assert_eq!(first(FlowOrder::Packets), [7, 6]);
        assert_eq!(first(FlowOrder::Bytes), [5, 6]);
        assert_eq!(first(FlowOrder::Recent), [7, 6]);
        assert_eq!(first(FlowOrder::Rate), [5, 6]);
        assert_eq!(first(FlowOrder::Cycles), [6, 5]);
    }

    #[test]
    fn memory_is_bounded_by_the_shown_flows() {
        let mut top = Top { order: FlowOrder::Packets, limit: 3, flows: Vec::new() };
        for packets in 0..20_000 {
            top.take(Measured { flow: report(1, packets % 900), worker: 0, rate: None });
            assert!(top.flows.len() <= 2 * 3 + AT_ONCE as usize);
        }
        assert!(top.finish().iter().all(|one| one.flow.packets == 899));
    }

    #[test]
    fn a_rate_is_of_the_time_between_or_of_the_flows_whole_life() {
        let flow = report(1, 100);
        let (fresh, _) = rate(&flow, None);
        assert!((fresh - 50.0).abs() < 1e-9, "{fresh}");
        let second_ago = Instant::now() - Duration::from_secs(1);
        let (since, _) = rate(&flow, Some(&(90, 0, second_ago)));
        assert!((9.0..=10.0).contains(&since), "{since}");
        // The packet count is lower than at the earlier reading, so the flow has a new record.
        let (anew, _) = rate(&flow, Some(&(1000, 0, second_ago)));
        assert!((anew - 50.0).abs() < 1e-9, "{anew}");
    }
}
