//! Operations on flows, connections and placements, and the lookup of a packet.

use std::collections::HashMap;
use std::time::Instant;

use millrace_classify::CompiledSelection;
use millrace_config::ServiceLevel;
use millrace_pipeline::{
    ConnectionCommand, ConnectionReport, ConnectionScan, FlowCommand, FlowPage, FlowReport, FlowScan,
    ObservationCommand, ReplyTo, SchedulerCommand,
};
use millrace_wire::Protocol;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::ControlError;
use crate::admission::allowances::check_level;
use crate::filters::parse_filter;
use crate::flows::placement::{Concerned, Count, Resolved, budget, counts_of, plan_placement};
use crate::flows::{AT_ONCE, LIMIT, MEASURE, MOST, Measured, Top, lookup, rate, view};
use crate::model::packets::ReadPacket;
use crate::model::placements::Placed;
use crate::model::principals::Owners;
use crate::observe::words::Names;
use crate::operation::kinds::{Acting, Action, Change, Changing, Query, Reading};
use crate::operation::{Effect, Operation};
use crate::request::{FlowOrder, FlowQuery, NewPlacement, WantedLevel};
use crate::router::Inner;
use crate::view::{
    ConnectionView, ConnectionsView, FlowsView, Flushed, LookupView, PlacementView, PlacementsView,
};

/// Lists the flows that a filter selects, in the requested order and up to a limit.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ListFlows(
    /// Selection and order of the flows.
    pub FlowQuery,
);

impl Operation for ListFlows {
    type Answer = FlowsView;
    type Kind = Query;

    /// # Errors
    /// Returns an error for an invalid filter or limit, an unknown principal, or if the data plane does not
    /// answer.
    async fn carry_out(self, router: &Reading) -> Result<FlowsView, ControlError> {
        let FlowQuery { filter, order, limit, principal } = self.0;
        let limit = ControlError::in_range("limit", limit.unwrap_or(LIMIT), 1..=MOST)?;
        let filter = router.flows(filter.as_deref())?;
        let payer = match principal {
            Some(name) => Some(Owners(&router.lock().model).shown_principal(&name)?),
            None => None,
        };
        let mut before = HashMap::new();
        if order == FlowOrder::Rate {
            let note = |worker, flow: FlowReport| {
                before.insert((worker, flow.key, flow.varying), (flow.packets, flow.bytes, Instant::now()));
            };
            router.scan(FlowCommand::Scan, &filter, note).await?;
            tokio::time::sleep(MEASURE).await;
        }
        let mut top = Top::new(order, limit);
        let mut found = 0;
        let take = |worker, mut flow: FlowReport| {
            if let Some(payer) = payer {
                flow.payments.retain(|payment| payment.principal == payer && payment.account.is_some());
                if flow.payments.is_empty() {
                    return;
                }
            }
            found += 1;
            let known = before.get(&(worker, flow.key, flow.varying));
            let rate = (order == FlowOrder::Rate).then(|| rate(&flow, known));
            top.take(Measured { flow, worker, rate });
        };
        router.scan(FlowCommand::Scan, &filter, take).await?;
        let flows = top.finish();
        let inner = router.lock();
        Ok(FlowsView { found, flows: flows.into_iter().map(|flow| view(flow, &inner.model)).collect() })
    }
}

/// Flushes the flows that a filter selects: their next packets are classified again. Returns the number of
/// flushed flows.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlushFlows {
    /// Filter of the flows; a flow is flushed if any of its packets could match. All flows by default.
    pub filter: Option<String>,
}

impl Operation for FlushFlows {
    type Answer = Flushed;
    type Kind = Action;
    const EFFECT: Effect = Effect::Forwarding;
    const NO_INVERSE: &'static str = "packets make the flows anew";

    /// # Errors
    /// Returns an error for an invalid filter, or if the data plane does not answer.
    async fn carry_out(self, acting: &Acting) -> Result<Flushed, ControlError> {
        let filter = acting.flows(self.filter.as_deref())?;
        let mut flushed = 0;
        acting.scan(FlowCommand::Flush, &filter, |_, _| flushed += 1).await?;
        Ok(Flushed { flushed })
    }
}

