//! Queues of ports: what waits in each, before and behind it; the queues of single flows, and how these are treated.

use std::collections::HashMap;

use millrace_classify::Filter;
use millrace_config::{Bits, FlowQueue, Scheduler, SchedulerKind};
use millrace_packet::FlowKey;
use millrace_pipeline::{Command, FlowQueueReport, FlowReport, FlowTreatment, ScheduleChange};
use millrace_schedule::{NodeKind, Rate};
use millrace_units::{PortId, QueueId};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::ControlError;
use crate::flows::selector;
use crate::lookup::parse_packet;
use crate::model::Model;
use crate::reading::read;
use crate::router::{Inner, Router};
use crate::scheduler_tree::NO_QUANTUM;
use crate::view::{FlowQueueView, QueueView, SchedulerNodeView, SchedulerView};

/// Settings of a flow's queue.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FlowSettings {
    /// Bytes in each round; `null` for those of all others.
    #[serde(default, deserialize_with = "said")]
    quantum: Option<Option<u32>>,
    /// Bytes above which what arrives is dropped; `null` for those of all others.
    #[serde(default, deserialize_with = "said")]
    threshold: Option<Option<u32>>,
    /// What is reserved for it.
    rate: Option<Bits>,
}

/// A value that is there, be it `null`.
fn said<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u32>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl FlowSettings {
    fn parse(changes: &Map<String, Value>) -> Result<Self, ControlError> {
        read("what is asked for", Value::Object(changes.clone())).map_err(|error| {
            ControlError::Invalid(format!(
                "queue of a flow: {error}; it has a quantum, a threshold and a rate"
            ))
        })
    }

    /// How the flow is treated, in a leaf of this kind.
    fn treatment(self, leaf: &NodeKind) -> Result<FlowTreatment, ControlError> {
        if !matches!(leaf, NodeKind::FlowQueues(_)) {
            return Err(ControlError::Invalid("only flow-queues have a queue for each flow".into()));
        }
        match (self.rate, self.quantum, self.threshold) {
            (_, Some(Some(0)), _) => Err(ControlError::Invalid(format!("queue of a flow: {NO_QUANTUM}"))),
            (Some(Bits(bits)), None, None) => Ok(FlowTreatment::Reserved(Rate(bits))),
            (Some(_), ..) => Err(ControlError::Invalid(
                "a flow with a rate gets the quantum that follows from it: give either a rate, or quantum and threshold"
                    .into(),
            )),
            (None, None, None) => Ok(FlowTreatment::Common),
            (None, quantum, threshold) => {
                let quantum = quantum.map(|own| own.unwrap_or(0));
                Ok(FlowTreatment::BestEffort(quantum, threshold))
            }
        }
    }
}

impl Router {
    /// The queues of all ports with a scheduler: its leaves.
    ///
    /// # Errors
    /// When the data plane does not answer.
    pub fn queues(&self) -> Result<Vec<QueueView>, ControlError> {
        let leaves = |scheduler: SchedulerView| {
            let leaf = |node: &SchedulerNodeView| {
                node.kind.parse::<SchedulerKind>().is_ok_and(SchedulerKind::is_leaf)
            };
            let port = scheduler.port;
            let nodes = scheduler.nodes.into_iter().filter(leaf);
            nodes.map(move |node| QueueView {
                port: port.clone(),
                offered_packets: node.sent_packets
                    + u64::from(node.held_packets)
                    + node.drops.values().sum::<u64>(),
                offered_bytes: node.sent_bytes + u64::from(node.held_bytes) + node.dropped_bytes,
                flows: Vec::new(),
                node,
            })
        };
        Ok(self.schedulers()?.into_iter().flat_map(leaves).collect())
    }

