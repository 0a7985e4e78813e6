//! Operations on schedulers and queues.

use std::collections::HashMap;

use millrace_classify::CompiledSelection;
use millrace_config::{Principal, Scheduler, SchedulerKind, SchedulerNode, one_flow};
use millrace_packet::FlowKey;
use millrace_pipeline::{FlowCommand, FlowQueueReport, FlowReport};
use millrace_units::{PortId, QueueId};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::ControlError;
use crate::model::packets::parse_packet;
use crate::model::schedulers::unless_empty;
use crate::operation::Operation;
use crate::operation::kinds::{Change, Changing, Query, Reading};
use crate::request::NodeRemoval;
use crate::request::merge_patch::{all_known, patched};
use crate::router::{Inner, Seen};
use crate::schedulers::node_changes;
use crate::schedulers::node_changes::SETTINGS;
use crate::schedulers::node_removal::plan_removal;
use crate::schedulers::queues::{flow_queue_reports, flow_queue_view, queues_of};
use crate::schedulers::view::SchedulerViews;
use crate::view::{FlowQueueView, QueueView, RemovedNodeView, SchedulerView};

/// Reads the scheduler settings of a port; `None` if the port has no scheduler.
#[derive(Clone, Debug)]
pub struct GetSchedulerSettings {
    /// Name of the port.
    pub port: String,
}

impl Operation for GetSchedulerSettings {
    type Answer = Option<Scheduler>;
    type Kind = Query;

    /// # Errors
    /// Returns an error for an unknown port.
    async fn carry_out(self, router: &Reading) -> Result<Option<Scheduler>, ControlError> {
        let inner = router.lock();
        let id = inner.model.port(&self.port)?.id;
        Ok(inner.model.schedulers.configured(id))
    }
}

/// Adds a node to the scheduler of a port; the first node creates the scheduler. When the operation is done,
/// the node applies to the next packet.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddSchedulerNode {
    /// Name of the port.
    pub port: String,
    /// New node.
    pub node: SchedulerNode,
}

impl Operation for AddSchedulerNode {
    type Answer = SchedulerView;
    type Kind = Change;

    /// # Errors
    /// Returns an error for an unknown port or an invalid node: guarantees above the link's rate, an unknown
    /// parent, or settings out of range.
    async fn carry_out(self, router: &Changing) -> Result<SchedulerView, ControlError> {
        let Self { port, node } = self;
        let change = move |scheduler: &mut Scheduler, _: &str| {
            scheduler.node.push(node);
            Ok(())
        };
        edit(router, port, change).await
    }
}

/// Changes settings of a node of a port's scheduler; the setting `under` moves the node to another parent. A
/// leaf may become another kind of leaf, and keeps its packets.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetSchedulerNode {
    /// Name of the port.
    pub port: String,
    /// Name of the node.
    #[serde(rename = "node")]
    pub name: String,
    /// Changed settings; `null` removes a setting.
    #[serde(rename = "settings")]
    pub changes: Map<String, Value>,
}

impl Operation for SetSchedulerNode {
    type Answer = SchedulerView;
    type Kind = Change;

    /// # Errors
    /// Returns an error for an unknown port or node, or invalid settings. Nothing has changed then.
    async fn carry_out(self, router: &Changing) -> Result<SchedulerView, ControlError> {
        set_node(router, self.port, self.name, self.changes).await
    }
}

/// Changes settings of a port's scheduler as a whole: rate, overhead, default queue, maximum number of
/// queues, and host output.
#[derive(Clone, Debug)]
pub struct SetScheduler {
    /// Name of the port.
    pub port: String,
    /// Changed settings; `null` removes a setting.
    pub changes: Map<String, Value>,
}

impl Operation for SetScheduler {
    type Answer = SchedulerView;
    type Kind = Change;

    /// # Errors
    /// Returns an error if the port has no scheduler, if the new rate is below the guarantees of the nodes,
    /// or for an unknown leaf or setting.
    async fn carry_out(self, router: &Changing) -> Result<SchedulerView, ControlError> {
        let Self { port, changes } = self;
        if changes.contains_key("node") {
            return Err(ControlError::invalid(
                "the settings of a scheduler don't include its nodes: use `scheduler add`, \
                 `scheduler set --node` or `scheduler remove`",
            ));
        }
        if changes.contains_key("flow") {
            return Err(ControlError::invalid(
                "the settings of a scheduler don't include its flows: use `queue set --flow`",
            ));
        }
        all_known("setting of a port's scheduler", &changes, SETTINGS.into_iter())?;
        let change = move |scheduler: &mut Scheduler, port: &str| {
            *scheduler = patched(unless_empty(scheduler, port)?, &changes)?;
            Ok(())
        };
        edit(router, port, change).await
    }
}