/// Lists the connections that a filter selects, up to a limit.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ListConnections {
    /// Filter of the connections; a connection is listed if packets of either direction could match. Connections have no
    /// ingress port, so a filter with `in` selects none. All connections by default.
    pub filter: Option<String>,
    /// Maximum number of listed connections, 1 to 10,000; 100 by default.
    pub limit: Option<usize>,
}

impl Operation for ListConnections {
    type Answer = ConnectionsView;
    type Kind = Query;

    /// # Errors
    /// Returns an error for an invalid filter or limit, or if the data plane does not answer.
    async fn carry_out(self, router: &Reading) -> Result<ConnectionsView, ControlError> {
        let limit = ControlError::in_range("limit", self.limit.unwrap_or(LIMIT), 1..=MOST)?;
        let filter = router.flows(self.filter.as_deref())?;
        let mut all = ConnectionsView { found: 0, connections: Vec::new() };
        let workers = router.lock().workers.len();
        for worker in 0..workers {
            let mut from = Some(1);
            while let Some(start) = from {
                let most = limit - all.connections.len();
                let scan = ConnectionScan { from: start, filter: filter.clone(), most };
                let ask = |reply| ConnectionCommand::Scan(scan, reply);
                let page = router.lock().seen().workers.get(worker).ask(ask)?;
                all.found += page.found;
                all.connections.extend(page.connections.iter().map(|one| connection_view(one, worker)));
                from = page.next.filter(|next| *next > start);
                tokio::task::yield_now().await;
            }
        }
        Ok(all)
    }
}

/// Explains how the router would treat a packet.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lookup {
    /// Description of the packet, in the form of a filter without wildcards for the addresses.
    pub packet: String,
}

impl Operation for Lookup {
    type Answer = LookupView;
    type Kind = Query;

    /// # Errors
    /// Returns an error for an invalid description of the packet, or if the data plane does not answer.
    async fn carry_out(self, router: &Reading) -> Result<LookupView, ControlError> {
        let packet = ReadPacket::read(&self.packet)?;
        let mut guard = router.lock();
        let inner = guard.seen();
        let question = packet.question(inner.model)?;
        let lookup = inner
            .workers
            .owner_of_flow(question.key())
            .ask(|reply| ObservationCommand::Lookup(question, reply))?;
        let leaf = match lookup.queue() {
            Some((port, queue)) => {
                inner.workers.ask(|reply| SchedulerCommand::FindLeaf(port, queue, reply))?
            }
            None => Vec::new(),
        };
        let leaf = leaf.into_iter().flatten().next();
        let names = Names { model: inner.model, routes: &inner.routes.table };
        Ok(lookup::view(&lookup, leaf, &names))
    }
}

/// Lists the placements, with the levels of all flows, and the reasons why flows stay at a worker.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListPlacements;

impl Operation for ListPlacements {
    type Answer = PlacementsView;
    type Kind = Query;

    async fn carry_out(self, router: &Reading) -> Result<PlacementsView, ControlError> {
        let (placed, resolved) = {
            let inner = router.lock();
            let resolved = |placed: &Placed| Resolved::of(&placed.what, &inner.model);
            let resolved: Vec<_> =
                inner.model.placements.pinned.iter().map(resolved).collect::<Result<_, _>>()?;
            (inner.model.placements.pinned.clone(), resolved)
        };
        let concerned: Vec<_> = resolved.iter().map(Resolved::compile).collect::<Result<_, _>>()?;
        let (counts, all) = count_flows(router, &concerned).await?;
        let inner = router.lock();
        let view = |(placed, count): (&Placed, &Count)| count.view(placed, &inner.model);
        Ok(PlacementsView {
            placements: placed.iter().zip(&counts).map(view).collect(),
            offload: all.offload,
            worker: all.worker,
            why_worker: all.why(&inner.model),
            budget: budget(),
        })
    }
}