    /// A queue of a port, with those of flows in it, if it has such.
    ///
    /// # Errors
    /// No such port or queue; when the data plane does not answer.
    pub async fn queue(&self, port: &str, queue: &str) -> Result<QueueView, ControlError> {
        self.lock().model.port(port)?;
        let of_port: Vec<QueueView> = self.queues()?.into_iter().filter(|view| view.port == port).collect();
        let known = of_port.iter().map(|view| view.node.name.clone()).collect::<Vec<_>>();
        let found = of_port.into_iter().find(|view| view.node.name == queue);
        let mut view =
            found.ok_or_else(|| ControlError::unknown("queue", queue, known.iter().map(String::as_str)))?;
        if view.node.kind == SchedulerKind::FlowQueues.name() {
            view.flows = self.flow_queues(port, queue, view.node.id).await?;
        }
        Ok(view)
    }

    async fn flow_queues(
        &self,
        port: &str,
        queue: &str,
        leaf: u16,
    ) -> Result<Vec<FlowQueueView>, ControlError> {
        let id = self.lock().model.port(port)?.id;
        let mut reports = Vec::new();
        loop {
            let more = self.lock().flow_queue_reports(id, QueueId(leaf), reports.len())?;
            if more.is_empty() {
                break;
            }
            reports.extend(more);
            tokio::task::yield_now().await;
        }
        let mut keys = HashMap::new();
        let filter = self.lock().model.compile(&Filter::any())?;
        let note = |_, flow: FlowReport| {
            keys.insert(flow.hash, flow.key);
        };
        self.scan(Command::ScanFlows, filter, note).await?;
        let inner = self.lock();
        // Flows that something was said of are known also while no packet of theirs comes.
        let said = inner.model.schedulers.of(id).into_iter().flat_map(|own| &own.flow);
        let said = said
            .filter(|flow| flow.queue == queue)
            .filter_map(|flow| parse_packet(&flow.flow, &inner.model).ok());
        keys.extend(said.map(|packet| (inner.workers.hash_of(&packet.key), packet.key)));
        let view = |FlowQueueReport { hash, reserved, queue }: FlowQueueReport| FlowQueueView {
            flow: hash.and_then(|hash| keys.get(&hash)).map(|key| selector(key, &inner.model)),
            shared: hash.is_none(),
            quantum: queue.quantum,
            threshold: queue.threshold,
            rate: reserved.map(|rate| rate.0),
            offered_packets: queue.offered_packets,
            offered_bytes: queue.offered_bytes,
            sent_packets: queue.sent_packets,
            sent_bytes: queue.sent_bytes,
            held_packets: queue.held_packets,
            held_bytes: queue.held_bytes,
            peak_bytes: queue.peak_bytes,
            peak_packets: queue.peak_packets,
            drops: queue.drops.iter().map(|(cause, packets)| (cause.name(), packets)).collect(),
            dropped_bytes: queue.drops.bytes(),
        };
        Ok(reports.into_iter().map(view).collect())
    }

    /// Changes settings of a queue of a port, or of the queue of one flow in it: `flow` describes a packet of it.
    ///
    /// # Errors
    /// No such port or queue, settings that can't be; nothing has changed then.
    pub fn set_queue(
        &self,
        port: &str,
        queue: &str,
        flow: Option<&str>,
        changes: &Map<String, Value>,
    ) -> Result<(), ControlError> {
        let Some(flow) = flow else { return self.set_scheduler_node(port, queue, changes).map(drop) };
        let mut inner = self.to_change()?;
        let id = inner.model.port(port)?.id;
        let change = inner.model.flow_change(port, queue, flow, changes)?;
        let old = inner.model.schedulers.clone();
        inner.model.note_flow(id, queue, flow, changes)?;
        let after = inner.model.schedulers.of(id).cloned().unwrap_or_default();
        let checked = inner.model.schedulers.check(&after).map_err(ControlError::from);
        let done = checked.and_then(|()| inner.schedule(id, vec![change]));
        done.inspect_err(|_| inner.model.schedulers = old.clone())?;
        inner.note_reservations(port, &old.of(id).cloned().unwrap_or_default(), &after);
        inner.tell_reserved()
    }
}