/// Lists the queues of all ports with a scheduler: the leaves of the schedulers.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListQueues;

impl Operation for ListQueues {
    type Answer = Vec<QueueView>;
    type Kind = Query;

    async fn carry_out(self, router: &Reading) -> Result<Vec<QueueView>, ControlError> {
        queue_views(&mut router.lock().seen())
    }
}

/// Reads a queue of a port. If the queue has queues of single flows, includes them.
#[derive(Clone, Debug)]
pub struct GetQueue {
    /// Name of the port.
    pub port: String,
    /// Name of the queue.
    pub queue: String,
}

impl Operation for GetQueue {
    type Answer = QueueView;
    type Kind = Query;

    /// # Errors
    /// Returns an error for an unknown port or queue, or if the data plane does not answer.
    async fn carry_out(self, router: &Reading) -> Result<QueueView, ControlError> {
        let Self { port, queue } = self;
        let mut view = queue_view(&mut router.lock().seen(), &port, &queue)?;
        if view.node.kind == SchedulerKind::FlowQueues.name() {
            view.flows = flow_queues(router, &port, &queue, view.node.id).await?;
        }
        Ok(view)
    }
}

/// Changes settings of a queue of a port, or of a single flow at the queue.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetQueue {
    /// Name of the port.
    pub port: String,
    /// Name of the queue.
    pub queue: String,
    /// Description of a packet of a flow; with it, the settings apply to this flow only.
    pub flow: Option<String>,
    /// Changed settings; `null` removes a setting.
    #[serde(rename = "settings")]
    pub changes: Map<String, Value>,
}

impl Operation for SetQueue {
    type Answer = ();
    type Kind = Change;

    /// # Errors
    /// Returns an error for an unknown port or queue, or invalid settings. Nothing has changed then.
    async fn carry_out(self, router: &Changing) -> Result<(), ControlError> {
        let Self { port, queue, flow, changes } = self;
        let Some(flow) = flow else { return set_node(router, port, queue, changes).await.map(drop) };
        // Parsing a long text takes time, so it is done before the state is locked.
        let flow = one_flow(&flow).map_err(ControlError::invalid)?;
        if queue.starts_with(Principal::QUEUE_PREFIX) {
            return Err(ControlError::invalid(format!(
                "queue {queue:?} is the queue of a principal: its flows have no settings of their own"
            )));
        }
        let plan = move |inner: &mut Inner| {
            let flows = inner.model.changed_flows(&port, &queue, &flow, &changes)?;
            let change = |scheduler: &mut Scheduler| {
                scheduler.flow = flows;
                Ok(())
            };
            Ok((inner.plan_scheduler(&port, change)?.0, ()))
        };
        router.change(plan, |_, ()| Ok(())).await
    }
}

/// Removes a node of a port's scheduler, with all nodes below it. Waiting packets move to a given leaf, or
/// are dropped.
///
/// After the removal, filters could name a queue that no port has any more. These filters move to the given
/// leaf, or are removed if requested; otherwise the node is not removed. Removing the last node removes the
/// scheduler. The removal is complete or doesn't happen; dropping the future doesn't stop it.
#[derive(Clone, Debug)]
pub struct RemoveSchedulerNode {
    /// Name of the port.
    pub port: String,
    /// Name of the node.
    pub node: String,
    /// Treatment of the node's packets and filters.
    pub removal: NodeRemoval,
}

impl Operation for RemoveSchedulerNode {
    type Answer = RemovedNodeView;
    type Kind = Change;
    const TAKES_MEMORY: bool = false;

    /// # Errors
    /// Returns an error if there is no such node, if the given leaf is removed too, or if filters would be
    /// left without a queue.
    async fn carry_out(self, router: &Changing) -> Result<RemovedNodeView, ControlError> {
        let Self { port, node, removal } = self;
        let plan = move |inner: &mut Inner| {
            let (changes, filters) = plan_removal(&inner.model, &mut inner.workers, &port, &node, &removal)?;
            let NodeRemoval { to, with_filters } = removal;
            Ok((changes, RemovedNodeView { port, node, to, with_filters, filters }))
        };
        router.change(plan, |_, removed| Ok(removed)).await
    }
}

/// Lists the schedulers of all ports that have one.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListSchedulers;

impl Operation for ListSchedulers {
    type Answer = Vec<SchedulerView>;
    type Kind = Query;