/// Sets the level of flows, or of an instance's packets; `auto` removes the placement. When the operation has
/// succeeded, each packet of these flows is treated at this level. Exception: a flow is offloaded only with
/// its next packet.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct PlaceFlows(
    /// Flows or instance to place, and the level.
    pub NewPlacement,
);

impl Operation for PlaceFlows {
    type Answer = PlacementView;
    type Kind = Change;

    /// # Errors
    /// Returns an error if the text is neither a filter nor an instance, if the instance can't be offloaded,
    /// if there is no flow cache, if there are too many placements, or for `auto` without a placement.
    /// Nothing has changed then.
    async fn carry_out(self, router: &Changing) -> Result<PlacementView, ControlError> {
        let Self(new) = self;
        // Parsing a long filter takes time, so it is done before the state is locked.
        let filter = parse_filter(new.flow.trim());
        let level = new.level;
        let by = router.caller().requester();
        let plan = move |inner: &mut Inner| {
            let wanted = match level {
                WantedLevel::Offload => Some(ServiceLevel::Offload),
                WantedLevel::Worker => Some(ServiceLevel::Worker),
                WantedLevel::Auto => None,
            };
            let what = format!("flow {:?}", new.flow.trim());
            wanted.map_or(Ok(()), |level| check_level(&inner.model, &by, &what, level))?;
            let (change, placed, resolved) = plan_placement(&mut inner.model, &inner.offload, &new, filter)?;
            Ok((vec![change], (placed, resolved.compile()?)))
        };
        let answer = async move |router: Reading, (placed, concerned): (Placed, Concerned)| {
            let (counts, _) = count_flows(&router, &[concerned]).await?;
            let view = counts[0].view(&placed, &router.lock().model);
            Ok(if level == WantedLevel::Auto { PlacementView { level: "auto", ..view } } else { view })
        };
        router.change_and_ask(plan, answer).await
    }
}

impl Reading {
    /// Compiles the filter of flows. A missing filter selects all flows.
    ///
    /// # Errors
    /// Returns an error for an invalid filter.
    fn flows(&self, filter: Option<&str>) -> Result<CompiledSelection, ControlError> {
        Ok(self.select(filter)?.unwrap_or_else(CompiledSelection::any))
    }

    /// Visits the flow tables of all workers, a limited number of records at a time. Calls `take` with the
    /// worker's number and each flow that `filter` selects.
    pub(super) async fn scan(
        &self,
        command: fn(FlowScan, ReplyTo<FlowPage>) -> FlowCommand,
        filter: &CompiledSelection,
        mut take: impl FnMut(usize, FlowReport),
    ) -> Result<(), ControlError> {
        let workers = self.lock().workers.len();
        for worker in 0..workers {
            let mut from = Some(0);
            while let Some(start) = from {
                let scan = FlowScan { from: start, records: AT_ONCE, filter: filter.clone() };
                let page = self.lock().seen().workers.get(worker).ask(|reply| command(scan, reply))?;
                page.flows.into_iter().for_each(|flow| take(worker, flow));
                // A table never shrinks during the scan, so each part begins after the previous one.
                from = page.next.filter(|next| *next > start);
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }
}

/// Counts the flows of each target of a placement, and all flows. A flow that belongs to several targets
/// counts only for the first of these targets.
async fn count_flows(router: &Reading, concerned: &[Concerned]) -> Result<(Vec<Count>, Count), ControlError> {
    let mut flows = Vec::new();
    router.scan(FlowCommand::Scan, &CompiledSelection::any(), |_, flow| flows.push(flow)).await?;
    Ok(counts_of(&flows, concerned, &router.lock().model))
}

fn connection_view(connection: &ConnectionReport, worker: usize) -> ConnectionView {
    let key = &connection.key;
    ConnectionView {
        protocol: Protocol(key.protocol).to_string(),
        source: key.source().to_string(),
        source_port: key.source_port,
        destination: key.destination().to_string(),
        destination_port: key.destination_port,
        identifier: connection.identifier,
        state: connection.phase,
        answered: connection.is_answered,
        confirmed: connection.is_assured,
        expires: connection.rest.as_secs_f64(),
        worker,
    }
}
