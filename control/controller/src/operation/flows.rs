//! Operations on flows and placements, and the lookup of a packet.

use crate::ControlError;
use crate::filters::parse_filter;
use crate::flows::AT_ONCE;
use crate::flows::LIMIT;
use crate::flows::MEASURE;
use crate::flows::MOST;
use crate::flows::Measured;
use crate::flows::Top;
use crate::flows::lookup;
use crate::flows::placement::Concerned;
use crate::flows::placement::Count;
use crate::flows::placement::Resolved;
use crate::flows::placement::budget;
use crate::flows::placement::counts_of;
use crate::flows::placement::set_placement;
use crate::flows::rate;
use crate::flows::view;
use crate::model::packets::ReadPacket;
use crate::model::placements::Placed;
use crate::operation::Authorized;
use crate::operation::Effect;
use crate::operation::Operation;
use crate::request::FlowOrder;
use crate::request::FlowQuery;
use crate::request::NewPlacement;
use crate::request::WantedLevel;
use crate::router::Router;
use crate::view::FlowsView;
use crate::view::LookupView;
use crate::view::PlacementView;
use crate::view::PlacementsView;
use millrace_classify::CompiledSelection;
use millrace_pipeline::FlowCommand;
use millrace_pipeline::FlowPage;
use millrace_pipeline::FlowReport;
use millrace_pipeline::FlowScan;
use millrace_pipeline::ObservationCommand;
use millrace_pipeline::ReplyTo;
use millrace_pipeline::SchedulerCommand;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::HashMap;
use std::time::Instant;

/// Lists the first of the flows that a filter selects, in the requested order.
#[derive(Clone, Debug, Default)]
pub struct ListFlows(
    /// Selection and order of the flows.
    pub FlowQuery,
);

impl Operation for ListFlows {
    type Answer = FlowsView;
    const EFFECT: Effect = Effect::Look;

    /// # Errors
    /// Returns an error for an invalid filter or limit, or if the data plane does not answer.
    async fn carry_out(self, router: &Router, _: &Authorized<'_>) -> Result<FlowsView, ControlError> {
        let FlowQuery { filter, order, limit } = self.0;
        let limit = limit.unwrap_or(LIMIT);
        if !(1..=MOST).contains(&limit) {
            return Err(ControlError::invalid(format!("limit {limit} is out of range: 1 to {MOST}")));
        }
        let filter = selected_flows(router, filter.as_deref())?;
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
        let take = |worker, flow: FlowReport| {
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

/// Flushes the flows that a filter selects: their next packets are classified again. The answer is the number
/// of flushed flows.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlushFlows {
    /// Filter; a flow is flushed if one of its packets may match. All flows by default.
    pub filter: Option<String>,
}

impl Operation for FlushFlows {
    type Answer = u64;
    const EFFECT: Effect = Effect::Forwarding;

    /// # Errors
    /// Returns an error for an invalid filter, or if the data plane does not answer.
    async fn carry_out(self, router: &Router, _: &Authorized<'_>) -> Result<u64, ControlError> {
        let filter = selected_flows(router, self.filter.as_deref())?;
        let mut flushed = 0;
        router.scan(FlowCommand::Flush, &filter, |_, _| flushed += 1).await?;
        Ok(flushed)
    }
}

/// Explains how the router would treat a packet.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lookup {
    /// Description of the packet: a filter without wildcards for the addresses.
    pub packet: String,
}

impl Operation for Lookup {
    type Answer = LookupView;
    const EFFECT: Effect = Effect::Look;

    /// # Errors
    /// Returns an error for an invalid description of the packet, or if the data plane does not answer.
    async fn carry_out(self, router: &Router, _: &Authorized<'_>) -> Result<LookupView, ControlError> {
        let packet = ReadPacket::read(&self.packet)?;
        let mut inner = router.lock();
        let question = packet.question(&inner.model)?;
        let explanation = inner
            .workers
            .owner_of_flow(&question.key)
            .ask(|reply| ObservationCommand::Explain(question, reply))?;
        let leaf = match explanation.queue {
            Some((port, queue)) => {
                inner.workers.ask(|reply| SchedulerCommand::FindLeaf(port, queue, reply))?
            }
            None => Vec::new(),
        };
        let leaf = leaf.into_iter().flatten().next();
        Ok(lookup::view(explanation, leaf, &inner.model, &inner.routes.table))
    }
}

/// Lists the placements, with the levels of all flows, and the reasons why flows stay at a worker.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListPlacements;

impl Operation for ListPlacements {
    type Answer = PlacementsView;
    const EFFECT: Effect = Effect::Look;

    /// # Errors
    /// Returns an error if the data plane does not answer.
    async fn carry_out(self, router: &Router, _: &Authorized<'_>) -> Result<PlacementsView, ControlError> {
        let (placed, resolved) = {
            let inner = router.lock();
            let resolved = |placed: &Placed| Resolved::of(&placed.what, &inner.model);
            let resolved: Vec<_> = inner.model.placements.iter().map(resolved).collect::<Result<_, _>>()?;
            (inner.model.placements.clone(), resolved)
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

/// Sets the level of flows or of an instance's packets; `auto` removes the placement. When the operation has
/// succeeded, no packet of these flows passes another level. Only flows placed in the offload wait for their
/// next packet to move there.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct PlaceFlows(
    /// Flows with their level.
    pub NewPlacement,
);

impl Operation for PlaceFlows {
    type Answer = PlacementView;
    const EFFECT: Effect = Effect::Forwarding;
    const TAKES_MEMORY: bool = true;

    /// # Errors
    /// Returns an error for a text that is neither filter nor instance, an instance that can't be offloaded,
    /// a missing flow cache, too many placements, or `auto` without a placement. Nothing has changed then.
    async fn carry_out(self, router: &Router, _: &Authorized<'_>) -> Result<PlacementView, ControlError> {
        let Self(new) = self;
        // The state is not locked while a long filter is parsed.
        let filter = parse_filter(new.flow.trim());
        let (placed, resolved) = {
            let mut guard = router.to_change()?;
            let inner = &mut *guard;
            set_placement(&mut inner.model, &mut inner.offload, &mut inner.workers, &new, filter)?
        };
        let (counts, _) = count_flows(router, &[resolved.compile()?]).await?;
        let view = counts[0].view(&placed, &router.lock().model);
        Ok(if new.level == WantedLevel::Auto { PlacementView { level: "auto", ..view } } else { view })
    }
}

/// Compiles the filter of flows; all flows match a missing one.
///
/// # Errors
/// Returns an error for an invalid filter.
fn selected_flows(router: &Router, filter: Option<&str>) -> Result<CompiledSelection, ControlError> {
    Ok(router.select(filter)?.unwrap_or_else(CompiledSelection::any))
}

impl Router {
    /// Visits the flow tables of all workers in pieces. Calls `take` with the worker's number and each flow.
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
                let page = self.lock().workers.get(worker).ask(|reply| command(scan, reply))?;
                page.flows.into_iter().for_each(|flow| take(worker, flow));
                // A table never shrinks during the scan, so each piece begins after the previous one.
                from = page.next.filter(|next| *next > start);
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }
}

/// Counts the flows of each target of a placement, and all flows. A flow of several targets counts at the first
/// one.
async fn count_flows(router: &Router, concerned: &[Concerned]) -> Result<(Vec<Count>, Count), ControlError> {
    let mut flows = Vec::new();
    router.scan(FlowCommand::Scan, &CompiledSelection::any(), |_, flow| flows.push(flow)).await?;
    Ok(counts_of(&flows, concerned, &router.lock().model))
}