/// A flow as it is compared with others.
fn canonical(flow: &str) -> String {
    flow.parse::<Filter>().map_or_else(|_| flow.to_owned(), |filter| filter.to_string())
}

fn find_flow<'s>(scheduler: &'s Scheduler, queue: &str, flow: &str) -> Option<&'s FlowQueue> {
    let flow = canonical(flow);
    scheduler.flow.iter().find(|own| own.queue == queue && canonical(&own.flow) == flow)
}

/// What is remembered of a flow after changes; nothing, where it is like all others.
fn with_changes(
    known: Option<&FlowQueue>,
    queue: &str,
    flow: &str,
    changes: &Map<String, Value>,
) -> Result<Option<FlowQueue>, ControlError> {
    let FlowSettings { rate, quantum, threshold } = FlowSettings::parse(changes)?;
    let none = FlowQueue {
        queue: queue.to_owned(),
        flow: canonical(flow),
        rate: None,
        quantum: None,
        threshold: None,
    };
    if rate.is_some() || (quantum, threshold) == (None, None) {
        return Ok(rate.map(|rate| FlowQueue { rate: Some(rate), ..none }));
    }
    let before = |own: fn(&FlowQueue) -> Option<u32>| known.and_then(own);
    let after = FlowQueue {
        quantum: quantum.unwrap_or_else(|| before(|flow| flow.quantum)),
        threshold: threshold.unwrap_or_else(|| before(|flow| flow.threshold)),
        ..none.clone()
    };
    Ok(Some(after).filter(|after| *after != none))
}

/// The changes that give a flow of the configuration what is said of it, whatever it had.
fn absolute(flow: &FlowQueue) -> Map<String, Value> {
    let rate = flow.rate.map(|rate| ("rate".to_owned(), serde_json::to_value(rate).unwrap_or_default()));
    let bytes = [("quantum", flow.quantum), ("threshold", flow.threshold)];
    match rate {
        Some(rate) => [rate].into_iter().collect(),
        None => bytes.into_iter().map(|(key, bytes)| (key.to_owned(), bytes.into())).collect(),
    }
}

impl Model {
    /// Remembers changes of a flow of a port's scheduler.
    pub(crate) fn note_flow(
        &mut self,
        port: PortId,
        queue: &str,
        flow: &str,
        changes: &Map<String, Value>,
    ) -> Result<(), ControlError> {
        let known = self.schedulers.of(port).and_then(|scheduler| find_flow(scheduler, queue, flow));
        let remembered = with_changes(known, queue, flow, changes)?;
        self.schedulers.note_flow(port, queue, &canonical(flow), remembered);
        Ok(())
    }

    /// The flows that a rate is reserved for, in the queues of any port.
    pub(crate) fn reserved_flows(&self) -> Vec<FlowKey> {
        let reserved = self.schedulers.flows().filter(|flow| flow.rate.is_some());
        // What stands there was read before.
        reserved.filter_map(|flow| parse_packet(&flow.flow, self).ok()).map(|packet| packet.key).collect()
    }

    /// What makes the schedulers of all ports of none, the treatment of single flows included.
    pub(crate) fn begin_schedulers(&self) -> Result<Vec<(PortId, Vec<ScheduleChange>)>, ControlError> {
        let mut all = Vec::new();
        for (port, mut changes) in self.schedulers.begin()? {
            let flows = self.schedulers.of(port).map_or(&[][..], |own| &own.flow);
            changes.extend(self.flow_changes(self.port_name(port), &[], flows)?);
            all.push((port, changes));
        }
        Ok(all)
    }