    async fn carry_out(self, router: &Reading) -> Result<Vec<SchedulerView>, ControlError> {
        scheduler_views(&mut router.lock().seen())
    }
}

/// Changes settings of a node of a port's scheduler.
///
/// # Errors
/// Returns the errors of [`SetSchedulerNode`].
async fn set_node(
    router: &Changing,
    port: String,
    name: String,
    changes: Map<String, Value>,
) -> Result<SchedulerView, ControlError> {
    if changes.contains_key("name") {
        return Err(ControlError::invalid(
            "the name of a node can't be changed: remove the node, and add another",
        ));
    }
    let change =
        move |scheduler: &mut Scheduler, port: &str| node_changes::set_node(scheduler, port, &name, &changes);
    edit(router, port, change).await
}

/// Changes the scheduler of a port by `change`, which also gets the name of the port.
async fn edit(
    router: &Changing,
    port: String,
    change: impl FnOnce(&mut Scheduler, &str) -> Result<(), ControlError> + Send + 'static,
) -> Result<SchedulerView, ControlError> {
    let plan = move |inner: &mut Inner| inner.plan_scheduler(&port, |scheduler| change(scheduler, &port));
    router.change(plan, |inner, id| scheduler_view(&mut inner.seen(), id)).await
}

/// Returns the view of the scheduler of a port.
fn scheduler_view(inner: &mut Seen<'_>, port: PortId) -> Result<SchedulerView, ControlError> {
    let snapshot = inner.snapshot()?;
    views(inner).of(port, &snapshot)
}

/// Returns the views of all ports' schedulers.
fn scheduler_views(inner: &mut Seen<'_>) -> Result<Vec<SchedulerView>, ControlError> {
    let snapshot = inner.snapshot()?;
    views(inner).all(&snapshot)
}

/// Returns the parts of the router from which the views of schedulers are made.
fn views<'a>(inner: &'a mut Seen<'_>) -> SchedulerViews<'a> {
    let Seen { model, devices, kernel, workers, queueing, .. } = inner;
    SchedulerViews { model, devices, kernel, workers, rates: &mut queueing.rates }
}

/// Returns the views of all queues. The views omit the queues of single flows.
fn queue_views(inner: &mut Seen<'_>) -> Result<Vec<QueueView>, ControlError> {
    Ok(scheduler_views(inner)?.into_iter().flat_map(queues_of).collect())
}

/// Returns the view of a queue of a port. The view omits the queues of single flows.
///
/// # Errors
/// Returns an error for an unknown port or queue, or if the data plane does not answer.
fn queue_view(inner: &mut Seen<'_>, port: &str, queue: &str) -> Result<QueueView, ControlError> {
    inner.model.port(port)?;
    let mut of_port: Vec<QueueView> =
        queue_views(inner)?.into_iter().filter(|view| view.port == port).collect();
    match of_port.iter().position(|view| view.node.name == queue) {
        Some(index) => Ok(of_port.swap_remove(index)),
        None => Err(ControlError::unknown("queue", queue, of_port.iter().map(|view| &*view.node.name))),
    }
}

/// Returns the views of the flow queues in a leaf of a port.
async fn flow_queues(
    router: &Reading,
    port: &str,
    queue: &str,
    leaf: u16,
) -> Result<Vec<FlowQueueView>, ControlError> {
    let id = router.lock().model.port(port)?.id;
    let mut reports = Vec::new();
    loop {
        let more = {
            let mut guard = router.lock();
            let inner = guard.seen();
            flow_queue_reports(inner.model, inner.workers, id, QueueId(leaf), reports.len())?
        };
        if more.is_empty() {
            break;
        }
        reports.extend(more);
        tokio::task::yield_now().await;
    }
    let mut keys: HashMap<u32, FlowKey> = {
        let inner = router.lock();
        inner.queueing.former_flows.iter().map(|key| (inner.workers.hash_of(key), *key)).collect()
    };
    let note = |_, flow: FlowReport| {
        keys.insert(flow.hash, flow.key);
    };
    router.scan(FlowCommand::Scan, &CompiledSelection::any(), note).await?;
    let inner = router.lock();
    // A flow with settings is shown by its description even while it sends no packets.
    let said = inner.model.schedulers.of(id).into_iter().flat_map(|own| &own.flow);
    let said = said
        .filter(|flow| flow.queue == queue)
        .filter_map(|flow| parse_packet(&flow.flow, &inner.model).ok());
    keys.extend(said.map(|packet| (inner.workers.hash_of(packet.key()), *packet.key())));
    let view = |report: FlowQueueReport| flow_queue_view(report, &keys, &inner.model);
    Ok(reports.into_iter().map(view).collect())
}