    /// The change of a port's scheduler that gives a flow other settings.
    pub(crate) fn flow_change(
        &self,
        port: &str,
        queue: &str,
        flow: &str,
        changes: &Map<String, Value>,
    ) -> Result<ScheduleChange, ControlError> {
        let id = self.port(port)?.id;
        let (leaf, kind, node) = self.schedulers.leaf(id, port, queue)?;
        let key = parse_packet(flow, self)?.key;
        let settings = FlowSettings::parse(changes)?;
        if settings.rate.is_some() && node.rate.is_none() {
            return Err(ControlError::Invalid(format!(
                "queue {queue:?} has no rate of which a part could be reserved: say what it is served with, \
                 `queue set {port} {queue} rate=RATE`"
            )));
        }
        Ok(ScheduleChange::Flow(leaf, key, settings.treatment(&kind)?))
    }

    /// The changes that treat the flows of a port's scheduler as `after` says, where it was as `before` says. Both are of leaves
    /// that are there.
    pub fn flow_changes(
        &self,
        port: &str,
        before: &[FlowQueue],
        after: &[FlowQueue],
    ) -> Result<Vec<ScheduleChange>, ControlError> {
        let is = |one: &FlowQueue, other: &FlowQueue| {
            one.queue == other.queue && canonical(&one.flow) == canonical(&other.flow)
        };
        let gone = before.iter().filter(|own| !after.iter().any(|other| is(own, other)));
        // One whose leaf is gone is gone with it.
        let released = gone.filter_map(|own| {
            self.flow_change(port, &own.queue, &own.flow, &Map::from_iter([("rate".into(), Value::Null)]))
                .ok()
        });
        let new = after.iter().filter(|own| !before.contains(own));
        let set = new.map(|own| self.flow_change(port, &own.queue, &own.flow, &absolute(own)));
        released.map(Ok).chain(set).collect()
    }
}

impl Inner {
    /// Tells the workers which flows something is reserved for.
    pub fn tell_reserved(&mut self) -> Result<(), ControlError> {
        let flows = self.model.reserved_flows();
        self.workers.tell(|| Command::ReserveFlows(flows.clone()))
    }

    fn flow_queue_reports(
        &mut self,
        port: PortId,
        leaf: QueueId,
        first: usize,
    ) -> Result<Vec<FlowQueueReport>, ControlError> {
        let reports = self.owner_of(port)?.ask(|reply| Command::ShowQueues(port, leaf, first, reply))?;
        reports.map_err(|error| self.model.schedulers.refusal(error))
    }
}

#[cfg(test)]
mod tests {
    use millrace_schedule::FlowQueuesSettings;
    use serde_json::json;

    use super::*;

    fn treatment(changes: Value) -> Result<FlowTreatment, ControlError> {
        let leaf = NodeKind::FlowQueues(FlowQueuesSettings::default());
        FlowSettings::parse(changes.as_object().unwrap())?.treatment(&leaf)
    }

    #[test]
    fn a_flow_has_a_rate_or_a_quantum() {
        assert_eq!(treatment(json!({"rate": "1mbit"})), Ok(FlowTreatment::Reserved(Rate(1_000_000))));
        assert_eq!(treatment(json!({"rate": null})), Ok(FlowTreatment::Common));
        let both = treatment(json!({"quantum": 3000, "threshold": 5000}));
        assert_eq!(both, Ok(FlowTreatment::BestEffort(Some(3000), Some(Some(5000)))));
        let taken_away = treatment(json!({"quantum": null, "threshold": null}));
        assert_eq!(taken_away, Ok(FlowTreatment::BestEffort(Some(0), Some(None))));
        for (wrong, why) in [
            (json!({"rate": "1mbit", "quantum": 1}), "either a rate"),
            (json!({"rate": "fast"}), "is no rate"),
            (json!({"weight": 3}), "weight"),
        ] {
            let refused = treatment(wrong).unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
        let fifo = NodeKind::Fifo(Default::default());
        let refused = FlowSettings { quantum: Some(Some(1)), threshold: None, rate: None }.treatment(&fifo);
        assert!(refused.unwrap_err().to_string().contains("only flow-queues"));
    }
}
